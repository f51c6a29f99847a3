/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_compound.c - COMPOUND requests to the whole metadata server, over sockets.
 *
 * An input is two bytes of circumstances and then frames, each a control byte and tokens
 * (compound_words.h) up to END, which compound_tokens.h writes out as XDR words. The harness puts
 * in front what a fuzzer would never guess: the RPC header, SEQUENCE with the right session, slot
 * and sequence number, a file handle; tokens stand for live stateids, handles, device ids, and for
 * whole operations to start from. So a byte changed is one field changed, and every operation's
 * parser is a few mutations away. Frames on connection RAW are records without any help.
 *
 * Held, beyond the sanitizers: each well-formed call is answered once, within the time, with its
 * xid; no connection is lost that was not provoked; and every reply decodes entirely by the RFC's
 * grammar (RFC 5662, RFC 7863, RFC 8276), with as many results as it says.
 *
 * FUZZ_SHOW=1 in the environment prints each operation's status, FUZZ_STATS=1 at the end how often
 * each was good and failed.
 */
#include "base/clock.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include "tests/fuzz/compound_tokens.h"
#include "tests/fuzz/compound_words.h"
#include "tests/fuzz/mds_fuzz.h"
#include "tests/fuzz/nfs4_skip.h"
#include <poll.h>

/* The control byte of a frame. */
enum {
	/* client A, client B, client A as another user on another connection, RAW */
	F_CONN = 0x03,
	F_BARE = 0x04,	/* no SEQUENCE; RAW: no record, but the end of grace or of all leases */
	F_CACHE = 0x08, /* cachethis */
	/* file handle: none, root, the first inode made in this input, /d/g of the base */
	F_AT = 0x30,
	F_AHEAD = 0x40, /* sent without waiting for its reply */
	F_AGAIN = 0x80, /* the slot's last sequence number once more */
};

/* The first byte of an input. */
enum { H_MINOR1 = 1, H_GRACE = 2, H_B = 4, H_FILE = 8, H_B_LAYOUT = 16, H_STATUS = 0xe0 };
/* The second. */
enum { H_CB = 7, H_SIZE = 0x18, H_STAT = 0x60, H_ALWAYS = 0x80 };
enum { CB_OK, CB_NOMATCHING, CB_DELAY, CB_SILENT, CB_CLOSE, CB_BADSESSION, CB_REFUSED, CB_SHORT };

#define MAX_OUT	   (1u << 18)
#define MAX_CALLS  32
#define MAX_FRAMES 24

/* ---- connections ---- */

static FZ_OWN struct conn {
	int c_fd;
	uint8_t *c_buf;
	size_t c_len, c_cap;
	bool c_may_end;	 /* garbage was sent on it */
	bool c_doubtful; /* something may still be on its way: not for the next input */
} conns[NCONNS];

static FZ_OWN struct call {
	bool ca_out, ca_raw;
	bool ca_replay; /* may be answered with an earlier call's results */
	unsigned ca_conn;
	uint32_t ca_xid, ca_nops;
} calls[MAX_CALLS];

static FZ_OWN uint32_t xids;
static uint8_t minor;
static unsigned cb_mode;
/* calls went out whose end was not awaited: a slot may be in use that looks free */
static FZ_OWN bool in_dark;
static bool show;
static FZ_OWN unsigned long counts[NFS4_OP_MAX][2];

static void conn_open(struct conn *c)
{
	c->c_fd = fz_connect();
	c->c_len = 0;
	c->c_may_end = c->c_doubtful = false;
}

static void conn_close(unsigned n)
{
	if (conns[n].c_fd >= 0)
		close(conns[n].c_fd);
	conns[n].c_fd = -1;
	for (unsigned i = 0; i < MAX_CALLS; i++) {
		if (calls[i].ca_out && calls[i].ca_conn == n)
			calls[i].ca_out = false;
	}
}

static void conn_write(unsigned n, const struct xdr_out *x)
{
	for (size_t at = 0; at < x->x_len;) {
		ssize_t k = write(conns[n].c_fd, x->x_head + at, x->x_len - at);

		if (k < 0 && errno == EINTR) /* libFuzzer's own alarm */
			continue;
		if (k <= 0) {
			if (!conns[n].c_may_end)
				fz_bug("the connection is lost");
			return;
		}
		at += (size_t)k;
	}
}

/* ---- replies ---- */

