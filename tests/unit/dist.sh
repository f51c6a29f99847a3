#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# dist.sh - make dist: the tarball has every tracked file, and beside these only what autoconf and
# automake make. Prints TAP. A checker that finds nothing proves nothing, so the test first tries it
# on planted faults.
set -u
export LC_ALL=C
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${top_builddir:-$PWD}

[ -e "$top/.git" ] && git -C "$top" ls-files --error-unmatch configure.ac >/dev/null 2>&1 ||
	{ echo "1..0 # SKIP this is no git tree: it may be a tarball itself"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

n=0
report() { # STATUS NAME [FILE]: 0 is ok; the lines of the file say what is wrong
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else
		echo "not ok $n - $2"
		[ -z "${3:-}" ] || head -20 "$3" | sed 's/^/# /'
	fi
}

# Tracked files that a tarball need not have.
exceptions='^\.gitignore$'
# What the tarball has beside tracked files.
made='^(aclocal\.m4|configure|Makefile\.in|build-aux/[a-z-]+(\.sh)?)$'

# lacks TRACKED LISTED: tracked files that the tarball lacks.
# extra TRACKED LISTED: what else it has.
lacks() { comm -23 <(grep -vE "$exceptions" "$1" | sort) <(sort "$2"); }
extra() { comm -13 <(sort "$1") <(sort "$2") | grep -vE "$made"; }

printf '%s\n' base/a.c .gitignore README.md >"$work/tracked"
printf '%s\n' README.md base/a.c configure build-aux/missing >"$work/listed"
lacks "$work/tracked" "$work/listed" >"$work/out"
[ ! -s "$work/out" ]; report $? "a tarball with all files is whole" "$work/out"
grep -v a.c "$work/listed" >"$work/short"
[ "$(lacks "$work/tracked" "$work/short")" = base/a.c ]; report $? "a file that is missing is found"
extra "$work/tracked" "$work/listed" >"$work/out"
[ ! -s "$work/out" ]; report $? "what automake makes may be there" "$work/out"
printf '%s\n' README.md base/a.c base/a.o >"$work/more"
[ "$(extra "$work/tracked" "$work/more")" = base/a.o ]; report $? "what a build made is found"

git -C "$top" ls-files >"$work/tracked"
env -u MAKEFLAGS -u MFLAGS "${MAKE:-make}" -s -C "$build" distdir distdir="$work/weft" \
	>"$work/log" 2>&1
report $? "make distdir" "$work/log"
(cd "$work/weft" && find . -type f -o -type l) | sed 's,^\./,,' >"$work/listed"
lacks "$work/tracked" "$work/listed" >"$work/out"
[ ! -s "$work/out" ]; report $? "the tarball has every tracked file" "$work/out"
extra "$work/tracked" "$work/listed" >"$work/out"
[ ! -s "$work/out" ]; report $? "the tarball has nothing else" "$work/out"
echo "1..$n"
