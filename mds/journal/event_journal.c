/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event_journal.c - see event_journal.h.
 *
 * Rows NS_T_EVENT: the key is the ring and the number; the value is a head, the subject and the
 * text. An event gets its number when its row is put, on the committer's thread. So a reader that
 * has read up to a number has missed no event before it.
 */
#include "mds/journal/event_journal.h"
#include "base/log.h"
#include "base/metrics.h"
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define EV_VERSION 1

enum { RING_CLUSTER = 0, RING_FILES = 1, RING_AUDIT = 2, RINGS };

struct ev_row {
	uint8_t ero_version, ero_kind,
		ero_subject; /* ero_subject: its length; the text is the rest */
	uint64_t ero_sec;
	uint32_t ero_nsec;
	uint64_t ero_ino;
} __attribute__((packed));
_Static_assert(sizeof(struct ev_row) == 23, "event, version 1");
_Static_assert(EV_KINDS == 32, "a kind's number is stored");
#define ROW_MAX (sizeof(struct ev_row) + EV_SUBJECT_MAX + EV_TEXT_MAX)
#define KEY_LEN 9

static const char *const names[EV_KINDS] = {
	[EV_STARTED] = "started",
	[EV_GRACE_BEGINS] = "grace-begins",
	[EV_GRACE_ENDED] = "grace-ended",
	[EV_STOPPED] = "stopped",
	[EV_DS_JOINED] = "ds-joined",
	[EV_DS_LEFT] = "ds-left",
	[EV_DS_SUSPECT] = "ds-suspect",
	[EV_DS_DEAD] = "ds-dead",
	[EV_DS_ALIVE] = "ds-alive",
	[EV_DS_CHANGED] = "ds-changed",
	[EV_DS_NO_SPACE] = "ds-no-space",
	[EV_CLIENT_EVICTED] = "client-evicted",
	[EV_POLICY_SET] = "policy-set",
	[EV_EXPORTS_RELOADED] = "exports-reloaded",
	[EV_LAYOUT_FENCED] = "layout-fenced",
	[EV_COPY_STALE] = "copy-stale",
	[EV_COPY_REPAIRED] = "copy-repaired",
	[EV_FILE_MOVED] = "file-moved",
	[EV_LOST] = "events-lost",
	[EV_SCRUBBED] = "scrub",
	[EV_COPY_CHOSEN] = "copy-chosen",
	[EV_RESTORED] = "restored",
	[EV_COPIES_DIFFER] = "copies-differ",
	[EV_CONFIG_CHANGED] = "config-changed",
	[EV_AUDIT] = "audit",
	[EV_POLICY_REFUSED] = "policy-refused",
	[EV_TRASH_EMPTIED] = "trash-emptied",
	[EV_TRASH_DAMAGED] = "trash-damaged",
	[EV_TAKEOVER] = "takeover",
	[EV_INSTANCE_MOVE] = "instance-move",
	[EV_STANDBY] = "standby",
};

static struct {
	pthread_mutex_t lock;
	struct ns *ns;
	/* The committer's. After a commit that failed, rows counts more than there are: the ring is
	 * shorter until the next start. */
	uint64_t next, rows[RINGS];
	struct ev_event pending[EV_PENDING], writing[EV_PENDING];
	unsigned npending, nwriting;
	uint64_t lost;
	atomic_bool busy; /* the committer uses writing */
	struct kv_op op;
	struct metric *counts[EV_KINDS];
} ev = {.lock = PTHREAD_MUTEX_INITIALIZER, .next = 1};

const char *ev_kind_name(enum ev_kind k)
{
	return k > 0 && k < EV_KINDS ? names[k] : "?";
}

enum ev_kind ev_kind_of(const char *name)
{
	for (unsigned k = 1; k < EV_KINDS; k++)
		if (!strcmp(names[k], name))
			return k;
	return 0;
}

/* ---- rows ---- */

static uint8_t ring_of(enum ev_kind k)
{
	if (k == EV_AUDIT)
		return RING_AUDIT;
	return (k >= EV_LAYOUT_FENCED && k <= EV_FILE_MOVED) || k == EV_COPIES_DIFFER ||
			       k == EV_POLICY_REFUSED
		       ? RING_FILES
		       : RING_CLUSTER;
}

static void event_journal_key_of(uint8_t key[KEY_LEN], uint8_t ring, uint64_t seq)
{
	key[0] = ring;
	seq = htobe64(seq);
	memcpy(key + 1, &seq, sizeof(seq));
}

static int oldest(void *arg, struct kv_slice id, struct kv_slice val)
{
	(void)val;
	if (id.s_len == KEY_LEN)
		memcpy(arg, id.s_data, KEY_LEN);
	return 1;
}

