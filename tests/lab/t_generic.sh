# SPDX-License-Identifier: Apache-2.0
# Any NFSv3 server as a data server (docs/generic.md), beside one of ours: Debian's nfs-ganesha,
# Linux's knfsd, and a weft-ds that is no part of the cluster and exports a folder. A stock client
# writes and reads by layouts with synthetic owners; another is cut off from the metadata server
# while it writes, and is fenced. tools/setup installs ganesha.
export_conf=$LAB_DIR/exports.v3
mkdir -m 755 "$LAB_DIR/folder" "$LAB_DIR/ganesha"
cat >"$export_conf" <<END2
export "$LAB_DIR/folder" {
	client "10.77.0.0/16" { access = rw  squash = none  privileged_port = no }
}
END2
cluster_up --ds 1 --set mds.lease=5s --set mds.grace=5s --set mds.recall_deadline=2s \
	--set ds.lease=5s --set mds.generic_pool=24
# At another address than the metadata server, so that a client can lose one and keep the others.
ip addr add 10.77.0.9/32 dev "$(ip -o addr show to 10.77.0.1 | awk '{ print $2; exit }')"
echo "$(printf '5a%.0s' {1..32})" >"$LAB_DIR/key"
chmod 0400 "$LAB_DIR/key"
port=22049
"$WEFT_BUILD/weft-ds" -o ds.store="$LAB_DIR/store" -o ds.cluster_key="$LAB_DIR/key" \
	-o ds.listen=10.77.0.9:$port -o ds.name=folder -o ds.exports="$export_conf" \
	2>"$LAB_DIR/folder.log" &
folder=$!
until ss -ltn | grep -q :$port; do
	kill -0 $folder 2>/dev/null || {
		not_ok "the other weft-ds starts"
		tail -5 "$LAB_DIR/folder.log"
		break
	}
	sleep 0.1
done
kinds=folder
check "a folder of a weft-ds is taken in" weft ds add "nfs3://10.77.0.9:$port$LAB_DIR/folder" \
	"mount-port=$port" name=folder
weft ds group folder who=folder >/dev/null
ganesha=
. "$LAB_HERE/ganesha.sh"
if ganesha_there; then
	ganesha_room
	cat >"$LAB_DIR/ganesha.conf" <<END2
NFS_CORE_PARAM { NFS_Port = 21049; MNT_Port = 21050; Protocols = 3; Enable_NLM = false;
	Enable_RQUOTA = false; Enable_UDP = false; }
EXPORT {
	Export_Id = 1; Path = "$LAB_DIR/ganesha"; Pseudo = "/ganesha"; Protocols = 3;
		Transports = TCP; Access_Type = RW; Squash = none; SecType = sys;
	FSAL { Name = VFS; }
}
END2
	ganesha_up ganesha 21049
	check "ganesha is taken in; its rpcbind tells where MOUNT is" weft ds add \
		"nfs3://10.77.0.9:21049$LAB_DIR/ganesha" name=ganesha
	weft ds group ganesha who=ganesha >/dev/null
	kinds="$kinds ganesha"
else
	skip "there is no ganesha.nfsd or rpcbind here: tools/setup lab installs them"
fi
ready() { # KIND: its files are made ahead
	local n=0
	until [ "$(find "$LAB_DIR/$1" -type f | wc -l)" -ge 24 ] &&
		weft ds list | grep -q "$1 *alive"; do
		[ $((n++)) -lt 100 ] || return 1
		sleep 0.1
	done
}
for kind in $kinds; do check "$kind: files are made ahead" ready $kind; done

all=$kinds
if command -v rpcbind >/dev/null; then
	guest -m 768M 3 knfsd.sh &
	knfsd=$!
	wait_flag knfsd.up 30 &&
		check "knfsd is taken in, by its export's handle" weft ds add \
		nfs3://10.77.3.2/export handle="$(cat "$SHARED/knfsd.handle")" name=knfsd &&
		weft ds group knfsd who=knfsd >/dev/null && all="$kinds knfsd"
	flag knfsd.seen
fi

guest 1 generic.sh one "$all" &
one=$!
guest 2 generic.sh two "$all" &
two=$!
for kind in $kinds; do
	wait_flag $kind.written
	path=$(find "$LAB_DIR/$kind" -type f -size +1M)
	same "$kind: what was written is in one file there" "$(sha256sum <"$path")" \
		"$(cat "$SHARED/$kind.sum")"
	same "$kind: that only its owner writes" "$(stat -c %a "$path")" 640
	check "$kind: who is nobody here" test "$(stat -c %u "$path")" -ge $((0x40000000))
	flag $kind.seen
done
set -- $all
if [ $# -ge 2 ]; then
	wait_flag mixed.written
	check "mixed: both copies are equal" weft mirror verify -r /mixed
	flag mixed.seen
fi
# Before the client that was cut off is back: it may open its file again, and write.
wait_flag settled
[ -z "${knfsd:-}" ] || wait_flag knfsd.looked
for kind in $kinds; do
	path=$(find "$LAB_DIR/$kind" -type f -size +0)
	same "$kind: nothing of who was fenced is in the file" \
		"$(tr -d B <"$path" | wc -c) $(wc -c <"$path")" "0 1048576"
done
flag over
wait $one $two
flag knfsd.over
[ -z "${knfsd:-}" ] || wait $knfsd
same "the clients' data did not go through the metadata server" \
	"$(metric mds weft_mds_op_total op=READ) $(metric mds weft_mds_op_total op=WRITE)" "0 0"
kill $folder
wait $folder
[ -z "$ganesha" ] || { kill $ganesha $rpcbind; wait $ganesha $rpcbind; }
