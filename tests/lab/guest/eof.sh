#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# eof.sh AFTER LIMIT PAUSE... - reads tails of striped files, while the metadata server stands still
# for that many seconds (N or N-ROUND), or a data server does.
. "$(dirname "$0")/lib.sh"
here=$(dirname "$0") after=$1 limit=$2
shift 2
mount_weft
mkdir $M/d $M/two
policy $M/d stripes=2
policy $M/two stripes=2,mirrors=2
for tag; do
	rm -f $M/d/*
	python3 "$here/eof.py" make $M/d
	cold
	check "no tail is short or fails, and all are there $after s after \
${tag%-*} s without metadata server" \
		python3 "$here/eof.py" $M/d "$WEFT_SHARED" "$tag" $after
done
# beside FOLDER TAG LIMIT: a server of f0 stands still, and f0 is marked while the client writes it.
beside() {
	rm -f $1/*
	python3 "$here/eof.py" make $1
	cold
	exec 7>>$1/f0
	printf x >&7
	sync $1/f0
	truncate -s $((3 * 1048576 + 2683)) $1/f0
	getfattr --absolute-names --only-values -n user.weft.layout $1/f0 |
		python3 -c 'import json, sys
print(json.load(sys.stdin)["mirrors"][-1]["objects"][0]["ds"])' >"$WEFT_SHARED/server.$2"
	check "no tail is short or fails beside $4 that stands still, \
and all are there within $3 s" \
		python3 "$here/eof.py" $1 "$WEFT_SHARED" $2 $3
	exec 7>&-
}
beside $M/two ds $limit "a data server"
beside $M/d only $after "the only copy"
umount_weft
no_complaint
