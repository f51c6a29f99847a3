/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds.h - the data server's parts, and what they share.
 *
 *   ds_main.c   configuration, threads, the admin server
 *   nfs3.c      NFSv3: file handles, the small procedures; nfs3_io.c: READ, WRITE, COMMIT, SETATTR
 *   conn.c      how many connections there are, and which may send long records
 *   control.c   the connection to the MDS: joining, the lease; control_serve.c: its requests
 *   learned.c   the MDSs that other MDSs told of
 *   status.c    what operators see of the MDSs: health, gauges
 *   rdma.c      NFSv3 over RDMA
 *   place.c     what runs where
 *   peer.c      serves reads of other data servers; pull.c: reads from them, for rebuilds
 *   eof.c       asks the MDS where a striped file ends
 *   store/      the objects
 *   path/       folders of this machine, exported by path
 *
 * Every loop serves NFS connections. The control connection and the queries to the MDS are on loop
 * 0.
 */
#ifndef DS_DS_H
#define DS_DS_H
#include <pthread.h>
#include "base/conf.h"
#include "base/metrics.h"
#include "common/labels.h"
#include "ds/store/store.h"
#include "proto/cap.h"
#include "ds/key.h"
#include "proto/ctl_instances.h"
#include "proto/nfs3.h"
#include "proto/rpc.h"
#include "proto/rpc_limit.h"

#define DS_MAX_ADDRS 16
#define LEARNED_MAX  CTL_INSTANCES_MAX		  /* rows that learned.c keeps */
#define DS_MDS_MAX   (DS_MAX_ADDRS + LEARNED_MAX) /* ds.mds, and what was learned */

struct ds;
/* An address of NFS over RDMA. */
struct ds_rdma {
	struct ds *rd_ds;
	struct sockaddr_storage rd_addr;
	socklen_t rd_len;
	bool rd_up; /* accepts connections; loop 0's */
};

/* What an MDS allows for its file system. No lease of one file system is good for another. */
struct ds_lease {
	_Atomic uint64_t le_end_ns; /* CLOCK_BOOTTIME; 0: none */
	/* CLOCK_BOOTTIME: striped capabilities must be of version 2 from then on; 0: no need */
	_Atomic uint64_t le_striped2_ns;
};

/* learned.c: the address of an MDS, and the file system whose instance told it. */
struct ds_learned_row {
	uint16_t lr_fs;
	uint8_t lr_addr[CTL_INSTANCE_LEN];
};
struct ds_learned {
	/* Workers', one list at a time; held while the disk takes one, so loop 0 never waits for
	 * it. Who changes le_n and le_row holds it and le_lock; who reads them holds either. */
	pthread_mutex_t le_told;
	pthread_mutex_t le_lock;
	unsigned le_n;
	struct ds_learned_row le_row[LEARNED_MAX];
	/* under le_told: */
	bool le_unkept;		    /* the file has not what is in force */
	bool le_refused[DS_FS_MAX]; /* by ds_fs_place: the log says that its list is refused */
};

struct ds_control;
struct path;
struct place;
struct ds {
	struct ds_store *d_store;
	struct ds_keys d_keys;
	struct rpc_tls_ctx *d_tls; /* where ds.tls is off: for daemons of the cluster alone */
	struct place *d_place;	   /* place.h */
	struct path *d_path;	   /* folders exported by path (path/path.h); NULL: none */
	struct loop **d_loops;
	unsigned d_nloops;
	/* One for each MDS. Loop 0's; it adds before it raises d_nmds. None is freed; one whose
	 * address was forgotten takes another address later. */
	struct ds_control *d_control[DS_MDS_MAX];
	_Atomic unsigned d_nmds;
	struct ds_learned d_learned;
	uint32_t d_heartbeat_ms, d_lease_ms;
	uint32_t d_eof_wait_ms;			      /* ds.eof_wait */
	char d_labels[LABELS_LEN];		      /* sent to the MDS */
	struct sockaddr_storage d_addr[DS_MAX_ADDRS]; /* what clients get */
	unsigned d_naddrs;
	struct ds_rdma d_rdma[DS_MAX_ADDRS];
	unsigned d_nrdma;
	struct loop_timer d_rdma_late;
	void (*d_rdma_begun)(void *arg); /* NULL: it has been called */
	void *d_rdma_arg;
	struct rpc_limit d_limit;
	struct ds_lease d_lease[DS_FS_MAX]; /* by ds_fs_place */
	_Atomic bool d_listening;
};

/* True while the lease of this file system is good. It uses CLOCK_BOOTTIME, so the lease of a
 * suspended machine runs out as well. It reads the clock at each call, because the loop's own clock
 * may be old. */
bool ds_lease_live(const struct ds *d, const struct ds_fs *f);

/* As cap_open, with the key of the capability's file system and key number. */
static inline bool ds_cap_open(struct ds *d, const uint8_t fh[CAP_LEN], struct cap *cap)
{
	const struct ds_fs *f = ds_store_fs(d->d_store, cap_fs_number(fh));
	uint64_t key[2];

	return f && ds_keys_cap(&d->d_keys, f, cap_key_number(fh), key) &&
	       cap_open(fh, (const uint8_t *)key, cap);
}

