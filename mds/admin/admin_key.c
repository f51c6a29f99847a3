/* SPDX-License-Identifier: Apache-2.0 */
/* admin_key.c - keys of data servers: makes the key file of one server (weft ds key), and a new
 * cluster key (weft key rotate). See docs/security.md, "Keys". */
#include "base/log.h"
#include "mds/admin/admin_int.h"
#include "mds/admin/admin_holders.h"
#include "mds/journal/event_journal.h"
#include "mds/nfs4/op.h"
#include "proto/ds_key.h"
#include <errno.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <urcu/compiler.h>

#define RECALL_MS 5000 /* added to the deadline of a recall */
#define STEP_MS	  20

static void admin_key_step(void)
{
	nanosleep(&(struct timespec){0, STEP_MS * 1000000}, NULL);
}

/* ---- weft ds key ---- */

/* Whether a server that joins may have this name, and it is not a number. */
static bool admin_key_name_ok(const char *s)
{
	bool digits = true;

	for (const char *p = s; *p; p++) {
		if (*p <= ' ' || *p > '~' || *p == '"' || *p == '\\' || *p == '=')
			return false;
		digits = digits && *p >= '0' && *p <= '9';
	}
	return *s && !digits && strlen(s) <= 64;
}

/* Makes the key file of the server with that name, number or id. A name that no server has is for a
 * server to be made, and this file gives that server its uuid. */
void admin_put_ds_key(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *what = http_arg(rq, "ds");
	struct ds_reg_server sv = {0};
	char text[DS_KEY_TEXT], id[37];
	struct admin *a = arg;
	struct ds_key k;
	uint32_t ds = admin_ds_named(a, what, rp);
	bool fresh = !ds && rp->rp_status == 404;

	if (!ds && (!fresh || !admin_key_name_ok(what))) {
		if (fresh)
			admin_reply_error(
				rp, 400,
				"%.64s: no data server has that name, and it is not a valid name",
				what);
		return;
	}
	if (fresh) {
		free(rp->rp_body);
		rp->rp_body = NULL;
		randombytes_buf(sv.sv_uuid, sizeof(sv.sv_uuid));
		strcpy(sv.sv_name, what);
	} else if (!ds_reg_get(a->a_ops.ao_dsc, ds, &sv) || sv.sv_nfs3) {
		admin_reply_error(rp, 409, "%s: an NFSv3 server, which has no weft keys", what);
		return;
	}
	ds_reg_key_make(a->a_ops.ao_dsc, sv.sv_uuid, &k);
	ds_key_text(&k, sv.sv_name, text);
	journal_add(EV_DS_CHANGED, sv.sv_name, 0,
		    fresh ? "keys made for a new server of this name" : "key file made");
	lo_uuid_text(sv.sv_uuid, id);
	admin_reply_json(rp, 200,
			 json_pack("{s:s, s:s, s:b, s:i, s:s}", "name", sv.sv_name, "id", id,
				   "known", !fresh, "number", k.dk_number, "key", text));
	sodium_memzero(&k, sizeof(k));
	sodium_memzero(text, sizeof(text));
}

/* ---- weft cluster key ---- */

#define JOIN_TOKEN_HOURS 24
#define JOIN_TOKEN_MOST	 720

static bool admin_key_hours(const char *text, uint32_t *seconds)
{
	char *end;
	double h = text ? strtod(text, &end) : JOIN_TOKEN_HOURS;

	if (text && (end == text || *end || !(h > 0) || h > JOIN_TOKEN_MOST))
		return false;
	*seconds = (uint32_t)(h * 3600) + (h * 3600 < 1);
	return true;
}

