#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every test that tests/CHECKLISTS.md names exists, and it has every line of both lists with a test,
# or a word on why there is none. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}

declare -A files tests # by name; in these four folders a name without its folder is enough
while read -r path; do
	path=${path#"$top"/tests/}
	files[$path]=1
	case $path in
	unit/*/* | wire/*/* | lab/*/* | fuzz/*/*) ;;
	unit/* | wire/* | lab/* | fuzz/*) files[${path#*/}]=1 ;;
	esac
done < <(find "$top/tests" -type f)
# A unit test is added to a case, too: its name is there twice.
while read -r path name; do
	path=${path#"$top"/tests/}
	tests["$path $name"]=1 tests["${path#*/} $name"]=1
done < <(
	find "$top/tests" -name '*.c' -exec awk '
		function flush(t) {
			for (t in added) if (words[t] > 1) print file, t
			split("", added)
			split("", words)
		}
		FNR == 1 { flush(); file = FILENAME }
		match($0, /^START_TEST\([a-zA-Z0-9_]+\)/) {
			added[substr($0, 12, RLENGTH - 12)] = 1 }
		{ n = split($0, w, /[^a-zA-Z0-9_]+/); for (i = 1; i <= n; i++) words[w[i]]++ }
		END { flush() }' {} +
	find "$top/tests" -name '*.py' -exec grep -HoE '^def [a-zA-Z0-9_]+\(' {} + |
		sed -E 's/:def (test_)?/ /; s/\($//'
)
exists() { # FILE NAME
	[ -n "${files[$1]:-}" ] || return 1
	[ -z "$2" ] || { [ -n "${tests[$1 $2]:-}" ]; return; }
	# A file alone is a test in these folders only.
	case $1 in t_*.sh | fuzz_*.c | */run) ;; *) return 1 ;; esac
}
# items FILE: its lines, an item and the lines that go on with it as one
items() {
	awk '
		/^  [^ ]/ { sub(/^ +/, ""); item = item " " $0; next }
		{ if (NR > 1) print item; item = $0 }
		END { print item }' "$1"
}
# missing FILE: tests that do not exist, and lines that are not there or name nothing
missing() {
	local -A good=()
	local test='`|: (the |later|with |NFSv3 later)' # one, or a word on why there is none
	while read -r line; do
		good[$line]=1
	done < <(items "$1" | sed -nE "s/^- ([PC][0-9]+)\\. .*($test).*/\\1/p")
	grep -oE '`[A-Za-z0-9_/]+(\.(c|py|sh))?( [a-z0-9_]+)?`' "$1" | tr -d '`' |
		grep -vx 'file name' | grep -vxE 'test_|tests/checklists.sh' | sort -u |
		while read -r file name; do
			exists "$file" "$name" || echo "no such test: $file $name"
		done
	for line in P{1..51} C{1..64}; do
		[ -n "${good[$line]:-}" ] || echo "no line $line, or no test and no word on it"
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
list=$top/tests/CHECKLISTS.md
report "tests are named" "$([ "$(grep -c '`.*`' "$list")" -gt 80 ] || echo "too few")"
report "every test that is named exists, and every line has one" "$(missing "$list")"

# A checker that finds nothing proves nothing.
plant=$(mktemp)
trap 'rm -f "$plant"' EXIT
planted() { # NAME SED-SCRIPT EXPECTED
	sed -E "$2" "$list" >"$plant"
	report "$1" "$(missing "$plant" | grep -qF "$3" || echo "not found: $3")"
}
planted "a test over the wire that is not there is found" \
	's/old_kernels_get_no_stripes/old_kernels_get_stripes/' \
	"no such test: layouts_test.py old_kernels_get_stripes"
planted "a unit test that is not there is found" 's/names_are_checked/names_are_cheked/' \
	"no such test: ns_test.c names_are_cheked"
planted "a lab test that is not there is found" 's/t_full\.sh/t_ful.sh/' "no such test: t_ful.sh"
planted "a line that is not there is found" '/^- C33/d' "no line C33"
echo "1..$n"
