# SPDX-License-Identifier: Apache-2.0
# What each of the stock client's operations on names asks of the servers, one at a time, counted:
# its requests, commits, and messages to the data server.
cluster_up --ds 1
files=200
echo "weft $WEFT_MOUNT" >"$SHARED/servers"
guest -t 250 1 names.sh $files 1 &
guest=$!
turn=0
counts() {
	echo "$(metric mds weft_mds_op_total op=SEQUENCE) $(metric mds \
		weft_mds_kv_commits_total) $(metric ds1 weft_rpc_calls_total)"
}
ask() { # WORK: the guest does it with each file
	echo "weft $1 $files" >"$SHARED/todo.$turn.new"
	mv "$SHARED/todo.$turn.new" "$SHARED/todo.$turn"
	wait_flag done.$turn && [ "$(cat "$SHARED/done.$turn")" = 0 ]
}
# WORK REQUESTS COMMITS MESSAGES: the most, for a hundred files. Delayed work takes a commit and two
# messages 20 times a second at most.
costs() {
	local before after began most n put_off i=0 \
		what=(requests commits "messages to the data server")
	read -ra before <<<"$(counts)"
	turn=$((turn + 1))
	began=${EPOCHREALTIME/.}
	check "$1: it works" ask "$1"
	sleep 0.5 # what is put off belongs to it
	read -ra after <<<"$(counts)"
	put_off=$(((${EPOCHREALTIME/.} - began) / 50000 + 1))
	for most in "${@:2}"; do
		n=$((after[i] - before[i]))
		most=$((most * files / 100 + i * put_off))
		echo "# $1: $n ${what[i]} for $files"
		check "$1: no more ${what[i]} than $most" [ $n -le $most ]
		i=$((i + 1))
	done
}
costs create 210 105 105
costs stat 110 5 5
costs open 110 15 5
costs rename 310 105 5
costs unlink 210 105 5
turn=$((turn + 1))
check "it ends" ask end
wait $guest
