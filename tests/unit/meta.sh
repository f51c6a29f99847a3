#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docs/meta-export.md and the code of export-meta have the same kinds of lines and the same members,
# and each key of the store has a kind. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
code=$top/mds/meta_rows.c doc=$top/docs/meta-export.md

kinds() { # FILE
	sed -nE "s/^	\{\"([a-z-]+)\", NS_[KT]_.*/\1/p" "$1" | sort
}
page_kinds() { # FILE
	sed -n '/^## The kinds/,$p' "$1" | sed -nE 's/^- `([a-z-]+)`(:|,).*/\1/p' | grep -vxE \
		'acl|layout|policy|sums|target' | sort
}
# The names of members, and the words that some have.
words() { # FILE
	sed 's,/\*.*\*/,,; /^#include/d' "$1" | grep -oE '"[a-z_0-9-]+"' | tr -d '"' |
		grep -vx none | sort -u
}
unknown() { # CODE PAGE
	comm -23 <(words "$1") <(grep -oE '`[a-z_0-9-]+`' "$2" | tr -d '`' | sort -u)
}
gone() { # CODE PAGE
	comm -23 <(sed -n '/^## The kinds/,$p' "$2" | grep -oE '`[a-z_0-9-]+`' | tr -d '`' |
		sort -u | grep -vxE 'mpr_unit|mta_flags') <(words "$1")
}
# What is not exported: the page says why.
left_out() { echo NS_T_CONN; }
keyless() { # CODE
	comm -23 <(cd "$top" && grep -rhoE --include='*.h' "NS_[KT]_[A-Z0-9_]+ = '.'" mds |
		cut -d' ' -f1 | sort -u) <( (grep -oE 'NS_[KT]_[A-Z0-9_]+' "$1"; left_out) |
		sort -u)
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
report "the kinds are read" "$([ "$(kinds "$code" | wc -l)" -gt 30 ] || kinds "$code")"
report "code and page have the same kinds" "$(diff <(kinds "$code") <(page_kinds "$doc"))"
report "the page has each member and each word" "$(unknown "$code" "$doc")"
report "and no other" "$(gone "$code" "$doc")"
report "each key of the store has a kind" "$(keyless "$code")"

# A checker that finds nothing proves nothing: it is tried on planted faults.
plant=$(mktemp -d)
trap 'rm -rf "$plant"' EXIT
sed 's/"verifier"/"verifies"/; s/NS_T_HINT/NS_T_HUNT/' "$code" >"$plant/code.c"
report "a member of another name is found" "$(comm -3 <(unknown "$plant/code.c" "$doc") \
	<(echo verifies))"
report "a key without a kind is found" "$(comm -3 <(keyless "$plant/code.c") <(echo NS_T_HINT))"
sed '/^- `orphan`/d' "$doc" >"$plant/page"
report "a kind that the page lacks is found" \
	"$(comm -3 <(comm -3 <(kinds "$code") <(page_kinds "$plant/page")) <(echo orphan))"
echo "1..$n"