/* nfs3.c */
void ds_nfs3_init(void); /* Makes the metrics; before other threads run. */
/* Microseconds that all calls took so far, together. */
uint64_t ds_nfs3_busy_us(void);
/* Returns how many calls there were since the start. Any thread. */
uint64_t ds_nfs3_calls(void);
/* trace_text.c: puts an event into words (trace_get). */
struct trace_event;
void ds_trace_text(const struct trace_event *e, char out[512]);
void ds_nfs3_dispatch(struct rpc_call *call, void *arg /* struct ds */);
/* conn.c: rs_opened, rs_closed and rs_first of rpc.h. arg: struct ds. */
void ds_conn_metrics_init(void);
void ds_conn_opened(struct rpc_conn *conn, void *arg);
void ds_conn_closed(struct rpc_conn *conn, void *arg);
bool ds_conn_first(struct rpc_conn *conn, uint32_t prog, uint32_t proc, struct xdr_in *x,
		   void *arg);

/* control.c: all on loop 0, or before the loops run. Begins to join the MDS at this address.
 * learned: it is not of ds.mds. -EOVERFLOW: DS_MDS_MAX addresses. -EEXIST: it joins there
 * already. */
int ds_control_start(struct ds *d, const struct sockaddr *addr, socklen_t len, bool learned);
/* Fills addr with the address of the i-th of d_nmds, if it was learned. */
bool ds_control_learned(struct ds *d, unsigned i, struct sockaddr_storage *addr);
/* Ends the connection of the i-th for good, soon. A lease that it has ends by itself. */
void ds_control_stop(struct ds *d, unsigned i);
/* Any thread: how the i-th of d_nmds stands. why: the reason, without quotes, where it has not
 * joined. False: its address was forgotten. */
struct ds_control_state {
	char cs_mds[80], cs_why[256];
	bool cs_joined;
	bool cs_learned;
	bool cs_spare;	     /* learned, and the file system there is joined at another address */
	struct ds_fs *cs_fs; /* NULL: this server does not know it yet */
};
bool ds_control_state(struct ds *d, unsigned i, struct ds_control_state *out);
/* Clients have to get other addresses. */
void ds_control_addrs_changed(struct ds *d);
/* Prefix length of the subnet of this address; 0: no interface has the address. */
unsigned ds_subnet_bits(const struct sockaddr_storage *a);
struct ctl_chan;
/* The channel to the MDS of a file system; NULL while that is not connected. */
struct ctl_chan *ds_control_chan(struct ds *d, const struct ds_fs *f);
/* control_serve.c: serves a request of the MDS that has this file system (NULL: it has not joined).
 * On loop 0. */
struct ctl_incoming;
void ds_control_serve(struct ds *d, struct ds_fs *f, struct ctl_incoming *in);

/* learned.c. Loop 0, or before the loops run: reads the store's file and joins what is in it. */
void ds_learned_start(struct ds *d);
/* A worker: what an instance said in the answer to a JOIN; got: of ctl_instances_get. Blocks on the
 * disk. */
void ds_learned_told(struct ds *d, const struct ds_fs *f, int got, const struct ctl_instances *ci);
/* Loop 0: joins and leaves what was told since. */
void ds_learned_apply(struct ds *d);
/* Reads the file's text; changes it. 0, -EINVAL, or -EPROTONOSUPPORT (a newer version). */
int ds_learned_parse(char *text, struct ds_learned *le);

/* status.c. Any thread. */
struct http_req;
struct http_reply;
void ds_status_health(struct ds *d, const struct http_req *rq, struct http_reply *rp);
void ds_status_metrics(struct ds *d); /* once, before the loops run */

/* rdma.c */
struct ds_addr_text {
	char dat_netid[9], dat_uaddr[65];
};
/* On loop 0. begun is called once, on loop 0: when all addresses of ds.rdma accept connections, or
 * after a while if they do not. */
int ds_rdma_start(struct ds *d, const struct conf *c, const struct rpc_service *svc,
		  void (*begun)(void *arg), void *arg);
/* The RDMA addresses that are usable now; at most max. Loop 0. */
unsigned ds_rdma_addrs(struct ds *d, ctl_addr *addrs, struct ds_addr_text *texts, unsigned max);

/* eof.c */
struct ds_eof {
	void (*eo_done)(struct ds_eof *e, int err, uint64_t size);
	uint64_t eo_ino;
	uint16_t eo_fs, eo_incarnation;
	/* eof.c's own */
	struct ds *eo_ds;
	struct loop *eo_loop;
	struct loop_msg eo_msg;
	struct ds_eof *eo_next;
	uint64_t eo_deadline_ns, eo_size;
	int eo_err;
};
/* Asks the MDS where a striped file ends. Any loop; eo_done runs there, later. -ENOENT: the MDS
 * knows no such file; -ETIMEDOUT: no answer within 2 s. */
void ds_eof_ask(struct ds *d, struct ds_eof *e);
/* True when a caller waits for an answer of some MDS: connect soon. Any thread. */
bool ds_eof_waiting(void);
void ds_eof_metrics_init(void); /* once, before the loops run */
#endif
