/* SPDX-License-Identifier: Apache-2.0 */
/* Exports: the file, who meets which rule, and what a view makes of handles and names; and
 * questions that block (base/ask.h). */
#include "base/ask.h"
#include "mds/export/export_table.h"
#include "tests/unit/unit.h"
#include <arpa/inet.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char err[600];

static struct exp_table *parse(const char *text)
{
	struct exp_table *t = NULL;

	ck_assert_msg(exp_parse(text, "f", &t, err, sizeof(err)) == 0, "%s", err);
	return t;
}

static void refused(const char *text, const char *where, const char *what)
{
	struct exp_table *t = NULL;

	ck_assert_int_lt(exp_parse(text, "f", &t, err, sizeof(err)), 0);
	ck_assert_ptr_null(t);
	ck_assert_msg(strncmp(err, where, strlen(where)) == 0, "%s", err);
	ck_assert_msg(strstr(err, what) && !strchr(err, '\n'), "%s", err);
}

static void addr_of(const char *text, uint8_t addr[16])
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_in *v4 = (struct sockaddr_in *)&ss;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&ss;
	uint16_t port;

	ss.ss_family = strchr(text, ':') ? AF_INET6 : AF_INET;
	ck_assert_int_eq(
		inet_pton(ss.ss_family, text,
			  ss.ss_family == AF_INET ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr),
		1);
	ck_assert(exp_addr(&ss, addr, &port));
}

/* The place of the rule that an address meets in the first export; -1: none. */
static int meets(const struct exp_table *t, const char *text, const uint8_t *match)
{
	const struct exp_rule *r;
	uint8_t addr[16];
	bool unknown;

	addr_of(text, addr);
	r = exp_match(&t->xt_exp[0], addr, match, &unknown);
	if (unknown)
		return -2;
	return r ? (int)(r - t->xt_exp[0].e_rule) : -1;
}

START_TEST(what_is_not_said_is_the_safe_choice)
{
	struct exp_table *t = parse("export \"/a\" { client \"*\" { } }");
	const struct exp_rule *r = t->xt_exp[0].e_rule;

	ck_assert(r->r_ro && r->r_privileged && r->r_squash == EXP_SQUASH_ROOT &&
		  r->r_layouts == EXP_LAYOUTS_AUTO && r->r_tls == EXP_TLS_NONE);
	ck_assert_uint_eq(r->r_anon_uid, EXP_NOBODY);
	ck_assert(r->r_nsec == 1 && r->r_sec[0] == EXP_SYS);
	ck_assert(!t->xt_exp[0].e_create);
	exp_put(t);
	ck_assert_int_eq(exp_read("", &t, err, sizeof(err)), 0);
	ck_assert_int_eq(meets(t, "127.1.2.3", NULL), 0);
	ck_assert_int_eq(meets(t, "::1", NULL), 0);
	ck_assert_int_eq(meets(t, "10.0.0.1", NULL), -1);
	ck_assert_int_eq(meets(t, "fd00::1", NULL), -1);
	ck_assert(t->xt_exp[0].e_rule->r_squash == EXP_SQUASH_ROOT);
	exp_put(t);
}
END_TEST

START_TEST(a_client_begins_with_what_its_export_says)
{
	struct exp_table *t =
		parse("export \"/a\" { access = rw squash = all anon_uid = 5 anon_gid = 4294967294 "
		      "sec = {krb5p, sys, krb5p} tls = mtls layouts = yes\n"
		      " client \"10.0.0.1\" { } client \"*\" { squash = none sec = {none} anon_uid "
		      "= 7 access = ro } }");
	const struct exp_rule *r = t->xt_exp[0].e_rule;

	ck_assert(!r[0].r_ro && r[0].r_squash == EXP_SQUASH_ALL && r[0].r_anon_uid == 5 &&
		  r[0].r_anon_gid == UINT32_MAX - 1 && r[0].r_tls == EXP_TLS_MUTUAL);
	ck_assert(r[0].r_nsec == 2 && r[0].r_sec[0] == EXP_KRB5P && r[0].r_sec[1] == EXP_SYS &&
		  r[0].r_layouts == EXP_LAYOUTS_YES);
	ck_assert(r[1].r_ro && r[1].r_squash == EXP_SQUASH_NO && r[1].r_anon_uid == 7 &&
		  r[1].r_nsec == 1 && r[1].r_sec[0] == EXP_NONE);
	exp_put(t);
}
END_TEST

