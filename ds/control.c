/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control.c - the connection to the MDS (proto/ctl.x), on loop 0: sends JOIN and HEARTBEAT, and
 * keeps the lease. control_serve.c serves the requests of the MDS.
 *
 * The lease. Every good answer to JOIN or HEARTBEAT allows this server to honour capabilities for
 * lease_ms. This server counts that time from when it sent the request; the MDS counts from when it
 * answered, which is later. This server keeps back an eighth of it, for requests that it checked
 * just before the end and that are still on their way to the disk. lease_ms 0 means "not yet"
 * (orders are pending): the server has joined and serves nothing. A lost connection does not end
 * the lease; time does.
 *
 * Instances. The store keeps the highest instance epoch seen. A peer with a lower one is a deposed
 * MDS: this server refuses its orders (CTL_STALE_INSTANCE), and its answers give no lease.
 */
#include "base/clock.h"
#include "base/log.h"
#include "common/exports.h"
#include "common/version.h"
#include "ds/ds.h"
#include "ds/nfs3_service.h"
#include "proto/ctl_chan.h"
#include "proto/ctl_instances.h"
#include "proto/ctl_more.h"
#include "proto/rpc_tls.h"
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <urcu/compiler.h>

/* A restart of the MDS takes less time than this: log nothing until then. */
#define TELL_FIRST_MS	 2500u
#define TELL_AGAIN_MS	 60000u
#define TELL_APART_MS	 5000u
#define BACKOFF_MIN_MS	 100u
#define BACKOFF_MAX_MS	 5000u
#define UNADMITTED_MS	 1000u
#define BESIDE_MS	 1000u /* another connection has joined the same file system */
#define UNLEASED_BEAT_MS 200u  /* while orders are pending */
#define MAX_LOST_BEATS	 3u
/* An ORDERS batch is the largest record; it is sealed. */
#define MAX_RECORD (CTL_SEALED_MAX + 4096)

struct ds_control {
	struct ds *dc_ds;
	struct sockaddr_storage dc_addr;
	socklen_t dc_addrlen;
	/* The file system of the MDS; NULL: not known, or the store has not met it. Only loop 0
	 * changes it. */
	_Atomic(struct ds_fs *) dc_fs;
	_Atomic bool dc_joined;
	pthread_mutex_t dc_why_lock;
	char dc_why[256]; /* why this server has not joined; without quotes */
	struct rpc_client *dc_client;
	struct rpc_program dc_prog;
	struct ctl_chan *dc_chan; /* NULL while there is no connection */
	bool dc_ready;		  /* the handshake is done */
	bool dc_joining;	  /* a JOIN is sent, and what it gave is not in the store yet */
	uint32_t dc_backoff_ms;
	struct loop_timer dc_timer; /* the next join, or the next heartbeat */
	/* when the load was last reported; ds_nfs3_busy_us at that time */
	uint64_t dc_load_ns, dc_busy_us;
	uint16_t dc_hello_fs; /* the MDS's, as it said it last; 0: not known */
	uint64_t dc_instance; /* of the MDS that we joined */
	bool dc_traffic;      /* it takes HEARTBEAT2 */
	unsigned dc_lost_beats;
	uint64_t dc_sent_ns; /* when the request under way was sent */
	/* Number of the connection. A worker may finish a request after its connection is gone. */
	unsigned dc_serial;
	bool dc_addrs_changed;	   /* since the last join */
	struct loop_timer dc_tell; /* when to log why this server has not joined */
	/* dc_told: the reason was logged since the last join. dc_reason: the reason why this
	 * connection failed is known. */
	bool dc_told, dc_reason;
	uint64_t dc_told_ms;
	char dc_mds[80]; /* the address of the MDS; changed under dc_why_lock */
	bool dc_learned; /* the address is not of ds.mds */
	bool dc_free;	 /* it has no address and no connection; loop 0's */
	/* its address was forgotten: others see it no more */
	_Atomic bool dc_gone;
	_Atomic bool dc_spare; /* ds_control_state */
	struct loop_msg dc_stop;
};

static void control_join(struct ds_control *c);
static void join_send(struct ds_control *c);
static const char *join_refusal(const struct ds_control *c, ctl_status st);
static void control_beat(struct ds_control *c);

/* ---- the lease ---- */

static struct ds_lease *control_lease(struct ds_control *c)
{
	struct ds_fs *f = atomic_load(&c->dc_fs);

	return f ? &c->dc_ds->d_lease[ds_fs_place(f)] : NULL;
}

static void lease_set(struct ds_control *c, uint64_t sent_ns, uint32_t lease_ms)
{
	struct ds_lease *le = control_lease(c);
	uint64_t ms = lease_ms < c->dc_ds->d_lease_ms ? lease_ms : c->dc_ds->d_lease_ms;

	if (le)
		atomic_store(&le->le_end_ns, ms ? sent_ns + (ms - ms / 8) * 1000000u : 0);
}

static void timer_next(struct ds_control *c, uint32_t ms)
{
	loop_timer_start(loop_self(), &c->dc_timer, ms);
}

