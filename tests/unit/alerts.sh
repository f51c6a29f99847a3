#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The alert rules: promtool takes them and their tests, each has a test in which it fires and one in
# which it does not, docs/alerts.md has a section for each and no other, and the series they use are
# in docs/metrics.md. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
rules=$top/dist/prometheus/alerts.yml tests=$top/dist/prometheus/alerts_test.yml
page=$top/docs/alerts.md series=$top/docs/metrics.md

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
alerts() { sed -nE 's/^      - alert: (\w+)$/\1/p' "$1" | sort; }
sections() { sed -nE 's/^## (\w+)$/\1/p' "$1" | sort; }
differ() { # RULES PAGE
	comm -23 <(alerts "$1") <(sections "$2") | sed 's/^/no section: /'
	comm -13 <(alerts "$1") <(sections "$2") | sed 's/^/no alert: /'
}
# An alert whose runbook is another's.
links() {
	awk '/- alert: /{ a = $3 }
	/runbook: /{ if ($2 != "docs/alerts.md#" tolower(a)) print a ": " $2 }' "$1"
}
tested() { # RULES TESTS
	local a
	for a in $(alerts "$1"); do
		grep -qx "  - name: $a fires" "$2" || echo "$a: no test in which it fires"
		grep -qx "  - name: $a is quiet" "$2" || echo "$a: no test in which it is quiet"
	done
}
unknown() { # RULES
	grep -v summary: "$1" | grep -oE '\bweft_(mds|ds)_[a-z_]*[a-z]\b' | sed 's/_bucket$//' |
		sort -u | while read -r s; do
		grep -q "^- \`$s\` " "$series" || echo "$s"
	done
}
report "there are alerts" "$([ "$(alerts "$rules" | wc -l)" -gt 10 ] || echo "too few")"
report "the page has a section for each alert and no other" "$(differ "$rules" "$page")"
report "each alert names its section" "$(links "$rules")"
report "each alert is tested both ways" "$(tested "$rules" "$tests")"
report "the series of the rules are in docs/metrics.md" "$(unknown "$rules")"

plant=$(mktemp -d)
trap 'rm -rf "$plant"' EXIT
sed '/^## DsDead$/d' "$page" >"$plant/page"
report "a section that is missing is found" \
	"$([ "$(differ "$rules" "$plant/page")" = "no section: DsDead" ] || echo "it is not")"
sed 's/alert: Full$/alert: Fuller/' "$rules" >"$plant/rules"
report "an alert without a section or a test is found" "$([ "$(differ "$plant/rules" "$page"
	links "$plant/rules"; tested "$plant/rules" "$tests")" = "no section: Fuller
no alert: Full
Fuller: docs/alerts.md#full
Fuller: no test in which it fires
Fuller: no test in which it is quiet" ] || echo "it is not")"
sed 's/weft_mds_serving/weft_mds_server/' "$rules" >"$plant/rules"
report "a series that is none is found" \
	"$([ "$(unknown "$plant/rules")" = weft_mds_server ] || echo "it is not")"
if command -v promtool >/dev/null; then
	report "promtool takes the rules" "$(promtool check rules "$rules" >"$plant/out" 2>&1 ||
		cat "$plant/out")"
	report "the tests of the rules pass" \
		"$(cd "$top/dist/prometheus" &&
			promtool test rules alerts_test.yml >"$plant/out" 2>&1 || cat "$plant/out")"
	cp "$rules" "$tests" "$plant"
	sed -i 's/weft_mds_serving == 0/weft_mds_serving == 1/' "$plant/alerts.yml"
	report "a rule that is wrong fails its test" \
		"$(cd "$plant" && ! promtool test rules alerts_test.yml >out 2>&1 || cat out)"
else
	for what in "promtool takes the rules" "the tests of the rules pass" \
		"a rule that is wrong fails its test"; do
		n=$((n + 1))
		echo "ok $n - $what # SKIP promtool is missing"
	done
fi
echo "1..$n"
