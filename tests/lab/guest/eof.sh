#!/bin/bash
# eof.sh PAUSE... - tails of striped files, while the metadata server stands still so many seconds.
. "$(dirname "$0")/lib.sh"
mount_weft
mkdir $M/d $M/two
policy $M/d stripes=2
policy $M/two stripes=2,mirrors=2
for pause; do
	rm -f $M/d/*
	python3 "$(dirname "$0")/eof.py" make $M/d
	cold
	check "no tail is short or fails, and all are there soon after $pause s without metadata server" \
		python3 "$(dirname "$0")/eof.py" $M/d "$WEFT_SHARED" $pause 30
done
# The file is marked while it is written.
python3 "$(dirname "$0")/eof.py" make $M/two
cold
exec 7>>$M/two/f0
printf x >&7
sync $M/two/f0
truncate -s $((3 * 1048576 + 2683)) $M/two/f0
getfattr --absolute-names --only-values -n user.weft.layout $M/two/f0 |
	python3 -c 'import json, sys; print(json.load(sys.stdin)["mirrors"][1]["objects"][0]["ds"])' >"$WEFT_SHARED/server"
check "nor beside a data server that stands still" python3 "$(dirname "$0")/eof.py" $M/two "$WEFT_SHARED" ds 60
exec 7>&-
umount_weft
no_complaint
