/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3ds_add.c - adds an NFSv3 data server. Runs on the first loop. The steps:
 *
 * 1. its export's file handle (MOUNT version 3, RFC 1813 appendix I)
 * 2. its limits (FSINFO) and space (FSSTAT)
 * 3. a test file with a synthetic owner
 * 4. a directory for weft's objects
 * 5. the records in the store
 */
#include "mds/dataserver/nfs3ds.h"
#include "base/log.h"
#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <urcu/compiler.h>

#define PMAP_PORT    111
#define PMAP_PROGRAM 100000u
#define PMAP_GETPORT 3
#define MNT_PROGRAM  100005u
#define MNT_MNT	     1
#define MAX_IO	     (1u << 20)

struct adding {
	struct ds_reg *ad_dsc;
	struct ds_reg_add *ad_add;
	struct loop_msg ad_msg;
	struct kv_op ad_op;
	struct rpc_client *ad_aside, *ad_client; /* ad_aside: rpcbind or mountd; ad_client: NFS */
	struct rpc_req ad_req;
	struct nfs3ds_rpc ad_rpc;
	struct nfs3ds_file ad_file;
	struct nfs3ds_fh ad_root;
	struct gen *ad_gen;
	struct ds_reg_node *ad_node;
	uint16_t ad_mount_port;
	int ad_err;
};

static void add_end(struct adding *ad, int err)
{
	struct ds_reg_add *a = ad->ad_add;

	if (ad->ad_aside)
		rpc_client_destroy(ad->ad_aside);
	if (ad->ad_client)
		rpc_client_destroy(ad->ad_client);
	nfs3ds_free(ad->ad_gen);
	free(ad->ad_node);
	free(ad);
	a->da_done(a, err);
}

static void add_ended(struct loop_msg *m)
{
	struct adding *ad = caa_container_of(m, struct adding, ad_msg);

	add_end(ad, ad->ad_err);
}

/* Ends from the loop, not from inside an RPC client's own call. */
static void __attribute__((format(printf, 3, 4)))
add_fail(struct adding *ad, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(ad->ad_add->da_why, sizeof(ad->ad_add->da_why), fmt, ap);
	va_end(ap);
	ad->ad_err = err;
	ad->ad_msg.m_run = add_ended;
	loop_post(loop_self(), &ad->ad_msg);
}

static void rpc_fail(struct adding *ad, const char *what)
{
	add_fail(ad, nfs3ds_errno(&ad->ad_rpc), "%s: %s%s", what, nfs3ds_why(&ad->ad_rpc),
		 nfs3ds_errno(&ad->ad_rpc) == -EPERM
			 ? ": the export must not squash root of this machine (no_root_squash), "
			   "and must accept any port (insecure)"
			 : "");
}

static bool client(struct adding *ad, struct rpc_client **cl, uint16_t port)
{
	struct sockaddr_storage ss = ad->ad_add->da_addr;

	if (ss.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&ss)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&ss)->sin_port = htons(port);
	if (*cl)
		rpc_client_destroy(*cl);
	*cl = NULL;
	return rpc_client_create(cl, loop_self(), (struct sockaddr *)&ss, ad->ad_add->da_len, NULL,
				 NULL, NULL) == 0;
}

static uint16_t nfs3ds_add_port_of(const struct sockaddr_storage *ss)
{
	return ntohs(ss->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)ss)->sin6_port
					       : ((const struct sockaddr_in *)ss)->sin_port);
}

/* ---- the record ---- */

static int nfs3ds_add_record_run(struct kv_op *op, struct kv_txn *t)
{
	struct adding *ad = caa_container_of(op, struct adding, ad_op);
	struct ds_reg_node *nd = ad->ad_node;
	uint8_t row[DS_REG_ROW_MAX];
	int err;

	if (ds_reg_count(ad->ad_dsc) >= DS_REG_MAX)
		return -ENOSPC;
	err = ns_next_ds(ad->ad_dsc->d_ns, t, &nd->nd_sv.sv_id);
	if (!err && (!nd->nd_sv.sv_id || nd->nd_sv.sv_id > DS_REG_MAX))
		err = -ENOSPC;
	if (!err)
		err = ns_row_put(t, NS_T_DS, nd->nd_sv.sv_uuid, 16, row,
				 ds_reg_row_encode(&nd->nd_sv, &nd->nd_terms, row));
	return err ? err : nfs3ds_server_put(t, ad->ad_gen, 1);
}

