/* SPDX-License-Identifier: Apache-2.0 */
/* admin_trace.c - GET /v1/trace: events of the metadata server in words. */
#include "common/trace.h"
#include "mds/admin/admin_int.h"
#include "mds/file/exclusive.h"
#include "mds/nfs4/op.h"
#include "proto/ctl_more.h"

#define S(name)                                                                                    \
	{                                                                                          \
		NFS4ERR_##name, "NFS4ERR_" #name                                                   \
	}
static const struct {
	nfsstat4 number;
	const char *name;
} statuses[] = {
	{NFS4_OK, "NFS4_OK"},
	S(PERM),
	S(NOENT),
	S(IO),
	S(NXIO),
	S(ACCESS),
	S(EXIST),
	S(XDEV),
	S(NOTDIR),
	S(ISDIR),
	S(INVAL),
	S(FBIG),
	S(NOSPC),
	S(ROFS),
	S(MLINK),
	S(NAMETOOLONG),
	S(NOTEMPTY),
	S(DQUOT),
	S(STALE),
	S(BADHANDLE),
	S(BAD_COOKIE),
	S(NOTSUPP),
	S(TOOSMALL),
	S(SERVERFAULT),
	S(BADTYPE),
	S(DELAY),
	S(SAME),
	S(DENIED),
	S(EXPIRED),
	S(LOCKED),
	S(GRACE),
	S(FHEXPIRED),
	S(SHARE_DENIED),
	S(WRONGSEC),
	S(CLID_INUSE),
	S(MOVED),
	S(NOFILEHANDLE),
	S(MINOR_VERS_MISMATCH),
	S(STALE_CLIENTID),
	S(STALE_STATEID),
	S(OLD_STATEID),
	S(BAD_STATEID),
	S(BAD_SEQID),
	S(NOT_SAME),
	S(SYMLINK),
	S(RESTOREFH),
	S(ATTRNOTSUPP),
	S(NO_GRACE),
	S(RECLAIM_BAD),
	S(RECLAIM_CONFLICT),
	S(BADXDR),
	S(LOCKS_HELD),
	S(OPENMODE),
	S(BADOWNER),
	S(BADCHAR),
	S(BADNAME),
	S(OP_ILLEGAL),
	S(FILE_OPEN),
	S(ADMIN_REVOKED),
	S(CB_PATH_DOWN),
	S(BADIOMODE),
	S(BADLAYOUT),
	S(BAD_SESSION_DIGEST),
	S(BADSESSION),
	S(BADSLOT),
	S(COMPLETE_ALREADY),
	S(CONN_NOT_BOUND_TO_SESSION),
	S(BACK_CHAN_BUSY),
	S(LAYOUTTRYLATER),
	S(LAYOUTUNAVAILABLE),
	S(NOMATCHING_LAYOUT),
	S(RECALLCONFLICT),
	S(UNKNOWN_LAYOUTTYPE),
	S(SEQ_MISORDERED),
	S(SEQUENCE_POS),
	S(REQ_TOO_BIG),
	S(REP_TOO_BIG),
	S(REP_TOO_BIG_TO_CACHE),
	S(RETRY_UNCACHED_REP),
	S(TOO_MANY_OPS),
	S(OP_NOT_IN_SESSION),
	S(HASH_ALG_UNSUPP),
	S(CLIENTID_BUSY),
	S(SEQ_FALSE_RETRY),
	S(DEADSESSION),
	S(ENCR_ALG_UNSUPP),
	S(NOT_ONLY_OP),
	S(WRONG_CRED),
	S(WRONG_TYPE),
	S(DELEG_REVOKED),
	S(PARTNER_NOTSUPP),
	S(UNION_NOTSUPP),
	S(OFFLOAD_DENIED),
	S(OFFLOAD_NO_REQS),
	S(NOXATTR),
	S(XATTR2BIG),
};
#undef S

static const char *admin_trace_status(uint64_t st)
{
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].number == st)
			return statuses[i].name;
	return "an unknown status";
}

static const char *operation_name(uint64_t opnum)
{
	const char *name = opnum < NFS4_OP_MAX ? op_name((unsigned)opnum) : NULL;

	return name ? name : "ILLEGAL";
}

static void request_end_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	uint32_t client = (uint32_t)(e->te_v[0] >> 32), n = e->te_v[0] >> 16 & 0xffff;
	int at = snprintf(out, TRACE_TEXT, "reply %s:", admin_trace_status(e->te_v[0] & 0xffff));

	for (unsigned i = 0; i < n && i < 16; i++)
		at += snprintf(out + at, TRACE_TEXT - (size_t)at, " %s",
			       operation_name(e->te_v[1 + i / 8] >> (56 - i % 8 * 8) & 0xff));
	if (n > 16)
		at += snprintf(out + at, TRACE_TEXT - (size_t)at, " and %u more", n - 16);
	if (client)
		snprintf(out + at, TRACE_TEXT - (size_t)at, "; client %u", client);
}

