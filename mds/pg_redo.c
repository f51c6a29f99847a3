/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_redo.c - see pg_redo.h.
 *
 * Who: appends come on the committer thread; looks, reads and the claim on the thread that opens
 * the store; reads for the archive and trims on the checkpoints' thread. A trim is only noted: the
 * next look says it to PostgreSQL, and the folder's thread for a holder. pr_lock is held for each
 * use of pr_watch, and never while a batch that was read is given away: who gets it may wait for
 * the checkpoints' thread, which may wait for pr_lock.
 */
#include "mds/pg_redo.h"
#include "base/clock.h"
#include "base/log.h"
#include "mds/lease_key.h"
#include "mds/pg_record.h"
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A read fetches so many bytes; a fold takes so many; a copy that says nothing for KEPT_S seconds
 * is forgotten. */
enum { READ_BYTES = 4 << 20, FOLD_BYTES = 1 << 20, FOLD_EVERY_MS = 1000, KEPT_S = 86400 };
/* Turns without a batch to fold between two looks at what may be freed. */
enum { TRIM_TURNS = 60 };
/* A copy says so often that it lives. */
enum { ALIVE_MS = 10000 };
/* Of a table that is read: a look at whether this process is to end each so many rows. */
enum { PAUSE_MS = 50, ROWS_LOOK = 256 };

struct pg_redo {
	struct kv_redo pr_kv;
	struct store_lease *pr_lease;
	struct lease_key *pr_key; /* NULL: the lease is in PostgreSQL */
	struct pg_options pr_o;

	pthread_mutex_t pr_lock; /* of pr_watch */
	struct pg_watch *pr_watch;
	_Atomic uint64_t pr_acked; /* as pg_redo_look has seen it */
	_Atomic bool pr_up;	   /* it answered the last look */
	uint8_t pr_ident[KV_REDO_ID];
	uint32_t pr_lease_said;	  /* of the holder; under pr_lock */
	_Atomic uint64_t pr_keep; /* this copy needs no batch up to it */
	_Atomic bool pr_keep_due; /* PostgreSQL was not told yet */
	const char *pr_copy;
	bool pr_restoring;
	uint64_t pr_beat, pr_epoch; /* as the look before has seen them; under pr_lock */
	uint64_t pr_alive_ms;	    /* when it was told last that this copy lives; under pr_lock */

	_Atomic(struct pg_log *) pr_log; /* NULL: this process holds nothing */
	_Atomic bool pr_stop;
	_Atomic uint64_t pr_claim_ms;

	struct pg_fold *pr_fold;
	pthread_t pr_folder;
	pthread_mutex_t pr_fold_lock;
	pthread_cond_t pr_fold_wake; /* pr_fold_stop */
	bool pr_folds, pr_fold_stop;
	int pr_fold_told; /* readable: pr_fold_stop, for a statement that waits; 0: none */
};

static int fail(int rc, char *err, size_t errlen, const char *why)
{
	snprintf(err, errlen, "the log in PostgreSQL: %s", why && *why ? why : strerror(-rc));
	return rc;
}

/* Is this process to end? */
static bool told(const struct pg_redo *pr)
{
	struct pollfd p = {.fd = pr->pr_o.o_wake, .events = POLLIN};

	return p.fd > 0 && poll(&p, 1, 0) > 0;
}

/* ---- what the store asks ---- */

static int look_locked(struct pg_redo *pr, struct pg_row *row, char *err, size_t errlen)
{
	int rc = pg_watch_look(pr->pr_watch, row);

	atomic_store(&pr->pr_up, !rc);
	if (rc)
		return fail(rc, err, errlen, pg_watch_why(pr->pr_watch));
	atomic_store(&pr->pr_acked, row->r_acked);
	if (row->r_lease_ms && row->r_lease_ms != pr->pr_o.o_lease_ms && !row->r_free &&
	    row->r_lease_ms != pr->pr_lease_said)
		log_warn("mds.log_lease is %u ms here, and %u ms at the process that holds "
			 "instance %u: it is waited for as long as the longer one says",
			 pr->pr_o.o_lease_ms, row->r_lease_ms, pr->pr_o.o_inst);
	pr->pr_lease_said = row->r_lease_ms;
	return 0;
}

