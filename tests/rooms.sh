#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The import rules of the house: which folder may include which. Also: each room.am lists the source
# files of its room, each once. Prints TAP. A checker that finds nothing proves nothing: it is tried
# on planted bad includes first.
set -u
top=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}

# bad_includes TREE: prints "file: include" for every include that breaks a rule.
bad_includes() {
	(cd "$1" && find addr base common topo proto kv pg mds ds client tools -name '*.[chx]' \
		2>/dev/null | sort |
		xargs -r grep -HoE '^[[:space:]]*%?#[[:space:]]*include[[:space:]]+"[^"]+"') |
		sed -E 's/:[[:space:]]*%?#[[:space:]]*include[[:space:]]+"([^"]+)"/ \1/' | awk '
	function room(path,   p, n) {
		if (path == "mds/mds.h" || path == "mds/member.h")
			return path
		n = split(path, p, "/")
		if (p[1] == "mds")
			return n > 2 ? "mds/" p[2] : "mds"
		return p[1]
	}
	BEGIN {
		may["base"] = "base"
		may["common"] = "common base"
		may["addr"] = "common base"
		may["proto"] = "proto common base"
		may["kv"] = "kv common base"
		may["pg"] = "base"
		may["topo"] = "topo base"
		may["ds"] = "ds topo proto common base"
		may["client"] = "client proto base"
		may["tools"] = "tools client topo proto pg common base"
		# Inside mds, from the ground up; each may also use itself, common and base.
		may["mds/namespace"] = "kv"
		may["mds/journal"] = "mds/namespace kv"
		may["mds/export"] = "mds/namespace kv"
		may["mds/state"] = "mds/namespace kv proto"
		may["mds/dataserver"] = "mds/namespace mds/journal kv proto"
		may["mds/layout"] = "mds/namespace mds/dataserver kv proto"
		ground = "mds/namespace mds/journal mds/state mds/dataserver mds/layout kv proto"
		# mds.h names the parts of the server. Jobs, the
		# protocol and what is above them may use it.
		may["mds/mds.h"] = "mds/export mds/file " ground
		may["mds/file"] = ground
		may["mds/jobs"] = "mds/mds.h mds/file mds/export " ground
		may["mds/nfs4"] = "mds/mds.h mds/file mds/jobs mds/export " ground
		may["mds/admin"] = "mds/mds.h mds/member.h mds/file mds/jobs mds/nfs4 " \
			"mds/export " ground
		may["mds/member.h"] = ""
		may["mds"] = "mds/mds.h mds/member.h mds/file mds/jobs mds/nfs4 mds/admin " \
			"mds/export pg " ground
		for (r in may)
			may[r] = may[r] " base " (r ~ /^mds/ ? "common " : "") r
	}
	{
		from = room($1)
		# A name without a folder is a file beside the one that includes it.
		to = $2 ~ /\// ? room($2) : from
		ok = 0
		n = split(may[from], m, " ")
		for (i = 1; i <= n; i++)
			if (m[i] == to)
				ok = 1
		if ($2 ~ /\.\.\//)
			ok = 0
		# Only the name space knows the keys of its store, and weft-fsck, which checks it.
		if ($2 ~ /^mds\/namespace\/keys/ && from != "mds/namespace" && from != "mds")
			ok = 0
		if (!ok)
			print $1 ": " $2
	}'
}

# circles TREE: prints the headers that include each other in a circle, in a room or over several.
circles() {
	(cd "$1" && find addr base common topo proto kv pg mds ds client tools -name '*.h' \
		2>/dev/null | sort |
		xargs -r grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"[^"]+"') |
		sed -E 's/:[[:space:]]*#[[:space:]]*include[[:space:]]+"([^"]+)"/ \1/' |
		# A name without a folder is a file beside the one that includes it.
		awk '$2 !~ /\// { d = $1; sub(/[^\/]*$/, "", d); $2 = d $2 } { print }' |
		tsort 2>&1 >/dev/null |
		sed -n 's/^tsort: \([^-].*\.h\)$/\1/p'
}

# lists TREE: prints the Makefile.am and the room.am of each room.
lists() { (cd "$1" && find . \( -name Makefile.am -o -name room.am \) | sort); }

# unlisted TREE: prints the source files that neither Makefile.am nor a room.am names.
unlisted() {
	(cd "$1" && find addr base common topo proto kv pg mds ds client tools tests \
		\( -name '*.[chx]' -o -path 'tests/wire*/*.py' \) 2>/dev/null | sort >"$plant/files"
		awk '
		FILENAME != ARGV[ARGC - 1] {
			for (i = 1; i <= NF; i++)
				named[$i] = 1
			next
		}
		# A test program lists itself by its name without .c.
		{
			stem = $1
			sub(/\.c$/, "", stem)
			if (!($1 in named) && !(stem in named))
				print $1
		}' $(lists .) "$plant/files")
}

# misplaced TREE: prints the files that a room.am lists and another room has, and those that one
# list names twice.
misplaced() {
	(cd "$1" && for am in $(lists .); do
		awk -v room="${am#./}" '
		BEGIN { sub(/(Makefile|room)\.am$/, "", room) }
		/^[A-Za-z0-9_]+ *\+?= / { list = $1 }
		!/^\t|_SOURCES/ { list = "" }
		list ~ /_SOURCES$/ {
			for (i = 1; i <= NF; i++) {
				if ($i !~ /\.[ch]$/)
					continue
				if (seen[list, $i]++)
					print $i
				where = $i
				sub(/[^\/]*$/, "", where)
				if (list ~ /^lib/ && where != room)
					print $i
			}
		}' "$am"
	done)
}

# namesakes TREE: prints the names that several C files of the rooms have.
namesakes() {
	(cd "$1" && find addr base common topo proto kv pg mds ds client tools -name '*.[ch]' \
		2>/dev/null) | sed 's:.*/::' | sort | uniq -d
}

# static_twins TREE: prints the names of static functions that several C files of the rooms have,
# and these files. A backtrace, or a search, then says which one it is.
static_twins() {
	(cd "$1" && find addr base common topo proto kv pg mds ds client tools -name '*.c' \
		2>/dev/null | sort | xargs -r awk '
		/^static [^=;]*[a-z0-9_]\(/ && !/__attribute__/ {
			name = $0
			sub(/\(.*/, "", name)
			sub(/.*[ *]/, "", name)
			if (seen[name, FILENAME]++)
				next
			n[name]++
			where[name] = where[name] " " FILENAME
		}
		END {
			for (name in n)
				if (n[name] > 1)
					print name ":" where[name]
		}')
}

# products TREE: prints the lines of base that name weft, its daemons, their keys, or NFS.
products() {
	(cd "$1" && grep -rnE --include='*.[ch]' \
		-e '[Ww]eft|WEFT|\b(mds|ds|MDS|DS)([._-]|\b)|\bp?(nfs|NFS)' base 2>/dev/null)
}

# strangers TREE: prints the lines outside of mds/file/exclusive.c that recall or revoke a file's
# layouts, or write what keeps others away from it.
strangers() {
	local fields='f_n(excl|recalling|frozen|hidden|sizing|cutting)'

	(cd "$1" && grep -rnE --include='*.[ch]' -e "$fields"'[[:space:]]*(\+\+|--|[-+|&]?=[^=])' \
		-e '\bst_(recall|revoke)_file\(' mds 2>/dev/null) |
		grep -vE '^mds/(file/exclusive\.c|state/[a-z_]+\.[ch]):'
}

# resumers TREE: prints the lines of mds/nfs4 outside of await.c that resume an operation, say
# whether its call waits for a client, or set what it waits for. compound.c runs operations again
# that waited for a name (names_again), and has no other part in it.
resumers() {
	(cd "$1" && grep -rnE --include='*.[ch]' -e '\bop_resume\(|\brpc_call_waits\(' \
		-e '\bc->(then|woken|woken_err)[[:space:]]*=[^=]' \
		mds/nfs4 2>/dev/null) |
		grep -vE -e '^mds/nfs4/await\.c:' \
			-e '^mds/nfs4/(op\.h|compound\.c):[0-9]+:void op_resume\(' \
			-e '^mds/nfs4/compound\.c:[0-9]+:[[:space:]]+op_resume\(c, st\);'
}

# movers TREE: prints the lines of mds/nfs4 that run without a request: threads, timers, ticks and
# sweeps. The timer of await_grace.c and that of copy.c live as long as an operation waits or a COPY
# runs. The worker of idmap.c looks names up for operations that wait for them.
movers() {
	(cd "$1" && grep -rnE --include='*.[ch]' \
		-e '\bpthread_create\(|\bworker_create\(|\bloop_timer_start\(' \
		-e '\b(op|job|file)_[a-z_]*(tick|sweep)\(|^[a-z].*(tick|sweep)\(' \
		mds/nfs4 2>/dev/null) |
		grep -vE \
			-e '^mds/nfs4/(await_grace|copy)\.c:[0-9]+:[[:space:]]+loop_timer_start\(' \
			-e '^mds/nfs4/idmap\.c:[0-9]+:.*\bworker_create\('
}

# untabled TREE: prints "file: step" for each step of mds/nfs4 that its operation goes on with and
# that the table of steps at the head of its file does not name, and for each name that stands first
# in a row there and is no function of the file.
untabled() {
	local f step

	for f in "$1"/mds/nfs4/*.c; do
		tr '\n\t' '  ' <"$f" |
			grep -oP '\bop_(await|await_client|refresh|'\
'mutate|mutate_again|deleg_clear|do_setattr)(\((?:[^()]++|(?2))*\))' |
			sed -nE 's/.*[ ,]([a-z0-9_]+)\)$/\1/p' |
			grep -vxE 'next|then|op_step_(ok|status)' | sort -u |
			while read -r step; do
				sed '/\*\//q' <(sed 1d "$f") | grep -qw "$step" ||
					echo "${f#"$1"/}: $step"
			done
		sed '/\*\//q' <(sed 1d "$f") |
			sed -nE 's/^ \*\t((op_)?[a-z0-9]+_[a-z0-9_]+)[,\t].*/\1/p' |
			sort -u |
			while read -r step; do
				grep -qE "^[a-z].*\b$step\(" "$f" || echo "${f#"$1"/}: $step"
			done
	done
}

# borrowers TREE: prints the lines of Python files that import a test of tests/wire. What several
# tests need is in tests/wirelib.
borrowers() {
	local tests

	tests=$(cd "$1" && find tests/wire -name '*.py' | sed 's:.*/::; s:\.py$::' | paste -sd '|')
	(cd "$1" && grep -rnE --include='*.py' tests \
		-e "^[[:space:]]*import[[:space:]]+([a-z0-9_, ]*[ ,])?($tests)\\b" \
		-e "^[[:space:]]*from[[:space:]]+($tests)[[:space:]]+import\\b" \
		-e "\\bimport_module\\([\"']($tests)\\b")
}

n=0 failed=0
report() { # STATUS NAME: 0 is ok
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; failed=1; fi
}

plant=$(mktemp -d)
trap 'rm -rf "$plant"' EXIT
# try FILE INCLUDE VERDICT: a tree with one file of one include.
try() {
	mkdir -p "$plant/t/$(dirname "$1")"
	printf '#include <stdio.h>\n#include "%s"\n' "$2" >"$plant/t/$1"
	found=$(bad_includes "$plant/t")
	if [ "$3" = bad ]; then [ "$found" = "$1: $2" ]; else [ -z "$found" ]; fi
	report $? "an include of $2 in $1 is $3"
	rm -rf "$plant/t"
}
try base/a.c proto/xdr.h bad
try base/a.c base/log.h good
try base/a.c topo/topo.h bad
try base/a.c common/http.h bad
try base/a.h common/store_lease.h bad
try common/a.c base/log.h good
try common/a.c proto/rpc.h bad
try common/a.c mds/mds.h bad
try topo/a.c common/http.h bad
try pg/a.c common/http.h bad
try kv/a.c common/trace.h good
try proto/a.c common/store_lease.h good
try addr/a.c common/version.h good
try ds/a.c common/exports.h good
try mds/state/a.c common/store_lease.h good
try client/a.c common/trace.h bad
try tools/a.c common/check.h good
try topo/a.c base/log.h good
try topo/a.c proto/rpc.h bad
try ds/a.c topo/topo_plan.h good
try tools/a.c topo/topo.h good
try mds/nfs4/a.c topo/topo.h bad
try client/a.c topo/topo.h bad
try proto/a.c topo/topo.h bad
try proto/a.c base/log.h good
try proto/a.h kv/kv.h bad
try proto/ctl.x mds/namespace/ns.h bad
try kv/a.c proto/xdr.h bad
try kv/a.c base/log.h good
try pg/a.c base/log.h good
try pg/a.c kv/kv.h bad
try kv/a.c pg/pg.h bad
try tools/a.c pg/pg.h good
try ds/store/a.c mds/namespace/ns.h bad
try ds/a.c kv/kv.h bad
try ds/a.c proto/rpc.h good
try mds/nfs4/a.c ds/store/store.h bad
try mds/nfs4/a.c mds/namespace/keys.h bad
try mds/nfs4/a.c mds/namespace/ns.h good
try mds/nfs4/a.c kv/kv.h good
try mds/state/a.c mds/nfs4/op.h bad
try mds/state/a.c mds/layout/lo.h bad
try mds/state/a.c mds/mds.h bad
try mds/layout/a.c mds/state/st.h bad
try mds/layout/a.c mds/dataserver/ds_reg.h good
try mds/dataserver/a.c mds/layout/lo.h bad
try mds/jobs/a.c mds/nfs4/op.h bad
try mds/jobs/a.c mds/mds.h good
try mds/jobs/a.c mds/file/file.h good
try mds/file/a.c mds/jobs/repair.h bad
try mds/file/a.c mds/mds.h bad
try mds/file/a.h mds/mds.h bad
try mds/mds.h mds/nfs4/op.h bad
try mds/nfs4/a.c mds/jobs/repair.h good
try mds/admin/a.c mds/namespace/keys.h bad
try mds/file/a.c mds/nfs4/op.h bad
try mds/file/a.c mds/namespace/keys.h bad
try mds/file/a.c mds/layout/lo.h good
try mds/state/a.c mds/file/file.h bad
try mds/nfs4/a.c mds/file/file.h good
try mds/namespace/a.c proto/nfs4.h bad
try mds/namespace/a.c mds/state/st.h bad
try mds/namespace/a.c keys.h good
try mds/export/a.c mds/namespace/ns.h good
try mds/dataserver/a.c mds/journal/event_journal.h good
try mds/journal/a.c mds/state/st.h bad
try mds/export/a.c proto/rpc.h bad
try mds/state/a.c mds/export/export_table.h bad
try mds/namespace/a.c ../nfs4/op.h bad
try mds/main.c mds/admin/admin.h good
try tools/a.c kv/kv.h bad
try tools/a.c mds/namespace/ns.h bad
try client/a.c base/loop.h good

# circle ROOM ROOM: plants headers that include one another, first without a circle.
circle() {
	mkdir -p "$plant/t/$1" "$plant/t/$2"
	echo "#include \"$1/b.h\"" >"$plant/t/$1/a.h"
	echo "#include \"$2/c.h\"" >"$plant/t/$1/b.h"
	[ -z "$(circles "$plant/t")" ]
	report $? "$1, $2: headers that include one another without a circle are good"
	echo "  # include \"$1/a.h\"" >"$plant/t/$2/c.h"
	[ "$(circles "$plant/t" | sort)" = "$(printf '%s\n' "$1/a.h" "$1/b.h" "$2/c.h" | sort)" ]
	report $? "$1, $2: a circle of three headers is found"
	rm -rf "$plant/t"
}
circle ds/store ds/store
circle ds/store ds
circle ds/path ds/path
circle client client
circle topo topo
circle base base
circle common common
circle proto proto
circle kv kv
circle tools tools
circle mds/state mds/state
circle mds/layout mds/dataserver
circle mds/nfs4 mds
mkdir -p "$plant/t/ds/store"
echo '#include "b.h"' >"$plant/t/ds/store/a.h"
echo '#include "ds/store/a.h"' >"$plant/t/ds/store/b.h"
[ "$(circles "$plant/t" | sort | tr '\n' ' ')" = "ds/store/a.h ds/store/b.h " ]
report $? "a circle by a name without its folder is found"
rm -rf "$plant/t"

mkdir -p "$plant/t/base" "$plant/t/ds/store" "$plant/t/client" "$plant/t/tools"
touch "$plant/t/base/lost.c" "$plant/t/base/lost.h" "$plant/t/client/weft.h"
[ -z "$(namesakes "$plant/t")" ]
report $? "files whose names differ are good"
: >"$plant/t/ds/store/lost.c"
[ "$(namesakes "$plant/t")" = lost.c ]
report $? "two files of one name are found"
echo 'static int base_look(int a)' >"$plant/t/base/lost.c"
echo 'static bool store_look(void)' >"$plant/t/ds/store/lost.c"
echo 'static bool store_look(void);' >>"$plant/t/ds/store/lost.c"
[ -z "$(static_twins "$plant/t")" ]
report $? "static functions whose names differ are good"
echo 'static struct a *store_look(struct b *b,' >>"$plant/t/base/lost.c"
[ "$(static_twins "$plant/t")" = "store_look: base/lost.c ds/store/lost.c" ]
report $? "a name of static functions in two files is found"
rm -r "$plant/t/ds" "$plant/t/client" "$plant/t/tools" "$plant/t/base/lost.h"
echo 'x = base/found.c' >"$plant/t/Makefile.am"
[ "$(unlisted "$plant/t")" = base/lost.c ]
report $? "a source file that no list names is found"
mkdir -p "$plant/t/tests/wire"
: >"$plant/t/tests/wire/lost_test.py"
[ "$(unlisted "$plant/t" | tail -1)" = tests/wire/lost_test.py ]
report $? "and so is a test"
mkdir -p "$plant/t/tests/wirelib" "$plant/t/tests/lab/guest"
for fault in wire/a_test.py wirelib/a.py lab/guest/a.py; do
	for line in 'import lost_test' 'import os, lost_test as lost' '    import lost_test' \
		'from lost_test import a' 'x = importlib.import_module("lost_test")'; do
		echo "$line  # noqa" >"$plant/t/tests/$fault"
		[ "$(borrowers "$plant/t" | cut -d: -f1)" = "tests/$fault" ]
		report $? "tests/$fault: it borrows from a test: $line"
	done
	printf '# import lost_test\nimport lost_tests\nfrom lost import lost_test\n' \
		>"$plant/t/tests/$fault"
	[ -z "$(borrowers "$plant/t")" ]
	report $? "tests/$fault: and one that does not is good"
	rm "$plant/t/tests/$fault"
done
echo 'libbase_a_SOURCES = base/found.c base/lost.c base/found.c' >"$plant/t/base/room.am"
[ "$(misplaced "$plant/t")" = base/found.c ]
report $? "a file that a list names twice is found"
echo 'libds_a_SOURCES = base/lost.c ds/found.c' >"$plant/t/base/room.am"
[ "$(misplaced "$plant/t")" = ds/found.c ]
report $? "a file of another room is found"
rm "$plant/t/base/room.am"

mkdir -p "$plant/t/base"
for fault in 'conf_str(c, "mds.lease");' '"ds.pool"' 'metric_gauge("weft_pool_bytes", help);' \
	'static char name[] = "weft";' 'x = mds_settings();' '/* as weft-ds does */' \
	'uint32_t nfs_status;'; do
	echo "$fault" >"$plant/t/base/product.c"
	[ "$(products "$plant/t" | cut -d: -f1)" = base/product.c ]
	report $? "base names the product: $fault"
done
echo 'PACKAGE_TARNAME "_pool_bytes"; cmds(x); "fields.name"; t_ends;' >"$plant/t/base/product.c"
[ -z "$(products "$plant/t")" ]
report $? "and a library of general use is good"
mkdir -p "$plant/t/mds/nfs4" "$plant/t/mds/file"
echo 'f->f_nexcl += by;' >"$plant/t/mds/file/exclusive.c"
echo 'if (f->f_nexcl == 1 || f->f_nsizing) f->f_nfrozen--;' >"$plant/t/mds/nfs4/a.c"
[ "$(strangers "$plant/t" | cut -d: -f1)" = mds/nfs4/a.c ]
report $? "who takes a file for himself outside of mds/file/exclusive.c is found"
for fault in 'void op_atime_tick(struct loop *loop)' 'op_orphan_sweep(m, loop);' \
	'loop_timer_start(loop, &t, 250);' 'pthread_create(&tid, NULL, run, NULL);' \
	'e = worker_create(&w, "weft-x", 1);' 'static void sweep(struct mds *m)'; do
	echo "$fault" >"$plant/t/mds/nfs4/a.c"
	[ "$(movers "$plant/t" | cut -d: -f1)" = mds/nfs4/a.c ]
	report $? "what runs by itself in mds/nfs4 is found: $fault"
done
printf '\tloop_timer_start(l, &j->timer, 0);\n' >"$plant/t/mds/nfs4/copy.c"
echo 'return op_await(c, next);' >"$plant/t/mds/nfs4/a.c"
[ -z "$(movers "$plant/t")" ]
report $? "and an operation that waits does not"
rm "$plant/t/mds/nfs4/copy.c"
echo 'op_resume(c, st); rpc_call_waits(c->call, true); c->then = next;' \
	'if (c->then == next) j->then = next;' \
	>"$plant/t/mds/nfs4/await.c"
for fault in 'op_resume(c, st);' 'rpc_call_waits(c->call, false);' \
	'c->then = next;' 'c->woken = true;'; do
	echo "$fault" >"$plant/t/mds/nfs4/a.c"
	[ "$(resumers "$plant/t" | cut -d: -f1)" = mds/nfs4/a.c ]
	report $? "an operation that waits in another way is found: $fault"
done
echo 'if (c->then == next) j->then = next; op_wake(c, 0); return op_await(c, next);' \
	>"$plant/t/mds/nfs4/a.c"
[ -z "$(resumers "$plant/t")" ]
report $? "and one that waits as it should is not"
printf '/* L */\n/*\n *\ta_begin\tit begins\n *\ta_done\tan answer\n */\n' >"$plant/t/mds/nfs4/a.c"
cat >>"$plant/t/mds/nfs4/a.c" <<'END'
static nfsstat4 a_begin(struct compound *c)
{
	return op_mutate(c, run, ((struct a *)c->sub)->put,
			 a_done);
}
END
[ "$(untabled "$plant/t")" = "mds/nfs4/a.c: a_done" ]
report $? "a row of the table of steps that names no function is found"
echo 'static nfsstat4 a_done(struct compound *c, int err) { return op_await(c, a_late); }' \
	>>"$plant/t/mds/nfs4/a.c"
[ "$(untabled "$plant/t")" = "mds/nfs4/a.c: a_late" ]
report $? "a step that the table does not name is found"
found=$(bad_includes "$top")
[ -z "$found" ]
report $? "every include of the tree keeps to the rules"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(products "$top")
[ -z "$found" ]
report $? "base names no product"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(circles "$top")
[ -z "$found" ]
report $? "no headers include each other in a circle"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(strangers "$top")
[ -z "$found" ]
report $? "mds/file/exclusive.c alone recalls, revokes, and keeps others away"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(resumers "$top")
[ -z "$found" ]
report $? "mds/nfs4/await.c alone resumes operations"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(movers "$top")
[ -z "$found" ]
report $? "nothing of mds/nfs4 runs by itself"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(untabled "$top")
[ -z "$found" ]
report $? "the head of each file of mds/nfs4 has the table of its steps"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(unlisted "$top")
[ -z "$found" ]
report $? "each source file is in a list"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(borrowers "$top")
[ -z "$found" ]
report $? "no test imports a test"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(misplaced "$top")
[ -z "$found" ]
report $? "each room lists its own files, each once"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(static_twins "$top")
[ -z "$found" ]
report $? "each static function of the rooms has a name of its own"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
found=$(namesakes "$top")
[ -z "$found" ]
report $? "each C file of the rooms has a name of its own"
[ -z "$found" ] || echo "$found" | sed 's/^/# /'
echo "1..$n"
exit $failed
