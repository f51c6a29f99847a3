# SPDX-License-Identifier: Apache-2.0
# One stock client changes mirrored files: writes, cuts, punches, zeroes. Each file is what the
# client made of it, and its copies are equal. A late WRITE must not undo a cut that came after it.
# WEFT_SOAK=1: LAB_FILES files of each kind, or 1000.
. "$LAB_HERE/faults.sh"
files=6
[ -z "${WEFT_SOAK:-}" ] || files=${LAB_FILES:-1000}
cluster_up --set mds.lease=30s --set mds.repair_files=4
guest -t $((300 + files * 3)) 1 ops.sh $files
until_repaired 120
tell mirror verify -r / >"$LAB_DIR/verify" 2>&1
check "every copy is equal to the other" \
	grep -q "^$((2 * files)) files compared (.*: 0 ranges differ;" "$LAB_DIR/verify" ||
	sed 's/^/# /' "$LAB_DIR/verify"
