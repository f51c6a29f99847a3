/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub_row.c - what a scrub keeps in the store: rows NS_T_SCRUB. The first byte of a key gives the
 * kind of row: 0, the state, one row; 1 and a number (be32), a finding; 2, an object that was seen
 * once: its server, inode, incarnation, stripe, copy (be32, be64, be16, a byte each).
 */
#include "mds/jobs/scrub_int.h"
#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#define SCRUB_VERSION 1

enum { ROW_STATE = 0, ROW_FOUND = 1, ROW_FIRST = 2 };
enum {
	S_RUNNING = 1,
	S_STOPPED = 2,
	S_CONTENT = 4,
	S_DRY = 8,
	S_OLD = 16,
	S_SKIM = 32,
	S_NEWER = 64,
	S_ALL = 127
};
#define NUMBERS 14

struct state_rec {
	uint8_t str_version, str_flags, str_phase, str_ncookie;
	uint32_t str_ds;
	uint64_t str_number[NUMBERS], str_count[JOB_SCRUB_KINDS];
	uint8_t str_cookie[64];
} __attribute__((packed));
_Static_assert(JOB_SCRUB_KINDS == 13 && JOB_SCRUB_PHASES == 5 && JOB_SCRUB_DONES == 3,
	       "they are stored");
_Static_assert(sizeof(struct state_rec) == 8 + 27 * 8 + 64, "state of a scrub, version 1");

struct found_rec {
	uint8_t fre_version, fre_kind, fre_done, fre_stripe, fre_copy, fre_zero;
	uint16_t fre_incarnation;
	uint32_t fre_ds;
	uint64_t fre_ino, fre_size, fre_want;
} __attribute__((packed));
_Static_assert(sizeof(struct found_rec) == 36, "finding of a scrub, version 1");

struct first_rec {
	uint8_t fire_version, fire_zero[7];
	uint64_t fire_size;
} __attribute__((packed));
_Static_assert(sizeof(struct first_rec) == 16, "object seen once, version 1");

struct found_key {
	uint8_t fke_sort;
	uint32_t fke_index;
} __attribute__((packed));
struct first_key {
	uint8_t fik_sort;
	uint32_t fik_ds;
	uint64_t fik_ino;
	uint16_t fik_incarnation;
	uint8_t fik_stripe, fik_copy;
} __attribute__((packed));
_Static_assert(sizeof(struct found_key) == 5 && sizeof(struct first_key) == 17,
	       "keys are their bytes");

const char *job_scrub_kind_name(enum job_scrub_kind k)
{
	static const char *const name[JOB_SCRUB_KINDS] = {
		[JOB_SCRUB_ORPHAN] = "orphan",
		[JOB_SCRUB_NEEDED] = "needed",
		[JOB_SCRUB_FOREIGN] = "foreign",
		[JOB_SCRUB_NOT_YET] = "not-yet",
		[JOB_SCRUB_MISSING] = "missing",
		[JOB_SCRUB_LOST] = "lost",
		[JOB_SCRUB_SIZE] = "size",
		[JOB_SCRUB_DIFFERS] = "differs",
		[JOB_SCRUB_UNREADABLE] = "unreadable",
		[JOB_SCRUB_AWAY] = "away",
		[JOB_SCRUB_CUT] = "cut-off",
		[JOB_SCRUB_DAMAGED] = "damaged",
	};

	return k > 0 && k < JOB_SCRUB_KINDS ? name[k] : "?";
}

/* ---- the state ---- */

static void numbers(struct job_scrub_state *s, uint64_t *out[NUMBERS])
{
	uint64_t *const list[NUMBERS] = {
		&s->ss_number, &s->ss_began_s, &s->ss_ended_s, &s->ss_objects,	&s->ss_files,
		&s->ss_bytes,  &s->ss_busy,    &s->ss_skipped, &s->ss_degraded, &s->ss_removed,
		&s->ss_stale,  &s->ss_kept,    &s->ss_ino,     &s->ss_firsts};

	memcpy(out, list, sizeof(list));
}

