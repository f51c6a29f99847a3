/* SPDX-License-Identifier: Apache-2.0 */
/* tag.c - see tag.h. */
#include "mds/jobs/tag.h"
#include "base/log.h"
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define TAG_VERSION 1

/* A row; the key is the tag's name, a NUL, and the text that names a client. */
struct tag_rec {
	uint8_t tg_version;
	uint64_t tg_made; /* seconds of the epoch */
} __attribute__((packed));
_Static_assert(sizeof(struct tag_rec) == 9, "tag, version 1");

struct tag {
	char t_name[TAG_NAME_MAX + 1]; /* "": the place is free */
	uint64_t t_made_s, t_since_s;
	uint64_t t_base[3]; /* what the threads had counted in this place when the tag was made */
};

struct named {
	char *nm_client;
	unsigned nm_slot;
};

struct job_tags {
	/* The table changes under both locks, tg_change first. So an answer reads it under
	 * tg_change alone, however long that takes, and requests that count wait for tg_lock. */
	pthread_mutex_t tg_change, tg_lock;
	struct tag tg_tag[MDS_TAG_SLOTS]; /* [0] is no tag */
	struct named *tg_named;		  /* sorted by text; each text once */
	size_t tg_n;
	unsigned tg_last;		/* the place that was given last */
	_Atomic uint32_t tg_generation; /* rises with each change; 0: there was never a tag */
};

static uint64_t tag_now_s(void)
{
	return (uint64_t)time(NULL);
}

bool job_tag_name_ok(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-");

	return n && !s[n] && n <= TAG_NAME_MAX;
}

static bool text_ok(const char *s)
{
	return *s && strlen(s) <= TAG_CLIENT_MAX;
}

/* ---- the table; one of both locks is held, or the thread is the only one that changes it ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->nm_client, ((const struct named *)b)->nm_client);
}

static unsigned with_text(const struct job_tags *tg, const char *text)
{
	struct named key = {.nm_client = (char *)text}, *found;

	found = tg->tg_n ? bsearch(&key, tg->tg_named, tg->tg_n, sizeof(key), by_text) : NULL;
	return found ? found->nm_slot : 0;
}

static unsigned slot_named(const struct job_tags *tg, const char *name)
{
	for (unsigned s = 1; s < MDS_TAG_SLOTS; s++)
		if (!strcmp(tg->tg_tag[s].t_name, name))
			return s;
	return 0;
}

/* Places are given in turn, so that one is used again as late as possible. */
static unsigned tag_slot_free(const struct job_tags *tg)
{
	for (unsigned k = 0; k < TAGS_MOST; k++) {
		unsigned s = 1 + (tg->tg_last + k) % TAGS_MOST;

		if (!*tg->tg_tag[s].t_name)
			return s;
	}
	return 0;
}

static void slot_sums(const struct mds *m, unsigned slot, uint64_t sum[3])
{
	memset(sum, 0, 3 * sizeof(*sum));
	for (unsigned t = 0; t < m->m_nthreads; t++)
		for (unsigned i = 0; i < 3; i++)
			sum[i] += atomic_load_explicit(&m->m_thread[t].mt_tag[slot][i],
						       memory_order_relaxed);
}

static void slot_take(struct mds *m, unsigned slot, const char *name, uint64_t made_s)
{
	struct tag *t = &m->m_tags->tg_tag[slot];

	*t = (struct tag){.t_made_s = made_s, .t_since_s = tag_now_s()};
	snprintf(t->t_name, sizeof(t->t_name), "%s", name);
	slot_sums(m, slot, t->t_base);
	m->m_tags->tg_last = slot;
}

/* ---- rows ---- */

static size_t row_id(char id[TAG_NAME_MAX + TAG_CLIENT_MAX + 2], const char *name,
		     const char *client)
{
	size_t n = strlen(name) + 1, len = strlen(client);

	memcpy(id, name, n);
	memcpy(id + n, client, len);
	return n + len;
}

int job_tag_decode(struct kv_slice id, struct kv_slice val, struct job_tag_row *r)
{
	const char *p = id.s_data, *nul = memchr(p, 0, id.s_len);
	size_t name = nul ? (size_t)(nul - p) : 0, client = nul ? id.s_len - name - 1 : 0;
	struct tag_rec rec;

	if (!name || name > TAG_NAME_MAX || !client || client > TAG_CLIENT_MAX ||
	    memchr(nul + 1, 0, client) || val.s_len != sizeof(rec))
		return -EIO;
	memcpy(&rec, val.s_data, sizeof(rec));
	memcpy(r->jr_name, p, name + 1);
	memcpy(r->jr_client, nul + 1, client);
	r->jr_client[client] = 0;
	r->jr_made_s = le64toh(rec.tg_made);
	return rec.tg_version == TAG_VERSION && job_tag_name_ok(r->jr_name) ? 0 : -EIO;
}

