#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# book.sh - mkdocs makes a site of the handbook without a warning, and no page of the site fetches
# anything from another site. Prints TAP. A checker that finds nothing proves nothing: it is tried
# on planted faults first.
set -u
export LC_ALL=C.UTF-8
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}

command -v mkdocs >/dev/null || { echo "1..0 # SKIP no mkdocs"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

n=0
report() { # NAME OUTPUT: no output is ok
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		printf '%s\n' "$2" | head -20 | sed 's/^/# /'
	fi
}

# fetched SITE: what a browser would get from another site by itself. A link to click on is none. A
# name space in an image that is in the style itself is none either.
fetched() {
	(
		cd "$1" || exit
		local tags='script|link|img|iframe|source|video|audio|object'
		find . -name '*.html' -print0 | xargs -0 grep -noE \
			"<($tags)[^>]*(src|href|data)=\"?(https?:)?//[^\" >]*" /dev/null
		find . -name '*.css' -print0 | xargs -0 sed -E 's/url\("?data:[^)]*\)//g' |
			grep -oE '(@import|url\()[^;)]*//[^;)]*'
	)
}

mkdir -p "$work/bad"
echo '<p><a href="https://example.org/">x</a><link rel="x" href="/here.css"></p>' \
	>"$work/bad/a.html"
echo 'a { b: url("data:image/svg+xml,x=http://www.example.org/svg") } c { d: url(../x.woff) }' \
	>"$work/bad/a.css"
report "a site that fetches nothing is good" "$(fetched "$work/bad")"
try() { # NAME TEXT FILE
	printf '%s\n' "$2" >"$work/bad/$3"
	report "$1" "$([ -n "$(fetched "$work/bad")" ] || echo "not found: $2")"
	rm "$work/bad/$3"
}
try "a script of another site is found" '<script src="https://example.org/x.js"></script>' b.html
try "and so is a style without a scheme" '<link rel="stylesheet" href="//example.org/x">' b.html
try "and so is a font" '@font-face { src: url(https://example.org/x.woff) }' b.css
try "and so is a style in a style" '@import "https://example.org/x.css";' b.css

said=$(cd "$top" && mkdocs build --strict --quiet --site-dir "$work/site" 2>&1) ||
	said="mkdocs fails: $said"
report "mkdocs builds the handbook without a warning" "$said"
report "each page of it is there" "$(cd "$top/docs/handbook" && for page in *.md; do
	html=${page%.md}.html
	[ "$page" != README.md ] || html=index.html
	[ -s "$work/site/handbook/$html" ] || echo "no $html"
done)"
report "no page fetches anything from another site" "$(fetched "$work/site")"
report "its blocks are blocks" "$(grep -l '```' "$work"/site/handbook/*.html)"
echo "1..$n"
