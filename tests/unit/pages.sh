#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pages.sh - the pages hang together: docs/README.md links every page and man page, links lead
# somewhere, lines have at most 100 columns, nothing refers to a folder beside this tree, and what
# docs/architecture.md and CONTRIBUTING.md name in the code is there. Prints TAP.
# A checker that finds nothing proves nothing: it is tried on planted faults first.
set -u
export LC_ALL=C
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}

# Pages of which some lines are longer still. Take one off when it is mended; none joins.
long_pages=" "

pages() {
	(cd "$1" && ls README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs/*.md \
		docs/handbook/*.md 2>/dev/null)
}

# scan PAGE...: prints "link PAGE NUMBER TARGET" for each link that leads to no other site, and
# "head PAGE ANCHOR" for each heading. The anchor is in lower case, without marks, with a dash for a
# space. The second heading of that name has -1 behind it. Blocks of code have neither.
scan() {
	awk '
	FNR == 1 { code = 0; split("", seen) }
	/^[ \t]*```/ { code = !code; next }
	code || /^(    |\t)/ { next }
	/^#+ / {
		s = $0
		sub(/^#+ +/, "", s)
		while (match(s, /\]\([^)]*\)/))
			s = substr(s, 1, RSTART - 1) substr(s, RSTART + RLENGTH)
		s = tolower(s)
		gsub(/[^a-z0-9 _-]/, "", s)
		gsub(/ /, "-", s)
		print "head", FILENAME, (seen[s]++ ? s "-" (seen[s] - 1) : s)
	}
	{
		gsub(/`[^`]*`/, "")
		while (match($0, /\]\([^)]*\)/)) {
			t = substr($0, RSTART + 2, RLENGTH - 3)
			if (t !~ /^[a-z]+:/)
				print "link", FILENAME, FNR, t
			$0 = substr($0, RSTART + RLENGTH)
		}
	}' "$@" /dev/null
}

# unlinked TREE: pages and man pages that docs/README.md does not link.
unlinked() {
	(
		cd "$1" || exit
		scan docs/README.md |
			sed -nE 's/^link [^ ]+ [0-9]+ /docs\//; s/#.*//; /^docs/p' >"$plant/linked"
		find docs -name '*.md' ! -path docs/README.md -o -path 'docs/*.[1-8]' |
			grep -vxFf "$plant/linked" | sort
	)
}

# broken TREE: links to files or headings that are not there.
broken() {
	local line kind page n target file folder heads
	local -a found
	mapfile -t found < <(cd "$1" && scan $(pages .))
	heads=$(printf '%s\n' "${found[@]}" | grep '^head ')$'\n'
	for line in "${found[@]}"; do
		read -r kind page n target <<<"$line"
		[ "$kind" = link ] || continue
		folder=
		[[ $page != */* ]] || folder=${page%/*}/
		file=$folder${target%%#*}
		[[ $target != '#'* ]] || file=$page
		while [[ $file =~ ^(.*/)?[^/.]+/\.\./(.*)$ ]]; do
			file=${BASH_REMATCH[1]}${BASH_REMATCH[2]}
		done
		if [ ! -e "$1/$file" ]; then
			echo "$page:$n: no file: $target"
		elif [[ $target == *'#'* && $heads != *"head $file ${target#*#}"$'\n'* ]]; then
			echo "$page:$n: no heading: $target"
		fi
	done
}

# long TREE: lines of more than 100 columns.
long() {
	(cd "$1" && LC_ALL=C.UTF-8 grep -nE '^.{101}' $(pages .) /dev/null) |
		sed -E 's/^([^:]*:[0-9]+):.*/\1: more than 100 columns/'
}
# too_long TREE: the same but for the pages that may have some.
too_long() {
	long "$1" | while IFS= read -r line; do
		[[ $long_pages == *" ${line%%:*} "* ]] || echo "$line"
	done
}

