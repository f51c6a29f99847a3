# SPDX-License-Identifier: Apache-2.0
# rdma_lib.sh - data servers in a guest, on its RDMA device. BUILD, KEY and MDS say where the
# programs, the cluster's key and the MDS are.
PATH=$PATH:/usr/sbin:/sbin

# rdma_up rxe|siw
rdma_up() {
	rdma link add ${1}0 type "$1" netdev "$LAB_DEV" || {
		not_ok "an RDMA device of type $1"
		exit 1
	}
}
# ds_disk NAME MIB: a store of its own on ext4, as tmpfs knows no direct I/O of the usual kind.
ds_disk() {
	mkdir -p /run/disks "/mnt/$1"
	truncate -s "$2M" "/run/disks/$1"
	mkfs.ext4 -q -F "/run/disks/$1" && mount -o loop "/run/disks/$1" "/mnt/$1" || {
		not_ok "a disk for $1"
		exit 1
	}
	mkdir -p "/mnt/$1/store"
}
# ds_start NAME TCPPORT RDMAPORT [OPTION...]: puts its pid into ${ds_pid[NAME]}. ds_by runs it, it
# has the name ds_name and listens for RDMA at ds_rdma, if these are set.
declare -A ds_pid ds_args
ds_by=()
ds_start() {
	local name=$1 tcp=$2 rdma=$3
	shift 3
	ds_args[$name]="$tcp $rdma $*"
	"${ds_by[@]}" "$BUILD/weft-ds" -o ds.name="${ds_name:-$name}" \
		-o ds.store="/mnt/$name/store" -o ds.cluster_key="$KEY" -o ds.mds="$MDS" \
		-o ds.listen="$LAB_SELF:$tcp" -o ds.rdma="${ds_rdma:-$LAB_SELF:$rdma}" \
		-o ds.admin="unix:/run/$name.sock" "$@" 2>>"/run/$name.log" &
	ds_pid[$name]=$!
	for i in {1..300}; do
		[ "$(ds_get "$name" /v1/health | grep -c '"joined": *true')" = 0 ] || return 0
		kill -0 "${ds_pid[$name]}" 2>/dev/null || break
		sleep 0.1
	done
	not_ok "$name starts and joins"
	tail -20 "/run/$name.log" | sed 's/^/#   /'
	exit 1
}
ds_get() { "$BUILD/tests/lab/metric" -g "/run/$1.sock" "$2" 2>/dev/null; } # NAME PATH
ds_metric() { # NAME METRIC [LABELS-PATTERN]: the sum of its series
	ds_get "$1" /metrics |
		awk -v n="$2" -v l="${3:-}" \
		'{ split($1, a, "{") } a[1] == n && $1 ~ l { s += $2;
			seen = 1 } END { if (seen) printf "%d\n", s; else print "no metric " n }'
}
# ds_stop NAME: it must end by itself, without a complaint.
ds_stop() {
	local pid=${ds_pid[$1]}
	kill -TERM "$pid"
	for i in {1..300}; do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
	if kill -0 "$pid" 2>/dev/null; then
		not_ok "$1 ends"
		kill -KILL "$pid"
	fi
	wait "$pid"
	same "$1 ends well" $? 0
}
ds_complaints() { # NAME
	if grep -qE 'Sanitizer|runtime error|[Aa]ssert|FATAL' "/run/$1.log"; then
		not_ok "$1 has nothing to complain of"
		grep -E -A40 'Sanitizer|runtime error|[Aa]ssert|FATAL' "/run/$1.log" | head -60 |
			sed 's/^/#   /'
	else
		ok "$1 has nothing to complain of"
	fi
}
# What the only data server of this guest holds, as one line: descriptors, RDMA objects (the kernel
# lists them by thread, so this goes by the name), the address where it answers its connections, and
# the pool's memory that is under way.
held() { # PID [NAME]
	local o
	# objects that were used stay open for a while
	printf 'fd=%d' "$(find "/proc/$1/fd" -type l ! -lname '*/objects/*/*' 2>/dev/null | wc -l)"
	for o in qp cq mr pd cm_id srq; do
		printf ' %s=%d' $o "$(rdma resource show $o 2>/dev/null | grep -c 'comm weft-ds')"
	done
	[ -z "${2:-}" ] ||
		printf ' connections=%s pool=%s' "$(ds_metric "$2" weft_rdma_connections)" \
		"$(ds_metric "$2" weft_pool_bytes 'state="used"')"
	echo
}
mr_bytes() { # that data servers have registered
	rdma resource show mr 2>/dev/null |
		awk '/comm weft-ds/ {
			for (i = 1; i < NF; i++) if ($i == "mrlen") n += $(i + 1) }
			END { print n + 0 }'
}
# settled PID NAME WANT: waits until the process holds this again, 20 s at most; prints what it
# holds.
settled() {
	local now end=$((SECONDS + 20))
	while [ $SECONDS -lt $end ]; do
		now=$(held "$1" "$2")
		[ "$now" != "$3" ] || break
		sleep 0.2
	done
	echo "$now"
}
rnr() { # how often a message found no Receive; only RoCE counts
	cat /sys/class/infiniband/*/ports/1/hw_counters/{send_rnr_err,rcvd_rnr_err} 2>/dev/null |
		awk '{ s += $1 } END { print s + 0 }'
}
