# SPDX-License-Identifier: Apache-2.0
# NFS over RDMA, on soft RoCE and on soft iWARP: daemons and client share a guest, for this machine
# has no RDMA device. Here the stock client mounts over soft iWARP with WEFT_SOAK=1 only. t_rdmaio
# mounts so always, and our own client works over it here and in t_rdmawire.
for kind in rxe siw; do
	[ ! -x "$WEFT_BUILD/tests/lab/rdma_rpc" ] ||
		guest -m 1G -t 600 1 rdma.sh $kind calls "$WEFT_BUILD" || break
	[ $kind = rxe ] || [ -n "${WEFT_SOAK:-}" ] || continue
	guest -m 2G -t 600 1 rdma.sh $kind io "$WEFT_BUILD" || break
	[ $kind != rxe ] || guest -m 2G -t 600 1 rdma.sh $kind ipv6 "$WEFT_BUILD" || break
	# On soft iWARP the client sometimes hangs for ever when it loses a connection under load,
	# in its own transport (docs/rdma.md).
	guest -m 2G -t 600 1 rdma.sh $kind loss "$WEFT_BUILD" || break
done
