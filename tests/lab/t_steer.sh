# SPDX-License-Identifier: Apache-2.0
# Several clients read one hot file with a copy on each of two data servers: by weight, and the near
# copy first. The data servers' counters show it.
cluster_up --ds 2 --set "mds.near=10.77.1.0/24 rack=r1, 10.77.2.0/24 rack=r2" \
	--set mds.near_factor=1000
size=$((8 << 20))
read_by() { metric "$1" weft_ds_bytes_total dir=read; }
guest 9 steer.sh write $size
readers() { # GUEST...: they read it at the same time; then of each server how often it was read
	local g was1 was2
	was1=$(read_by ds1) was2=$(read_by ds2)
	for g; do guest "$g" steer.sh read $size & done
	wait
	n1=$((($(read_by ds1) - was1) / size)) n2=$((($(read_by ds2) - was2) / size))
	echo "# ds1 was read $n1 times, ds2 $n2 times"
}
weft ds weight ds1 0 >/dev/null
readers 11 12
same "a server without weight is not read while another lives" "$n1 $n2" "0 2"
weft ds weight ds1 3 >/dev/null
readers 11 12 13 14
one=$n1 two=$n2
readers 15 16 17 18
readers_one=$((one + n1)) readers_two=$((two + n2))
readers 19 20 21 22
readers_one=$((readers_one + n1)) readers_two=$((readers_two + n2))
same "each of 12 clients reads the whole file from one copy" $((readers_one + readers_two)) 12
# 3 of 4 want ds1. Fewer than 4 of 12 there has a chance of 1 in 2,500.
check "clients are spread over both copies, more of them where the weight is \
($readers_one and $readers_two)" \
	test "$readers_one" -ge 4
weft ds weight ds1 1 >/dev/null
weft ds group ds1 rack=r1 >/dev/null
weft ds group ds2 rack=r2 >/dev/null
readers 1
same "a client reads the copy that is near it" "$n1 $n2" "1 0"
readers 2
same "and another one the other" "$n1 $n2" "0 1"