static void check_compound(const struct call *ca, struct xdr_in *x)
{
	uint32_t status = xdr_get_u32(x), op, st = NFS4_OK, n, taglen;

	xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &taglen);
	n = xdr_get_u32(x);
	if (x->bad || (n > ca->ca_nops && !ca->ca_replay))
		fz_bug("a reply with more results than operations");
	for (uint32_t i = 0; i < n; i++) {
		if (st)
			fz_bug("a result after the one that failed");
		op = xdr_get_u32(x);
		st = xdr_get_u32(x);
		if (show)
			fprintf(stderr, "   %s %u\n", op_name(op) ? op_name(op) : "ILLEGAL", st);
		if (op < NFS4_OP_MAX)
			counts[op][st != 0]++;
		if (!st)
			nfs4_skip_result(x, op);
		else
			nfs4_skip_error(x, op, st);
		if (x->bad) {
			fprintf(stderr, "operation %u status %u\n", op, st);
			fz_bug("a result that does not decode");
		}
	}
	if (xdr_left(x))
		fz_bug("a reply with bytes behind its results");
	if (n && st != status)
		fz_bug("the compound's status is not its last operation's");
	if (!status && n != ca->ca_nops && !ca->ca_replay)
		fz_bug("a compound that ended early, and well");
}

static void got_reply(unsigned n, struct xdr_in *x, uint32_t xid)
{
	struct call *ca = NULL;
	uint32_t denied, accepted;

	for (unsigned i = 0; i < MAX_CALLS; i++) {
		if (calls[i].ca_out && calls[i].ca_conn == n && calls[i].ca_xid == xid)
			ca = &calls[i];
	}
	if (!ca) {
		if (n == CONN_RAW)
			return; /* what the fuzzer's bytes asked for */
		fz_bug("a reply to no call");
	}
	denied = xdr_get_u32(x);
	xdr_get_u64(x);
	accepted = xdr_get_u32(x);
	ca->ca_out = false;
	if (ca->ca_raw)
		return;
	if (x->bad || denied || accepted) {
		fprintf(stderr, "reply_stat %u accept_stat %u\n", denied, accepted);
		fz_bug("a well-formed call was not accepted");
	}
	check_compound(ca, x);
}

/* ---- callbacks ---- */

static void put_cb(struct xdr_out *x)
{
	static const uint32_t recall[] = {[CB_NOMATCHING] = NFS4ERR_NOMATCHING_LAYOUT,
					  [CB_DELAY] = NFS4ERR_DELAY,
					  [CB_SHORT] = 0};
	uint32_t st = cb_mode == CB_BADSESSION ? NFS4ERR_BADSESSION : recall[cb_mode];

	xdr_put_u32(x, 0);
	xdr_put_u64(x, 0);
	xdr_put_u32(x, cb_mode == CB_REFUSED ? RPC_A_PROG_UNAVAIL : RPC_A_SUCCESS);
	if (cb_mode == CB_REFUSED)
		return;
	xdr_put_u32(x, st);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, cb_mode == CB_BADSESSION ? 1 : 2);
	xdr_put_u32(x, OP_CB_SEQUENCE);
	if (cb_mode == CB_SHORT)
		return;
	xdr_put_u32(x, cb_mode == CB_BADSESSION ? st : 0);
	if (cb_mode == CB_BADSESSION)
		return;
	for (int i = 0; i < 4 + 4; i++)
		xdr_put_u32(x, 0);
	xdr_put_u32(x, OP_CB_LAYOUTRECALL);
	xdr_put_u32(x, st);
}

static void got_callback(unsigned n, uint32_t xid)
{
	struct xdr_out x;

	if (show)
		fprintf(stderr, "   callback on connection %u\n", n);
	if (cb_mode == CB_SILENT)
		return;
	if (cb_mode == CB_CLOSE) {
		in_dark = true;
		conn_close(n);
		return;
	}
	xdr_out_init(&x, 4096);
	xdr_put_u32(&x, 0);
	xdr_put_u32(&x, xid);
	xdr_put_u32(&x, 1);
	put_cb(&x);
	xdr_patch_u32(&x, 0, 0x80000000u | (uint32_t)(x.x_len - 4));
	conn_write(n, &x);
	xdr_out_free(&x);
}

/* ---- input ---- */

static void got_record(unsigned n, const uint8_t *p, size_t len)
{
	struct xdr_in x;
	uint32_t xid, type;

	xdr_in_init(&x, p, len);
	xid = xdr_get_u32(&x);
	type = xdr_get_u32(&x);
	if (x.bad || len % 4 || type > 1)
		fz_bug("a record that is no message");
	if (type)
		got_reply(n, &x, xid);
	else
		got_callback(n, xid);
}

