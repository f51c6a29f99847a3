/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compound.c - the COMPOUND engine (RFC 8881 section 16.2).
 *
 *	decode		op_dispatch: the frame of the request
 *	caller		op_cred finds the caller's exports and groups; it may park
 *	run		compound_run: op_start begins each operation, op_end closes its result; an
 *			operation may wait (await.h), and op_resume goes on
 *	grace		grace_park: what grace refuses waits for its end, and grace_over runs it
 *			again (await_grace.c)
 *	finish		compound_finish: keeps the reply for a retry, and sends it
 */
#include "mds/nfs4/state_protect.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include "base/crash.h"
#include "mds/namespace/ns_trash.h"
#include "mds/nfs4/op_heat.h"
#include "base/log.h"
#include "common/trace.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

#define NAMES_TRIES 4 /* how often one operation waits for names */

struct op_desc {
	const char *name;
	op_fn fn;      /* NULL: defined, and answered NFS4ERR_NOTSUPP */
	uint8_t minor; /* first minor version that has it */
	bool sessionless;
	/* Changes nothing and needs no client: may run behind results that come from the durable
	 * reply cache (replay.c). */
	bool reads;
	/* Has changed nothing when its status is NFS4ERR_GRACE. */
	bool grace;
	unsigned room; /* of an operation that changes something: bytes of its longest result */
};

