/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal.c - stores what the store must remember besides the objects: deleted objects
 * (tombstones), barred clients, the instance epoch, the boot number and the highest order.
 *
 * The journal has segments journal/NNNN of 40-byte records, each with a checksum; one fdatasync
 * makes a whole batch of orders durable. At start, this file reads all segments, begins a new one
 * with all records that still count, and then removes the old ones. It does the same when a segment
 * has grown, and after an append failed.
 *
 * A delete writes a tombstone here and unlinks the object. The unlinks are not synced one by one.
 * After a crash, the start unlinks again for every tombstone in the journal; and before a tombstone
 * leaves the journal, the file systems of all volumes are synced once. So an object whose delete
 * was confirmed does not come back. While one of the volumes cannot be synced, no segment is
 * removed.
 *
 * After a restart, the time for which a tombstone is kept starts from zero: nothing depends on the
 * time of day.
 *
 * An order younger than the delete ends the tombstone. The tombstone leaves the journal before the
 * object is created: else a restart would unlink the data written since.
 *
 * The next segment joins the records of barred clients into ranges, whether the MDS barred them one
 * by one or reported them dead.
 *
 * A bad record ends its segment: it is the torn tail of an append that was never confirmed.
 */
#include "base/clock.h"
#include "base/log.h"
#include "ds/store/store_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REC_VERSION 1
/* A segment is replaced when it has this many bytes beyond the records that count. */
#define JOURNAL_TURN (4u << 20)
#define NAME_LEN     16

/* ---- tombstones in memory ---- */

static struct ds_tomb *tomb_lookup(struct ds_journal *j, const struct cap_object *o)
{
	struct hash_link *l = hash_first(&j->j_tombs, ds_key_hash(o));

	for (; l; l = hash_next(l)) {
		struct ds_tomb *t = hash_entry(l, struct ds_tomb, t_link);

		if (ds_key_equal(&t->t_key, o))
			return t;
	}
	return NULL;
}

bool ds_tomb_bars(struct ds_store *s, const struct cap_object *o, bool for_order)
{
	struct ds_journal *j = &s->s_journal;
	struct ds_tomb *t;
	bool bars;

	if (!atomic_load(&j->j_ntombs))
		return false;
	pthread_mutex_lock(&j->j_lock);
	t = tomb_lookup(j, o);
	bars = t && !(for_order && t->t_over);
	pthread_mutex_unlock(&j->j_lock);
	return bars;
}

void ds_tomb_drop(struct ds_store *s, const struct cap_object *o)
{
	struct ds_journal *j = &s->s_journal;
	struct ds_tomb *t;

	if (!atomic_load(&j->j_ntombs))
		return;
	pthread_mutex_lock(&j->j_lock);
	t = tomb_lookup(j, o);
	if (t && t->t_over) {
		hash_del(&j->j_tombs, &t->t_link);
		t->t_gone = true;
	}
	pthread_mutex_unlock(&j->j_lock);
}

int ds_tomb_add(struct ds_store *s, const struct cap_object *o, uint64_t order)
{
	struct ds_journal *j = &s->s_journal;
	struct ds_tomb *t;
	int err = 0;

	pthread_mutex_lock(&j->j_lock);
	t = tomb_lookup(j, o);
	if (t) {
		if (order > t->t_order)
			t->t_order = order;
		t->t_over = false;
		goto out;
	}
	t = calloc(1, sizeof(*t));
	if (!t || hash_add(&j->j_tombs, &t->t_link, ds_key_hash(o))) {
		free(t);
		err = -ENOMEM;
		goto out;
	}
	t->t_key = *o;
	t->t_order = order;
	t->t_expires_ns = clock_boot_ns() + s->s_tomb_keep_ns;
	*j->j_newest = t;
	j->j_newest = &t->t_next;
	atomic_fetch_add(&j->j_ntombs, 1);
out:
	pthread_mutex_unlock(&j->j_lock);
	return err;
}

/* Expired tombstones leave the journal with its next segment. */
void ds_tomb_expire(struct ds_store *s)
{
	struct ds_journal *j = &s->s_journal;
	uint64_t now = clock_boot_ns();
	struct ds_tomb *t;

	pthread_mutex_lock(&j->j_lock);
	while ((t = j->j_oldest) && t->t_expires_ns <= now) {
		j->j_oldest = t->t_next;
		if (!j->j_oldest)
			j->j_newest = &j->j_oldest;
		if (!t->t_gone)
			hash_del(&j->j_tombs, &t->t_link);
		atomic_fetch_sub(&j->j_ntombs, 1);
		free(t);
	}
	pthread_mutex_unlock(&j->j_lock);
}

