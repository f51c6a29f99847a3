/* SPDX-License-Identifier: Apache-2.0 */
/* admin_move.c - adds and removes mirrors, and moves objects, over the API (docs/moving.md). The
 * request is written into the file's map, and the jobs of repair carry it out. */
#include "mds/admin/admin_holders.h"
#include "mds/layout/mirror_change.h"
#include "mds/layout/pending_layout.h"
#include "mds/jobs/job.h"
#include "mds/jobs/repair.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <urcu/compiler.h>

struct change {
	struct kv_op ch_op;
	struct mds *ch_m;
	uint64_t ch_ino;
	/* returns 0, or an error with a line in ch_why */
	int (*ch_fn)(struct change *ch, struct lo_map *map);
	enum lo_repair_asked ch_asked;
	uint64_t ch_job;
	bool ch_stops;	      /* the cancel leaves something undone */
	const char *ch_group; /* NULL: not given */
	bool ch_cancel;
	struct lo_policy ch_policy;
	bool ch_has_policy;
	unsigned ch_mirror;
	uint32_t ch_from;
	struct admin_wait ch_wait;
	char ch_why[300];
};

static int admin_move_change_run(struct kv_op *op, struct kv_txn *t)
{
	struct change *ch = caa_container_of(op, struct change, ch_op);
	struct mds *m = ch->ch_m;
	struct lo_repair row;
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(m->m_ns, t, ch->ch_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (!err && !ch->ch_cancel && lo_pending_is(t, ch->ch_ino)) {
		snprintf(ch->ch_why, sizeof(ch->ch_why),
			 "the file is being restriped; try again when that is done");
		err = -EBUSY;
	}
	if (!err && ch->ch_cancel)
		err = lo_pending_free(m->m_lo, t, &i);
	if (!err)
		err = ch->ch_fn(ch, &map);
	if (!err)
		err = file_set_map(&m->m_file, t, ch->ch_ino, &map, file_now());
	if (err == -EAGAIN && !*ch->ch_why)
		snprintf(ch->ch_why, sizeof(ch->ch_why),
			 "a generic NFSv3 data server has no file made ahead at the moment; try "
			 "again");
	if (err || lo_repair_get(t, ch->ch_ino, &row))
		return err;
	row.rr_after = 0; /* the failure before was of something else */
	if (!ch->ch_cancel)
		row.rr_asked = ch->ch_asked;
	row.rr_cancelled = ch->ch_stops;
	err = lo_repair_put(t, ch->ch_ino, &row);
	if (!err && !lo_repair_get(t, ch->ch_ino, &row))
		ch->ch_job = job_file_id(ch->ch_ino, &row);
	return err;
}

static void admin_move_change_done(struct kv_op *op, int err)
{
	admin_wait_done(&caa_container_of(op, struct change, ch_op)->ch_wait, err);
}

/* Commits the change, and answers with what is under way then. */
static void change_commit(struct admin *a, struct change *ch, const struct http_req *rq,
			  struct http_reply *rp)
{
	const char *path = http_arg(rq, "path");
	int err;

	ch->ch_m = a->a_ops.ao_mds;
	/* on the committer: the loops may have stopped */
	ch->ch_op =
		(struct kv_op){.o_run = admin_move_change_run, .o_done = admin_move_change_done};
	admin_wait_init(&ch->ch_wait);
	kv_submit(ns_kv(a->a_ops.ao_ns), &ch->ch_op);
	err = admin_wait_end(&ch->ch_wait);
	if (!err && ch->ch_cancel)
		lo_orders_wake(ch->ch_m->m_lo);
	if (!err)
		admin_reply_repair(a, ch->ch_ino, &ch->ch_job, rp);
	else if (*ch->ch_why)
		admin_reply_error(rp, err == -EINVAL ? 400 : 409, "%s: %s", path, ch->ch_why);
	else
		admin_reply_errno(rp, err, path);
}

static int change_add(struct change *ch, struct lo_map *map)
{
	return lo_mirror_add(ch->ch_m->m_lo, map, ch->ch_group ? ch->ch_group : "", ch->ch_why,
			     sizeof(ch->ch_why));
}

void admin_put_mirror_add(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct change ch = {.ch_fn = change_add,
			    .ch_asked = LO_REPAIR_ASKED_ADD,
			    .ch_group = http_arg(rq, "group")};

	ch.ch_ino = admin_file_arg(arg, rq, rp);
	if (ch.ch_ino)
		change_commit(arg, &ch, rq, rp);
}

static int change_leave(struct change *ch, struct lo_map *map)
{
	/* Not the others either: the pinned copy alone would be outside the file's groups. */
	if (map->lm_pin) {
		snprintf(ch->ch_why, sizeof(ch->ch_why),
			 "mirror %u is a pinned copy: weft unpin takes it away", map->lm_pin - 1u);
		return -EBUSY;
	}
	return lo_mirror_remove(map, ch->ch_mirror, ch->ch_why, sizeof(ch->ch_why));
}

void admin_put_mirror_remove(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct change ch = {.ch_fn = change_leave, .ch_asked = LO_REPAIR_ASKED_REMOVE};
	const char *mirror = http_arg(rq, "mirror");

	ch.ch_ino = admin_file_arg(arg, rq, rp);
	if (!ch.ch_ino)
		return;
	if (!mirror || !isdigit((unsigned char)*mirror) || strlen(mirror) > 3 ||
	    strspn(mirror, "0123456789") != strlen(mirror)) {
		admin_reply_error(rp, 400,
				  "mirror: expected its number, counted from 0, as weft mirror "
				  "list shows it");
		return;
	}
	ch.ch_mirror = (unsigned)strtoul(mirror, NULL, 10);
	change_commit(arg, &ch, rq, rp);
}

/* ---- move ---- */

/* The group replaces all groups of the file; the file's domain stays. */
static int groups_only(struct change *ch, const struct lo_map *map, struct lo_policy *p)
{
	char text[LO_POLICY_TEXT + LO_GROUPS_LEN];
	int len;

	if (lo_map_policy(map, p)) {
		snprintf(ch->ch_why, sizeof(ch->ch_why),
			 "the policy stored with the file is damaged; give --policy");
		return -EINVAL;
	}
	*p->lp_groups = 0;
	len = (int)lo_policy_format(p, text);
	if (strlen(ch->ch_group) >= LO_GROUPS_LEN) {
		snprintf(ch->ch_why, sizeof(ch->ch_why), "group: expected at most %d characters",
			 LO_GROUPS_LEN - 1);
		return -EINVAL;
	}
	len += snprintf(text + len, sizeof(text) - (size_t)len, ",group=%s", ch->ch_group);
	return lo_policy_parse(text, (size_t)len, p, ch->ch_why, sizeof(ch->ch_why));
}

static int change_move(struct change *ch, struct lo_map *map)
{
	struct lo_policy p = ch->ch_policy;
	bool policy = ch->ch_has_policy;
	int err = 0;

	if (ch->ch_cancel) {
		ch->ch_stops = job_move_stops(ch->ch_m, map);
		lo_move_forget(map);
		return 0;
	}
	if (ch->ch_group) {
		err = groups_only(ch, map, &p);
		policy = true;
	}
	return err ? err
		   : lo_move_ask(ch->ch_m->m_lo, map, policy ? &p : NULL, ch->ch_from, ch->ch_why,
				 sizeof(ch->ch_why));
}

void admin_put_move(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *policy = http_arg(rq, "policy"), *from = http_arg(rq, "from");
	struct change ch = {.ch_fn = change_move,
			    .ch_asked = LO_REPAIR_ASKED_MOVE,
			    .ch_group = http_arg(rq, "group"),
			    .ch_has_policy = policy};
	char err[256];

	if (http_arg(rq, "stripes") || http_arg(rq, "unit")) {
		admin_put_restripe(arg, rq, rp);
		return;
	}
	ch.ch_ino = admin_file_arg(arg, rq, rp);
	if (!ch.ch_ino)
		return;
	ch.ch_cancel = http_arg(rq, "cancel");
	if (ch.ch_cancel ? policy || from || ch.ch_group : !policy && !from && !ch.ch_group) {
		admin_reply_error(rp, 400,
				  "expected a destination: a group, a policy, or the data server "
				  "to move away from; or cancel alone");
		return;
	}
	if (policy && ch.ch_group) {
		admin_reply_error(
			rp, 400,
			"expected a group or a policy, not both: a policy names its groups");
		return;
	}
	if (policy && lo_policy_parse(policy, strlen(policy), &ch.ch_policy, err, sizeof(err))) {
		admin_reply_error(rp, 400, "%s", err);
		return;
	}
	if (from) {
		ch.ch_from = admin_ds_named(arg, from, rp);
		if (!ch.ch_from)
			return;
	}
	change_commit(arg, &ch, rq, rp);
}
