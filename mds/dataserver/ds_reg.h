/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_reg.h - the data servers, as the MDS sees them: their identities, whether they live, and how
 * to reach them.
 *
 * A data server joins over the control protocol (proto/ctl.x) on the MDS's own port. It gets its
 * number (dsc id, from 1) once; the store keeps the number with the server's uuid, and maps name
 * servers by it. The number never changes and is never a position in a list. All functions may be
 * called on any loop thread; completions run on the caller's loop.
 */
#ifndef MDS_DSC_H
#define MDS_DSC_H
#include "common/labels.h"
#include "mds/namespace/ns.h"
#include "proto/cap.h"
#include "proto/ctl.h"
#include "proto/ctl_instances.h"
#include "proto/rpc.h"

#define DS_REG_MAX   1024
#define DS_REG_ADDRS 16
/* docs/device-failure.md. SUSPECT: the MDS is asking whether it lives. DEAD: it did not answer; no
 * layout names it until it has joined again. KILLED: by the administrator. WAITING: for the
 * administrator. The last two may not join. */
enum ds_reg_state {
	DS_REG_ALIVE,
	DS_REG_SUSPECT,
	DS_REG_DEAD,
	DS_REG_KILLED,
	DS_REG_WAITING,
	DS_REG_STATES
};
const char *ds_reg_state_text(enum ds_reg_state st);
struct ds_reg_server {
	uint32_t sv_id;
	uint8_t sv_uuid[16];
	char sv_name[65];
	struct {
		char netid[8], uaddr[64];
		/* length of its subnet's prefix, which the server reported when it joined; 0: not
		 * known (yet) */
		uint8_t prefix;
	} sv_addrs[DS_REG_ADDRS]; /* in the server's order of preference */
	unsigned sv_naddrs;
	/* joined, had a heartbeat within the lease, and was not declared dead */
	bool sv_alive;
	uint8_t sv_state;    /* enum ds_reg_state */
	uint64_t sv_since_s; /* in that state since then, in s of CLOCK_REALTIME */
	uint64_t sv_capacity, sv_available;
	uint32_t sv_max_read, sv_max_write;
	uint32_t sv_clone_block;     /* clones are multiples of it, in bytes; 0: it cannot clone */
	uint8_t sv_key[CAP_KEY_LEN]; /* mints capabilities */
	uint8_t sv_key_number;	     /* the number of the cluster key that the server has */
	/* It has keys of its own (proto/ds_key.h), and may no longer use the cluster key. */
	bool sv_own;
	uint8_t sv_tls; /* enum rpc_tls_mode: what its addresses offer clients */
	/* sv_tls is off, and daemons of the cluster have TLS there all the same */
	bool sv_peers;
	/* Of the control protocol, at its last join; 0: the record is from before protocols were
	 * kept. */
	uint8_t sv_protocol;
	uint32_t sv_since_boot; /* our boot in which it first joined by that protocol */
	bool sv_nfs3;		/* any NFSv3 server (docs/generic.md); it has no capabilities */
};

struct ds_reg;
struct ds_reg_opts {
	const uint8_t *do_cluster_key; /* 32 bytes, must outlive dsc */
	uint32_t do_lease_ms;
	const struct store_lease *do_store; /* NULL: the store is always held */
	/* this many ms after our start no client has a layout from before */
	uint32_t do_layouts_ms;
	/* without a heartbeat for so many ms a server is asked whether it lives */
	uint32_t do_suspect_ms;
	/* It is dead if its connection was lost so many ms ago, and its port refuses new ones; */
	uint32_t do_refused_ms;
	/* The store was restored: servers only report what they saw of it, and none joins. */
	bool do_restore;
	/* a server that never joined waits until the administrator admits it */
	bool do_admit;
	uint32_t do_dead_ms; /* or if it has answered nothing for so many ms */
	unsigned do_pool;    /* files to make ahead on each generic data server */
	struct loop *const *do_loops;
	unsigned do_nloops;
	/* what the servers are told of other instances; must outlive dsc. NULL: none */
	const struct ctl_instances *do_instances;
};
int ds_reg_create(struct ds_reg **out, struct ns *ns, const struct ds_reg_opts *o, char *err,
		  size_t errlen);
