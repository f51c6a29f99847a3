/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin_forget.c - forgets a data server that is killed, or was never admitted
 * (docs/device-failure.md). First it examines all files, some at a time, for objects on that
 * server.
 *
 * No file gets an object there during this, because the server may not join. An object of which
 * another copy is in sync becomes stale, so that repair makes it again elsewhere. The data of the
 * other objects is lost, and their files are reported by name.
 */
#include "mds/admin/admin_int.h"
#include "mds/admin/admin_holders.h"
#include "mds/layout/pending_layout.h"
#include "mds/nfs4/op.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define LOOK_FILES 4096	    /* files in a snapshot */
#define STALE_MANY 128	    /* files in a transaction */
#define TELL_MANY  1000	    /* paths of lost files in the answer */
#define NAMES_MANY 1000000u /* directory entries that are read to find these paths */

struct forget {
	struct admin *fo_admin;
	struct kv_txn *fo_txn;
	uint32_t fo_ds;
	bool fo_force;
	uint64_t fo_next, fo_files, fo_lost, fo_pending;
	unsigned fo_seen, fo_budget;
	json_t *fo_paths;
	char fo_left[sizeof(((struct ds_reg_command *)0)->dw_left)];
	/* files of this pass with an object there that becomes stale */
	uint64_t fo_ino[STALE_MANY];
	unsigned fo_n;
	struct kv_op fo_op;
	struct admin_wait fo_wait;
};

/* Returns the objects there that count and have another copy. *last: the objects there that are the
 * last of their stripe. *any: there is an object. */
static uint64_t admin_forget_there(const struct lo_map *map, uint32_t ds, uint64_t *last, bool *any)
{
	struct lo_map without = *map;
	uint64_t hit = 0, writers = lo_writers(map);

	*any = false;
	for (unsigned k = 0; k < (unsigned)map->lm_stripes * map->lm_mirrors; k++) {
		if (map->lm_obj[k].ob_ds != ds || map->lm_obj[k].ob_state == LO_ABSENT)
			continue;
		*any = true;
		hit |= (writers >> k & 1) << k;
	}
	return lo_map_make_stale(&without, hit, last);
}

static void tell_lost(struct forget *fo, const struct ns_inode *i)
{
	char path[4096], text[32];
	json_t *name = NULL;

	if (json_array_size(fo->fo_paths) >= TELL_MANY)
		return;
	snprintf(text, sizeof(text), "inode %lu", (unsigned long)i->i_ino);
	if (fo->fo_budget && !ns_path_of(fo->fo_admin->a_ops.ao_ns, fo->fo_txn, i->i_ino,
					 &fo->fo_budget, path, sizeof(path)))
		name = admin_text(path, strlen(path));
	json_array_append_new(fo->fo_paths, name ? name : json_string(text));
}

static int admin_forget_look_file(void *arg, const struct ns_inode *i)
{
	struct forget *fo = arg;
	uint64_t stale, last;
	struct lo_map map;
	bool any;

	if (fo->fo_seen++ == LOOK_FILES || fo->fo_n == STALE_MANY)
		return 1;
	fo->fo_next = i->i_ino + 1;
	if (lo_map_decode(i->i_blob, &map))
		return 0;
	stale = admin_forget_there(&map, fo->fo_ds, &last, &any);
	fo->fo_files += any;
	if (last) {
		fo->fo_lost++;
		tell_lost(fo, i);
	}
	if (stale && fo->fo_force)
		fo->fo_ino[fo->fo_n++] = i->i_ino;
	return 0;
}

