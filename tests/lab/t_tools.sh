# SPDX-License-Identifier: Apache-2.0
# The administrator's tools against the stock client: its identity, what it holds, a recall that it
# answers, an eviction that it survives, and what it reports of its I/O.
cluster_up
guest 1 tools.sh &
wait_flag written
check "client list names the guest and its version" grep -qE \
	"^ *[0-9]+ +\S+ +active +4\.2 +10\.77\." <(
	weft client list -o num,name,state,version,addresses)
check "layout list names the file that it writes" grep -qE "write +no +[0-9]+ +ds[0-9] +/tools/f$" \
	<(weft layout list)
weft client list | sed 's/^/# /'
same "its layout is recalled, and it gives it back" "$(weft layout recall /tools/f)" \
	"1 layouts were returned or fenced"
flag recalled
wait_flag again
number=$(weft --json layout list /tools/f |
	python3 -c 'import json, sys; print(json.load(sys.stdin)["layouts"][0]["client"])')
check "it is evicted" weft client evict "$number"
flag evicted
wait
check "what it told when it returned its layout is in weft heat" grep -qE "/tools/f$" <(weft heat)
check "the eviction is in the journal" \
	grep -qE "client-evicted .*client $number: the administrator evicted it" <(weft events)
weft heat | sed 's/^/# /'