int scrub_state_get(struct kv_txn *t, struct job_scrub_state *s)
{
	uint8_t key = ROW_STATE;
	struct kv_slice val;
	struct state_rec r;
	uint64_t *n[NUMBERS];
	int err = ns_row_get(t, NS_T_SCRUB, &key, 1, &val);

	memset(s, 0, sizeof(*s));
	if (err)
		return err;
	if (val.s_len != sizeof(r))
		return -EIO;
	memcpy(&r, val.s_data, sizeof(r));
	if (r.str_version != SCRUB_VERSION || r.str_flags & ~S_ALL ||
	    r.str_phase >= JOB_SCRUB_PHASES || r.str_ncookie > sizeof(r.str_cookie) ||
	    le32toh(r.str_ds) > DS_REG_MAX + 1)
		return -EIO;
	numbers(s, n);
	for (unsigned k = 0; k < NUMBERS; k++)
		*n[k] = le64toh(r.str_number[k]);
	for (unsigned k = 1; k < JOB_SCRUB_KINDS; k++)
		s->ss_counts[k] = le64toh(r.str_count[k]);
	s->ss_ds = le32toh(r.str_ds);
	s->ss_phase = (enum job_scrub_phase)r.str_phase;
	s->ss_running = r.str_flags & S_RUNNING;
	s->ss_stopped = r.str_flags & S_STOPPED;
	s->ss_content = r.str_flags & S_CONTENT;
	s->ss_dry = r.str_flags & S_DRY;
	s->ss_old = r.str_flags & S_OLD;
	s->ss_skim = r.str_flags & S_SKIM;
	s->ss_newer = r.str_flags & S_NEWER;
	s->ss_ncookie = r.str_ncookie;
	memcpy(s->ss_cookie, r.str_cookie, sizeof(s->ss_cookie));
	return 0;
}

int scrub_state_put(struct kv_txn *t, const struct job_scrub_state *s)
{
	struct job_scrub_state copy = *s;
	uint8_t key = ROW_STATE;
	uint64_t *n[NUMBERS];
	struct state_rec r = {
		.str_version = SCRUB_VERSION,
		.str_flags =
			(uint8_t)(s->ss_running * S_RUNNING | s->ss_stopped * S_STOPPED |
				  s->ss_content * S_CONTENT | s->ss_dry * S_DRY |
				  s->ss_old * S_OLD | s->ss_skim * S_SKIM | s->ss_newer * S_NEWER),
		.str_phase = (uint8_t)s->ss_phase,
		.str_ncookie = s->ss_ncookie,
		.str_ds = htole32(s->ss_ds),
	};

	numbers(&copy, n);
	for (unsigned k = 0; k < NUMBERS; k++)
		r.str_number[k] = htole64(*n[k]);
	for (unsigned k = 1; k < JOB_SCRUB_KINDS; k++)
		r.str_count[k] = htole64(s->ss_counts[k]);
	memcpy(r.str_cookie, s->ss_cookie, sizeof(r.str_cookie));
	return ns_row_put(t, NS_T_SCRUB, &key, 1, &r, sizeof(r));
}

/* ---- findings ---- */

int scrub_found_put(struct kv_txn *t, struct job_scrub_state *s, const struct job_scrub_found *f)
{
	struct found_key key = {ROW_FOUND, htobe32((uint32_t)s->ss_kept)};
	struct found_rec r = {
		.fre_version = SCRUB_VERSION,
		.fre_kind = (uint8_t)f->sf_kind,
		.fre_done = (uint8_t)f->sf_done,
		.fre_stripe = f->sf_stripe,
		.fre_copy = f->sf_copy,
		.fre_incarnation = htole16(f->sf_incarnation),
		.fre_ds = htole32(f->sf_ds),
		.fre_ino = htole64(f->sf_ino),
		.fre_size = htole64(f->sf_size),
		.fre_want = htole64(f->sf_want),
	};

	s->ss_counts[f->sf_kind]++;
	s->ss_removed += f->sf_done == JOB_SCRUB_REMOVED;
	s->ss_stale += f->sf_done == JOB_SCRUB_STALE;
	s->ss_old |= f->sf_kind == JOB_SCRUB_NOT_YET;
	if (s->ss_kept >= JOB_SCRUB_KEPT)
		return 0;
	s->ss_kept++;
	return ns_row_put(t, NS_T_SCRUB, &key, sizeof(key), &r, sizeof(r));
}

static bool found_decode(struct kv_slice val, struct job_scrub_found *f)
{
	struct found_rec r;

	if (val.s_len != sizeof(r))
		return false;
	memcpy(&r, val.s_data, sizeof(r));
	*f = (struct job_scrub_found){
		.sf_kind = (enum job_scrub_kind)r.fre_kind,
		.sf_done = (enum job_scrub_done)r.fre_done,
		.sf_ds = le32toh(r.fre_ds),
		.sf_ino = le64toh(r.fre_ino),
		.sf_incarnation = le16toh(r.fre_incarnation),
		.sf_stripe = r.fre_stripe,
		.sf_copy = r.fre_copy,
		.sf_size = le64toh(r.fre_size),
		.sf_want = le64toh(r.fre_want),
	};
	return r.fre_version == SCRUB_VERSION && r.fre_kind && r.fre_kind < JOB_SCRUB_KINDS &&
	       r.fre_done < JOB_SCRUB_DONES;
}

struct each {
	int (*fn)(void *arg, const struct job_scrub_found *f);
	void *arg;
};

