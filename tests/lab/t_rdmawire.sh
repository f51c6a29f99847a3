# SPDX-License-Identifier: Apache-2.0
# RPC over RDMA on the wire: a client of our own sets every field by itself, against a data server
# in the guest, on soft RoCE and on soft iWARP. Its connections leave nothing behind. Of the odd
# lengths 1 to 4099 it takes the first 17, the last 9 and some 300 by chance. It makes 300
# connections, and 2,000 headers by chance for each kind of server. WEFT_SOAK=1: each length, 10,000
# connections, 50,000 headers by chance; on one of the two devices, as WEFT_SOAK=rxe.
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
ls /usr/lib/*/libibverbs/librxe-rdmav*.so >/dev/null 2>&1 || {
	skip "needs the package ibverbs-providers (tools/setup installs it)"
	exit 0
}
cluster_up --ds 1
mds=$(sed -n 's/.*port=\([0-9]*\).*/\1/p' <<<"$WEFT_MOUNT")
kinds='rxe siw'
case ${WEFT_SOAK:-} in *[a-z]*) kinds=$WEFT_SOAK ;; esac
for kind in $kinds; do
	limit=450
	[ -z "${WEFT_SOAK:-}" ] || limit=5000
	guest -m 2G -t $limit 1 rdmawire.sh $kind "$WEFT_BUILD" "$CLUSTER/cluster.key" \
		"10.77.0.1:$mds" "${WEFT_SOAK:-}" |
		sed -uE "s/^(ok|not ok|skip) - /\1 - $kind: /"
done