START_TEST(bad_files_are_told_with_their_line)
{
	char many[EXP_MAX * 48 + 100] = "";

	refused("export \"/a\" {\n client \"10.0.0.0/33\" { } }", "f:2: ", "10.0.0.0/33");
	refused("export \"/a\" {\n client \"fd00::/129\" { } }", "f:2: ", "fd00::/129");
	refused("export \"/a\" {\n client \"1.2.3\" { } }", "f:2: ", "1.2.3");
	refused("export \"/a\" {\n client \"@\" { } }", "f:2: ", "@");
	refused("export \"/a\" {\n client \"ho st,b/d\" { } }", "f:2: ", "b/d");
	refused("export \"/a\" {\n client \" , \" { } }", "f:2: ", "expected patterns");
	refused("export \"/a\" {\n client \"*\" { access = maybe } }", "f:2: ", "rw|ro");
	refused("export \"/a\" {\n\n client \"*\" { anon_uid = 4294967295 } }",
		"f:3: ", "4294967294");
	refused("export \"/a\" {\n client \"*\" { anon_uid = -2 } }", "f:2: ", "-2");
	refused("export \"/a\" {\n client \"*\" { id = 2 } }", "f:2: ", "id");
	refused("export \"/a\" {\n client \"*\" { sec = {sys, des} } }", "f:2: ", "des");
	refused("# one\n/* two\n three */\nexport \"/a\" { squish = root client \"*\" { } }",
		"f:4: ", "squish");
	refused("exports \"/a\" { }", "f:1: ", "exports");
	refused("export \"a\" { client \"*\" { } }", "f:1: ", "absolute path");
	refused("export \"/a/\" { client \"*\" { } }", "f:1: ", "absolute path");
	refused("export \"/a/./b\" { client \"*\" { } }", "f:1: ", "absolute path");
	refused("export \"/\xff\" { client \"*\" { } }", "f:1: ", "absolute path");
	refused("export \"/a\" { }", "f:1: ", "no client may use it");
	refused("", "f:1: ", "no export");
	refused("export \"/a\" { client \"*\" { }", "f: ", "not closed");
	refused("export \"/a\" { id = 5 client \"*\" { } } export \"/b\" { id = 5 client \"*\" { } "
		"}",
		"f:1: ", "same id 5");
	refused("export \"/a\" { id = 0 client \"*\" { } }", "f:1: ", "id 0");
	refused("export \"/a\" { client \"*\" { } } export \"/a\" { client \"*\" { } }",
		"f:1: ", "/a");
	for (int i = 0; i <= EXP_MAX; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many),
			 "export \"/e%d\" { id = %d client \"*\" { } }\n", i, i + 1);
	refused(many, "f:65: ", "more than 64");
	ck_assert_int_lt(
		exp_read("/nonexistent/file", &(struct exp_table *){NULL}, err, sizeof(err)), 0);
	ck_assert_ptr_nonnull(strstr(err, "/nonexistent/file"));
}
END_TEST

START_TEST(the_first_pattern_that_is_met_decides)
{
	struct exp_table *t =
		parse("export \"/a\" {\n"
		      " client \"10.1.2.3\" { }\n client \"10.1.0.0/17, fd00:0:0:8000::/49\" { }\n "
		      "client \"10.0.0.0/8\" { }\n client \"fd00::/16 192.0.2.0/31\" { }\n}");

	ck_assert_int_eq(meets(t, "10.1.2.3", NULL), 0);
	ck_assert_int_eq(meets(t, "10.1.2.4", NULL), 1);
	ck_assert_int_eq(meets(t, "10.1.127.255", NULL), 1);
	ck_assert_int_eq(meets(t, "10.1.128.0", NULL), 2);
	ck_assert_int_eq(meets(t, "11.0.0.0", NULL), -1);
	ck_assert_int_eq(meets(t, "192.0.2.1", NULL), 3);
	ck_assert_int_eq(meets(t, "192.0.2.2", NULL), -1);
	ck_assert_int_eq(meets(t, "fd00:0:0:8001::1", NULL), 1);
	ck_assert_int_eq(meets(t, "fd00::1", NULL), 3);
	ck_assert_int_eq(meets(t, "::ffff:10.1.2.3", NULL), 0);
	ck_assert_int_eq(meets(t, "::10.1.2.3", NULL), -1);
	exp_put(t);
	t = parse("export \"/a\" { client \"0.0.0.0/0\" { } client \"::/0\" { } }");
	ck_assert_int_eq(meets(t, "1.2.3.4", NULL), 0);
	ck_assert_int_eq(meets(t, "fd00::1", NULL), 1);
	exp_put(t);
}
END_TEST

