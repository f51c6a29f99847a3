/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_gss.c - libFuzzer target: RPCSEC_GSS credentials, tokens and wrapped bodies, through a
 * socket, with real Kerberos.
 *
 * A KDC (tests/kdc) lives just long enough to give this process a ticket. An input is a list of
 * steps: tokens and credentials that are made up, contexts that are good, calls of them that are
 * good or spoilt in one place. What is checked beyond memory: a good call is answered with its own
 * arguments under a valid verifier and the same protection; a spoilt one is not served; the
 * connection lives on; contexts keep to their number.
 */
#include "proto/rpc_gss_int.h"
#include <arpa/inet.h>
#include <errno.h>
#include <gssapi/gssapi_ext.h>
#include <gssapi/gssapi_krb5.h>
#include <net/if.h>
#include <sched.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define PROG	   0x20000123u
#define CONTEXTS   24u
#define MINE	   8u
#define MAX_RECORD (256u << 10)

static struct loop *loop;
static struct rpc_gss *gss;
static struct worker *names;
static struct rpc_listener *ls;
static uint16_t port;
static gss_cred_id_t ticket;
static gss_name_t target;
static _Atomic unsigned served;

__attribute__((noreturn)) static void bug(const char *what)
{
	fprintf(stderr, "fuzz_gss: %s\n", what);
	abort();
}

static void must(bool good, const char *what)
{
	if (!good)
		bug(what);
}

/* ---- the server: echoes, half of it by reference ---- */

static void release(void *arg)
{
	rpc_buf_put(arg);
}

static void dispatch(struct rpc_call *call, void *arg)
{
	uint32_t n;
	const uint8_t *p;

	(void)arg;
	must(call->c_cred.rc_flavor != RPC_AUTH_GSS ||
		     (call->c_cred.rc_principal && call->c_cred.rc_uid == 7),
	     "a call without a principal");
	if (call->c_proc == 0) {
		rpc_reply(call);
		return;
	}
	p = xdr_get_opaque(&call->c_args, MAX_RECORD, &n);
	if (!p || xdr_left(&call->c_args)) {
		rpc_reply_error(call, RPC_A_GARBAGE_ARGS);
		return;
	}
	atomic_fetch_add(&served, 1);
	xdr_put_u32(&call->c_reply, n);
	xdr_put_ref(&call->c_reply, p, n, release, rpc_buf_get(call));
	rpc_reply(call);
}

static const struct rpc_program program = {PROG, 1, 1, 2, dispatch, NULL};
/* An idle connection is known to the kernel only, and the leak checker must find it. */
static struct rpc_conn *conns[64];

static void opened(struct rpc_conn *c, void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 64; i++) {
		if (!conns[i]) {
			conns[i] = c;
			return;
		}
	}
}

static void closed(struct rpc_conn *c, void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 64; i++)
		conns[i] = conns[i] == c ? NULL : conns[i];
}

static struct rpc_service service = {.rs_progs = &program,
				     .rs_nprogs = 1,
				     .rs_max_record = MAX_RECORD,
				     .rs_max_reply = MAX_RECORD,
				     .rs_opened = opened,
				     .rs_closed = closed};

static int map(void *arg, const char *principal, struct rpc_ids *ids)
{
	(void)arg;
	must(strcmp(principal, "fuzz@WEFT.TEST") == 0, "another principal");
	*ids = (struct rpc_ids){.id_uid = 7, .id_gid = 7};
	return 0;
}

static void *run(void *arg)
{
	loop_run(arg);
	return NULL;
}

/* ---- a network and a ticket of its own ---- */

static void network(void)
{
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int s;

	if (unshare(CLONE_NEWNET))
		return; /* not root: the machine's will do */
	s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ioctl(s, SIOCSIFFLAGS, &lo);
	close(s);
}

static void shell(const char *format, const char *dir)
{
	char kdc[512], text[2048];

	snprintf(kdc, sizeof kdc, "%s", __FILE__);
	*strrchr(kdc, '/') = 0;
	setenv("KDC", strcat(kdc, "/../kdc"), 1);
	snprintf(text, sizeof text, format, dir, dir);
	must(system(text) == 0, text);
}

