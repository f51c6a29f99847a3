# SPDX-License-Identifier: Apache-2.0
# A client holds a write layout when its connection to the MDS breaks. Another truncates the file.
# The recall reaches the first on its new connection, and the server fences no client.
cluster_up
guest 1 recall.sh a &
wait_flag holding
if ss -K state established "( sport = :12049 )" dst 10.77.1.2 2>/dev/null | grep -q 12049; then
	ok "the connection is broken"
else
	skip "ss -K is not possible here; the connection stays"
fi
flag broken
guest 2 recall.sh b
wait
check "a layout was recalled" test "$(metric mds weft_mds_layout_recalls_total)" -gt 0
same "none was taken away" "$(metric mds weft_mds_layout_revoked_total)" 0