static const struct op_desc ops[NFS4_OP_MAX] = {
	[OP_ACCESS] = {"ACCESS", op_access, 1, .reads = true},
	[OP_CLOSE] = {"CLOSE", op_close, 1, .room = 24},
	[OP_COMMIT] = {"COMMIT", op_commit, 1, .room = 16},
	[OP_CREATE] = {"CREATE", op_create, 1, .room = 64},
	[OP_DELEGPURGE] = {"DELEGPURGE", NULL, 1},
	[OP_DELEGRETURN] = {"DELEGRETURN", op_delegreturn, 1, .room = 8},
	[OP_GETATTR] = {"GETATTR", op_getattr, 1, .reads = true},
	[OP_GETFH] = {"GETFH", op_getfh, 1, .reads = true},
	[OP_LINK] = {"LINK", op_link, 1, .room = 28, .grace = true},
	[OP_LOCK] = {"LOCK", op_lock, 1, .room = 1100, .grace = true},
	[OP_LOCKT] = {"LOCKT", op_lockt, 1, .grace = true},
	[OP_LOCKU] = {"LOCKU", op_locku, 1, .room = 24},
	[OP_LOOKUP] = {"LOOKUP", op_lookup, 1, .reads = true},
	[OP_LOOKUPP] = {"LOOKUPP", op_lookupp, 1, .reads = true},
	[OP_NVERIFY] = {"NVERIFY", op_nverify, 1, .reads = true},
	[OP_OPEN] = {"OPEN", op_open, 1, .room = 192, .grace = true},
	[OP_OPENATTR] = {"OPENATTR", NULL, 1},
	[OP_OPEN_CONFIRM] = {"OPEN_CONFIRM", NULL, 1},
	[OP_OPEN_DOWNGRADE] = {"OPEN_DOWNGRADE", op_open_downgrade, 1, .room = 24},
	[OP_PUTFH] = {"PUTFH", op_putfh, 1, .reads = true},
	[OP_PUTPUBFH] = {"PUTPUBFH", op_putrootfh, 1, .reads = true},
	[OP_PUTROOTFH] = {"PUTROOTFH", op_putrootfh, 1, .reads = true},
	[OP_READ] = {"READ", op_read, 1},
	[OP_READDIR] = {"READDIR", op_readdir, 1, .reads = true},
	[OP_READLINK] = {"READLINK", op_readlink, 1, .reads = true},
	[OP_REMOVE] = {"REMOVE", op_remove, 1, .room = 28, .grace = true},
	[OP_RENAME] = {"RENAME", op_rename, 1, .room = 48, .grace = true},
	[OP_RENEW] = {"RENEW", NULL, 1},
	[OP_RESTOREFH] = {"RESTOREFH", op_restorefh, 1, .reads = true},
	[OP_SAVEFH] = {"SAVEFH", op_savefh, 1, .reads = true},
	[OP_SECINFO] = {"SECINFO", op_secinfo, 1, .reads = true},
	[OP_SETATTR] = {"SETATTR", op_setattr, 1, .room = 24, .grace = true},
	[OP_SETCLIENTID] = {"SETCLIENTID", NULL, 1},
	[OP_SETCLIENTID_CONFIRM] = {"SETCLIENTID_CONFIRM", NULL, 1},
	[OP_VERIFY] = {"VERIFY", op_verify, 1, .reads = true},
	[OP_WRITE] = {"WRITE", op_write, 1, .room = 24},
	[OP_RELEASE_LOCKOWNER] = {"RELEASE_LOCKOWNER", NULL, 1},
	[OP_BACKCHANNEL_CTL] = {"BACKCHANNEL_CTL", op_backchannel_ctl, 1},
	[OP_BIND_CONN_TO_SESSION] = {"BIND_CONN_TO_SESSION", op_bind_conn, 1, true},
	[OP_EXCHANGE_ID] = {"EXCHANGE_ID", op_exchange_id, 1, true},
	[OP_CREATE_SESSION] = {"CREATE_SESSION", op_create_session, 1, true},
	[OP_DESTROY_SESSION] = {"DESTROY_SESSION", op_destroy_session, 1, true},
	[OP_FREE_STATEID] = {"FREE_STATEID", op_free_stateid, 1},
	[OP_GET_DIR_DELEGATION] = {"GET_DIR_DELEGATION", NULL, 1},
	[OP_GETDEVICEINFO] = {"GETDEVICEINFO", op_getdeviceinfo, 1},
	[OP_GETDEVICELIST] = {"GETDEVICELIST", NULL, 1},
	[OP_LAYOUTCOMMIT] = {"LAYOUTCOMMIT", op_layoutcommit, 1, .room = 20, .grace = true},
	[OP_LAYOUTGET] = {"LAYOUTGET", op_layoutget, 1, .grace = true},
	[OP_LAYOUTRETURN] = {"LAYOUTRETURN", op_layoutreturn, 1, .room = 28},
	[OP_SECINFO_NO_NAME] = {"SECINFO_NO_NAME", op_secinfo_no_name, 1, .reads = true},
	[OP_SEQUENCE] = {"SEQUENCE", op_sequence, 1, true},
	[OP_SET_SSV] = {"SET_SSV", op_set_ssv, 1},
	[OP_TEST_STATEID] = {"TEST_STATEID", op_test_stateid, 1},
	[OP_WANT_DELEGATION] = {"WANT_DELEGATION", op_want_delegation, 1, .room = 80},
	[OP_DESTROY_CLIENTID] = {"DESTROY_CLIENTID", op_destroy_clientid, 1, true},
	[OP_RECLAIM_COMPLETE] = {"RECLAIM_COMPLETE", op_reclaim_complete, 1},
	[OP_ALLOCATE] = {"ALLOCATE", op_allocate, 2, .room = 8},
	[OP_COPY] = {"COPY", op_copy, 2, .room = 64},
	[OP_COPY_NOTIFY] = {"COPY_NOTIFY", NULL, 2},
	[OP_DEALLOCATE] = {"DEALLOCATE", op_deallocate, 2, .room = 8},
	[OP_IO_ADVISE] = {"IO_ADVISE", op_io_advise, 2},
	/* Linux sends these two on 4.1 mounts as well. */
	[OP_LAYOUTERROR] = {"LAYOUTERROR", op_layouterror, 1},
	[OP_LAYOUTSTATS] = {"LAYOUTSTATS", op_layoutstats, 1},
	[OP_OFFLOAD_CANCEL] = {"OFFLOAD_CANCEL", op_offload_cancel, 2},
	[OP_OFFLOAD_STATUS] = {"OFFLOAD_STATUS", op_offload_status, 2},
	[OP_READ_PLUS] = {"READ_PLUS", op_read_plus, 2},
	[OP_SEEK] = {"SEEK", op_seek, 2},
	[OP_WRITE_SAME] = {"WRITE_SAME", NULL, 2},
	[OP_CLONE] = {"CLONE", op_clone, 2, .room = 8},
	[OP_GETXATTR] = {"GETXATTR", op_getxattr, 2, .reads = true},
	[OP_SETXATTR] = {"SETXATTR", op_setxattr, 2, .room = 28},
	[OP_LISTXATTRS] = {"LISTXATTRS", op_listxattrs, 2, .reads = true},
	[OP_REMOVEXATTR] = {"REMOVEXATTR", op_removexattr, 2, .room = 28},
	[OP_LAYOUT_WCC] = {"LAYOUT_WCC", op_layout_wcc, 2},
};

