/* SPDX-License-Identifier: Apache-2.0 */
/* ns_sum_rebuild.c - computes the sums of a store that has none, or wrong ones, and stores them
 * (ns_sum.h). The super record says last that they are known: an interrupted run begins again. */
#include "mds/namespace/ns_sum_rec.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

#define REBUILD_ROWS   512u /* rows that one mutation writes */
#define REBUILD_SAY_NS 5000000000u

static void rebuild_log(const char *line)
{
	log_info("ns: %s", line);
}

void (*ns_sum_say)(const char *line) = rebuild_log;

void ns_sum_set_say(void (*say)(const char *line))
{
	ns_sum_say = say;
}

struct rebuild {
	struct ns *rb_ns;
	struct ns_sum_walk rb_walk;
	size_t rb_at;
	int rb_deleted;
	int (*rb_row)(struct rebuild *rb, struct kv_txn *t, size_t at);
	size_t rb_n;
};

/* Gives each directory the sums of all below it. Each directory that has nothing to wait for adds
 * its own to its parent's; what is in a loop keeps what is in itself. */
static int add_up(struct ns_sum_walk *w)
{
	uint32_t *waits = calloc(w->w_ndirs + 1, sizeof(*waits));
	size_t *ready = calloc(w->w_ndirs + 1, sizeof(*ready)), n = 0;
	struct ns_sum_dir *d, *up;

	if (!waits || !ready) {
		free(waits);
		free(ready);
		return -ENOMEM;
	}
	for (size_t k = 0; k < w->w_ndirs; k++) {
		d = &w->w_dirs[k];
		d->dr_all = d->dr_own;
		up = d->dr_ino == NS_ROOT_INO ? NULL : ns_sum_walk_dir(w, d->dr_parent);
		if (up)
			waits[up - w->w_dirs]++;
	}
	for (size_t k = 0; k < w->w_ndirs; k++)
		if (!waits[k])
			ready[n++] = k;
	while (n) {
		d = &w->w_dirs[ready[--n]];
		up = d->dr_ino == NS_ROOT_INO ? NULL : ns_sum_walk_dir(w, d->dr_parent);
		if (!up)
			continue;
		ns_sum_plus(&up->dr_all, &d->dr_all);
		if (!--waits[up - w->w_dirs])
			ready[n++] = (size_t)(up - w->w_dirs);
	}
	free(waits);
	free(ready);
	return 0;
}

static int rebuild_forget(void *arg, struct kv_txn *t)
{
	static const uint8_t kinds[] = {NS_K_UNPUSHED, NS_K_LINK, NS_K_USER};
	struct rebuild *rb = arg;
	struct ns_super su;
	int err = ns_super_get(t, &su);

	if (err)
		return err == -ENOENT ? -EIO : err;
	rb->rb_deleted = 0;
	for (unsigned k = 0; k < sizeof(kinds) && !rb->rb_deleted; k++) {
		rb->rb_deleted = ns_prefix_del(t, ns_slice(&kinds[k], 1), REBUILD_ROWS);
		if (rb->rb_deleted < 0)
			return rb->rb_deleted;
	}
	if (!rb->rb_deleted) {
		rb->rb_deleted = ns_trash_users_del(t, REBUILD_ROWS);
		if (rb->rb_deleted < 0)
			return rb->rb_deleted;
	}
	su.su_sums = false;
	return ns_super_put(rb->rb_ns, t, &su);
}

static int rebuild_dir(struct rebuild *rb, struct kv_txn *t, size_t at)
{
	const struct ns_sum_dir *d = &rb->rb_walk.w_dirs[at];
	struct ns_sums_rec r = {.sm_version = NS_VERSION, .sm_total = ns_sum_encode(&d->dr_all)};
	struct ns_inode i;
	int err = ns_get(rb->rb_ns, t, d->dr_ino, &i);

	if (err)
		return err;
	if (!i.i_sums.s_len && ns_sum_zero(&d->dr_all))
		return 0;
	i.i_sums = ns_slice(&r, sizeof(r));
	return ns_inode_put(t, &i);
}

static int rebuild_stray(struct rebuild *rb, struct kv_txn *t, size_t at)
{
	const struct ns_sum_stray *sy = &rb->rb_walk.w_strays[at];
	struct ns_inode i;
	int err = ns_get(rb->rb_ns, t, sy->sy_ino, &i);

	if (err)
		return err;
	i.i_parent = sy->sy_dir;
	return ns_inode_put(t, &i);
}

static int rebuild_names(struct rebuild *rb, struct kv_txn *t, size_t at)
{
	const struct ns_sum_names *nm = &rb->rb_walk.w_names[at];

	return ns_link_put(t, nm->nm_ino, nm->nm_dir, nm->nm_names);
}