static void kerberos(void)
{
	char dir[] = "/tmp/fuzz-gss.XXXXXX", path[128], err[256];
	gss_buffer_desc text = {13, "nfs@localhost"};
	gss_OID_set_desc mechs = {1, (gss_OID)gss_mech_krb5};
	struct rpc_gss_opts opts = {.go_keytab = path, .go_max = CONTEXTS, .go_map = map};
	OM_uint32 minor;

	must(mkdtemp(dir) != NULL, "no folder");
	shell("bash $KDC up %s fuzz nfs/localhost", dir);
	snprintf(path, sizeof path, "%s/krb5.conf", dir);
	setenv("KRB5_CONFIG", path, 1);
	shell("echo fuzz | kinit -c %s/cc fuzz >/dev/null", dir);
	shell("kvno -q -c %s/cc nfs/localhost", dir);
	snprintf(path, sizeof path, "FILE:%s/cc", dir);
	setenv("KRB5CCNAME", path, 1);
	must(!GSS_ERROR(gss_import_name(&minor, &text, GSS_C_NT_HOSTBASED_SERVICE, &target)),
	     "no name");
	must(!GSS_ERROR(gss_acquire_cred(&minor, GSS_C_NO_NAME, GSS_C_INDEFINITE, &mechs,
					 GSS_C_INITIATE, &ticket, NULL, NULL)),
	     "no ticket");
	snprintf(path, sizeof path, "%s/nfs-localhost.keytab", dir);
	must(!worker_create(&names, "names", 4096), "no thread");
	opts.go_names = names;
	gss = rpc_gss_new();
	if (!gss || rpc_gss_open(gss, &opts, err, sizeof err))
		bug(err);
	shell("bash $KDC down %s", dir);
}

static void start(void)
{
	struct sockaddr_storage addr;
	pthread_t tid;
	socklen_t len;

	must(sodium_init() >= 0, "libsodium");
	network();
	kerberos();
	service.rs_gss = gss;
	must(!loop_create(&loop, 64) && !rpc_addr_parse("127.0.0.1:0", 0, &addr, &len) &&
		     !rpc_listen(&ls, loop, (struct sockaddr *)&addr, len, &service, &loop, 1),
	     "no listener");
	port = rpc_listener_port(ls);
	must(!pthread_create(&tid, NULL, run, loop), "no thread");
}

/* ---- the client ---- */

struct mine {
	gss_ctx_id_t sec;
	uint8_t handle[GSS_HANDLE];
	uint32_t seq;
};

struct input {
	const uint8_t *p, *end;
};

static uint32_t take(struct input *in, unsigned bytes)
{
	uint32_t v = 0;

	while (bytes-- && in->p < in->end)
		v = v << 8 | *in->p++;
	return v;
}

static const uint8_t *take_bytes(struct input *in, uint32_t most, uint32_t *n)
{
	const uint8_t *p = in->p;

	*n = take(in, 1) % (most + 1);
	p = in->p;
	if (*n > (size_t)(in->end - in->p))
		*n = (uint32_t)(in->end - in->p);
	in->p += *n;
	return p;
}

static int dial(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	must(s >= 0 && !connect(s, (struct sockaddr *)&to, sizeof to), "no connection");
	return s;
}

static void send_all(int s, struct xdr_out *x)
{
	xdr_patch_u32(x, 0, 0x80000000u | (uint32_t)(x->x_len - 4));
	for (size_t at = 0; at < x->x_len;) {
		ssize_t n = send(s, x->x_head + at, x->x_len - at, MSG_NOSIGNAL);

		must(n > 0 || (n < 0 && errno == EINTR), "the server closed the connection");
		at += n > 0 ? (size_t)n : 0;
	}
	xdr_out_free(x);
}

static uint8_t answer[MAX_RECORD + 4096];

static void recv_some(int s, uint8_t *p, size_t n)
{
	while (n) { /* libFuzzer's timer cuts it short */
		ssize_t got = recv(s, p, n, MSG_WAITALL);

		must(got > 0 || (got < 0 && errno == EINTR), "the server closed the connection");
		p += got > 0 ? got : 0;
		n -= got > 0 ? (size_t)got : 0;
	}
}

/* The next reply, from behind its xid and direction. */
static uint32_t reply(int s, struct xdr_in *x)
{
	uint32_t mark, xid;

	recv_some(s, answer, 4);
	xdr_in_init(x, answer, 4);
	mark = xdr_get_u32(x);
	must(mark >> 31 && (mark & 0x7fffffff) <= sizeof answer, "a reply of another size");
	recv_some(s, answer, mark & 0x7fffffff);
	xdr_in_init(x, answer, mark & 0x7fffffff);
	xid = xdr_get_u32(x);
	must(xdr_get_u32(x) == 1, "no reply");
	return xid;
}