const char *op_name(unsigned n)
{
	return n < NFS4_OP_MAX ? ops[n].name : NULL;
}

/* Operations that have a histogram of their own. */
static bool op_is_timed(unsigned n)
{
	static const uint8_t timed[] = {
		OP_ACCESS, OP_CLOSE,  OP_COMMIT,   OP_CREATE,	 OP_GETATTR,	  OP_LINK,
		OP_LOCK,   OP_LOCKU,  OP_LOOKUP,   OP_OPEN,	 OP_READ,	  OP_READDIR,
		OP_REMOVE, OP_RENAME, OP_SETATTR,  OP_WRITE,	 OP_DELEGRETURN,  OP_GETDEVICEINFO,
		OP_COPY,   OP_CLONE,  OP_SEQUENCE, OP_LAYOUTGET, OP_LAYOUTCOMMIT, OP_LAYOUTRETURN};

	return memchr(timed, (int)n, sizeof(timed)) != NULL;
}

void op_metrics_init(struct mds *m)
{
	char label[64];

	for (unsigned n = 0; n < NFS4_OP_MAX; n++) {
		if (!op_name(n))
			continue;
		snprintf(label, sizeof(label), "op=\"%s\"", op_name(n));
		m->m_op_count[n] = metric_counter("weft_mds_op_total", "NFSv4 operations", label);
	}
	m->m_op_illegal = metric_counter("weft_mds_op_total", "NFSv4 operations", "op=\"ILLEGAL\"");
	m->m_garbage =
		metric_counter("weft_mds_garbage_total", "Calls that could not be decoded", "");
	m->m_once = metric_counter(
		"weft_mds_once_total",
		"Requests of before a restart that were answered with what was kept of them", "");
	m->m_creates =
		metric_counter("weft_mds_creates_total", "Objects created in the name space", "");
	m->m_copied = metric_counter("weft_mds_copied_bytes_total", "Bytes copied by COPY", "");
	for (unsigned n = 0; n < NFS4_OP_MAX; n++) {
		snprintf(label, sizeof(label), "op=\"%s\"", op_is_timed(n) ? op_name(n) : "OTHER");
		m->m_op_time[n] = metric_histogram_coarse(
			"weft_mds_compound_seconds",
			"Time from a COMPOUND's receipt to its reply, by what it is for", label);
	}
}

void op_file_env(struct mds *m)
{
	struct file_env *fe = &m->m_file;

	fe->fe_st = m->m_st;
	fe->fe_ns = m->m_ns;
	fe->fe_kv = m->m_kv;
	fe->fe_lo = m->m_lo;
	fe->fe_dsc = m->m_dsc;
	fe->fe_lost = &m->m_lost;
	fe->fe_recall_ms = m->m_recall_ms;
	fe->fe_confirm_ms = op_confirm_ms(m);
	for (unsigned i = 0; i < m->m_nthreads; i++) {
		m->m_thread[i].mt_returned.fr_env = fe;
		m->m_thread[i].mt_returned.fr_loop = m->m_thread[i].mt_loop;
	}
}

nfsstat4 op_status(int err)
{
	switch (-err) {
	case 0:
		return NFS4_OK;
	case EPERM:
		return NFS4ERR_PERM;
	case ENOENT:
		return NFS4ERR_NOENT;
	case EACCES:
		return NFS4ERR_ACCESS;
	case EEXIST:
		return NFS4ERR_EXIST;
	case EXDEV:
		return NFS4ERR_XDEV;
	case ENOTDIR:
		return NFS4ERR_NOTDIR;
	case EISDIR:
		return NFS4ERR_ISDIR;
	case EINVAL:
		return NFS4ERR_INVAL;
	case EFBIG:
		return NFS4ERR_FBIG;
	case ENOSPC:
		return NFS4ERR_NOSPC;
	case EDQUOT:
		return NFS4ERR_DQUOT;
	case EROFS:
		return NFS4ERR_ROFS;
	case EMLINK:
		return NFS4ERR_MLINK;
	case ENAMETOOLONG:
		return NFS4ERR_NAMETOOLONG;
	case ENOTEMPTY:
		return NFS4ERR_NOTEMPTY;
	case ESTALE:
		return NFS4ERR_STALE;
	case ENODATA:
		return NFS4ERR_NOXATTR;
	case E2BIG:
		return NFS4ERR_XATTR2BIG;
	case EAGAIN:
	case EBUSY:
	case ENOMEM:
		return NFS4ERR_DELAY;
	case EOPNOTSUPP:
		return NFS4ERR_NOTSUPP;
	case EPROTONOSUPPORT:
		return NFS4ERR_ATTRNOTSUPP;
	case ETIMEDOUT:
	case ECONNRESET:
	case ECONNREFUSED:
	case EIO:
		return NFS4ERR_IO;
	default:
		return NFS4ERR_SERVERFAULT;
	}
}

