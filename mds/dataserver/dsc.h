/*
 * dsc.h - the data servers, as the MDS sees them: who they are, whether they live, and how to reach
 * them.
 *
 * A data server joins over the control protocol (proto/ctl.x) on the MDS's own port. Its number
 * (dsc id, from 1) is given once, kept in the store with its uuid, and is what maps hold; it never
 * changes and is never a position in a list. All functions may be called on any loop thread;
 * completions come back on the caller's loop.
 */
#ifndef MDS_DSC_H
#define MDS_DSC_H
#include "base/labels.h"
#include "mds/namespace/ns.h"
#include "proto/cap.h"
#include "proto/ctl.h"
#include "proto/rpc.h"

#define DSC_MAX	  1024
#define DSC_ADDRS 16
/* docs/device-failure.md. SUSPECT: it is asked whether it lives. DEAD: it did not say so; no layout
 * names it until it has joined again. KILLED, WAITING: by the administrator's word, and for it;
 * these may not join. */
enum dsc_state { DSC_ALIVE, DSC_SUSPECT, DSC_DEAD, DSC_KILLED, DSC_WAITING, DSC_STATES };
const char *dsc_state_text(enum dsc_state st);
struct dsc_server {
	uint32_t sv_id;
	uint8_t sv_uuid[16];
	char sv_name[65];
	struct {
		char netid[8], uaddr[64];
		/* of its subnet, as the server told when it joined; 0: not known (yet) */
		uint8_t prefix;
	} sv_addrs[DSC_ADDRS]; /* in the order that suits the server */
	unsigned sv_naddrs;
	bool sv_alive;	     /* joined and heartbeat within the lease, and not declared dead */
	uint8_t sv_state;    /* enum dsc_state */
	uint64_t sv_since_s; /* of CLOCK_REALTIME: in that state */
	uint64_t sv_capacity, sv_available;
	uint32_t sv_max_read, sv_max_write;
	uint32_t sv_clone_block;     /* what clones are multiples of; 0: it cannot */
	uint8_t sv_key[CAP_KEY_LEN]; /* to mint capabilities */
	uint8_t sv_key_number;	     /* which the server has */
	/* it has keys of its own (proto/ds_key.h), and the cluster key is not taken from it any
	 * more */
	bool sv_own;
	uint8_t sv_tls; /* enum rpc_tls_mode: what its addresses offer clients */
	bool sv_peers;	/* sv_tls is off, and daemons of the cluster have TLS there all the same */
	/* of the control protocol, as it joined last; 0: of before protocols were kept */
	uint8_t sv_protocol;
	uint32_t sv_since_boot; /* of ours: in which it joined by that for the first time */
	bool sv_generic;	/* any NFSv3 server (docs/generic.md); it has no capabilities */
};

struct dsc;
struct dsc_opts {
	const uint8_t *do_cluster_key; /* 32 bytes, must outlive */
	uint32_t do_lease_ms;
	uint32_t do_layouts_ms; /* so long after our start no client has a layout of before */
	uint32_t do_suspect_ms; /* without a heartbeat for so long it is asked; */
	/* it is dead when its connection was lost so long ago, and its port refuses; */
	uint32_t do_refused_ms;
	/* the store was put back: servers only tell what they saw of it, and none joins */
	bool do_restore;
	bool do_admit;	     /* a server that was never here waits until it is admitted */
	uint32_t do_dead_ms; /* and when it has said nothing at all for so long */
	unsigned do_pool;    /* files made ahead on each generic data server */
	struct loop *const *do_loops;
	unsigned do_nloops;
};
int dsc_create(struct dsc **out, struct ns *ns, const struct dsc_opts *o, char *err, size_t errlen);
/* The control program, to be put into the MDS's rpc_service; connections that speak it need
 * dsc_conn_closed from rs_closed. */
const struct rpc_program *dsc_program(struct dsc *d);
void dsc_conn_closed(struct dsc *d, struct rpc_conn *c);
/* Answers CTL_OP_EOF: set by the daemon (asks ns, and the data servers while a write layout is
 * out). reply is called once, on any loop: err 0 and the size, or -ESTALE. */
void dsc_set_eof_handler(struct dsc *d,
			 void (*fn)(void *arg, struct loop *loop, uint64_t ino, uint16_t inc,
				    void (*reply)(void *rarg, int err, uint64_t size), void *rarg),
			 void *arg);