/* The connection over which this server has joined (joining: or is joining) the MDS of f, except
 * but; NULL: there is none. */
static struct ds_control *joined_at(struct ds *d, const struct ds_fs *f,
				    const struct ds_control *but, bool joining)
{
	for (unsigned i = 0; f && i < atomic_load(&d->d_nmds); i++) {
		struct ds_control *c = d->d_control[i];

		if (c != but && atomic_load(&c->dc_fs) == f &&
		    (atomic_load(&c->dc_joined) || (joining && c->dc_joining)))
			return c;
	}
	return NULL;
}

static void timer_fire(struct loop_timer *t)
{
	struct ds_control *c = caa_container_of(t, struct ds_control, dc_timer);

	if (!c->dc_ready)
		return;
	if (atomic_load(&c->dc_joined))
		control_beat(c);
	else
		control_join(c);
}

/* ---- why this server has not joined ---- */

static void control_tell(struct ds_control *c)
{
	c->dc_told = true;
	c->dc_told_ms = clock_mono_ms();
	log_warn("not joined to the MDS at %s: %s; retrying", c->dc_mds, c->dc_why);
	sd_notifyf(0, "STATUS=not joined to the MDS at %s: %s", c->dc_mds, c->dc_why);
	loop_timer_start(loop_self(), &c->dc_tell, TELL_AGAIN_MS);
}

static void tell_fire(struct loop_timer *t)
{
	struct ds_control *c = caa_container_of(t, struct ds_control, dc_tell);

	if (!atomic_load(&c->dc_joined) && !atomic_load(&c->dc_spare))
		control_tell(c);
}

/* On loop 0, the only thread that changes dc_why. True if the reason differs from the last one. */
__attribute__((format(printf, 2, 3))) static bool reason(struct ds_control *c, const char *fmt, ...)
{
	char why[sizeof(c->dc_why)];
	bool changed;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	changed = strcmp(why, c->dc_why) != 0;
	pthread_mutex_lock(&c->dc_why_lock);
	strcpy(c->dc_why, why);
	pthread_mutex_unlock(&c->dc_why_lock);
	c->dc_reason = true;
	return changed;
}

/* ---- joining ---- */

static void join_again(struct ds_control *c)
{
	/* Clients wait for an answer that only the MDS has: ask as soon as the MDS can be
	 * reached. */
	timer_next(c, ds_eof_waiting() ? BACKOFF_MIN_MS : c->dc_backoff_ms);
	c->dc_backoff_ms =
		c->dc_backoff_ms * 2 < BACKOFF_MAX_MS ? c->dc_backoff_ms * 2 : BACKOFF_MAX_MS;
}

/* Tries for ever. Logs the obstacle at once, and then every minute. */
static void join_later(struct ds_control *c, const char *why)
{
	bool changed = reason(c, "%s", why);

	if (!c->dc_told || (changed && clock_mono_ms() - c->dc_told_ms >= TELL_APART_MS))
		control_tell(c);
	join_again(c);
}

/* The first server of a starting cluster always has to wait: log it only if it lasts (dc_tell). */
static void join_waits(struct ds_control *c)
{
	reason(c, "it accepts no join yet: it waits for a data server that joined before, "
		  "or for the end of this server's last connection");
	join_again(c);
}

/* Was the handshake made with the cluster key, or with keys of another file system, and are there
 * keys of this server's own by now? It may be long ago, where a standby did not answer. */
static bool sealed_before_keys(const struct ds_control *c)
{
	struct ds_key k;
	bool own;

	switch (ctl_chan_seal(c->dc_chan)) {
	case CTL_SEAL_CLUSTER:
		own = ds_keys_own(&c->dc_ds->d_keys, &k);
		break;
	case CTL_SEAL_MEET:
		own = ds_keys_of(&c->dc_ds->d_keys, (uint16_t)ctl_chan_fs(c->dc_chan), &k);
		break;
	default:
		return false;
	}
	sodium_memzero(&k, sizeof(k));
	return own;
}

static void drop_connection(struct ds_control *c)
{
	if (c->dc_chan)
		rpc_conn_close(ctl_chan_conn(c->dc_chan));
}

/* ---- JOIN ---- */

/* A worker makes durable what a join changes in the store; the lease begins only after that. */
struct join_work {
	struct ds_job jw_job;
	struct loop_msg jw_msg;
	struct ds_control *jw_control;
	unsigned jw_serial;
	uint64_t jw_sent_ns;
	ctl_join_res jw_res;
	uint64_t jw_boot_id;	 /* 0: the MDS does not say */
	uint64_t jw_striped2_ns; /* d_striped2_ns */
	uint64_t jw_traffic;	 /* not 0: the MDS takes HEARTBEAT2 */
	uint64_t jw_joins;	 /* the number of this join; 0: the MDS does not say */
	bool jw_unkept;		 /* the disk is full: jw_joins is not stored */
	bool jw_given;		 /* the answer has keys: jw_key */
	struct ds_key jw_key;
	int jw_told; /* what ctl_instances_get said */
	struct ctl_instances jw_instances;
	struct ds_fs *jw_fs; /* the MDS's, once the store has met it */
	int jw_err;
	ctl_status jw_status;
};