static void head(struct xdr_out *x, uint32_t xid, uint32_t proc)
{
	xdr_out_init(x, MAX_RECORD + 4096);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, xid);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, 2);
	xdr_put_u32(x, PROG);
	xdr_put_u32(x, 1);
	xdr_put_u32(x, proc);
}

static void cred(struct xdr_out *x, uint32_t proc, uint32_t seq, uint32_t svc,
		 const uint8_t *handle, uint32_t n)
{
	xdr_put_u32(x, RPC_AUTH_GSS);
	xdr_put_u32(x, 20 + ((n + 3) & ~3u));
	xdr_put_u32(x, 1);
	xdr_put_u32(x, proc);
	xdr_put_u32(x, seq);
	xdr_put_u32(x, svc);
	xdr_put_opaque(x, handle, n);
}

/* The reply to this call; others are those of contexts that were asked for before, which are made
 * elsewhere and come when they come. */
static void reply_to(int s, uint32_t xid, struct xdr_in *x)
{
	while (reply(s, x) != xid)
		;
}

/* Sends a NULL call, and waits for its reply: what was sent before has been looked at. */
static void drain(int s, uint32_t xid)
{
	struct xdr_out x;
	struct xdr_in r;

	head(&x, xid, 0);
	xdr_put_u64(&x, 0);
	xdr_put_u64(&x, 0);
	send_all(s, &x);
	reply_to(s, xid, &r);
}

/* A good context, or one whose token is spoilt at a place: then it must not be made. */
static void make(int s, struct mine *m, uint32_t xid, bool spoil, uint32_t where, uint8_t how)
{
	OM_uint32 minor, major, flags = GSS_C_MUTUAL_FLAG | GSS_C_INTEG_FLAG | GSS_C_CONF_FLAG;
	gss_buffer_desc token = GSS_C_EMPTY_BUFFER, back = GSS_C_EMPTY_BUFFER,
			none = GSS_C_EMPTY_BUFFER;
	const uint8_t *handle, *p;
	uint32_t n, len, status;
	struct xdr_out x;
	struct xdr_in r;

	if (m->sec)
		gss_delete_sec_context(&minor, &m->sec, GSS_C_NO_BUFFER);
	major = gss_init_sec_context(&minor, ticket, &m->sec, target, (gss_OID)gss_mech_krb5, flags,
				     0, NULL, GSS_C_NO_BUFFER, NULL, &token, NULL, NULL);
	must(!GSS_ERROR(major), "no token");
	if (spoil)
		((uint8_t *)token.value)[where % token.length] ^= how;
	head(&x, xid, 0);
	cred(&x, RPC_GSS_INIT, 0, 0, NULL, 0);
	xdr_put_u64(&x, 0);
	xdr_put_opaque(&x, token.value, (uint32_t)token.length);
	send_all(s, &x);
	gss_release_buffer(&minor, &token);
	reply_to(s, xid, &r);
	must(xdr_get_u32(&r) == 0, "INIT is denied");
	xdr_get_u32(&r);
	xdr_get_opaque(&r, RPC_MAX_AUTH, &n);
	must(xdr_get_u32(&r) == 0, "INIT fails");
	handle = xdr_get_opaque(&r, RPC_MAX_AUTH, &n);
	status = xdr_get_u32(&r);
	xdr_get_u32(&r);
	xdr_get_u32(&r);
	p = xdr_get_opaque(&r, GSS_MAX_TOKEN, &len);
	must(!r.bad && !xdr_left(&r), "a result that is none");
	if (spoil && how) {
		/* Some bytes of the wrapping are not looked at; what is made is no less good for
		 * it. */
		if (n == 0 || status) {
			must(n == 0 && len == 0, "a handle with an error");
			gss_delete_sec_context(&minor, &m->sec, GSS_C_NO_BUFFER);
			return;
		}
	}
	must(status == 0 && n == GSS_HANDLE, "a good token makes no context");
	back = (gss_buffer_desc){len, (void *)p};
	major = gss_init_sec_context(&minor, ticket, &m->sec, target, (gss_OID)gss_mech_krb5, flags,
				     0, NULL, &back, NULL, &none, NULL, NULL);
	gss_release_buffer(&minor, &none);
	if (major != GSS_S_COMPLETE) {
		must(spoil, "a good answer is refused");
		gss_delete_sec_context(&minor, &m->sec, GSS_C_NO_BUFFER);
		return;
	}
	memcpy(m->handle, handle, n);
	m->seq = 0;
}

