/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idmap.c - names of users and groups (RFC 8881 section 5.9), through libnfsidmap.
 *
 * The library queries name services and may wait for them as long as it likes. So one thread makes
 * all the queries (m_names->n_worker), and the table keeps the answers. An operation that needs a
 * name which the table lacks has done nothing yet: it sets names_wait, and compound.c runs it again
 * when the thread has worked through its queue. An old entry of the table is used, while the thread
 * queries it again. Where no answer comes, ids go out as numbers, and an operation that sets a name
 * gets NFS4ERR_DELAY.
 */
#include "mds/nfs4/state_protect.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/worker.h"
#include <errno.h>
#include <nfsidmap.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAMES_MOST	65536u /* entries of the table */
#define NAMES_QUEUE	4096u  /* queries that wait */
#define NAME_LEN	256u
#define KEEP_KNOWN_NS	(600 * 1000000000ull)
#define KEEP_UNKNOWN_NS (30 * 1000000000ull)

enum kind { OF_UID, OF_GID, USER, GROUP };

struct name {
	struct hash_link n_link;
	struct name *n_next, *n_prev; /* by age */
	enum kind n_kind;
	uint32_t n_id; /* the key of OF_UID and OF_GID, the answer of USER and GROUP */
	char *n_text;  /* the key of USER and GROUP, the answer of OF_UID and OF_GID, or NULL */
	bool n_answered, n_known, n_asking;
	uint64_t n_due_ns; /* when to query it again */
};

struct names {
	struct worker *n_worker;
	char n_domain[NAME_LEN];
	pthread_mutex_t n_lock; /* the table */
	struct hash n_table;
	struct name *n_oldest, *n_newest;
};

struct ask {
	struct work a_work;
	struct names *a_names;
	enum kind a_kind;
	uint32_t a_id;
	char a_text[NAME_LEN];
};

/* ---- the table; n_lock is held ---- */

static uint64_t idmap_key_hash(enum kind kind, uint32_t id, const char *text)
{
	return kind <= OF_GID ? hash_u64((uint64_t)kind << 32 | id)
			      : hash_u64(hash_bytes(text, strlen(text)) + kind);
}

static struct name *name_find(struct names *n, enum kind kind, uint32_t id, const char *text)
{
	for (struct hash_link *l = hash_first(&n->n_table, idmap_key_hash(kind, id, text)); l;
	     l = hash_next(l)) {
		struct name *e = hash_entry(l, struct name, n_link);

		if (e->n_kind == kind &&
		    (kind <= OF_GID ? e->n_id == id : strcmp(e->n_text, text) == 0))
			return e;
	}
	return NULL;
}

static void idmap_name_free(struct names *n, struct name *e)
{
	hash_del(&n->n_table, &e->n_link);
	*(e->n_next ? &e->n_next->n_prev : &n->n_newest) = e->n_prev;
	*(e->n_prev ? &e->n_prev->n_next : &n->n_oldest) = e->n_next;
	free(e->n_text);
	free(e);
}

static struct name *name_new(struct names *n, enum kind kind, uint32_t id, const char *text)
{
	struct name *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->n_kind = kind;
	e->n_id = id;
	e->n_text = kind <= OF_GID ? NULL : strdup(text);
	if ((kind > OF_GID && !e->n_text) ||
	    hash_add(&n->n_table, &e->n_link, idmap_key_hash(kind, id, text))) {
		free(e->n_text);
		free(e);
		return NULL;
	}
	e->n_prev = n->n_newest;
	*(n->n_newest ? &n->n_newest->n_next : &n->n_oldest) = e;
	n->n_newest = e;
	if (n->n_table.h_count > NAMES_MOST)
		idmap_name_free(n, n->n_oldest);
	return e;
}

/* ---- queries, on the worker ---- */

static int idmap_ask_one(struct names *n, struct ask *a)
{
	switch (a->a_kind) {
	case OF_UID:
		return nfs4_uid_to_name(a->a_id, n->n_domain, a->a_text, sizeof(a->a_text));
	case OF_GID:
		return nfs4_gid_to_name(a->a_id, n->n_domain, a->a_text, sizeof(a->a_text));
	case USER:
		return nfs4_name_to_uid(a->a_text, &a->a_id);
	default:
		return nfs4_name_to_gid(a->a_text, &a->a_id);
	}
}

