# SPDX-License-Identifier: Apache-2.0
# Not a test, a measurement (tests/lab/run b_names, or tests/bench/side-by-side --lab): CPU time of
# weft and of nfs-ganesha for the same operations on names of the stock client, by NFSv4.2: create
# and close, cold stat, open and close, rename, unlink. NAMES_ROUNDS (3) rounds of NAMES_FILES (500)
# files, by NAMES_AT_ONCE (1) processes. Ganesha syncs nothing of this (but see weft-nosync, which
# does not either). Packages: nfs-ganesha, nfs-ganesha-vfs, nfs-ganesha-mem.
. "$LAB_HERE/ganesha.sh"
ganesha_there || { skip "there is no ganesha.nfsd or rpcbind here"; exit 0; }
tree=$LAB_DIR/tree
mkdir -m 777 "$tree"
ganesha_room
export_of() { # ID PATH NAME FSAL
	echo "EXPORT { Export_Id = $1; Path = \"$2\"; Pseudo = \"/$3\"; Protocols = 4;
		Transports = TCP; Access_Type = RW; Squash = none; SecType = sys; FSAL { Name = $4;
			} }"
}
{
	echo "NFS_CORE_PARAM { NFS_Port = 21049; Protocols = 4; Enable_NLM = false;
		Enable_RQUOTA = false; Enable_UDP = false; }"
	echo "NFSv4 { Graceless = true; Minor_Versions = 1, 2; RecoveryBackend = fs;
		Allow_Numeric_Owners = true; Only_Numeric_Owners = true; }"
	export_of 1 "$tree" vfs VFS
	export_of 2 /mem mem MEM
} >"$LAB_DIR/ganesha.conf"
ganesha_up ganesha 21049
cluster_up --ds 1
json=$(
	CLUSTER=$LAB_DIR/nosync
	cluster_up --ds 1 --port 14049 --set mds.sync=false >&2
	echo "weft-nosync $WEFT_MOUNT" >>"$SHARED/servers"
	echo ", \"weft-nosync\": [$(daemon mds pid), $(daemon ds1 pid)]"
) || exit 1
echo "weft $WEFT_MOUNT" >>"$SHARED/servers"
for name in vfs mem; do
	echo "ganesha-$name mount -t nfs4 -o vers=4.2,port=21049 10.77.0.1:/$name" \
		>>"$SHARED/servers"
done
cat >"$LAB_DIR/names.json" <<END
{"rounds": ${NAMES_ROUNDS:-3}, "files": ${NAMES_FILES:-500}, \
"servers": {"ganesha-vfs": [$ganesha], "ganesha-mem": [$ganesha], \
"weft": [$(daemon mds pid), $(daemon ds1 pid)]$json}}
END
guest -t 500 1 names.sh "${NAMES_FILES:-500}" "${NAMES_AT_ONCE:-1}" &
guest=$!
python3 "$LAB_HERE/../bench/beside_names.py" "$SHARED" "$LAB_DIR/names.json" \
	${NAMES_JSON:+"$NAMES_JSON"}
wait $guest
kill $ganesha $rpcbind
wait $ganesha $rpcbind
"$weft_dev" down "$LAB_DIR/nosync"
