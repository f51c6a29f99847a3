#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docs/schema.md and the code say the same: of the keys of the metadata store, of the flags of an
# inode, and of each field of a record that is stored. Prints TAP. The comparison is first tried on
# planted faults. docs/formats.md has the records that FORMAT_AT names, and formats.sh compares it.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
doc=$top/docs/schema.md
keys=$(cd "$top" && grep -rlE --include='*.[ch]' 'NS_K_SUPER = ' mds)
table=$(cd "$top" && grep -rlE --include='*.[ch]' '^enum ns_table' mds)

# Records that are stored and that no packed attribute marks.
natural="ds_meta marks meta stamp kv_log_head kv_log_rec kv_redo_rec kv_archive_head"

# ---- keys ----

# "constant byte" of NS_K_* and NS_T_*, "constant value" of NS_F_*.
code_keys() { # TREE
	(cd "$1" && cat "$keys" "$table") |
		grep -oE "NS_[KT]_[A-Z0-9_]+ = '.'|NS_F_[A-Z0-9_]+ = [0-9]+" |
		sed 's/ = / /' | sort -u
}
page_keys() { # FILE
	awk -F'|' '/^\| / {
		gsub(/[` ]/, "", $2); gsub(/[` ]/, "", $3)
		if ($3 ~ /^NS_[KT]_/) print $3, $2
		if ($2 ~ /^NS_F_/) print $2, $3
	}' "$1" | sort
}
# The head of keys.h: "constant byte".
head_keys() { # TREE
	sed -n '1,/\*\//p' "$1/$keys" | sed -nE "s/^ \*   ('.')   (NS_[KT]_[A-Z0-9_]+) .*/\2 \1/p" |
		sort
}

# ---- records ----