/* ---- snapshots ---- */

static void thread_turn_end(struct loop_hook *h)
{
	op_txn_stale((struct mds_thread *)((char *)h - offsetof(struct mds_thread, mt_hook)));
}

void op_txn_stale(struct mds_thread *th)
{
	if (th->mt_fresh) {
		kv_read_reset(th->mt_txn);
		th->mt_fresh = false;
	}
}

struct kv_txn *op_thread_txn(struct mds_thread *th)
{
	if (!th->mt_txn) {
		int err = kv_read_begin(th->mt_mds->m_kv, &th->mt_txn);

		if (err)
			log_fatal("cannot begin a read transaction: %s", strerror(-err));
		th->mt_hook.h_run = thread_turn_end;
		loop_at_turn_end(th->mt_loop, &th->mt_hook);
		th->mt_fresh = true;
	}
	if (!th->mt_fresh) {
		int err = kv_read_renew(th->mt_txn);

		if (err)
			log_fatal("cannot take a snapshot: %s", strerror(-err));
		th->mt_fresh = true;
	}
	return th->mt_txn;
}

void op_thread_end(struct mds_thread *th)
{
	op_thread_forget(th);
	if (th->mt_txn)
		kv_read_end(th->mt_txn);
	th->mt_txn = NULL;
	th->mt_fresh = false;
}

/* While a file was watched (st_watched) clients may have got values that are newer than this pass's
 * snapshot. Once it is watched no more, answers come from the snapshot alone: drops an old one. */
static void snapshot_check(struct mds_thread *th)
{
	uint32_t now = st_unwatches();

	if (th->mt_unwatches != now)
		op_txn_stale(th);
	th->mt_unwatches = now;
}

struct kv_txn *op_txn(struct compound *c)
{
	return op_thread_txn(c->th);
}

/* ---- parking ---- */

void *op_scratch(struct compound *c, size_t size, void (*fini)(void *))
{
	c->scratch = calloc(1, size);
	c->scratch_fini = fini;
	return c->scratch;
}

static void mutate_done(struct kv_op *op, int err)
{
	op_wake(op_of(op), err);
}

static int mutate_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	int err = c->run(op, t);

	return err || !c->put || c->once_none ? err : op_replay_put(c, t);
}

static nfsstat4 mutate(struct compound *c, int (*run)(struct kv_op *, struct kv_txn *),
		       op_put_fn put, op_step *then)
{
	c->run = run;
	c->put = put;
	c->once_orders = 0;
	c->once_none = false;
	c->kop.o_run = mutate_run;
	c->kop.o_done = mutate_done;
	c->kop.o_loop = c->th->mt_loop;
	c->names_tries = NAMES_TRIES; /* from now on the operation must not run again */
	kv_submit(c->m->m_kv, &c->kop);
	return op_await(c, then);
}

nfsstat4 op_mutate(struct compound *c, int (*run)(struct kv_op *, struct kv_txn *), op_put_fn put,
		   op_step *then)
{
	if (!atomic_load_explicit(&c->session->se_rows, memory_order_relaxed))
		atomic_store_explicit(&c->session->se_rows, true, memory_order_relaxed);
	/* not on the committer thread, of which there is one */
	op_replay_check(c, c->replay_check);
	return mutate(c, run, put, then);
}

nfsstat4 op_mutate_again(struct compound *c, int (*run)(struct kv_op *, struct kv_txn *),
			 op_step *then)
{
	return mutate(c, run, NULL, then);
}

void op_put_nothing(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	(void)c;
	(void)x;
	(void)after;
}