struct reading {
	struct mds *rd_m;
	size_t rd_room;
	int rd_err;
};

static int tag_row_read(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct reading *rd = arg;
	struct job_tags *tg = rd->rd_m->m_tags;
	struct job_tag_row r;
	unsigned slot;

	if (job_tag_decode(id, val, &r)) {
		log_warn("the record of a tag is damaged: a client lacks its tag");
		return 0;
	}
	slot = slot_named(tg, r.jr_name);
	if (!slot) {
		slot = tag_slot_free(tg);
		if (!slot)
			return 1;
		slot_take(rd->rd_m, slot, r.jr_name, r.jr_made_s);
	}
	if (r.jr_made_s < tg->tg_tag[slot].t_made_s)
		tg->tg_tag[slot].t_made_s = r.jr_made_s;
	if (tg->tg_n == rd->rd_room) {
		size_t room = rd->rd_room ? 2 * rd->rd_room : 64;
		struct named *more = realloc(tg->tg_named, room * sizeof(*more));

		if (!more) {
			rd->rd_err = -ENOMEM;
			return 1;
		}
		tg->tg_named = more;
		rd->rd_room = room;
	}
	tg->tg_named[tg->tg_n] = (struct named){strdup(r.jr_client), slot};
	if (!tg->tg_named[tg->tg_n].nm_client) {
		rd->rd_err = -ENOMEM;
		return 1;
	}
	tg->tg_n++;
	return 0;
}

int job_tags_open(struct mds *m)
{
	struct reading rd = {.rd_m = m};
	struct kv_txn *t;
	int err;

	m->m_tags = calloc(1, sizeof(*m->m_tags));
	if (!m->m_tags)
		return -ENOMEM;
	pthread_mutex_init(&m->m_tags->tg_lock, NULL);
	pthread_mutex_init(&m->m_tags->tg_change, NULL);
	err = kv_read_begin(m->m_kv, &t);
	if (err)
		return err;
	err = ns_rows(t, NS_T_TAG, NULL, 0, tag_row_read, &rd);
	kv_read_end(t);
	if (m->m_tags->tg_n) {
		/* The rows come by tag. */
		qsort(m->m_tags->tg_named, m->m_tags->tg_n, sizeof(struct named), by_text);
		atomic_store(&m->m_tags->tg_generation, 1);
	}
	return err < 0 ? err : rd.rd_err;
}

/* ---- counting ---- */

static void put_text(struct job_tag_texts *t, size_t *at, const void *text, size_t len)
{
	if (!len || len > TAG_CLIENT_MAX || memchr(text, 0, len))
		return;
	memcpy(t->jt_buf + *at, text, len);
	t->jt_buf[*at + len] = 0;
	t->jt_text[t->jt_n++] = t->jt_buf + *at;
	*at += len + 1;
}

static void tag_put_addr(struct job_tag_texts *t, size_t *at, const uint8_t addr[16])
{
	char text[ST_ADDR_TEXT];

	st_addr_text(addr, text);
	put_text(t, at, text, strlen(text));
}

void job_tag_texts(const struct st_client_view *v, struct job_tag_texts *t)
{
	uint32_t len;
	const uint8_t *name = st_owner_name(v->cv_owner, v->cv_owner_len, &len);
	size_t at = 0;

	t->jt_n = 0;
	put_text(t, &at, v->cv_owner, v->cv_owner_len);
	put_text(t, &at, name, len);
	for (unsigned i = 0; i < v->cv_naddrs; i++)
		tag_put_addr(t, &at, v->cv_addr[i]);
}

unsigned job_tag_with(struct mds *m, const char *text)
{
	unsigned slot;

	pthread_mutex_lock(&m->m_tags->tg_lock);
	slot = with_text(m->m_tags, text);
	pthread_mutex_unlock(&m->m_tags->tg_lock);
	return slot;
}

/* The client's tag is not known, or tags were changed since. The names of a client and its sessions
 * do not change under the lock, and a session that comes later forgets the tag again. */
static unsigned tag_look(struct mds *m, struct st_client *c)
{
	struct job_tags *tg = m->m_tags;
	struct st_client_view v;
	struct job_tag_texts t;
	unsigned slot = 0;

	st_look_lock(m->m_st);
	st_client_names(c, &v);
	job_tag_texts(&v, &t);
	pthread_mutex_lock(&tg->tg_lock);
	for (unsigned i = 0; i < t.jt_n && !slot; i++)
		slot = with_text(tg, t.jt_text[i]);
	atomic_store(&c->cl_tag, (uint64_t)atomic_load(&tg->tg_generation) << 8 | slot);
	pthread_mutex_unlock(&tg->tg_lock);
	st_look_unlock(m->m_st);
	return slot;
}

