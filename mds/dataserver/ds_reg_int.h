/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_reg_int.h - the inside of dsc.
 *
 * Locking. d_lock guards the table of servers and of control connections. It is never held over a
 * send, a commit or a callback, except that of ds_reg_candidates. A reader of one server takes no
 * lock and writes nothing shared: each node has a view, which writers bring up to date before they
 * release d_lock (ds_reg_unlock), and which any thread reads under a sequence lock. A view lives as
 * long as the table, since numbers are never used twice. A heartbeat writes only the words of the
 * view that changed.
 *
 * A link is one control connection. It is made, used and freed on its connection's loop only. Other
 * threads post to that loop, which looks the link up again.
 */
#ifndef MDS_DSC_INT_H
#define MDS_DSC_INT_H
#include "base/hash.h"
#include "mds/dataserver/ds_reg.h"
#include "proto/ctl_chan.h"
#include "proto/rpc_tls.h"
#include <pthread.h>
#include <stdatomic.h>

struct ds_reg_link {
	struct hash_link lk_link; /* by rpc_conn_id */
	struct ds_reg *lk_dsc;
	struct ctl_chan *lk_chan;
	struct rpc_conn *lk_conn;
	struct loop *lk_loop;
	uint64_t lk_id;
	uint32_t lk_server; /* the server that has joined or is joining by it; 0 before */
	/* Under d_lock: over it the server got keys of its own, of the number lk_number. */
	bool lk_moved;
	uint8_t lk_number;
	bool lk_refused; /* the log says that its join is refused */
	bool lk_proven;	 /* a sealed message came over it: the peer has the key */
	bool lk_token;	 /* join_token.c: a join token seals it, and it is no data server's */
};

/* Whoever reaches the port may say HELLO with CTL_HELLO_MEET, and has proved nothing by it. So many
 * connections of that kind may wait for their first sealed message, and each for so long. */
#define DS_REG_MEETS   16u
#define DS_REG_MEET_MS 10000u
struct ds_reg_meet {
	uint64_t mt_conn, mt_ms; /* since when */
	struct loop *mt_loop;
};
/* So many servers that come from another file system may wait for weft ds admit. */
#define DS_REG_MET_WAIT 16u

struct gen;
/* Most readers copy only the part up to nd_sv or nd_terms. */
struct ds_reg_node {
	struct ds_reg_link *nd_link;
	struct loop *nd_loop; /* the last link's */
	struct gen *nd_gen;   /* a generic server, which has no link */
	bool nd_joined;	      /* the join was answered on nd_link */
	/* it was killed, and d_dead was not called yet */
	bool nd_barred;
	/* dead because its NFS port did not answer; alive again when that port answers */
	bool nd_unserving;
	bool nd_withheld; /* its lease is not renewed, because it owes fences */
	/* a question is under way; the last one had no answer */
	bool nd_asking, nd_silent;
	bool nd_may_join, nd_draining; /* as in nd_terms; for the view */
	/* living_clients.c: it supports the list of live clients, as its join said; that list is
	 * being sent */
	bool nd_takes_bars, nd_telling;
	/* cluster_key.c: it supports keys of its own, as its join said; these are being sent */
	bool nd_takes_keys, nd_keying;
	/* The number of its last join, until its store is known to have it; 0: it is, or the join
	 * had no number. */
	uint32_t nd_unproven;
	/* gate.c: its view of this store was compared, and the store has all of it; the store is
	 * behind. */
	bool nd_compared, nd_ahead;
	uint32_t nd_join;      /* the number of the join under way, or of the last one */
	uint64_t nd_joined_ms; /* when it joined */
	uint64_t nd_last_boot; /* dt_boot, as of our start */
	/* gate.c: another start of its store asked to join while its link was alive; nd_beats when
	 * it first asked. If nd_beats has risen by two since, both live. */
	uint64_t nd_rival, nd_rival_beats, nd_beats;
	uint64_t nd_two_ms;	/* when the second one was last refused; 0: never */
	uint64_t nd_heard_ms;	/* CLOCK_MONOTONIC of the last join or heartbeat; 0: never */
	uint64_t nd_latency_ms; /* the same of the last report of its latency */
	/* liveness.c */
	enum ds_reg_state nd_state, nd_told; /* nd_told: the state in the log */
	uint64_t nd_since_s;
	/* When a client last reported that it did not reach it; 0: not, or its NFS port has
	 * answered us since. */
	uint64_t nd_reported_ms;
	uint64_t nd_lost_ms; /* when its connection ended; 0: never */
	uint64_t nd_said_ms; /* when it last answered a question, by either way */
	uint64_t nd_nfs_ms;  /* when it last did so on its NFS port */
	/* living_clients.c: the number of the last list that it got since it joined; 0: none. */
	uint64_t nd_living;
	uint64_t nd_tell_ms;	/* when it last did not accept one; 0: it did */
	uint64_t nd_key_ms;	/* when it was last sent keys */
	uint64_t nd_asked_ms;	/* when it was last asked */
	uint64_t nd_refused_ms; /* when its port last refused */