/* Returns the control program, for the MDS's rpc_service. Connections that speak it need
 * ds_reg_conn_closed from rs_closed. */
const struct rpc_program *ds_reg_program(struct ds_reg *d);
void ds_reg_conn_closed(struct ds_reg *d, struct rpc_conn *c);
/* Sets the function that answers CTL_OP_EOF: it asks ns, and the data servers while a write layout
 * is out. It calls reply once, on any loop: err 0 and the size in bytes, or -ESTALE. */
void ds_reg_set_eof_handler(struct ds_reg *d,
			    void (*fn)(void *arg, struct loop *loop, uint64_t ino, uint16_t inc,
				       void (*reply)(void *rarg, int err, uint64_t size),
				       void *rarg),
			    void *arg);

/* Returns the block in bytes of which clones are multiples on every server that can clone; 0: none
 * can. */
uint32_t ds_reg_clone_block(struct ds_reg *d);
/* copies; false: unknown */
bool ds_reg_get(struct ds_reg *d, uint32_t id, struct ds_reg_server *out);
bool ds_reg_get_uuid(struct ds_reg *d, const uint8_t uuid[16], struct ds_reg_server *out);
uint32_t ds_reg_number(struct ds_reg *d, const uint8_t uuid[16]); /* 0: unknown */
/* all known, by id */
unsigned ds_reg_list(struct ds_reg *d, struct ds_reg_server *out, unsigned max);
/* What placement uses and ds_reg_server lacks, because every call on an object copies
 * ds_reg_server. */
/* Why a server waits to be admitted: it never joined before; its store was restored; or it is the
 * second process of one store. */
enum ds_reg_why { DS_REG_WHY_NEW, DS_REG_WHY_RESTORED, DS_REG_WHYS };
#define DS_REG_WEIGHT_ONE 100u	  /* weights are in hundredths */
#define DS_REG_WEIGHT_MAX 100000u /* weight 0: no new objects there */
/* What a weft data server did for clients. Sums since our start, and rates in the last second, or
 * since its last heartbeat. */
struct ds_reg_traffic {
	uint64_t tr_ms;	     /* of CLOCK_MONOTONIC, when it last reported; 0: it has not */
	uint64_t tr_last[3]; /* as it counts: bytes read, bytes written, NFS requests */
	uint64_t tr_read, tr_written, tr_ops;
	double tr_read_rate, tr_written_rate, tr_ops_rate; /* a second */
};
#define DS_REG_TRAFFIC_MS 5000u /* an older rate says nothing */
struct ds_reg_terms {
	uint32_t dt_weight; /* the administrator's */
	/* also the administrator's: no new objects, and its objects are moved away */
	bool dt_draining;
	uint8_t dt_barred;    /* DS_REG_KILLED, DS_REG_WAITING, or 0: it may join */
	uint64_t dt_barred_s; /* since when, in s */
	/* Our boot in which it last joined; 0: the record is from before this was kept. */
	uint64_t dt_boot;
	/* Of the server's process that last joined: how often its store was opened, and that
	 * start's identity. */
	uint64_t dt_start, dt_start_id;
	uint64_t dt_order; /* the order_high that it reported then */
	/* the number of that join in dt_boot; 0: it got none */
	uint32_t dt_joins;
	/* our boot in which the newest join came that its store is known to have */
	uint64_t dt_had_boot;
	uint32_t dt_had_joins; /* its number there; 0: the server reports none */
	uint8_t dt_why;	       /* enum ds_reg_why, while DS_REG_WAITING */
	struct ds_reg_traffic dt_traffic;
	/* labels that the server reports; a label counts if dt_set lacks its key */
	char dt_own[LABELS_LEN];
	char dt_set[LABELS_LEN];	/* the administrator's labels */
	char dt_labels[LABELS_TWO_LEN]; /* the labels that count */
	uint32_t dt_load;		/* NFS requests in progress, lately, in hundredths */
	/* Microseconds that clients lately waited for a read of 64 KiB; 0: no client reported
	 * it. */
	uint32_t dt_latency;
	/* of its program, as it said when it joined us; "": it has not joined since our start, or
	 * does not say */
	char dt_version[CTL_VERSION_LEN + 1];
};
/* ---- keys (cluster_key.c) ---- */