/* Is the key to be taken too? The row was looked at. */
static int look_key(struct pg_redo *pr, const struct pg_row *row, bool *due, char *err,
		    size_t errlen)
{
	char where[PG_LEASE];
	int rc = lease_key_look(pr->pr_key, pr->pr_o.o_inst, row->r_ident, row->r_lease_ms);

	*due = false;
	if (rc) {
		lease_key_why(pr->pr_key, err, errlen);
		return rc;
	}
	snprintf(where, sizeof(where), "etcd:%s", lease_key_etcd(pr->pr_key));
	pthread_mutex_lock(&pr->pr_lock);
	pg_watch_lease(pr->pr_watch, where);
	*due = pg_watch_due(pr->pr_watch) && lease_key_due(pr->pr_key);
	pthread_mutex_unlock(&pr->pr_lock);
	if (row->r_free || !*row->r_lease || !strcmp(row->r_lease, where))
		return 0;
	snprintf(err, errlen, "standby: the holder of instance %u has its lease in another etcd",
		 pr->pr_o.o_inst);
	return -EAGAIN;
}

static int redo_id(void *log, uint8_t id[KV_REDO_ID], char *err, size_t errlen)
{
	struct pg_redo *pr = log;
	struct pg_row row;
	int rc;

	pthread_mutex_lock(&pr->pr_lock);
	rc = look_locked(pr, &row, err, errlen);
	pthread_mutex_unlock(&pr->pr_lock);
	if (rc)
		return rc;
	_Static_assert(sizeof(row.r_ident) == KV_REDO_ID, "a uuid");
	memcpy(pr->pr_ident, row.r_ident, KV_REDO_ID);
	memcpy(id, row.r_ident, KV_REDO_ID);
	return 0;
}

/* The write comes first: a server that was left behind shows a log that ends too early, and answers
 * no write. */
static int redo_has(void *log, uint64_t batch, const uint8_t sum[KV_REDO_SUM], char *err,
		    size_t errlen)
{
	struct pg_redo *pr = log;
	uint8_t head[PG_HEAD];
	struct kv_redo_rec r;
	size_t len = 0;
	int rc;

	pthread_mutex_lock(&pr->pr_lock);
	rc = pg_read_alive(pr->pr_watch, pr->pr_copy, atomic_load(&pr->pr_keep));
	rc = rc ? rc : pg_read_head(pr->pr_watch, batch, head, &len);
	if (rc == -EAGAIN)
		fail(rc, err, errlen, pg_watch_why(pr->pr_watch));
	pthread_mutex_unlock(&pr->pr_lock);
	/* The log went on since the copy has followed it. */
	if (rc == -ERANGE)
		return fail(-EAGAIN, err, errlen, "it has moved since it was looked at");
	if (rc)
		return rc;
	if (len < sizeof(r))
		return -ESTALE;
	memcpy(&r, head, sizeof(r));
	return memcmp(r.rr_sum, sum, KV_REDO_SUM) ? -ESTALE : 0;
}

/* The row was read before the key is taken: if another process had the key since, the row has
 * changed, and is not claimed. */
static int claim(struct pg_redo *pr, struct pg_log **out, char *err, size_t errlen)
{
	uint64_t from;
	int rc;

	/* A claim that it did not live to give back would keep the others out. */
	if (told(pr))
		return fail(-ECANCELED, err, errlen, NULL);
	rc = pr->pr_key ? lease_key_take(pr->pr_key) : 0;
	from = clock_mono_ms();
	if (rc) {
		lease_key_why(pr->pr_key, err, errlen);
		return rc;
	}
	pthread_mutex_lock(&pr->pr_lock);
	/* The copy may have looked at the row too since it was due, and found that it moves. */
	rc = pg_watch_due(pr->pr_watch) ? pg_watch_claim(pr->pr_watch, out) : -EAGAIN;
	atomic_store(&pr->pr_claim_ms, clock_mono_ms() - from);
	if (rc)
		fail(rc, err, errlen, pg_watch_why(pr->pr_watch));
	pthread_mutex_unlock(&pr->pr_lock);
	if (!rc && pr->pr_key)
		lease_key_serve(pr->pr_key);
	else if (pr->pr_key)
		lease_key_give_up(pr->pr_key);
	return rc;
}

static int redo_take(void *log, struct kv_redo_end *end, char *err, size_t errlen)
{
	struct pg_redo *pr = log;
	struct pg_log *l = atomic_load(&pr->pr_log);
	/* It was taken before, and then could not be read. */
	int rc = l ? 0 : claim(pr, &l, err, errlen);

	if (rc)
		return rc == -EAGAIN ? -EBUSY : rc == -ETIMEDOUT ? -EAGAIN : rc;
	atomic_store(&pr->pr_log, l);
	*end = (struct kv_redo_end){.re_epoch = pg_log_epoch(l), .re_last = pg_log_batch(l)};
	return 0;
}