START_TEST(names_count_only_as_they_are_answered)
{
	struct exp_table *t = parse("export \"/a\" { client \"host.example @group\" { } client "
				    "\"*.lab\" { } client \"10.0.0.0/8\" { } }");
	uint8_t match[1] = {0};

	ck_assert_uint_eq(t->xt_nnames, 3);
	ck_assert_int_eq(t->xt_name[0]->w_kind, EXP_HOST);
	ck_assert_int_eq(t->xt_name[1]->w_kind, EXP_GROUP);
	ck_assert_str_eq(t->xt_name[1]->w_text, "group");
	ck_assert_int_eq(t->xt_name[2]->w_kind, EXP_WILD);
	ck_assert_uint_eq(exp_match_len(t), 1);
	ck_assert_int_eq(meets(t, "10.0.0.1", match), 2);
	match[0] = EXP_MET << 2;
	ck_assert_int_eq(meets(t, "10.0.0.1", match), 0);
	match[0] = EXP_MET << 4;
	ck_assert_int_eq(meets(t, "10.0.0.1", match), 1);
	ck_assert_int_eq(meets(t, "11.0.0.1", match), 1);
	exp_put(t);
}
END_TEST

START_TEST(a_name_that_is_not_known_matters_before_the_first_section_that_is_met)
{
	struct exp_table *t =
		parse("export \"/a\" { client \"10.1.0.0/16\" { } client \"a.test 10.2.0.0/16\" { "
		      "} client \"b.test\" { } client \"10.0.0.0/8\" { } }");
	uint8_t match[1] = {0};

	ck_assert_int_eq(meets(t, "10.3.0.1", NULL), -2);
	ck_assert_int_eq(meets(t, "11.0.0.1", NULL), -2); /* it may be nobody, or one of them */
	ck_assert_int_eq(meets(t, "10.1.0.1", NULL), 0);
	ck_assert_int_eq(meets(t, "10.2.0.1", NULL), 1);
	match[0] = EXP_NOT_KNOWN << 2;
	ck_assert_int_eq(meets(t, "10.2.0.1", match), 1);
	ck_assert_int_eq(meets(t, "10.3.0.1", match), -2);
	match[0] = EXP_MET | EXP_NOT_KNOWN << 2;
	ck_assert_int_eq(meets(t, "10.3.0.1", match), 1);
	match[0] = EXP_NOT_KNOWN | EXP_MET << 2;
	ck_assert_int_eq(meets(t, "10.3.0.1", match), -2);
	exp_put(t);
}
END_TEST

START_TEST(numbers_come_from_paths_not_from_places)
{
	struct exp_table *a = parse("export \"/a\" { client \"*\" { } } export \"/b/c\" { client "
				    "\"*\" { } } export \"/\" { client \"*\" { } }");
	struct exp_table *b =
		parse("export \"/\" { client \"*\" { } } export \"/b/c\" { client \"*\" { } } "
		      "export \"/x\" { client \"*\" { } } export \"/a\" { client \"*\" { } }");

	ck_assert_uint_eq(a->xt_exp[0].e_id, b->xt_exp[3].e_id);
	ck_assert_uint_eq(a->xt_exp[1].e_id, b->xt_exp[1].e_id);
	ck_assert_uint_eq(a->xt_exp[2].e_id, 0);
	ck_assert_uint_eq(b->xt_exp[0].e_id, 0);
	ck_assert_uint_ne(a->xt_exp[0].e_id, a->xt_exp[1].e_id);
	ck_assert_uint_ne(a->xt_exp[0].e_id, 0);
	/* In handles for ever: another hash would make them all stale. */
	ck_assert_uint_eq(a->xt_exp[0].e_id, 55762);
	exp_put(a);
	exp_put(b);
}
END_TEST

/* ---- views ---- */

static struct ns *ns;
static struct kv *kv;
static char dir[64];