/* Opens a capability for the server, made by the newest key or by the one before the last rotation,
 * which is good until the next. False: neither made it, or it is not ours. Any thread. */
bool ds_reg_cap_open(struct ds_reg *d, const struct ds_reg_server *sv, const uint8_t fh[CAP_LEN],
		     struct cap *cap);
/* Makes the keys, of the newest number, for the server of this uuid, known or not. */
struct ds_key;
void ds_reg_key_make(struct ds_reg *d, const uint8_t uuid[16], struct ds_key *k);
/* ds_reg_tls_key: the key that we prove to a server over TLS. ds_reg_peer_key: the key that the
 * server reader proves to the server source. */
void ds_reg_tls_key(struct ds_reg *d, const struct ds_reg_server *sv, uint8_t out[CAP_TLS_KEY_LEN]);
void ds_reg_peer_key(struct ds_reg *d, const struct ds_reg_server *source, const uint8_t reader[16],
		     uint8_t out[CAP_TLS_KEY_LEN]);
/* The servers that do not have the newest number. */
#define DS_REG_KEY_BEHIND 64
struct ds_reg_key_view {
	uint8_t kv_number;
	bool kv_before;	       /* the key before it is good, too */
	uint64_t kv_rotated_s; /* s of CLOCK_REALTIME; 0: never */
	struct ds_reg_key_behind {
		char kb_name[65];
		/* kb_takes: it has joined since our start, and supports such keys. */
		bool kb_own, kb_alive, kb_barred, kb_takes;
	} kv_behind[DS_REG_KEY_BEHIND];
	/* One of those, not barred, that another rotation would leave behind for good. Empty: there
	 * is none. */
	char kv_held[65];
};
/* Returns how many there are; those past DS_REG_KEY_BEHIND are counted only. */
unsigned ds_reg_keys_view(struct ds_reg *d, struct ds_reg_key_view *kv);
/* Makes a new cluster key, with the number after ro_from. It is durable and in force when ro_done
 * is called, once, on the committer thread; servers get it after that. The key before ro_from is no
 * longer good, so no client may have a layout from its time. -EAGAIN: ro_from is not the newest.
 * -EBUSY: a server would be left behind. The caller keeps the memory until then. */
struct ds_reg_ring {
	uint8_t rg_number;
	bool rg_before;
	uint64_t rg_rotated_s;
	uint8_t rg_key[CAP_CLUSTER_KEY_LEN], rg_was[CAP_CLUSTER_KEY_LEN];
};
struct ds_reg_rotate {
	uint8_t ro_from;
	void (*ro_done)(struct ds_reg_rotate *ro, int err);
	/* for dsc only */
	struct kv_op ro_op;
	struct ds_reg *ro_dsc;
	struct ds_reg_ring ro_ring;
};
void ds_reg_rotate(struct ds_reg *d, struct ds_reg_rotate *ro);
/* Is it certain that no client has a layout from before our start that it has not reported to
 * us? */
bool ds_reg_layouts_known(struct ds_reg *d);

/* Join tokens (join_token.c). Makes one, durably, that is good for so long, and fills the rest of
 * tk. With tt_named, tt_name is the name that the new server will have, and earlier tokens of that
 * name go; -EEXIST: a server has the name. Otherwise a name is chosen. -ENOSPC: there are too many
 * tokens. Not on a loop's thread. */
