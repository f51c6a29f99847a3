/*
 * dsc_int.h - inside dsc.
 *
 * Locking. d_lock guards the table of servers and of control connections; it is never held over a
 * send, a commit or a callback, but dsc_seats'. Who asks about one server takes no lock and writes
 * nothing that is shared: of each node there is a view, which writers bring up to date before they
 * give d_lock back (dsc_unlock), and which is read under a sequence lock, by any thread. A view
 * lives as long as the table, since numbers are never used twice. A heartbeat writes those words of
 * it that changed.
 *
 * A link is one control connection. It is made, used and freed on its connection's loop only;
 * others reach it by posting to that loop, where it is looked up again.
 */
#ifndef MDS_DSC_INT_H
#define MDS_DSC_INT_H
#include "base/hash.h"
#include "mds/dataserver/dsc.h"
#include "proto/ctl_chan.h"
#include "proto/rpc_tls.h"
#include <pthread.h>
#include <stdatomic.h>

struct dsc_link {
	struct hash_link lk_link; /* by rpc_conn_id */
	struct dsc *lk_dsc;
	struct ctl_chan *lk_chan;
	struct rpc_conn *lk_conn;
	struct loop *lk_loop;
	uint64_t lk_id;
	uint32_t lk_server; /* joined, or joining, as; 0 before */
	bool lk_moved; /* under d_lock: over it the server got keys of its own, of this number */
	uint8_t lk_number;
	bool lk_refused; /* the log has it that its join is refused */
};

struct gen;
/* What readers see of it ends at nd_sv or at nd_terms for most of them. */
struct dsc_node {
	struct dsc_link *nd_link;
	struct loop *nd_loop;		/* the last link's */
	struct gen *nd_gen;		/* a generic server: there is no link */
	bool nd_joined;			/* the join was answered on nd_link */
	bool nd_barred;			/* nobody was told yet that it is killed */
	bool nd_unserving;		/* it is dead for that, and lives when that port answers */
	bool nd_withheld;		/* its lease is not renewed: it owes fences */
	bool nd_asking, nd_silent;	/* a question is under way; the last one had no answer */
	bool nd_may_join, nd_draining;	/* as in nd_terms; of a view */
	bool nd_takes_bars, nd_telling; /* bars.c: it said so when it joined; it is being told */
	bool nd_takes_keys, nd_keying; /* key.c: it said so when it joined; it is being sent them */
	uint32_t nd_unproven; /* the number of its last join, until its store is known to have it;
				 0: it is, or had no number */
	/* gate.c: what it saw of this store, the store knows; or does not */
	bool nd_compared, nd_ahead;
	uint32_t nd_join;      /* the number of the join under way, or the last */
	uint64_t nd_joined_ms; /* when */
	uint64_t nd_last_boot; /* dt_boot, as of our start */
	/* gate.c: another start of its store asked to join while its link was alive; nd_beats when
	 * it asked first. Two: both live. */
	uint64_t nd_rival, nd_rival_beats, nd_beats;
	uint64_t nd_two_ms;	/* when the second was refused last; 0: never */
	uint64_t nd_heard_ms;	/* CLOCK_MONOTONIC of the last join or heartbeat; 0: never */
	uint64_t nd_latency_ms; /* the same of the last word on its latency */
	/* watch.c */
	enum dsc_state nd_state, nd_told; /* told: in the log */
	uint64_t nd_since_s;
	/* by a client that did not reach it; 0: not, or its NFS port answered us since */
	uint64_t nd_reported_ms;
	uint64_t nd_lost_ms; /* when its connection ended; 0: never */
	uint64_t nd_said_ms; /* when it answered a question last, by whatever way */
	uint64_t nd_nfs_ms;  /* when it did so on its NFS port */
	/* bars.c: the number of what it was told last since it joined; 0: nothing */
	uint64_t nd_living;
	uint64_t nd_tell_ms;	/* when it did not take it; 0: it did */
	uint64_t nd_key_ms;	/* when it was sent keys last */
	uint64_t nd_asked_ms;	/* when it was asked last */
	uint64_t nd_refused_ms; /* when its port refused last */

	struct dsc_server nd_sv;   /* sv_alive is computed when copied */
	struct dsc_terms nd_terms; /* dt_weight and dt_set: as committed last */
};
#define DSC_NODE_WORDS (sizeof(struct dsc_node) / sizeof(uint64_t))
_Static_assert(sizeof(struct dsc_node) % 8 == 0 && offsetof(struct dsc_node, nd_sv) % 8 == 0 &&
		       offsetof(struct dsc_node, nd_terms) % 8 == 0,
	       "copied by words");

/* A node as others see it. */
struct dsc_view {
	_Alignas(64) _Atomic uint32_t vw_seq; /* odd: it is being written */
	_Atomic bool vw_known;
	_Atomic uint64_t vw_word[DSC_NODE_WORDS];
	uint8_t vw_tls; /* what dsc_least_tls counts, or UINT8_MAX; under d_lock */
};