	struct ds_reg_server nd_sv;   /* sv_alive is computed when copied */
	struct ds_reg_terms nd_terms; /* dt_weight and dt_set: as last committed */
};
#define DS_REG_NODE_WORDS (sizeof(struct ds_reg_node) / sizeof(uint64_t))
_Static_assert(sizeof(struct ds_reg_node) % 8 == 0 &&
		       offsetof(struct ds_reg_node, nd_sv) % 8 == 0 &&
		       offsetof(struct ds_reg_node, nd_terms) % 8 == 0,
	       "copied by words");

/* A node as readers see it. */
struct ds_reg_view {
	_Alignas(64) _Atomic uint32_t vw_seq; /* odd: it is being written */
	_Atomic bool vw_known;
	_Atomic uint64_t vw_word[DS_REG_NODE_WORDS];
	uint8_t vw_tls; /* what ds_reg_least_tls counts, or UINT8_MAX; under d_lock */
};

/* One loop's connections for data, by server id: only that loop uses them. */
struct ds_reg_data;

#define DS_REG_BY_UUID (4 * 1024)
_Static_assert(DS_REG_BY_UUID >= 2 * DS_REG_MAX, "there is a free place");
struct ds_reg {
	struct ns *d_ns;
	struct ds_reg_opts d_opts;
	struct rpc_program d_program;
	uint64_t d_start_ms;
	pthread_mutex_t d_lock;
	struct ds_reg_ring d_ring;			      /* the cluster keys */
	struct ds_reg_node *d_node[DS_REG_MAX + 1];	      /* by id */
	_Atomic(struct ds_reg_view *) d_view[DS_REG_MAX + 1]; /* by id; stays */
	/* Ids, each in the first free place from its uuid's hash on; they stay. */
	_Atomic uint16_t d_by_uuid[DS_REG_BY_UUID];
	_Atomic unsigned d_count;
	_Atomic uint8_t d_least_tls;
	struct hash d_links;
	_Atomic unsigned d_nlinks;
	struct ds_reg_meet d_meets[DS_REG_MEETS]; /* the oldest first */
	unsigned d_nmeets;
	struct loop_timer d_timer;
	/* For the timer: when it last fired, and when it fired after our last pause. */
	uint64_t d_watched_ms, d_woke_ms;
	/* When the store was last seen not to be held, ms of CLOCK_MONOTONIC; 0: never. */
	_Atomic uint64_t d_shut_ms;
	uint32_t d_store_opened; /* store_lease_opened */
	/* liveness.c: what the journal says, since our start. */
	bool d_told_dead[DS_REG_MAX + 1], d_told_alive[DS_REG_MAX + 1];
	struct loop_msg d_start;
	void (*d_eof)(void *arg, struct loop *loop, uint64_t ino, uint16_t inc,
		      void (*reply)(void *rarg, int err, uint64_t size), void *rarg);
	void *d_eof_arg;
	void (*d_join)(void *arg, uint32_t id, void (*ready)(void *rarg), void *rarg);
	void *d_join_arg;
	uint64_t (*d_owed)(void *arg, uint32_t id);
	void *d_owed_arg;
	_Atomic uint64_t d_bars;	/* clients that were barred since our start */
	struct ds_reg_living *d_living; /* living_clients.c; for the first loop */
	int (*d_living_fn)(void *arg, uint32_t **clients, size_t *n, uint32_t *next);
	void *d_living_arg;
	void (*d_change)(void *arg, const uint8_t uuid[16]);
	void *d_change_arg;
	_Atomic bool d_open; /* gate.c: clients may be served */
	/* which server reported something that is ahead of the store, and what; empty: none did */
	char d_ahead[160];
	uint64_t d_boot_seen;
	struct loop_msg d_serve_msg;
	void (*d_serve)(void *arg);
	void *d_serve_arg;
	void (*d_dead)(void *arg, uint32_t id, const uint8_t uuid[16]);
	void *d_dead_arg;
	struct ds_reg_data **d_data;		   /* by loop */
	_Atomic bool d_told_clear[DS_REG_MAX + 1]; /* ds_reg_data.c */
	_Atomic bool d_closed;
	/* generic servers whose memory other threads may still use */
	struct gen *d_forgotten;
	_Atomic bool d_generic;		/* there is a generic server */
	_Atomic uint32_t d_clone_block; /* the largest of any server */
};

