/* SPDX-License-Identifier: Apache-2.0 */
/* st_view.h - copies of what the tables of clients and layouts hold, for people. These functions
 * take the lock, for a short time each: what comes and goes meanwhile may be in the copy or not. */
#ifndef MDS_ST_VIEW_H
#define MDS_ST_VIEW_H
#include "mds/state/st.h"

#define ST_VIEW_ADDRS 8

struct st_client_view {
	uint64_t cv_id;
	uint32_t cv_number;
	uint8_t cv_owner[NFS4_OPAQUE_LIMIT];
	uint32_t cv_owner_len;
	uint32_t cv_flavor, cv_uid;
	char cv_principal[256]; /* "": none */
	uint8_t cv_addr[ST_VIEW_ADDRS][16];
	unsigned cv_naddrs;	/* addresses from which it made its sessions */
	uint32_t cv_minor;	/* the highest of its sessions; 0: it has none */
	uint8_t cv_sec, cv_tls; /* of its newest session; meaningless without one */
	uint32_t cv_sessions, cv_backchannels, cv_opens, cv_locks, cv_delegs, cv_layouts;
	uint64_t cv_silent_ms;
	bool cv_confirmed, cv_evicting, cv_expired, cv_reclaims;
};
/* Returns the ids of all clients, by rising id; malloc'd. 0 or -ENOMEM. */
int st_client_ids(struct st *st, uint64_t **ids, size_t *n);
/* False: it is gone. */
bool st_client_view(struct st *st, uint64_t id, struct st_client_view *v);

/* Looked at: fills in the owner and the addresses alone. */
void st_client_names(const struct st_client *c, struct st_client_view *v);
/* Returns the name in a client's owner string: for Linux the host's, else the whole string. */
const uint8_t *st_owner_name(const uint8_t *owner, uint32_t len, uint32_t *name_len);
#define ST_ADDR_TEXT 46 /* INET6_ADDRSTRLEN */
void st_addr_text(const uint8_t addr[16], char text[ST_ADDR_TEXT]);

/* Returns how many clients keep their state though their lease is over (courteous). */
unsigned st_courteous(struct st *st);

struct st_layout_view {
	uint64_t lv_ino, lv_client;
	uint32_t lv_number; /* the client's */
	uint32_t lv_iomode; /* bit 1 READ, bit 2 RW */
	bool lv_recalled;
};
/* Calls fn for the layouts of that file and client (0: of any), ordered by file and client, without
 * the lock. 0 or -ENOMEM. */
int st_layouts_view(struct st *st, uint64_t ino, uint64_t client,
		    void (*fn)(void *arg, const struct st_layout_view *v), void *arg);
#endif