static void idmap_ask_run(struct work *w)
{
	struct ask *a = hash_entry(w, struct ask, a_work);
	struct names *n = a->a_names;
	enum kind kind = a->a_kind;
	uint32_t id = a->a_id;
	char *found = NULL;
	struct name *e;
	int err = idmap_ask_one(n, a);

	if (!err && kind <= OF_GID)
		found = strdup(a->a_text);
	/* An answer does not count that would read as a number, or is the id of nobody. */
	if ((kind <= OF_GID && (!found || !strchr(found, '@'))) ||
	    (kind > OF_GID && a->a_id == UINT32_MAX))
		err = -ENOENT;
	pthread_mutex_lock(&n->n_lock);
	e = name_find(n, kind, id, a->a_text);
	if (e) {
		e->n_asking = false;
		e->n_answered = true;
		e->n_known = err == 0;
		e->n_due_ns = clock_mono_ns() + (err ? KEEP_UNKNOWN_NS : KEEP_KNOWN_NS);
		if (kind > OF_GID) {
			e->n_id = a->a_id;
		} else {
			free(e->n_text);
			e->n_text = err ? NULL : found;
			found = err ? found : NULL;
		}
	}
	pthread_mutex_unlock(&n->n_lock);
	free(found);
	free(a);
}

/* n_lock is held. With a full queue e stays as it is: the next operation that needs e tries
 * again. */
static void idmap_ask(struct names *n, struct name *e)
{
	struct ask *a = e->n_asking ? NULL : calloc(1, sizeof(*a));

	if (!a)
		return;
	a->a_work.w_run = idmap_ask_run;
	a->a_names = n;
	a->a_kind = e->n_kind;
	a->a_id = e->n_id;
	if (e->n_kind > OF_GID)
		snprintf(a->a_text, sizeof(a->a_text), "%s", e->n_text);
	e->n_asking = worker_submit(n->n_worker, &a->a_work);
	if (!e->n_asking)
		free(a);
}

/* n_lock is held. The entry, or NULL while its first answer is missing. */
static struct name *name_get(struct names *n, enum kind kind, uint32_t id, const char *text)
{
	struct name *e = name_find(n, kind, id, text);

	if (!e)
		e = name_new(n, kind, id, text);
	if (e && (!e->n_answered || clock_mono_ns() > e->n_due_ns))
		idmap_ask(n, e);
	return e && e->n_answered ? e : NULL;
}

/* ---- what operations use ---- */

static void put_number(struct xdr_out *x, uint32_t id)
{
	char buf[12];

	xdr_put_opaque(x, buf, (uint32_t)snprintf(buf, sizeof(buf), "%u", id));
}

void op_put_who(struct compound *c, struct xdr_out *x, uint32_t id, bool group)
{
	struct names *n = c->m->m_names;
	struct name *e;

	/* With AUTH_SYS both sides use numbers anyway. */
	if (!n || c->call->c_cred.rc_flavor != RPC_AUTH_GSS) {
		put_number(x, id);
		return;
	}
	pthread_mutex_lock(&n->n_lock);
	e = name_get(n, group ? OF_GID : OF_UID, id, NULL);
	if (e && e->n_known)
		xdr_put_opaque(x, e->n_text, (uint32_t)strlen(e->n_text));
	else
		put_number(x, id);
	c->names_wait |= !e;
	pthread_mutex_unlock(&n->n_lock);
}

/* "0" .. "4294967294", without leading zeros. */
static bool idmap_get_number(const uint8_t *p, uint32_t len, uint32_t *id)
{
	uint64_t v = 0;

	if (len == 0 || len > 10 || (len > 1 && p[0] == '0'))
		return false;
	for (uint32_t i = 0; i < len; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		v = v * 10 + (p[i] - '0');
	}
	*id = (uint32_t)v;
	return v < UINT32_MAX;
}