static int rebuild_user(struct rebuild *rb, struct kv_txn *t, size_t at)
{
	const struct ns_sum_user *u = &rb->rb_walk.w_users[at];
	int err = ns_user_put(t, u->us_uid, &u->us_sum);

	return err ? err : ns_trash_user_put(t, u->us_uid, &u->us_trash);
}

static int rebuild_some(void *arg, struct kv_txn *t)
{
	struct rebuild *rb = arg;
	int err = 0;

	for (unsigned n = 0; !err && n < REBUILD_ROWS && rb->rb_at < rb->rb_n; n++)
		err = rb->rb_row(rb, t, rb->rb_at++);
	return err;
}

static int rebuild_part(struct rebuild *rb, size_t n,
			int (*row)(struct rebuild *rb, struct kv_txn *t, size_t at))
{
	struct ns_sum_walk *w = &rb->rb_walk;
	char line[128];
	int err = 0;

	rb->rb_at = 0;
	rb->rb_n = n;
	rb->rb_row = row;
	while (!err && rb->rb_at < rb->rb_n) {
		err = kv_run_sync(rb->rb_ns->n_kv, rebuild_some, rb);
		if (!w->w_say || clock_mono_ns() < w->w_said_ns + REBUILD_SAY_NS)
			continue;
		w->w_said_ns = clock_mono_ns();
		snprintf(line, sizeof(line), "stores what is below each directory: %zu of %zu rows",
			 rb->rb_at, rb->rb_n);
		w->w_say(line);
	}
	return err;
}

static int rebuild_known(void *arg, struct kv_txn *t)
{
	struct rebuild *rb = arg;
	uint8_t k[NS_KEY_INODE];
	struct ns_super su;
	int err = ns_super_get(t, &su);

	if (err)
		return err == -ENOENT ? -EIO : err;
	/* What is below a damaged directory is counted nowhere: no sum is known for certain. */
	if (rb->rb_walk.w_damaged)
		err = kv_put(t, ns_key_ino(k, NS_K_UNPUSHED, NS_SUM_LOST), ns_slice("", 1));
	if (err)
		return err;
	su.su_sums = true;
	return ns_super_put(rb->rb_ns, t, &su);
}

static int rebuild_read(struct rebuild *rb)
{
	int err = kv_read_begin(rb->rb_ns->n_kv, &rb->rb_walk.w_txn);

	if (err)
		return err;
	err = ns_sum_walk(&rb->rb_walk);
	kv_read_end(rb->rb_walk.w_txn);
	return err ? err : add_up(&rb->rb_walk);
}

int ns_sum_rebuild(struct ns *ns, void (*say)(const char *line))
{
	struct rebuild rb = {.rb_ns = ns, .rb_walk = {.w_say = say}};
	struct ns_sum_walk *w = &rb.rb_walk;
	int err;

	do
		err = kv_run_sync(ns->n_kv, rebuild_forget, &rb);
	while (!err && rb.rb_deleted);
	if (!err)
		err = rebuild_read(&rb);
	if (!err)
		err = rebuild_part(&rb, w->w_ndirs, rebuild_dir);
	if (!err)
		err = rebuild_part(&rb, w->w_nstrays, rebuild_stray);
	if (!err)
		err = rebuild_part(&rb, w->w_nnames, rebuild_names);
	if (!err)
		err = rebuild_part(&rb, w->w_nusers, rebuild_user);
	if (!err)
		err = kv_run_sync(ns->n_kv, rebuild_known, &rb);
	ns_sum_walk_free(w);
	if (err)
		return err;
	ns->n_super.su_sums = true;
	atomic_store(&ns->n_unpushed, w->w_damaged != 0);
	return 0;
}

static int rebuild_super(struct ns *ns)
{
	struct kv_slice val;
	struct kv_txn *t;
	uint64_t inodes;
	int err = kv_read_begin(ns->n_kv, &t);

	if (err)
		return err;
	err = kv_get(t, ns_slice("S", 1), &val);
	if (!err)
		err = ns_super_decode(val, &ns->n_super, &inodes);
	kv_read_end(t);
	if (!err)
		atomic_store(&ns->n_inodes, inodes);
	return err;
}

/* ns_open would begin another boot, which is for the server to do. */
int ns_sum_rebuild_store(struct kv *kv, void (*say)(const char *line))
{
	struct ns *ns = calloc(1, sizeof(*ns));
	int err;

	if (!ns)
		return -ENOMEM;
	ns->n_kv = kv;
	err = rebuild_super(ns);
	if (!err)
		err = ns_sum_rebuild(ns, say);
	sodium_memzero(&ns->n_super, sizeof(ns->n_super));
	free(ns);
	return err;
}
