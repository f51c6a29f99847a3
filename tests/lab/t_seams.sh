# Two stock clients on one folder while servers are stopped, killed and cut off, and the checker judges all they saw; one small round of what make soak ISSUE=16 does for an hour.
. "$LAB_HERE/faults.sh"
. "$LAB_HERE/seams.sh"
command -v nft >/dev/null || { skip "needs nftables"; exit 0; }
seams_round "${SEAMS_PHASES:-1}" "${SEAMS_COUNT:-3}"
