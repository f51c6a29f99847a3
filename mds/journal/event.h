/*
 * event.h - the journal: what happened that an administrator asks for later (weft events).
 *
 * Any part tells it with one line, ev_add, from any thread: it copies a few hundred bytes under a
 * lock that is held for nothing else, and never waits for the store. A tick writes what came in, in
 * the background. So a crash can lose the last quarter of a second of these. What must not be lost,
 * because it is a fact of the store itself (a copy became stale), is put by the transaction that
 * makes it so: ev_put.
 *
 * It is bounded: EV_RING rows for what happens to servers, clients and the cluster, and as many for
 * what happens to files, so that a million stale files do not push out why. Between two ticks
 * EV_PENDING events are kept; more are counted, and the count becomes an event.
 */
#ifndef MDS_EV_H
#define MDS_EV_H
#include "mds/namespace/ns.h"

#define EV_RING	       10000
#define EV_PENDING     256
#define EV_TEXT_MAX    200
#define EV_SUBJECT_MAX 80

/* Stored: a number keeps its meaning. The names are in event.c. */
enum ev_kind {
	EV_STARTED = 1,
	EV_GRACE_BEGINS = 2,
	EV_GRACE_ENDED = 3,
	EV_STOPPED = 4,
	EV_DS_JOINED = 5,
	EV_DS_LEFT = 6,
	EV_DS_SUSPECT = 7,
	EV_DS_DEAD = 8,
	EV_DS_ALIVE = 9,
	EV_DS_CHANGED = 10,  /* weight, labels, drained, admitted, forgotten */
	EV_DS_NO_SPACE = 11, /* it is full, or its disks fail: it says no more than that */
	EV_CLIENT_EVICTED = 12,
	EV_POLICY_SET = 13,
	EV_EXPORTS_RELOADED = 14,
	EV_LAYOUT_FENCED = 15,
	EV_COPY_STALE = 16,
	EV_COPY_REPAIRED = 17,
	EV_FILE_MOVED = 18,    /* these four are files' */
	EV_LOST = 19,	       /* events that there was no room for */
	EV_SCRUBBED = 20,      /* a scrub began, or is over */
	EV_COPY_CHOSEN = 21,   /* the administrator declared a mirror good */
	EV_RESTORED = 22,      /* the store was put back; a data server's store was */
	EV_COPIES_DIFFER = 23, /* of a file, when nobody wrote it; they are made equal */
	EV_KINDS
};
const char *ev_kind_name(enum ev_kind k);
/* 0: there is none of this name. */
enum ev_kind ev_kind_of(const char *name);

/* subject: the data server's, client's or file's name, or ""; ino: the file's, or 0. Text longer
 * than EV_TEXT_MAX is cut. */
void ev_add(enum ev_kind kind, const char *subject, uint64_t ino, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* W: the same, committed with what it tells of. */
int ev_put(struct kv_txn *t, enum ev_kind kind, const char *subject, uint64_t ino, const char *fmt,
	   ...) __attribute__((format(printf, 5, 6)));

/* Before anything is served: where the numbers of before end. 0 or a negative errno. */
int ev_open(struct ns *ns);
/* Every tick, on one thread: what came in is written. */
void ev_tick(void);
/* No loop runs any more: writes what is left, and waits for it. */
void ev_close(void);

struct ev_event {
	uint64_t e_seq; /* rises, in the order in which they were committed; some are left out */
	int64_t e_sec;
	uint32_t e_nsec;
	enum ev_kind e_kind;
	uint64_t e_ino;
	char e_subject[EV_SUBJECT_MAX + 1], e_text[EV_TEXT_MAX + 1];
};
/* Those behind seq, the oldest first; fn returns 0 to go on. */
int ev_read(struct kv_txn *t, uint64_t seq, int (*fn)(void *arg, const struct ev_event *e),
	    void *arg);
#endif