nfsstat4 op_result(struct compound *c, op_put_fn put)
{
	struct op_after after = {.cur = c->cur, .have_sid = c->have_sid, .sid = c->cur_sid};

	put(c, c->out, &after);
	c->cur = after.cur;
	c->have_sid = after.have_sid;
	c->cur_sid = after.sid;
	return NFS4_OK;
}

/* ---- small helpers ---- */

void op_put_stateid(struct xdr_out *x, const struct st_stateid *s)
{
	xdr_put_u32(x, s->seqid);
	xdr_put_fixed(x, s->other, NFS4_OTHER_SIZE);
}

void op_get_stateid(struct xdr_in *x, struct st_stateid *s)
{
	const uint8_t *p;

	s->seqid = xdr_get_u32(x);
	p = xdr_get_fixed(x, NFS4_OTHER_SIZE);
	if (p)
		memcpy(s->other, p, NFS4_OTHER_SIZE);
	else
		memset(s->other, 0, NFS4_OTHER_SIZE);
}

/* RFC 8881 section 8.2.3: seqid 1 with an all-zero other is the current stateid. */
nfsstat4 op_resolve_sid(struct compound *c, struct st_stateid *s)
{
	static const uint8_t zero[NFS4_OTHER_SIZE];

	if (s->seqid != 1 || memcmp(s->other, zero, sizeof(zero)) != 0)
		return NFS4_OK;
	if (!c->have_sid)
		return NFS4ERR_BAD_STATEID;
	*s = c->cur_sid;
	/* CLOSE and OPEN_DOWNGRADE get the seqid too: they must notice an OPEN of the same owner in
	 * between (section 8.2.3). */
	if (c->opnum != OP_CLOSE && c->opnum != OP_OPEN_DOWNGRADE)
		s->seqid = 0;
	return NFS4_OK;
}

void op_set_current_sid(struct compound *c, const struct st_stateid *s)
{
	c->cur_sid = *s;
	c->have_sid = true;
}

nfsstat4 op_get_name(struct xdr_in *x, const char **name, size_t *len)
{
	uint32_t n;

	*name = (const char *)xdr_get_opaque(x, UINT32_MAX - 3, &n);
	*len = n;
	if (x->bad)
		return NFS4ERR_BADXDR;
	if (n == 0)
		return NFS4ERR_INVAL;
	if (n > NS_NAME_MAX)
		return NFS4ERR_NAMETOOLONG;
	if (memchr(*name, 0, n) || memchr(*name, '/', n))
		return NFS4ERR_BADCHAR;
	if ((n == 1 && **name == '.') || (n == 2 && memcmp(*name, "..", 2) == 0))
		return NFS4ERR_BADNAME;
	return NFS4_OK;
}

nfsstat4 op_cur_inode(struct compound *c, struct ns_inode *i)
{
	int err;

	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	err = ns_get_live(c->m->m_ns, op_txn(c), c->cur, i);
	if (err)
		return op_status(err);
	if (exp_is_pseudo(c->exp))
		op_pseudo_inode(c, i);
	return NFS4_OK;
}

void op_put_cinfo(struct xdr_out *x, const struct ns_cinfo *ci)
{
	xdr_put_bool(x, true); /* both values come from one transaction */
	xdr_put_u64(x, ci->c_before);
	xdr_put_u64(x, ci->c_after);
}

/* ---- the frame ---- */

static void compound_free(struct compound *c)
{
	op_cred_done(c);
	free(c);
}

void op_trace_end(const struct compound *c, uint32_t client)
{
	uint64_t ops[2];

	memcpy(ops, c->traced, sizeof(ops));
	log_request = c->request;
	TRACE_TURN(request_end, c->cur, trace_end(client, c->at, c->status), be64toh(ops[0]),
		   be64toh(ops[1]));
}

/* What a compound is for shows at the place where clients put it: behind SEQUENCE and PUTFH, or
 * behind SAVEFH and another PUTFH. */
static struct metric *compound_time(const struct compound *c)
{
	unsigned op = c->traced[c->nops > 2 ? 2 : c->nops == 2];

	if (op == OP_SAVEFH)
		op = c->traced[4];
	return c->m->m_op_time[op < NFS4_OP_MAX ? op : 0];
}