static void store(void)
{
	struct kv_opts opts = {.ko_create = true, .ko_nosync = true};
	char path[80];

	strcpy(dir, "/tmp/weft-exports-test.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/kv", dir);
	ck_assert_int_eq(kv_open(&kv, path, &opts, err, sizeof(err)), 0);
	ck_assert_int_eq(ns_open(&ns, kv, err, sizeof(err)), 0);
}

static void unstore(void)
{
	char cmd[100];

	ns_close(ns);
	kv_close(kv);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	ck_assert_int_eq(system(cmd), 0);
}

static int resolve(void *arg, struct kv_txn *t)
{
	return export_resolve(arg, ns, t, true, (struct ns_time){1, 0});
}

static struct exp_view *view_of(struct exp_table *t, const char *addr)
{
	struct exp_view *v;
	uint8_t a[16];

	addr_of(addr, a);
	v = export_view_new(t, a, 1000, EXP_TLS_NONE, NULL);
	ck_assert_ptr_nonnull(v);
	return v;
}

static uint64_t ino_of(const char *path)
{
	struct kv_txn *t;
	uint64_t ino = 0;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_int_eq(ns_path(ns, t, path, &ino), 0);
	kv_read_end(t);
	return ino;
}

START_TEST(what_hangs_on_a_name_that_is_not_known_is_neither_there_nor_not)
{
	struct exp_table *t =
		parse("export \"/out/in/deep\" { create = yes id = 3 client \"a.test\" { } client "
		      "\"*\" { } }\n"
		      "export \"/out\" { create = yes id = 2 client \"10.0.0.1\" { } }\n"
		      "export \"/named\" { create = yes id = 5 client \"a.test\" { } }\n"
		      "export \"/\" { id = 9 client \"10.0.0.3\" { } }\n");
	struct exp_view *one, *two;
	uint64_t out, in, deepest, named;
	uint8_t secs[EXP_SECS];
	struct kv_txn *txn;

	ck_assert_int_eq(kv_run_sync(kv, resolve, t), 0);
	out = ino_of("/out");
	in = ino_of("/out/in");
	deepest = ino_of("/out/in/deep");
	named = ino_of("/named");
	one = view_of(t, "10.0.0.1"); /* nothing is known of any name */
	two = view_of(t, "10.0.0.2");
	ck_assert_uint_eq(one->v_usable, 2);
	ck_assert_uint_eq(one->v_unknown, 5);
	ck_assert_ptr_eq(exp_of_handle(one, 3, 4711), &exp_unknown);
	ck_assert_ptr_eq(exp_of_handle(one, 2, 4711), &one->v_grant[1]);
	ck_assert_ptr_null(exp_of_handle(two, 2, 4711));
	ck_assert_ptr_eq(exp_down(one, &one->v_grant[1], deepest), &exp_unknown);
	ck_assert_ptr_eq(exp_down(one, &one->v_grant[1], in), &one->v_grant[1]);
	ck_assert_ptr_eq(exp_down(one, &one->v_pseudo, out), &one->v_grant[1]);
	ck_assert_ptr_eq(exp_down(one, &one->v_pseudo, named), &exp_unknown);
	/* The way to it is there if it is. */
	ck_assert_ptr_eq(exp_down(two, &two->v_pseudo, out), &exp_unknown);
	ck_assert_ptr_eq(exp_root(two), &two->v_pseudo);
	ck_assert_int_eq(kv_read_begin(kv, &txn), 0);
	ck_assert_ptr_eq(exp_up(one, &one->v_grant[1], out, NS_ROOT_INO, ns, txn), &one->v_pseudo);
	kv_read_end(txn);
	ck_assert_uint_eq(exp_secs(one, &one->v_pseudo, secs), 1);
	ck_assert_uint_eq(exp_secs(two, &two->v_pseudo, secs), 0);
	export_view_put(one);
	export_view_put(two);
	exp_put(t);
}
END_TEST

