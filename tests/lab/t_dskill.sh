# SPDX-License-Identifier: Apache-2.0
# A data server dies while a mirrored file is read, then while one is written: no error reaches the
# application, what was acknowledged is there, and a copy that missed a write is never read.
cluster_up --set mds.repair_files=0 # what is stale stays so until it was looked at
guest -t 400 1 dskill.sh &
wait_flag reading
sleep 1
dev kill ds2 -9
flag killed
wait_flag writing 300
sleep 0.5
dev kill ds3 -9
flag killed3
# Both come back with what they have: ds3's copies are old where a write went past it.
wait_flag written 300
dev start ds2
dev start ds3
flag back
wait