nfsstat4 op_get_who(struct compound *c, const uint8_t *p, uint32_t len, bool group, uint32_t *id)
{
	struct names *n = c->m->m_names;
	char text[NAME_LEN];
	nfsstat4 st;
	struct name *e;

	if (idmap_get_number(p, len, id))
		return NFS4_OK;
	if (!n || !len || len >= sizeof(text) || !memchr(p, '@', len) || memchr(p, 0, len))
		return NFS4ERR_BADOWNER;
	memcpy(text, p, len);
	text[len] = 0;
	pthread_mutex_lock(&n->n_lock);
	e = name_get(n, group ? GROUP : USER, 0, text);
	st = !e ? NFS4ERR_DELAY : e->n_known ? NFS4_OK : NFS4ERR_BADOWNER;
	if (st == NFS4_OK)
		*id = e->n_id;
	c->names_wait |= !e;
	pthread_mutex_unlock(&n->n_lock);
	return st;
}

struct barrier {
	struct work b_work;
	struct loop_msg b_msg;
	struct loop *b_loop;
	void (*b_then)(struct compound *c);
	struct compound *b_c;
};

static void barrier_msg(struct loop_msg *m)
{
	struct barrier *b = hash_entry(m, struct barrier, b_msg);

	b->b_then(b->b_c);
	free(b);
}

static void barrier_run(struct work *w)
{
	struct barrier *b = hash_entry(w, struct barrier, b_work);

	loop_post(b->b_loop, &b->b_msg);
}

/* The worker runs its queue in order: then is called when the queries before it are answered. */
bool op_idmap_then(struct compound *c, void (*then)(struct compound *c))
{
	struct barrier *b = malloc(sizeof(*b));

	if (!b)
		return false;
	*b = (struct barrier){.b_work.w_run = barrier_run,
			      .b_msg.m_run = barrier_msg,
			      .b_loop = c->th->mt_loop,
			      .b_then = then,
			      .b_c = c};
	if (worker_submit(c->m->m_names->n_worker, &b->b_work))
		return true;
	free(b);
	return false;
}

/* ---- principals, on the worker ---- */

int op_idmap_principal(void *arg, const char *principal, struct rpc_ids *ids)
{
	uid_t uid;
	gid_t gid;
	int err = nfs4_gss_princ_to_ids("krb5", (char *)principal, &uid, &gid);

	(void)arg;
	if (err == -EAGAIN || err == -EIO || err == -ETIMEDOUT || err == -ENOMEM)
		return err;
	if (err || uid == UINT32_MAX || gid == UINT32_MAX)
		return -ENOENT;
	*ids = (struct rpc_ids){.id_uid = uid, .id_gid = gid};
	return 0;
}

struct worker *op_idmap_worker(struct mds *m)
{
	return m->m_names->n_worker;
}

/* ---- start ---- */

/* With a domain only: gives the library a configuration file in memory, without a path. */
static int library_init(const char *domain)
{
	char text[NAME_LEN * 2], path[64];
	int fd, len, err = -1;

	if (!*domain)
		return nfs4_init_name_mapping(NULL);
	fd = memfd_create("idmapd.conf", MFD_CLOEXEC);
	len = snprintf(text, sizeof(text),
		       "[General]\nDomain = %s\n[Translation]\nMethod = nsswitch\n", domain);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fd >= 0 && write(fd, text, (size_t)len) == len)
		err = nfs4_init_name_mapping(path);
	if (fd >= 0)
		close(fd);
	return err;
}

static void library_log(const char *format, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	log_debug("names: %s", text);
}

int op_idmap_init(struct mds *m, const char *domain, char *err, size_t errlen)
{
	struct names *n = calloc(1, sizeof(*n));
	int e;

	if (!n) {
		snprintf(err, errlen, "names: out of memory");
		return -ENOMEM;
	}
	pthread_mutex_init(&n->n_lock, NULL);
	nfs4_set_debug(0, library_log);
	if (strlen(domain) >= NAME_LEN || library_init(domain) ||
	    nfs4_get_default_domain(NULL, n->n_domain, sizeof(n->n_domain))) {
		snprintf(err, errlen, "names: cannot set up libnfsidmap for the domain \"%s\"",
			 domain);
		free(n);
		return -EINVAL;
	}
	e = worker_create(&n->n_worker, "weft-names", NAMES_QUEUE);
	if (e) {
		snprintf(err, errlen, "names: %s", strerror(-e));
		free(n);
		return e;
	}
	m->m_names = n;
	log_info("names: users and groups are of the domain %s", n->n_domain);
	return 0;
}