static void conn_input(unsigned n)
{
	struct conn *c = &conns[n];
	ssize_t got;
	size_t at = 0;

	if (c->c_cap - c->c_len < 65536) {
		c->c_cap = c->c_cap * 2 + 65536;
		c->c_buf = realloc(c->c_buf, c->c_cap);
	}
	got = recv(c->c_fd, c->c_buf + c->c_len, c->c_cap - c->c_len, MSG_DONTWAIT);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got <= 0) {
		if (!c->c_may_end)
			fz_bug("the server ended a connection");
		conn_close(n);
		return;
	}
	c->c_len += (size_t)got;
	while (c->c_fd >= 0 && c->c_len - at >= 4) {
		uint32_t mark;

		memcpy(&mark, c->c_buf + at, 4);
		mark = be32toh(mark);
		if (!(mark & 0x80000000u) || (mark & 0x7fffffff) > FZ_MAX_RECORD)
			fz_bug("a reply in pieces, or too long");
		mark &= 0x7fffffff;
		if (c->c_len - at - 4 < mark)
			break;
		at += 4 + mark;
		got_record(n, c->c_buf + at - mark, mark);
	}
	memmove(c->c_buf, c->c_buf + at, c->c_len - at);
	c->c_len -= at;
}

static unsigned calls_out(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MAX_CALLS; i++)
		n += calls[i].ca_out;
	return n;
}

/* Until no more than left calls are without their reply. */
static void wait_replies(unsigned left)
{
	while (calls_out() > left) {
		struct pollfd fds[NCONNS];
		int n;

		for (unsigned i = 0; i < NCONNS; i++)
			fds[i] = (struct pollfd){.fd = conns[i].c_fd, .events = POLLIN};
		n = poll(fds, NCONNS, 8000);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fz_bug("a call without a reply");
		for (unsigned i = 0; i < NCONNS; i++) {
			if (fds[i].revents && conns[i].c_fd == fds[i].fd)
				conn_input(i);
		}
	}
}

/* ---- frames ---- */

static void put_header(struct xdr_out *x, uint32_t xid, uint32_t uid, uint32_t proc)
{
	xdr_put_u32(x, 0); /* the mark */
	xdr_put_u32(x, xid);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, 2);
	xdr_put_u32(x, NFS4_PROGRAM);
	xdr_put_u32(x, 4);
	xdr_put_u32(x, proc);
	xdr_put_u32(x, RPC_AUTH_SYS);
	xdr_put_u32(x, 20);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, uid);
	xdr_put_u32(x, uid);
	xdr_put_u32(x, 0);
	xdr_put_u64(x, 0);
}

/* The client's newest session, a slot that is free (again: slot 0 whatever it does), and what the
 * slot expects. */
static void put_sequence(struct frame *f, uint8_t control)
{
	uint8_t id[16] = {0};
	uint32_t slot = 0, seq = 1;
	struct st_client *cl;

	st_all_lock(mds.m_st);
	cl = client_of(f->f_conn);
	if (cl && cl->cl_sessions) {
		struct st_session *s = cl->cl_sessions;
		struct st_quota room = s->se_room;

		memcpy(id, s->se_id, 16);
		urcu_memb_read_lock();
		while (!(control & F_AGAIN) && slot + 1 < room.r_nslots && st_slot_get(s, slot) &&
		       st_slot_busy(st_slot_get(s, slot)))
			slot++;
		seq = (st_slot_get(s, slot) ? st_slot_seq(st_slot_get(s, slot)) : 0) +
		      !(control & F_AGAIN);
		urcu_memb_read_unlock();
	}
	st_all_unlock(mds.m_st);
	f->f_nops++;
	xdr_put_u32(&f->f_x, OP_SEQUENCE);
	xdr_put_fixed(&f->f_x, id, 16);
	xdr_put_u32(&f->f_x, seq);
	xdr_put_u32(&f->f_x, slot);
	xdr_put_u32(&f->f_x, slot);
	xdr_put_bool(&f->f_x, control & F_CACHE);
}

