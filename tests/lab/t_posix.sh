# SPDX-License-Identifier: Apache-2.0
# The same random system calls, by several users, on weft and on a local ext4: the same errors,
# modes, owners, links and times.
cluster_up --set mds.atime=off # as noatime there
# LAB_SEED chooses other calls. The same seed gives the same calls again.
for seed in ${LAB_SEED:-15 16 18}; do
	echo "# seed $seed"
	guest -t 200 1 posix.sh "$seed" "${LAB_STEPS:-400}"
done