/* What clones are multiples of on every server that can; 0: none can. */
uint32_t dsc_clone_block(struct dsc *d);
bool dsc_get(struct dsc *d, uint32_t id, struct dsc_server *out); /* copy; false: unknown */
bool dsc_get_uuid(struct dsc *d, const uint8_t uuid[16], struct dsc_server *out);
uint32_t dsc_number(struct dsc *d, const uint8_t uuid[16]);		/* 0: unknown */
unsigned dsc_list(struct dsc *d, struct dsc_server *out, unsigned max); /* all known, by id */
/* What placement goes by, apart from dsc_server, which every call on an object copies. */
/* Why it waits to be admitted: it was never here; its store was put back; it is the second process
 * of one store. */
enum dsc_why { DSC_WHY_NEW, DSC_WHY_RESTORED, DSC_WHYS };
#define DSC_WEIGHT_ONE 100u    /* weights are in hundredths; */
#define DSC_WEIGHT_MAX 100000u /* 0: nothing new is placed there */
struct dsc_terms {
	uint32_t dt_weight;   /* the administrator's */
	bool dt_draining;     /* his too: nothing new, and what is there is moved away */
	uint8_t dt_barred;    /* DSC_KILLED, DSC_WAITING, or 0: it may join */
	uint64_t dt_barred_s; /* since when */
	/* of ours that it joined last; 0: a record of before that was kept */
	uint64_t dt_boot;
	/* of its own that joined last: how often its store was opened, and that start's identity */
	uint64_t dt_start, dt_start_id;
	uint64_t dt_order;     /* the order_high that it told then */
	uint32_t dt_joins;     /* the number of that join in dt_boot; 0: it was given none */
	uint64_t dt_had_boot;  /* the newest join that its store is known to have: of this boot, */
	uint32_t dt_had_joins; /* its number there; 0: it tells none */
	uint8_t dt_why;	       /* enum dsc_why: of DSC_WAITING */
	char dt_own[LABELS_LEN]; /* labels that the server told; none that dt_set has count */
	char dt_set[LABELS_LEN]; /* the administrator's */
	char dt_labels[LABELS_TWO_LEN]; /* those that count */
	uint32_t dt_load;		/* NFS requests in progress, lately, in hundredths */
	/* microseconds that clients waited for a read of 64 KiB, lately; 0: nobody told */
	uint32_t dt_latency;
};
/* ---- keys (key.c) ---- */

/* Opens a capability for the server, of the newest key or of the one before a rotation, which is
 * good until the next. False: it is of neither, or not ours. Any thread. */
bool dsc_cap_open(struct dsc *d, const struct dsc_server *sv, const uint8_t fh[CAP_LEN],
		  struct cap *cap);
/* What a server of this uuid gets, known or not: of the newest number. */
struct ds_key;
void dsc_key_make(struct dsc *d, const uint8_t uuid[16], struct ds_key *k);
/* What we prove over TLS to a server, and what the server reader proves to it. */
void dsc_tls_key(struct dsc *d, const struct dsc_server *sv, uint8_t out[CAP_TLS_KEY_LEN]);
void dsc_peer_key(struct dsc *d, const struct dsc_server *source, const uint8_t reader[16],
		  uint8_t out[CAP_TLS_KEY_LEN]);
/* Who does not have the newest number. */
#define DSC_KEY_BEHIND 64
struct dsc_key_view {
	uint8_t kv_number;
	bool kv_before;	       /* the one before it is good, too */
	uint64_t kv_rotated_s; /* CLOCK_REALTIME; 0: never */
	struct dsc_key_behind {
		char kb_name[65];
		/* takes: it joined since our start, and knows of such keys */
		bool kb_own, kb_alive, kb_barred, kb_takes;
	} kv_behind[DSC_KEY_BEHIND];
	/* one of all that are behind, and would be left behind for good by a rotation: it is not
	 * barred. Empty: there is none */
	char kv_held[65];
};
/* Returns how many there are; those past DSC_KEY_BEHIND are counted only. */
unsigned dsc_keys_view(struct dsc *d, struct dsc_key_view *kv);
/* A new cluster key, the number after ro_from: durable and in force when ro_done is called, once,
 * on the committer's thread; servers get it after that. The number before ro_from is good no more:
 * nobody may have a layout of then. -EAGAIN: ro_from is not the newest. -EBUSY: a server would be
 * left behind. Memory is the caller's until then. */
struct dsc_ring {
	uint8_t rg_number;
	bool rg_before;
	uint64_t rg_rotated_s;
	uint8_t rg_key[CAP_CLUSTER_KEY_LEN], rg_was[CAP_CLUSTER_KEY_LEN];
};
struct dsc_rotate {
	uint8_t ro_from;
	void (*ro_done)(struct dsc_rotate *ro, int err);
	/* dsc's own */
	struct kv_op ro_op;
	struct dsc *ro_dsc;
	struct dsc_ring ro_ring;
};
void dsc_rotate(struct dsc *d, struct dsc_rotate *ro);
/* No client can have a layout of before our start that was not told us. */
bool dsc_layouts_known(struct dsc *d);