enum { WHOLE, MIC, CHECKSUM, WITHIN, BODY, CUT, LONGER, REPLAYED, SPOILS };

static void put_token(struct xdr_out *x, struct mine *m, const void *data, size_t len, bool secret,
		      bool wrap, bool spoil, struct input *in)
{
	gss_buffer_desc text = {len, (void *)data}, out = GSS_C_EMPTY_BUFFER;
	OM_uint32 minor;
	int got;

	if (wrap)
		gss_wrap(&minor, m->sec, secret, GSS_C_QOP_DEFAULT, &text, &got, &out);
	else
		gss_get_mic(&minor, m->sec, GSS_C_QOP_DEFAULT, &text, &out);
	if (spoil && out.length)
		((uint8_t *)out.value)[take(in, 2) % out.length] ^= (uint8_t)(take(in, 1) | 1);
	xdr_put_opaque(x, out.value, (uint32_t)out.length);
	gss_release_buffer(&minor, &out);
}

/* Checks that the answer is the arguments, protected as they were. */
static void answer_good(struct mine *m, struct xdr_in *r, uint32_t seq, uint32_t svc,
			const uint8_t *data, uint32_t n)
{
	uint32_t be = htobe32(seq), len, miclen;
	gss_buffer_desc text = {4, &be}, mic, plain = GSS_C_EMPTY_BUFFER;
	OM_uint32 minor;
	struct xdr_in x = *r;
	const uint8_t *p;
	int secret = 1;

	mic.value = (void *)xdr_get_opaque(&x, RPC_MAX_AUTH, &miclen);
	mic.length = miclen;
	must(!GSS_ERROR(gss_verify_mic(&minor, m->sec, &text, &mic, NULL)), "the verifier is bad");
	must(xdr_get_u32(&x) == 0, "a good call is not served");
	if (svc == RPC_GSS_INTEGRITY) {
		p = xdr_get_opaque(&x, MAX_RECORD, &len);
		text = (gss_buffer_desc){len, (void *)p};
		mic.value = (void *)xdr_get_opaque(&x, RPC_MAX_AUTH, &miclen);
		mic.length = miclen;
		must(!x.bad && !xdr_left(&x) &&
			     !GSS_ERROR(gss_verify_mic(&minor, m->sec, &text, &mic, NULL)),
		     "the results' checksum is bad");
		xdr_in_init(&x, p, len);
	} else if (svc == RPC_GSS_PRIVACY) {
		p = xdr_get_opaque(&x, MAX_RECORD + 4096, &len);
		text = (gss_buffer_desc){len, (void *)p};
		must(!x.bad && !xdr_left(&x) &&
			     !GSS_ERROR(gss_unwrap(&minor, m->sec, &text, &plain, &secret, NULL)) &&
			     secret,
		     "the results are not encrypted");
		xdr_in_init(&x, plain.value, plain.length);
	}
	must(svc == RPC_GSS_NONE || xdr_get_u32(&x) == seq,
	     "another sequence number in the results");
	p = xdr_get_opaque(&x, MAX_RECORD, &len);
	must(!x.bad && !xdr_left(&x) && len == n && memcmp(p, data, n) == 0,
	     "the results are not the arguments");
	gss_release_buffer(&minor, &plain);
}