static int stale_run(struct kv_op *op, struct kv_txn *t)
{
	struct forget *fo = caa_container_of(op, struct forget, fo_op);
	struct mds *m = fo->fo_admin->a_ops.ao_mds;

	for (unsigned k = 0; k < fo->fo_n; k++) {
		uint64_t hit = 0, writers;
		struct ns_inode i;
		struct lo_map map;
		int err = ns_get(m->m_ns, t, fo->fo_ino[k], &i);

		if (err == -ENOENT || err == -ESTALE)
			continue;
		if (!err)
			err = lo_map_decode(i.i_blob, &map);
		if (err)
			return err;
		writers = lo_writers(&map);
		for (unsigned o = 0; o < (unsigned)map.lm_stripes * map.lm_mirrors; o++)
			if ((writers >> o & 1) && map.lm_obj[o].ob_ds == fo->fo_ds)
				hit |= UINT64_C(1) << o;
		if (lo_map_make_stale(&map, hit, NULL))
			err = file_set_map(&m->m_file, t, i.i_ino, &map, file_now());
		if (err)
			return err;
	}
	return 0;
}

static void stale_done(struct kv_op *op, int err)
{
	admin_wait_done(&caa_container_of(op, struct forget, fo_op)->fo_wait, err);
}

static int make_stale(struct forget *fo)
{
	if (!fo->fo_n)
		return 0;
	admin_wait_init(&fo->fo_wait);
	fo->fo_op = (struct kv_op){.o_run = stale_run, .o_done = stale_done};
	kv_submit(ns_kv(fo->fo_admin->a_ops.ao_ns), &fo->fo_op);
	return admin_wait_end(&fo->fo_wait);
}

/* A pending layout has objects there: its job places them elsewhere (mds/jobs/restripe.c). */
static int admin_forget_look_pending(void *arg, uint64_t ino, const struct lo_pending *tw)
{
	struct forget *fo = arg;

	(void)ino;
	fo->fo_pending += lo_map_on(&tw->tw_map, fo->fo_ds) != 0;
	return 0;
}

/* Examines all files. */
static int admin_forget_look(struct forget *fo)
{
	struct ns *ns = fo->fo_admin->a_ops.ao_ns;
	int err;

	fo->fo_next = 1;
	do {
		uint64_t from = fo->fo_next;

		fo->fo_seen = fo->fo_n = 0;
		err = kv_read_begin(ns_kv(ns), &fo->fo_txn);
		if (err)
			return err;
		err = ns_files(ns, fo->fo_txn, from, admin_forget_look_file, fo);
		kv_read_end(fo->fo_txn);
		if (!err)
			err = make_stale(fo);
	} while (!err && (fo->fo_seen > LOOK_FILES || fo->fo_n == STALE_MANY));
	if (!err)
		err = kv_read_begin(ns_kv(ns), &fo->fo_txn);
	if (!err) {
		err = lo_pendings(fo->fo_txn, 1, admin_forget_look_pending, fo);
		kv_read_end(fo->fo_txn);
	}
	return err;
}

int admin_ds_stale(struct admin *a, uint32_t ds)
{
	struct forget *fo = calloc(1, sizeof(*fo));
	int err;

	if (!fo)
		return -ENOMEM;
	*fo = (struct forget){
		.fo_admin = a, .fo_ds = ds, .fo_force = true, .fo_paths = json_array()};
	err = admin_forget_look(fo);
	json_decref(fo->fo_paths);
	free(fo);
	return err;
}

/* The request and the work have a reference each. */
struct word {
	struct ds_reg_command wo_word;
	struct admin_wait wo_wait;
	_Atomic int wo_holds;
};

static void admin_forget_word_put(struct word *wo)
{
	if (atomic_fetch_sub(&wo->wo_holds, 1) == 1)
		free(wo);
}

static void admin_forget_word_done(struct ds_reg_command *w, int err)
{
	struct word *wo = caa_container_of(w, struct word, wo_word);

	admin_wait_done(&wo->wo_wait, err);
	admin_forget_word_put(wo);
}

