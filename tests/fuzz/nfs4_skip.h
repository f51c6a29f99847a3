/* SPDX-License-Identifier: Apache-2.0 */
/* nfs4_skip.h - steps over the results of NFSv4.1 and 4.2 operations by the grammar (RFC 5662, RFC
 * 7863, RFC 8276). */
#ifndef NFS4_SKIP_H
#define NFS4_SKIP_H
#include "kv/kv.h"
#include "mds/namespace/ns.h"
#include "mds/nfs4/op.h"
#include "proto/nfs4.h"
#include "proto/xdr.h"

static void skip(struct xdr_in *x, size_t n)
{
	xdr_take(x, n);
}

static void skip_opaque(struct xdr_in *x, uint32_t max)
{
	uint32_t len;

	xdr_get_opaque(x, max, &len);
}

static void skip_bitmap(struct xdr_in *x)
{
	uint32_t n = xdr_get_u32(x);

	if (n > NFS4_ATTRS_WORDS)
		x->bad = true;
	else
		skip(x, n * 4);
}

static void skip_fattr(struct xdr_in *x)
{
	skip_bitmap(x);
	skip_opaque(x, UINT32_MAX - 3);
}

static void skip_chan(struct xdr_in *x)
{
	skip(x, 24);
	if (xdr_get_u32(x) != 0)
		x->bad = true;
}

static void skip_deleg(struct xdr_in *x)
{
	uint32_t type = xdr_get_u32(x);
	bool write = type == OPEN_DELEGATE_WRITE || type == OPEN_DELEGATE_WRITE_ATTRS_DELEG;

	if (write || type == OPEN_DELEGATE_READ || type == OPEN_DELEGATE_READ_ATTRS_DELEG) {
		skip(x, 20 + (write ? 12 : 0) + 12);
		skip_opaque(x, 64);
		return;
	}
	if (type == OPEN_DELEGATE_NONE_EXT) {
		uint32_t why = xdr_get_u32(x);

		if (why == WND4_CONTENTION || why == WND4_RESOURCE)
			xdr_get_bool(x);
	} else if (type != OPEN_DELEGATE_NONE) {
		x->bad = true;
	}
}

static void skip_open(struct xdr_in *x)
{
	skip(x, 16 + 20 + 4);
	skip_bitmap(x);
	skip_deleg(x);
}

static void skip_readdir(struct xdr_in *x)
{
	skip(x, 8);
	while (xdr_get_bool(x)) {
		skip(x, 8);
		skip_opaque(x, NS_NAME_MAX);
		skip_fattr(x);
	}
	xdr_get_bool(x);
}

static void skip_exchange_id(struct xdr_in *x)
{
	skip(x, 16);
	if (xdr_get_u32(x) != SP4_NONE)
		x->bad = true;
	skip(x, 8);
	skip_opaque(x, NFS4_OPAQUE_LIMIT);
	skip_opaque(x, NFS4_OPAQUE_LIMIT);
	if (xdr_get_u32(x) != 0)
		x->bad = true;
}

static void skip_layoutget(struct xdr_in *x)
{
	xdr_get_bool(x);
	skip(x, 16);
	if (xdr_get_u32(x) != 1)
		x->bad = true;
	skip(x, 20);
	if (xdr_get_u32(x) != LAYOUT4_FLEX_FILES)
		x->bad = true;
	skip_opaque(x, 4096);
}

static void skip_read_plus(struct xdr_in *x)
{
	uint64_t at = 0;

	xdr_get_bool(x);
	for (uint32_t n = xdr_get_u32(x), i = 0; i < n && !x->bad; i++) {
		uint32_t what = xdr_get_u32(x), len;
		uint64_t off = xdr_get_u64(x), got;

		if (what == 0) {
			xdr_get_opaque(x, OP_MAX_IO, &len);
			got = len;
		} else {
			got = xdr_get_u64(x);
		}
		/* contiguous (RFC 7862 section 15.10.3) */
		if (what > 1 || !got || (i && off != at))
			x->bad = true;
		at = off + got;
	}
}

static void skip_copy(struct xdr_in *x)
{
	uint32_t n = xdr_get_u32(x);

	if (n > 1)
		x->bad = true;
	skip(x, 16 * n + 8);
	if (xdr_get_u32(x) > FILE_SYNC4)
		x->bad = true;
	skip(x, 8);
	xdr_get_bool(x);
	xdr_get_bool(x);
}

