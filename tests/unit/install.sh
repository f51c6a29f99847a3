#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The installed files of libweft are enough for a program outside of the tree: header, library and
# pkg-config file, as docs/libweft.md says. Prints TAP.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${top_builddir:-$PWD}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The build's compiler, with the sanitizers that the library was built with.
made() { sed -n "s/^$1 = //p" "$build/Makefile"; }
cc="$(made CC) $(made SANITIZE_CFLAGS)"
pkg=$(made PKG_CONFIG)
# Empty where the build has no shared library.
shared=$(! grep -q '^install-libweft-shared:' "$build/Makefile" || echo yes)

n=0
try() { # NAME COMMAND...
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >"$work/out" 2>&1; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		tail -20 "$work/out" | sed 's/^/# /'
	fi
}

# The installed file names the folders of the final installation.
install_it() {
	env -u MAKEFLAGS -u MFLAGS "${MAKE:-make}" -s -C "$build" install-libLIBRARIES \
		install-weftincludeHEADERS install-pkgconfigDATA \
		${shared:+install-libweft-shared} DESTDIR="$work/root" || return 1
	pc=$(find "$work/root" -name libweft.pc)
	[ -n "$pc" ] && sed -i "s,=/,=$work/root/," "$pc" && export PKG_CONFIG_PATH=${pc%/*}
}
# shellcheck disable=SC2046,SC2086
compile() { $cc -std=c11 -Wall -Wextra -Werror "$1" -o "$2" $($pkg --cflags --libs libweft); }
# shellcheck disable=SC2046,SC2086
compile_static() {
	$cc -std=c11 -Wall -Wextra -Werror "$1" -o "$2" \
		$($pkg --static --cflags --libs libweft | sed 's/ -lweft\>/ -l:libweft.a/')
}
# The compiler finds them nowhere else.
elsewhere() { ! $cc -E -x c - <<<'#include "client/weft.h"'; }

# Names that the library has inside. Here all of them are another thing.
cat >"$work/own.c" <<'END'
#include "client/weft.h"
#include <stdlib.h>

void log_msg(void);
void log_msg(void) { abort(); }
void loop_create(void);
void loop_create(void) { abort(); }
void rpc_client_create(void);
void rpc_client_create(void) { abort(); }
void wc_op_begin(void);
void wc_op_begin(void) { abort(); }
void xdr_get_u32(void);
void xdr_get_u32(void) { abort(); }
int conf_keys, pool;

/* Nobody listens there: there is an error, of a client that has tried. */
int main(void)
{
	struct weft_opts o = {.wo_server = "127.0.0.1:1", .wo_giveup_ms = 300};
	struct weft_ring *r;
	struct weft *w;
	int err = weft_ring_create(&r);

	if (err)
		return 1;
	err = weft_connect(&w, r, &o);
	weft_ring_destroy(r);
	return !err;
}
END
# names NM-OPTION FILE: prints what the library exports; fails if it is less than a client needs.
names() {
	nm "$1" --defined-only "$2" | awk '
		NF == 3 && $2 != "A" { sub(/@.*/, "", $3); print $3; n++ }
		END { exit n < 10 }'
}
only_weft() { ! names -g "$1" | grep -v '^weft_'; }
# Exactly the functions of the header.
header() {
	sed -n 's/^[a-z][a-z_ ]*[ *]\(weft_[a-z_]*\)(.*/\1/p' "$top/client/weft.h" | sort
}
as_header() { names -D "$1" | sort | diff <(header) -; }
needs() { readelf -d "$1" | grep -q 'NEEDED.*\[libweft.so.1\]'; }

cd "$work" || exit 1
try "header, libraries and pkg-config file are installed" install_it
lib=$(dirname "$(find "$work/root" -name libweft.a)")
export LD_LIBRARY_PATH=$lib
try "they are found by pkg-config alone" elsewhere
try "the example of the guide is built with what pkg-config says" compile \
	"$top/docs/examples/weft_ls.c" "$work/ls"
try "a program that has names of its own, which the library has inside, is built" compile own.c own
try "and runs" ./own
try "the library has no global names but weft_" only_weft "$lib/libweft.a"
if [ "$shared" ]; then
	try "it is linked with the shared library" needs own
	try "which exports the functions of the header, and nothing else" as_header \
		"$lib/libweft.so"
	try "it is built with the static library too" compile_static own.c static
	try "and runs without the shared one" env LD_LIBRARY_PATH= ./static
fi
echo "1..$n"