static void put_at(struct frame *f, uint8_t control)
{
	switch (control & F_AT) {
	case 0x00:
		return;
	case 0x10:
		xdr_put_u32(&f->f_x, OP_PUTROOTFH);
		break;
	case 0x20:
		xdr_put_u32(&f->f_x, OP_PUTFH);
		put_fh(f, 8);
		break;
	case 0x30:
		xdr_put_u32(&f->f_x, OP_PUTFH);
		put_fh(f, 3);
	}
	f->f_nops++;
}

static struct call *call_new(unsigned conn, bool is_raw)
{
	struct call *ca = calls;

	while (ca->ca_out)
		ca++;
	*ca = (struct call){.ca_out = true, .ca_raw = is_raw, .ca_conn = conn, .ca_xid = ++xids};
	return ca;
}

static void frame_send(struct frame *f, struct call *ca, uint8_t control)
{
	struct xdr_out *x = &f->f_x;

	xdr_patch_u32(x, 0, 0x80000000u | (uint32_t)(x->x_len - 4));
	conn_write(f->f_conn, x);
	xdr_out_free(x);
	if (f->f_drop) {
		conn_close(f->f_conn);
		return;
	}
	if (!ca)
		return;
	wait_replies(control & F_AHEAD && calls_out() < MAX_CALLS - 4 ? MAX_CALLS : 0);
}

static void tokens(struct frame *f)
{
	while (f->f_p < f->f_end && *f->f_p < T_DROP)
		token(f);
	f->f_drop = byte(f) == T_DROP;
	while (f->f_nbegun) {
		size_t at = f->f_begun[--f->f_nbegun];

		xdr_patch_u32(&f->f_x, at, (uint32_t)(f->f_x.x_len - at - 4));
	}
}

/* Bytes of the fuzzer's own as a record, and a NULL call behind it: its reply, or the end. */
static void frame_raw(struct frame *f)
{
	struct xdr_out null;
	struct call *ca;
	struct conn *c = &conns[CONN_RAW];

	c->c_may_end = c->c_doubtful = true;
	xdr_put_u32(&f->f_x, 0);
	tokens(f);
	frame_send(f, NULL, 0);
	if (c->c_fd < 0)
		return;
	ca = call_new(CONN_RAW, true);
	xdr_out_init(&null, 4096);
	put_header(&null, ca->ca_xid | 0x40000000, 0, 0);
	ca->ca_xid |= 0x40000000;
	xdr_patch_u32(&null, 0, 0x80000000u | (uint32_t)(null.x_len - 4));
	conn_write(CONN_RAW, &null);
	xdr_out_free(&null);
	wait_replies(0);
}

/* No record at all: the grace period ends; or every client's lease runs out. */
static void frame_tick(struct frame *f, uint8_t control)
{
	xdr_out_free(&f->f_x);
	wait_replies(0);
	fz_on_loop(control & F_CACHE ? fz_tick : fz_tick_late);
	fz_settle();
}

static void frame(struct frame *f)
{
	uint8_t control = byte(f);
	struct call *ca;
	size_t nops_at;

	f->f_conn = control & F_CONN;
	f->f_nops = f->f_plus = f->f_nbegun = 0;
	f->f_drop = false;
	xdr_out_init(&f->f_x, MAX_OUT);
	if (conns[f->f_conn].c_fd < 0)
		conn_open(&conns[f->f_conn]);
	if (f->f_conn == CONN_RAW) {
		if (control & F_BARE)
			frame_tick(f, control);
		else
			frame_raw(f);
		return;
	}
	ca = call_new(f->f_conn, false);
	put_header(&f->f_x, ca->ca_xid, f->f_conn == CONN_A ? 0 : 1000, 1);
	xdr_put_opaque(&f->f_x, "tag", 3);
	xdr_put_u32(&f->f_x, minor);
	nops_at = f->f_x.x_len;
	xdr_put_u32(&f->f_x, 0);
	if (!(control & F_BARE)) {
		put_sequence(f, control);
		put_at(f, control);
	}
	tokens(f);
	ca->ca_nops = f->f_nops + f->f_plus;
	in_dark |= f->f_drop || control & F_AHEAD;
	ca->ca_replay = in_dark || control & (F_AGAIN | F_BARE);
	xdr_patch_u32(&f->f_x, nops_at, ca->ca_nops);
	if (show)
		fprintf(stderr, "connection %u xid %x, %u operations%s\n", f->f_conn, ca->ca_xid,
			ca->ca_nops, f->f_drop ? ", dropped" : "");
	frame_send(f, ca, control);
}