static int redo_append(void *log, const struct kv_redo_batch *b)
{
	struct pg_redo *pr = log;
	int rc = pg_log_append(atomic_load(&pr->pr_log), b->rb_number, b->rb_rec, b->rb_len);

	if (!rc)
		return KV_REDO_DURABLE;
	if (rc != -ESTALE && rc != -ECANCELED)
		log_error("the log in PostgreSQL: batch %lu cannot follow on batch %lu",
			  (unsigned long)b->rb_number,
			  (unsigned long)pg_log_batch(atomic_load(&pr->pr_log)));
	/* Of a deposed process too it is not known whether the batch is there. */
	return KV_REDO_STOPPED;
}

/* Batches that were read: for each its number, its length and its bytes, all aligned to 8. */
struct got {
	char *g_buf;
	size_t g_len, g_room;
};
struct got_head {
	uint64_t gh_batch, gh_len;
};

static int got_batch(void *arg, uint64_t batch, const void *data, size_t len)
{
	struct got *g = arg;
	const struct got_head h = {batch, len};
	size_t need = g->g_len + sizeof(h) + (len + 7) / 8 * 8;

	if (len > UINT32_MAX)
		return -EIO;
	if (need > g->g_room) {
		char *more = realloc(g->g_buf, 2 * need);

		if (!more)
			return -ENOMEM;
		g->g_buf = more;
		g->g_room = 2 * need;
	}
	memcpy(g->g_buf + g->g_len, &h, sizeof(h));
	memcpy(g->g_buf + g->g_len + sizeof(h), data, len);
	g->g_len = need;
	return 0;
}

static int give_batches(const struct got *g, kv_redo_batch_fn fn, void *arg)
{
	struct got_head h;
	int rc = 0;

	for (size_t at = 0; at < g->g_len && !rc; at += sizeof(h) + (h.gh_len + 7) / 8 * 8) {
		memcpy(&h, g->g_buf + at, sizeof(h));
		rc = fn(arg, h.gh_batch, g->g_buf + at + sizeof(h), (uint32_t)h.gh_len);
	}
	return rc;
}

/* A holder waits until PostgreSQL answers, as for an append. */
static int read_some(struct pg_redo *pr, uint64_t *at, uint64_t last, struct got *g, char *err,
		     size_t errlen)
{
	int rc;

	for (;;) {
		g->g_len = 0;
		pthread_mutex_lock(&pr->pr_lock);
		rc = pg_read_batches(pr->pr_watch, at, last, READ_BYTES, got_batch, g);
		if (rc)
			fail(rc, err, errlen, pg_watch_why(pr->pr_watch));
		pthread_mutex_unlock(&pr->pr_lock);
		if (rc != -EAGAIN || !atomic_load(&pr->pr_log) || atomic_load(&pr->pr_stop) ||
		    told(pr))
			break;
		usleep(PAUSE_MS * 1000);
	}
	if (rc == -ESTALE)
		snprintf(err, errlen, "the log in PostgreSQL has batch %lu no longer",
			 (unsigned long)*at + 1);
	return rc;
}

static int redo_read(void *log, uint64_t after, kv_redo_batch_fn fn, void *arg, char *err,
		     size_t errlen)
{
	struct pg_redo *pr = log;
	struct pg_log *l = atomic_load(&pr->pr_log);
	uint64_t last = l ? pg_log_batch(l) : atomic_load(&pr->pr_acked), at = after;
	struct got g = {0};
	int rc = 0;

	while (!rc && at < last) {
		/* A holder that serves is told by others, and its archive is read to the end. */
		rc = !l && told(pr) ? fail(-ECANCELED, err, errlen, NULL)
				    : read_some(pr, &at, last, &g, err, errlen);
		if (!rc)
			rc = give_batches(&g, fn, arg);
	}
	free(g.g_buf);
	return rc;
}

struct base_rows {
	kv_redo_pair_fn br_fn;
	void *br_arg;
	const struct pg_redo *br_pr;
	unsigned br_n;
};

