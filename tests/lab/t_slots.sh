# SPDX-License-Identifier: Apache-2.0
# The stock client's slot table follows the server: it grows while a hundred processes make
# directories (the server stands still now and then, so that they fill it), shrinks when the client
# is idle, and grows again.
cluster_up --set mds.lease=5s
most() { # FLAG: the most slots in use until the flag is there
	local n max=0
	until [ -e "$SHARED/$1" ]; do
		n=$(metric mds weft_mds_slots)
		[ "$n" -le $max ] || max=$n
		sleep 0.1
	done
	echo $max
}
guest 1 slots.sh &
wait_flag begins
pid=$(daemon mds pid)
for turn in 1 2 3; do
	kill -STOP "$pid"
	sleep 0.7
	kill -CONT "$pid"
	sleep 0.1
done
n=$(most busy)
check "many more than the 16 slots of the beginning are in use ($n)" test "$n" -gt 20
flag idle
end=$((SECONDS + 40))
while [ "$(metric mds weft_mds_slots)" -gt 4 ] && [ $SECONDS -lt $end ]; do sleep 0.5; done
check "an idle client gives its slots back ($(metric mds weft_mds_slots) are left)" \
	test "$(metric mds weft_mds_slots)" -le 4
flag fewer
wait
