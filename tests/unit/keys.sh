#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The man pages list every configuration key with its default, and no other: weft-dev(1) all of
# them, weft-mds(8) and weft-ds(8) those of their daemon and of both. No page and no guide names a
# key that is none. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}

# page FILE SECTION: "key=default" for each key that the section lists.
page() {
	awk -v section="$2" '
	/^\.SH/ { keys = $2 == section }
	keys && /^\.B [a-z]+\.[a-z_]+$/ { key = $2 }
	keys && /o default\.$/ { print key "=" }
	keys && match($0, /[Dd]efault .*\.$/) { v = substr($0, RSTART + 8, RLENGTH - 9);
		gsub(/\\/, "", v); print key "=" v }
	' "$1"
}
table() {
	sed -nE 's/^\t\{ "([^"]+)", CONF_[A-Z]+, "([^"]*)".*/\1=\2/p' "$top/common/conf_keys.c"
}
# Keys of the table as a page lists them. A key of the other daemon may be listed where this one
# reads it, too.
differ() { # FILE SECTION SECTIONS-OF-KEYS
	local listed
	listed=$(page "$1" "$2" | sort)
	comm -23 <(table | grep -E "^($3)\." | sort) <(echo "$listed") | sed 's/^/not listed: /'
	comm -13 <(table | sort) <(echo "$listed") | sed 's/^/not in the table: /'
	echo "$listed" | cut -d= -f1 | uniq -d | sed 's/^/listed twice: /'
}
declare -A known
while IFS= read -r key; do known[$key]=1; done < <(table | cut -d= -f1)
# unknown FILE...: what looks like a key and is none. Paths and names of files do not look like one.
unknown() {
	grep -noP '(?<![\w/.-])(mds|ds|log|rdma)\.(?!md\b)[a-z][a-z_]*\b(?!/)' "$@" /dev/null |
		while IFS=: read -r file line key; do
		[ -n "${known[$key]:-}" ] || echo "${file#"$top"/}:$line: $key"
	done
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
docs=$top/docs
report "the table of keys is read" "$([ "$(table | wc -l)" -gt 10 ] ||
	echo "$(table | wc -l) keys")"
report "weft-dev(1) lists all keys with their defaults" "$(differ "$docs/weft-dev.1" KEYS '[a-z]+')"
report "weft-mds(8) lists its keys with their defaults" \
	"$(differ "$docs/weft-mds.8" CONFIGURATION 'mds|log|rdma')"
report "weft-ds(8) lists its keys with their defaults" \
	"$(differ "$docs/weft-ds.8" CONFIGURATION 'ds|log|rdma')"
report "every section of keys is a daemon's" "$(table | grep -vE '^(mds|ds|log|rdma)\.')"
report "docs/room.am lists every page, so that all travel" \
	"$(cd "$top" && find docs -type f ! -name room.am | while read -r f
	do grep -qE "(^|[ 	])$f( |\$)" docs/room.am || echo "$f"; done)"
report "no page names a key that is none" "$(unknown "$docs"/*.[158] "$docs"/*.md \
	"$docs"/handbook/*.md \
	"$top/README.md")"

# A checker that finds nothing proves nothing: it is tried on pages with planted errors.
plant=$(mktemp -d)
trap 'rm -rf "$plant"' EXIT
try() { # NAME FILE SED-SCRIPT EXPECTED
	sed -E "$3" "$docs/$2" >"$plant/page"
	found=$(differ "$plant/page" CONFIGURATION "$5"; unknown "$plant/page" | sed 's/.*: //')
	report "$1" "$(comm -23 <(sort <<<"$4") <(sort <<<"$found"))"
}
try "a key that its page lacks is found" weft-mds.8 '/^\.B mds\.grace/,/^No default|efault/d' \
	"not listed: mds.grace=45s" 'mds|log'
try "a wrong default is found" weft-ds.8 's/default 1s\./default 2s./' "not listed: ds.heartbeat=1s
not in the table: ds.heartbeat=2s" 'ds|log'
try "a key that is none is found" weft-ds.8 's/ds\.heartbeat/ds.heartbeats/' \
	"not listed: ds.heartbeat=1s
not in the table: ds.heartbeats=1s
ds.heartbeats" 'ds|log'
echo "1..$n"
