# SPDX-License-Identifier: Apache-2.0
# The data operations of a stock client on striped and mirrored files: copy_file_range, reflinks,
# fallocate, SEEK_HOLE and SEEK_DATA; by checksum after a cold mount, and on both mirrors.
reflinks=
truncate -s 2G "$LAB_DIR/disk"
mkdir "$LAB_DIR/xfs"
if mkfs.xfs -q -m reflink=1 "$LAB_DIR/disk" && mount -o loop "$LAB_DIR/disk" "$LAB_DIR/xfs"; then
	reflinks=1
	CLUSTER=$LAB_DIR/xfs/c
else
	skip "no XFS on a loop device here: reflinks are not tried"
fi
cluster_up
guest 1 copy.sh "$reflinks"
check "COPY was used" test "$(metric mds weft_mds_op_total op=COPY)" -gt 0
check "bytes were copied by the server" test "$(metric mds weft_mds_copied_bytes_total)" \
	-ge $((48 << 20))
check "a copy ended by CB_OFFLOAD" test "$(metric mds weft_mds_offload_callbacks_total)" -gt 0
same "the client read nothing for it from the MDS" "$(metric mds weft_mds_op_total op=READ)" 0
for name in copied cloned punched; do
	[ -e "$SHARED/$name.json" ] || continue
	python3 "$LAB_HERE/rebuild.py" "$CLUSTER" "$SHARED/$name.json" "$SHARED/rebuilt" &&
		for m in 0 1; do
		check "mirror $m of $name, put together from the stores, is the file" cmp \
			"$SHARED/$name" "$SHARED/rebuilt.$m"
	done
done
cluster_down
[ -z "$reflinks" ] || umount "$LAB_DIR/xfs"
