# SPDX-License-Identifier: Apache-2.0
# The metadata server dies again and again between a commit and its answer. The stock client asks
# again, and gets the answer that it would have got. No call fails that was done the first time.
cluster_up --set mds.lease=5s --set mds.grace=5s
bin=$LAB_DIR/bin
mkdir "$bin"
ln -s "$WEFT_BUILD/tests/fault/weft-mds" "$WEFT_BUILD/weft-ds" "$bin"
[ -x "$bin/weft-mds" ] || { skip "make check builds tests/fault/weft-mds"; return; }
# How many requests the server answered again, over all boots.
python3 - "$LAB_HERE" "$(daemon mds metrics)" "$SHARED" <<'PY' &
import os, re, sys, time
sys.path.insert(0, sys.argv[1])
import metric
total = last = 0
while not os.path.exists(sys.argv[3] + "/counted"):
    try:
        now = int(float(re.search(r"^weft_mds_once_total (\S+)",
                                  metric.fetch(sys.argv[2]), re.M)[1]))
        total += last if now < last else 0
        last = now
    except (OSError, TypeError, SystemExit):
        # It is down just now. What metric says of it goes nowhere.
        pass
    time.sleep(0.02)
with open(sys.argv[3] + "/again", "w") as out:
    out.write(f"{total + last}\n")
PY
counter=$!
guest -t 200 1 once.sh &
guest=$!
wait_flag going 60
dev kill mds -9
for round in 1 2 3 4 5 6; do
	check "the MDS starts (round $round)" env WEFT_BUILD="$bin" \
		WEFT_CRASH_AT=kv-committed:$((30 + RANDOM % 50)) "$weft_dev" start "$CLUSTER" mds
	for ((i = 0; i < 600 && $(daemon mds pid) > 0; i++)); do sleep 0.05; done
	same "it dies with a commit that is not answered (round $round)" "$(daemon mds pid)" 0
done
check "the MDS starts" dev start mds
sleep 5
flag stop
wait $guest
flag counted
wait $counter
check "requests were answered again ($(cat "$SHARED/again"))" test "$(cat "$SHARED/again")" -gt 0
