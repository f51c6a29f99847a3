# SPDX-License-Identifier: Apache-2.0
# Not a test, a measurement (tests/lab/run b_ganesha): the CPU time of weft-ds beside that of
# Debian's nfs-ganesha, for the same work of the stock client over TCP, and beside a program that
# only sends and receives. It needs two packages more than the lab (ganesha's daemon should stay
# stopped):
#     apt-get install --no-install-recommends nfs-ganesha nfs-ganesha-vfs
#     systemctl disable --now nfs-ganesha
#
# Both servers export one folder, and the client reads and writes one file of it. layout is the same
# amount in an object, by the handles of a layout. Writes are UNSTABLE with a COMMIT in the end,
# except those that the client sends as stable because they are direct: then all three servers end
# each in a sync. Reads of layout come from the disk (direct I/O). All others come from the page
# cache, where their writes stay as well until the COMMIT.
#
# It does BESIDE_ROUNDS (3) rounds of BESIDE_MIB (192) MiB, BESIDE_OPS (8192) calls of 4 KiB and
# BESIDE_SYNCS (512) stable ones. BESIDE_JSON=1 prints all figures. BESIDE_PERF=FOLDER leaves
# profiles of perf there. BESIDE_OLD=BUILD measures another build beside this one.
# BESIDE_WORKS="WORK..." does only some of the work (see beside.py).
. "$LAB_HERE/ganesha.sh"
ganesha_there && command -v fio >/dev/null || {
	skip "there is no ganesha.nfsd, rpcbind or fio here: see the head of b_ganesha.sh"
	exit 0
}
mib=${BESIDE_MIB:-192}
tree=$LAB_DIR/tree
mkdir -m 777 "$tree"
dd if=/dev/zero of="$tree/file" bs=1M count="$mib" conv=fsync status=none
cat >"$LAB_DIR/exports.v3" <<END
export "$tree" {
	client "10.77.0.0/16" { access = rw  squash = none }
}
END
cluster_up --ds 1 --set ds.exports="$LAB_DIR/exports.v3" ${BESIDE_OPTIONS:-}

# Its files, rpcbind's socket among them, are in memory of this test's own.
ganesha_room
cat >"$LAB_DIR/ganesha.conf" <<END
NFS_CORE_PARAM {
	NFS_Port = 21049;
	MNT_Port = 21050;
	Protocols = 3;
	Enable_NLM = false;
	Enable_RQUOTA = false;
	Enable_UDP = false;
}
EXPORT {
	Export_Id = 1;
	Path = "$tree";
	Pseudo = "/tree";
	Protocols = 3;
	Transports = TCP;
	Access_Type = RW;
	Squash = none;
	SecType = sys;
	FSAL { Name = VFS; }
}
END
"$WEFT_BUILD/tests/bench/tcp_floor" serve 21051 &
bare=$!
"$WEFT_BUILD/tests/bench/tcp_floor" serve 21052 "$tree/file" &
file=$!
ganesha_up ganesha 21049

# NAME KIND WHAT... for the guest, NAME PID METRICS for beside.py.
json=
server() { # NAME PID METRICS KIND WHAT...
	json="$json${json:+,}
	\"$1\": {\"pid\": $2, \"metrics\": ${3:+\"}${3:-null}${3:+\"}}"
	echo "$1" "${@:4}" >>"$SHARED/servers"
}
weft_servers() { # SUFFIX MOUNT-COMMAND
	local port pid metrics
	port=$(daemon ds1 port) pid=$(daemon ds1 pid) metrics=$(daemon ds1 metrics)
	server "by-path$1" "$pid" "$metrics" v3 "$tree" "$port" "$port"
	server "layout$1" "$pid" "$metrics" weft "$2"
}
server ganesha $ganesha "" v3 "$tree" 21049 21050
weft_servers "" "$WEFT_MOUNT"
if [ -n "${BESIDE_OLD:-}" ]; then
	old=$(
		json= CLUSTER=$LAB_DIR/old WEFT_BUILD=$BESIDE_OLD
		cluster_up --ds 1 --port 14049 --set ds.exports="$LAB_DIR/exports.v3" \
			${BESIDE_OPTIONS:-} >&2
		weft_servers -old "$WEFT_MOUNT"
		echo "$json"
	) || exit 1
	json=$json,$old
fi
server bare+file $file "" bare 21052
server bare $bare "" bare 21051
cat >"$LAB_DIR/beside.json" <<END
{"rounds": ${BESIDE_ROUNDS:-3}, "mib": $mib, "ops": ${BESIDE_OPS:-8192}, \
"syncs": ${BESIDE_SYNCS:-512}, "works": "${BESIDE_WORKS:-}", \
"perf": "${BESIDE_PERF:-}", "servers": {$json}}
END
guest -t 600 1 ganesha.sh "$WEFT_BUILD/tests/bench/tcp_floor" "$mib" &
guest=$!
python3 "$LAB_HERE/../bench/beside.py" "$SHARED" "$LAB_DIR/beside.json" ${BESIDE_JSON:+json}
wait $guest
kill $ganesha $bare $file $rpcbind
wait $ganesha $bare $file $rpcbind
[ -z "${BESIDE_OLD:-}" ] || WEFT_BUILD=$BESIDE_OLD "$weft_dev" down "$LAB_DIR/old"