bool dsc_terms(struct dsc *d, uint32_t id, struct dsc_terms *out); /* copy; false: unknown */
/* The administrator's word on a server: durable, then in force. dw_done is called once, on the
 * committer's thread: -ENOENT (unknown), -E2BIG (more than LABELS_MAX labels), or what the store
 * says. Memory is the caller's until then. */
struct dsc_word {
	uint32_t dw_id;
	bool dw_has_weight, dw_has_labels, dw_has_drain, dw_drain;
	bool dw_kill, dw_admit;
	/* dsc_forget of a generic one: no file has anything there, so what is there of ours goes,
	 * if it answers */
	bool dw_empty;
	uint32_t dw_weight;
	char dw_labels[LABELS_LEN]; /* changes: those of other keys stay, KEY= takes one away */
	void (*dw_done)(struct dsc_word *w, int err);
	/* out, of dsc_forget of a generic one: why not all of what is ours there was removed;
	 * empty: it was */
	char dw_left[160];
	/* dsc's own */
	struct kv_op dw_op;
	struct dsc *dw_dsc;
	uint8_t dw_uuid[16];
	struct dsc_terms dw_terms;
};
void dsc_say(struct dsc *d, struct dsc_word *w);
/* Forgets a server that is killed or waits, and all that is known of it: its record is deleted.
 * Done is called as dsc_say's (of a generic one on the first loop, or never when the loops stop);
 * -EBUSY: it is neither, or is being forgotten. */
void dsc_forget(struct dsc *d, struct dsc_word *w);
/* Every server that may join, as placement sees it, by id. fn runs under dsc's lock: it is short,
 * and calls nothing of dsc. */
struct dsc_seat {
	uint32_t se_id, se_weight, se_load, se_latency; /* as in dsc_terms */
	uint64_t se_capacity, se_available;
	bool se_alive, se_draining;
	/* ready: it can take a new file now; hopeless: it makes none ahead any more */
	bool se_generic, se_ready, se_hopeless;
	uint64_t se_unheard_ms; /* since its last word, or since our start */
	const char *se_labels;
};
void dsc_seats(struct dsc *d, void (*fn)(void *arg, const struct dsc_seat *se), void *arg);
/* The same for one; false: unknown. */
bool dsc_seat(struct dsc *d, uint32_t id, void (*fn)(void *arg, const struct dsc_seat *se),
	      void *arg);
/* What a client told of its reads from a server, for dt_latency, within the next second. */
void dsc_note_latency(struct dsc *d, uint32_t id, uint32_t us);
/* What is on the server is to be moved away; and which these servers are, by id. */
bool dsc_draining(struct dsc *d, uint32_t id);
unsigned dsc_drains(struct dsc *d, uint32_t *ids, unsigned max);
/* Since when we are here, in ms: servers may not have joined yet. */
uint64_t dsc_up_ms(struct dsc *d);
unsigned dsc_alive(struct dsc *d, uint32_t *ids, uint64_t *available, unsigned max);
unsigned dsc_count(struct dsc *d);
/* The least that any of them demands of clients (enum rpc_tls_mode); RPC_TLS_OFF where there is
 * none. */
unsigned dsc_least_tls(struct dsc *d);
/* When it was heard last, in milliseconds of CLOCK_MONOTONIC; 0: it is not alive. */
uint64_t dsc_heard_ms(struct dsc *d, uint32_t id);
/* True while the server may still honour capabilities: its lease (counted from its last heartbeat,
 * or from our own start when it was not heard yet: it may hold a lease of the instance before us)
 * has not run out. A fence is complete when a server confirmed it or this is false. */
bool dsc_leased(struct dsc *d, uint32_t id);
/* Orders get there: over its control connection, whatever else it does; or, generic, it is
 * alive. */
bool dsc_linked(struct dsc *d, uint32_t id);
/* It was declared dead, or is not known: nobody is sent to it. */
bool dsc_dead(struct dsc *d, uint32_t id);
bool dsc_known(struct dsc *d, uint32_t id);
/* True while we reach it ourselves, and have done so without a break since then (clock_mono_ms): it
 * was not started anew. */