static int base_row(void *arg, struct iovec k, struct iovec v)
{
	struct base_rows *br = arg;

	if (br->br_n++ % ROWS_LOOK == 0 && told(br->br_pr))
		return -ECANCELED;
	return br->br_fn(br->br_arg, (struct kv_slice){k.iov_base, k.iov_len},
			 (struct kv_slice){v.iov_base, v.iov_len});
}

/* The table keeps the beginning of the record of the batch that it is as of. */
static int base_of(const struct pg_snapshot *s, struct kv_redo_base *base)
{
	struct kv_redo_rec r;

	_Static_assert(sizeof(r) <= PG_HEAD, "the header is kept");
	if (s->s_headlen < sizeof(r))
		return -EIO;
	memcpy(&r, s->s_head, sizeof(r));
	if (le64toh(r.rr_batch) != s->s_folded)
		return -EIO;
	base->ba_batch = s->s_folded;
	memcpy(base->ba_sum, r.rr_sum, KV_REDO_SUM);
	return 0;
}

/* What the state must be as new as. */
static int base_look(struct pg_redo *pr, struct pg_snapshot *s, char *err, size_t errlen)
{
	struct pg_log *l = atomic_load(&pr->pr_log);
	struct pg_row row;
	int rc;

	if (l) {
		s->s_epoch = pg_log_epoch(l);
		s->s_batch_seen = pg_log_batch(l);
		return 0;
	}
	pthread_mutex_lock(&pr->pr_lock);
	rc = look_locked(pr, &row, err, errlen);
	pthread_mutex_unlock(&pr->pr_lock);
	s->s_epoch = rc ? 0 : row.r_epoch;
	s->s_batch_seen = rc ? 0 : row.r_batch;
	return rc;
}

static int redo_base(void *log, kv_redo_pair_fn fn, void *arg, struct kv_redo_base *base, char *err,
		     size_t errlen)
{
	struct pg_redo *pr = log;
	struct base_rows br = {.br_fn = fn, .br_arg = arg, .br_pr = pr};
	struct pg_snapshot s = {.s_row = fn ? base_row : NULL, .s_arg = &br};
	char why[PG_WHY] = "";
	int rc = 0;

	if (fn) {
		/* What comes behind the state stays until this copy has it. */
		pthread_mutex_lock(&pr->pr_lock);
		rc = pg_read_keep(pr->pr_watch, pr->pr_copy, 0);
		/* What the copy before this one had says nothing of this one. */
		atomic_store(&pr->pr_keep_due, false);
		atomic_store(&pr->pr_keep, 0);
		if (rc)
			fail(rc, err, errlen, pg_watch_why(pr->pr_watch));
		pthread_mutex_unlock(&pr->pr_lock);
	}
	if (rc)
		return rc;
	rc = base_look(pr, &s, err, errlen);
	if (rc)
		return rc;
	rc = pg_snapshot(&pr->pr_o, &s, why);
	if (rc)
		return fail(rc, err, errlen, why);
	if (!s.s_folded)
		return -ENOENT;
	rc = base_of(&s, base);
	if (rc)
		return fail(rc, err, errlen, "its table does not say which batch it is as of");
	if (fn)
		log_info("the log in PostgreSQL: a new copy begins with batch %lu",
			 (unsigned long)s.s_folded);
	return 0;
}

/* Where it fails, more is kept than is needed, until the next time. Also a copy that has nothing
 * new to say lives: PostgreSQL forgets one that says nothing. pr_lock is held. */
static void keep_locked(struct pg_redo *pr)
{
	uint64_t keep = atomic_load(&pr->pr_keep), now = clock_mono_ms();
	bool due = atomic_exchange(&pr->pr_keep_due, false);
	int rc = 0;

	if (due)
		rc = pg_read_keep(pr->pr_watch, pr->pr_copy, keep);
	if (rc)
		atomic_store(&pr->pr_keep_due, true);
	if (rc || (pr->pr_alive_ms && now - pr->pr_alive_ms < ALIVE_MS))
		return;
	if (!pg_read_alive(pr->pr_watch, pr->pr_copy, keep))
		pr->pr_alive_ms = now;
}

static void redo_trim(void *log, uint64_t upto)
{
	struct pg_redo *pr = log;
	uint64_t was = atomic_load(&pr->pr_keep);

	while (was < upto && !atomic_compare_exchange_weak(&pr->pr_keep, &was, upto))
		;
	atomic_store(&pr->pr_keep_due, true);
}

