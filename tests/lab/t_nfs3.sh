# SPDX-License-Identifier: Apache-2.0
# A stock client mounts a folder that a data server exports by path (vers=3) and works in it; the
# server is killed while it writes.
mkdir -m 777 "$LAB_DIR/tree"
cat >"$LAB_DIR/exports.v3" <<END
export "$LAB_DIR/tree" {
	client "10.77.0.0/16" { access = rw  squash = none }
}
END
# Its files are in memory of this test's own.
mount -t tmpfs tmpfs /run
PATH=$PATH:/usr/sbin:/sbin
rpcbind -f &
rpcbind=$!
until [ -S /run/rpcbind.sock ]; do sleep 0.05; done
known() {
	rpcinfo -p 127.0.0.1 | awk '$1 == 100003 || $1 == 100005 { print $1, $2, $3, $4 }' | sort |
		tr '\n' ','
}
cluster_up --ds 1 --set ds.exports="$LAB_DIR/exports.v3" --set ds.rpcbind=true
port=$(daemon ds1 port)
for i in {1..50}; do [ -z "$(known)" ] || break; sleep 0.1; done
same "rpcbind knows NFS and MOUNT" "$(known)" "100003 3 tcp $port,100005 3 tcp $port,"
guest 1 nfs3.sh "$LAB_DIR/tree" "$port" &
guest=$!
wait_flag writing
sleep 0.5
dev kill ds1 -9
sleep 1
check "the server starts again" dev start ds1
flag restarted
wait $guest
same "what the client made is here" "$(cd "$LAB_DIR/tree" && find copy -type f -print0 | sort -z |
	xargs -0 sha256sum | sha256sum)" "$(cat "$SHARED/tree.sum")"
same "and belongs to who made it" "$(stat -c '%u:%g %a' "$LAB_DIR/tree/user/mine")" "1000:1000 640"
check "calls came by path" test "$(metric ds1 weft_ds_export_bytes_total dir=write)" -gt 50000000
same "none was refused" "$(metric ds1 weft_ds_export_denied_total)" 0
dev kill ds1
same "rpcbind knows them no more when the server has ended" "$(known)" ""
dev start ds1
kill $rpcbind