/* Makes a token with which one machine gets the keys of one new data server, once. */
void admin_post_join_token(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *name = http_arg(rq, "name");
	struct ds_reg_token tk = {.tt_named = name != NULL};
	char id[33], secret[33];
	struct admin *a = arg;
	uint32_t seconds;
	int err;

	if (name && !admin_key_name_ok(name)) {
		admin_reply_error(rp, 400, "%.64s: not a valid name of a data server", name);
		return;
	}
	if (!admin_key_hours(http_arg(rq, "hours"), &seconds)) {
		admin_reply_error(rp, 400, "hours: expected a number above 0, and at most %d",
				  JOIN_TOKEN_MOST);
		return;
	}
	if (name)
		strcpy(tk.tt_name, name);
	err = ds_reg_token_make(a->a_ops.ao_dsc, seconds, &tk);
	if (err) {
		admin_reply_error(rp, err == -EEXIST || err == -ENOSPC ? 409 : 500, "%s%s",
				  err == -EEXIST ? name : "cannot make a token: ",
				  err == -EEXIST   ? ": a data server has that name"
				  : err == -ENOSPC ? "there are too many; wait until some expire"
						   : strerror(-err));
		return;
	}
	sodium_bin2hex(id, sizeof(id), tk.tt_id, sizeof(tk.tt_id));
	sodium_bin2hex(secret, sizeof(secret), tk.tt_secret, sizeof(tk.tt_secret));
	admin_reply_json(rp, 200,
			 json_pack("{s:s, s:s, s:s, s:I}", "name", tk.tt_name, "id", id, "secret",
				   secret, "ends_at", (json_int_t)tk.tt_ends));
	sodium_memzero(&tk, sizeof(tk));
	sodium_memzero(secret, sizeof(secret));
}

/* ---- weft key rotate ---- */

static json_t *admin_key_view_json(struct admin *a)
{
	struct ds_reg_key_view kv;
	unsigned n = ds_reg_keys_view(a->a_ops.ao_dsc, &kv);
	json_t *list = json_array();

	for (unsigned i = 0; i < n && i < DS_REG_KEY_BEHIND; i++) {
		const struct ds_reg_key_behind *b = &kv.kv_behind[i];

		json_array_append_new(
			list,
			json_pack("{s:s, s:b, s:s}", "name", b->kb_name, "alive", b->kb_alive,
				  "why",
				  !b->kb_alive ? "it is away: it gets its keys when it joins"
				  : b->kb_own || b->kb_takes
					  ? "it has not answered yet"
					  : "its version has no keys of its own: upgrade it"));
	}
	return json_pack("{s:i, s:o, s:I, s:o}", "number", kv.kv_number, "rotated_at",
			 admin_known(kv.kv_rotated_s), "behind", (json_int_t)n, "servers", list);
}

void admin_get_key(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	(void)rq;
	admin_reply_json(rp, 200, admin_key_view_json(arg));
}

struct back {
	struct loop_msg ba_msg;
	struct mds *ba_m;
	uint64_t ba_ino;
	_Atomic unsigned *ba_left;
	_Atomic bool *ba_failed;
};

struct outs {
	uint64_t *o_ino;
	size_t o_n, o_max;
	bool o_failed;
};

static void out_note(void *arg, const struct st_layout_view *v)
{
	struct outs *o = arg;

	if (o->o_n && o->o_ino[o->o_n - 1] == v->lv_ino)
		return;
	if (o->o_n == o->o_max) {
		size_t max = o->o_max ? 2 * o->o_max : 256;
		uint64_t *p = realloc(o->o_ino, max * sizeof(*p));

		if (!p) {
			o->o_failed = true;
			return;
		}
		o->o_ino = p;
		o->o_max = max;
	}
	o->o_ino[o->o_n++] = v->lv_ino;
}

static void back_over(void *arg, int err)
{
	struct back *ba = arg;

	if (err)
		atomic_store(ba->ba_failed, true);
	atomic_fetch_sub(ba->ba_left, 1);
	free(ba);
}

