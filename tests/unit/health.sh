#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The table of reasons in docs/health.md and the one in mds/admin/admin_health.c have the same codes
# and severities, and tests/wire/health_test.py has each of them. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}

# "code severity" of each row.
code() {
	awk '/^static const struct reason reasons/ { on = 1 } /^};/ { on = 0 }
	on && match($0, /\{"[a-z-]+", HEALTH_[A-Z]+,/) {
		split(substr($0, RSTART, RLENGTH), w, /[{",_ ]+/)
		print w[2], tolower(w[4])
	}' "$1" | sort
}
page() {
	awk -F' *\\| *' '/^\| [a-z-]+ \| (info|warn|error) \|/ { print $2, $3 }' "$1" | sort
}
differ() { # CODE PAGE
	comm -23 <(code "$1") <(page "$2") | sed 's/^/not on the page: /'
	comm -13 <(code "$1") <(page "$2") | sed 's/^/not in the code: /'
}
# Codes that the wire test does not wait for. ds-trouble needs a store that was put back:
# restore_test.py has it. backup_test.py has backup-late, sums_test.py has sums-damaged,
# instances_ha_test.py those of standbys, etcd_lease_test.py log-away.
untested() { # CODE TESTS...
	local file=$1 c
	shift
	code "$file" | while read -r c _; do grep -q "\"$c\"" "$@" || echo "no test: $c"; done
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
src=$top/mds/admin/admin_health.c doc=$top/docs/health.md
tests=("$top/tests/wire/health_test.py" "$top/tests/wire/restore_test.py"
	"$top/tests/wire/backup_test.py" "$top/tests/wire/sums_test.py"
	"$top/tests/wire/instances_ha_test.py" "$top/tests/wire/etcd_lease_test.py")
report "the table is read" "$([ "$(code "$src" | wc -l)" -gt 20 ] || code "$src")"
report "page and code have the same reasons" "$(differ "$src" "$doc")"
report "each reason has a test" "$(untested "$src" "${tests[@]}")"

# A checker that finds nothing proves nothing: it is tried on planted faults.
plant=$(mktemp -d)
trap 'rm -rf "$plant"' EXIT
sed 's/^| ds-full | error/| ds-full | warn/; /^| in-grace /d' "$doc" >"$plant/page"
report "a row that is gone and another severity are found" "$(comm -3 \
	<(differ "$src" "$plant/page") <(printf '%s\n' "not on the page: ds-full error" \
	"not on the page: in-grace warn" "not in the code: ds-full warn"))"
sed 's/"ds-dead"/"ds-deaf"/' "$src" >"$plant/code.c"
report "a row that only the code has is found" "$(comm -3 <(differ "$plant/code.c" "$doc") \
	<(printf '%s\n' "not on the page: ds-deaf warn" "not in the code: ds-dead warn"))"
report "a reason without a test is found" \
	"$([ "$(untested "$plant/code.c" "${tests[@]}")" = "no test: ds-deaf" ] || echo not found)"
echo "1..$n"
