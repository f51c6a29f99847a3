#!/bin/bash
# Every test that tests/CHECKLISTS.md names exists, and it has every line of both lists with a test, or a word on why there is none. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}

exists() { # FILE NAME
	local path
	case $1 in
	*/*) path=$top/tests/$1 ;;
	*) path=$(find "$top"/tests/{unit,wire,lab,fuzz} -maxdepth 1 -name "$1") ;;
	esac
	[ -n "$path" ] && [ -f "$path" ] || return 1
	case $1,$2 in
	*,) case $1 in t_*.sh | fuzz_*.c | */run) ;; *) return 1 ;; esac ;; # a file alone is a test in these folders only
	*.c,*) [ "$(grep -cw "$2" "$path")" -ge 2 ] && grep -q "^START_TEST($2)" "$path" ;; # and it is added to a case
	*.py,*) grep -qE "^def (test_)?$2\(" "$path" ;;
	*) return 1 ;;
	esac
}
# missing FILE: tests that do not exist, and lines that are not there or name nothing
missing() {
	grep -oE '`[A-Za-z0-9_/]+(\.(c|py|sh))?( [a-z0-9_]+)?`' "$1" | tr -d '`' | grep -vx 'file name' | grep -vxE 'test_|tests/checklists.sh' | sort -u |
		while read -r file name; do exists "$file" "$name" || echo "no such test: $file $name"; done
	for line in P{1..51} C{1..64}; do
		grep -qE "^- $line\. .*(\`|: (the |later|with |NFSv3 later))" "$1" || echo "no line $line, or no test and no word on it"
	done
}

n=0
report() { # NAME OUTPUT: no output is ok
	n=$((n + 1))
	if [ -z "$2" ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; printf '%s\n' "$2" | sed 's/^/# /'; fi
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
planted "a test over the wire that is not there is found" 's/old_kernels_get_no_stripes/old_kernels_get_stripes/' "no such test: mds_test.py old_kernels_get_stripes"
planted "a unit test that is not there is found" 's/names_are_checked/names_are_cheked/' "no such test: ns_test.c names_are_cheked"
planted "a lab test that is not there is found" 's/t_full\.sh/t_ful.sh/' "no such test: t_ful.sh"
planted "a line that is not there is found" '/^- C33/d' "no line C33"
echo "1..$n"