/* Deletes the oldest row of a full ring. */
static int event_journal_make_room(struct kv_txn *t, uint8_t ring)
{
	uint8_t key[KEY_LEN] = {RINGS};
	int err;

	if (ev.rows[ring] < EV_RING)
		return 0;
	err = ns_rows(t, NS_T_EVENT, &ring, 1, oldest, key);
	if (err < 0 || key[0] != ring)
		return err;
	ev.rows[ring]--;
	return ns_row_del(t, NS_T_EVENT, key, sizeof(key));
}

static int event_journal_row_put(struct kv_txn *t, const struct ev_event *e)
{
	size_t ns = strlen(e->e_subject), nt = strlen(e->e_text);
	uint8_t key[KEY_LEN], row[ROW_MAX], ring = ring_of(e->e_kind);
	const struct ev_row head = {EV_VERSION,		(uint8_t)e->e_kind,
				    (uint8_t)ns,	htole64((uint64_t)e->e_sec),
				    htole32(e->e_nsec), htole64(e->e_ino)};
	int err = event_journal_make_room(t, ring);

	if (err)
		return err;
	memcpy(row, &head, sizeof(head));
	memcpy(row + sizeof(head), e->e_subject, ns);
	memcpy(row + sizeof(head) + ns, e->e_text, nt);
	event_journal_key_of(key, ring, ev.next++);
	ev.rows[ring]++;
	return ns_row_put(t, NS_T_EVENT, key, sizeof(key), row, sizeof(head) + ns + nt);
}

static bool row_get(struct kv_slice id, struct kv_slice val, struct ev_event *e)
{
	const uint8_t *p = val.s_data;
	struct ev_row r;
	size_t text;

	if (id.s_len != KEY_LEN || val.s_len < sizeof(r))
		return false;
	memcpy(&r, p, sizeof(r));
	text = val.s_len - sizeof(r) - r.ero_subject;
	if (r.ero_version != EV_VERSION || r.ero_subject > EV_SUBJECT_MAX ||
	    val.s_len < sizeof(r) + r.ero_subject || text > EV_TEXT_MAX)
		return false;
	memset(e, 0, sizeof(*e));
	memcpy(&e->e_seq, (const uint8_t *)id.s_data + 1, 8);
	e->e_seq = be64toh(e->e_seq);
	e->e_kind = r.ero_kind;
	e->e_sec = (int64_t)le64toh(r.ero_sec);
	e->e_nsec = le32toh(r.ero_nsec);
	e->e_ino = le64toh(r.ero_ino);
	memcpy(e->e_subject, p + sizeof(r), r.ero_subject);
	memcpy(e->e_text, p + sizeof(r) + r.ero_subject, text);
	return true;
}

/* ---- adding ---- */

static void event_journal_fill(struct ev_event *e, enum ev_kind kind, const char *subject,
			       uint64_t ino, const char *fmt, va_list ap)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	e->e_kind = kind;
	e->e_sec = now.tv_sec;
	e->e_nsec = (uint32_t)now.tv_nsec;
	e->e_ino = ino;
	snprintf(e->e_subject, sizeof(e->e_subject), "%s", subject);
	vsnprintf(e->e_text, sizeof(e->e_text), fmt, ap);
}

static void event_journal_count(enum ev_kind kind)
{
	if (ev.counts[kind])
		metric_add(ev.counts[kind], 1);
}

void journal_add(enum ev_kind kind, const char *subject, uint64_t ino, const char *fmt, ...)
{
	va_list ap;

	event_journal_count(kind);
	va_start(ap, fmt);
	pthread_mutex_lock(&ev.lock);
	/* A script that changes a thousand files a second leaves room for other events. */
	if (ev.npending < (kind == EV_AUDIT ? EV_PENDING / 2 : EV_PENDING))
		event_journal_fill(&ev.pending[ev.npending++], kind, subject, ino, fmt, ap);
	else
		ev.lost++;
	pthread_mutex_unlock(&ev.lock);
	va_end(ap);
}

int journal_put(struct kv_txn *t, enum ev_kind kind, const char *subject, uint64_t ino,
		const char *fmt, ...)
{
	struct ev_event e;
	va_list ap;

	event_journal_count(kind);
	va_start(ap, fmt);
	event_journal_fill(&e, kind, subject, ino, fmt, ap);
	va_end(ap);
	return event_journal_row_put(t, &e);
}

/* ---- writing ---- */

static int event_journal_write_run(struct kv_op *op, struct kv_txn *t)
{
	int err = 0;

	(void)op;
	for (unsigned i = 0; i < ev.nwriting && !err; i++)
		err = event_journal_row_put(t, &ev.writing[i]);
	return err;
}

static void event_journal_write_done(struct kv_op *op, int err)
{
	(void)op;
	if (err)
		log_error("cannot write %u events to the journal: %s", ev.nwriting, strerror(-err));
	atomic_store(&ev.busy, false);
}