static void nfs3ds_add_record_done(struct kv_op *op, int err)
{
	struct adding *ad = caa_container_of(op, struct adding, ad_op);
	struct ds_reg *d = ad->ad_dsc;
	struct ds_reg_node *nd = ad->ad_node;
	struct gen *g = ad->ad_gen;

	if (err) {
		add_fail(ad, err, "cannot record it: %s", strerror(-err));
		return;
	}
	g->gn_id = ad->ad_add->da_id = nd->nd_sv.sv_id;
	nd->nd_gen = g;
	atomic_store(&d->d_generic, true);
	pthread_mutex_lock(&d->d_lock);
	if (ds_reg_node_add(d, g->gn_id, nd))
		log_fatal("out of memory for a data server");
	pthread_mutex_unlock(&d->d_lock);
	ad->ad_node = NULL;
	ad->ad_gen = NULL;
	log_info("data server %u (%s): added, a generic NFSv3 server", g->gn_id, nd->nd_sv.sv_name);
	nfs3ds_start(g);
	add_end(ad, 0);
}

static void nfs3ds_add_put_addr(struct ds_reg_server *sv, const struct sockaddr_storage *addr,
				uint16_t port, bool rdma)
{
	struct sockaddr_storage ss = *addr;
	unsigned i = sv->sv_naddrs;

	if (ss.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&ss)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&ss)->sin_port = htons(port);
	if (rpc_uaddr((struct sockaddr *)&ss, sv->sv_addrs[i].netid, sizeof(sv->sv_addrs[i].netid),
		      sv->sv_addrs[i].uaddr, sizeof(sv->sv_addrs[i].uaddr)))
		return;
	if (rdma)
		strcpy(sv->sv_addrs[i].netid, ss.ss_family == AF_INET6 ? "rdma6" : "rdma");
	sv->sv_naddrs++;
}

static void made_dir(struct nfs3ds_rpc *r)
{
	struct adding *ad = caa_container_of(r, struct adding, ad_rpc);
	struct ds_reg_add *a = ad->ad_add;
	struct ds_reg_server *sv = &ad->ad_node->nd_sv;
	char name[NFS3DS_PATH];

	if (nfs3ds_errno(r)) {
		rpc_fail(ad, "making a directory in it");
		return;
	}
	if (!r->gr_fh.f_len && r->gr_proc == NFS3_MKDIR) {
		snprintf(name, sizeof(name), "weft-");
		for (unsigned i = 0; i < 16; i++)
			sprintf(name + strlen(name), "%02x", ad->ad_gen->gn_uuid[i]);
		nfs3ds_lookup(ad->ad_client, r, &ad->ad_root, name);
		return;
	}
	ad->ad_gen->gn_dir = r->gr_fh;
	strcpy(ad->ad_gen->gn_path, a->da_path);
	memcpy(sv->sv_uuid, ad->ad_gen->gn_uuid, 16);
	strcpy(sv->sv_name, a->da_name);
	nfs3ds_add_put_addr(sv, &a->da_addr, nfs3ds_add_port_of(&a->da_addr), false);
	if (a->da_rdma_port)
		nfs3ds_add_put_addr(sv, &a->da_addr, a->da_rdma_port, true);
	sv->sv_nfs3 = true;
	ds_reg_set_key(ad->ad_dsc, sv);
	ad->ad_node->nd_terms.dt_weight = DS_REG_WEIGHT_ONE;
	strcpy(ad->ad_node->nd_terms.dt_own, "kind=nfs3");
	labels_merge(ad->ad_node->nd_terms.dt_own, "", ad->ad_node->nd_terms.dt_labels);
	ad->ad_op = (struct kv_op){.o_run = nfs3ds_add_record_run,
				   .o_done = nfs3ds_add_record_done,
				   .o_loop = loop_self()};
	kv_submit(ns_kv(ad->ad_dsc->d_ns), &ad->ad_op);
}

/* ---- the test file ---- */

static void tried_gone(struct nfs3ds_rpc *r)
{
	struct adding *ad = caa_container_of(r, struct adding, ad_rpc);
	char name[NFS3DS_PATH] = "weft-";

	if (nfs3ds_errno(r)) {
		rpc_fail(ad, "removing the test file");
		return;
	}
	for (unsigned i = 0; i < 16; i++)
		sprintf(name + strlen(name), "%02x", ad->ad_gen->gn_uuid[i]);
	r->gr_done = made_dir;
	nfs3ds_mkdir(ad->ad_client, r, &ad->ad_root, name);
}