/* ---- records ---- */

static uint32_t rec_sum(const struct ds_rec *r)
{
	return (uint32_t)hash_bytes(r, offsetof(struct ds_rec, dsr_sum));
}

static void rec_seal(struct ds_rec *r)
{
	r->dsr_version = REC_VERSION;
	r->dsr_fs = htobe16(r->dsr_fs);
	r->dsr_incarnation = htobe16(r->dsr_incarnation);
	r->dsr_ino = htobe64(r->dsr_ino);
	r->dsr_a = htobe64(r->dsr_a);
	r->dsr_b = htobe64(r->dsr_b);
	r->dsr_client = htobe32(r->dsr_client);
	r->dsr_sum = htobe32(rec_sum(r));
}

static bool rec_open(struct ds_rec *r)
{
	if (r->dsr_version != REC_VERSION || r->dsr_sum != htobe32(rec_sum(r)))
		return false;
	r->dsr_fs = be16toh(r->dsr_fs);
	r->dsr_incarnation = be16toh(r->dsr_incarnation);
	r->dsr_ino = be64toh(r->dsr_ino);
	r->dsr_a = be64toh(r->dsr_a);
	r->dsr_b = be64toh(r->dsr_b);
	r->dsr_client = be32toh(r->dsr_client);
	return true;
}

struct ds_rec ds_rec_object(enum ds_rec_type type, const struct cap_object *o, uint64_t order)
{
	return (struct ds_rec){
		.dsr_type = type,
		.dsr_stripe = o->co_stripe,
		.dsr_mirror = o->co_copy,
		.dsr_fs = o->co_fs,
		.dsr_incarnation = o->co_incarnation,
		.dsr_ino = o->co_ino,
		.dsr_a = order,
	};
}

/* The home's records name no file system: that is what programs from before there were several
 * wrote. */
static uint16_t rec_fs(const struct ds_fs *f)
{
	return f->fs_place ? (uint16_t)ds_fs_number(f) : 0;
}

struct ds_rec ds_rec_bar(const struct ds_fs *f, uint32_t client, uint64_t order)
{
	return (struct ds_rec){
		.dsr_type = DS_REC_BAR, .dsr_fs = rec_fs(f), .dsr_client = client, .dsr_a = order};
}

struct ds_rec ds_rec_run(const struct ds_fs *f, uint32_t first, uint32_t last)
{
	if (first == last)
		return ds_rec_bar(f, first, 0);
	return (struct ds_rec){
		.dsr_type = DS_REC_RUN, .dsr_fs = rec_fs(f), .dsr_client = first, .dsr_a = last};
}

/* The boot identity (dsr_ino) belongs to the instance in dsr_a. */
static struct ds_rec rec_state(struct ds_fs *f)
{
	uint16_t fs = rec_fs(f);
	struct ds_rec r = {.dsr_type = fs ? DS_REC_STATE_OF : DS_REC_STATE,
			   .dsr_stripe = (uint8_t)(fs >> 8),
			   .dsr_mirror = (uint8_t)fs,
			   .dsr_client = f->fs_store->s_boot};

	pthread_mutex_lock(&f->fs_state_lock);
	r.dsr_fs = (uint16_t)(f->fs_joins >> 16);
	r.dsr_incarnation = (uint16_t)f->fs_joins;
	r.dsr_ino = atomic_load(&f->fs_boot_id);
	r.dsr_a = atomic_load(&f->fs_instance);
	r.dsr_b = atomic_load(&f->fs_order_high);
	pthread_mutex_unlock(&f->fs_state_lock);
	return r;
}

static uint32_t joins_of(const struct ds_rec *state)
{
	return (uint32_t)state->dsr_fs << 16 | state->dsr_incarnation;
}

/* With j_append_lock held. Records that this state (not sealed) is durable. */
static void durable(struct ds_fs *f, const struct ds_rec *state)
{
	if (state->dsr_b > atomic_load(&f->fs_order_durable))
		atomic_store(&f->fs_order_durable, state->dsr_b);
	pthread_mutex_lock(&f->fs_state_lock);
	f->fs_kept_instance = state->dsr_a;
	f->fs_kept_joins = joins_of(state);
	f->fs_join_unkept = false;
	pthread_mutex_unlock(&f->fs_state_lock);
}

/* ---- segments ---- */

