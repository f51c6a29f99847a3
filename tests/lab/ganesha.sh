# SPDX-License-Identifier: Apache-2.0
# ganesha.sh - Debian's nfs-ganesha on the host's side, for lab tests, which source it.

# ganesha_there: whether it can start.
ganesha_there() { command -v ganesha.nfsd >/dev/null && command -v rpcbind >/dev/null; }
# ganesha_room: /run and /var/lib/nfs of this run's own, and the rpcbind that it registers with.
# Sets rpcbind, its pid.
ganesha_room() {
	mount -t tmpfs tmpfs /run
	mount -t tmpfs tmpfs /var/lib/nfs
	mkdir -p /run/ganesha /var/lib/nfs/ganesha
	rpcbind -f &
	rpcbind=$!
	until [ -S /run/rpcbind.sock ]; do sleep 0.05; done
}
# ganesha_up NAME PORT: starts it with $LAB_DIR/NAME.conf. Returns when it listens, or prints its
# log. Sets ganesha, its pid.
ganesha_up() {
	local n
	ganesha.nfsd -F -L "$LAB_DIR/$1.log" -f "$LAB_DIR/$1.conf" -p "/run/$1.pid" -N EVENT \
		</dev/null >/dev/null 2>&1 &
	ganesha=$!
	for ((n = 0; n < 300; n++)); do
		! ss -ltnH "sport = :$2" | grep -q . || return 0
		kill -0 $ganesha 2>/dev/null || break
		sleep 0.1
	done
	not_ok "$1 starts"
	tail -5 "$LAB_DIR/$1.log"
	return 1
}
