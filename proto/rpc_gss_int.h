/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_gss_int.h - what rpc_gss.c and rpc_gss_msg.c share. */
#ifndef PROTO_RPC_GSS_INT_H
#define PROTO_RPC_GSS_INT_H
#include "base/hash.h"
#include "proto/rpc_gss.h"
#include "proto/rpc_int.h"
#include <gssapi/gssapi.h>
#include <pthread.h>

#define GSS_HANDLE 16u
/* RFC 2203 section 5.3.3.1. Wide, because calls of one context arrive on many connections and
 * overtake each other. */
#define GSS_WINDOW    1024u
#define GSS_MAXSEQ    0x80000000u
#define GSS_MAX_TOKEN 65536u

/* A context in the table is on up to three lists, each by last use: the list of all, that of its
 * address, and, when it is established, that of its principal. */
enum gss_list { GSS_ALL, GSS_ADDR, GSS_PRINCIPAL, GSS_LISTS };
struct gss_lru {
	struct gss_ctx *lr_newest, *lr_oldest;
	unsigned lr_count;
};

/* The contexts of an address or a principal. */
struct gss_owner {
	struct hash_link ow_link;
	struct gss_lru ow_lru;
	enum gss_list ow_kind;
	size_t ow_len;
	uint8_t ow_name[];
};

struct gss_ctx {
	struct hash_link x_link;
	struct {
		struct gss_ctx *newer, *older;
		struct gss_lru *lru; /* NULL: not on it; g_lock */
	} x_on[GSS_LISTS];
	struct rpc_gss *x_gss;
	uint32_t x_refs;    /* the table's, and one for each call and job; g_lock */
	bool x_in;	    /* in the table; g_lock */
	uint8_t x_addr[16]; /* the address that made it */
	uint8_t x_handle[GSS_HANDLE];
	char *x_principal; /* set before it is established, then constant */

	pthread_mutex_t x_lock; /* guards the rest */
	gss_ctx_id_t x_sec;
	bool x_established, x_accepting;
	uint64_t x_expires_ns;
	uint32_t x_high;
	/* bit seq % GSS_WINDOW, for x_high and numbers less than a window below it */
	uint64_t x_seen[GSS_WINDOW / 64];
	struct rpc_ids x_ids;
	uint64_t x_ids_due_ns; /* when to look them up again */
	bool x_ids_asked;
};

struct rpc_gss {
	struct rpc_gss_opts g_opts;
	gss_cred_id_t g_cred;
	struct worker *g_worker;
	pthread_mutex_t g_lock;
	struct hash g_table;
	struct gss_lru g_all;
	struct hash g_owners;
	uint64_t g_told_ns; /* the thread's: when a refusal may be logged again */
};

extern struct metric *gss_m_made, *gss_m_failed, *gss_m_dropped, *gss_m_evicted;
/* Returns a reference; NULL: no such context. */
struct gss_ctx *gss_ctx_find(struct rpc_gss *g, const uint8_t *handle, uint32_t len);
void gss_ctx_put(struct gss_ctx *x);
/* Takes the context out of the table; references to it stay good. */
void gss_ctx_remove(struct gss_ctx *x);
/* Looks the identity up again, on go_names, when it is due. x_lock is held. */
void gss_ctx_refresh(struct gss_ctx *x);
/* INIT and CONTINUE_INIT. */
enum rpc_gss_verdict gss_init(struct rpc_gss *g, struct rpc_call *call, struct rpc_head *h);
/* True when seq may be served (section 5.3.3.1). Records it. x_lock is held. */
bool gss_window(struct gss_ctx *x, uint32_t seq);
#endif
