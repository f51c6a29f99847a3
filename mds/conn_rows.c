/* SPDX-License-Identifier: Apache-2.0 */
/* conn_rows.c - see conn_rows.h. */
#include "mds/conn_rows.h"
#include "base/hash.h"
#include "mds/namespace/ns.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CONN_STEP    1024u /* rows of a mutation */
#define CONN_BUCKETS 8192u

/* A connection may be closed after its successor with the same addresses and ports was opened: they
 * are counted. */
struct conn {
	struct conn_id c_id;
	unsigned c_refs;
	bool c_stored, c_dirty;
	struct conn *c_next, *c_dirty_next;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct conn *buckets[CONN_BUCKETS];
static unsigned nconns;
static struct conn *dirty;

static struct conn **conn_find(const struct conn_id *id)
{
	struct conn **at = &buckets[hash_bytes(id, sizeof(*id)) % CONN_BUCKETS];

	while (*at && memcmp(&(*at)->c_id, id, sizeof(*id)) != 0)
		at = &(*at)->c_next;
	return at;
}

static void conn_changed(struct conn *c)
{
	if (c->c_dirty)
		return;
	c->c_dirty = true;
	c->c_dirty_next = dirty;
	dirty = c;
}

void conn_rows_opened(const struct conn_id *id)
{
	struct conn **at, *c;

	pthread_mutex_lock(&lock);
	at = conn_find(id);
	if (!*at && nconns < CONN_ROWS_MAX && (c = calloc(1, sizeof(*c))) != NULL) {
		c->c_id = *id;
		*at = c;
		nconns++;
	}
	if (*at) {
		(*at)->c_refs++;
		conn_changed(*at);
	}
	pthread_mutex_unlock(&lock);
}

void conn_rows_closed(const struct conn_id *id)
{
	struct conn *c;

	pthread_mutex_lock(&lock);
	c = *conn_find(id);
	/* One that came when there was no room is not there. */
	if (c && c->c_refs && !--c->c_refs)
		conn_changed(c);
	pthread_mutex_unlock(&lock);
}

/* ---- the store ---- */

struct change {
	struct conn *ch_conn;
	struct conn_id ch_id;
	bool ch_put;
};
struct step {
	struct change s_change[CONN_STEP];
	size_t s_n;
};

/* On a full disk the first write decides (kv.h): what adds comes first. */
static int conn_rows_step_run(void *arg, struct kv_txn *t)
{
	static const uint8_t version = CONN_VERSION;
	struct step *s = arg;
	int rc = 0;

	for (size_t i = 0; i < s->s_n && !rc; i++)
		if (s->s_change[i].ch_put)
			rc = ns_row_put(t, NS_T_CONN, &s->s_change[i].ch_id, sizeof(struct conn_id),
					&version, 1);
	for (size_t i = 0; i < s->s_n && !rc; i++)
		if (!s->s_change[i].ch_put)
			rc = ns_row_del(t, NS_T_CONN, &s->s_change[i].ch_id,
					sizeof(struct conn_id));
	return rc;
}

/* Takes changes that are due. They stay in the table until they are in the store. */
static void conn_rows_step_take(struct step *s)
{
	s->s_n = 0;
	pthread_mutex_lock(&lock);
	while (dirty && s->s_n < CONN_STEP) {
		struct conn *c = dirty;

		dirty = c->c_dirty_next;
		c->c_dirty = false;
		if (c->c_stored != (c->c_refs > 0))
			s->s_change[s->s_n++] = (struct change){c, c->c_id, c->c_refs > 0};
		else if (!c->c_refs) {
			/* came and went in between */
			*conn_find(&c->c_id) = c->c_next;
			nconns--;
			free(c);
		}
	}
	pthread_mutex_unlock(&lock);
}

static void conn_rows_step_done(struct step *s, bool stored)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < s->s_n; i++) {
		struct conn *c = s->s_change[i].ch_conn;

		if (stored)
			c->c_stored = s->s_change[i].ch_put;
		/* Goes from the table, or changed again meanwhile, or is to be tried again. */
		if (!c->c_refs || c->c_stored != (c->c_refs > 0))
			conn_changed(c);
	}
	pthread_mutex_unlock(&lock);
}

int conn_rows_flush(struct kv *kv)
{
	struct step *s = malloc(sizeof(*s));
	int rc = s ? 0 : -ENOMEM;

	while (!rc) {
		conn_rows_step_take(s);
		if (!s->s_n)
			break;
		rc = kv_run_sync(kv, conn_rows_step_run, s);
		conn_rows_step_done(s, !rc);
	}
	free(s);
	return rc;
}

struct reading {
	struct conn_id *r_ids;
	size_t r_n, r_room;
};

static int conn_rows_row_read(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct reading *r = arg;

	/* weft-fsck names what is damaged. */
	if (!conn_row_ok(id, val))
		return 0;
	if (r->r_n == r->r_room) {
		size_t room = r->r_room ? 2 * r->r_room : 256;
		struct conn_id *more = realloc(r->r_ids, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		r->r_ids = more;
		r->r_room = room;
	}
	memcpy(&r->r_ids[r->r_n++], id.s_data, sizeof(*r->r_ids));
	return 0;
}

int conn_rows_read(struct kv *kv, struct conn_id **out, size_t *n)
{
	struct reading r = {NULL, 0, 0};
	struct kv_txn *t;
	int rc = kv_read_begin(kv, &t);

	if (rc)
		return rc;
	rc = ns_rows(t, NS_T_CONN, NULL, 0, conn_rows_row_read, &r);
	kv_read_end(t);
	if (rc < 0) {
		free(r.r_ids);
		return rc;
	}
	*out = r.r_ids;
	*n = r.r_n;
	return 0;
}

int conn_rows_forget(struct kv *kv, const struct conn_id *ids, size_t n)
{
	struct step *s = malloc(sizeof(*s));
	int rc = s ? 0 : -ENOMEM;

	for (size_t done = 0; done < n && !rc; done += s->s_n) {
		s->s_n = n - done < CONN_STEP ? n - done : CONN_STEP;
		for (size_t i = 0; i < s->s_n; i++)
			s->s_change[i] = (struct change){NULL, ids[done + i], false};
		rc = kv_run_sync(kv, conn_rows_step_run, s);
	}
	free(s);
	/* A peer that connected again from the same port: its row went with the former one's. */
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n; i++) {
		struct conn *c = *conn_find(&ids[i]);

		if (c && c->c_stored) {
			c->c_stored = false;
			conn_changed(c);
		}
	}
	pthread_mutex_unlock(&lock);
	return rc;
}
