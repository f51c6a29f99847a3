/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tag.h - tags (docs/tags.md): names that the administrator gives to clients that work on one
 * compute job, so that what they do is counted under one name. They have nothing to do with the
 * list of the server's own jobs (job.h).
 *
 * A tag names clients by texts: a client's whole owner, the name in it, or an address from which
 * the client made a session. A text belongs to one tag. Rows NS_T_TAG (docs/schema.md); all of them
 * are in memory as well. Each client remembers its tag (cl_tag), so that a request costs two loads.
 */
#ifndef MDS_JOBS_TAG_H
#define MDS_JOBS_TAG_H
#include "mds/mds.h"
#include "mds/state/st_view.h"

#define TAGS_MOST	 (MDS_TAG_SLOTS - 1u)
#define TAG_CLIENTS_MOST 16384u /* texts, of all tags */
#define TAG_NAME_MAX	 64u
#define TAG_CLIENT_MAX	 255u

/* Reads the stored tags. 0 or -errno. */
int job_tags_open(struct mds *m);

/* On the thread's loop, without a lock on state. Returns the place of the client's tag in
 * mds_thread.mt_tag; 0: it has none. */
unsigned job_tag_of(struct mds *m, struct st_client *c);
/* The same, as of that call. */
static inline unsigned job_tag_seen(struct st_client *c)
{
	return (unsigned)(atomic_load_explicit(&c->cl_tag, memory_order_relaxed) & 0xff);
}
/* Counts for the tag in that place: operations, bytes read, bytes written. */
void job_tag_count(struct mds_thread *th, unsigned slot, uint64_t ops, uint64_t read,
		   uint64_t written);

/* Any thread from here on. What was given is valid during the call of fn. Requests that count do
 * not wait for fn; a change of tags does. fn makes none. */
struct job_tag_view {
	const char *jv_name;
	unsigned jv_slot;
	uint64_t jv_made_s; /* when the first of its clients was named; s of CLOCK_REALTIME */
	/* Operations, bytes read and bytes written since jv_since_s: since it was made, or since
	 * the start of the server. */
	uint64_t jv_since_s, jv_sum[3];
	const char *const *jv_client; /* texts, sorted */
	size_t jv_n;
};
void job_tags_each(struct mds *m, void (*fn)(void *arg, const struct job_tag_view *v), void *arg);
/* The name of the tag in that place; false: there is none. */
bool job_tag_name(struct mds *m, unsigned slot, char name[TAG_NAME_MAX + 1]);
bool job_tag_name_ok(const char *name);

/* The texts by which tags may name a client. The strings are in jt_buf. */
struct job_tag_texts {
	unsigned jt_n;
	const char
		*jt_text[2 + ST_VIEW_ADDRS]; /* owner and name (if they have no NUL), addresses */
	char jt_buf[2 * (TAG_CLIENT_MAX + 1) + ST_VIEW_ADDRS * 48];
};
void job_tag_texts(const struct st_client_view *v, struct job_tag_texts *t);
/* Returns the place of the tag that has the text; 0: none has. */
unsigned job_tag_with(struct mds *m, const char *text);

/* One at a time (the HTTP thread): each blocks until it is durable. 0; -EINVAL: a name or text that
 * cannot be; -EEXIST: another tag has a text, whose number is in *bad; -ENOSPC: too many tags;
 * -E2BIG: too many texts; or another -errno. */
int job_tag_add(struct mds *m, const char *name, const char *const *client, size_t n, size_t *bad);
/* client NULL: takes all of them out. A tag without clients is gone. -ENOENT: no such tag, or it
 * lacks the text. */
int job_tag_del(struct mds *m, const char *name, const char *client);

/* Decodes a row. The texts point to buf. 0 or -EIO. */
struct job_tag_row {
	uint64_t jr_made_s;
	char jr_name[TAG_NAME_MAX + 1], jr_client[TAG_CLIENT_MAX + 1];
};
int job_tag_decode(struct kv_slice id, struct kv_slice val, struct job_tag_row *r);
#endif