static void seg_name(uint64_t seq, char name[NAME_LEN + 1])
{
	snprintf(name, NAME_LEN + 1, "%016" PRIx64, seq);
}

static int journal_write_all(int fd, const void *data, size_t n)
{
	const uint8_t *p = data;

	while (n) {
		ssize_t w = write(fd, p, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w ? -errno : -EIO;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

struct runs_put {
	const struct ds_fs *rp_fs;
	struct ds_rec *rp_at;
};

static void journal_run_put(void *arg, uint32_t first, uint32_t last)
{
	struct runs_put *rp = arg;

	*rp->rp_at++ = ds_rec_run(rp->rp_fs, first, last);
}

/* A new segment as it is made: all records that count now, sealed. */
struct snapshot {
	struct ds_rec *sn_rec; /* malloc'd */
	size_t sn_n;
	unsigned sn_nfs;
	struct ds_rec sn_state[DS_FS_MAX]; /* the first sn_nfs records, not sealed */
};

static int snapshot_take(struct ds_store *s, struct snapshot *sn)
{
	struct ds_journal *j = &s->s_journal;
	size_t nbar = 0;

	sn->sn_n = 0;
	sn->sn_nfs = atomic_load(&s->s_nfs);
	for (unsigned i = 0; i < sn->sn_nfs; i++)
		nbar += ds_bars_lock(s->s_fs[i]);
	pthread_mutex_lock(&j->j_lock);
	sn->sn_rec = calloc(sn->sn_nfs + nbar + atomic_load(&j->j_ntombs), sizeof(*sn->sn_rec));
	if (sn->sn_rec) {
		struct runs_put rp = {.rp_at = sn->sn_rec};

		for (unsigned i = 0; i < sn->sn_nfs; i++)
			*rp.rp_at++ = sn->sn_state[i] = rec_state(s->s_fs[i]);
		for (unsigned i = 0; i < sn->sn_nfs; i++) {
			rp.rp_fs = s->s_fs[i];
			ds_bars_each(s->s_fs[i], journal_run_put, &rp);
		}
		for (struct ds_tomb *t = j->j_oldest; t; t = t->t_next)
			if (!t->t_over)
				*rp.rp_at++ = ds_rec_object(DS_REC_TOMB, &t->t_key, t->t_order);
		sn->sn_n = (size_t)(rp.rp_at - sn->sn_rec);
	}
	pthread_mutex_unlock(&j->j_lock);
	for (unsigned i = 0; i < sn->sn_nfs; i++)
		ds_bars_unlock(s->s_fs[i]);
	for (size_t i = 0; i < sn->sn_n; i++)
		rec_seal(&sn->sn_rec[i]);
	return sn->sn_rec ? 0 : -ENOMEM;
}

static int seg_compare(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int seg_is(const struct dirent *d)
{
	return strlen(d->d_name) == NAME_LEN && strspn(d->d_name, "0123456789abcdef") == NAME_LEN;
}

static void drop_older(struct ds_journal *j, uint64_t seq)
{
	struct dirent **list;
	int n = scandirat(j->j_dirfd, ".", &list, seg_is, seg_compare);

	for (int i = 0; i < n; i++) {
		if (strtoull(list[i]->d_name, NULL, 16) < seq)
			unlinkat(j->j_dirfd, list[i]->d_name, 0);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
}

/* With j_append_lock held. Begins a new segment with all that counts, and removes the old ones.
 * Releases the lock while it syncs the volumes, so that a drive that hangs does not delay bars. */
static int turn(struct ds_store *s)
{
	struct ds_journal *j = &s->s_journal;
	char name[NAME_LEN + 1];
	struct ds_vol *bad;
	struct snapshot sn;
	uint64_t seq;
	bool kept;
	int fd, err = snapshot_take(s, &sn);

	if (err)
		return err;
	seg_name(j->j_seq + 1, name);
	fd = openat(j->j_dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0) {
		err = -errno;
		goto out;
	}
	err = journal_write_all(fd, sn.sn_rec, sn.sn_n * sizeof(*sn.sn_rec));
	if (!err && (fsync(fd) < 0 || fsync(j->j_dirfd) < 0))
		err = -errno;
	if (err) {
		close(fd);
		unlinkat(j->j_dirfd, name, 0);
		goto out;
	}
	if (j->j_fd >= 0)
		close(j->j_fd);
	j->j_fd = fd;
	j->j_seq++;
	j->j_bytes = sn.sn_n * sizeof(*sn.sn_rec);
	atomic_store(&j->j_broken, false);
	for (unsigned i = 0; i < sn.sn_nfs; i++)
		durable(s->s_fs[i], &sn.sn_state[i]);
	/* Make unlinks durable before their tombstones go with the old segments. */
	seq = j->j_seq;
	pthread_mutex_unlock(&j->j_append_lock);
	err = ds_volumes_sync(s, &bad);
	kept = err;
	if (!err)
		drop_older(j, seq);
	else if (s->s_opened)
		err = 0;
	pthread_mutex_lock(&j->j_append_lock);
	j->j_older = kept;
out:
	free(sn.sn_rec);
	return err;
}

static int journal_append(struct ds_fs *f, struct ds_rec *recs, unsigned n)
{
	struct ds_journal *j = &f->fs_store->s_journal;
	struct ds_rec now = rec_state(f), state = now;
	int err;

	for (unsigned i = 0; i < n; i++)
		rec_seal(&recs[i]);
	rec_seal(&state);
	err = journal_write_all(j->j_fd, recs, n * sizeof(*recs));
	if (!err)
		err = journal_write_all(j->j_fd, &state, sizeof(state));
	if (!err && fdatasync(j->j_fd) < 0)
		err = -errno;
	if (!err)
		j->j_bytes += (n + 1) * sizeof(*recs);
	if (!err)
		durable(f, &now);
	return err;
}

/* How many records a new segment would have. */
static size_t journal_counts(struct ds_store *s)
{
	size_t bytes, n = atomic_load(&s->s_journal.j_ntombs);

	for (unsigned i = 0; i < atomic_load(&s->s_nfs); i++)
		n += ds_store_bars(s->s_fs[i], &bytes) + 1;
	return n;
}

static int journal_put(struct ds_fs *f, struct ds_rec *recs, unsigned n, bool turns)
{
	struct ds_store *s = f->fs_store;
	struct ds_journal *j = &s->s_journal;
	size_t counts = journal_counts(s);
	bool full;
	int err = -EAGAIN;

	pthread_mutex_lock(&j->j_append_lock);
	full = turns && j->j_bytes > JOURNAL_TURN + 2 * sizeof(*recs) * counts;
	/* The state in memory already includes recs, so the new segment has them. A segment that is
	 * merely large can grow on. */
	if (atomic_load(&j->j_broken) || full)
		err = turn(s);
	if (err && !atomic_load(&j->j_broken))
		err = journal_append(f, recs, n);
	while (err == -ENOSPC && ds_reserve_give(s))
		err = turn(s);
	if (err) {
		atomic_store(&j->j_broken, true);
		log_error("store: %s/journal: cannot write: %s", s->s_home->v_dir, strerror(-err));
		ds_health_note(s->s_home, true, err);
	}
	pthread_mutex_unlock(&j->j_append_lock);
	return err;
}

int ds_journal_append(struct ds_fs *f, struct ds_rec *recs, unsigned n)
{
	return journal_put(f, recs, n, true);
}

int ds_journal_add(struct ds_fs *f, struct ds_rec *recs, unsigned n)
{
	return journal_put(f, recs, n, false);
}

static struct ds_tomb *outlived(struct ds_journal *j, const ctl_order *o)
{
	struct cap_object key;
	struct ds_tomb *t;

	if (o->type == CTL_DELETE || o->type == CTL_BAR_CLIENT || !ds_key_of(&o->object, &key))
		return NULL;
	t = tomb_lookup(j, &key);
	return t && o->number > t->t_order ? t : NULL;
}

/* Sets t_over of the tombstones that these orders outlive. Returns how many it changed. */
static unsigned mark_outlived(struct ds_journal *j, const ctl_order *orders, unsigned n, bool over)
{
	unsigned changed = 0;

	pthread_mutex_lock(&j->j_lock);
	for (unsigned i = 0; i < n; i++) {
		struct ds_tomb *t = outlived(j, &orders[i]);

		if (!t || t->t_over == over)
			continue;
		t->t_over = over;
		changed++;
	}
	pthread_mutex_unlock(&j->j_lock);
	return changed;
}

int ds_tombs_outlived(struct ds_fs *f, const ctl_order *orders, unsigned n, bool beside)
{
	struct ds_store *s = f->fs_store;
	struct ds_journal *j = &s->s_journal;
	int err;

	if (!atomic_load(&j->j_ntombs) || !mark_outlived(j, orders, n, true))
		return 0;
	/* A batch of an earlier instance may still be deleting. A batch of it that begins later is
	 * refused. */
	if (beside && atomic_load(&f->fs_deleting)) {
		mark_outlived(j, orders, n, false);
		return -EAGAIN;
	}
	pthread_mutex_lock(&j->j_append_lock);
	err = turn(s);
	if (!err && j->j_older)
		err = -EIO;
	pthread_mutex_unlock(&j->j_append_lock);
	if (!err)
		return 0;
	mark_outlived(j, orders, n, false);
	log_error("store: %s/journal: cannot undo deletions; objects that the restored metadata "
		  "refers to stay deleted: %s",
		  s->s_home->v_dir, strerror(-err));
	return 0;
}

bool ds_journal_behind(struct ds_store *s)
{
	return atomic_load(&s->s_journal.j_broken);
}

/* ---- at start ---- */

/* The file system that a record names: a STATE_OF, or a BAR or RUN that is not the home's. */
static uint32_t rec_of(const struct ds_rec *r)
{
	return r->dsr_type == DS_REC_STATE_OF ? (uint32_t)r->dsr_stripe << 8 | r->dsr_mirror
					      : r->dsr_fs;
}

static int journal_apply(struct ds_store *s, const struct ds_rec *r)
{
	struct cap_object o = {
		.co_ino = r->dsr_ino,
		.co_fs = r->dsr_fs,
		.co_incarnation = r->dsr_incarnation,
		.co_stripe = r->dsr_stripe,
		.co_copy = r->dsr_mirror,
	};
	struct ds_fs *f = s->s_fs[0];
	int err;

	if (r->dsr_type == DS_REC_STATE_OF ||
	    (r->dsr_fs && (r->dsr_type == DS_REC_BAR || r->dsr_type == DS_REC_RUN))) {
		/* The home's number is durable before a second file system is met. */
		err = ds_fs_number(f) ? ds_store_fs_meet(s, rec_of(r), &f) : -EINVAL;
		if (err)
			return err;
	}
	switch (r->dsr_type) {
	case DS_REC_STATE:
	case DS_REC_STATE_OF:
		if (r->dsr_a > atomic_load(&f->fs_instance))
			f->fs_joins = 0;
		if (r->dsr_a >= atomic_load(&f->fs_instance)) {
			f->fs_joins = joins_of(r) > f->fs_joins ? joins_of(r) : f->fs_joins;
			atomic_store(&f->fs_instance, r->dsr_a);
			atomic_store(&f->fs_boot_id, r->dsr_ino);
		}
		if (r->dsr_b > atomic_load(&f->fs_order_high))
			atomic_store(&f->fs_order_high, r->dsr_b);
		if (r->dsr_client > s->s_boot)
			s->s_boot = r->dsr_client;
		return 0;
	case DS_REC_TOMB:
		err = ds_vol_unlink(s, &o);
		if (err)
			return err;
		return ds_tomb_add(s, &o, r->dsr_a);
	case DS_REC_BAR:
		/* 0 is the metadata server, which no order may bar (orders.c). */
		return r->dsr_client ? ds_bar(f, r->dsr_client) : -EIO;
	case DS_REC_RUN:
		if (!r->dsr_client || r->dsr_client > r->dsr_a || r->dsr_a > UINT32_MAX)
			return -EIO;
		return ds_bar_run(f, r->dsr_client, (uint32_t)r->dsr_a);
	default:
		return -EPROTONOSUPPORT;
	}
}

/* Says in one line why the journal is refused. */
static void refusal(const struct ds_rec *r, int err, char *why, size_t len)
{
	if (err == -EPROTONOSUPPORT)
		snprintf(why, len,
			 "it has a record of type %u, and this program knows types up to %d: a "
			 "newer weft-ds wrote it",
			 r->dsr_type, DS_REC_STATE_OF);
	else if (err == -EINVAL || err == -EOVERFLOW)
		snprintf(why, len, "it has a record of file system %" PRIu32 "%s", rec_of(r),
			 err == -EINVAL ? ", which this store cannot have joined"
					: ", and serves as many others as one store can");
	else if (err == -EIO && (r->dsr_type == DS_REC_BAR || r->dsr_type == DS_REC_RUN))
		snprintf(why, len,
			 "it has a record that bars clients %" PRIu32 " to %" PRIu64
			 ", which is no range of clients",
			 r->dsr_client, r->dsr_type == DS_REC_BAR ? r->dsr_client : r->dsr_a);
}

/* Applies the records of a segment. *good: the length up to the last good record. */
static int seg_read(struct ds_store *s, const char *name, off_t *good, char *why, size_t len)
{
	int fd = openat(s->s_journal.j_dirfd, name, O_RDONLY | O_CLOEXEC), err = 0;
	struct ds_rec r;
	FILE *f;

	if (fd < 0)
		return -errno;
	*good = 0;
	f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	while (!err && fread(&r, sizeof(r), 1, f) == 1) {
		if (!rec_open(&r)) {
			log_warn("store: %s/journal/%s: ignoring a torn record and what follows "
				 "it, which was never confirmed",
				 s->s_home->v_dir, name);
			break;
		}
		err = journal_apply(s, &r);
		refusal(&r, err, why, len);
		*good += (off_t)sizeof(r);
	}
	if (!err && ferror(f))
		err = -EIO;
	fclose(f);
	return err;
}

/* The disk has no room for a segment, and there is no reserve. Continues the last segment in what
 * is left of its last block. */
static int go_on(struct ds_store *s, off_t good)
{
	struct ds_journal *j = &s->s_journal;
	char name[NAME_LEN + 1];
	int fd, err;

	seg_name(j->j_seq, name);
	fd = openat(j->j_dirfd, name, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENOSPC : -errno;
	j->j_fd = fd;
	j->j_bytes = (uint64_t)good;
	/* A start never reads what follows a torn record. */
	err = ftruncate(fd, good) < 0 ? -errno : 0;
	for (unsigned i = 0; i < atomic_load(&s->s_nfs) && !err; i++)
		err = journal_append(s->s_fs[i], NULL, 0);
	if (!err)
		log_warn("store: %s: the disk is full and no reserve is left: the journal "
			 "continues in its last block",
			 s->s_home->v_dir);
	return err;
}

/* Writes the first segment of this boot. It holds the boot number, which must be durable. */
static int journal_begin(struct ds_store *s, off_t good)
{
	int err;

	pthread_mutex_lock(&s->s_journal.j_append_lock);
	do
		err = turn(s);
	while (err == -ENOSPC && ds_reserve_give(s));
	err = err == -ENOSPC ? go_on(s, good) : err;
	pthread_mutex_unlock(&s->s_journal.j_append_lock);
	return err;
}

int ds_journal_open(struct ds_store *s, char *err, size_t errlen)
{
	struct ds_journal *j = &s->s_journal;
	struct dirent **list;
	char why[128] = "";
	off_t good = 0;
	int n, e = 0;

	pthread_mutex_init(&j->j_lock, NULL);
	pthread_mutex_init(&j->j_append_lock, NULL);
	j->j_newest = &j->j_oldest;
	j->j_dirfd = openat(s->s_home->v_dirfd, "journal", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	n = j->j_dirfd < 0 ? -1 : scandirat(j->j_dirfd, ".", &list, seg_is, seg_compare);
	if (n < 0) {
		e = -errno;
		snprintf(err, errlen, "%s/journal: %s", s->s_home->v_dir, strerror(-e));
		return e;
	}
	for (int i = 0; i < n; i++) {
		if (!e) {
			j->j_seq = strtoull(list[i]->d_name, NULL, 16);
			e = seg_read(s, list[i]->d_name, &good, why, sizeof(why));
		}
		free(list[i]);
	}
	free(list);
	for (unsigned i = 0; i < atomic_load(&s->s_nfs); i++) {
		struct ds_fs *f = s->s_fs[i];

		ds_bars_settle(f);
		atomic_store(&f->fs_order_durable, atomic_load(&f->fs_order_high));
	}
	s->s_boot++;
	if (!e)
		e = journal_begin(s, good);
	if (e == -ENOSPC)
		snprintf(err, errlen,
			 "%s/journal: no room for one record (%s): free some space in its file "
			 "system",
			 s->s_home->v_dir, strerror(ENOSPC));
	else if (e)
		snprintf(err, errlen, "%s/journal: %s", s->s_home->v_dir,
			 *why ? why : strerror(-e));
	return e;
}

void ds_journal_close(struct ds_store *s)
{
	struct ds_journal *j = &s->s_journal;
	struct ds_tomb *t;

	while ((t = j->j_oldest)) {
		j->j_oldest = t->t_next;
		free(t);
	}
	free(j->j_tombs.h_slot);
	if (j->j_fd >= 0)
		close(j->j_fd);
	if (j->j_dirfd >= 0)
		close(j->j_dirfd);
}
