# SPDX-License-Identifier: Apache-2.0
# Data servers on small file systems: a full one is an error that the application gets, and deletes
# make room.
cluster_up --ds 2
for d in 1 2; do
	dev kill ds$d
	truncate -s 96M "$LAB_DIR/disk$d"
	mkdir "$LAB_DIR/new"
	mkfs.ext4 -q -O ^has_journal -m 0 "$LAB_DIR/disk$d" &&
		mount -o loop "$LAB_DIR/disk$d" "$LAB_DIR/new" || {
		skip "needs loop devices"
		return
	}
	rmdir "$LAB_DIR/new/lost+found"
	cp -a "$CLUSTER/ds$d/." "$LAB_DIR/new/"
	mount --move "$LAB_DIR/new" "$CLUSTER/ds$d"
	rmdir "$LAB_DIR/new"
	check "ds$d starts on a small disk" dev start ds$d
done
guest 1 full.sh
check "rm leaves no object" no_objects 60
cluster_down
umount "$CLUSTER/ds1" "$CLUSTER/ds2"
rm "$CLUSTER/cluster.json"