START_TEST(a_view_shows_what_leads_to_its_exports)
{
	struct exp_table *t = parse(
		"export \"/out/in/deep\" { create = yes id = 3 client \"10.0.0.1 10.0.0.2\" { } }\n"
		"export \"/out\" { create = yes id = 2 client \"10.0.0.1\" { } }\n"
		"export \"/\" { id = 9 client \"10.0.0.3\" { } }\n");
	struct exp_view *both, *deep, *root;
	uint64_t out, in, deepest;
	struct kv_txn *txn;

	ck_assert_int_eq(kv_run_sync(kv, resolve, t), 0);
	out = ino_of("/out");
	in = ino_of("/out/in");
	deepest = ino_of("/out/in/deep");
	both = view_of(t, "10.0.0.1");
	deep = view_of(t, "10.0.0.2");
	root = view_of(t, "10.0.0.3");
	/* From the root: an export where it may be used, else the way to one, else nothing. */
	ck_assert_ptr_eq(exp_root(both), &both->v_pseudo);
	ck_assert_ptr_eq(exp_root(root), &root->v_grant[2]);
	ck_assert_ptr_eq(exp_down(both, &both->v_pseudo, out), &both->v_grant[1]);
	ck_assert_ptr_eq(exp_down(deep, &deep->v_pseudo, out), &deep->v_pseudo);
	ck_assert_ptr_null(exp_down(root, &root->v_grant[2], out));
	ck_assert_ptr_eq(exp_down(both, &both->v_grant[1], in), &both->v_grant[1]);
	ck_assert_ptr_eq(exp_down(both, &both->v_grant[1], deepest), &both->v_grant[0]);
	ck_assert_ptr_eq(exp_down(deep, &deep->v_pseudo, in), &deep->v_pseudo);
	ck_assert_ptr_null(exp_down(deep, &deep->v_pseudo, 4711));
	ck_assert_ptr_eq(exp_down(both, &both->v_grant[1], 4711), &both->v_grant[1]);
	/* Handles: of the export's number, in its place. */
	ck_assert_ptr_eq(exp_of_handle(both, 2, 4711), &both->v_grant[1]);
	ck_assert_ptr_eq(exp_of_handle(both, 2, in), &both->v_grant[1]);
	ck_assert_ptr_null(exp_of_handle(both, 2, deepest));
	ck_assert_ptr_null(exp_of_handle(deep, 2, 4711));
	ck_assert_ptr_null(exp_of_handle(deep, 77, 4711));
	ck_assert_ptr_eq(exp_of_handle(deep, 0, in), &deep->v_pseudo);
	ck_assert_ptr_null(exp_of_handle(deep, 0, 4711));
	ck_assert_ptr_null(exp_of_handle(root, 0, in));
	ck_assert_ptr_eq(exp_of_handle(root, 0, NS_ROOT_INO), &root->v_pseudo);
	/* Up: out of the root of an export, and from nowhere else. */
	ck_assert_int_eq(kv_read_begin(kv, &txn), 0);
	ck_assert_ptr_eq(exp_up(both, &both->v_grant[0], deepest, in, ns, txn), &both->v_grant[1]);
	ck_assert_ptr_eq(exp_up(deep, &deep->v_grant[0], deepest, in, ns, txn), &deep->v_pseudo);
	ck_assert_ptr_eq(exp_up(both, &both->v_grant[1], in, out, ns, txn), &both->v_grant[1]);
	ck_assert_ptr_eq(exp_up(both, &both->v_grant[1], out, NS_ROOT_INO, ns, txn),
			 &both->v_pseudo);
	/* A directory that lies outside by now does not lead there. */
	ck_assert_ptr_null(exp_up(both, &both->v_grant[0], 4711, in, ns, txn));
	kv_read_end(txn);
	export_view_put(both);
	export_view_put(deep);
	export_view_put(root);
	exp_put(t);
}
END_TEST

START_TEST(what_a_connection_has_decides_with_what_it_may_come)
{
	struct exp_table *t =
		parse("export \"/\" { sec = {sys, krb5, none, krb5p} client \"*\" { } }");
	uint8_t a[16] = {0}, out[EXP_SECS];
	struct exp_view *v;

	ck_assert_int_eq(kv_run_sync(kv, resolve, t), 0);
	ck_assert(t->xt_plain);
	v = export_view_new(t, a, 1023, EXP_TLS_NONE, NULL);
	ck_assert_uint_eq(v->v_grant[0].g_ok,
			  1 << EXP_SYS | 1 << EXP_NONE | 1 << EXP_KRB5 | 1 << EXP_KRB5P);
	export_view_put(v);
	v = export_view_new(t, a, 1024, EXP_TLS_NONE, NULL);
	ck_assert_uint_eq(v->v_grant[0].g_ok, 1 << EXP_KRB5 | 1 << EXP_KRB5P);
	ck_assert_uint_eq(exp_secs(v, &v->v_grant[0], out), 2);
	ck_assert(out[0] == EXP_KRB5 && out[1] == EXP_KRB5P);
	export_view_put(v);
	exp_put(t);
	t = parse("export \"/\" { tls = tls client \"*\" { } }");
	ck_assert_int_eq(kv_run_sync(kv, resolve, t), 0);
	v = export_view_new(t, a, 1, EXP_TLS_NONE, NULL);
	ck_assert_uint_eq(v->v_grant[0].g_ok, 0);
	export_view_put(v);
	v = export_view_new(t, a, 1, EXP_TLS_MUTUAL, NULL);
	ck_assert_uint_eq(v->v_grant[0].g_ok, 1 << EXP_SYS);
	export_view_put(v);
	exp_put(t);
}
END_TEST