static void joined(struct loop_msg *m)
{
	struct join_work *jw = caa_container_of(m, struct join_work, jw_msg);
	struct ds_control *c = jw->jw_control;
	struct ds *d = c->dc_ds;

	ds_learned_apply(d);
	if (jw->jw_serial != c->dc_serial || !c->dc_ready || atomic_load(&c->dc_gone)) {
		free(jw);
		return;
	}
	c->dc_joining = false;
	if (!jw->jw_err)
		atomic_store(&c->dc_fs, jw->jw_fs);
	if (jw->jw_err) {
		join_later(c, jw->jw_err == -EXDEV ? join_refusal(c, CTL_BAD_CLUSTER)
						   : strerror(-jw->jw_err));
	} else if (jw->jw_status != CTL_OK) {
		join_later(c, jw->jw_status == CTL_STALE_INSTANCE ? "it is a deposed instance"
								  : "this server's store refused");
	} else if (jw->jw_unkept) {
		/* Join again without join numbers: then this server can serve, and the MDS will not
		 * take a later start of it for a restored store. */
		control_join(c);
	} else {
		atomic_store(&control_lease(c)->le_striped2_ns, jw->jw_striped2_ns);
		c->dc_instance = jw->jw_res.instance_epoch;
		c->dc_traffic = jw->jw_traffic;
		c->dc_backoff_ms = BACKOFF_MIN_MS;
		rpc_client_proven(c->dc_client);
		c->dc_lost_beats = 0;
		c->dc_told = false;
		loop_timer_stop(loop_self(), &c->dc_tell);
		reason(c, "%s", "");
		sd_notifyf(0, "STATUS=joined to the MDS at %s as data server %u", c->dc_mds,
			   jw->jw_res.ds_id);
		lease_set(c, jw->jw_sent_ns, jw->jw_res.lease_ms);
		atomic_store(&c->dc_joined, true);
		log_info("joined as data server %u of file system %u, MDS instance epoch %" PRIu64,
			 jw->jw_res.ds_id, jw->jw_res.fs, c->dc_instance);
		timer_next(c, jw->jw_res.lease_ms ? d->d_heartbeat_ms : UNLEASED_BEAT_MS);
	}
	free(jw);
}

static void join_job(struct ds_job *j)
{
	struct join_work *jw = caa_container_of(j, struct join_work, jw_job);
	struct ds *d = jw->jw_control->dc_ds;

	/* First the number: what a join adds to the journal is about this file system. */
	jw->jw_err = ds_store_set_cluster(d->d_store, (uint8_t *)jw->jw_res.cluster, jw->jw_res.fs);
	if (!jw->jw_err)
		jw->jw_err = ds_store_fs_meet(d->d_store, jw->jw_res.fs, &jw->jw_fs);
	if (!jw->jw_err)
		jw->jw_err = ds_keys_meet(&d->d_keys, jw->jw_fs);
	/* Clients have capabilities of these keys as soon as this server has joined. */
	if (!jw->jw_err && jw->jw_given)
		jw->jw_status = ds_keys_take_key(&d->d_keys, jw->jw_fs, &jw->jw_key);
	sodium_memzero(&jw->jw_key, sizeof(jw->jw_key));
	if (!jw->jw_err && jw->jw_status == CTL_OK)
		jw->jw_status = ds_store_join(jw->jw_fs, jw->jw_res.instance_epoch, jw->jw_boot_id,
					      (uint32_t)jw->jw_joins);
	if (!jw->jw_err && jw->jw_status == CTL_OK)
		ds_learned_told(d, jw->jw_fs, jw->jw_told, &jw->jw_instances);
	jw->jw_unkept = !jw->jw_err && jw->jw_joins && ds_store_seen(jw->jw_fs).sn_unkept;
	loop_post(d->d_loops[0], &jw->jw_msg);
}

static const char *join_refusal(const struct ds_control *c, ctl_status st)
{
	switch (st) {
	case CTL_BAD_CLUSTER:
		return "this store belongs to another cluster";
	case CTL_STALE_INSTANCE:
		return "it is a deposed instance";
	case CTL_NAME_TAKEN:
		return "another data server has this server's name: choose another one (ds.name)";
	case CTL_OWN_KEY:
		return ctl_chan_seal(c->dc_chan) == CTL_SEAL_MEET
			       ? "this server had its own keys from it, and its store has lost "
				 "them: run weft ds key NAME with that MDS, and start this server "
				 "with that file as ds.key"
			       : "this server has its own keys but used the cluster key: make a "
				 "new ds.key file with weft ds key";
	case CTL_INVAL:
		return "it refused this server's description of itself";
	default:
		return "it refused";
	}
}

/* The request that joins over this connection: it depends on the protocol's version. */
static ctl_op join_form(const struct ds_control *c)
{
	return ctl_chan_protocol(c->dc_chan) >= CTL_PROTOCOL_JOIN2 ? CTL_OP_JOIN2 : CTL_OP_JOIN;
}

