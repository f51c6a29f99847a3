# SPDX-License-Identifier: Apache-2.0
# A client has a file open that another removes: it reads and writes on, through a crash of the MDS,
# until it closes it. Then the same with a holder that dies.
cluster_up --set mds.lease=5s --set mds.grace=5s --set mds.courtesy=2s
guest 2 unlink.sh other &
other=$!
"$LAB_HERE/lab" -t 200 -n 1 /usr/bin/env "WEFT_MOUNT=$WEFT_MOUNT" "WEFT_SHARED=$SHARED" \
	"$LAB_HERE/guest/unlink.sh" holder &
holder=$!
wait_flag used
check "its object is there" test "$(objects)" -ge 1
dev kill mds -9
check "the MDS starts again" dev start mds
flag restarted
wait_flag closed
check "the last close takes its object away" no_objects 20
flag second
wait_flag written2
check "the object of the second is there while its holder lives" test "$(objects)" -ge 1
flag die
wait $holder
check "it goes when the holder's lease is over" no_objects 40
flag gone
wait $other