static void call(int s, struct mine *m, uint32_t xid, struct input *in)
{
	uint32_t svc = 1 + take(in, 1) % 3, spoil = take(in, 1) % SPOILS, jump = take(in, 1), n,
		 flavor;
	static uint8_t big[MAX_RECORD / 2];
	uint8_t first = (uint8_t)take(in, 1);
	struct xdr_out x, args;
	struct xdr_in r;
	unsigned before = atomic_load(&served), last = m->seq;

	if (!m->sec)
		return;
	n = take(in, 2) % (first & 1 ? sizeof big : 300);
	memset(big, first, n);
	if ((spoil == CHECKSUM && svc != RPC_GSS_INTEGRITY) ||
	    ((spoil == WITHIN || spoil == CUT || spoil == LONGER || spoil == BODY) &&
	     svc == RPC_GSS_NONE))
		spoil = WHOLE;
	if (spoil == BODY && svc == RPC_GSS_INTEGRITY)
		spoil = CHECKSUM;
	if (spoil == REPLAYED && !m->seq)
		spoil = WHOLE;
	if (spoil != REPLAYED)
		m->seq += 1 + (jump > 250 ? 5000 : jump % 4);
	xdr_out_init(&args, MAX_RECORD);
	if (svc != RPC_GSS_NONE)
		xdr_put_u32(&args, spoil == WITHIN ? m->seq + 1 : m->seq);
	xdr_put_opaque(&args, big, n);
	head(&x, xid, 1);
	cred(&x, RPC_GSS_DATA, m->seq, svc, m->handle, GSS_HANDLE);
	n = n & 0xffffff;
	xdr_put_u32(&x, RPC_AUTH_GSS);
	put_token(&x, m, x.x_head + 4, x.x_len - 8, false, false, spoil == MIC, in);
	if (svc == RPC_GSS_INTEGRITY) {
		xdr_put_opaque(&x, args.x_head, (uint32_t)args.x_len);
		put_token(&x, m, args.x_head, args.x_len, false, false, spoil == CHECKSUM, in);
	} else if (svc == RPC_GSS_PRIVACY) {
		put_token(&x, m, args.x_head, args.x_len, true, true, spoil == BODY, in);
	} else {
		xdr_put_fixed(&x, args.x_head, args.x_len);
	}
	xdr_out_free(&args);
	if (spoil == CUT)
		x.x_len -= 4;
	if (spoil == LONGER)
		xdr_put_u32(&x, take(in, 4));
	send_all(s, &x);
	if (spoil != WHOLE) {
		drain(s, xid + 1);
		must(atomic_load(&served) == before, "a spoilt call is served");
		if (spoil == MIC)
			m->seq = last; /* whose header is not signed uses up no number */
		return;
	}
	reply_to(s, xid, &r);
	if (xdr_get_u32(&r)) {
		/* Only because others took its place. */
		gss_delete_sec_context(&(OM_uint32){0}, &m->sec, GSS_C_NO_BUFFER);
		return;
	}
	flavor = xdr_get_u32(&r);
	must(flavor == RPC_AUTH_GSS, "another flavour");
	answer_good(m, &r, m->seq, svc, big, n);
}

/* Bytes as they come: a credential, or a token. */
static void raw(int s, struct mine *m, uint32_t xid, struct input *in, bool token)
{
	uint32_t n, proc = take(in, 1) % 5, seq = take(in, 4), svc = take(in, 1) % 5;
	const uint8_t *p = take_bytes(in, 255, &n);
	struct xdr_out x;

	head(&x, xid, take(in, 1) % 3);
	if (token) {
		cred(&x, proc, seq, svc, m->handle, m->sec ? GSS_HANDLE : 0);
	} else {
		xdr_put_u32(&x, RPC_AUTH_GSS);
		xdr_put_opaque(&x, p, n);
	}
	xdr_put_u32(&x, take(in, 1) % 8);
	xdr_put_opaque(&x, p, n);
	xdr_put_opaque(&x, p, n);
	send_all(s, &x);
	drain(s, xid + 1);
}

/* The KDC's time is not the first input's. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	start();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mine mine[MINE] = {0};
	struct input in = {data, data + size};
	uint32_t xid = 1, where;
	OM_uint32 minor;
	int s;

	s = dial();
	for (int steps = 0; in.p < in.end && steps < 40; steps++, xid += 2) {
		uint8_t what = (uint8_t)take(&in, 1);
		struct mine *m = &mine[what >> 4 & (MINE - 1)];

		switch (what & 7) {
		case 0:
			make(s, m, xid, false, 0, 0);
			break;
		case 1:
			where = take(&in, 2);
			make(s, m, xid, true, where, (uint8_t)take(&in, 1));
			break;
		case 2:
			raw(s, m, xid, &in, false);
			break;
		case 3:
			raw(s, m, xid, &in, true);
			break;
		default:
			if (!m->sec)
				make(s, m, xid++, false, 0, 0);
			call(s, m, xid, &in);
		}
	}
	drain(s, xid);
	must(gss->g_table.h_count <= CONTEXTS, "too many contexts");
	close(s);
	for (unsigned i = 0; i < MINE; i++)
		if (mine[i].sec)
			gss_delete_sec_context(&minor, &mine[i].sec, GSS_C_NO_BUFFER);
	return 0;
}
