#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What tools/check-all makes of a test file's runs (tools/check-count): who passes once is no
# failure, and nobody is let off who never did. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0

# is WANT NAME RUN...: a run is its lines, with ; between them
is() {
	local want=$1 name=$2 i=0 got
	shift 2
	rm -f "$work"/*
	for run; do
		i=$((i + 1))
		tr ';' '\n' <<<"$run" >"$work/$i"
	done
	got=$(awk -f "$top/tools/check-count" "$work"/*)
	n=$((n + 1))
	if [ "$got" = "$want" ]; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		echo "# $got, want $want"
	fi
}

echo 1..12
is "2 0 1:" "all is counted" "1..3;ok 1 - a;ok 2 - b # SKIP why;# 3 s;ok 3 - c"
is "1 1 0: 2" "a test that fails" "1..2;ok 1 - a;not ok 2 - b"
is "2 0 0:" "a test that passes the second time is no failure" "1..2;ok 1 - a;not ok 2 - b" \
	"1..2;ok 1 - a;ok 2 - b"
is "2 0 0:" "nor is another that fails then" "1..2;ok 1 - a;not ok 2 - b" \
	"1..2;not ok 1 - a;ok 2 - b"
is "1 1 0: 2" "a test that fails each time has failed" "1..2;not ok 1 - a;not ok 2 - b" \
	"1..2;ok 1 - a;not ok 2 - b" "1..2;ok 1 - a;not ok 2 - b"
is "1 1 0: end" "a file that does not come to its end" "1..2;ok 1 - a"
is "2 1 0: end" "however far it came each time" "1..2;ok 1 - a" "1..2;ok 2 - b"
is "2 0 0:" "but for one time" "1..2;ok 1 - a" "1..2;ok 1 - a;ok 2 - b"
is "2 1 0: end" "a program that ends badly each time" "1..2;ok 1 - a;ok 2 - b;# ended badly" \
	"1..2;ok 1 - a;ok 2 - b;# ended badly"
is "0 1 0: end" "a file that says nothing" ""
is "0 0 1:" "a file that is skipped" "1..0 # SKIP why"
n=$((n + 1))
gone=$(grep -v '^#' "$top/tests/may-run-again" | while read -r f; do
	[ -e "$top/$f" ] || [ -e "$top/$f.c" ] || [ -e "$top/$f.sh" ] || echo "$f"
done)
if [ -z "$gone" ]; then
	echo "ok $n - each test that may run again is there"
else
	echo "not ok $n - tests/may-run-again names what is not there:" $gone
fi