static void redo_state(void *log, struct kv_redo_state *out)
{
	struct pg_redo *pr = log;
	struct pg_log *l = atomic_load(&pr->pr_log);
	char why[PG_WHY] = "";

	*out = (struct kv_redo_state){.rs_up = atomic_load(&pr->pr_up),
				      .rs_last = atomic_load(&pr->pr_acked)};
	if (l) {
		out->rs_up = pg_log_state(l, why) == PG_LOG_LIVE;
		out->rs_last = pg_log_batch(l);
	}
	snprintf(out->rs_why, sizeof(out->rs_why), "%.*s", (int)sizeof(out->rs_why) - 1, why);
}

static const struct kv_redo_ops redo_ops = {
	.ro_name = "PostgreSQL",
	.ro_id = redo_id,
	.ro_has = redo_has,
	.ro_take = redo_take,
	.ro_append = redo_append,
	.ro_read = redo_read,
	.ro_base = redo_base,
	.ro_trim = redo_trim,
	.ro_state = redo_state,
};

/* ---- fold, and another log ---- */

static _Thread_local const struct pg_redo *folding;

/* A record that is not whole is not folded. */
static int fold_check(struct kv_redo_rec *r, size_t len)
{
	return len >= sizeof(*r) && kv_redo_rec_ok(folding->pr_ident, r->rr_before,
						   le64toh(r->rr_batch), r, len)
		       ? 0
		       : -EIO;
}

static int decode(const void *data, size_t len, pg_write_fn *write, void *arg)
{
	return pg_record_writes(data, len, fold_check, write, arg);
}

/* Returns false when this process stops. */
static bool fold_sleep(struct pg_redo *pr, uint32_t ms)
{
	uint64_t until = clock_mono_ns() + (uint64_t)ms * 1000000;
	bool stop;

	pthread_mutex_lock(&pr->pr_fold_lock);
	while (!pr->pr_fold_stop && clock_cond_wait(&pr->pr_fold_wake, &pr->pr_fold_lock, until))
		;
	stop = pr->pr_fold_stop;
	pthread_mutex_unlock(&pr->pr_fold_lock);
	return !stop;
}

static void *folder(void *arg)
{
	struct pg_redo *pr = arg;
	uint64_t epoch = pg_log_epoch(atomic_load(&pr->pr_log));
	unsigned idle = 0;
	bool said = false;

	folding = pr;
	while (fold_sleep(pr, FOLD_EVERY_MS)) {
		int64_t n;

		for (idle++; (n = pg_fold_step(pr->pr_fold, epoch, FOLD_BYTES)) > 0;
		     idle = TRIM_TURNS)
			if (!fold_sleep(pr, 0))
				break;
		pthread_mutex_lock(&pr->pr_lock);
		keep_locked(pr);
		pthread_mutex_unlock(&pr->pr_lock);
		if (n == 0 && idle >= TRIM_TURNS) {
			pg_fold_trim(pr->pr_fold, epoch, KEPT_S);
			idle = 0;
		}
		/* A deposed process ends by itself. */
		if (n < 0 && n != -EAGAIN && n != -ESTALE && n != -ECANCELED && !said)
			log_error("the log in PostgreSQL cannot be folded into its table, and "
				  "grows: %s",
				  n == -EIO ? "a batch in it is damaged" : strerror((int)-n));
		said = n < 0 && n != -EAGAIN && n != -ESTALE;
		if (n == -ECANCELED)
			log_info("the log in PostgreSQL: this process ends, and broke off a fold");
	}
	return NULL;
}

/* Waits a moment. -ECANCELED: the process is to end, or waits for PostgreSQL no more. */
static int pause_or_end(const struct pg_redo *pr)
{
	usleep(PAUSE_MS * 1000);
	return told(pr) || atomic_load(&pr->pr_stop) ? -ECANCELED : 0;
}

static int renew(struct pg_redo *pr, struct pg_log *l)
{
	struct pg_fold *f;
	int64_t n = pg_fold_open(&f, &pr->pr_o, decode);
	int rc = (int)n;

	if (rc)
		return rc;
	folding = pr;
	do {
		n = pg_fold_step(f, pg_log_epoch(l), FOLD_BYTES);
		rc = n > 0 ? -EAGAIN : n < 0 ? (int)n : pg_log_renew(l);
		if (rc == -EAGAIN && n <= 0 && pause_or_end(pr))
			rc = -ECANCELED;
	} while (rc == -EAGAIN);
	pg_fold_close(f);
	return rc;
}