/* Locked, or before the loops run: puts the node into the table, by its number and uuid; or removes
 * and frees it. -ENOMEM */
int ds_reg_node_add(struct ds_reg *d, uint32_t id, struct ds_reg_node *nd);
void ds_reg_node_del(struct ds_reg *d, uint32_t id);
/* Locked, or before the loops run: makes readers see the node as it is now, or that there is
 * none. */
void ds_reg_publish(struct ds_reg *d, uint32_t id);
/* The same for nd (NULL: no node has changed); then releases d_lock. */
void ds_reg_unlock(struct ds_reg *d, const struct ds_reg_node *nd);
/* Any thread: returns the struct of a generic server, which lives as long as the table; NULL: it is
 * not generic. */
struct gen *ds_reg_nfs3_of(struct ds_reg *d, uint32_t id);
/* Any thread: returns the loop on which the server's link is, or NULL. On that loop, *lk stays
 * valid until the caller returns. For a generic server: *g, and the first loop. */
struct loop *ds_reg_link_loop(struct ds_reg *d, uint32_t id, struct ds_reg_link **lk,
			      struct gen **g);
/* Locked: returns the node of a uuid, or NULL. */
struct ds_reg_node *ds_reg_find_uuid(struct ds_reg *d, const uint8_t uuid[16]);
/* Locked. */
bool ds_reg_node_alive(const struct ds_reg *d, const struct ds_reg_node *nd);
/* Since when its silence counts, ms of CLOCK_MONOTONIC: its last message, or our start, or the last
 * time at which the store was not held. */
uint64_t ds_reg_silent_from(const struct ds_reg *d, const struct ds_reg_node *nd);

/* cluster_key.c */
/* Call it before the loops run, and before the rows of servers are read: reads the cluster keys. */
int ds_reg_ring_load(struct ds_reg *d);
/* Locked: sets the key of its capabilities, by the key's number, if we have that key. */
void ds_reg_set_key(struct ds_reg *d, struct ds_reg_server *sv);
/* ctl_key_fn; arg: the struct ds_reg. */
bool ds_reg_key_find(void *arg, const uint8_t ds_uuid[16], enum ctl_seal seal, uint8_t number,
		     uint8_t key[CAP_CLUSTER_KEY_LEN]);
/* True when the cluster key of the file is not the newest any more. */
bool ds_reg_rotated(struct ds_reg *d);
/* Sends the server keys of its own if it lacks those of the newest number. First loop. */
void ds_reg_key_look(struct ds_reg *d, uint32_t id);

/* join_token.c */
/* The key of the channel of a join token with this id; false: there is no such token. Used and
 * expired tokens have one: their holders are told so. */
bool ds_reg_token_key(struct ds_reg *d, const uint8_t id[16], uint8_t key[CAP_CLUSTER_KEY_LEN]);
void ds_reg_token_serve(struct ds_reg_link *lk, struct ctl_incoming *in);

/* living_clients.c: sends servers the list of live clients when it is time. First loop. */
void ds_reg_bars_look(struct ds_reg *d);
void ds_reg_bars_close(struct ds_reg *d);

/* Locked, or before the loops run. */
void ds_reg_note_clone(struct ds_reg *d, const struct ds_reg_server *sv);

/* ds_reg_forget_run: the mutation that deletes a server's record (op: of a struct ds_reg_command).
 * ds_reg_nfs3_drop: removes a generic server, whose memory lives as long as the table. */
int ds_reg_forget_run(struct kv_op *op, struct kv_txn *t);
void ds_reg_nfs3_drop(struct ds_reg *d, struct gen *g);

/* liveness.c */
void ds_reg_watch(struct loop_timer *t);
/* Locked: bars the server from joining (DS_REG_KILLED, DS_REG_WAITING), or lets it join again
 * (0). */
void ds_reg_bar(struct ds_reg *d, struct ds_reg_node *nd, uint8_t barred);
/* Locked. */
void ds_reg_set_state(struct ds_reg_node *nd, enum ds_reg_state st);

/* gate.c. Locked: begins to serve if the gate is open now. */
void ds_reg_gate_look(struct ds_reg *d);
/* What a server reported when it joined. An id of 0 is not known. */
struct ds_reg_told {
	/* The newest boot of this store that it saw; 0: it does not report one. */
	uint64_t to_boot, to_boot_id;
	/* As reported: at most CTL_ORDER_STEP above the highest order that it saw. */
	uint64_t to_order;
	uint64_t to_start, to_start_id; /* of its own store */
	/* The boot of this store and the number (0: none) of the last join that its own store
	 * has. */
	uint64_t to_kept_boot;
	uint32_t to_kept_joins;
	/* It speaks a protocol that reports these, except to_order and to_kept_... */
	bool to_tells;
	bool to_counts; /* it reports to_kept_..., and accepts a number */
};
/* In a transaction: 0; 1: the store is behind, and why says in what; or -errno. was: the server's
 * terms in the store, or NULL. */
