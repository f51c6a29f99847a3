# SPDX-License-Identifier: Apache-2.0
# A data server copies none of the payload of aligned calls, except what came with the first header
# of a connection. There is memory enough, however late the machine is: payload without room in the
# pool lies elsewhere.
cluster_up --set ds.pool=128M
all() { # METRIC [LABEL=VALUE]: of all data servers
	local sum=0 d
	for d in ds1 ds2 ds3 ds4; do sum=$((sum + $(metric $d "$@"))); done
	echo $sum
}
payload() { echo $(($(all weft_ds_bytes_total dir=write) + $(all weft_ds_bytes_total dir=read))); }
guest 1 copied.sh
moved=$(payload)
copied=$(all weft_ds_copied_bytes_total)
echo "# $copied of $moved bytes of payload were copied; I/O direct: $(all weft_ds_disk_io_total \
	path=direct), buffered: $(all weft_ds_disk_io_total \
	path=buffered), fixed: $(all weft_ds_fixed_io_total)"
check "the data servers saw all of it" test "$moved" -ge $((6 * 64 << 20))
check "below 1 % of the payload is copied" test $((copied * 100)) -lt "$moved"
check "nearly all goes past the page cache" test $(($(all weft_ds_disk_io_total \
	path=buffered) * 20)) -lt "$(all weft_ds_disk_io_total path=direct)"
check "and through the memory that the rings know" test $(($(all weft_ds_fixed_io_total) * 100)) \
	-ge $(($(all weft_ds_disk_io_total path=direct) * 99))
