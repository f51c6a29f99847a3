# SPDX-License-Identifier: Apache-2.0
# Two stock clients on one folder while servers are stopped, killed and cut off, and the checker
# judges all they saw. Here the faults are always the same; make soak ISSUE=16 draws them for an
# hour.
. "$LAB_HERE/faults.sh"
SEAMS_SEED=${SEAMS_SEED:-5}
. "$LAB_HERE/seams.sh"
command -v nft >/dev/null || { skip "needs nftables"; exit 0; }
seams_round "${SEAMS_PHASES:-1}" "${SEAMS_COUNT:-2}"
