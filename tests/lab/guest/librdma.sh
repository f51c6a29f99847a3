#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# librdma.sh BUILD - a cluster with RDMA, and libweft beside it.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/rdma_lib.sh"
BUILD=$1
here=$(cd "$(dirname "$0")/.." && pwd)
CLUSTER=/run/c
mount -t tmpfs -o size=600m tmpfs /run
dev() { local command=$1; shift; python3 "$here/../../tools/weft-dev" "$command" $CLUSTER "$@"; }
metric() { "$BUILD/tests/lab/metric" $CLUSTER "$@"; }
rdma_up rxe
export WEFT_BUILD=$BUILD
dev up --ds 2 --addr "$LAB_SELF" --rdma 20049 --set mds.lease=10s --set mds.grace=5s >/run/up.log \
	2>&1 || {
	not_ok "the cluster starts: $(tail -3 /run/up.log)"
	exit 1
}
for i in {1..100}; do
	[ "$(grep -l 'NFS over RDMA at' $CLUSTER/log/*.log | wc -l)" != 3 ] || break
	sleep 0.1
done
sleep 1
WEFT_MOUNT="mount -t nfs4 -o vers=4.2,port=12049 $LAB_SELF:/"
mount_weft
mkdir $M/d
policy $M/d stripes=2,unit=1M,mirrors=1
umount_weft
client() {
	WEFT_RDMA=$1 WEFT_TOP=d timeout 100 "$BUILD/tests/wirelib/weft_client" \
		"$LAB_SELF:12049" "$2"
}
before=$(metric ds1,ds2 weft_ds_bytes_total dir=write)
check "data go to data servers by RDMA" client 1 straight
check "and are what they are by another way" client 1 content
check "from and to memory that was registered they go without a copy" client 1 registered
check "5 MiB went there" test $(($(metric ds1,ds2 weft_ds_bytes_total dir=write) - before)) \
	-ge $((5 << 20))
check "the data servers took RDMA connections" test "$(metric ds1,ds2 weft_rdma_accepted_total)" \
	-ge 1
check "weft-bench by RDMA" timeout 100 "$BUILD/weft-bench" io --server "$LAB_SELF:12049" --dir d \
	--rdma --threads 2 --sessions 2 --depth 2 --file 2M --size 256k --verify --quiet
timeout 100 "$BUILD/weft-bench" io --server "$LAB_SELF:12049" --dir d \
	--rdma --registered --threads 2 --sessions 2 --depth 4 --ds-conns 2 --file 2M --size 256k \
	--verify --quiet --json /run/direct.json >/run/direct.log 2>&1
check "weft-bench from and to registered memory: every call to a data server without a copy" \
	python3 - <<'END'
import json
p = {p["phase"]: p for p in json.load(open("/run/direct.json"))["phases"]}
assert all(p[n]["rdma_calls"] >= p[n]["direct_calls"] >= p[n]["ops"] > 0
           for n in ("write", "read", "randread")), p
END
flag up
wait_flag over 100
check "the daemons stop" dev down
no_complaint