/* Moves the events that came in, and the count of lost ones, to where the committer reads them.
 * False: there are none, or the committer is busy. */
static bool event_journal_take(void)
{
	if (atomic_load(&ev.busy))
		return false;
	pthread_mutex_lock(&ev.lock);
	if (ev.lost && ev.npending < EV_PENDING) {
		struct ev_event *e = &ev.pending[ev.npending++];
		struct timespec now;

		clock_gettime(CLOCK_REALTIME, &now);
		*e = (struct ev_event){
			.e_kind = EV_LOST, .e_sec = now.tv_sec, .e_nsec = (uint32_t)now.tv_nsec};
		snprintf(e->e_text, sizeof(e->e_text), "%llu events came too fast and were dropped",
			 (unsigned long long)ev.lost);
		ev.lost = 0;
	}
	memcpy(ev.writing, ev.pending, ev.npending * sizeof(*ev.pending));
	ev.nwriting = ev.npending;
	ev.npending = 0;
	pthread_mutex_unlock(&ev.lock);
	return ev.nwriting;
}

void journal_tick(void)
{
	if (!event_journal_take())
		return;
	atomic_store(&ev.busy, true);
	/* write_done runs on the committer: it only sets a flag */
	ev.op = (struct kv_op){.o_run = event_journal_write_run,
			       .o_done = event_journal_write_done};
	kv_submit(ns_kv(ev.ns), &ev.op);
}

static int event_journal_close_run(void *arg, struct kv_txn *t)
{
	return event_journal_write_run(arg, t);
}

void journal_close(void)
{
	const struct timespec ms = {0, 1000000};

	for (unsigned n = 0; n < 5000 && atomic_load(&ev.busy); n++)
		nanosleep(&ms, NULL);
	if (event_journal_take())
		kv_run_sync(ns_kv(ev.ns), event_journal_close_run, NULL);
}

/* ---- reading ---- */

struct read {
	uint8_t ring;
	struct ev_event e;
	bool have;
};

static int read_one(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct read *r = arg;

	if (*(const uint8_t *)id.s_data != r->ring)
		return 1;
	r->have = row_get(id, val, &r->e);
	return r->have; /* skip a damaged row: fsck reports it */
}

static int read_next(struct kv_txn *t, struct read *r, uint64_t seq)
{
	uint8_t key[KEY_LEN];
	int err;

	event_journal_key_of(key, r->ring, seq + 1);
	r->have = false;
	err = ns_rows(t, NS_T_EVENT, key, sizeof(key), read_one, r);
	return err < 0 ? err : 0;
}

static struct read *read_oldest(struct read *r)
{
	struct read *next = NULL;

	for (unsigned i = 0; i < RINGS; i++)
		if (r[i].have && (!next || r[i].e.e_seq < next->e.e_seq))
			next = &r[i];
	return next;
}

int journal_read(struct kv_txn *t, uint64_t seq, int (*fn)(void *arg, const struct ev_event *e),
		 void *arg)
{
	struct read r[RINGS] = {{.ring = RING_CLUSTER}, {.ring = RING_FILES}, {.ring = RING_AUDIT}};
	struct read *next;
	int err = 0, stop = 0;

	for (unsigned i = 0; i < RINGS && !err; i++)
		err = read_next(t, &r[i], seq);
	while (!err && !stop && (next = read_oldest(r))) {
		stop = fn(arg, &next->e);
		err = read_next(t, next, next->e.e_seq);
	}
	return err;
}

static int event_journal_count_one(void *arg, struct kv_slice id, struct kv_slice val)
{
	uint8_t ring = *(const uint8_t *)id.s_data;
	uint64_t seq;

	(void)arg;
	(void)val;
	if (id.s_len != KEY_LEN || ring >= RINGS)
		return 0;
	memcpy(&seq, (const uint8_t *)id.s_data + 1, 8);
	seq = be64toh(seq);
	if (seq >= ev.next)
		ev.next = seq + 1;
	ev.rows[ring]++;
	return 0;
}

int journal_open(struct ns *ns)
{
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(ns), &t);

	if (err)
		return err;
	ev.ns = ns;
	ev.next = 1;
	for (unsigned k = 1; k < EV_KINDS; k++) {
		char label[64];

		metric_label(label, sizeof(label), "kind", names[k]);
		ev.counts[k] =
			metric_counter("weft_mds_events_total",
				       "Events put into the journal since the start.", label);
	}
	memset(ev.rows, 0, sizeof(ev.rows));
	err = ns_rows(t, NS_T_EVENT, NULL, 0, event_journal_count_one, NULL);
	kv_read_end(t);
	return err < 0 ? err : 0;
}