static void tried_failed_gone(struct nfs3ds_rpc *r)
{
	struct adding *ad = caa_container_of(r, struct adding, ad_rpc);
	const struct nfs3ds_file *f = &ad->ad_file;

	if (f->gf_err == -EPERM)
		add_fail(ad, -EPERM,
			 "%s cannot set a file's owner: the export must not squash root of this "
			 "machine and must not map users (no_root_squash)",
			 f->gf_what);
	else
		add_fail(ad, f->gf_err, "testing a file: %s: %s", f->gf_what, strerror(-f->gf_err));
}

static void tried(struct nfs3ds_file *f)
{
	struct adding *ad = caa_container_of(f, struct adding, ad_file);

	ad->ad_rpc.gr_done = f->gf_err ? tried_failed_gone : tried_gone;
	nfs3ds_remove(ad->ad_client, &ad->ad_rpc, &ad->ad_root, f->gf_name);
}

static void try_file(struct adding *ad)
{
	struct nfs3ds_file *f = &ad->ad_file;

	f->gf_client = ad->ad_client;
	f->gf_dir = ad->ad_root;
	snprintf(f->gf_name, sizeof(f->gf_name), ".weft-%08x", randombytes_random());
	nfs3ds_owner(ad->ad_gen, 0, 1, &f->gf_uid, &f->gf_gid);
	f->gf_done = tried;
	nfs3ds_file_make(f);
}

static void told_space(struct nfs3ds_rpc *r)
{
	struct adding *ad = caa_container_of(r, struct adding, ad_rpc);

	if (nfs3ds_errno(r)) {
		rpc_fail(ad, "FSSTAT");
		return;
	}
	ad->ad_node->nd_sv.sv_capacity = r->gr_total;
	ad->ad_node->nd_sv.sv_available = r->gr_avail;
	try_file(ad);
}

static void told_limits(struct nfs3ds_rpc *r)
{
	struct adding *ad = caa_container_of(r, struct adding, ad_rpc);
	struct ds_reg_server *sv = &ad->ad_node->nd_sv;

	if (nfs3ds_errno(r)) {
		rpc_fail(ad, "FSINFO");
		return;
	}
	sv->sv_max_read = r->gr_rtmax < MAX_IO ? r->gr_rtmax : MAX_IO;
	sv->sv_max_write = r->gr_wtmax < MAX_IO ? r->gr_wtmax : MAX_IO;
	if (sv->sv_max_read < 4096 || sv->sv_max_write < 4096) {
		add_fail(ad, -EINVAL, "FSINFO: its limit for a read or write is below 4096 bytes");
		return;
	}
	r->gr_done = told_space;
	nfs3ds_fsstat(ad->ad_client, r, &ad->ad_root);
}

static void have_root(struct adding *ad)
{
	if (!client(ad, &ad->ad_client, nfs3ds_add_port_of(&ad->ad_add->da_addr))) {
		add_fail(ad, -ENOMEM, "out of memory");
		return;
	}
	ad->ad_rpc.gr_done = told_limits;
	nfs3ds_fsinfo(ad->ad_client, &ad->ad_rpc, &ad->ad_root);
}

/* ---- the export's handle ---- */

static const char *mount_why(uint32_t status)
{
	switch (status) {
	case 1:
	case 13:
		return "access denied";
	case 2:
		return "no such export";
	case 20:
		return "not a directory";
	default:
		return "an error";
	}
}

static void mounted(struct rpc_req *q, int err, struct xdr_in *x)
{
	struct adding *ad = caa_container_of(q, struct adding, ad_req);
	uint32_t status = err ? 0 : xdr_get_u32(x);
	const uint8_t *p;

	if (!err && x->bad)
		err = -EPROTO;
	if (err) {
		add_fail(ad, err, "MOUNT at port %u: %s", ad->ad_mount_port, strerror(-err));
		return;
	}
	if (status) {
		add_fail(ad, -EACCES, "MOUNT of %s: %s", ad->ad_add->da_path, mount_why(status));
		return;
	}
	p = xdr_get_opaque(x, NFS3_FHSIZE, &ad->ad_root.f_len);
	if (!p || !ad->ad_root.f_len) {
		add_fail(ad, -EPROTO, "MOUNT of %s: malformed answer", ad->ad_add->da_path);
		return;
	}
	memcpy(ad->ad_root.f_data, p, ad->ad_root.f_len);
	have_root(ad);
}

static void mount_run(struct loop_msg *m)
{
	static const struct rpc_cred root = {.rc_flavor = RPC_AUTH_SYS};
	struct adding *ad = caa_container_of(m, struct adding, ad_msg);

	if (!client(ad, &ad->ad_aside, ad->ad_mount_port)) {
		add_fail(ad, -ENOMEM, "out of memory");
		return;
	}
	rpc_req_init(&ad->ad_req, MNT_PROGRAM, 3, MNT_MNT, &root, 512, mounted);
	xdr_put_opaque(&ad->ad_req.q_args, ad->ad_add->da_path,
		       (uint32_t)strlen(ad->ad_add->da_path));
	rpc_client_send(ad->ad_aside, &ad->ad_req, NFS3DS_RPC_MS);
}