unsigned job_tag_of(struct mds *m, struct st_client *c)
{
	const struct job_tags *tg = m->m_tags;
	uint32_t now = tg ? atomic_load_explicit(&tg->tg_generation, memory_order_acquire) : 0;
	uint64_t seen = atomic_load_explicit(&c->cl_tag, memory_order_relaxed);

	if (seen >> 8 == now)
		return (unsigned)(seen & 0xff);
	return tag_look(m, c);
}

static void sum_more(_Atomic uint64_t *sum, uint64_t n)
{
	if (n)
		atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + n,
				      memory_order_relaxed);
}

void job_tag_count(struct mds_thread *th, unsigned slot, uint64_t ops, uint64_t read,
		   uint64_t written)
{
	sum_more(&th->mt_tag[slot][0], ops);
	sum_more(&th->mt_tag[slot][1], read);
	sum_more(&th->mt_tag[slot][2], written);
}

/* ---- looking ---- */

bool job_tag_name(struct mds *m, unsigned slot, char name[TAG_NAME_MAX + 1])
{
	pthread_mutex_lock(&m->m_tags->tg_lock);
	strcpy(name, slot && slot < MDS_TAG_SLOTS ? m->m_tags->tg_tag[slot].t_name : "");
	pthread_mutex_unlock(&m->m_tags->tg_lock);
	return *name;
}

static int slots_by_name(const void *a, const void *b, void *arg)
{
	const struct tag *t = arg;

	return strcmp(t[*(const unsigned *)a].t_name, t[*(const unsigned *)b].t_name);
}

void job_tags_each(struct mds *m, void (*fn)(void *arg, const struct job_tag_view *v), void *arg)
{
	struct job_tags *tg = m->m_tags;
	unsigned slots[MDS_TAG_SLOTS], n = 0;
	const char **texts;

	pthread_mutex_lock(&tg->tg_change);
	texts = malloc((tg->tg_n + 1) * sizeof(*texts));
	for (unsigned s = 1; s < MDS_TAG_SLOTS; s++)
		if (*tg->tg_tag[s].t_name)
			slots[n++] = s;
	qsort_r(slots, n, sizeof(*slots), slots_by_name, tg->tg_tag);
	for (unsigned k = 0; texts && k < n; k++) {
		const struct tag *t = &tg->tg_tag[slots[k]];
		struct job_tag_view v = {.jv_name = t->t_name,
					 .jv_slot = slots[k],
					 .jv_made_s = t->t_made_s,
					 .jv_since_s = t->t_since_s,
					 .jv_client = texts};

		for (size_t i = 0; i < tg->tg_n; i++)
			if (tg->tg_named[i].nm_slot == slots[k])
				texts[v.jv_n++] = tg->tg_named[i].nm_client;
		slot_sums(m, slots[k], v.jv_sum);
		for (unsigned i = 0; i < 3; i++)
			v.jv_sum[i] -= t->t_base[i];
		fn(arg, &v);
	}
	pthread_mutex_unlock(&tg->tg_change);
	free(texts);
}

/* ---- changes ---- */

struct change {
	const char *ch_name;
	const char *const *ch_client;
	size_t ch_n;
	bool ch_out;
	uint64_t ch_made_s;
};

static int change_run(void *arg, struct kv_txn *t)
{
	const struct change *ch = arg;
	struct tag_rec rec = {TAG_VERSION, htole64(ch->ch_made_s)};
	char id[TAG_NAME_MAX + TAG_CLIENT_MAX + 2];
	int err = 0;

	for (size_t i = 0; i < ch->ch_n && !err; i++) {
		size_t n = row_id(id, ch->ch_name, ch->ch_client[i]);

		err = ch->ch_out ? ns_row_del(t, NS_T_TAG, id, n)
				 : ns_row_put(t, NS_T_TAG, id, n, &rec, sizeof(rec));
	}
	return err;
}

/* What is stored counts from now on. now: the new table; what it no longer has was freed. */
static void take_over(struct job_tags *tg, struct named *now, size_t n)
{
	free(tg->tg_named);
	tg->tg_named = now;
	tg->tg_n = n;
	atomic_fetch_add(&tg->tg_generation, 1);
}

/* Fills in those texts that the tag does not have yet. Returns how many, or -errno. */
static ssize_t texts_new(const struct job_tags *tg, unsigned slot, const char *const *client,
			 size_t n, struct named *out, size_t *bad)
{
	size_t more = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned has = with_text(tg, client[i]);

		*bad = i;
		if (!text_ok(client[i]))
			return -EINVAL;
		if (has && has != slot)
			return -EEXIST;
		if (!has)
			out[more++] = (struct named){.nm_client = (char *)client[i]};
	}
	qsort(out, more, sizeof(*out), by_text);
	n = more;
	more = 0;
	for (size_t i = 0; i < n; i++)
		if (!more || by_text(&out[more - 1], &out[i]))
			out[more++] = out[i];
	return (ssize_t)more;
}

