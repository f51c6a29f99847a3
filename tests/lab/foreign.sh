# SPDX-License-Identifier: Apache-2.0
# foreign.sh - data servers that are any NFSv3 server (docs/generic.md), for tests that run on
# several kinds. Such a test sources it, after faults.sh.
#
# WEFT_KIND says where a test's files are:
#	weft     on ours (the default)
#	folder   on weft-ds that are no part of the cluster and export a folder
#	ganesha  on Debian's nfs-ganesha
#	foreign  on that where it is installed, else on folders
# In the last two kinds a file of three copies is mixed: one copy is on ours. knfsd is one machine
# in the lab, and cannot be killed apart from it: t_generic has it.
. "$LAB_HERE/ganesha.sh"
kind=${WEFT_KIND:-weft}
if [ "$kind" = foreign ]; then
	kind=folder
	if ganesha_there; then kind=ganesha; fi
fi
FOREIGN_PORT=21049

# foreign_up N: starts g1 .. gN, of that kind, or none. Sets ds, the prefix of the servers' names,
# and where and mixed, what policies of files have more.
foreign_up() {
	local n
	ds=ds where='' mixed=''
	[ "$kind" != weft ] || return 0
	ds=g where=,group=kind=nfs3 mixed=,group0=kind=weft,group1=kind=nfs3,group2=kind=nfs3
	for n in 1 2 3 4; do weft ds group "ds$n" kind=weft >/dev/null; done
	if [ "$kind" = ganesha ]; then
		ganesha_room
		foreign_rpcbind=$rpcbind
		disown
	fi
	for ((n = 1; n <= $1; n++)); do
		mkdir -m 755 -p "$LAB_DIR/g$n"
		ln -s "$LAB_DIR/g$n" "$CLUSTER/g$n"
		foreign_conf $n
		start_ds g$n
		check "g$n ($kind) is taken in" weft ds add \
			"nfs3://10.77.0.1:$((FOREIGN_PORT + n))$LAB_DIR/g$n" \
			mount-port="$(foreign_mount $n)" name=g$n || exit 1
	done
	for ((n = 1; n <= $1; n++)); do
		foreign_ready g$n 20 || not_ok "g$n: files are made ahead"
	done
}
foreign_mount() { # N: the port of MOUNT
	if [ "$kind" = ganesha ]; then
		echo $((FOREIGN_PORT + 100 + $1))
	else
		echo $((FOREIGN_PORT + $1))
	fi
}
foreign_conf() { # N
	if [ "$kind" = ganesha ]; then
		cat >"$LAB_DIR/g$1.conf" <<-END2
			NFS_CORE_PARAM { NFS_Port = $((FOREIGN_PORT + $1));
				MNT_Port = $(foreign_mount "$1"); Protocols = 3; Enable_NLM = false;
					Enable_RQUOTA = false; Enable_UDP = false; }
			EXPORT {
				Export_Id = 1; Path = "$LAB_DIR/g$1"; Pseudo = "/g$1";
					Protocols = 3; Transports = TCP; Access_Type = RW;
						Squash = none; SecType = sys;
				FSAL { Name = VFS; }
			}
		END2
	else
		echo "$(printf '5a%.0s' {1..32})" >"$LAB_DIR/g$1.key"
		chmod 0400 "$LAB_DIR/g$1.key"
		echo "export \"$LAB_DIR/g$1\" { client \"10.77.0.0/16\" {" \
			"access = rw  squash = none  privileged_port = no } }" \
			>"$LAB_DIR/g$1.conf"
	fi
}
start_ds() { # NAME: one of ours as well
	local n=${1#g}
	case $1 in
		ds*) dev start "$1"; return ;;
	esac
	if [ "$kind" = ganesha ]; then
		# the shell does not report a killed server
		ganesha_up "g$n" $((FOREIGN_PORT + n)) && echo $ganesha >"$CLUSTER/run/g$n.pid" &&
			disown
		return
	fi
	"$WEFT_BUILD/weft-ds" -o ds.store="$LAB_DIR/g$n.store" \
		-o ds.cluster_key="$LAB_DIR/g$n.key" \
		-o ds.listen="10.77.0.1:$((FOREIGN_PORT + n))" -o ds.name="g$n" \
		-o ds.exports="$LAB_DIR/g$n.conf" </dev/null >/dev/null 2>>"$LAB_DIR/g$n.log" &
	echo $! >"$CLUSTER/run/g$n.pid"
	disown
	for ((n = 0; n < 300; n++)); do
		! ss -ltnH "sport = :$((FOREIGN_PORT + ${1#g}))" | grep -q . || return 0
		sleep 0.1
	done
	tail -5 "$LAB_DIR/$1.log"
	return 1
}
foreign_ready() { # NAME SECONDS: it lives, and its files are made ahead
	local end=$((SECONDS + $2))
	until weft ds list | grep -q "$1 *alive" &&
		[ "$(find "$LAB_DIR/$1" -type f | wc -l)" -ge 24 ]; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}
# Objects: those made ahead are empty.
foreign_objects() { find "$LAB_DIR"/g? -type f -size +0 ! -name ballast | wc -l; }
foreign_down() {
	local pid
	[ "$kind" != weft ] || return 0
	for pid in $(cat "$CLUSTER"/run/g?.pid) ${foreign_rpcbind:-}; do
		kill "$pid" 2>/dev/null
	done
}