struct ds_reg_token {
	bool tt_named;
	char tt_name[CTL_NAME_MAX + 1];
	uint8_t tt_id[16], tt_secret[16];
	uint64_t tt_ends; /* seconds since 1970 */
};
int ds_reg_token_make(struct ds_reg *d, uint32_t seconds, struct ds_reg_token *tk);

/* copies; false: unknown */
bool ds_reg_terms(struct ds_reg *d, uint32_t id, struct ds_reg_terms *out);
/* A command of the administrator about a server: durable, then in force. dw_done is called once, on
 * the committer thread; if the server is unknown (-ENOENT), from inside the call. -E2BIG: more than
 * LABELS_MAX labels; else the store's error. The caller keeps the memory until then. */
struct ds_reg_command {
	uint32_t dw_id;
	bool dw_has_weight, dw_has_labels, dw_has_drain, dw_drain;
	bool dw_kill, dw_admit;
	/* For ds_reg_forget of a generic server: no file has an object there, so removes our files
	 * from it, if it answers. */
	bool dw_empty;
	uint32_t dw_weight;
	/* changes: labels of other keys stay; KEY= removes one */
	char dw_labels[LABELS_LEN];
	void (*dw_done)(struct ds_reg_command *w, int err);
	/* Result of ds_reg_forget of a generic server: why not all our files there were removed;
	 * empty: they were. */
	char dw_left[160];
	/* for dsc only */
	struct kv_op dw_op;
	struct ds_reg *dw_dsc;
	uint8_t dw_uuid[16];
	struct ds_reg_terms dw_terms;
};
void ds_reg_command_start(struct ds_reg *d, struct ds_reg_command *w);
/* Forgets a server that is killed or waits, with all that is known of it: deletes its record.
 * dw_done is called as for ds_reg_command_start; for a generic server on the first loop, or never
 * if the loops stop. -EBUSY: it is neither killed nor waiting, or is being forgotten. */
void ds_reg_forget(struct ds_reg *d, struct ds_reg_command *w);
/* Calls fn for every server that may join, by id, with what placement needs. fn runs under dsc's
 * lock: it must be short, and must not call dsc. */
struct ds_reg_candidate {
	uint32_t can_id, can_weight, can_load, can_latency; /* as in ds_reg_terms */
	uint64_t can_capacity, can_available;
	bool can_alive, can_draining;
	/* can_ready: it can take a new file now; can_hopeless: it makes no more files ahead */
	bool can_generic, can_ready, can_hopeless;
	uint64_t can_unheard_ms; /* ms since its last message, or since our start */
	const char *can_labels;
};
void ds_reg_candidates(struct ds_reg *d, void (*fn)(void *arg, const struct ds_reg_candidate *se),
		       void *arg);
/* The same for one server; false: unknown. */
bool ds_reg_candidate(struct ds_reg *d, uint32_t id,
		      void (*fn)(void *arg, const struct ds_reg_candidate *se), void *arg);
/* Notes what a client reported of its reads from a server, in us for 64 KiB; dt_latency has it
 * within a second. */
void ds_reg_note_latency(struct ds_reg *d, uint32_t id, uint32_t us);
/*
 * Which question to ask about a server. Its state (enum ds_reg_state), its lease, its control
 * connection and the administrator's wish are four things: a dead server may hold a lease, and a
 * server that is alive may be out of reach of orders. So there is a question for each use.
 *
 *   before the caller                               it asks
 *   ----------------------------------------------  ---------------------------------------
 *   names the server in a layout, or reads there    ds_reg_dead: no, if true
 *   holds a fence for complete without an answer    ds_reg_leased: not while that is true
 *   expects an answer to an order soon              ds_reg_linked
 *   stores an order, or drops a server's orders     ds_reg_known
 *   places a new object or copy                     ds_reg_candidates, ds_reg_draining
 *   takes a client's word that it cannot reach it   ds_reg_reached: only if we do
 *   gives up waiting for it, or begins a repair     ds_reg_since_heartbeat_ms
 *   shows it to the administrator                   ds_reg_get, ds_reg_health_text
 */
