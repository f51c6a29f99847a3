#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docs/formats.md and the code say the same of each byte: a table whose heading names a struct has
# the rows that FORMAT_AT has of it. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}

# "struct field at bytes", of the sources; the compiler has checked these.
code() {
	grep -rhoE --include='*.[ch]' \
		'^FORMAT_AT\(struct [a-z0-9_]+, [a-z0-9_]+, [0-9]+, [0-9]+\);' \
		"$top"/{base,common,topo,proto,kv,mds,ds,client} |
		sed -E 's/FORMAT_AT\(struct //; s/[,;)]//g'
}
page() { # FILE
	awk '
	/^#/ { s = "";
		if (match($0, /`struct [a-z0-9_]+`/)) s = substr($0, RSTART + 8, RLENGTH - 9) }
	s && /^\| [0-9]+ \|/ { gsub(/`/, ""); print s, $6, $2, $4 }
	' "$1"
}
# Tables without a hole: a row begins where the one before it ended.
holes() {
	awk '
	/^#/ { end = 0; s = "";
		if (match($0, /`struct [a-z0-9_]+`/)) s = substr($0, RSTART + 8, RLENGTH - 9) }
	s && /^\| [0-9]+ \|/ { if ($2 != end) print s ": nothing says what is at " end;
		end = $2 + $4 }
	' "$1"
}
n=0
report() { # NAME OUTPUT: no output is ok
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		printf '%s\n' "$2" | sed 's/^/# /'
	fi
}
differ() {
	diff <(code | sort) <(page "$1" | sort) | grep '^[<>]' |
		sed 's/^</only in the code:/; s/^>/only on the page:/'
}

doc=$top/docs/formats.md
report "the code's fields are read" "$([ "$(code | wc -l)" -ge 40 ] ||
	echo "$(code | wc -l) fields")"
report "the page has the code's fields, and no other" "$(differ "$doc")"
report "the page's tables have no holes" "$(holes "$doc")"
plant=$(mktemp -d)
trap 'rm -rf "$plant"' EXIT
sed 's/^| 16 | 4 | `v2_epoch`/| 18 | 4 | `v2_epoch`/' "$doc" >"$plant/moved"
report "a field that is elsewhere is found" "$([ "$(differ "$plant/moved" | wc -l)" = 2 ] &&
	[ -n "$(holes "$plant/moved")" ] || echo "it is not")"
sed '/`w_export`/d' "$doc" >"$plant/less"
report "a field that the page lacks is found" "$([ "$(differ "$plant/less")" = \
	"only in the code: fh_wire w_export 6 2" ] || differ "$plant/less")"
echo "1..$n"