/* ---- questions ---- */

static struct {
	sem_t begun, go, answered;
	_Atomic unsigned asked;
	unsigned got;
} q;

/* How long an answer counts as new: longer than a loaded machine takes over a few steps. */
#define KEEP_MS 2000

static struct ask_val *answer(void *arg, const void *key, size_t len)
{
	struct ask_val *v = ask_val_new(len);
	unsigned n = ++q.asked;

	(void)arg;
	sem_post(&q.begun);
	sem_wait(&q.go);
	memcpy(v->av_data, key, len);
	v->av_data[0] = (uint8_t)n;
	return v;
}

static void told(struct ask_wait *w, struct ask_val *v)
{
	(void)w;
	q.got = v ? v->av_data[0] : 0;
	ask_val_put(v);
	sem_post(&q.answered);
}

static void *loop_thread(void *l)
{
	loop_run(l);
	return NULL;
}

START_TEST(equal_questions_are_asked_once_and_old_answers_serve_meanwhile)
{
	struct ask_wait w[2] = {{.aw_then = told}, {.aw_then = told}};
	struct loop *l;
	struct ask *a;
	struct ask_val *v;
	pthread_t tid;

	sem_init(&q.begun, 0, 0);
	sem_init(&q.go, 0, 0);
	sem_init(&q.answered, 0, 0);
	ck_assert_int_eq(loop_create(&l, 64), 0);
	w[0].aw_loop = w[1].aw_loop = l;
	pthread_create(&tid, NULL, loop_thread, l);
	ck_assert_int_eq(ask_open(&a, 2, KEEP_MS, answer, NULL), 0);
	ck_assert_ptr_null(ask_get(a, "key", 3, &w[0]));
	sem_wait(&q.begun);
	ck_assert_ptr_null(ask_get(a, "key", 3, &w[1]));
	ck_assert_uint_eq(q.asked, 1);
	sem_post(&q.go);
	sem_wait(&q.answered);
	sem_wait(&q.answered);
	ck_assert_uint_eq(q.got, 1);
	/* Kept. */
	v = ask_get(a, "key", 3, &w[0]);
	ck_assert_ptr_nonnull(v);
	ask_val_put(v);
	ck_assert_uint_eq(q.asked, 1);
	/* Old: given once more, while it is asked again. */
	usleep(KEEP_MS * 1000 + 50000);
	v = ask_get(a, "key", 3, &w[0]);
	ck_assert_ptr_nonnull(v);
	ck_assert_uint_eq(v->av_data[0], 1);
	ask_val_put(v);
	sem_wait(&q.begun);
	sem_post(&q.go);
	for (unsigned tries = 0, n = 1; n == 1 && tries < 6000; tries++) {
		v = ask_get(a, "key", 3, &w[0]);
		n = v->av_data[0];
		ask_val_put(v);
		usleep(10000);
	}
	ck_assert_uint_eq(q.asked, 2);
	/* Forgotten. */
	ask_forget(a);
	ck_assert_ptr_null(ask_get(a, "key", 3, &w[0]));
	sem_post(&q.go);
	sem_wait(&q.answered);
	ck_assert_uint_eq(q.got, 3);
	ask_close(a);
	loop_stop(l);
	pthread_join(tid, NULL);
	loop_destroy(l);
}
END_TEST

static _Atomic bool failing;

static struct ask_val *fails(void *arg, const void *key, size_t len)
{
	struct ask_val *v = answer(arg, key, len);

	v->av_failed = failing;
	return v;
}

static bool failed_now(struct ask *a, struct ask_wait *w)
{
	struct ask_val *v = ask_get(a, "key", 3, w);
	bool failed = v && v->av_failed;

	ck_assert_ptr_nonnull(v);
	ask_val_put(v);
	return failed;
}