static void join_more(struct join_work *jw, const ctl_join2_res *r)
{
	uint64_t in_ms;

	ctl_more_get(r->more.more_val, r->more.more_len, CTL_MORE_BOOT, &jw->jw_boot_id, 1);
	ctl_more_get(r->more.more_val, r->more.more_len, CTL_MORE_TRAFFIC, &jw->jw_traffic, 1);
	jw->jw_told = ctl_instances_get(r->more.more_val, r->more.more_len, &jw->jw_instances);
	if (!ctl_more_get(r->more.more_val, r->more.more_len, CTL_MORE_JOINS, &jw->jw_joins, 1) ||
	    jw->jw_joins > UINT32_MAX)
		jw->jw_joins = 0;
	if (ctl_more_get(r->more.more_val, r->more.more_len, CTL_MORE_STRIPED2, &in_ms, 1) &&
	    in_ms <= UINT32_MAX)
		jw->jw_striped2_ns = clock_boot_ns() + in_ms * UINT64_C(1000000);
}

static void control_join_done(void *arg, int err, const ctl_response *res)
{
	struct ds_control *c = arg;
	struct ds_identity id = ds_store_identity(c->dc_ds->d_store);
	const ctl_join_res *jr = err ? NULL
				 : res->result.op == CTL_OP_JOIN2
					 ? &res->result.ctl_result_u.join2.join
					 : &res->result.ctl_result_u.join;
	struct join_work *jw;

	c->dc_joining = false;
	if (err == -ECONNRESET)
		return; /* the next connection joins */
	if (err) {
		/* A connection on which a join gets no answer is no use: make another. */
		if (err == -ETIMEDOUT)
			reason(c, "it does not answer the join request");
		else
			reason(c, "it refused the join request (%s): another cluster key?",
			       strerror(-err));
		drop_connection(c);
		return;
	}
	if (res->status == CTL_NOT_ADMITTED) {
		lease_set(c, c->dc_sent_ns, 0);
		c->dc_backoff_ms = UNADMITTED_MS;
		join_later(c, "an administrator must admit this server (weft ds admit); until then "
			      "it serves nothing");
		return;
	}
	if (res->status == CTL_NOT_JOINED) {
		join_waits(c);
		return;
	}
	if (res->status == CTL_OWN_KEY && sealed_before_keys(c)) {
		reason(c, "this server got its own keys after the handshake");
		drop_connection(c);
		return;
	}
	if (res->status != CTL_OK || res->result.op != join_form(c)) {
		join_later(c, join_refusal(c, res->status));
		return;
	}
	if (!sodium_is_zero(id.id_cluster, DS_UUID_LEN) &&
	    memcmp(id.id_cluster, jr->cluster, DS_UUID_LEN)) {
		join_later(c, join_refusal(c, CTL_BAD_CLUSTER));
		return;
	}
	if (!jr->fs || jr->fs > UINT16_MAX) {
		join_later(c, "it names a file system number that does not fit in a handle");
		return;
	}
	/* The numbers in the request are about the file system that HELLO named. */
	if (jr->fs != ctl_chan_fs(c->dc_chan)) {
		reason(c,
		       "it names one file system number in the handshake (%u) and another in "
		       "its answer (%u)",
		       ctl_chan_fs(c->dc_chan), jr->fs);
		drop_connection(c);
		return;
	}
	jw = calloc(1, sizeof(*jw));
	if (!jw) {
		join_later(c, "out of memory");
		return;
	}
	jw->jw_job.jb_run = join_job;
	jw->jw_msg.m_run = joined;
	jw->jw_control = c;
	jw->jw_serial = c->dc_serial;
	jw->jw_sent_ns = c->dc_sent_ns;
	jw->jw_res = *jr;
	jw->jw_given = ctl_chan_seal(c->dc_chan) == CTL_SEAL_MEET &&
		       res->result.op == CTL_OP_JOIN2 &&
		       ds_key_more_get(res->result.ctl_result_u.join2.more.more_val,
				       res->result.ctl_result_u.join2.more.more_len, id.id_uuid,
				       (uint16_t)jr->fs, &jw->jw_key);
	jw->jw_told = -ENOENT;
	if (res->result.op == CTL_OP_JOIN2)
		join_more(jw, &res->result.ctl_result_u.join2);
	c->dc_joining = true;
	ds_store_submit(c->dc_ds->d_store, DS_WORKER_ORDERS, &jw->jw_job);
}

static bool interface_addr(const struct sockaddr *sa, uint8_t addr[16])
{
	struct sockaddr_storage ss;
	uint16_t port;

	rpc_addr_copy(&ss, sa);
	return exp_addr(&ss, addr, &port);
}

/* The prefix length of an interface's netmask; the mask has the form that exp_addr gives. */
static unsigned mask_bits(const uint8_t mask[16], bool v4)
{
	unsigned first = v4 ? 96 : 0, n = first;

	while (n < 128 && mask[n / 8] & 0x80 >> n % 8)
		n++;
	return n - first;
}