/* Posts a message, because the client that called rpcbind is in use until its answer has been
 * handled. */
static void mount_now(struct adding *ad)
{
	ad->ad_msg.m_run = mount_run;
	loop_post(loop_self(), &ad->ad_msg);
}

static void got_port(struct rpc_req *q, int err, struct xdr_in *x)
{
	struct adding *ad = caa_container_of(q, struct adding, ad_req);
	uint32_t port = err ? 0 : xdr_get_u32(x);

	if (!err && (x->bad || port > UINT16_MAX))
		err = -EPROTO;
	if (err || !port) {
		add_fail(ad, err ? err : -ENOENT,
			 "its rpcbind, port %u: %s; give the port of MOUNT with mount-port=PORT",
			 PMAP_PORT, err ? strerror(-err) : "it has no MOUNT version 3 over TCP");
		return;
	}
	ad->ad_mount_port = (uint16_t)port;
	mount_now(ad);
}

static void ask_port(struct adding *ad)
{
	if (!client(ad, &ad->ad_aside, PMAP_PORT)) {
		add_fail(ad, -ENOMEM, "out of memory");
		return;
	}
	rpc_req_init(&ad->ad_req, PMAP_PROGRAM, 2, PMAP_GETPORT, NULL, 64, got_port);
	xdr_put_u32(&ad->ad_req.q_args, MNT_PROGRAM);
	xdr_put_u32(&ad->ad_req.q_args, 3);
	xdr_put_u32(&ad->ad_req.q_args, IPPROTO_TCP);
	xdr_put_u32(&ad->ad_req.q_args, 0);
	rpc_client_send(ad->ad_aside, &ad->ad_req, NFS3DS_RPC_MS);
}

/* Returns the id under which this server is known already; 0: it is not known. */
static uint32_t known_as(struct ds_reg *d, const struct ds_reg_add *a)
{
	uint32_t id = 0;

	pthread_mutex_lock(&d->d_lock);
	for (uint32_t n = 1; n <= DS_REG_MAX && !id; n++) {
		struct sockaddr_storage ss = {0};
		const struct ds_reg_node *nd = d->d_node[n];
		socklen_t len = 0;

		if (nd && nd->nd_gen && !strcmp(nd->nd_gen->gn_path, a->da_path) &&
		    !rpc_uaddr_parse(nd->nd_sv.sv_addrs[0].netid, nd->nd_sv.sv_addrs[0].uaddr, &ss,
				     &len) &&
		    len == a->da_len && !memcmp(&ss, &a->da_addr, len))
			id = n;
	}
	pthread_mutex_unlock(&d->d_lock);
	return id;
}

static void add_run(struct loop_msg *m)
{
	struct adding *ad = caa_container_of(m, struct adding, ad_msg);
	struct ds_reg_add *a = ad->ad_add;
	uint8_t uuid[16];

	a->da_id = known_as(ad->ad_dsc, a);
	if (a->da_id) {
		add_fail(ad, -EEXIST, "it is already data server %u", a->da_id);
		return;
	}
	randombytes_buf(uuid, sizeof(uuid));
	ad->ad_gen = nfs3ds_new(ad->ad_dsc, uuid);
	ad->ad_node = calloc(1, sizeof(*ad->ad_node));
	if (!ad->ad_gen || !ad->ad_node) {
		add_fail(ad, -ENOMEM, "out of memory");
	} else if (a->da_root.dh_len) {
		ad->ad_root.f_len = a->da_root.dh_len;
		memcpy(ad->ad_root.f_data, a->da_root.dh_data, a->da_root.dh_len);
		have_root(ad);
	} else if (a->da_mount_port) {
		ad->ad_mount_port = a->da_mount_port;
		mount_now(ad);
	} else {
		ask_port(ad);
	}
}

void ds_reg_add(struct ds_reg *d, struct ds_reg_add *a)
{
	struct adding *ad = calloc(1, sizeof(*ad));

	if (!ad)
		log_fatal("out of memory for a new data server");
	a->da_id = 0;
	*a->da_why = 0;
	ad->ad_dsc = d;
	ad->ad_add = a;
	ad->ad_msg.m_run = add_run;
	loop_post(ds_reg_loop(d, 0), &ad->ad_msg);
}