static struct loop *asking_loop;
static pthread_t asking_thread;

static void asking(unsigned go)
{
	q.asked = 0;
	sem_init(&q.begun, 0, 0);
	sem_init(&q.go, 0, go);
	sem_init(&q.answered, 0, 0);
	ck_assert_int_eq(loop_create(&asking_loop, 64), 0);
	pthread_create(&asking_thread, NULL, loop_thread, asking_loop);
}

static void asking_over(struct loop_msg *m)
{
	(void)m;
	loop_stop(asking_loop);
}

static void asked(struct ask *a)
{
	struct loop_msg last = {.m_run = asking_over};

	for (unsigned i = 0; i < 100; i++)
		sem_post(&q.go);
	ask_close(a);
	loop_post(asking_loop, &last); /* behind all answers, which hold memory */
	pthread_join(asking_thread, NULL);
	loop_destroy(asking_loop);
}

/* Nothing is known, and the asker hears of it at once. */
static void nothing_known(struct ask *a, const char *key, struct ask_wait *w)
{
	q.got = 99;
	ck_assert_ptr_null(ask_get(a, key, strlen(key), w));
	sem_wait(&q.answered);
	ck_assert_uint_eq(q.got, 0);
}

START_TEST(a_failure_is_an_answer_for_a_moment)
{
	struct ask_wait w[2] = {{.aw_then = told}, {.aw_then = told}};
	struct ask *a;

	asking(100);
	w[0].aw_loop = w[1].aw_loop = asking_loop;
	ck_assert_int_eq(ask_open(&a, 2, 60000, fails, NULL), 0);
	failing = true;
	ck_assert_ptr_null(ask_get(a, "key", 3, &w[0]));
	sem_wait(&q.answered);
	/* For a second, and not asked meanwhile. */
	ck_assert(failed_now(a, &w[0]));
	ck_assert_uint_eq(q.asked, 1);
	usleep(ASK_FAILED_MS * 1000 + 50000);
	/* Old: it is asked again, and nobody waits for that. */
	while (sem_trywait(&q.go) == 0 || sem_trywait(&q.begun) == 0)
		;
	ck_assert(failed_now(a, &w[0]));
	sem_wait(&q.begun);
	ck_assert(failed_now(a, &w[1]));
	failing = false;
	sem_post(&q.go);
	while (failed_now(a, &w[0]))
		usleep(10000);
	ck_assert_uint_eq(q.asked, 2);
	asked(a);
}
END_TEST

START_TEST(what_is_known_counts_as_long_as_without_a_failure)
{
	struct ask_wait w = {.aw_then = told};
	struct ask_val *v;
	struct ask *a;

	asking(100);
	w.aw_loop = asking_loop;
	failing = false;
	ck_assert_int_eq(ask_open(&a, 2, KEEP_MS, fails, NULL), 0);
	ck_assert_ptr_null(ask_get(a, "key", 3, &w));
	sem_wait(&q.answered);
	failing = true;
	usleep(KEEP_MS * 1000 + 50000);
	ck_assert(!failed_now(a, &w));
	for (int ms = 0; q.asked != 2 && ms < 60000; ms += 10)
		usleep(10000);
	ck_assert_uint_eq(q.asked, 2);
	usleep(50000);
	ck_assert(!failed_now(a, &w));
	ck_assert_uint_eq(q.asked, 2); /* not at once again */
	usleep(KEEP_MS * 1000);
	/* Nobody waits for a question that has failed: nothing is known, and it is asked. */
	while (sem_trywait(&q.go) == 0 || sem_trywait(&q.begun) == 0)
		;
	nothing_known(a, "key", &w);
	sem_wait(&q.begun);
	nothing_known(a, "key", &w);
	ck_assert_uint_eq(q.asked, 3);
	sem_post(&q.go);
	while (!(v = ask_get(a, "key", 3, &w)))
		sem_wait(&q.answered);
	ck_assert(v->av_failed);
	ask_val_put(v);
	asked(a);
}
END_TEST

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