bool dsc_reached(struct dsc *d, uint32_t id, uint64_t since_ms);
/* A client says that it does not reach this server: is that so for us as well? */
void dsc_reported(struct dsc *d, const uint8_t uuid[16]);
/* gate.c: time goes one way (docs/recovery.md). Nothing is served before a data server has told
 * that this store is not behind what it saw of it. Called once, on the first loop, when that is so;
 * or, with do_restore, when every server has told. Set before the loops run. */
void dsc_set_serve_handler(struct dsc *d, void (*fn)(void *arg), void *arg);
/* Whether it is so; and if not, one line that says what is waited for, or what is wrong. */
bool dsc_may_serve(struct dsc *d, char *why, size_t size);
/* What is wrong with a server, and what to do; false: nothing is. */
bool dsc_trouble(struct dsc *d, uint32_t id, char *text, size_t size);
/* The highest boot of this store that a server told of, with do_restore. */
uint64_t dsc_boot_seen(struct dsc *d);
/* Called on the first loop when a server was declared dead, before anybody is told so. Set before
 * the loops run. */
void dsc_set_dead_handler(struct dsc *d, void (*fn)(void *arg, uint32_t id, const uint8_t uuid[16]),
			  void *arg);
#define DSC_GONE (UINT64_MAX / 2) /* of dsc_silent_ms: nobody waits for it */
/* For how long it has not been alive, in ms; 0: it is; DSC_GONE: it may not join, or is not known.
 * One that was never heard since our start counts from then. */
uint64_t dsc_silent_ms(struct dsc *d, uint32_t id);
/* Before a clean end, on each loop: closes its connections to the data servers. */
void dsc_data_close(struct dsc *d);
/* Frees; the loops have ended. */
void dsc_destroy(struct dsc *d);

/* ---- for lo ---- */

struct loop *dsc_loop(struct dsc *d, unsigned n); /* do_loops[n]; NULL past the end */
/* The place of the calling loop in do_loops; do_nloops when it is none of them. */
unsigned dsc_loop_index(struct dsc *d);

/* Called while a server joins, on its connection's loop: what must be done on it before it may
 * serve (its fences and truncates). The join is answered when ready(rarg) is called, on any thread,
 * once. Set before the loops run. */
void dsc_set_join_handler(struct dsc *d,
			  void (*fn)(void *arg, uint32_t id, void (*ready)(void *rarg), void *rarg),
			  void *arg);

/* For how many ms the server has not answered a fence or bar; 0: it owes none. While that is a
 * lease or more its heartbeats renew none. Called at each heartbeat, on its connection's loop. Set
 * before the loops run. */
void dsc_set_owed_handler(struct dsc *d, uint64_t (*fn)(void *arg, uint32_t id), void *arg);

/* Which clients live at some moment, of those with numbers below *next: the numbers that may yet be
 * in a capability that is to be honoured, malloc'd, in any order; all others below *next are dead
 * for ever. 0, or a negative errno. Called on the first loop. Set before the loops run. */
void dsc_set_living_handler(struct dsc *d,
			    int (*fn)(void *arg, uint32_t **clients, size_t *n, uint32_t *next),
			    void *arg);
/* A client is being barred at all servers. Any thread. */
void dsc_note_bar(struct dsc *d);

/* Called when a server has joined that says other things of itself to clients (addresses, limits)
 * than before, on its connection's loop. Set before the loops run. */
void dsc_set_change_handler(struct dsc *d, void (*fn)(void *arg, const uint8_t uuid[16]),
			    void *arg);

/* One control request to a server. Memory and what dc_req points to are the caller's until dc_done.
 */
struct dsc_ctl {
	ctl_request dc_req;
	/* On the connection's loop, before dc_done: the place to copy from res what is needed.
	 * Called only with err 0. */
	void (*dc_take)(struct dsc_ctl *c, const ctl_response *res);
	/* On the calling loop, once. -ENOTCONN: the server is not connected; else as in
	 * ctl_chan_call. */
	void (*dc_done)(struct dsc_ctl *c, int err);
	/* dsc's own */
	struct dsc *dc_dsc;
	struct loop *dc_loop;
	uint32_t dc_id, dc_timeout;
	int dc_err;
	struct loop_msg dc_msg;
};
void dsc_call(struct dsc *d, uint32_t id, struct dsc_ctl *c, uint32_t timeout_ms);

/* One NFSv3 call on an object (data.c), over the calling loop's own connection to the server.
 * Memory is the caller's until di_done, which is called once, on the calling loop. err: -EIO,
 * -ENOSPC, -EACCES (fenced), -ESTALE (deleted, or missing though known), -EBADF (bad handle),
 * -EAGAIN (JUKEBOX), -ENOTCONN (no address), -ETIMEDOUT, -ECONNRESET.., -EPROTO. */