/* Connections for data of one loop, by server id: touched by that loop only. */
struct dsc_data;

#define DSC_BY_UUID (4 * 1024)
_Static_assert(DSC_BY_UUID >= 2 * DSC_MAX, "there is a free place");
struct dsc {
	struct ns *d_ns;
	struct dsc_opts d_opts;
	struct rpc_program d_program;
	uint64_t d_start_ms;
	pthread_mutex_t d_lock;
	struct dsc_ring d_ring;				/* the cluster keys */
	struct dsc_node *d_node[DSC_MAX + 1];		/* by id */
	_Atomic(struct dsc_view *) d_view[DSC_MAX + 1]; /* by id; stays */
	/* ids, each in the first free place from its uuid's hash on; stays */
	_Atomic uint16_t d_by_uuid[DSC_BY_UUID];
	_Atomic unsigned d_count;
	_Atomic uint8_t d_least_tls;
	struct hash d_links;
	_Atomic unsigned d_nlinks;
	struct loop_timer d_timer;
	/* the timer's: when it fired last, and after our last pause */
	uint64_t d_watched_ms, d_woke_ms;
	/* watch.c: in the journal, since our start */
	bool d_told_dead[DSC_MAX + 1], d_told_alive[DSC_MAX + 1];
	struct loop_msg d_start;
	void (*d_eof)(void *arg, struct loop *loop, uint64_t ino, uint16_t inc,
		      void (*reply)(void *rarg, int err, uint64_t size), void *rarg);
	void *d_eof_arg;
	void (*d_join)(void *arg, uint32_t id, void (*ready)(void *rarg), void *rarg);
	void *d_join_arg;
	uint64_t (*d_owed)(void *arg, uint32_t id);
	void *d_owed_arg;
	_Atomic uint64_t d_bars;     /* clients that were barred since our start */
	struct dsc_living *d_living; /* bars.c; the first loop's */
	int (*d_living_fn)(void *arg, uint32_t **clients, size_t *n, uint32_t *next);
	void *d_living_arg;
	void (*d_change)(void *arg, const uint8_t uuid[16]);
	void *d_change_arg;
	_Atomic bool d_open; /* gate.c: it may be served */
	char d_ahead[160];   /* what a server said that is ahead of the store; empty: none did */
	uint64_t d_boot_seen;
	struct loop_msg d_serve_msg;
	void (*d_serve)(void *arg);
	void *d_serve_arg;
	void (*d_dead)(void *arg, uint32_t id, const uint8_t uuid[16]);
	void *d_dead_arg;
	struct dsc_data **d_data;		/* by loop */
	_Atomic bool d_told_clear[DSC_MAX + 1]; /* data.c */
	_Atomic bool d_closed;
	struct gen *d_forgotten;	/* generic ones, whose memory others may yet use */
	_Atomic bool d_generic;		/* some server is */
	_Atomic uint32_t d_clone_block; /* the largest of any server */
};

/* Locked, or before the loops run: the node into the table, by its number and uuid, and out of it.
 * -ENOMEM */
int dsc_node_add(struct dsc *d, uint32_t id, struct dsc_node *nd);
void dsc_node_del(struct dsc *d, uint32_t id);
/* Locked, or before the loops run: readers see the node as it is now, or that there is none. */
void dsc_publish(struct dsc *d, uint32_t id);
/* The same for nd (NULL: none has changed), and gives d_lock back. */
void dsc_unlock(struct dsc *d, const struct dsc_node *nd);
/* Any thread: a generic server's, which lives as long as the table; NULL: it is none. */
struct gen *dsc_gen_of(struct dsc *d, uint32_t id);
/* Any thread: the loop on which the server's link is, or NULL. On that loop, *lk stays valid until
 * the caller returns. */
struct loop *dsc_link_loop(struct dsc *d, uint32_t id, struct dsc_link **lk, struct gen **g);
/* Locked: the node of a uuid, or NULL. */
struct dsc_node *dsc_find_uuid(struct dsc *d, const uint8_t uuid[16]);
/* Locked. */
bool dsc_node_alive(const struct dsc *d, const struct dsc_node *nd);

/* key.c */
/* Before the loops run, and before rows are: the cluster keys that there are. */
int dsc_ring_load(struct dsc *d);
/* Locked: what its capabilities are made with; by its number, if there is a key of that yet. */
void dsc_set_key(struct dsc *d, struct dsc_server *sv);
/* ctl_key_fn; arg: the struct dsc. */
bool dsc_key_find(void *arg, const uint8_t ds_uuid[16], bool own, uint8_t number,
		  uint8_t key[CAP_CLUSTER_KEY_LEN]);
/* Sends the server keys of its own, where it has not those of the newest number. First loop. */
void dsc_key_look(struct dsc *d, uint32_t id);