# Of the structs of a file that are packed, or natural: "struct field at bytes" for each field, and
# "struct = bytes". Sizes come from the types and from the tree's constants.
fields() { # FILE CONSTANTS
	awk -v constants="$2" -v natural=" $natural " '
	function number(text,   n) {
		if (text ~ /^[0-9]+$/)
			return text + 0
		return text in value ? value[text] : -1
	}
	function size(type) {
		if (type ~ /^u?int8_t$|^char$/) return 1
		if (type == "uint16_t") return 2
		if (type == "uint32_t") return 4
		if (type == "uint64_t") return 8
		return type in total ? total[type] : -1
	}
	function field(type, text,   name, dims, bytes, d, k, n) {
		name = text
		sub(/\[.*/, "", name)
		bytes = size(type)
		if (text ~ /\[\]/) {
			out = out struct " " name " " at " rest\n"
			return
		}
		dims = substr(text, length(name) + 1)
		n = split(dims, d, /[][]+/)
		for (k = 1; k <= n; k++)
			if (d[k] != "")
				bytes = bytes < 0 || number(d[k]) < 0 ? -1 : bytes * number(d[k])
		out = out struct " " name " " at " " (bytes < 0 ? "?" : bytes) "\n"
		at += bytes
	}
	function done(   n, k, s, w, f, j, type, rest) {
		n = split(body, s, ";")
		at = 0
		out = ""
		for (k = 1; k < n; k++) {
			gsub(/[ \t\n]+/, " ", s[k])
			sub(/^ /, "", s[k])
			type = s[k]
			sub(/^struct /, "", type)
			rest = type
			sub(/ .*/, "", type)
			sub(/^[^ ]* /, "", rest)
			j = split(rest, f, ",")
			for (w = 1; w <= j; w++) {
				gsub(/ /, "", f[w])
				field(type, f[w])
			}
		}
		total[struct] = at
		if (take) {
			printf "%s", out
			print struct, "=", at
		}
	}
	BEGIN {
		while ((getline line < constants) > 0) {
			split(line, w, " ")
			value[w[1]] = w[2] + 0
		}
	}
	{ gsub(/\/\*([^*]|\*[^\/])*\*\//, "") }
	incomment { if (!sub(/^.*\*\//, "")) next; incomment = 0 }
	/\/\*/ { sub(/\/\*.*/, ""); incomment = 1 }
	/^struct [a-z0-9_]+ \{$/ { struct = $2; body = ""; next }
	struct != "" && /^}/ {
		take = /packed/ || index(natural, " " struct " ")
		done()
		struct = ""
		next
	}
	struct != "" { body = body $0 "\n" }
	' "$1"
}
# Constants: of #define, and those whose number an assertion of the file holds.
constants() { # TREE
	cd "$1" || return
	grep -rhE --include='*.[ch]' '^#define [A-Z0-9_]+[ 	]+[0-9]+u?([ 	]|$)' mds kv ds \
		proto base |
		sed -E 's/^#define ([A-Z0-9_]+)[ 	]+([0-9]+).*/\1 \2/'
	grep -rhoE --include='*.c' '[A-Z_]+ == [0-9]+' mds kv ds | sed 's/ == / /'
}
sources() { # TREE
	local want="attribute__\\(\\(packed\\)\\)|^struct (${natural// /|}) \\{"

	(cd "$1" && grep -rlE --include='*.[ch]' "$want" mds kv ds | sort)
}
formats=$(sed -nE 's/^#.*`struct ([a-z0-9_]+)`.*/\1/p' "$top/docs/formats.md")
# All records of a tree but those that docs/formats.md has.
code_fields() { # TREE
	(constants "$1") >"$work/constants"
	sources "$1" | while read -r f; do fields "$1/$f" "$work/constants"; done |
		awk -v not="$formats" '
		BEGIN { n = split(not, w, /[ \n]+/); for (i = 1; i <= n; i++) skip[w[i]] = 1 }
		!($1 in skip)' | sort -u
}
page_fields() { # FILE
	awk '
	function total() { if (s) print s, "=", end }
	/^#/ {
		total()
		s = ""
		end = 0
		if (match($0, /`struct [a-z0-9_]+`/))
			s = substr($0, RSTART + 8, RLENGTH - 9)
	}
	s && /^\| [0-9]+ \|/ {
		gsub(/`/, "")
		print s, $6, $2, $4
		if ($2 != end)
			print s, "has a hole at", end
		if ($4 != "rest")
			end = $2 + $4
	}
	END { total() }
	' "$1" | sort -u
}
# What an assertion says of the size of a record: "struct = bytes".
asserted() { # TREE
	local want='sizeof\(struct [a-z0-9_]+\) == [0-9]+( [+*] [0-9]+)*' s bytes

	(cd "$1" && grep -rhoE --include='*.[ch]' "$want" mds kv ds) |
		sed -E 's/sizeof\(struct ([a-z0-9_]+)\) == /\1 /' | sort -u |
		while read -r s bytes; do echo "$s = $((bytes))"; done
}

# ---- functions that the page names ----

unknown() { # FILE
	[ -s "$work/functions" ] ||
		(cd "$top" && grep -rhoE --include='*.[ch]' '\b[a-z0-9_]+\(' mds kv ds) |
		tr -d '(' | sort -u >"$work/functions"
	comm -23 <(grep -oE '`[a-z0-9_]+\(\)`' "$1" | tr -d '`()' | sort -u) "$work/functions"
}

n=0 failed=0
report() { # NAME OUTPUT: no output is ok
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		printf '%s\n' "$2" | sed 's/^/# /'
		failed=1
	fi
}
differ() { # CODE PAGE: both are texts
	diff <(sort <<<"$1") <(sort <<<"$2") | grep '^[<>]' |
		sed 's/^</only in the code:/; s/^>/only on the page:/' | sort
}
# The fault that was planted is found, and no other but those that are there without it.
found() { # NAME OUTPUT WANT
	local new

	new=$(comm -23 <(sort <<<"$2") <(sort <<<"$without"))
	report "$1" "$([ "$new" = "$3" ] || printf 'found: %s\nplanted: %s\n' "$new" "$3")"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

keys_code=$(code_keys "$top")
all_code=$(code_fields "$top")
rows_code=$(grep -v NS_F_ <<<"$keys_code")
keys_differ() { differ "$keys_code" "$(page_keys "$1")"; }
head_differs() { differ "$rows_code" "$(head_keys "$1")"; }
fields_differ() { differ "$all_code" "$(page_fields "$1")"; }

report "the keys are read" "$([ "$(wc -l <<<"$keys_code")" -ge 24 ] || echo "$keys_code")"
report "the records are read" "$([ "$(grep -c = <<<"$all_code")" -ge 25 ] || echo "$all_code")"
report "the size of each field is known" "$(grep ' ?$' <<<"$all_code")"
sizes() {
	asserted "$top" | while read -r s eq b; do
		grep "^$s $eq " <<<"$all_code" | grep -v " $b\$"
	done
}
report "the sizes are those that the compiler has checked" "$(sizes)"

# A checker that finds nothing proves nothing: it is tried on planted faults.
without=$(keys_differ "$doc"; head_differs "$top"; fields_differ "$doc"; unknown "$doc")
page=$work/page
sed "/NS_T_WRITE_INTENT/s/'m'/'M'/" "$doc" >"$page"
found "a key with another byte is found" "$(keys_differ "$page")" \
	"only in the code: NS_T_WRITE_INTENT 'm'
only on the page: NS_T_WRITE_INTENT 'M'"
sed '/`NS_T_PENDING`/d' "$doc" >"$page"
found "a key that the page lacks is found" "$(keys_differ "$page")" \
	"only in the code: NS_T_PENDING 't'"
sed '/`NS_F_ACL` |/d' "$doc" >"$page"
found "a flag that the page lacks is found" "$(keys_differ "$page")" \
	"only in the code: NS_F_ACL 4"
sed '/`r_verifier`/d' "$doc" >"$page"
found "a field of the inode that the page lacks is found" "$(fields_differ "$page")" \
	"only in the code: ns_inode_rec r_verifier 56 8
only on the page: ns_inode_rec has a hole at 56"
sed 's/`m_order`/`m_orders`/' "$doc" >"$page"
found "and one of another name" "$(fields_differ "$page")" \
	"only in the code: ds_meta m_order 8 8
only on the page: ds_meta m_orders 8 8"
sed '/`o_orders`/s/| 60 | 8 |/| 60 | 4 |/' "$doc" >"$page"
found "and one of another size" "$(fields_differ "$page")" \
	"only in the code: reply_rec o_orders 60 8
only on the page: reply_rec has a hole at 64
only on the page: reply_rec o_orders 60 4"
echo '`no_such_function_here()`' >"$page"
found "a function that the code lacks is found" "$(unknown "$page")" no_such_function_here

# A tree with another inode record, and another head.
mkdir -p "$work/t/$(dirname "$keys")" "$work/t/kv" "$work/t/ds" "$work/t/proto" "$work/t/base"
sed "s/, r_rdev_minor;/;/; /'O'   NS_K_ORPHAN/d" "$top/$keys" >"$work/t/$keys"
inode() { grep '^ns_inode_rec r_rdev' || true; }
found "a field that the code lacks is found" \
	"$(differ "$(code_fields "$work/t" | inode)" "$(page_fields "$doc" | inode)")" \
	"only on the page: ns_inode_rec r_rdev_minor 68 4"
found "a key that the head of keys.h lacks is found" "$(head_differs "$work/t")" \
	"only in the code: NS_K_ORPHAN 'O'"

report "the page has each key and each flag, and no other" "$(keys_differ "$doc")"
report "the head of keys.h has each key, and no other" "$(head_differs "$top")"
report "the page has each field of each record, and no other" "$(fields_differ "$doc")"
report "the page names no function that is not there" "$(unknown "$doc")"
report "the page is at most 100 columns wide" "$(awk 'length > 100' "$doc")"
echo "1..$n"
exit $failed