unsigned ds_subnet_bits(const struct sockaddr_storage *a)
{
	uint8_t addr[16], one[16], mask[16];
	struct ifaddrs *all, *i;
	unsigned bits = 0;
	uint16_t port;

	if (!exp_addr(a, addr, &port) || getifaddrs(&all) < 0)
		return 0;
	for (i = all; i && !bits; i = i->ifa_next) {
		if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != a->ss_family)
			continue;
		if (interface_addr(i->ifa_addr, one) && !memcmp(one, addr, sizeof(addr)) &&
		    interface_addr(i->ifa_netmask, mask))
			bits = mask_bits(mask, a->ss_family == AF_INET);
	}
	freeifaddrs(all);
	return bits;
}

/* The file system that a JOIN is about; NULL: the store has not met it. What a store has from
 * before its first join is about the first one. */
static struct ds_fs *join_about(struct ds_control *c)
{
	struct ds_fs *home = ds_store_fs_home(c->dc_ds->d_store);

	return ds_fs_number(home) ? atomic_load(&c->dc_fs) : home;
}

/* A store that has not met the file system has seen nothing of it but its own start. */
static struct ds_seen seen(struct ds_store *s, struct ds_fs *f)
{
	struct ds_seen of = ds_store_seen(f ? f : ds_store_fs_home(s));

	return f ? of : (struct ds_seen){.sn_start = of.sn_start, .sn_start_id = of.sn_start_id};
}

static void control_join(struct ds_control *c)
{
	/* Two addresses of one MDS would take the server from each other. */
	const struct ds_control *beside = joined_at(c->dc_ds, atomic_load(&c->dc_fs), c, true);

	/* Either may be first, so it does not matter which of them was told. */
	atomic_store(&c->dc_spare, beside && (c->dc_learned || beside->dc_learned));
	if (beside) {
		/* Its connection may end at any time: look again. */
		reason(c, "this server has joined its file system at %s", beside->dc_mds);
		c->dc_backoff_ms = BESIDE_MS;
		join_again(c);
		return;
	}
	join_send(c);
}

static void join_send(struct ds_control *c)
{
	struct ds *d = c->dc_ds;
	struct ds_fs *f = join_about(c);
	struct ds_identity id = ds_store_identity(d->d_store);
	struct ds_addr_text text[DS_MAX_ADDRS];
	uint8_t buf[4][8 * CTL_MORE_NUMBERS];
	ctl_more more[5];
	struct ds_key key;
	bool own = ds_keys_of(&d->d_keys, (uint16_t)ctl_chan_fs(c->dc_chan), &key);
	ctl_addr addrs[DS_MAX_ADDRS];
	ctl_request req = {.op = join_form(c)};
	ctl_join_args *j =
		req.op == CTL_OP_JOIN2 ? &req.ctl_request_u.join2.join : &req.ctl_request_u.join;
	/* RDMA addresses first: a client takes the first address that answers. Leave room for one
	 * TCP address, which the MDS itself uses. */
	unsigned n = ds_rdma_addrs(d, addrs, text, DS_MAX_ADDRS - 1);

	for (unsigned i = 0; i < d->d_naddrs && n < DS_MAX_ADDRS; i++) {
		struct ds_addr_text *t = &text[n];

		if (rpc_uaddr((struct sockaddr *)&d->d_addr[i], t->dat_netid, sizeof(t->dat_netid),
			      t->dat_uaddr, sizeof(t->dat_uaddr)))
			continue;
		addrs[n++] = (ctl_addr){.netid = t->dat_netid,
					.uaddr = t->dat_uaddr,
					.prefix = ds_subnet_bits(&d->d_addr[i])};
	}
	c->dc_addrs_changed = false;
	memcpy(j->ds_uuid, id.id_uuid, DS_UUID_LEN);
	memcpy(j->cluster, id.id_cluster, DS_UUID_LEN);
	j->name = id.id_name;
	j->boot_verifier = ds_store_verifier(d->d_store);
	j->addrs.addrs_len = n;
	j->addrs.addrs_val = addrs;
	j->max_read = j->max_write = DS_MAX_IO;
	j->clone_block = ds_store_clone_block(d->d_store);
	uint64_t capacity, available;

	ds_store_space(d->d_store, &capacity, &available);
	j->capacity = capacity;
	j->available = available;
	j->tls = rpc_tls_mode(d->d_tls) == RPC_TLS_OFF ? CTL_TLS_PEERS : rpc_tls_mode(d->d_tls);
	j->order_high = f ? ds_store_order_high(f) : 0;
	j->labels = d->d_labels;
	if (req.op == CTL_OP_JOIN2) {
		struct ds_seen sn = seen(d->d_store, f);
		size_t bytes;

		ctl_more_put(
			&more[0], CTL_MORE_SEEN,
			(uint64_t[]){sn.sn_instance, sn.sn_boot_id, sn.sn_start, sn.sn_start_id}, 4,
			buf[0]);
		ctl_more_put(&more[1], CTL_MORE_KEYS, (uint64_t[]){own, key.dk_number}, 2, buf[1]);
		ctl_more_put(&more[2], CTL_MORE_BARS,
			     (uint64_t[]){f ? ds_store_bars(f, &bytes) : 0}, 1, buf[2]);
		ctl_more_put_version(&more[3], version_text);
		ctl_more_put(&more[4], CTL_MORE_JOINS,
			     (uint64_t[]){sn.sn_kept_instance, sn.sn_kept_joins}, 2, buf[3]);
		req.ctl_request_u.join2.more.more_len = sn.sn_unkept ? 4 : 5;
		req.ctl_request_u.join2.more.more_val = more;
	}
	c->dc_sent_ns = clock_boot_ns();
	c->dc_joining = true;
	if (ctl_chan_call(c->dc_chan, &req, CTL_JOIN_MS, control_join_done, c)) {
		c->dc_joining = false;
		join_later(c, "cannot send the request");
	}
}

