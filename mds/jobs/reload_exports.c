/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reload_exports.c - after a reload of the exports: layouts and delegations that were given under
 * an export that is another one now come back.
 *
 * Each request is checked against the exports in force when it comes, so most of a reload needs
 * nothing more. Layouts and delegations are checked when they are given. If their export is gone,
 * or has changed for any client, they are recalled. The layout's file is fenced in any case before
 * the recall ends: a client that lost its access cannot use a capability. A client that still has
 * access asks again. Layouts that were returned before left capabilities behind: revoke_exports.c
 * revokes those in the background.
 */
#include "mds/jobs/reload_exports.h"
#include "base/log.h"
#include "mds/file/exclusive.h"
#include "mds/jobs/revoke_exports.h"
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 64u /* files in progress */

struct reload {
	struct loop_msg msg;
	const struct exp_table *old, *now; /* until the files are collected */
	job_export_of *of;
	struct mds *m;
	struct loop *loop;
	uint64_t *ino;
	size_t n, next;
	unsigned busy;
};

static bool changed(const struct reload *r, const uint8_t *fh, uint32_t len)
{
	uint16_t export = r->of(fh, len);
	const struct exp *a = exp_by_id(r->old, export), *b = exp_by_id(r->now, export);

	return !a || !b || !exp_same(a, b);
}

static int reload_order(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* locked */
static void recall_delegations(struct st *st, const struct reload *r)
{
	st_each(st, ST_OPEN, l)
	{
		struct st_open *o = hash_entry(l, struct st_open, o_link);

		if (o->o_deleg && changed(r, o->o_deleg->dg_fh, o->o_deleg->dg_fhlen))
			st_deleg_recall(st, o);
	}
}

/* Collects the files with layouts whose export has changed. */
static void reload_collect(struct reload *r)
{
	struct st *st = r->m->m_st;
	size_t n = 0;

	st_all_lock(st);
	recall_delegations(st, r);
	r->ino = calloc(st_states(st) + 1, sizeof(*r->ino));
	if (!r->ino)
		log_fatal("out of memory while recalling layouts after a reload of the exports");
	st_each(st, ST_LAYOUT, l)
	{
		const struct st_layout *y = hash_entry(l, struct st_layout, l_link);

		if (changed(r, y->l_fh, y->l_fhlen))
			r->ino[n++] = y->l_file->f_ino;
	}
	st_all_unlock(st);
	qsort(r->ino, n, sizeof(*r->ino), reload_order);
	for (size_t i = 0; i < n; i++) {
		if (!r->n || r->ino[r->n - 1] != r->ino[i])
			r->ino[r->n++] = r->ino[i];
	}
}

static void reload_go(struct reload *r);

static void taken_back(void *arg, int err)
{
	struct reload *r = arg;

	if (err)
		log_warn("a data server did not confirm the fence of a layout from before the "
			 "reload of the exports: %s",
			 strerror(-err));
	r->busy--;
	reload_go(r);
}

static void reload_go(struct reload *r)
{
	while (r->next < r->n && r->busy < AT_ONCE) {
		r->busy++;
		excl_recall_and_fence_all(&r->m->m_file, r->loop, r->ino[r->next++], taken_back, r);
	}
	if (r->busy || r->next < r->n)
		return;
	free(r->ino);
	free(r);
}

static void reload_start(struct loop_msg *m)
{
	reload_go(hash_entry(m, struct reload, msg));
}

uint64_t job_exports_changed(struct mds *m, struct loop *loop, const struct exp_table *old,
			     const struct exp_table *now, job_export_of *of)
{
	struct reload *r = calloc(1, sizeof(*r));

	if (!r)
		log_fatal("out of memory while recalling layouts after a reload of the exports");
	r->m = m;
	r->loop = loop;
	r->old = old;
	r->now = now;
	r->of = of;
	reload_collect(r);
	if (r->n)
		log_info("recalling the layouts of %zu files: their exports have changed", r->n);
	r->msg.m_run = reload_start;
	loop_post(loop, &r->msg);
	return job_revocation_look_again(m);
}
