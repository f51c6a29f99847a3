/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event_journal.h - the journal: events that an administrator looks up later (weft events).
 *
 * Any part reports an event with one line, journal_add, from any thread: it copies a few hundred
 * bytes under a lock that is held for nothing else, and never waits for the store. A tick writes
 * the new events, in the background. So a crash can lose the last quarter of a second of them. An
 * event that must not be lost, because it is a fact of the store itself (a copy became stale), is
 * put by the transaction that makes it so: journal_put.
 *
 * The journal is bounded: EV_RING rows for events of servers, clients and the cluster, as many for
 * events of files, and as many for administrators' requests, so that a million stale files do not
 * push out the reason. Between two ticks EV_PENDING events are kept, of which administrators'
 * requests take at most half; more are counted, and the count becomes an event.
 */
#ifndef MDS_EV_H
#define MDS_EV_H
#include "mds/namespace/ns.h"

#define EV_RING	       10000
#define EV_PENDING     256
#define EV_TEXT_MAX    200
#define EV_SUBJECT_MAX 80

/* These numbers are stored, so each keeps its meaning. The names are in event_journal.c. */
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
	EV_DS_CHANGED = 10, /* weight, labels, drained, admitted, forgotten */
	/* it is full, or its disks fail: it does not report which */
	EV_DS_NO_SPACE = 11,
	EV_CLIENT_EVICTED = 12,
	EV_POLICY_SET = 13,
	EV_EXPORTS_RELOADED = 14,
	EV_LAYOUT_FENCED = 15,
	EV_COPY_STALE = 16,
	EV_COPY_REPAIRED = 17,
	EV_FILE_MOVED = 18,  /* these four, EV_COPIES_DIFFER and EV_POLICY_REFUSED: of files */
	EV_LOST = 19,	     /* events for which there was no room */
	EV_SCRUBBED = 20,    /* a scrub began or ended */
	EV_COPY_CHOSEN = 21, /* the administrator declared a mirror good */
	EV_RESTORED = 22,    /* the store was restored; a data server's store was */
	/* a file's copies, when no client wrote it; they are made equal */
	EV_COPIES_DIFFER = 23,
	EV_CONFIG_CHANGED = 24,
	EV_AUDIT = 25,		/* a request that changes something was done or refused */
	EV_POLICY_REFUSED = 26, /* a client set a policy, or a name of ours, that is refused */
	EV_TRASH_EMPTIED = 27,	/* early, because room got short */
	EV_TRASH_DAMAGED = 28,	/* a row of the trash cannot be read, and was set aside */
	EV_TAKEOVER = 29,	/* this process took the instance, and serves */
	EV_INSTANCE_MOVE = 30,	/* of the instance to another node: begun, ended, refused */
	EV_STANDBY = 31,	/* one came, went, fell behind */
	EV_KINDS
};
const char *ev_kind_name(enum ev_kind k);
/* 0: there is none of this name. */
enum ev_kind ev_kind_of(const char *name);

/* Adds an event. subject: the data server's, client's or file's name, or ""; ino: the file's, or 0.
 * Cuts a text that is longer than EV_TEXT_MAX. Any thread. */
void journal_add(enum ev_kind kind, const char *subject, uint64_t ino, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* W: the same, committed with the fact that it reports. 0 or -errno. */
int journal_put(struct kv_txn *t, enum ev_kind kind, const char *subject, uint64_t ino,
		const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Call it before anything is served: finds where the numbers of earlier events end. 0 or -errno. */
int journal_open(struct ns *ns);
/* Call it every tick, on one thread: writes the new events. */
void journal_tick(void);
/* Call it when no loop runs any more: writes what is left, and waits for it. */
void journal_close(void);

struct ev_event {
	uint64_t e_seq; /* rises in commit order; some numbers are left out */
	int64_t e_sec;
	uint32_t e_nsec;
	enum ev_kind e_kind;
	uint64_t e_ino;
	char e_subject[EV_SUBJECT_MAX + 1], e_text[EV_TEXT_MAX + 1];
};
/* Calls fn for the events after seq, the oldest first; fn returns 0 to go on. */
int journal_read(struct kv_txn *t, uint64_t seq, int (*fn)(void *arg, const struct ev_event *e),
		 void *arg);
#endif