static void frames(const uint8_t *data, size_t size)
{
	struct frame f = {.f_p = data, .f_end = data + size};

	for (unsigned n = 0; f.f_p < f.f_end && n < MAX_FRAMES; n++)
		frame(&f);
	wait_replies(0);
}

/* ---- an input ---- */

/* EXCHANGE_ID and CREATE_SESSION of a client whose owner is its letter, Linux 6.18 by its name. */
static void session(unsigned conn)
{
	uint8_t p[] = {F_BARE,	 OP(OP_EXCHANGE_ID),
		       T_RAW8,	 1,
		       2,	 3,
		       4,	 5,
		       6,	 7,
		       8,	 T_OPAQUE,
		       1,	 'A',
		       0,	 0,
		       1,	 NAME(0),
		       T_OPAQUE, 12,
		       'L',	 'i',
		       'n',	 'u',
		       'x',	 ' ',
		       '6',	 '.',
		       '1',	 '8',
		       '.',	 '1',
		       T_U64,	 1,
		       1,	 T_END};
	uint8_t q[] = {F_BARE,	 OP(OP_CREATE_SESSION),
		       T_RAW8,	 0,
		       0,	 0,
		       0,	 0,
		       0,	 0,
		       0,	 1,
		       2,	 0,
		       T_SHIFT4, 1,
		       20,	 T_SHIFT4,
		       1,	 20,
		       T_SHIFT4, 1,
		       12,	 32,
		       16,	 0,
		       0,	 T_SHIFT4,
		       1,	 12,
		       T_SHIFT4, 1,
		       12,	 0,
		       2,	 1,
		       0,	 T_SHIFT4,
		       1,	 30,
		       1,	 1,
		       0,	 T_OPAQUE,
		       1,	 'm',
		       0,	 0,
		       0,	 T_END};
	struct st_client *cl;
	uint64_t id;

	p[0] |= (uint8_t)conn;
	q[0] |= (uint8_t)conn;
	p[14] = (uint8_t)owner_of(conn)[0];
	frames(p, sizeof(p));
	st_all_lock(mds.m_st);
	cl = st_client_by_owner(mds.m_st, owner_of(conn), 1, false);
	id = htobe64(cl ? cl->cl_id : 0);
	st_all_unlock(mds.m_st);
	memcpy(q + 4, &id, 8);
	frames(q, sizeof(q));
	st_all_lock(mds.m_st);
	cl = client_of(conn);
	if (cl)
		atomic_store(&cl->cl_ready, true); /* as by RECLAIM_COMPLETE */
	st_all_unlock(mds.m_st);
}

/* As after a restart: in grace, no layouts, and the files that had some marked as of an earlier
 * boot. */
static void grace(void)
{
	st_all_lock(mds.m_st);
	st_each(mds.m_st, ST_LAYOUT, l)
	{
		struct st_layout *y = hash_entry(l, struct st_layout, l_link);
		struct st_file *f = y->l_file;

		f->f_pins++; /* it goes below, with its layouts */
		st_layout_free(mds.m_st, y);
		f->f_pins--;
	}
	st_each(mds.m_st, ST_FILE, l)
	{
		struct st_file *f = hash_entry(l, struct st_file, f_link);

		f->f_intent_old = f->f_intent;
		st_file_put(mds.m_st, f);
	}
	mds.m_st->st_in_grace = true;
	mds.m_st->st_reclaimers = 1; /* ends with a frame that says so */
	mds.m_st->st_started_ns = clock_mono_ns();
	for (unsigned c = CONN_A; c <= CONN_B; c++) {
		if (client_of(c))
			client_of(c)->cl_may_reclaim = true;
	}
	st_all_unlock(mds.m_st);
}

static void circumstances(uint8_t h0, uint8_t h1)
{
	static const uint32_t nfs3[8][FZ_SERVERS] = {{NFS3_OK},
						     {NFS3ERR_IO},
						     {NFS3_OK, NFS3ERR_NOSPC},
						     {NFS3ERR_NOSPC, NFS3ERR_NOSPC},
						     {NFS3ERR_STALE},
						     {NFS3ERR_ACCES},
						     {NFS3ERR_ACCES, NFS3ERR_ACCES},
						     {NFS3ERR_IO, NFS3ERR_STALE}};
	static const uint32_t stat[4] = {CTL_OK, CTL_OK, CTL_NOENT, CTL_IO};
	static const uint64_t size[4] = {0, 4711, 1 << 20, OP_MAX_FILE};

	minor = h0 & H_MINOR1 ? 1 : 2;
	cb_mode = h1 & H_CB;
	in_dark = false;
	for (unsigned i = 0; i < FZ_SERVERS; i++)
		fz_mood.nfs3_status[i] = nfs3[h0 >> 5][i];
	fz_mood.stat_status = stat[(h1 & H_STAT) >> 5];
	fz_mood.size = size[(h1 & H_SIZE) >> 3];
	fz_mood.writes++;
	mds.m_file.fe_size_mode = h1 & H_ALWAYS ? OP_SIZE_ALWAYS : OP_SIZE_LAYOUT;
	mds.m_return_on_close = mds.m_deleg_times = h1 & H_ALWAYS;
}