static void back_run(struct loop_msg *m)
{
	struct back *ba = caa_container_of(m, struct back, ba_msg);

	if (!excl_recall_and_fence(&ba->ba_m->m_file, ba->ba_m->m_thread[0].mt_loop, ba->ba_ino,
				   NULL, back_over, ba))
		back_over(ba, 0);
}

/*
 * Layouts from before the last rotation may have capabilities with a key number that is not good
 * any more after this rotation. So all layouts are recalled, as by weft layout recall: clients get
 * new ones with what they do next. False: not all layouts came back.
 */
static bool admin_key_all_back(struct admin *a)
{
	/* Both outlive a request that gave up. */
	static _Atomic unsigned left;
	static _Atomic bool failed;
	struct mds *m = a->a_ops.ao_mds;
	struct outs o = {0};
	unsigned waited = 0;
	bool ok = atomic_load(&left) == 0 && !st_layouts_view(m->m_st, 0, 0, out_note, &o) &&
		  !o.o_failed;

	if (ok)
		atomic_store(&failed, false);
	for (size_t i = 0; i < o.o_n && ok; i++) {
		struct back *ba = calloc(1, sizeof(*ba));

		ok = ba != NULL;
		if (!ok)
			break;
		ba->ba_msg.m_run = back_run;
		ba->ba_m = m;
		ba->ba_ino = o.o_ino[i];
		ba->ba_left = &left;
		ba->ba_failed = &failed;
		atomic_fetch_add(&left, 1);
		loop_post(m->m_thread[0].mt_loop, &ba->ba_msg);
	}
	free(o.o_ino);
	for (; atomic_load(&left) && waited < m->m_recall_ms + RECALL_MS; waited += STEP_MS)
		admin_key_step();
	return ok && !atomic_load(&left) && !atomic_load(&failed);
}

struct rotate {
	struct ds_reg_rotate rt_rotate;
	struct admin_wait rt_wait;
};

static void admin_key_rotate_done(struct ds_reg_rotate *ro, int err)
{
	admin_wait_done(&caa_container_of(ro, struct rotate, rt_rotate)->rt_wait, err);
}

void admin_put_rotate(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct rotate rt = {0};
	struct ds_reg_key_view kv;
	int err;

	(void)rq;
	ds_reg_keys_view(a->a_ops.ao_dsc, &kv);
	if (kv.kv_held[0]) {
		admin_reply_error(
			rp, 409,
			"%s does not have keys of the current cluster key (number %u) yet and "
			"could not join after another rotation; see weft key status",
			kv.kv_held, kv.kv_number);
		return;
	}
	/* Clients that have not called yet may have layouts that this server does not know. */
	if (kv.kv_before && !ds_reg_layouts_known(a->a_ops.ao_dsc)) {
		admin_reply_error(
			rp, 409,
			"the metadata server has just started and does not know all layouts of "
			"clients yet; try again after the grace period and one lease");
		return;
	}
	if (kv.kv_before && !admin_key_all_back(a)) {
		admin_reply_error(
			rp, 409,
			"some clients did not return their layouts, and layouts from before the "
			"last rotation would become invalid; nothing was changed");
		return;
	}
	admin_wait_init(&rt.rt_wait);
	rt.rt_rotate.ro_from = kv.kv_number;
	rt.rt_rotate.ro_done = admin_key_rotate_done;
	ds_reg_rotate(a->a_ops.ao_dsc, &rt.rt_rotate);
	err = admin_wait_end(&rt.rt_wait);
	if (err) {
		admin_reply_error(rp, err == -EAGAIN || err == -EBUSY ? 409 : 500,
				  "the cluster key was not changed: %s",
				  err == -EAGAIN ? "another administrator has just changed it"
				  : err == -EBUSY
					  ? "a data server without the current key has just joined"
					  : strerror(-err));
		return;
	}
	log_info("a new cluster key, number %u, is in force", (uint8_t)(kv.kv_number + 1));
	admin_reply_json(rp, 200, admin_key_view_json(a));
}
