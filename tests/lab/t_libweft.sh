# SPDX-License-Identifier: Apache-2.0
# libweft and weft-bench against Linux's knfsd, all in one guest: plain NFSv4.1 and 4.2, and with
# the Flex Files layouts that knfsd gives of itself. The programs are those of the wire tests.
if [ ! -x "$WEFT_BUILD/tests/wirelib/weft_client" ] || ! command -v rpcbind >/dev/null; then
	skip "tests/wirelib/weft_client is not built (make check), or there is no rpcbind here"
else
	guest -m 768M 1 libweft.sh "$WEFT_BUILD"
fi
