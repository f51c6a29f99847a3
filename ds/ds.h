/*
 * ds.h - the data server's parts, and what they share.
 *
 *   main.c      configuration, threads, the admin server
 *   nfs3.c      NFSv3: handles, the small procedures; nfs3_io.c: READ, WRITE, COMMIT, SETATTR
 *   conn.c      how many connections there are, and which may send long records
 *   control.c   the connection to the MDS: joining, the lease, orders
 *   rdma.c      NFSv3 over RDMA
 *   place.c     what runs where
 *   peer.c      what other data servers read here; pull.c: what is read there, for rebuilds
 *   eof.c       asking the MDS where a striped file ends
 *   store/      the objects
 *   path/       folders of this machine, exported by path
 *
 * Every loop serves NFS connections; the control connection and the questions to the MDS live on
 * loop 0.
 */
#ifndef DS_DS_H
#define DS_DS_H
#include <pthread.h>
#include "base/conf.h"
#include "base/labels.h"
#include "base/metrics.h"
#include "ds/store/store.h"
#include "proto/cap.h"
#include "ds/key.h"
#include "proto/nfs3.h"
#include "proto/rpc.h"
#include "proto/rpc_limit.h"

#define DS_MAX_ADDRS 16

struct ds;
/* An address of NFS over RDMA. */
struct ds_rdma {
	struct ds *rd_ds;
	struct sockaddr_storage rd_addr;
	socklen_t rd_len;
	bool rd_up; /* it takes connections; loop 0's */
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
	struct ds_control *d_control;
	uint32_t d_heartbeat_ms, d_lease_ms;
	uint32_t d_eof_wait_ms;	   /* ds.eof_wait */
	char d_labels[LABELS_LEN]; /* told to the MDS */
	struct sockaddr_storage d_mds;
	socklen_t d_mdslen;
	struct sockaddr_storage d_addr[DS_MAX_ADDRS]; /* told to clients */
	unsigned d_naddrs;
	struct ds_rdma d_rdma[DS_MAX_ADDRS];
	unsigned d_nrdma;
	struct loop_timer d_rdma_late;
	void (*d_rdma_begun)(void *arg); /* NULL: it has been told */
	void *d_rdma_arg;
	struct rpc_limit d_limit;
	_Atomic uint64_t d_lease_end_ns; /* CLOCK_BOOTTIME; 0: none */
	/* CLOCK_BOOTTIME: from then on striped capabilities are of version 2; 0: they need not
	 * be */
	_Atomic uint64_t d_striped2_ns;
	_Atomic uint32_t d_fs;
	_Atomic bool d_joined, d_listening;
	pthread_mutex_t d_why_lock;
	char d_why[256]; /* why it is not joined; no quotes in it */
};

/* A suspended machine's lease runs out all the same: CLOCK_BOOTTIME. Read for each call; the loop's
 * own clock may be old. */
bool ds_lease_live(const struct ds *d);

/* As cap_open, by the key of its number. */
static inline bool ds_cap_open(struct ds *d, const uint8_t fh[CAP_LEN], struct cap *cap)
{
	uint64_t key[2];

	ds_keys_cap(&d->d_keys, cap_key_number(fh), key);
	return cap_open(fh, (const uint8_t *)key, cap);
}

/* nfs3.c */
void ds_nfs3_init(void); /* metrics; before other threads run */
/* How long calls took, all together, so far. */
uint64_t ds_nfs3_busy_us(void);
void ds_nfs3_dispatch(struct rpc_call *call, void *arg /* struct ds */);
/* conn.c: as rs_opened, rs_closed and rs_first of rpc.h. arg: struct ds. */
void ds_conn_metrics_init(void);
void ds_conn_opened(struct rpc_conn *conn, void *arg);
void ds_conn_closed(struct rpc_conn *conn, void *arg);
bool ds_conn_first(struct rpc_conn *conn, uint32_t prog, uint32_t proc, struct xdr_in *x,
		   void *arg);

/* control.c. Both on loop 0. */
int ds_control_start(struct ds *d);
/* Clients are to be told others. */
void ds_control_addrs_changed(struct ds *d);
/* Of the subnet that this address is in; 0: no interface has it. */
unsigned ds_subnet_bits(const struct sockaddr_storage *a);
struct ctl_chan;
/* NULL while the MDS cannot be asked. */
struct ctl_chan *ds_control_chan(struct ds *d);

/* rdma.c */
struct ds_addr_text {
	char netid[9], uaddr[65];
};
/* begun is called once, on loop 0 (where this is called): when all of ds.rdma takes connections, or
 * has not for a while. */
int ds_rdma_start(struct ds *d, const struct conf *c, const struct rpc_service *svc,
		  void (*begun)(void *arg), void *arg);
/* Those to be told now; at most max. Loop 0. */
unsigned ds_rdma_addrs(struct ds *d, ctl_addr *addrs, struct ds_addr_text *texts, unsigned max);

/* eof.c */
struct ds_eof {
	void (*eo_done)(struct ds_eof *e, int err, uint64_t size);
	uint64_t eo_ino;
	uint16_t eo_incarnation;
	/* its own */
	struct ds *eo_ds;
	struct loop *eo_loop;
	struct loop_msg eo_msg;
	struct ds_eof *eo_next;
	uint64_t eo_deadline_ns, eo_size;
	int eo_err;
};
/* Any loop; eo_done runs there, later. -ENOENT: the MDS knows no such file; -ETIMEDOUT: it did not
 * say within 2 s. */
void ds_eof_ask(struct ds *d, struct ds_eof *e);
/* Somebody waits for an answer: the MDS is to be reached again soon. Any thread. */
bool ds_eof_waiting(void);
void ds_eof_metrics_init(void); /* once, before the loops run */
#endif