START_TEST(nobody_waits_for_long)
{
	struct ask_wait w = {.aw_then = told}, late = {.aw_then = told};
	double began = seconds();
	struct ask_val *v;
	struct ask *a;

	asking(0);
	w.aw_loop = late.aw_loop = asking_loop;
	failing = false;
	ck_assert_int_eq(ask_open(&a, 2, 60000, fails, NULL), 0);
	nothing_known(a, "key", &w);
	ck_assert_double_ge(seconds() - began, ASK_WAIT_MS / 1000.0);
	/* It is asked still; who comes now does not wait. */
	ck_assert_uint_eq(q.asked, 1);
	nothing_known(a, "key", &late);
	ck_assert_uint_eq(q.asked, 1);
	sem_post(&q.go);
	while (!(v = ask_get(a, "key", 3, &w)))
		sem_wait(&q.answered);
	ck_assert_uint_eq(v->av_data[0], 1);
	ask_val_put(v);
	asked(a);
}
END_TEST

START_TEST(a_question_that_goes_on_failing_is_asked_less_and_less)
{
	struct ask_wait w = {.aw_then = told};
	double began = seconds();
	struct ask *a;

	asking(100);
	w.aw_loop = asking_loop;
	failing = true;
	ck_assert_int_eq(ask_open(&a, 2, 60000, fails, NULL), 0);
	ck_assert_ptr_null(ask_get(a, "key", 3, &w));
	sem_wait(&q.answered);
	/* After 1 and 2 seconds; the next time is after 4. */
	while (q.asked < 3) {
		failed_now(a, &w);
		usleep(10000);
	}
	ck_assert_double_ge(seconds() - began, 2.9);
	for (began = seconds(); seconds() - began < 1.3;) {
		failed_now(a, &w);
		usleep(10000);
	}
	ck_assert_uint_eq(q.asked, 3);
	asked(a);
}
END_TEST

START_TEST(questions_without_an_answer_do_not_have_all_workers)
{
	struct ask_wait w[7];
	struct ask_val *v;
	struct ask *a;

	asking(0);
	for (unsigned i = 0; i < 7; i++)
		w[i] = (struct ask_wait){.aw_loop = asking_loop, .aw_then = told};
	failing = false;
	ck_assert_int_eq(ask_open(&a, 4, 300, fails, NULL), 0);
	ck_assert_ptr_null(ask_get(a, "known", 5, &w[0]));
	sem_wait(&q.begun);
	sem_post(&q.go);
	sem_wait(&q.answered);
	for (unsigned i = 1; i < 6; i++)
		ck_assert_ptr_null(ask_get(a, &i, sizeof(i), &w[i]));
	sem_wait(&q.begun);
	sem_wait(&q.begun);
	usleep(350000);
	ck_assert_uint_eq(q.asked, 3);
	/* What was known goes first, at once. */
	v = ask_get(a, "known", 5, &w[6]);
	ck_assert_ptr_nonnull(v);
	ask_val_put(v);
	sem_wait(&q.begun);
	ck_assert_uint_eq(q.asked, 4);
	asked(a);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exports");
	TCase *t = tcase_create("file"), *u = tcase_create("views"), *w = tcase_create("ask");

	tcase_add_test(t, what_is_not_said_is_the_safe_choice);
	tcase_add_test(t, a_client_begins_with_what_its_export_says);
	tcase_add_test(t, bad_files_are_told_with_their_line);
	tcase_add_test(t, the_first_pattern_that_is_met_decides);
	tcase_add_test(t, names_count_only_as_they_are_answered);
	tcase_add_test(t, a_name_that_is_not_known_matters_before_the_first_section_that_is_met);
	tcase_add_test(t, numbers_come_from_paths_not_from_places);
	tcase_add_checked_fixture(u, store, unstore);
	tcase_add_test(u, a_view_shows_what_leads_to_its_exports);
	tcase_add_test(u, what_hangs_on_a_name_that_is_not_known_is_neither_there_nor_not);
	tcase_add_test(u, what_a_connection_has_decides_with_what_it_may_come);
	tcase_add_test(w, a_failure_is_an_answer_for_a_moment);
	tcase_add_test(w, what_is_known_counts_as_long_as_without_a_failure);
	tcase_add_test(w, nobody_waits_for_long);
	tcase_add_test(w, a_question_that_goes_on_failing_is_asked_less_and_less);
	tcase_add_test(w, questions_without_an_answer_do_not_have_all_workers);
	tcase_set_timeout(w, 30);
	tcase_add_test(w, equal_questions_are_asked_once_and_old_answers_serve_meanwhile);
	suite_add_tcase(s, t);
	suite_add_tcase(s, u);
	suite_add_tcase(s, w);
	return unit_run(s);
}
