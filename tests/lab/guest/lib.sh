# SPDX-License-Identifier: Apache-2.0
# lib.sh - the functions of a guest's script. WEFT_MOUNT is the mount command, M the mount point.
M=/mnt/weft
# Python's scripts import flags.py; the folder is the host's, and they write nothing there.
export PYTHONPATH=${BASH_SOURCE%/*} PYTHONDONTWRITEBYTECODE=1
# Without a process of its own: a fork takes longer than many of these waits, in a guest above all.
# It never reads anything here.
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd # bash's <(...) wants it
mkfifo "/run/nap.$$"
exec {NAP}<>"/run/nap.$$"
sleep() { read -rt "$1" -u "$NAP"; return 0; }

ok() { echo "ok - $*"; }
not_ok() { echo "not ok - $*"; }
check() { # NAME COMMAND...
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then ok "$name"; else
		not_ok "$name"
		printf '%s\n' "$out" | tail -20 | sed 's/^/#   /'
		return 1
	fi
}
fails() { # NAME ERROR COMMAND...: must fail, and say ERROR (a pattern of grep -E)
	local name=$1 error=$2 out
	shift 2
	if out=$("$@" 2>&1); then not_ok "$name: it worked"; return 1; fi
	if grep -qE -- "$error" <<<"$out"; then
		ok "$name"
	else
		not_ok "$name: $(tail -1 <<<"$out")"
	fi
}
same() { # NAME GOT WANT
	if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: got '$2', want '$3'"; fi
}
mount_weft() { # [OPTION,...]: may be called again after umount: a cold mount
	local command=$WEFT_MOUNT
	case ${1:-} in
		'') ;;
		vers=*) command=${command/vers=4.2/$1} ;;
		*) command=${command/ -o / -o $1,} ;;
	esac
	mkdir -p $M
	timeout 60 $command $M || {
		not_ok "mount: $command $M"
		dmesg | tail -20 | sed 's/^/#   /'
		exit 1
	}
}
umount_weft() { timeout "${UMOUNT_LIMIT:-60}" umount $M || { not_ok "umount"; exit 1; }; }
remount_weft() { umount_weft; mount_weft "$@"; }
# A READ on the cold cache without a re-mount.
cold() { sync; echo 3 >/proc/sys/vm/drop_caches; }
policy() { setfattr -n user.weft.policy -v "$2" "$1"; }
get_policy() { getfattr --absolute-names --only-values -n user.weft.policy "$1"; }
layout() { getfattr --absolute-names --only-values -n user.weft.layout "$1"; }
flag() { : >"$WEFT_SHARED/$1"; }
wait_flag() { # NAME [SECONDS]
	local end=$((SECONDS + ${2:-120}))
	until [ -e "$WEFT_SHARED/$1" ]; do
		[ $SECONDS -lt $end ] || { not_ok "flag $1 within ${2:-120} s"; exit 1; }
		sleep 0.05
	done
}
# no_complaint [KNOWN [MADE]]: lines that match MADE report what the test itself did. KNOWN is where
# a warning of the client's own comes from. no_complaint prints that warning, to the end of its
# trace, and does not count it.
no_complaint() {
	local out
	[ -z "${1:-}" ] || dmesg | sed -nE "s,.*(WARNING: $1.*),# the client's own: \\1,p"
	out=$(dmesg | awk -v known="${1:-}" 'known != "" &&
		$0 ~ ("WARNING: " known) { own = 1 } !own; /end trace/ { own = 0 }' |
		awk -v made="${2:-}" 'made == "" || $0 !~ made' |
		grep -E -e 'BUG:|WARNING:|Oops|general protection' \
			-e 'nfs.*(bad|error|invalid)|NFS:.*(fail|error)') &&
		{
			not_ok "the client's kernel has nothing to complain of"
			printf '%s\n' "$out" | head -20 | sed 's/^/#   /'
		} ||
		ok "the client's kernel has nothing to complain of"
}
