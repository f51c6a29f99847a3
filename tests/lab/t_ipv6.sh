# SPDX-License-Identifier: Apache-2.0
# The same over IPv6, with daemons of several threads.
cluster_up --addr fd77::1 --set mds.threads=2 --set ds.threads=2
guest 1 ipv6.sh
check "data went to every data server" \
	bash -c 'for d in 1 2 3 4;
		do [ "$(python3 "$1/metric.py" "$2" ds$d weft_ds_bytes_total \
			dir=write)" -gt 1000000 ] ||
			exit 1; done' - "$LAB_HERE" "$CLUSTER"
same "the MDS saw no WRITE" "$(metric mds weft_mds_op_total op=WRITE)" 0