/* Makes room for n more texts, and copies of them. NULL: no memory. */
static struct named *table_with(const struct job_tags *tg, struct named *more, size_t n,
				unsigned slot)
{
	struct named *now = calloc(tg->tg_n + n + 1, sizeof(*now));

	if (!now)
		return NULL;
	if (tg->tg_n)
		memcpy(now, tg->tg_named, tg->tg_n * sizeof(*now));
	for (size_t i = 0; i < n; i++) {
		char *text = strdup(more[i].nm_client);

		if (!text) {
			while (i--)
				free(now[tg->tg_n + i].nm_client);
			free(now);
			return NULL;
		}
		now[tg->tg_n + i] = (struct named){text, slot};
	}
	qsort(now, tg->tg_n + n, sizeof(*now), by_text);
	return now;
}

static int tag_add_new(struct mds *m, const char *name, unsigned slot, struct named *more, size_t n)
{
	struct job_tags *tg = m->m_tags;
	bool fresh = !*tg->tg_tag[slot].t_name;
	const char **texts = calloc(n, sizeof(*texts));
	struct named *now = table_with(tg, more, n, slot);
	struct change ch = {name, texts, n, false, tag_now_s()};
	int err = texts && now ? 0 : -ENOMEM;

	for (size_t i = 0; texts && i < n; i++)
		texts[i] = more[i].nm_client;
	if (!err)
		err = kv_run_sync(m->m_kv, change_run, &ch);
	free(texts);
	if (err) {
		for (size_t i = 0; now && i < tg->tg_n + n; i++)
			if (now[i].nm_slot == slot && !with_text(tg, now[i].nm_client))
				free(now[i].nm_client);
		free(now);
		return err;
	}
	pthread_mutex_lock(&tg->tg_change);
	pthread_mutex_lock(&tg->tg_lock);
	if (fresh)
		slot_take(m, slot, name, ch.ch_made_s);
	take_over(tg, now, tg->tg_n + n);
	pthread_mutex_unlock(&tg->tg_lock);
	pthread_mutex_unlock(&tg->tg_change);
	return 0;
}

int job_tag_add(struct mds *m, const char *name, const char *const *client, size_t n, size_t *bad)
{
	struct job_tags *tg = m->m_tags;
	unsigned slot = slot_named(tg, name);
	struct named *more;
	ssize_t k;
	int err = 0;

	*bad = 0;
	if (!job_tag_name_ok(name) || !n)
		return -EINVAL;
	if (n > TAG_CLIENTS_MOST)
		return -E2BIG;
	more = calloc(n, sizeof(*more));
	if (!more)
		return -ENOMEM;
	k = texts_new(tg, slot, client, n, more, bad);
	if (!slot)
		slot = tag_slot_free(tg);
	if (k < 0)
		err = (int)k;
	else if (!slot)
		err = -ENOSPC;
	else if (tg->tg_n + (size_t)k > TAG_CLIENTS_MOST)
		err = -E2BIG;
	else if (k)
		err = tag_add_new(m, name, slot, more, (size_t)k);
	free(more);
	return err;
}

int job_tag_del(struct mds *m, const char *name, const char *client)
{
	struct job_tags *tg = m->m_tags;
	unsigned slot = slot_named(tg, name);
	const char **out = calloc(tg->tg_n + 1, sizeof(*out));
	struct named *now = calloc(tg->tg_n + 1, sizeof(*now));
	struct change ch = {.ch_name = name, .ch_client = out, .ch_out = true};
	size_t n = 0, left = 0;
	int err = out && now ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < tg->tg_n; i++) {
		const struct named *nm = &tg->tg_named[i];

		if (nm->nm_slot == slot && (!client || !strcmp(nm->nm_client, client)))
			out[ch.ch_n++] = nm->nm_client;
		else
			now[n++] = *nm;
		left += nm->nm_slot == slot;
	}
	if (!err && !ch.ch_n)
		err = -ENOENT;
	if (!err)
		err = kv_run_sync(m->m_kv, change_run, &ch);
	if (!err) {
		pthread_mutex_lock(&tg->tg_change);
		pthread_mutex_lock(&tg->tg_lock);
		if (left == ch.ch_n)
			*tg->tg_tag[slot].t_name = 0;
		take_over(tg, now, n);
		pthread_mutex_unlock(&tg->tg_lock);
		for (size_t i = 0; i < ch.ch_n; i++)
			free((char *)out[i]);
		pthread_mutex_unlock(&tg->tg_change);
		now = NULL;
	}
	free(out);
	free(now);
	return err;
}
