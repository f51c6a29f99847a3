# SPDX-License-Identifier: Apache-2.0
# The link between an RDMA client and a data server is lost while much is under way, and comes back:
# what the server held for the client goes, the listener stays, and the client connects again. On
# soft RoCE; on soft iWARP, with a TCP that gives up sooner than it usually does, in the long run.
for program in rdma mkfs.ext4; do
	PATH=$PATH:/usr/sbin:/sbin command -v $program >/dev/null || {
		skip "needs the program $program (tools/setup installs it)"
		exit 0
	}
done
[ -x "$WEFT_BUILD/tests/wirelib/rdma/rdma_wire" ] || {
	skip "the test programs are not built (make check TESTS=)"
	exit 0
}
cluster_up --ds 1
mds=$(sed -n 's/.*port=\([0-9]*\).*/\1/p' <<<"$WEFT_MOUNT")
kinds=rxe
[ -z "${WEFT_SOAK:-}" ] || kinds='rxe siw'
for kind in $kinds; do
	rm -f "$SHARED"/*
	guest -t 200 1 rdmalink.sh server $kind "$WEFT_BUILD" "$CLUSTER/cluster.key" \
		"10.77.0.1:$mds" | sed -uE "s/^(ok|not ok|skip) - /\1 - $kind: /" &
	guest -t 200 2 rdmalink.sh client $kind "$WEFT_BUILD" "$CLUSTER/cluster.key" 10.77.1.2 |
		sed -uE "s/^(ok|not ok|skip) - /\1 - $kind: /" &
	wait_flag reads && check "$kind: the link is cut" ip link set lab2 nomaster
	flag cut
	wait_flag given_back 150 && check "$kind: the link is back" ip link set lab2 master labbr
	flag back
	wait
done