int pg_redo_restore(struct pg_redo *pr, bool has_copy, char *err, size_t errlen)
{
	struct kv_redo_end end;
	struct pg_log *l;
	struct pg_row row;
	bool due;
	int rc;

	pthread_mutex_lock(&pr->pr_lock);
	rc = look_locked(pr, &row, err, errlen);
	due = !rc && pg_watch_due(pr->pr_watch);
	pthread_mutex_unlock(&pr->pr_lock);
	if (rc || row.r_restored)
		return rc;
	memcpy(pr->pr_ident, row.r_ident, KV_REDO_ID);
	if (!row.r_batch)
		return fail(-ENOENT, err, errlen, "it has no batch: nothing was put back");
	if (has_copy)
		return fail(-EEXIST, err, errlen,
			    "the store is a copy of what it was before it was put back: remove it");
	if (pr->pr_key)
		rc = look_key(pr, &row, &due, err, errlen);
	if (rc)
		return rc;
	if (!due)
		return fail(-EAGAIN, err, errlen,
			    "another process holds the instance, or did until now");
	rc = redo_take(pr, &end, err, errlen);
	if (rc)
		return rc;
	l = atomic_load(&pr->pr_log);
	rc = renew(pr, l);
	atomic_store(&pr->pr_log, NULL);
	pg_log_close(l, true);
	if (pr->pr_key)
		lease_key_give_up(pr->pr_key);
	if (rc)
		return fail(rc, err, errlen, NULL);
	log_info("the log in PostgreSQL was put back to batch %lu: from now on it is another log, "
		 "and copies of the one before are refused",
		 (unsigned long)end.re_last);
	return 0;
}

int pg_redo_whole(struct pg_redo *pr, char *err, size_t errlen)
{
	int rc;

	do {
		rc = pg_log_renewed(atomic_load(&pr->pr_log));
		if (rc == -EAGAIN && pause_or_end(pr))
			rc = -ECANCELED;
	} while (rc == -EAGAIN);
	return rc ? fail(rc, err, errlen, NULL) : 0;
}

int pg_redo_fold(struct pg_redo *pr)
{
	struct pg_options o = pr->pr_o;
	int rc;

	o.o_wake = eventfd(0, EFD_CLOEXEC);
	if (o.o_wake < 0)
		return -errno;
	pr->pr_fold_told = o.o_wake;
	rc = pg_fold_open(&pr->pr_fold, &o, decode);
	if (!rc)
		rc = -pthread_create(&pr->pr_folder, NULL, folder, pr);
	pr->pr_folds = !rc;
	return rc;
}

static void fold_stop(struct pg_redo *pr)
{
	pthread_mutex_lock(&pr->pr_fold_lock);
	pr->pr_fold_stop = true;
	pthread_cond_signal(&pr->pr_fold_wake);
	pthread_mutex_unlock(&pr->pr_fold_lock);
	if (pr->pr_folds && eventfd_write(pr->pr_fold_told, 1))
		log_error("eventfd: %s", strerror(errno));
}

static void fold_end(struct pg_redo *pr)
{
	if (pr->pr_folds)
		pthread_join(pr->pr_folder, NULL);
	if (pr->pr_fold)
		pg_fold_close(pr->pr_fold);
	if (pr->pr_fold_told)
		close(pr->pr_fold_told);
}

/* ---- begin and end ---- */

static void on_held(void *arg, uint64_t end_ns)
{
	struct pg_redo *pr = arg;

	if (!pr->pr_key)
		store_lease_extend(pr->pr_lease, end_ns);
}

static void on_lost(void *arg, const char *why)
{
	(void)arg;
	store_lease_lost(why);
}

int pg_redo_check(const char *conninfo, char *err, size_t errlen)
{
	char why[PG_WHY] = "";

	if (pg_conninfo_check(conninfo, why)) {
		snprintf(err, errlen, "%s", why);
		return -EINVAL;
	}
	if (pg_has_password(conninfo)) {
		snprintf(err, errlen,
			 "others can see a password here: use passfile= or a client certificate");
		return -EINVAL;
	}
	return 0;
}