static int forget_it(struct forget *fo)
{
	struct admin *a = fo->fo_admin;
	struct word *wo = calloc(1, sizeof(*wo));
	int err;

	if (!wo)
		return -ENOMEM;
	wo->wo_word = (struct ds_reg_command){.dw_id = fo->fo_ds,
					      .dw_empty = !fo->fo_files && !fo->fo_pending,
					      .dw_done = admin_forget_word_done};
	admin_wait_init(&wo->wo_wait);
	atomic_store(&wo->wo_holds, 2);
	ds_reg_forget(a->a_ops.ao_dsc, &wo->wo_word);
	err = admin_wait_loop(&wo->wo_wait, a->a_ops.ao_dsc) ? admin_wait_end(&wo->wo_wait)
							     : -ESHUTDOWN;
	if (!err)
		memcpy(fo->fo_left, wo->wo_word.dw_left, sizeof(fo->fo_left));
	admin_forget_word_put(wo);
	if (!err)
		lo_orders_forget(a->a_ops.ao_lo, fo->fo_ds);
	return err;
}

static json_t *what_is_there(const struct forget *fo, const char *key, const char *text)
{
	json_t *j = json_pack("{s:s, s:I, s:I, s:O}", key, text, "files", (json_int_t)fo->fo_files,
			      "lost_files", (json_int_t)fo->fo_lost, "lost", fo->fo_paths);

	if (j && *fo->fo_left)
		json_object_set_new(j, "left", json_string(fo->fo_left));
	return j;
}

void admin_put_forget(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct forget *fo = calloc(1, sizeof(*fo));
	const char *force = http_arg(rq, "force");
	struct admin *a = arg;
	struct ds_reg_server sv;
	bool may_serve;
	uint32_t ds = admin_ds_arg(a, rq, rp);
	char text[400];
	int err;

	if (!ds || !fo) {
		if (ds)
			admin_reply_error(rp, 500, "out of memory");
		free(fo);
		return;
	}
	*fo = (struct forget){.fo_admin = a,
			      .fo_ds = ds,
			      .fo_force = force && !strcmp(force, "1"),
			      .fo_budget = NAMES_MANY,
			      .fo_paths = json_array()};
	err = ds_reg_get(a->a_ops.ao_dsc, ds, &sv)
		      ? sv.sv_state < DS_REG_KILLED ? -EBUSY : admin_forget_look(fo)
		      : -ENOENT;
	/* A server that is cut off from us goes on serving until its lease is over. Until then its
	 * fences count. */
	may_serve = !err && sv.sv_state == DS_REG_KILLED && !sv.sv_nfs3 &&
		    ds_reg_leased(a->a_ops.ao_dsc, ds);
	if (may_serve) {
		admin_reply_error(
			rp, 409,
			"%s may still serve clients: try again when its lease (ds.lease) is over",
			sv.sv_name);
		goto out;
	}
	if (!err && fo->fo_files && !fo->fo_force) {
		snprintf(text, sizeof(text),
			 "%s: %lu files have objects there, and for %lu of them that is the only "
			 "copy in sync. See weft mirror status and weft find --on-ds %s --lost; "
			 "with --force THE DATA OF THE LATTER IS LOST",
			 sv.sv_name, (unsigned long)fo->fo_files, (unsigned long)fo->fo_lost,
			 sv.sv_name);
		admin_reply_json(rp, 409, what_is_there(fo, "error", text));
		goto out;
	}
	if (!err && fo->fo_pending && !fo->fo_force) {
		admin_reply_error(rp, 409,
				  "%s: %lu files are being restriped and have objects there until "
				  "that is done: try again then (weft mirror status)",
				  sv.sv_name, (unsigned long)fo->fo_pending);
		goto out;
	}
	if (!err)
		err = forget_it(fo);
	if (!err)
		admin_reply_json(rp, 200, what_is_there(fo, "forgotten", sv.sv_name));
	else if (err == -EBUSY)
		admin_reply_error(rp, 409,
				  "%s is %s: only a killed server (weft ds kill), or one that was "
				  "never admitted, can be forgotten",
				  sv.sv_name, ds_reg_state_text(sv.sv_state));
	else if (err == -ENOENT)
		admin_reply_error(rp, 404, "%s: no such data server", http_arg(rq, "ds"));
	else
		admin_reply_error(rp, 500, "%s", strerror(-err));
out:
	json_decref(fo->fo_paths);
	free(fo);
}