/* Are the server's objects to be moved away? And all such servers, by id. */
bool ds_reg_draining(struct ds_reg *d, uint32_t id);
unsigned ds_reg_drains(struct ds_reg *d, uint32_t *ids, unsigned max);
/* Milliseconds since our start: servers may not have joined yet. */
uint64_t ds_reg_up_ms(struct ds_reg *d);
unsigned ds_reg_alive(struct ds_reg *d, uint32_t *ids, uint64_t *available, unsigned max);
unsigned ds_reg_count(struct ds_reg *d);
/* Returns the least that any server demands of clients (enum rpc_tls_mode); RPC_TLS_OFF if there is
 * no server. */
unsigned ds_reg_least_tls(struct ds_reg *d);
/* Returns when its last heartbeat came, in ms of CLOCK_MONOTONIC; 0: it is not alive. */
uint64_t ds_reg_last_heartbeat_ms(struct ds_reg *d, uint32_t id);
/* Might the server still honour capabilities? Yes until its lease has run out, counted from its
 * last heartbeat, or from our start if there was none: it may hold a lease of our earlier instance.
 * A generic server has no lease: always yes. A fence is complete when the server has confirmed it,
 * or this is false. */
bool ds_reg_leased(struct ds_reg *d, uint32_t id);
/* Do orders reach it? Yes if it has joined over its control connection, whatever its state; a
 * generic server must be alive. */
bool ds_reg_linked(struct ds_reg *d, uint32_t id);
/* ds_reg_dead: was it declared dead, or is it unknown? No client is sent to such a server. */
bool ds_reg_dead(struct ds_reg *d, uint32_t id);
bool ds_reg_known(struct ds_reg *d, uint32_t id);
/* Have we reached it ourselves without a break since then (clock_mono_ms), so that it did not
 * restart? */
bool ds_reg_reached(struct ds_reg *d, uint32_t id, uint64_t since_ms);
/* A client reports that it does not reach this server: finds out whether we do. */
void ds_reg_reported(struct ds_reg *d, const uint8_t uuid[16]);
/* gate.c: the store must not go back in time (docs/recovery.md). Nothing is served before a data
 * server has reported that this store is not behind what it saw of it. fn is called once, on the
 * first loop, when that is so; with do_restore, when every server has reported. Set it before the
 * loops run. */
void ds_reg_set_serve_handler(struct ds_reg *d, void (*fn)(void *arg), void *arg);
/* Is that so? If not, puts one line into why: what the server waits for, or what is wrong. */
bool ds_reg_may_serve(struct ds_reg *d, char *why, size_t size);
/* Puts one line into text: what is wrong with a server, and what to do. False: nothing is. */
bool ds_reg_health_text(struct ds_reg *d, uint32_t id, char *text, size_t size);
/* Returns the highest boot of this store that a server has reported. */
uint64_t ds_reg_boot_seen(struct ds_reg *d);
/* fn is called on the first loop when a server was declared dead. Set it before the loops run. */
void ds_reg_set_dead_handler(struct ds_reg *d,
			     void (*fn)(void *arg, uint32_t id, const uint8_t uuid[16]), void *arg);
#define DS_REG_GONE (UINT64_MAX / 2) /* of ds_reg_since_heartbeat_ms: no request waits for it */
/* Returns for how many ms it has not been alive; 0: it is; DS_REG_GONE: it may not join, or is
 * unknown. A server that was not heard since our start counts from then. */
uint64_t ds_reg_since_heartbeat_ms(struct ds_reg *d, uint32_t id);
/* Call it on each loop before a clean end: closes the loop's connections to the data servers. */
void ds_reg_data_close(struct ds_reg *d);
/* Frees d. Call it when the loops have ended. */
void ds_reg_destroy(struct ds_reg *d);

/* ---- for lo ---- */

/* Any thread: ms of the clock for the time that data servers have (store_lease_clock_ns). */
uint64_t ds_reg_clock_ms(struct ds_reg *d);
struct loop *ds_reg_loop(struct ds_reg *d, unsigned n); /* do_loops[n]; NULL past the end */
/* Returns the index of the calling loop in do_loops; do_nloops if it is none of them. */
unsigned ds_reg_loop_index(struct ds_reg *d);

