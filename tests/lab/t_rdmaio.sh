# SPDX-License-Identifier: Apache-2.0
# fio with verification over layouts whose data servers are reached by RDMA, metadata over RDMA as
# well, on soft RoCE and on soft iWARP: striped files, and mirrored ones while a data server is
# killed. WEFT_SOAK=1: ten minutes of it on each, and over TCP to compare; or on those named, as
# WEFT_SOAK="rxe tcp".
for program in rdma fio; do
	PATH=$PATH:/usr/sbin:/sbin command -v $program >/dev/null || {
		skip "needs the program $program (tools/setup installs it)"
		exit 0
	}
done
seconds=1
[ -z "${WEFT_SOAK:-}" ] || seconds=600
kinds='rxe siw'
[ -z "${WEFT_SOAK:-}" ] || kinds='rxe siw tcp'
case ${WEFT_SOAK:-} in *[a-z]*) kinds=$WEFT_SOAK ;; esac
count() { grep -cx "$1" "$SHARED/rounds"; }
for kind in $kinds; do
	# As in t_rdma.sh: on siw with kills in the long run only.
	kills=kills
	[ $kind = rxe ] || [ -n "${WEFT_SOAK:-}" ] || kills=none
	end=$((SECONDS + seconds)) hangs=0
	: >"$SHARED/rounds"
	# The stock client may hang in its own transport when it loses a connection under load
	# (docs/rdma.md); the guest says so, and ends, only where nothing else is the matter.
	while :; do
		left=$((end > SECONDS ? end - SECONDS : 1))
		rm -f "$SHARED/hang"
		guest -m 2G -t $((180 + left)) 1 rdmaio.sh $kind "$WEFT_BUILD" $left $kills |
			sed -uE "s/^(ok|not ok|skip) - /\1 - $kind: /"
		[ -e "$SHARED/hang" ] || break
		hangs=$((hangs + 1))
		[ $hangs -lt 10 ] || break
	done
	echo "# $kind: $(count round) rounds, $(count \
		kill) kills of a data server, $hangs of them left the client hanging"
	[ $kills = none ] ||
		check "$kind: few kills left the client hanging" test $((hangs * 4)) \
		-lt "$(count kill)" -o $hangs = 1
done