static void compound_finish(struct compound *c)
{
	struct rpc_call *call = c->call;
	uint64_t us = (loop_now_ns(c->th->mt_loop) - c->started_ns) / 1000;

	op_trace_end(c, c->slot ? c->client->cl_number : 0);
	xdr_patch_u32(c->out, call->c_body, c->status);
	xdr_patch_u32(c->out, c->numres_at, c->at);
	metric_observe_us(compound_time(c), us);
	op_heat_compound(c, us);
	if (c->marked)
		op_intent_unused(c);
	if (c->slot)
		op_slot_done(c); /* afterwards session and client may be freed */
	compound_free(c);
	crash_point("reply");
	rpc_reply(call);
	crash_point("replied");
}

nfsstat4 op_too_big(const struct compound *c)
{
	return c->cached_only ? NFS4ERR_REP_TOO_BIG_TO_CACHE : NFS4ERR_REP_TOO_BIG;
}

static void scratch_free(struct compound *c)
{
	if (c->scratch) {
		if (c->scratch_fini)
			c->scratch_fini(c->scratch);
		free(c->scratch);
		c->scratch = NULL;
	}
	free(c->sub);
	c->sub = NULL;
	free(c->acl);
	c->acl = NULL;
}

/* The operation in hand ended with st: closes its result. False: the compound is over. */
static bool op_end(struct compound *c, nfsstat4 st)
{
	assert(!c->woken); /* whatever it has begun, it has waited for */
	scratch_free(c);
	if (c->in->bad && st == NFS4_OK)
		st = NFS4ERR_BADXDR;
	/* The next operation must have room at least for an error. */
	if (c->out->bad ||
	    (st == NFS4_OK && c->at + 1 < c->nops && op_reply_room(c->out) < OP_ERROR_ROOM))
		st = op_too_big(c);
	if (st != NFS4_OK && (!c->keep_body || c->out->bad)) {
		xdr_truncate(c->out, c->status_at + 4);
		/* SETATTR's result has attrsset with every status (section 18.30.2). */
		if (c->opnum == OP_SETATTR)
			xdr_put_u32(c->out, 0);
	}
	c->keep_body = false;
	if (c->opnum == OP_OPEN && st == NFS4_OK)
		op_heat_opened(c);
	xdr_patch_u32(c->out, c->status_at, st);
	c->status = st;
	c->at++;
	return st == NFS4_OK;
}

/* Checks where an operation may stand: alone or first (RFC 8881 sections 2.10.2 and 18.46.3). */
static nfsstat4 op_position(struct compound *c, const struct op_desc *d)
{
	if (c->opnum == OP_SEQUENCE)
		return c->at == 0 ? NFS4_OK : NFS4ERR_SEQUENCE_POS;
	if (d && d->sessionless && !c->again) {
		if (!c->session)
			return c->at == 0 && c->nops == 1 ? NFS4_OK
			       : c->at			  ? NFS4ERR_OP_NOT_IN_SESSION
							  : NFS4ERR_NOT_ONLY_OP;
		/* EXCHANGE_ID, CREATE_SESSION and DESTROY_CLIENTID may follow SEQUENCE, BIND_CONN
		 * may not. */
		return c->opnum == OP_BIND_CONN_TO_SESSION ? NFS4ERR_NOT_ONLY_OP : NFS4_OK;
	}
	return c->session || c->again ? NFS4_OK : NFS4ERR_OP_NOT_IN_SESSION;
}

/* Does the operation change the file system of the current file handle? Then a read-only export
 * refuses it. OPEN checks by itself. */
static bool op_changes(uint32_t opnum)
{
	switch (opnum) {
	case OP_CREATE:
	case OP_LINK:
	case OP_REMOVE:
	case OP_RENAME:
	case OP_SETATTR:
	case OP_WRITE:
	case OP_ALLOCATE:
	case OP_CLONE:
	case OP_COPY:
	case OP_DEALLOCATE:
	case OP_WRITE_SAME:
	case OP_SETXATTR:
	case OP_REMOVEXATTR:
		return true;
	}
	return false;
}

/* Does the operation use both file handles? Then it must not cross exports: each is a file
 * system of its own. */
static bool op_two(uint32_t opnum)
{
	return opnum == OP_LINK || opnum == OP_RENAME || opnum == OP_COPY || opnum == OP_CLONE;
}

