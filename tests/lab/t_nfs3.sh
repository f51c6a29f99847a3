# A stock client mounts a folder that a data server exports by path (vers=3) and works in it; the server is killed while it writes.
mkdir -m 777 "$LAB_DIR/tree"
cat >"$LAB_DIR/exports.v3" <<END
export "$LAB_DIR/tree" {
	client "10.77.0.0/16" { access = rw  squash = none }
}
END
cluster_up --set ds.exports="$LAB_DIR/exports.v3"
port=$(daemon ds1 port)
guest 1 nfs3.sh "$LAB_DIR/tree" "$port" &
wait_flag writing
sleep 0.5
dev kill ds1 -9
sleep 1
check "the server starts again" dev start ds1
flag restarted
wait
same "what the client made is here" "$(cd "$LAB_DIR/tree" && find copy -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)" "$(cat "$SHARED/tree.sum")"
same "and belongs to who made it" "$(stat -c '%u:%g %a' "$LAB_DIR/tree/user/mine")" "1000:1000 640"
check "calls came by path" test "$(metric ds1 weft_ds_export_bytes_total dir=write)" -gt 50000000
same "none was refused" "$(metric ds1 weft_ds_export_denied_total)" 0
