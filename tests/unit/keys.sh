#!/bin/bash
# The man page weft-dev(1) lists every configuration key with its default, and no other. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
page() {
	awk '
	/^\.SH/ { keys = /KEYS/ }
	keys && /^\.B / { key = $2 }
	keys && /o default\.$/ { print key "=" }
	keys && match($0, /[Dd]efault .*\.$/) { v = substr($0, RSTART + 8, RLENGTH - 9); gsub(/\\/, "", v); print key "=" v }
	' "$top/docs/weft-dev.1"
}
table() { sed -nE 's/^\t\{ "([^"]+)", CONF_[A-Z]+, "([^"]*)".*/\1=\2/p' "$top/base/conf_keys.c"; }
echo 1..2
[ "$(table | wc -l)" -gt 10 ] && echo "ok 1 - the table of keys is read" || echo "not ok 1 - the table of keys is read"
if out=$(diff <(table | sort) <(page | sort)); then
	echo "ok 2 - the man page lists all keys with their defaults"
else
	echo "not ok 2 - the man page lists all keys with their defaults"
	printf '%s\n' "$out" | sed 's/^/# /'
fi