static nfsstat4 op_start(struct compound *c)
{
	const struct op_desc *d;
	nfsstat4 st;

	c->told_ino = 0; /* valid only for the operation that asked the holder */
	c->threshold_dir = 0;
	c->opnum = xdr_get_u32(c->in);
	d = c->opnum < NFS4_OP_MAX && ops[c->opnum].name && ops[c->opnum].minor <= c->minor
		    ? &ops[c->opnum]
		    : NULL;
	/* RFC 8881 section 16.2.3: an undefined number is answered under OP_ILLEGAL */
	xdr_put_u32(c->out, d ? c->opnum : OP_ILLEGAL);
	c->status_at = c->out->x_len;
	xdr_put_u32(c->out, 0);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	c->th->mt_opnum = c->opnum;
	if (c->at < sizeof(c->traced))
		c->traced[c->at] = d ? (uint8_t)c->opnum : UINT8_MAX;
	c->args_at = c->in->p;
	c->names_tries = 0;
	c->grace_asked = false;
	metric_add(d ? c->m->m_op_count[c->opnum] : c->m->m_op_illegal, 1);
	st = c->fail_next ? c->fail_next : d ? op_position(c, d) : NFS4ERR_OP_ILLEGAL;
	if (st)
		return st;
	if (!d->fn)
		return NFS4ERR_NOTSUPP;
	/* The exports may not admit this client. It gets no client record before that is known. */
	if (c->opnum == OP_EXCHANGE_ID && c->view && !c->view->v_usable)
		return NFS4ERR_DELAY;
	st = op_gone(c);
	if (st)
		return st;
	if (c->again && !d->reads)
		return NFS4ERR_DELAY;
	if (op_two(c->opnum) && c->cur && c->saved && c->exp != c->saved_exp)
		return NFS4ERR_XDEV;
	if (op_changes(c->opnum) && c->cur && c->exp->g_ro)
		return NFS4ERR_ROFS;
	/* An operation that changes something does not begin without room for its result. */
	if (d->room && op_reply_room(c->out) < d->room + OP_ERROR_ROOM)
		return op_too_big(c);
	op_heat_op(c);
	return d->fn(c);
}

static void names_again(struct compound *c);
static bool grace_park(struct compound *c, nfsstat4 st);

/* True: the operation waits for names, and runs again when they are there. It has changed
 * nothing. */
static bool names_park(struct compound *c)
{
	if (!c->names_wait)
		return false;
	c->names_wait = false;
	return c->names_tries++ < NAMES_TRIES && op_idmap_then(c, names_again);
}

static void compound_run(struct compound *c)
{
	const struct mds_thread *th = c->th;

	log_request = c->request;
	while (c->at < c->nops) {
		nfsstat4 st = op_start(c);

		/* A compound that has parked or is answered is not looked at any more. */
		if (st == OP_ANSWERED)
			return;
		if (st == OP_PARKED || names_park(c) || grace_park(c, st)) {
			TRACE_TURN(request_wait, 0, th->mt_opnum, 0, 0);
			return;
		}
		if (!op_end(c, st))
			break;
	}
	compound_finish(c);
}

/* The operation, which has changed nothing, from its arguments. */
static nfsstat4 op_rerun(struct compound *c)
{
	scratch_free(c);
	xdr_truncate(c->out, c->status_at + 4);
	c->in->p = c->args_at;
	c->in->bad = c->keep_body = false;
	return ops[c->opnum].fn(c);
}

static void names_again(struct compound *c)
{
	nfsstat4 st;

	log_request = c->request;
	st = op_rerun(c);
	if (st != OP_PARKED && !names_park(c))
		op_resume(c, st);
}

static nfsstat4 grace_over(struct compound *c, int err)
{
	return err ? NFS4ERR_GRACE : op_rerun(c);
}

/* True: the operation waits for the end of grace, and then runs again. */
static bool grace_park(struct compound *c, nfsstat4 st)
{
	if (st != NFS4ERR_GRACE || c->grace_asked || c->names_tries >= NAMES_TRIES ||
	    !ops[c->opnum].grace || !op_grace_waits(c))
		return false;
	c->grace_asked = true;
	op_await_client(c, grace_over);
	return true;
}

void op_resume(struct compound *c, nfsstat4 st)
{
	log_request = c->request;
	TRACE_TURN(request_resume, c->cur, c->opnum, st, 0);
	if (names_park(c) || grace_park(c, st))
		return;
	if (op_end(c, st))
		compound_run(c);
	else
		compound_finish(c);
}

