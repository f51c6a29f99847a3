# SPDX-License-Identifier: Apache-2.0
# kill -9 of the MDS, again and again, during the copy of a large tree: the copy ends without an
# error and compares equal.
cluster_up --set mds.lease=5s --set mds.grace=5s
guest -t 500 1 mdskill.sh &
wait_flag copying 120
for round in 1 2 3 4; do
	sleep 2
	[ ! -e "$SHARED/copied" ] || break
	dev kill mds -9
	check "the MDS starts again (round $round)" dev start mds
	touch "$SHARED/kills"; echo x >>"$SHARED/kills"
done
wait
check "the MDS was killed during the copy" test -s "$SHARED/kills"
