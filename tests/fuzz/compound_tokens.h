/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compound_tokens.h - writes the tokens of a fuzz_compound input (compound_words.h) out as XDR
 * words. Tokens that stand for stateids, handles and ids take them from the server as it is.
 */
#ifndef TESTS_FUZZ_COMPOUND_TOKENS_H
#define TESTS_FUZZ_COMPOUND_TOKENS_H
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include "tests/fuzz/compound_words.h"
#include "tests/fuzz/mds_fuzz.h"

/* What each thread of a fuzzer of several has of its own (fuzz_clients.c, which includes this
 * file). */
#ifndef FZ_OWN
#define FZ_OWN
#define FZ_OWNERS "AB"
#endif

enum { CONN_A, CONN_B, CONN_A2, CONN_RAW, NCONNS };

struct frame {
	struct xdr_out f_x;
	unsigned f_conn;
	const uint8_t *f_p, *f_end;
	size_t f_begun[4];
	unsigned f_nbegun, f_depth;
	uint32_t f_nops, f_plus;
	bool f_drop;
};

static void token(struct frame *f);

static uint64_t base_ino; /* the next inode at the input's beginning */

static uint8_t byte(struct frame *f)
{
	return f->f_p < f->f_end ? *f->f_p++ : 0;
}

static void raw(struct frame *f, size_t n)
{
	uint8_t buf[1024] = {0};
	size_t left = (size_t)(f->f_end - f->f_p), take = n < left ? n : left;

	memcpy(buf, f->f_p, take);
	f->f_p += take;
	xdr_put_fixed(&f->f_x, buf, n);
}

static const char *owner_of(unsigned conn)
{
	static FZ_OWN char name[2];

	name[0] = FZ_OWNERS[conn == CONN_B];
	return name;
}

/* Locked. */
static struct st_client *client_of(unsigned conn)
{
	return st_client_by_owner(mds.m_st, owner_of(conn), 1, true);
}

static void put_sid(struct frame *f, bool layout, unsigned k, unsigned plus)
{
	struct st_stateid sid = {0};
	struct st_client *cl;

	st_all_lock(mds.m_st);
	cl = client_of(f->f_conn);
	if (cl && layout) {
		struct st_layout *l = st_layout_next(cl, NULL);

		while (l && k-- && st_layout_next(cl, l))
			l = st_layout_next(cl, l);
		if (l)
			sid = l->l_sid;
	} else if (cl) {
		struct st_open *o = st_open_next(cl, NULL);

		while (o && k-- && st_open_next(cl, o))
			o = st_open_next(cl, o);
		if (o)
			sid = o->o_sid;
	}
	st_all_unlock(mds.m_st);
	sid.seqid += plus;
	op_put_stateid(&f->f_x, &sid);
}

static void put_special(struct frame *f, uint32_t seqid, int fill)
{
	struct st_stateid sid = {.seqid = seqid};

	memset(sid.other, fill, sizeof(sid.other));
	op_put_stateid(&f->f_x, &sid);
}

static void put_fh(struct frame *f, unsigned k)
{
	uint8_t fh[OP_FH_LEN];

	op_fh_make(&mds, k % 5 == 4 ? fz_export : 0, k < 8 ? NS_ROOT_INO + k : base_ino + k - 8,
		   fh);
	xdr_put_opaque(&f->f_x, fh, sizeof(fh));
}

static void put_ids(struct frame *f, bool session)
{
	static const uint8_t zero[16];
	struct st_client *cl;

	st_all_lock(mds.m_st);
	cl = client_of(f->f_conn);
	if (session)
		xdr_put_fixed(&f->f_x, cl && cl->cl_sessions ? cl->cl_sessions->se_id : zero, 16);
	else
		xdr_put_u64(&f->f_x, cl ? cl->cl_id : 0);
	st_all_unlock(mds.m_st);
}

/* fattr4: 0 none, 1 mode, 2 size 5, 3 owner and group, 4 mode and times, 5 size 0, 6 a large size,
 * 7 mode_umask */
static void put_attrs(struct frame *f, unsigned k)
{
	static const struct {
		uint32_t w[3];
		uint8_t tokens[24], len;
	} a[8] = {
		{{0}, {0}, 0},
		{{0, 1u << (FATTR4_MODE - 32)}, {T_RAW4, 0, 0, 1, 0xff}, 5},
		{{1u << FATTR4_SIZE}, {T_U64, 5}, 2},
		{{0, 1u << (FATTR4_OWNER - 32) | 1u << (FATTR4_OWNER_GROUP - 32)},
		 {T_NAME, 13, T_NAME, 13},
		 4},
		{{0, 1u << (FATTR4_MODE - 32) | 1u << (FATTR4_TIME_ACCESS_SET - 32) |
			     1u << (FATTR4_TIME_MODIFY_SET - 32)},
		 {T_SHIFT4, 0x49, 2, 0, 1, T_U64, 77, 5},
		 8},
		{{1u << FATTR4_SIZE}, {T_ZERO8}, 1},
		{{1u << FATTR4_SIZE}, {T_SHIFT8, 1, 40}, 3},
		{{0, 0, 1u << (FATTR4_MODE_UMASK - 64)}, {T_SHIFT4, 0x7f, 2, 18}, 4},
	};
	struct op_bitmap b;

	k %= 8;
	memcpy(b.w, a[k].w, sizeof(b.w));
	op_put_bitmap(&f->f_x, &b);
	xdr_put_u32(&f->f_x, 0);
	if (f->f_depth < 3) {
		struct frame sub = *f;
		size_t at = f->f_x.x_len;

		sub.f_p = a[k].tokens;
		sub.f_end = sub.f_p + a[k].len;
		sub.f_depth++;
		while (sub.f_p < sub.f_end)
			token(&sub);
		f->f_x = sub.f_x;
		xdr_patch_u32(&f->f_x, at - 4, (uint32_t)(f->f_x.x_len - at));
	}
}