/* The results of NFSv4.2 operations (RFC 7862) and of extended attributes (RFC 8276). */
static void nfs4_skip_result42(struct xdr_in *x, uint32_t op)
{
	switch (op) {
	case OP_SEEK:
		xdr_get_bool(x);
		skip(x, 8);
		break;
	case OP_READ_PLUS:
		skip_read_plus(x);
		break;
	case OP_IO_ADVISE:
		skip_bitmap(x);
		break;
	case OP_COPY:
		skip_copy(x);
		break;
	case OP_OFFLOAD_STATUS:
		skip(x, 8);
		skip(x, 4 * (size_t)xdr_get_u32(x));
		break;
	case OP_SETXATTR:
	case OP_REMOVEXATTR:
		skip(x, 20);
		break;
	case OP_GETXATTR:
		skip_opaque(x, KV_VALUE_MAX);
		break;
	case OP_LISTXATTRS:
		skip(x, 8);
		for (uint32_t n = xdr_get_u32(x); n && !x->bad; n--)
			skip_opaque(x, NS_XATTR_NAME_MAX);
		xdr_get_bool(x);
		break;
	default:
		break; /* nothing but the status */
	}
}

/* The results after an NFS4_OK. What is not allowed by the RFCs, or never said by this server, sets
 * x->bad. */
static void nfs4_skip_result(struct xdr_in *x, uint32_t op)
{
	switch (op) {
	case OP_ACCESS:
	case OP_COMMIT:
		skip(x, 8);
		break;
	case OP_CLOSE:
	case OP_LOCK:
	case OP_LOCKU:
	case OP_OPEN_DOWNGRADE:
	case OP_WRITE:
		skip(x, 16);
		break;
	case OP_CREATE:
		skip(x, 20);
		skip_bitmap(x);
		break;
	case OP_GETATTR:
		skip_fattr(x);
		break;
	case OP_GETFH:
		skip_opaque(x, NFS4_FHSIZE);
		break;
	case OP_LINK:
	case OP_REMOVE:
		skip(x, 20);
		break;
	case OP_RENAME:
		skip(x, 40);
		break;
	case OP_OPEN:
		skip_open(x);
		break;
	case OP_WANT_DELEGATION:
		skip_deleg(x);
		break;
	case OP_READ:
		xdr_get_bool(x);
		skip_opaque(x, OP_MAX_IO);
		break;
	case OP_READDIR:
		skip_readdir(x);
		break;
	case OP_READLINK:
		skip_opaque(x, KV_VALUE_MAX);
		break;
	case OP_SECINFO:
	case OP_SECINFO_NO_NAME:
	case OP_TEST_STATEID:
		skip(x, 4 * (size_t)xdr_get_u32(x));
		break;
	case OP_SETATTR:
		skip_bitmap(x);
		break;
	case OP_BIND_CONN_TO_SESSION:
		skip(x, 20);
		xdr_get_bool(x);
		break;
	case OP_EXCHANGE_ID:
		skip_exchange_id(x);
		break;
	case OP_CREATE_SESSION:
		skip(x, 24);
		skip_chan(x);
		skip_chan(x);
		break;
	case OP_GETDEVICEINFO:
		skip(x, 4);
		skip_opaque(x, UINT32_MAX - 3);
		skip_bitmap(x);
		break;
	case OP_LAYOUTCOMMIT:
		skip(x, xdr_get_bool(x) ? 8 : 0);
		break;
	case OP_LAYOUTGET:
		skip_layoutget(x);
		break;
	case OP_LAYOUTRETURN:
		skip(x, xdr_get_bool(x) ? 16 : 0);
		break;
	case OP_SEQUENCE:
		skip(x, 36);
		break;
	default:
		nfs4_skip_result42(x, op);
	}
}

/* What follows an error. */
static void nfs4_skip_error(struct xdr_in *x, uint32_t op, uint32_t status)
{
	if (op == OP_SETATTR)
		skip_bitmap(x);
	else if (op == OP_GETDEVICEINFO && status == NFS4ERR_TOOSMALL)
		skip(x, 4);
	else if ((op == OP_LOCK || op == OP_LOCKT) && status == NFS4ERR_DENIED)
		skip(x, 28), skip_opaque(x, NFS4_OPAQUE_LIMIT);
	else if (op == OP_COPY && status == NFS4ERR_OFFLOAD_NO_REQS)
		xdr_get_bool(x), xdr_get_bool(x);
	else if (op == OP_LAYOUTGET && status == NFS4ERR_LAYOUTTRYLATER)
		xdr_get_bool(x);
}
#endif