static int scrub_row_each(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct each *e = arg;
	struct job_scrub_found f;

	if (id.s_len != sizeof(struct found_key) || *(const uint8_t *)id.s_data != ROW_FOUND)
		return 1;
	return found_decode(val, &f) ? e->fn(e->arg, &f) : 0;
}

int job_scrub_each(struct kv_txn *t, int (*fn)(void *arg, const struct job_scrub_found *f),
		   void *arg)
{
	struct each e = {fn, arg};
	uint8_t from = ROW_FOUND;

	return ns_rows(t, NS_T_SCRUB, &from, 1, scrub_row_each, &e);
}

/* ---- objects that were seen once ---- */

static struct first_key first_key(const struct scrub_first *f)
{
	const ctl_object *o = &f->fi_object;

	return (struct first_key){ROW_FIRST,	      htobe32(f->fi_ds),
				  htobe64(o->ino),    htobe16((uint16_t)o->incarnation),
				  (uint8_t)o->stripe, (uint8_t)o->mirror};
}

int scrub_first_put(struct kv_txn *t, struct job_scrub_state *s, const struct scrub_first *f)
{
	struct first_key key = first_key(f);
	struct first_rec r = {.fire_version = SCRUB_VERSION, .fire_size = htole64(f->fi_size)};
	struct kv_slice had;

	s->ss_firsts += ns_row_get(t, NS_T_SCRUB, &key, sizeof(key), &had) == -ENOENT;
	return ns_row_put(t, NS_T_SCRUB, &key, sizeof(key), &r, sizeof(r));
}

int scrub_first_del(struct kv_txn *t, struct job_scrub_state *s, const struct scrub_first *f)
{
	struct first_key key = first_key(f);

	s->ss_firsts -= s->ss_firsts > 0;
	return ns_row_del(t, NS_T_SCRUB, &key, sizeof(key));
}

struct firsts {
	struct scrub_first *out;
	unsigned n, max;
	uint16_t fs;
};

static int first_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct firsts *fs = arg;
	struct first_key key;
	struct first_rec r = {0};

	if (id.s_len != sizeof(key) || *(const uint8_t *)id.s_data != ROW_FIRST)
		return 1;
	memcpy(&key, id.s_data, sizeof(key));
	memcpy(&r, val.s_data, val.s_len < sizeof(r) ? val.s_len : sizeof(r));
	if (fs->n == fs->max || (fs->n && fs->out[0].fi_ds != be32toh(key.fik_ds)))
		return 1;
	fs->out[fs->n++] = (struct scrub_first){
		.fi_ds = be32toh(key.fik_ds),
		.fi_object = {.ino = be64toh(key.fik_ino),
			      .fs = fs->fs,
			      .incarnation = be16toh(key.fik_incarnation),
			      .stripe = key.fik_stripe,
			      .mirror = key.fik_copy},
		.fi_size = le64toh(r.fire_size),
	};
	return 0;
}

int scrub_firsts(struct kv_txn *t, uint16_t fs, struct scrub_first *out, unsigned max)
{
	struct firsts f = {.out = out, .max = max, .fs = fs};
	uint8_t from = ROW_FIRST;
	int err = ns_rows(t, NS_T_SCRUB, &from, 1, first_row, &f);

	return err < 0 ? err : (int)f.n;
}

/* ---- a new run ---- */

#define KEY_MAX sizeof(struct first_key)
struct clear {
	uint8_t (*key)[KEY_MAX];
	uint8_t *len;
	unsigned n;
};

static int clear_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct clear *c = arg;

	(void)val;
	if (c->n == JOB_SCRUB_KEPT + SCRUB_FIRSTS + CTL_BATCH_MAX || id.s_len > KEY_MAX)
		return 1;
	memcpy(c->key[c->n], id.s_data, id.s_len);
	c->len[c->n++] = (uint8_t)id.s_len;
	return 0;
}

/* Deletes all rows except the state. The keys are collected first, so that no row is deleted during
 * the scan. */
int scrub_rows_clear(struct kv_txn *t)
{
	size_t most = JOB_SCRUB_KEPT + SCRUB_FIRSTS + CTL_BATCH_MAX;
	struct clear c = {.key = calloc(most, KEY_MAX), .len = calloc(most, 1)};
	uint8_t from = ROW_FOUND;
	int err = c.key && c.len ? ns_rows(t, NS_T_SCRUB, &from, 1, clear_row, &c) : -ENOMEM;

	for (unsigned k = 0; k < c.n && err >= 0; k++)
		err = ns_row_del(t, NS_T_SCRUB, c.key[k], c.len[k]);
	free(c.key);
	free(c.len);
	return err < 0 ? err : 0;
}
