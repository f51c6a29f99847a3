#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The size of code. No C file, Python file or script has more than 1,000 lines, and no C function
# more than 100: from the brace that opens it to the brace that closes it, both in the first column.
# Prints TAP.
# A checker that finds nothing proves nothing: it is tried on planted faults first.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}

# oversized TREE: prints the files and functions that are too long.
oversized() {
	(cd "$1" && find addr base common topo proto kv pg mds ds client tools tests docs -type f \
		\( -name '*.[ch]' -o -name '*.py' -o -name '*.sh' \) 2>/dev/null | sort |
		xargs -r awk -v most_file=1000 -v most_function=100 '
		function file_end() {
			if (lines > most_file)
				print name ": " lines " lines"
		}
		FNR == 1 { file_end(); name = FILENAME; opened = 0; c = name ~ /\.[ch]$/ }
		{ lines = FNR }
		c && /^{/ { opened = FNR }
		c && /^}/ {
			if (opened && FNR - opened + 1 > most_function)
				print name ":" opened ": a function of " FNR - opened + 1 " lines"
			opened = 0
		}
		END { file_end() }')
}

n=0 failed=0
report() { # STATUS NAME: 0 is ok
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; failed=1; fi
}
plant=$(mktemp -d)
trap 'rm -rf "$plant"' EXIT
mkdir -p "$plant/base" "$plant/tests/unit"
lines() { # NUMBER: so many lines that are indented
	yes '	a();' | head -n "$1"
}
function_of() { # LINES
	printf 'void f(void)\n{\n' && lines $(($1 - 2)) && printf '}\n'
}
{ function_of 100 && function_of 100 && lines 798; } >"$plant/base/good.c"
[ "$(wc -l <"$plant/base/good.c")" = 1000 ] && [ -z "$(oversized "$plant")" ]
report $? "a file of 1,000 lines with functions of 100 is left alone"
{ function_of 100 && function_of 101; } >"$plant/base/bad.c"
[ "$(oversized "$plant")" = "base/bad.c:103: a function of 101 lines" ]
report $? "a function of 101 lines is found"
# A table of that many lines is no function: its brace is not in the first column.
{ printf 'int t[] = {\n' && lines 200 && printf '};\n' && lines 799; } >"$plant/base/bad.c"
[ "$(oversized "$plant")" = "base/bad.c: 1001 lines" ]
report $? "a file of 1,001 lines is found, and a long table is no function"
lines 1 >"$plant/base/bad.c"
lines 1001 >"$plant/tests/unit/last.h"
[ "$(oversized "$plant")" = "tests/unit/last.h: 1001 lines" ]
report $? "the last file is looked at, and so is a header of the tests"
rm "$plant/tests/unit/last.h"
lines 1001 >"$plant/tests/unit/long.py"
lines 1001 >"$plant/tests/unit/long.sh"
[ "$(oversized "$plant" | tr '\n' ' ')" = \
	"tests/unit/long.py: 1001 lines tests/unit/long.sh: 1001 lines " ]
report $? "a test in Python and a script of 1,001 lines are found"
found=$(oversized "$top")
[ -z "$found" ]
report $? "no file has more than 1,000 lines, and no function more than 100"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
echo "1..$n"
exit $failed