/* fn is called while a server joins, on its connection's loop. It does what must be done on the
 * server before it may serve (its fences and truncates), and calls ready(rarg), on any thread,
 * once: then the join is answered. Set it before the loops run. */
void ds_reg_set_join_handler(struct ds_reg *d,
			     void (*fn)(void *arg, uint32_t id, void (*ready)(void *rarg),
					void *rarg),
			     void *arg);

/* fn returns for how many ms the server has not confirmed a fence or bar; 0: it owes none. If that
 * is a lease or more, its heartbeats do not renew its lease. fn is called at each heartbeat, on its
 * connection's loop. Set it before the loops run. */
void ds_reg_set_owed_handler(struct ds_reg *d, uint64_t (*fn)(void *arg, uint32_t id), void *arg);

/* fn returns which clients live at some moment, of those with numbers below *next: the numbers that
 * may still be in a capability which servers must honour, malloc'd, in any order. All others below
 * *next are dead for ever. 0 or -errno. fn is called on the first loop. Set it before the loops
 * run. */
void ds_reg_set_living_handler(struct ds_reg *d,
			       int (*fn)(void *arg, uint32_t **clients, size_t *n, uint32_t *next),
			       void *arg);
/* Call it when a client is being barred at all servers. Any thread. */
void ds_reg_note_bar(struct ds_reg *d);

/* fn is called when a server has joined that now reports something else for clients (addresses,
 * limits) than before, on its connection's loop. Set it before the loops run. */
void ds_reg_set_change_handler(struct ds_reg *d, void (*fn)(void *arg, const uint8_t uuid[16]),
			       void *arg);

/* One control request to a server. The caller keeps the memory, and what dc_req points to, until
 * dc_done. */
struct ds_reg_ctl {
	ctl_request dc_req;
	/* Called on the connection's loop, before dc_done, only with err 0: copies what is needed
	 * from res. */
	void (*dc_take)(struct ds_reg_ctl *c, const ctl_response *res);
	/* Called on the calling loop, once. -ENOTCONN: the server is not connected; else as in
	 * ctl_chan_call. */
	void (*dc_done)(struct ds_reg_ctl *c, int err);
	/* for dsc only */
	struct ds_reg *dc_dsc;
	struct loop *dc_loop;
	uint32_t dc_id, dc_timeout;
	int dc_err;
	struct loop_msg dc_msg;
};
void ds_reg_call(struct ds_reg *d, uint32_t id, struct ds_reg_ctl *c, uint32_t timeout_ms);

/* One NFSv3 call on an object (ds_reg_data.c), over the calling loop's own connection to the
 * server. The caller keeps the memory until di_done, which is called once, on the calling loop.
 * err: -EIO, -ENOSPC, -EACCES (fenced), -ESTALE (deleted, or missing though known to exist), -EBADF
 * (bad handle), -EAGAIN (JUKEBOX), -ENOTCONN (no address), -ETIMEDOUT, -ECONNRESET.., -EPROTO. */
struct ds_reg_io {
	void (*di_done)(struct ds_reg_io *io, int err);
	uint8_t *di_read_to;	/* READ: where the data goes */
	const uint8_t *di_data; /* WRITE: the payload; the caller keeps it until di_done */
	uint64_t di_off;
	uint32_t di_count;  /* in: asked for; out: done; in bytes */
	uint32_t di_stable; /* WRITE. in: asked for; out: committed */
	bool di_eof;	    /* READ */
	/* in: nothing protects the request that needs this call, so TLS is not needed either;
	 * ds_reg_ping sets it */
	bool di_clear;
	uint64_t di_verifier; /* of WRITE and COMMIT */
	/* for dsc only */
	struct rpc_req di_rpc;
	uint32_t di_asked;
	int di_err;
	unsigned di_holds;
	/* a write that waits for a window (nfs3ds_copy.c) */
	struct ds_reg *di_dsc;
	struct loop *di_loop;
	struct loop_msg di_msg;
	struct ds_reg_io *di_next;
	uint32_t di_id, di_timeout_ms;
	uint64_t di_noted; /* a write: the session of the copy that noted it, or 0 */
};
/* The file handle of an object for NFSv3, and the credential to use: a capability and root; or a
 * generic server's file handle and its owner in the file's epoch. */
