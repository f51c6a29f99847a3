/* SPDX-License-Identifier: Apache-2.0 */
/* partial_write.c - partial writes: writes through the metadata server that only some copies of a
 * file have. The client is expected to repeat them. */
#include "mds/state/st.h"

#define HALVES_MAX 64 /* per client */

static void unlink_half(struct st *st, struct st_client *c, struct st_partial **at)
{
	struct st_partial *h = *at;

	st_must_have_all();
	*at = h->hf_next;
	atomic_fetch_sub(&c->cl_npartials, 1);
	h->hf_file->f_npartials--;
	st_file_put(st, h->hf_file);
	free(h);
}

bool st_partial_note(struct st *st, struct st_client *c, uint64_t ino, uint64_t off, uint64_t end)
{
	struct st_file *f;
	struct st_partial *h;

	st_must_have_all();
	if (c->cl_dead)
		return false;
	for (h = c->cl_partials; h; h = h->hf_next)
		if (h->hf_file->f_ino == ino && h->hf_off <= off && end <= h->hf_end)
			return true;
	f = c->cl_npartials < HALVES_MAX ? st_file_get(st, ino, true) : NULL;
	h = f ? calloc(1, sizeof(*h)) : NULL;
	if (!h) {
		if (f)
			st_file_put(st, f);
		return false;
	}
	*h = (struct st_partial){
		.hf_next = c->cl_partials, .hf_file = f, .hf_off = off, .hf_end = end};
	c->cl_partials = h;
	atomic_fetch_add(&c->cl_npartials, 1);
	f->f_npartials++;
	return true;
}

void st_partial_over(struct st *st, struct st_client *c, uint64_t ino, uint64_t off, uint64_t end)
{
	for (struct st_partial **p = &c->cl_partials; *p;) {
		if ((*p)->hf_file->f_ino == ino && off <= (*p)->hf_off && (*p)->hf_end <= end)
			unlink_half(st, c, p);
		else
			p = &(*p)->hf_next;
	}
}

void st_partial_lost(struct st *st, struct st_client *c, struct st_file *f)
{
	for (struct st_partial **p = &c->cl_partials; *p;) {
		if (f && (*p)->hf_file != f) {
			p = &(*p)->hf_next;
			continue;
		}
		st_file_suspect((*p)->hf_file); /* this keeps the file in memory */
		st->st_judge = true;
		unlink_half(st, c, p);
	}
}