static void prelude(uint8_t h0)
{
	/* /f, for everybody, open by A that has a layout for writing */
	static const uint8_t file[] = {
		CONN_A | 0x10, OP(OP_OPEN), 0,		3,	 0,	     T_CLIENTID,
		T_OPAQUE,      2,	    'o',	'1',	 1,	     UNCHECKED4,
		T_ATTRS,       1,	    CLAIM_NULL, NAME(0), T_TEMPLATE, 6,
		T_END};
	static const uint8_t other[] = {CONN_B | 0x10, T_TEMPLATE, 3, T_TEMPLATE, 7, T_END};

	session(CONN_A);
	if (h0 & H_B)
		session(CONN_B);
	if (h0 & H_FILE)
		frames(file, sizeof(file));
	if ((h0 & (H_B | H_B_LAYOUT)) == (H_B | H_B_LAYOUT))
		frames(other, sizeof(other));
	if (h0 & H_GRACE)
		grace();
}

static void print_stats(void)
{
	for (unsigned n = 0; n < NFS4_OP_MAX; n++) {
		if (counts[n][0] || counts[n][1])
			fprintf(stderr, "%-24s %10lu good %10lu failed\n",
				op_name(n) ? op_name(n) : "?", counts[n][0], counts[n][1]);
	}
}

/* In the base: /d with a policy of two mirrors and an extended attribute, /d/g, /s -> d; all for
 * everybody. */
static void make_base(void)
{
	static const uint8_t p[] = {
		CONN_A | 0x10,
		OP(OP_CREATE),
		NS_DIR,
		NAME(2),
		T_ATTRS,
		1,
		T_TEMPLATE,
		32,
		OP(OP_SETXATTR),
		0,
		NAME(6),
		NAME(9),
		T_END,
		CONN_A | 0x10,
		OP(OP_SETATTR),
		T_SID_ANON,
		T_BITMAP,
		2,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		2,
		T_BEGIN,
		T_RAW4,
		0,
		0,
		1,
		0xff,
		T_END_OPAQUE,
		T_END,
		CONN_A | 0x10,
		OP(OP_CREATE),
		NS_LNK,
		NAME(2),
		NAME(3),
		T_ATTRS,
		0,
		T_END,
		CONN_A | 0x10,
		T_TEMPLATE,
		24,
		OP(OP_OPEN),
		0,
		3,
		0,
		T_CLIENTID,
		T_OPAQUE,
		1,
		'o',
		1,
		0,
		T_BITMAP,
		2,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		2,
		T_BEGIN,
		T_RAW4,
		0,
		0,
		1,
		0xff,
		T_END_OPAQUE,
		CLAIM_NULL,
		NAME(1),
		OP(OP_CLOSE),
		0,
		T_SID_CURRENT,
		T_END,
	};

	minor = 2;
	session(CONN_A);
	frames(p, sizeof(p));
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	show = getenv("FUZZ_SHOW");
	for (unsigned i = 0; i < NCONNS; i++)
		conns[i].c_fd = -1;
	fz_start("fuzz_compound", true);
	make_base();
	fz_on_loop(fz_forget);
	fz_keep();
	memset(counts, 0, sizeof(counts));
	if (getenv("FUZZ_STATS"))
		atexit(print_stats);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 3 || size > 4096)
		return 0;
	fz_restore();
	base_ino = mds.m_ns->n_ino_next;
	circumstances(data[0], data[1]);
	prelude(data[0]);
	frames(data + 2, size - 2);
	for (unsigned i = 0; i < NCONNS; i++) {
		if (conns[i].c_fd >= 0 &&
		    (conns[i].c_doubtful || cb_mode == CB_SILENT || cb_mode == CB_DELAY))
			conn_close(i);
	}
	return 0;
}
