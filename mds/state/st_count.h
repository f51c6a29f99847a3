/* SPDX-License-Identifier: Apache-2.0 */
/* st_count.h - how many opens, locks, layouts and delegations a client, an address and all clients
 * have, and the lists of them. */
#ifndef MDS_STATE_ST_COUNT_H
#define MDS_STATE_ST_COUNT_H
#include "base/hash.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct st;
struct st_client;
struct st_layout;
struct st_open;

/* What is counted for each client, for all clients of an address, and for all clients, so that
 * neither one client nor one address takes all of it: opens without delegations, lock-owners'
 * states, their ranges, layouts, delegations. */
enum st_count { ST_N_OPENS, ST_N_LOCKS, ST_N_RANGES, ST_N_LAYOUTS, ST_N_DELEGS, ST_COUNTS };
/* Includes what threads took ahead (sp_room). */
struct st_counts {
	_Alignas(64) _Atomic uint32_t ct_n[ST_COUNTS];
	/* Of a client only: */
	/* Its stripes that have room; a bit each, written under sp_lock. */
	_Atomic uint8_t ct_roomy;
	_Atomic uint64_t ct_takes; /* how often ct_n rose */
};

/*
 * The part of a client's counts and lists for some threads: a thread that opens files or grants
 * layouts uses its own stripe, so the client's connections do not meet in one place. A stripe takes
 * room ahead, in portions, from the counts of the client, its address and all clients (struct
 * st_counts), so that not every open writes those. Room that is not used goes back within seconds.
 * Once half of a limit is reached, a stripe takes only what it uses.
 */
struct st_stripe {
	_Alignas(64) pthread_mutex_t sp_lock;
	struct st_open *sp_opens; /* and delegations */
	struct st_layout *sp_layouts;
	_Atomic uint8_t sp_room[ST_COUNTS]; /* taken, and not used */
	_Atomic uint8_t sp_used;	    /* kinds used since the last st_quotas_tick */
};
#define ST_STRIPES 8u

/* What clients of one address have. */
struct st_addr_account {
	struct hash_link pl_link;
	uint8_t pl_addr[16];
	uint32_t pl_clients;
	struct st_counts pl_counts;
	uint64_t pl_oldest_ns; /* when st_client_oldest last looked here */
	_Atomic uint64_t pl_gathered_ns[ST_COUNTS];
};

/* locked: counts one more (1) or one less (-1) of what for the client, its address and all
 * clients. */
void st_count(struct st_client *c, enum st_count what, int more);
/* Call it before anything is counted: the limits of one client, of an address and of all clients.
 * What is taken ahead is a small part of the lowest. */
void st_set_quota_portion(struct st *st, enum st_count what, uint32_t of_client, uint32_t of_addr,
			  uint32_t of_all);
/* Any thread, without a lock: does the thread have room for one more already? */
bool st_has_quota(const struct st_client *c, enum st_count what);
/* All locked: the exact number that the client has, and that all clients have. */
uint32_t st_client_number(const struct st_client *c, enum st_count what);
uint32_t st_number(struct st *st, enum st_count what);
/* All locked: gives back what the client took ahead. */
void st_quotas_back(struct st_client *c);
/* Looked at. Call it now and then: gives back what the client took ahead and did not use since the
 * last call; where half of a limit is reached, all of it. */
void st_quotas_tick(struct st_client *c);
/* Looked at: gives back all of one kind. */
void st_quota_back(struct st_client *c, enum st_count what);
/* Looked at: the same for all clients of the address (NULL: all clients), at most once a second.
 * False: it is too soon. */
bool st_quotas_gather(struct st *st, struct st_addr_account *at, enum st_count what);
/* Any thread: may any client have some, c or another? Never false if one has. */
bool st_any_has(const struct st_client *c, enum st_count what);
/* Any thread: may another client have some? Never false if one has. */
bool st_others_have(const struct st_client *c, enum st_count what);
/* All locked: the client's next open or delegation, or layout. NULL: the first, and the end. */
struct st_open *st_open_next(const struct st_client *c, const struct st_open *o);
struct st_layout *st_layout_next(const struct st_client *c, const struct st_layout *l);
/* locked: adds it to, or removes it from, its client's list and counts. */
void st_open_list(struct st_open *o);
void st_open_unlist(struct st_open *o);
void st_layout_list(struct st_layout *l);
void st_layout_unlist(struct st_layout *l);
#endif
