#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The format of the tree. clang-format has nothing to change in C (.clang-format). No line of C, of
# a script or of a page has more than 100 columns, with a tab every 8. The first line of each C file
# and script, after #!, names its licence. Prints TAP.
# A checker that finds nothing proves nothing: it is tried on planted faults first.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
command -v clang-format >/dev/null || {
	echo "1..0 # SKIP no clang-format (tools/setup tests)"
	exit 0
}

sources() {
	(cd "$1" && find addr base common topo proto kv pg mds ds client tools tests docs \
		-name '*.[ch]' 2>/dev/null | sort)
}
# deviating TREE: prints the places that clang-format would change.
deviating() {
	(cd "$1" && sources . | xargs -r -P"$(nproc)" -n40 \
		clang-format --style="file:$top/.clang-format" --dry-run -Werror 2>&1) |
		sed -nE 's/^([^ ]+:[0-9]+):[0-9]+: error.*/\1/p'
}
# scripts TREE: its scripts (shell, awk and Python), by name or by their first line.
scripts() {
	(cd "$1" && {
		find . -maxdepth 1 -type f -name '*.sh'
		find .ci tests tools docs base -type f ! -name '*.[ch]' ! -path '*/__pycache__/*' \
			! -path '*/corpus/*' 2>/dev/null
	} | sed 's,^\./,,' | sort | tr '\n' '\0' | xargs -0 -r env LC_ALL=C awk '
		FNR == 1 {
			if (FILENAME ~ /\.(sh|py|awk)$/ || /^#!.*(sh|awk|python)/)
				print FILENAME
			nextfile
		}')
}
pages() {
	(cd "$1" && {
		find . -maxdepth 1 -name '*.md'
		find docs tests tools .ci -name '*.md' 2>/dev/null
	} | sed 's,^\./,,' | sort)
}
# lists TREE: its lists of files, and its manual pages.
lists() {
	(cd "$1" && find . \( -name Makefile.am -o -name room.am -o -path './docs/*.[1-8]' \) \
		! -path './build*' 2>/dev/null | sed 's,^\./,,' | sort)
}
# long TREE LIST...: prints the lines that are too long, of the files that the LISTs print.
long() {
	local list
	(cd "$1" && for list in "${@:2}"; do "$list" .; done | tr '\n' '\0' |
		xargs -0 -r perl -CSD -ne '
		chomp;
		1 while s/^([^\t]*)\t/$1 . " " x (8 - length($1) % 8)/e;
		print "$ARGV:$.\n" if length > 100;
		close ARGV if eof' 2>/dev/null)
}
# unlicensed TREE: prints the files whose first line, after #!, is not the licence's name.
unlicensed() {
	(cd "$1" && {
		sources . | tr '\n' '\0' | xargs -0 -r awk '
			BEGIN { licence = "/* SPDX-License-Identifier: Apache-2.0 */" }
			FNR == 1 && $0 != licence { print FILENAME }'
		scripts . | tr '\n' '\0' | xargs -0 -r awk '
			FNR == 1 && /^#!/ { next }
			$0 != "# SPDX-License-Identifier: Apache-2.0" { print FILENAME }
			{ nextfile }'
	})
}

n=0 failed=0
report() { # STATUS NAME: 0 is ok
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; failed=1; fi
}
plant=$(mktemp -d)
trap 'rm -rf "$plant"' EXIT
mkdir "$plant/base"
printf 'int a(void)\n{\n\treturn 1;\n}\n' >"$plant/base/good.c"
[ -z "$(deviating "$plant")$(long "$plant" sources)" ]
report $? "a file in the format of the house is left alone"
printf 'int b(void) {\n  return 1;\n}\n' >"$plant/base/bad.c"
[ "$(deviating "$plant" | cut -d: -f1 | sort -u)" = base/bad.c ]
report $? "a file in another format is found"
printf '/*\n * %s\n */\n\t\t\t\t/* %s */\n' \
	"$(printf 'x%.0s' {1..120})" "$(printf 'x%.0s' {1..70})" >"$plant/base/bad.c"
[ "$(long "$plant" sources | tr '\n' ' ')" = "base/bad.c:2 base/bad.c:4 " ]
report $? "lines that are too long are found, with tabs counted"
printf '/* SPDX-License-Identifier: Apache-2.0 */\nint c;\n' >"$plant/base/good.c"
[ "$(unlicensed "$plant")" = base/bad.c ]
report $? "a file that names no licence is found"
mkdir "$plant/tests"
licence='# SPDX-License-Identifier: Apache-2.0'
printf '#!/bin/bash\n%s\n:\n' "$licence" >"$plant/tests/good"
printf '%s\n\t\t\t\t# %s\n' "$licence" "$(printf 'x%.0s' {1..70})" >"$plant/tests/wide.py"
printf '#!/usr/bin/python3\nx = 1\n' >"$plant/tests/bare"
printf '# %s\n%s\n' "$(printf 'ä%.0s' {1..98})" "$(printf 'ä%.0s' {1..101})" >"$plant/README.md"
[ "$(long "$plant" scripts pages | tr '\n' ' ')" = "tests/wide.py:2 README.md:2 " ]
report $? "and so they are in scripts and pages"
mkdir "$plant/docs"
printf 'x = a.c \\\n\t%s\n' "$(printf 'x%.0s' {1..92})" >"$plant/base/room.am"
printf '.TH X 1\n' >"$plant/docs/x.1"
[ -z "$(long "$plant" lists)" ]
report $? "lists of files and manual pages with 100 columns are good"
printf 'x = a.c \\\n\t%s\n' "$(printf 'x%.0s' {1..93})" >"$plant/base/room.am"
printf '.TH X 1\n.BI %s\n' "$(printf 'x%.0s' {1..97})" >"$plant/docs/x.1"
[ "$(long "$plant" lists | tr '\n' ' ')" = "base/room.am:2 docs/x.1:2 " ]
report $? "a list of files and a manual page with more are found"
[ "$(unlicensed "$plant" | tr '\n' ' ')" = "base/bad.c tests/bare " ]
report $? "and so is a script that names none"
[ "$(scripts "$top" | wc -l)" -gt 200 ]
report $? "scripts are read"
found=$(deviating "$top" | head -20)
[ -z "$found" ]
report $? "clang-format has nothing to change"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(long "$top" sources scripts pages lists | head -20)
[ -z "$found" ]
report $? "no line of code, scripts, pages and lists of files has more than 100 columns"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(unlicensed "$top" | head -20)
[ -z "$found" ]
report $? "each file of code names its licence"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
echo "1..$n"
exit $failed