#define DS_REG_HANDLE_MAX 64
struct ds_reg_handle {
	uint32_t dh_len, dh_uid, dh_gid;
	uint8_t dh_data[DS_REG_HANDLE_MAX];
};
void ds_reg_read(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h, struct ds_reg_io *io,
		 uint32_t timeout_ms);
void ds_reg_write(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
		  struct ds_reg_io *io, uint32_t timeout_ms);
/* Sends NFSv3 NULL: does the server answer at all? A refusal of the call counts as an answer. */
void ds_reg_ping(struct ds_reg *d, uint32_t id, struct ds_reg_io *io, uint32_t timeout_ms);
/* Sends a COMMIT of the range di_off, di_count (0, 0: all). */
void ds_reg_commit(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
		   struct ds_reg_io *io, uint32_t timeout_ms);

/* ---- generic data servers (nfs3ds.h) ---- */

/* No file is larger (OP_MAX_FILE): a larger size is a server's error. */
#define DS_REG_GEN_SIZE_MAX ((UINT64_C(1) << 44) - 4096)
/* Is there any generic server? If not, there is no need to look where a file's objects are. */
bool ds_reg_has_generic(struct ds_reg *d);

/* Are enough files made ahead for n objects? 0; -EAGAIN: not yet. 0 also if the server is not
 * generic. */
int ds_reg_nfs3_ready(struct ds_reg *d, struct kv_txn *t, uint32_t id, unsigned n);
/* W: makes one of these files an object. Does nothing if the server is not generic. */
int ds_reg_nfs3_take(struct ds_reg *d, struct kv_txn *t, uint32_t id, const struct cap_object *obj);
/* Fills in the handle for an object in this epoch, to read it, or with write to write it too.
 * -ESTALE: there is no such object. -ENOBUFS: it cannot be looked up now. -EIO: the server is not
 * generic. */
int ds_reg_nfs3_handle(struct ds_reg *d, uint32_t id, const struct cap_object *obj, uint32_t epoch,
		       bool write, struct ds_reg_handle *h);
/* Puts an object's path below the export, for people. False: there is no such object. */
#define DS_REG_GEN_PATH 96
bool ds_reg_nfs3_path(struct ds_reg *d, uint32_t id, const struct cap_object *obj,
		      char out[DS_REG_GEN_PATH]);
/* Adds a generic server: reaches it, tries it, then records it. da_done is called once, on the
 * first loop. The caller keeps the memory until then. */
struct ds_reg_add {
	struct sockaddr_storage da_addr; /* its NFS port */
	socklen_t da_len;
	uint16_t da_mount_port; /* of MOUNT version 3; 0: ask its rpcbind */
	uint16_t da_rdma_port;	/* clients get this address as well; 0: none */
	char da_path[256], da_name[65];
	/* The export's file handle, instead of asking MOUNT; dh_len 0: ask MOUNT. */
	struct ds_reg_handle da_root;
	/* Results: err 0 and the number, or one line that says what is wrong. */
	uint32_t da_id;
	char da_why[256];
	void (*da_done)(struct ds_reg_add *a, int err); /* -EEXIST: it was added before (da_id) */
};
void ds_reg_add(struct ds_reg *d, struct ds_reg_add *a); /* any thread */
/* Once this is true, requests get no more answers. */
bool ds_reg_closed(struct ds_reg *d);
/* Call it at the end, when no loop runs any more: makes ds_reg_closed true, for requests that wait
 * on other threads. */
void ds_reg_stopped(struct ds_reg *d);
#endif