# outside TREE: what refers to a folder beside this tree.
outside() { (cd "$1" && grep -nE '\.\./shared' $(pages .) docs/*.[1-8] /dev/null | cut -d: -f1,2); }

# unknown TREE: functions and source files that the two pages about the code name and that are not
# there. A file may be named without its folder.
unknown() {
	(
		cd "$1" || exit
		find addr base common topo proto kv pg mds ds client tools tests -type f \
			2>/dev/null >"$plant/files"
		grep -E '\.[chx]$' "$plant/files" | tr '\n' '\0' | xargs -0 cat /dev/null |
			tr -cs 'A-Za-z0-9_' '\n' | sort -u >"$plant/words"
		for page in docs/architecture.md CONTRIBUTING.md; do
			[ -e "$page" ] || continue
			grep -oE '`[a-z_][a-z0-9_]*\(\)`' "$page" | tr -d '`()' | sort -u |
				comm -23 - "$plant/words" | sed "s,^,$page: no function ,"
			grep -oE '`[A-Za-z0-9_/.-]*[a-z0-9_]\.([chx]|py|sh)`' "$page" | tr -d '`' |
				sort -u |
				awk -v page="$page" -v files="$plant/files" '
				BEGIN {
					while ((getline f < files) > 0)
						for (there[f]; sub(/^[^\/]*\//, "", f);)
							there[f]
				}
				!($0 in there) { print page ": no file " $0 }'
		done
	)
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

plant=$(mktemp -d)
trap 'rm -rf "$plant"' EXIT
# A tree without a fault. Each fault is planted into a copy of it.
mkdir -p "$plant/good/docs" "$plant/good/base"
echo 'int loop_run(void);' >"$plant/good/base/loop.h"
cat >"$plant/good/docs/README.md" <<'END'
[a](a.md) [man](weft.1) [code](architecture.md) `[no](link.md)`

    [no](link.md)
END
: >"$plant/good/docs/weft.1"
cat >"$plant/good/docs/a.md" <<'END'
# One

## A `name`, twice

## A name, twice

[here](#one) [other](../README.md#top)
END
printf '`loop_run()` is in `base/loop.h`, or `loop.h`\n' >"$plant/good/docs/architecture.md"
cat >"$plant/good/README.md" <<'END'
# Top

[a](docs/a.md#a-name-twice-1) [b](docs/a.md#a-name-twice) [site](https://example.org/x)
END

faults() { unlinked "$1"; broken "$1"; too_long "$1"; outside "$1"; unknown "$1"; }
report "a tree without a fault has none" "$(faults "$plant/good")"
# try NAME EXPECTED COMMAND...: the command plants a fault, and this is found, and nothing else.
try() {
	local name=$1 expected=$2 found
	shift 2
	rm -rf "$plant/bad"
	cp -R "$plant/good" "$plant/bad"
	(cd "$plant/bad" && "$@")
	found=$(faults "$plant/bad")
	report "$name" "$([ "$found" = "$expected" ] || echo "found: ${found:-nothing}")"
}
add() { # TEXT FILE
	printf '%s\n' "$1" >>"$2"
}
long=$(printf 'x%.0s' {1..101})
wide=$(printf 'ä%.0s' {1..100})
try "a page that docs/README.md does not link is found" docs/new.md add hello docs/new.md
try "and so is a page in a folder" docs/deep/new.md \
	eval 'mkdir docs/deep; echo hello >docs/deep/new.md'
try "and so is a man page" docs/weft-new.8 add hello docs/weft-new.8
try "a link to no file is found" "docs/a.md:8: no file: gone.md" add '[x](gone.md)' docs/a.md
try "and so is one in a page beside docs" "SECURITY.md:1: no file: docs/gone.md" \
	add '[x](docs/gone.md)' SECURITY.md
try "a link to no heading is found" "docs/a.md:8: no heading: a.md#two" \
	add '[x](a.md#two)' docs/a.md
try "and so is one to none of this page" "README.md:4: no heading: #one" add '[x](#one)' README.md
try "a line of 101 columns is found" "CHANGELOG.md:1: more than 100 columns" \
	add "$long" CHANGELOG.md
try "one of 100 columns, in more bytes, is not" "" add "$wide" README.md
try "a folder beside the tree is found" "CONTRIBUTING.md:1" add 'see ../shared/x' CONTRIBUTING.md
try "and so it is in a man page" "docs/weft.1:1" add 'see ../shared/x' docs/weft.1
try "a function that is not there is found" "docs/architecture.md: no function loop_stop" \
	add '`loop_stop()`' docs/architecture.md
try "and so is a source file" "docs/architecture.md: no file base/gone.h" \
	add '`base/gone.h`' docs/architecture.md

report "pages are read" "$([ "$(pages "$top" | wc -l)" -gt 20 ] || pages "$top")"
links=$(cd "$top" && scan docs/README.md | grep -c '^link ')
report "links are read" "$([ "$links" -gt 30 ] || echo "$links links")"
report "docs/README.md links every page and every man page" "$(unlinked "$top")"
report "every link leads to a file, and to a heading of it" "$(broken "$top")"
report "no line has more than 100 columns" "$(too_long "$top")"
lines=$(long "$top")
for page in $long_pages; do
	[[ $lines == *"$page:"* ]] ||
		echo "# $page has no long line any more: take it off long_pages"
done
report "nothing refers to a folder beside this tree" "$(outside "$top")"
report "functions and files that the pages of the code name are there" "$(unknown "$top")"
echo "1..$n"