/* bars.c: tells servers who lives, where it is time. First loop. */
void dsc_bars_look(struct dsc *d);
void dsc_bars_close(struct dsc *d);

/* Locked, or before the loops run. */
void dsc_note_clone(struct dsc *d, const struct dsc_server *sv);

/* The mutation that deletes a server's record (op: of a struct dsc_word); and the end of a generic
 * one: its memory lives as long as the table. */
int dsc_forget_run(struct kv_op *op, struct kv_txn *t);
void dsc_gen_drop(struct dsc *d, struct gen *g);

/* watch.c */
void dsc_watch(struct loop_timer *t);
/* Locked: it may not join (DSC_KILLED, DSC_WAITING), or may again (0). */
void dsc_bar(struct dsc *d, struct dsc_node *nd, uint8_t barred);
/* Locked. */
void dsc_set_state(struct dsc_node *nd, enum dsc_state st);

/* gate.c. Locked: looks whether it is time to serve. */
void dsc_gate_look(struct dsc *d);
/* What a server told when it joined. id 0: not known. */
struct dsc_told {
	/* of this store, the newest that it saw; boot 0: it does not tell */
	uint64_t to_boot, to_boot_id;
	/* as told: at most CTL_ORDER_STEP above the highest that it saw */
	uint64_t to_order;
	uint64_t to_start, to_start_id; /* of its own */
	/* The boot of this store and the number (0: none) of the last join that its own store
	 * has. */
	uint64_t to_kept_boot;
	uint32_t to_kept_joins;
	/* It speaks a protocol in which it tells these, but for to_order and to_kept_... */
	bool to_tells;
	bool to_counts; /* it tells to_kept_..., and takes a number */
};
/* In a transaction: 0, or 1, the store is behind, and why says in what; or a negative errno. was:
 * what it has of the server, or NULL. */
int dsc_gate_compare(struct dsc *d, struct kv_txn *t, const struct dsc_terms *was,
		     const struct dsc_told *to, char why[128]);
/* The server has had a join that what was recorded of it does not know. Of boots of one line of
 * time. */
bool dsc_gate_unknown(const struct dsc_terms *was, const struct dsc_told *to);
/* What is recorded of it with a join of boot, after was (NULL: nothing was): that join, and its
 * number. */
void dsc_gate_note(struct dsc_terms *dt, const struct dsc_terms *was, const struct dsc_told *to,
		   uint64_t boot);
/* The server's store has the join of this number and boot, if that is the last. False: nothing is
 * to be recorded. */
bool dsc_gate_proven(struct dsc_terms *dt, uint64_t boot, uint32_t joins);
/* Locked: it was heard after it has stored its join. What makes that durable here, to be submitted
 * without the lock; or NULL. */
struct kv_op *dsc_gate_prove(struct dsc *d, struct dsc_node *nd);
/* Locked: the server, nd if it is known, has compared well (why NULL), or is ahead. Does not return
 * when that is found out while clients are served. */
void dsc_gate_told(struct dsc *d, struct dsc_node *nd, const char *name, const struct dsc_told *to,
		   const char *why);

/* Why the store of the server is behind what was recorded of it, or NULL. */
const char *dsc_gate_behind(const struct dsc_terms *was, const struct dsc_told *to);
/* Locked: another start of the server's store asks to join, over lk. */
enum dsc_rival { DSC_RIVAL_NONE, DSC_RIVAL_WAIT, DSC_RIVAL_TWO };
enum dsc_rival dsc_gate_rival(struct dsc *d, struct dsc_node *nd, const struct dsc_link *lk,
			      const struct dsc_told *to);

/* row.c: the durable record of a server */
#define DSC_ROW_MAX 2560
size_t dsc_row_encode(const struct dsc_server *sv, const struct dsc_terms *dt, uint8_t *out);
int dsc_row_decode(struct kv_slice id, struct kv_slice val, struct dsc_server *sv,
		   struct dsc_terms *dt);

/* join.c: the control program */
void dsc_dispatch(struct rpc_call *call, void *arg);
/* Ends a connection of any loop. Any thread. */
void dsc_link_close(struct dsc *d, struct loop *loop, uint64_t conn_id);

/* call.c: the end of a call, on any loop */
void dsc_call_end(struct dsc_ctl *c, int err);

/* Locked: what clients told lately, n times, us together. */
void dsc_fold_latency(struct dsc_node *nd, uint64_t us, unsigned n, uint64_t now);

/* data.c */
/* What a client told, on the calling loop; false: it is none. dsc_data_latencies makes what loops
 * heard known: on the first loop. */
bool dsc_data_latency(struct dsc *d, uint32_t id, uint32_t us);
void dsc_data_latencies(struct dsc *d);
int dsc_data_create(struct dsc *d);
void dsc_data_destroy(struct dsc *d);
/* Ends the calls that are under way to a server that is dead: nobody waits for their time to be up.
 * First loop. */
void dsc_data_end(struct dsc *d, uint32_t id);
#endif