struct dsc_io {
	void (*di_done)(struct dsc_io *io, int err);
	uint8_t *di_read_to;	/* READ: where the data goes */
	const uint8_t *di_data; /* WRITE: the payload; kept by the caller until di_done */
	uint64_t di_off;
	uint32_t di_count;  /* in: asked; out: done */
	uint32_t di_stable; /* WRITE. in: asked; out: committed */
	bool di_eof;	    /* READ */
	bool di_clear; /* in: nothing protects the request that it is for, so that it need not go
			  over TLS; dsc_ping sets it */
	uint64_t di_verifier; /* of WRITE and COMMIT */
	/* dsc's own */
	struct rpc_req di_rpc;
	uint32_t di_asked;
	int di_err;
	unsigned di_holds;
	/* a write that waits for a window (gen_copy.c) */
	struct dsc *di_dsc;
	struct loop *di_loop;
	struct loop_msg di_msg;
	struct dsc_io *di_next;
	uint32_t di_id, di_timeout_ms;
};
/* An object as NFSv3 knows it, and who may use it: a capability of root's, or a generic server's
 * handle and its owner in the file's epoch. */
#define DSC_HANDLE_MAX 64
struct dsc_handle {
	uint32_t dh_len, dh_uid, dh_gid;
	uint8_t dh_data[DSC_HANDLE_MAX];
};
void dsc_read(struct dsc *d, uint32_t id, const struct dsc_handle *h, struct dsc_io *io,
	      uint32_t timeout_ms);
void dsc_write(struct dsc *d, uint32_t id, const struct dsc_handle *h, struct dsc_io *io,
	       uint32_t timeout_ms);
/* NULL: does it answer at all? A refusal of the call is an answer, too. */
void dsc_ping(struct dsc *d, uint32_t id, struct dsc_io *io, uint32_t timeout_ms);
/* COMMIT of the range di_off, di_count (0, 0: all). */
void dsc_commit(struct dsc *d, uint32_t id, const struct dsc_handle *h, struct dsc_io *io,
		uint32_t timeout_ms);

/* ---- generic data servers (gen.h) ---- */

/* No file is larger (OP_MAX_FILE): a size past it is a server's error. */
#define DSC_GEN_SIZE_MAX ((UINT64_C(1) << 44) - 4096)
/* Whether there is any: without one, no file needs a look at where its objects are. */
bool dsc_has_generic(struct dsc *d);

/* Whether there are files made ahead for n objects: 0; -EAGAIN: not yet. 0 as well where the server
 * is not generic. */
int dsc_gen_ready(struct dsc *d, struct kv_txn *t, uint32_t id, unsigned n);
/* W: an object is one of these files from now on. Nothing where the server is not generic. */
int dsc_gen_take(struct dsc *d, struct kv_txn *t, uint32_t id, const struct cap_object *obj);
/* What reaches an object in this epoch; write: also to write it. -ESTALE: there is none. -ENOBUFS:
 * it cannot be looked for now. */
int dsc_gen_handle(struct dsc *d, uint32_t id, const struct cap_object *obj, uint32_t epoch,
		   bool write, struct dsc_handle *h);
/* Where an object is below the export, for people. False: there is none. */
#define DSC_GEN_PATH 96
bool dsc_gen_path(struct dsc *d, uint32_t id, const struct cap_object *obj, char out[DSC_GEN_PATH]);
/* A server is taken in: reached, tried, then recorded. da_done is called once, on the first loop.
 * Memory is the caller's until then. */
struct dsc_add {
	struct sockaddr_storage da_addr; /* its NFS port */
	socklen_t da_len;
	uint16_t da_mount_port; /* of MOUNT version 3; 0: its rpcbind tells */
	uint16_t da_rdma_port;	/* clients are told this address as well; 0: none */
	char da_path[256], da_name[65];
	/* the export's, where MOUNT is not to be asked; dh_len 0: it is */
	struct dsc_handle da_root;
	/* Results: err 0 and the number, or one line that says what is wrong. */
	uint32_t da_id;
	char da_why[256];
	void (*da_done)(struct dsc_add *a, int err); /* -EEXIST: it is there already (da_id) */
};
void dsc_add(struct dsc *d, struct dsc_add *a); /* any thread */
/* Once it is true, nothing that was asked is answered any more. */
bool dsc_closed(struct dsc *d);
/* At the end, when no loop runs any more: makes it true, for who waits on other threads. */
void dsc_stopped(struct dsc *d);
#endif
