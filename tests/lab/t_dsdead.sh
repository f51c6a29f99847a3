# SPDX-License-Identifier: Apache-2.0
# A data server is killed, and later another one frozen, while mirrored files are read and written:
# no error reaches an application, and all go on at full speed within seconds. Prints how long it
# took, from the kill and from the freeze. A client alone would wait 60 s for the frozen one.
cluster_up
guest -t 150 1 dsdead.sh &
state() {
	weft --json ds list |
		python3 -c 'import json, sys
print(next(d["state"] for d in json.load(sys.stdin)["ds"]
		if d["name"] == sys.argv[1]))' "$1"
}
until_state() { # NAME STATE SECONDS
	local end=$((SECONDS + $3))
	until [ "$(state "$1")" = "$2" ]; do
		[ $SECONDS -lt $end ] || { echo "$1 is $(state "$1")"; return 1; }
		sleep 0.1
	done
}
event() { echo "$1 $(date +%s.%N)" >>"$SHARED/events"; }
wait_flag going 60
sleep 3
event kill
dev kill ds2 -9
sleep 9
check "the one that was killed is dead" until_state ds2 dead 1
event back
dev start ds2
check "it lives when it is back" until_state ds2 alive 10
sleep 2
event freeze
frozen=$(daemon ds3 pid)
kill -STOP "$frozen"
sleep 14
check "the one that is frozen is dead" until_state ds3 dead 1
event back
kill -CONT "$frozen"
check "it lives when it goes on" until_state ds3 alive 10
flag stop
wait
python3 "$LAB_HERE/dsdead.py" "$SHARED"
whole() {
	weft --json mirror status |
		python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["files"] != 0)'
}
for i in $(seq 100); do ! whole || break; sleep 0.2; done
check "what was missed is made equal" whole