/* ---- HEARTBEAT ---- */

_Static_assert(offsetof(ctl_heartbeat2_args, heartbeat) == 0, "HEARTBEAT2 begins as HEARTBEAT");

static void rejoin(struct ds_control *c)
{
	atomic_store(&c->dc_joined, false);
	control_join(c);
}

static void beat_done(void *arg, int err, const ctl_response *res)
{
	struct ds_control *c = arg;
	struct ds *d = c->dc_ds;
	/* the answer to either form */
	const ctl_heartbeat_res *hb = err ? NULL : &res->result.ctl_result_u.heartbeat;
	bool good;
	uint32_t next = d->d_heartbeat_ms;

	if (err == -ECONNRESET)
		return;
	if (err) {
		if (++c->dc_lost_beats >= MAX_LOST_BEATS)
			drop_connection(c);
		else
			timer_next(c, next);
		return;
	}
	c->dc_lost_beats = 0;
	good = res->status == CTL_OK &&
	       (res->result.op == CTL_OP_HEARTBEAT || res->result.op == CTL_OP_HEARTBEAT2);
	/* A newer instance of its file system may have joined over another connection: the join
	 * says that this one is deposed. */
	if (res->status == CTL_NOT_JOINED || c->dc_addrs_changed ||
	    (good && (hb->instance_epoch != c->dc_instance ||
		      !ds_store_instance_ok(atomic_load(&c->dc_fs), hb->instance_epoch)))) {
		rejoin(c);
		return;
	}
	if (good) {
		lease_set(c, c->dc_sent_ns, hb->lease_ms);
		if (!hb->lease_ms)
			next = UNLEASED_BEAT_MS;
		else if (next > hb->lease_ms / 3)
			next = hb->lease_ms / 3 ? hb->lease_ms / 3 : 1;
	}
	timer_next(c, next);
}

/* Time spent in calls, divided by time: the average number of calls in progress. A call counts when
 * it ends. */
static uint32_t control_load(struct ds_control *c)
{
	uint64_t now = clock_boot_ns(), busy = ds_nfs3_busy_us(),
		 passed = (now - c->dc_load_ns) / 1000, l;

	l = c->dc_load_ns && passed ? (busy - c->dc_busy_us) * 100 / passed : 0;
	c->dc_load_ns = now;
	c->dc_busy_us = busy;
	return l < UINT32_MAX ? (uint32_t)l : UINT32_MAX;
}

static void control_beat(struct ds_control *c)
{
	struct ds *d = c->dc_ds;
	ctl_request req = {.op = c->dc_traffic ? CTL_OP_HEARTBEAT2 : CTL_OP_HEARTBEAT};
	/* both forms begin in the same way */
	ctl_heartbeat_args *a = &req.ctl_request_u.heartbeat2.heartbeat;
	uint8_t buf[8 * CTL_MORE_NUMBERS];
	ctl_more traffic;
	uint64_t capacity, available;
	uint32_t timeout = 2 * d->d_heartbeat_ms > 2000 ? 2 * d->d_heartbeat_ms : 2000;

	ds_store_space(d->d_store, &capacity, &available);
	a->capacity = capacity;
	a->available = available;
	a->load = control_load(c);
	if (c->dc_traffic) {
		ctl_more_put(&traffic, CTL_MORE_TRAFFIC,
			     (uint64_t[]){metric_value(ds_m_read_bytes),
					  metric_value(ds_m_write_bytes), ds_nfs3_calls()},
			     3, buf);
		req.ctl_request_u.heartbeat2.more.more_len = 1;
		req.ctl_request_u.heartbeat2.more.more_val = &traffic;
	}
	c->dc_sent_ns = clock_boot_ns();
	if (ctl_chan_call(c->dc_chan, &req, timeout, beat_done, c))
		timer_next(c, d->d_heartbeat_ms);
}

/* ---- requests of the MDS ---- */

static void control_serve(struct ctl_incoming *in, void *arg)
{
	struct ds_control *c = arg;

	ds_control_serve(c->dc_ds, atomic_load(&c->dc_fs), in);
}

static void control_dispatch(struct rpc_call *call, void *arg)
{
	struct ds_control *c = arg;

	if (call->c_proc == CTL_PROC_NULL)
		rpc_reply(call);
	else if (call->c_proc == CTL_PROC_SEALED && c->dc_chan)
		ctl_chan_sealed(c->dc_chan, call);
	else
		rpc_reply_error(call, RPC_A_PROC_UNAVAIL);
}