static void put_template(struct frame *f, unsigned k)
{
	const uint8_t *p = f->f_p, *end = f->f_end;

	if (f->f_depth >= 2)
		return;
	f->f_depth++;
	f->f_p = templates[k % NTEMPLATES].bytes;
	f->f_end = f->f_p + templates[k % NTEMPLATES].len;
	while (f->f_p < f->f_end)
		token(f);
	f->f_depth--;
	f->f_p = p;
	f->f_end = end;
}

static void put_long(struct frame *f)
{
	uint32_t n = byte(f) * 64u;
	uint8_t b = byte(f), *p;

	xdr_put_u32(&f->f_x, n);
	p = xdr_reserve(&f->f_x, n);
	if (p)
		memset(p, b, n);
}

/* A token that stands for what the server has just now, or for a special stateid. False: it is no
 * such token. */
static bool token_live(struct frame *f, uint8_t t)
{
	uint8_t v;

	switch (t) {
	case T_OPEN:
		put_sid(f, false, byte(f), 0);
		break;
	case T_OPEN_SEQ:
		v = byte(f);
		put_sid(f, false, v, byte(f));
		break;
	case T_LAYOUT:
		put_sid(f, true, byte(f), 0);
		break;
	case T_SID_CURRENT:
		put_special(f, 1, 0);
		break;
	case T_SID_ANON:
		put_special(f, 0, 0);
		break;
	case T_SID_BYPASS:
		put_special(f, UINT32_MAX, 0xff);
		break;
	case T_FH:
		put_fh(f, byte(f));
		break;
	case T_DEVICE:
		xdr_put_fixed(&f->f_x, fz_servers[byte(f) % FZ_SERVERS].fs_uuid, 16);
		break;
	case T_CLIENTID:
		put_ids(f, false);
		break;
	case T_SESSION:
		put_ids(f, true);
		break;
	default:
		return false;
	}
	return true;
}

static void token(struct frame *f)
{
	struct xdr_out *x = &f->f_x;
	uint8_t t = byte(f), v;
	const char *name;

	switch (t) {
	case T_RAW4:
		raw(f, 4);
		break;
	case T_RAW8:
		raw(f, 8);
		break;
	case T_RAW16:
		raw(f, 16);
		break;
	case T_RAWN:
		raw(f, 4 * (size_t)byte(f));
		break;
	case T_OPAQUE:
		v = byte(f);
		xdr_put_u32(x, v);
		raw(f, v);
		break;
	case T_LONG:
		put_long(f);
		break;
	case T_ZERO8:
		xdr_put_u64(x, 0);
		break;
	case T_MAX8:
		xdr_put_u64(x, UINT64_MAX);
		break;
	case T_U64:
		xdr_put_u64(x, byte(f));
		break;
	case T_SHIFT8:
		v = byte(f);
		xdr_put_u64(x, (uint64_t)v << (byte(f) & 63));
		break;
	case T_MAX4:
		xdr_put_u32(x, UINT32_MAX);
		break;
	case T_SHIFT4:
		v = byte(f);
		xdr_put_u32(x, (uint32_t)v << (byte(f) & 31));
		break;
	case T_NAME:
		name = names[byte(f) % (sizeof(names) / sizeof(names[0]))];
		xdr_put_opaque(x, name, (uint32_t)strlen(name));
		break;
	case T_BEGIN:
		if (f->f_nbegun < 4) {
			f->f_begun[f->f_nbegun++] = x->x_len;
			xdr_put_u32(x, 0);
		}
		break;
	case T_END_OPAQUE:
		if (f->f_nbegun) {
			size_t at = f->f_begun[--f->f_nbegun];

			xdr_patch_u32(x, at, (uint32_t)(x->x_len - at - 4));
		}
		break;
	case T_ATTRS:
		put_attrs(f, byte(f));
		break;
	case T_BITMAP:
		v = byte(f);
		xdr_put_u32(x, v);
		raw(f, 4 * (size_t)v);
		break;
	case T_OP:
		f->f_nops++;
		xdr_put_u32(x, byte(f));
		break;
	case T_TEMPLATE:
		put_template(f, byte(f));
		break;
	case T_ZEROS:
		for (v = byte(f); v; v--)
			xdr_put_u32(x, 0);
		break;
	case T_OPS_PLUS:
		f->f_plus = byte(f);
		break;
	default:
		if (!token_live(f, t))
			xdr_put_u32(x, t);
	}
}
#endif