static void batch_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	unsigned long long batch = e->te_v[0];
	uint32_t n = (uint32_t)(e->te_v[1] >> 32), err = (uint32_t)e->te_v[1],
		 run = (uint32_t)(e->te_v[2] >> 32), commit = (uint32_t)e->te_v[2];

	if (err)
		snprintf(out, TRACE_TEXT, "batch %llu of %u mutations failed: %s", batch, n,
			 strerror((int)err));
	else if (commit)
		snprintf(out, TRACE_TEXT,
			 "batch %llu of %u mutations is durable: ran %u us, commit %u us", batch, n,
			 run, commit);
	else
		snprintf(out, TRACE_TEXT, "batch %llu of %u mutations wrote nothing: ran %u us",
			 batch, n, run);
}

static void phase_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	static const char *const hows[EXCL_HOWS] = {
		"recall",	"recall and fence", "resolve",	       "withdraw rights",
		"set the size", "exclude writes",   "exclude layouts", "exclude all"};
	static const char *const phases[] = {
		"the file is released",	  "fences what an earlier boot or a lost writer left",
		"recalls layouts",	  "fences",
		"waits for data servers", "makes copies of silent data servers stale",
		"the file is exclusive",
	};
	uint64_t phase = e->te_v[0], how = e->te_v[1], left = e->te_v[2];
	int at = snprintf(out, TRACE_TEXT, "%s: %s", how < EXCL_HOWS ? hows[how] : "?",
			  phase < sizeof(phases) / sizeof(phases[0]) ? phases[phase] : "?");

	if (left)
		snprintf(out + at, TRACE_TEXT - (size_t)at,
			 left == 1 ? "; 1 layout did not come back"
				   : "; %llu layouts did not come back",
			 (unsigned long long)left);
}

static void order_text(const struct trace_event *e, char out[TRACE_TEXT], const char *what,
		       uint64_t type)
{
	snprintf(out, TRACE_TEXT, "order %llu for data server %llu, %s: %s",
		 (unsigned long long)e->te_v[1], (unsigned long long)e->te_v[0],
		 ctl_order_name((uint32_t)type), what);
}

static void recall_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	static const char *const modes[] = {"a", "the reading", "the writing", "the whole"};

	snprintf(out, TRACE_TEXT, "recall from client %llu: %s layout",
		 (unsigned long long)e->te_v[0], modes[e->te_v[1] & 3]);
}

static void order_done_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	uint32_t st = (uint32_t)e->te_v[2];
	char what[64];

	snprintf(what, sizeof(what), "failed with status %u", st);
	order_text(e, out,
		   st == CTL_OK	     ? "done"
		   : st == CTL_NOENT ? "done, no object"
				     : what,
		   e->te_v[2] >> 32);
}

static void event_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	unsigned long long a = e->te_v[0], b = e->te_v[1];

	switch (e->te_kind) {
	case TRACE_request_start:
		snprintf(out, TRACE_TEXT, "COMPOUND of %llu operations, xid 0x%08llx",
			 (unsigned long long)e->te_v[2] >> 16 & 0xffff,
			 (unsigned long long)e->te_v[2] >> 32);
		break;
	case TRACE_request_wait:
		snprintf(out, TRACE_TEXT, "%s waits",
			 a ? operation_name(a) : "look-up of the caller");
		break;
	case TRACE_request_resume:
		snprintf(out, TRACE_TEXT, "%s goes on: %s", operation_name(a),
			 admin_trace_status(b));
		break;
	case TRACE_request_end:
		request_end_text(e, out);
		break;
	case TRACE_mutation_done:
		if (b)
			snprintf(out, TRACE_TEXT, "mutation refused in batch %llu: %s", a,
				 strerror((int)b));
		else
			snprintf(out, TRACE_TEXT, "mutation done in batch %llu", a);
		break;
	case TRACE_commit_batch:
		batch_text(e, out);
		break;
	case TRACE_file_phase:
		phase_text(e, out);
		break;
	case TRACE_recall:
		recall_text(e, out);
		break;
	case TRACE_fence:
		snprintf(out, TRACE_TEXT, "fence: epoch %llu", a);
		break;
	case TRACE_order_put:
		order_text(e, out, "put", e->te_v[2]);
		break;
	case TRACE_order_send:
		order_text(e, out, "sent", e->te_v[2]);
		break;
	case TRACE_order_done:
		order_done_text(e, out);
		break;
	}
}

void admin_get_trace(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	(void)arg;
	trace_get(rq, rp, event_text);
}
