#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The format of C code. clang-format has nothing to change (.clang-format). No line has more than
# 100 columns, with a tab every 8. The first line of each file names its licence. Prints TAP.
# A checker that finds nothing proves nothing: it is tried on planted faults first.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
command -v clang-format >/dev/null || {
	echo "1..0 # SKIP no clang-format (tools/setup tests)"
	exit 0
}

sources() {
	(cd "$1" && find base proto kv mds ds client tools tests docs -name '*.[ch]' 2>/dev/null |
		sort)
}
# deviating TREE: prints the places that clang-format would change.
deviating() {
	(cd "$1" && sources . | xargs -r -P"$(nproc)" -n40 \
		clang-format --style="file:$top/.clang-format" --dry-run -Werror 2>&1) |
		sed -nE 's/^([^ ]+:[0-9]+):[0-9]+: error.*/\1/p'
}
# long TREE: prints the lines that are too long.
long() {
	(cd "$1" && sources . | while read -r f; do
		expand -t8 "$f" | awk -v f="$f" 'length > 100 { print f ":" NR }'
	done)
}

# unlicensed TREE: prints the files whose first line is not the licence's name.
unlicensed() {
	(cd "$1" && sources . | while read -r f; do
		[ "$(head -1 "$f")" = '/* SPDX-License-Identifier: Apache-2.0 */' ] || echo "$f"
	done)
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
[ -z "$(deviating "$plant")$(long "$plant")" ]
report $? "a file in the format of the house is left alone"
printf 'int b(void) {\n  return 1;\n}\n' >"$plant/base/bad.c"
[ "$(deviating "$plant" | cut -d: -f1 | sort -u)" = base/bad.c ]
report $? "a file in another format is found"
printf '/*\n * %s\n */\n\t\t\t\t/* %s */\n' \
	"$(printf 'x%.0s' {1..120})" "$(printf 'x%.0s' {1..70})" >"$plant/base/bad.c"
[ "$(long "$plant" | tr '\n' ' ')" = "base/bad.c:2 base/bad.c:4 " ]
report $? "lines that are too long are found, with tabs counted"
printf '/* SPDX-License-Identifier: Apache-2.0 */\nint c;\n' >"$plant/base/good.c"
[ "$(unlicensed "$plant")" = base/bad.c ]
report $? "a file that names no licence is found"
found=$(deviating "$top" | head -20)
[ -z "$found" ]
report $? "clang-format has nothing to change"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(long "$top" | head -20)
[ -z "$found" ]
report $? "no line of C has more than 100 columns"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(unlicensed "$top" | head -20)
[ -z "$found" ]
report $? "each C file names its licence"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
echo "1..$n"
exit $failed
