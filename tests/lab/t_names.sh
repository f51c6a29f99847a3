# What each of the stock client's operations on names asks of the servers, one at a time, counted: its requests, commits, and messages to the data server.
cluster_up --ds 1
files=200
echo "weft $WEFT_MOUNT" >"$SHARED/servers"
guest -t 250 1 names.sh $files 1 &
guest=$!
turn=0
counts() { echo "$(metric mds weft_mds_op_total op=SEQUENCE) $(metric mds weft_mds_kv_commits) $(metric ds1 weft_rpc_calls_total)"; }
ask() { # WORK: the guest does it with each file
	echo "weft $1 $files" >"$SHARED/todo.$turn.new"
	mv "$SHARED/todo.$turn.new" "$SHARED/todo.$turn"
	wait_flag done.$turn && [ "$(cat "$SHARED/done.$turn")" = 0 ]
}
costs() { # WORK REQUESTS COMMITS MESSAGES: the most, for a hundred files
	local before after most n i=0 what=(requests commits "messages to the data server")
	read -ra before <<<"$(counts)"
	turn=$((turn + 1))
	check "$1: it works" ask "$1"
	sleep 0.5 # what is put off for a moment belongs to it
	read -ra after <<<"$(counts)"
	for most in "${@:2}"; do
		n=$(((after[i] - before[i]) * 100 / files))
		echo "# $1: $n ${what[i]} for a hundred"
		check "$1: at most $most ${what[i]} for a hundred" [ $n -le "$most" ]
		i=$((i + 1))
	done
}
costs create 210 150 150
costs stat 110 5 5
costs open 110 15 5
costs rename 310 115 5
costs unlink 210 115 25
turn=$((turn + 1))
check "it ends" ask end
wait $guest
