#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cppcheck finds no mistake in the programs' C code, codespell no misspelt word in code, tests and
# pages. A finding that is false has "cppcheck-suppress ID" above its line, with the reason.
# tests/codespell-ignore lists names that codespell takes for misspelt words. Prints TAP.
# A checker that finds nothing proves nothing: each is tried on a planted fault first.
# tools/check-all counts failures, so it is tried as well: on a test that fails only once.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}

# Off are: varFuncNullUB, because NULL is a pointer in C; uninitvar and uninitStructMember,
# because cppcheck does not see that "if (!err)" guards the use; gcc -Wall -Werror sees it, and
# checks both. unknownMacro is a finding: say here what the macro is like, or cppcheck skips the
# rest of the file.
options=(-q "-j$(nproc)" --enable=warning,portability --inline-suppr --std=c11 -I. -D_GNU_SOURCE
	--suppress=varFuncNullUB --suppress=uninitvar --suppress=uninitStructMember
	'-Djson_array_foreach(a,i,v)=while((v=next_value(a,&i)))'
	'-Djson_object_foreach(o,k,v)=while((v=next_value(o,&k)))'
	'--template={file}:{line}: {id}: {message}')
# mistakes TREE: prints what cppcheck finds.
mistakes() {
	(cd "$1" && find addr base common topo proto kv pg mds ds client tools -name '*.c' \
		2>/dev/null |
		sort |
		cppcheck "${options[@]}" --file-list=- 2>&1)
}
# misspelt TREE: prints what codespell finds. Corpora and archives are not text.
misspelt() {
	local not='/corpus/|\.xz$|/__pycache__/|/codespell-ignore$|/unit/lint\.sh$'

	(cd "$1" && find addr base common topo proto kv pg mds ds client tools tests docs ./*.md \
		Makefile.am configure.ac -type f 2>/dev/null | grep -vE "$not" |
		xargs -r codespell -I "$top/tests/codespell-ignore" 2>&1)
}

n=0
failed=0
report() { # STATUS NAME: 0 is ok
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; failed=1; fi
}
skip() { # NAME PROGRAM
	n=$((n + 1))
	echo "ok $n - $1 # SKIP no $2 (tools/setup tests)"
}
nothing() { # FUNCTION NAME
	local found
	found=$("$1" "$top")
	[ -z "$found" ]
	report $? "$2"
	[ -z "$found" ] || echo "$found" | head -40 | sed 's/^/# /'
}
plant=$(mktemp -d)
trap 'rm -rf "$plant"' EXIT
mkdir "$plant/base"
printf '/* One is received. */\nint one(const int *p)\n{\n\treturn p ? *p : 1;\n}\n' \
	>"$plant/base/good.c"

if command -v cppcheck >/dev/null; then
	[ -z "$(mistakes "$plant")" ]
	report $? "cppcheck has nothing against good code"
	printf 'int two(void)\n{\n\tint *p = 0;\n\n\treturn *p;\n}\n' >"$plant/base/null.c"
	[ "$(mistakes "$plant" | cut -d: -f1-3 | sort -u)" = "base/null.c:5: nullPointer" ]
	report $? "cppcheck finds a null dereference"
	nothing mistakes "cppcheck finds no mistake"
else
	skip "cppcheck finds no mistake" cppcheck
fi
rm -f "$plant/base/null.c"
if command -v codespell >/dev/null; then
	[ -z "$(misspelt "$plant")" ]
	report $? "codespell has nothing against good words"
	printf '/* One is recieved. */\n' >"$plant/base/word.c"
	[ "$(misspelt "$plant" | cut -d: -f1,2)" = "base/word.c:1" ]
	report $? "codespell finds a misspelt word"
	nothing misspelt "codespell finds no misspelt word"
else
	skip "codespell finds no misspelt word" codespell
fi

# counted: what make_check of tools/check-all counts in $plant/build, by its own code.
eval "$(sed -n '/^end() {/,/^}/p; /^make_check() {/,/^}/p' "$top/tools/check-all")"
unset MAKEFLAGS MFLAGS
counted() {
	# shellcheck disable=SC2034 # make_check and end use them
	local stage=tried began=0 built="" passed=0 failed=0 skipped=0 work=$plant/work

	rm -rf "$work" "$plant/build/tests/"*.{log,trs} "$plant/build/before"
	mkdir "$work"
	make_check "$plant/build" 1 | sed -n 's/^== tried: \(.*\), [0-9]* s$/\1/p'
}
mkdir -p "$plant/build/tests"
printf 'echo 1..1\necho ok 1 - sound\n' >"$plant/build/tests/sound.sh"
printf '%s\n' 'echo 1..1' '[ ! -e before ] || { echo ok 1 - once; exit 0; }' \
	': >before' 'echo not ok 1 - once' 'exit 1' >"$plant/build/tests/once.sh"
cat >"$plant/build/Makefile" <<END
check:
	@for t in sound once; do sh "$top/build-aux/tap-driver.sh" --test-name \$\$t \\
		--log-file tests/\$\$t.log --trs-file tests/\$\$t.trs --color-tests no \\
		--enable-hard-errors yes --expect-failure no -- \\
		env TEST_DISK=1 sh "$top/tests/netns" bash tests/\$\$t.sh; done
	@! grep -qE '^:test-result: (FAIL|ERROR)' tests/*.trs
END
got=$(counted)
[ "$got" = "1 passed, 1 failed, 0 skipped" ]
report $? "a test that fails once has failed, and counts once"
[ $failed = 0 ] || echo "# $got"
[ "$(cat "$plant/work/failed")" = "$plant/build: FAIL: once 1 - once" ]
report $? "the failure is named once"
make() { command make "$@" || command make "$@"; }
[ "$(counted)" = "2 passed, 0 failed, 0 skipped" ]
report $? "a make that runs failed tests again would hide it"
unset -f make
echo "1..$n"
exit $failed
