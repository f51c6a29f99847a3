# SPDX-License-Identifier: Apache-2.0
# Not a test, a measurement (tests/lab/run b_failover): seconds from kill -9 of the metadata server,
# which is started again at once, until it serves, until the client reclaims, and until operations
# that wait go on. FAILOVER_RUNS kills (10).
cluster_up
guest -t 400 1 failover.sh &
wait_flag going 120
check "${FAILOVER_RUNS:-10} kills" python3 "$LAB_HERE/failover.py" "$CLUSTER" "$SHARED" \
	"${FAILOVER_RUNS:-10}"
check "${FAILOVER_RUNS:-10} kills with sockets that are held" python3 "$LAB_HERE/failover.py" \
	"$CLUSTER" "$SHARED" "${FAILOVER_RUNS:-10}" held
flag stop
wait
sed 's/^/# /' "$SHARED/figures"
