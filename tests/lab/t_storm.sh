# SPDX-License-Identifier: Apache-2.0
# Two clients write large mirrored files. The test kills the MDS and then a data server (-9) and
# starts them again: no error, and every byte that fsync or close acknowledged is there.
cluster_up --set mds.lease=5s --set mds.grace=5s
guest -m 2G -t 500 1 storm.sh 1 &
guest -m 2G -t 500 2 storm.sh 2 &
wait_flag writing1 120
wait_flag writing2 120
for round in 1 2 3; do
	sleep 2
	dev kill mds -9
	check "the MDS starts again (round $round)" dev start mds
	sleep 4
	dev kill ds$round -9
	sleep 1
	check "ds$round starts again" dev start ds$round
done
flag enough
wait