int pg_redo_open(struct pg_redo **out, const struct pg_redo_opts *o, char *err, size_t errlen)
{
	struct pg_redo *pr = calloc(1, sizeof(*pr));
	int rc;

	*out = NULL;
	if (!pr)
		return fail(-ENOMEM, err, errlen, NULL);
	pr->pr_kv = (struct kv_redo){&redo_ops, pr};
	pr->pr_lease = o->po_lease;
	pr->pr_copy = o->po_copy;
	pr->pr_restoring = o->po_restoring;
	pr->pr_key = o->po_key;
	pr->pr_o = (struct pg_options){.o_conninfo = o->po_conninfo,
				       .o_inst = o->po_inst,
				       .o_owner = o->po_owner,
				       .o_lease_ms = o->po_lease_ms,
				       .o_rank_ms = o->po_rank_ms,
				       .o_replicas = o->po_replicas,
				       .o_wake = o->po_wake,
				       .o_held = on_held,
				       .o_lost = on_lost,
				       .o_arg = pr};
	rc = pg_watch_open(&pr->pr_watch, &pr->pr_o);
	if (rc) {
		free(pr);
		return fail(rc, err, errlen, NULL);
	}
	pthread_mutex_init(&pr->pr_lock, NULL);
	pthread_mutex_init(&pr->pr_fold_lock, NULL);
	clock_cond_init(&pr->pr_fold_wake);
	*out = pr;
	return 0;
}

const struct kv_redo *pg_redo_kv(struct pg_redo *pr)
{
	return &pr->pr_kv;
}

int pg_redo_look(struct pg_redo *pr, bool *due, char *err, size_t errlen)
{
	struct pg_row row;
	int rc;

	*due = atomic_load(&pr->pr_log) != NULL;
	if (*due)
		return 0;
	pthread_mutex_lock(&pr->pr_lock);
	rc = look_locked(pr, &row, err, errlen);
	*due = !rc && pg_watch_due(pr->pr_watch);
	/* Its holder lives. Where the row stands still, a slow write would make a gap between the
	 * looks, and the claim would wait longer. Where the lease is in etcd, the row alone does
	 * not say when it is due. */
	if (!rc && !row.r_free && (pr->pr_key || !*due) &&
	    (row.r_beat != pr->pr_beat || row.r_epoch != pr->pr_epoch))
		keep_locked(pr);
	if (!rc) {
		pr->pr_beat = row.r_beat;
		pr->pr_epoch = row.r_epoch;
	}
	pthread_mutex_unlock(&pr->pr_lock);
	if (!rc && memcmp(row.r_ident, pr->pr_ident, KV_REDO_ID))
		return fail(-ESTALE, err, errlen, "it was replaced by another log");
	if (!rc && row.r_restored && !pr->pr_restoring)
		return fail(-EAGAIN, err, errlen,
			    "it was put back to an earlier time: start weft-mds once with "
			    "--restored");
	if (!rc && pr->pr_key)
		return look_key(pr, &row, due, err, errlen);
	if (!rc && !row.r_free && *row.r_lease) {
		snprintf(err, errlen, "standby: the holder of instance %u has its lease in etcd",
			 pr->pr_o.o_inst);
		return -EAGAIN;
	}
	return rc;
}

void pg_redo_seen(struct pg_redo *pr, bool *free, uint64_t *quiet_ms)
{
	pthread_mutex_lock(&pr->pr_lock);
	*free = pg_watch_free(pr->pr_watch);
	*quiet_ms = pg_watch_quiet_ms(pr->pr_watch);
	pthread_mutex_unlock(&pr->pr_lock);
}

uint64_t pg_redo_claim_ms(const struct pg_redo *pr)
{
	return atomic_load(&pr->pr_claim_ms);
}

void pg_redo_stop(struct pg_redo *pr)
{
	struct pg_log *l = atomic_load(&pr->pr_log);

	atomic_store(&pr->pr_stop, true);
	if (l)
		pg_log_stop(l);
}

int pg_redo_close(struct pg_redo *pr)
{
	struct pg_log *l = atomic_load(&pr->pr_log);
	int rc;

	/* The release first: a fold under way may take long, and any process may fold. */
	fold_stop(pr);
	rc = l ? pg_log_close(l, true) : 0;
	/* Then the key: who takes it finds the row free. */
	if (pr->pr_key)
		lease_key_give_up(pr->pr_key);
	fold_end(pr);
	pg_watch_close(pr->pr_watch);
	pthread_mutex_destroy(&pr->pr_lock);
	pthread_mutex_destroy(&pr->pr_fold_lock);
	pthread_cond_destroy(&pr->pr_fold_wake);
	free(pr);
	return rc;
}
