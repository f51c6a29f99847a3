/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_key.h - the key in etcd whose holder may answer for an instance
 * (docs/decisions/etcd-lease.md).
 *
 * One process holds the key: only it changes the value, by transactions that compare what it wrote
 * last. Each change that etcd made extends the lease to 0.75 L after its question was sent
 * (CLOCK_BOOTTIME). Another process takes the key when it saw it unchanged for L, its own or the
 * holder's, whichever is longer, or free.
 *
 * Errors are negative errno. -EAGAIN: no answer now, or too late a one; lease_key_why() says more.
 */
#ifndef MDS_LEASE_KEY_H
#define MDS_LEASE_KEY_H
#include "mds/etcd.h"

struct lease_key_opts {
	struct etcd_opts lk_etcd;
	const char *lk_owner; /* names this process, for people */
	uint32_t lk_lease_ms; /* L */
	uint32_t lk_rank_ms;  /* waits so much longer than L before it takes the key */
	/* Of the holder that serves; on another thread, and must not block. held: the lease lives
	 * until end_ns. */
	void (*lk_held)(void *arg, uint64_t end_ns);
	/* Deposed. May end the process. */
	void (*lk_lost)(void *arg, const char *why);
	void *lk_arg;
};

struct lease_key;
int lease_key_open(struct lease_key **out, const struct lease_key_opts *o, char *err,
		   size_t errlen);
/* Not under way: lease_key_give_up first. */
void lease_key_close(struct lease_key *k);

/* The following four: one thread at a time. Reads the key of the instance whose log has this
 * identity; waits L / 4 at most. its_ms: L of the holder, as the row of the instance has it; 0: not
 * known. The key says it too: who took it may not be in the row yet. */
int lease_key_look(struct lease_key *k, uint32_t inst, const uint8_t ident[16], uint32_t its_ms);
/* Has the key been free, or unchanged in quick answers without a gap for the longer L and the rank?
 */
bool lease_key_due(const struct lease_key *k);
/* Takes the key as lease_key_look() has seen it last, and extends it from now on, on a thread of
 * its own. -EAGAIN: it has changed, or that is not known; look again. */
int lease_key_take(struct lease_key *k);
/* The claim that the key allowed is made: lk_held is called from now on. */
void lease_key_serve(struct lease_key *k);
/* The holder answers nothing any more: frees the key for others. Waits L / 2 at most. */
void lease_key_give_up(struct lease_key *k);

/* L of the holder, in ms, as a value of the key has it, which is text of any kind; 0: it says
 * nothing. At most 999999999. */
uint32_t lease_key_ms(const char *value);

/* Any thread. */
struct lease_key_state {
	bool ls_up;		       /* etcd answered the last question */
	uint64_t ls_end_ns;	       /* of the lease; 0: it holds nothing */
	uint64_t ls_asked, ls_unasked; /* questions; those without an answer */
};
void lease_key_state(struct lease_key *k, struct lease_key_state *out);
/* As of the last look or try. The caller's: "" if nothing is wrong. */
void lease_key_why(struct lease_key *k, char *out, size_t len);
/* The number of the etcd that the last look saw: 32 digits; "": none yet. The handle's memory. */
const char *lease_key_etcd(const struct lease_key *k);
#endif
