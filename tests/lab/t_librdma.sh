# SPDX-License-Identifier: Apache-2.0
# libweft reaches data servers by RDMA, in a guest with a soft device; and by TCP where there is no
# device, which is here.
if ! PATH=$PATH:/usr/sbin:/sbin command -v rdma >/dev/null ||
	[ ! -x "$WEFT_BUILD/tests/wirelib/weft_client" ]; then
	skip "needs the program rdma (tools/setup installs it), \
and tests/wirelib/weft_client (make check)"
else
	guest -m 1G 1 librdma.sh "$WEFT_BUILD" &
	guest=$!
	if wait_flag up 100; then
		check "without a device it goes by TCP" env WEFT_RDMA=none WEFT_TOP=d \
			timeout 60 "$WEFT_BUILD/tests/wirelib/weft_client" 10.77.1.2:12049 straight
		check "and memory that was registered is memory" env WEFT_RDMA=none WEFT_TOP=d \
			timeout 60 "$WEFT_BUILD/tests/wirelib/weft_client" 10.77.1.2:12049 \
			registered
	fi
	flag over
	wait $guest
fi
