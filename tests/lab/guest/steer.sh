#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# steer.sh write|read SIZE
. "$(dirname "$0")/lib.sh"
mount_weft
f=$M/steer/hot
if [ "$1" = write ]; then
	mkdir $M/steer
	policy $M/steer mirrors=2
	head -c "$2" /dev/urandom >$f
	sync $f
else
	check "the hot file is read" test "$(cat $f | wc -c)" = "$2"
fi