static struct mds_thread *thread_of(struct mds *m, struct loop *l)
{
	for (unsigned i = 0; i < m->m_nthreads; i++) {
		if (m->m_thread[i].mt_loop == l)
			return &m->m_thread[i];
	}
	return NULL;
}

/* A client that may use no export is refused at once, without a client record: its mount fails with
 * "access denied". */
static void compound_begin(struct compound *c)
{
	struct rpc_call *call = c->call;

	if (!c->view || c->view->v_usable | c->view->v_unknown) {
		compound_run(c);
		return;
	}
	op_limited(c->m, OP_LIMIT_STRANGERS);
	c->status = NFS4ERR_ACCESS;
	op_trace_end(c, 0);
	compound_free(c);
	rpc_reply_auth_error(call, RPC_AUTH_TOOWEAK);
}

/* ISO 10646 in UTF-8: the shortest form, no surrogates, and not the noncharacters U+FFFE and
 * U+FFFF. */
static bool is_utf8(const uint8_t *p, uint32_t len)
{
	for (uint32_t i = 0; i < len;) {
		uint32_t c = p[i++], more = c < 0x80		    ? 0
					    : c >= 0xc2 && c < 0xe0 ? 1
					    : c >= 0xe0 && c < 0xf0 ? 2
					    : c >= 0xf0 && c < 0xf5 ? 3
								    : UINT32_MAX;

		if (more > len - i)
			return false;
		c &= more ? 0x3fu >> more : 0x7f;
		for (uint32_t k = 0; k < more; k++, i++) {
			if ((p[i] & 0xc0) != 0x80)
				return false;
			c = c << 6 | (p[i] & 0x3f);
		}
		if ((more == 2 && c < 0x800) || (more == 3 && (c < 0x10000 || c > 0x10ffff)) ||
		    (c >= 0xd800 && c < 0xe000) || c == 0xfffe || c == 0xffff)
			return false;
	}
	return true;
}

static void compound_trace_begin(struct compound *c)
{
	uint64_t from[2];
	uint16_t port = trace_address(rpc_conn_peer(c->call->c_conn), from);

	c->request = log_request = trace_request();
	TRACE_TURN(request_start, 0, from[0], from[1], trace_call(c->call->c_xid, c->nops, port));
}

void op_dispatch(struct rpc_call *call, void *arg)
{
	struct mds *m = arg;
	struct compound *c;
	const uint8_t *tag;
	uint32_t taglen;

	if (call->c_proc == 0) {
		rpc_reply(call);
		return;
	}
	if (!atomic_load_explicit(&m->m_serving, memory_order_acquire) && op_serve_waits(m, call))
		return;
	c = calloc(1, sizeof(*c));
	if (!c) {
		rpc_reply_error(call, RPC_A_SYSTEM_ERR);
		return;
	}
	c->m = m;
	c->th = thread_of(m, call->c_loop);
	c->call = call;
	c->in = &call->c_args;
	c->out = &call->c_reply;
	c->started_ns = loop_now_ns(call->c_loop);
	c->cred.cr_uid = c->cred.cr_gid = EXP_NOBODY; /* until the request enters an export */
	tag = xdr_get_opaque(c->in, NFS4_OPAQUE_LIMIT, &taglen);
	c->minor = xdr_get_u32(c->in);
	c->nops = xdr_get_u32(c->in);
	if (c->in->bad || !c->th) {
		metric_add(m->m_garbage, 1);
		free(c);
		rpc_reply_error(call, RPC_A_GARBAGE_ARGS);
		return;
	}
	compound_trace_begin(c);
	snapshot_check(c->th);
	xdr_put_u32(c->out, 0); /* status, patched at the end: call->c_body */
	xdr_put_opaque(c->out, tag, taglen);
	c->numres_at = c->out->x_len;
	xdr_put_u32(c->out, 0);
	if (c->minor < 1 || c->minor > 2 || !is_utf8(tag, taglen)) { /* section 16.2.4 */
		c->status =
			c->minor < 1 || c->minor > 2 ? NFS4ERR_MINOR_VERS_MISMATCH : NFS4ERR_INVAL;
		compound_finish(c);
		log_request = 0;
		return;
	}
	if (op_cred(c, compound_begin))
		compound_begin(c);
	else
		TRACE_TURN(request_wait, 0, 0, 0, 0);
	log_request = 0; /* more of its connection's requests may follow in this turn */
}