/* ---- the connection ---- */

static void control_ready(struct ctl_chan *ch, int err, void *arg)
{
	struct ds_control *c = arg;

	/* The next connection asks, or knows. */
	c->dc_hello_fs = err == -EAGAIN ? 1 : err ? 0 : (uint16_t)ctl_chan_fs(ch);
	if (err == -EAGAIN || err == -EXDEV) {
		reason(c, "it has just said which file system it has");
		rpc_conn_close(ctl_chan_conn(ch));
		return;
	}
	if (err == -EKEYREJECTED) {
		reason(c, "it does not accept this server's keys: make a new ds.key file with weft "
			  "ds key");
		rpc_conn_close(ctl_chan_conn(ch));
		return;
	}
	if (err) {
		reason(c,
		       "the handshake failed (%s): is weft-mds listening there, or another server?",
		       strerror(-err));
		rpc_conn_close(ctl_chan_conn(ch));
		return;
	}
	c->dc_ready = true;
	atomic_store(&c->dc_fs, ds_store_fs(c->dc_ds->d_store, ctl_chan_fs(ch)));
	if (ctl_chan_protocol(ch) < CTL_PROTOCOL)
		log_info("control: the MDS speaks protocol %u, this data server up to %u",
			 ctl_chan_protocol(ch), CTL_PROTOCOL);
	control_join(c);
}

/* Called while there are keys of this server's own, of some file system. */
static enum ctl_seal pick(void *arg, uint16_t fs, uint8_t *number, uint8_t key[32])
{
	struct ds_control *c = arg;
	struct ds_key k;
	bool own = ds_keys_of(&c->dc_ds->d_keys, fs, &k);

	if (own) {
		*number = k.dk_number;
		memcpy(key, k.dk_control, sizeof(k.dk_control));
	} else {
		ds_keys_own(&c->dc_ds->d_keys, &k);
		ds_key_derive_meet(k.dk_tls, k.dk_uuid, key);
	}
	sodium_memzero(&k, sizeof(k));
	return own ? CTL_SEAL_OWN : CTL_SEAL_MEET;
}

static void up(struct rpc_client *cl, struct rpc_conn *conn, void *arg)
{
	struct ds_control *c = arg;
	struct ds_identity id = ds_store_identity(c->dc_ds->d_store);
	struct ds_key key;
	int err;

	(void)cl;
	c->dc_serial++;
	err = ds_keys_own(&c->dc_ds->d_keys, &key)
		      ? ctl_chan_connect_pick(&c->dc_chan, conn, c->dc_hello_fs, pick, id.id_uuid,
					      control_serve, c, control_ready)
		      : ctl_chan_connect(&c->dc_chan, conn, c->dc_ds->d_keys.ks_cluster, id.id_uuid,
					 control_serve, c, control_ready);
	sodium_memzero(&key, sizeof(key));
	if (err)
		rpc_conn_close(conn);
}

static void down(struct rpc_client *cl, int err, void *arg)
{
	struct ds_control *c = arg;

	(void)cl;
	if (atomic_exchange(&c->dc_joined, false)) {
		log_warn("lost the connection to the MDS: %s; this server serves until its lease "
			 "ends",
			 strerror(-err));
		loop_timer_start(loop_self(), &c->dc_tell, TELL_FIRST_MS);
	}
	if (!c->dc_reason && c->dc_ready)
		reason(c, "it closed the connection instead of answering the join request: another "
			  "cluster key?");
	else if (!c->dc_reason && c->dc_chan)
		reason(c,
		       "the handshake failed (%s): is weft-mds listening there, or another server?",
		       strerror(-err));
	else if (!c->dc_reason)
		reason(c, "no connection: %s", strerror(-err));
	atomic_store(&c->dc_spare, false);
	c->dc_reason = false;
	c->dc_ready = false;
	c->dc_joining = false;
	c->dc_lost_beats = 0;
	c->dc_backoff_ms = BACKOFF_MIN_MS;
	loop_timer_stop(loop_self(), &c->dc_timer);
	if (c->dc_chan) {
		struct ctl_chan *ch = c->dc_chan;

		c->dc_chan = NULL;
		ctl_chan_free(ch);
	}
}

/* The next report to each MDS will be a join. */
void ds_control_addrs_changed(struct ds *d)
{
	for (unsigned i = 0; i < atomic_load(&d->d_nmds); i++)
		d->d_control[i]->dc_addrs_changed = true;
}

struct ctl_chan *ds_control_chan(struct ds *d, const struct ds_fs *f)
{
	const struct ds_control *c = joined_at(d, f, NULL, false);

	return c ? c->dc_chan : NULL;
}

