/* SPDX-License-Identifier: Apache-2.0 */
/* trace_text.c - GET /v1/trace: events of the data server in words. */
#include "common/trace.h"
#include "ds/nfs3_service.h"
#include "proto/ctl_more.h"
#include <stdio.h>

#define S(name)                                                                                    \
	{                                                                                          \
		NFS3ERR_##name, "NFS3ERR_" #name                                                   \
	}
static const struct {
	enum nfsstat3 number;
	const char *name;
} statuses[] = {
	{NFS3_OK, "NFS3_OK"},
	S(PERM),
	S(NOENT),
	S(IO),
	S(NXIO),
	S(ACCES),
	S(EXIST),
	S(XDEV),
	S(NODEV),
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
	S(REMOTE),
	S(BADHANDLE),
	S(NOT_SYNC),
	S(BAD_COOKIE),
	S(NOTSUPP),
	S(TOOSMALL),
	S(SERVERFAULT),
	S(BADTYPE),
	S(JUKEBOX),
};
#undef S

static const char *trace_text_status(uint32_t st)
{
	if (st == DS_TRACE_GARBAGE)
		return "GARBAGE_ARGS";
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].number == st)
			return statuses[i].name;
	return "an unknown status";
}

static void end_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	uint32_t client = (uint32_t)(e->te_v[0] >> 32);
	unsigned proc = e->te_v[0] >> 16 & 0xffff;
	int at = snprintf(out, TRACE_TEXT, "reply %s: %s", trace_text_status(e->te_v[0] & 0xffff),
			  ds_nfs3_proc_name(proc));

	if (proc == NFS3_READ || proc == NFS3_WRITE)
		at += snprintf(out + at, TRACE_TEXT - (size_t)at, " of %llu bytes at %llu",
			       (unsigned long long)e->te_v[2], (unsigned long long)e->te_v[1]);
	if (client)
		snprintf(out + at, TRACE_TEXT - (size_t)at, "; client %u", client);
}

static void io_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	const char *what = e->te_v[2] ? "write" : "read";
	int64_t res = (int64_t)e->te_v[1];

	if (e->te_kind == TRACE_io_start)
		snprintf(out, TRACE_TEXT, "disk: %s %lld bytes at %llu", what, (long long)res,
			 (unsigned long long)e->te_v[0]);
	else if (res < 0)
		snprintf(out, TRACE_TEXT, "disk: %s failed: %s", what, strerror((int)-res));
	else
		snprintf(out, TRACE_TEXT, "disk: %s done, %lld bytes", what, (long long)res);
}

void ds_trace_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	switch (e->te_kind) {
	case TRACE_request_start:
		snprintf(out, TRACE_TEXT, "%s, xid 0x%08llx",
			 ds_nfs3_proc_name(e->te_v[2] >> 16 & 0xffff),
			 (unsigned long long)e->te_v[2] >> 32);
		break;
	case TRACE_request_end:
		end_text(e, out);
		break;
	case TRACE_io_start:
	case TRACE_io_done:
		io_text(e, out);
		break;
	case TRACE_sync_start:
		snprintf(out, TRACE_TEXT, "disk: sync%s", e->te_v[0] ? ", times as well" : "");
		break;
	case TRACE_sync_done:
		snprintf(out, TRACE_TEXT, "disk: sync %s",
			 e->te_v[0] ? strerror((int)e->te_v[0]) : "done");
		break;
	case TRACE_order_run:
		snprintf(out, TRACE_TEXT, "order %llu, %s: status %llu",
			 (unsigned long long)e->te_v[0], ctl_order_name((uint32_t)e->te_v[1]),
			 (unsigned long long)e->te_v[2]);
		break;
	}
}