int ds_reg_gate_compare(struct ds_reg *d, struct kv_txn *t, const struct ds_reg_terms *was,
			const struct ds_reg_told *to, char why[128]);
/* Has the server had a join that its terms in the store do not know? Only for boots of one
 * timeline. */
bool ds_reg_gate_unknown(const struct ds_reg_terms *was, const struct ds_reg_told *to);
/* Sets in dt what is recorded of a join of boot, after was (NULL: there was none): the join and its
 * number. */
void ds_reg_gate_note(struct ds_reg_terms *dt, const struct ds_reg_terms *was,
		      const struct ds_reg_told *to, uint64_t boot);
/* The server's store has the join of this number and boot, if that is the last: notes it in dt.
 * False: there is nothing to record. */
bool ds_reg_gate_proven(struct ds_reg_terms *dt, uint64_t boot, uint32_t joins);
/* Locked. Call it when a heartbeat came after the server stored its join. Returns the mutation that
 * makes that durable here, for the caller to submit without the lock; or NULL. */
struct kv_op *ds_reg_gate_prove(struct ds_reg *d, struct ds_reg_node *nd);
/* Locked: the server (nd, if it is known) has compared well (why NULL), or is ahead. If clients are
 * being served when a server is ahead, the process ends. */
void ds_reg_gate_reported(struct ds_reg *d, struct ds_reg_node *nd, const char *name,
			  const struct ds_reg_told *to, const char *why);

/* Returns why the server's store is behind what was recorded of it, or NULL. */
const char *ds_reg_gate_behind(const struct ds_reg_terms *was, const struct ds_reg_told *to);
/* Locked: another start of the server's store asks to join, over lk. */
enum ds_reg_rival { DS_REG_RIVAL_NONE, DS_REG_RIVAL_WAIT, DS_REG_RIVAL_TWO };
enum ds_reg_rival ds_reg_gate_rival(struct ds_reg *d, struct ds_reg_node *nd,
				    const struct ds_reg_link *lk, const struct ds_reg_told *to);

/* ds_record.c: the durable record of a server */
#define DS_REG_ROW_MAX 2560
size_t ds_reg_row_encode(const struct ds_reg_server *sv, const struct ds_reg_terms *dt,
			 uint8_t *out);
int ds_reg_row_decode(struct kv_slice id, struct kv_slice val, struct ds_reg_server *sv,
		      struct ds_reg_terms *dt);

/* join.c */
void ds_reg_join_serve(struct ds_reg_link *lk, struct ctl_incoming *in);
/* What an answer says of a negative errno. */
ctl_status ds_reg_ctl_status(int err);

/* ds_control.c: the control program */
void ds_reg_dispatch(struct rpc_call *call, void *arg);
/* Returns the link of a connection; NULL: it is gone. The first one: the caller holds d_lock. */
struct ds_reg_link *ds_reg_link_find(struct ds_reg *d, uint64_t conn_id);
struct ds_reg_link *ds_reg_link_of(struct ds_reg *d, uint64_t conn_id);
/* Ends a connection of any loop. Any thread. */
void ds_reg_link_close(struct ds_reg *d, struct loop *loop, uint64_t conn_id);
/* Ends the connections that have said HELLO with CTL_HELLO_MEET, and nothing in time. */
void ds_reg_meets_look(struct ds_reg *d);

/* ctl_call.c: ends a call, on any loop */
void ds_reg_call_end(struct ds_reg_ctl *c, int err);

/* Locked: adds what clients lately reported: n reads, us microseconds together. */
void ds_reg_fold_latency(struct ds_reg_node *nd, uint64_t us, unsigned n, uint64_t now);

/* ds_reg_data.c */
/* ds_reg_data_latency: notes what a client reported, on the calling loop; false: it is not one of
 * dsc's loops. ds_reg_data_latencies: publishes what all loops noted; on the first loop. */
bool ds_reg_data_latency(struct ds_reg *d, uint32_t id, uint32_t us);
void ds_reg_data_latencies(struct ds_reg *d);
int ds_reg_data_create(struct ds_reg *d);
void ds_reg_data_destroy(struct ds_reg *d);
/* Ends the calls that are under way to a dead server, so that no request waits for their timeouts.
 * First loop. */
void ds_reg_data_end(struct ds_reg *d, uint32_t id);
#endif