bool ds_control_state(struct ds *d, unsigned i, struct ds_control_state *out)
{
	struct ds_control *c = d->d_control[i];

	out->cs_joined = atomic_load(&c->dc_joined);
	out->cs_fs = atomic_load(&c->dc_fs);
	out->cs_spare = atomic_load(&c->dc_spare);
	pthread_mutex_lock(&c->dc_why_lock);
	out->cs_learned = c->dc_learned;
	strcpy(out->cs_mds, c->dc_mds);
	strcpy(out->cs_why, c->dc_why);
	pthread_mutex_unlock(&c->dc_why_lock);
	return !atomic_load(&c->dc_gone);
}

/* ---- addresses come and go ---- */

bool ds_control_learned(struct ds *d, unsigned i, struct sockaddr_storage *addr)
{
	struct ds_control *c = d->d_control[i];

	*addr = c->dc_addr;
	return c->dc_learned && !atomic_load(&c->dc_gone);
}

static void stop_run(struct loop_msg *m)
{
	struct ds_control *c = caa_container_of(m, struct ds_control, dc_stop);

	/* The client calls down() no more. */
	rpc_client_destroy(c->dc_client);
	c->dc_client = NULL;
	c->dc_ready = false;
	atomic_store(&c->dc_joined, false);
	if (c->dc_chan) {
		struct ctl_chan *ch = c->dc_chan;

		c->dc_chan = NULL;
		ctl_chan_free(ch);
	}
	loop_timer_stop(loop_self(), &c->dc_timer);
	loop_timer_stop(loop_self(), &c->dc_tell);
	c->dc_joining = false;
	c->dc_serial++;
	atomic_store(&c->dc_spare, false);
	atomic_store(&c->dc_fs, NULL);
	c->dc_free = true;
	ds_learned_apply(c->dc_ds);
}

void ds_control_stop(struct ds *d, unsigned i)
{
	struct ds_control *c = d->d_control[i];

	if (atomic_exchange(&c->dc_gone, true))
		return;
	/* Not from within the connection's own calls. */
	c->dc_stop.m_run = stop_run;
	loop_post(d->d_loops[0], &c->dc_stop);
}

/* Returns a place for an address; NULL: memory is short. Nobody else sees a new one yet. */
static struct ds_control *place_make(struct ds *d)
{
	struct ds_control *c;

	for (unsigned i = 0; i < atomic_load(&d->d_nmds); i++)
		if (d->d_control[i]->dc_free)
			return d->d_control[i];
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->dc_ds = d;
	c->dc_timer.t_fire = timer_fire;
	c->dc_tell.t_fire = tell_fire;
	pthread_mutex_init(&c->dc_why_lock, NULL);
	c->dc_prog = (struct rpc_program){
		.pr_prog = CTL_PROGRAM,
		.pr_vers_lo = CTL_VERSION,
		.pr_vers_hi = CTL_VERSION,
		.pr_nprocs = CTL_PROC_SEALED + 1,
		.pr_dispatch = control_dispatch,
		.pr_arg = c,
	};
	return c;
}

static bool place_taken(struct ds *d, const struct sockaddr *addr, socklen_t len)
{
	for (unsigned i = 0; i < atomic_load(&d->d_nmds); i++) {
		const struct ds_control *c = d->d_control[i];

		if (!atomic_load(&c->dc_gone) && c->dc_addrlen == len &&
		    !memcmp(&c->dc_addr, addr, len))
			return true;
	}
	return false;
}

int ds_control_start(struct ds *d, const struct sockaddr *addr, socklen_t len, bool learned)
{
	struct rpc_client_ops ops = {.cl_up = up, .cl_down = down};
	struct rpc_service svc = {
		.rs_nprogs = 1, .rs_max_record = MAX_RECORD, .rs_max_reply = MAX_RECORD};
	unsigned n = atomic_load(&d->d_nmds);
	struct ds_control *c;
	bool again;
	int err;

	if (place_taken(d, addr, len))
		return -EEXIST;
	c = place_make(d);
	if (!c)
		return -ENOMEM;
	again = c->dc_free;
	if (!again && n == DS_MDS_MAX) {
		err = -EOVERFLOW;
		goto bad;
	}
	svc.rs_progs = &c->dc_prog;
	err = rpc_client_create(&c->dc_client, d->d_loops[0], addr, len, &svc, &ops, c);
	if (err)
		goto bad;
	memcpy(&c->dc_addr, addr, len);
	c->dc_addrlen = len;
	c->dc_backoff_ms = BACKOFF_MIN_MS;
	c->dc_hello_fs = 0;
	c->dc_told = false;
	pthread_mutex_lock(&c->dc_why_lock);
	c->dc_learned = learned;
	rpc_addr_text(addr, c->dc_mds, sizeof(c->dc_mds));
	pthread_mutex_unlock(&c->dc_why_lock);
	reason(c, "no answer yet");
	c->dc_reason = false;
	c->dc_free = false;
	atomic_store(&c->dc_gone, false);
	if (!again) {
		d->d_control[n] = c;
		atomic_store(&d->d_nmds, n + 1);
	}
	loop_timer_start(d->d_loops[0], &c->dc_tell, TELL_FIRST_MS);
	rpc_client_start(c->dc_client);
	return 0;
bad:
	if (!again) {
		pthread_mutex_destroy(&c->dc_why_lock);
		free(c);
	}
	return err;
}
