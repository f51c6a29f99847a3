/*
 * ns_model_test.c - random operations against the name space and against a simple model in memory.
 *
 * The model is written from POSIX' and Linux' rules, not from mds/ns: arrays and pointers, no keys.
 * Results and attributes must agree after every step; the checker must find nothing. Some commits
 * are refused (the store must be as before), some steps run several operations in one mutation, and
 * the store is closed, or left as by a crash, in between.
 *
 * NS_MODEL_OPS (20000) operations; NS_MODEL_SEED repeats a run.
 */
#include "base/log.h"
#include "mds/ns/keys.h"
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES = 24, XATTRS = 5, NODES = 1500, CROWDED = 400 };

struct node {
	uint64_t n_ino, n_size, n_change, n_verifier;
	uint8_t n_type;
	uint16_t n_mode;
	uint32_t n_uid, n_gid, n_nlink;
	int64_t n_atime, n_mtime, n_ctime, n_btime;
	struct node *n_parent;
	struct node *n_ent[NAMES]; /* directories */
	unsigned n_xattr[XATTRS];  /* the value's length + 1; 0: none */
	bool n_dead, n_orphan;
};

static struct node *nodes[NODES];
static unsigned node_n;
static uint64_t seed, state;
static char dir[256], err[512];
static struct kv *kv;
static struct ns *ns;
static char names[NAMES][NS_NAME_MAX + 1];
static uint64_t op_n;
static int64_t tick = 1000;
static int commit_error;
static size_t written;
static uint64_t highest_ino;

static const struct ns_cred creds[] = {
	{.cr_uid = 0},
	{.cr_uid = 100, .cr_gid = 100, .cr_ngids = 1, .cr_gids = {500}},
	{.cr_uid = 200, .cr_gid = 200, .cr_ngids = 2, .cr_gids = {500, 600}},
	{.cr_uid = 300, .cr_gid = 300},
};

#define must(cond, ...)                                                                            \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "seed %lu, operation %lu: ", (unsigned long)seed,          \
				(unsigned long)op_n);                                              \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, " (%s)\n", #cond);                                         \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static unsigned rnd(unsigned below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)((state >> 20) % below);
}

/* The model's rules */

static bool in_group(const struct ns_cred *cr, uint32_t gid)
{
	bool in = cr->cr_gid == gid;

	for (unsigned n = 0; n < cr->cr_ngids; n++)
		in |= cr->cr_gids[n] == gid;
	return in;
}

static bool may(const struct node *n, const struct ns_cred *cr, unsigned want)
{
	unsigned shift = n->n_uid == cr->cr_uid ? 6 : in_group(cr, n->n_gid) ? 3 : 0;

	if (cr->cr_uid == 0)
		return !(want & 1) || n->n_type == NS_DIR || (n->n_mode & 0111);
	return (((unsigned)n->n_mode >> shift) & want) == want;
}

static bool owns(const struct node *n, const struct ns_cred *cr)
{
	return cr->cr_uid == 0 || cr->cr_uid == n->n_uid;
}

static bool sticky(const struct node *d, const struct node *n, const struct ns_cred *cr)
{
	return (d->n_mode & 01000) && !owns(d, cr) && !owns(n, cr);
}

static unsigned entries(const struct node *d)
{
	unsigned n = 0;

	for (unsigned e = 0; e < NAMES; e++)
		n += d->n_ent[e] != NULL;
	return n;
}

static void touched(struct node *n, bool mtime)
{
	n->n_ctime = tick;
	if (mtime)
		n->n_mtime = tick;
	n->n_change++;
}

/* 0 when d is a directory that cr may search */
static int searchable(const struct node *d, const struct ns_cred *cr)
{
	if (d->n_dead)
		return -ESTALE;
	if (d->n_type != NS_DIR)
		return -ENOTDIR;
	return may(d, cr, 1) ? 0 : -EACCES;
}

struct op {
	unsigned o_kind, o_name, o_name2, o_want, o_how, o_len;
	struct node *o_a, *o_b;
	const struct ns_cred *o_cr;
	uint8_t o_type;
	bool o_keep;
	struct ns_setattr o_set;
	/* Results */
	struct ns_inode o_out;
	uint64_t o_freed;
};

static struct node *node_new(void)
{
	struct node *n = calloc(1, sizeof(*n));
	unsigned at = node_n;

	must(n, "out of memory");
	if (node_n < NODES) {
		node_n++;
	} else {
		/* A dead one's place. */
		do
			at = 1 + rnd(NODES - 1);
		while (!nodes[at]->n_dead);
		free(nodes[at]);
	}
	nodes[at] = n;
	return n;
}

static int m_create(struct op *o)
{
	struct node *d = o->o_a, *n;
	int rc = searchable(d, o->o_cr);

	if (rc)
		return rc;
	if (d->n_ent[o->o_name])
		return -EEXIST;
	if (!may(d, o->o_cr, 2))
		return -EACCES;
	n = node_new();
	n->n_type = o->o_type;
	n->n_mode = o->o_type == NS_LNK ? 0777 : o->o_set.s_mode;
	n->n_uid = o->o_cr->cr_uid;
	n->n_gid = o->o_cr->cr_gid;
	n->n_nlink = 1 + (n->n_type == NS_DIR);
	n->n_size = n->n_type == NS_LNK ? 1 + o->o_len : 0;
	n->n_change = 1;
	n->n_parent = d;
	n->n_atime = n->n_mtime = n->n_ctime = n->n_btime = tick;
	if (d->n_mode & 02000) {
		n->n_gid = d->n_gid;
		if (n->n_type == NS_DIR)
			n->n_mode |= 02000;
		else if ((n->n_mode & 02010) == 02010 && o->o_cr->cr_uid &&
			 !in_group(o->o_cr, n->n_gid))
			n->n_mode &= 05777;
	}
	d->n_ent[o->o_name] = n;
	d->n_nlink += n->n_type == NS_DIR;
	touched(d, true);
	n->n_ino = o->o_out.i_ino;
	must(n->n_ino > highest_ino, "inode number %lu was used before", (unsigned long)n->n_ino);
	highest_ino = n->n_ino;
	return 0;
}

/* A name of n is gone. */
static void m_drop(struct op *o, struct node *n)
{
	uint64_t expect_freed = 0;

	touched(n, false);
	n->n_nlink = n->n_type == NS_DIR ? 0 : n->n_nlink - 1;
	if (n->n_nlink == 0) {
		n->n_orphan = n->n_type == NS_REG && o->o_keep;
		n->n_dead = !n->n_orphan;
		if (n->n_dead && n->n_type == NS_REG)
			expect_freed = n->n_ino;
	}
	must(o->o_freed == expect_freed, "freed the map of %lu, not %lu", (unsigned long)o->o_freed,
	     (unsigned long)expect_freed);
}

static int m_remove(struct op *o)
{
	struct node *d = o->o_a, *n;
	int rc = searchable(d, o->o_cr);

	if (rc)
		return rc;
	n = d->n_ent[o->o_name];
	if (!n)
		return -ENOENT;
	if (!may(d, o->o_cr, 2))
		return -EACCES;
	if (sticky(d, n, o->o_cr))
		return -EPERM;
	if (o->o_want == NS_DIR && n->n_type != NS_DIR)
		return -ENOTDIR;
	if (o->o_want == NS_REG && n->n_type == NS_DIR)
		return -EISDIR;
	if (n->n_type == NS_DIR && entries(n))
		return -ENOTEMPTY;
	d->n_ent[o->o_name] = NULL;
	d->n_nlink -= n->n_type == NS_DIR;
	touched(d, true);
	m_drop(o, n);
	must(o->o_out.i_ino == n->n_ino && o->o_out.i_nlink == n->n_nlink, "removed %lu",
	     (unsigned long)n->n_ino);
	return 0;
}

static int m_link(struct op *o)
{
	struct node *n = o->o_a, *d = o->o_b;
	int rc;

	if (n->n_dead)
		return -ESTALE;
	rc = searchable(d, o->o_cr);
	if (rc)
		return rc;
	if (d->n_ent[o->o_name])
		return -EEXIST;
	if (!may(d, o->o_cr, 2))
		return -EACCES;
	if (n->n_type == NS_DIR)
		return -EISDIR;
	if (n->n_orphan)
		return -ENOENT;
	d->n_ent[o->o_name] = n;
	n->n_nlink++;
	touched(n, false);
	touched(d, true);
	return 0;
}

static int m_rename_check(struct op *o, struct node *s, struct node *d, struct node *n,
			  struct node *old)
{
	if (n->n_type == NS_DIR && s != d)
		for (struct node *up = d;; up = up->n_parent) {
			if (up == n)
				return -EINVAL;
			if (up == nodes[0])
				break;
		}
	if (!may(s, o->o_cr, 2) || !may(d, o->o_cr, 2))
		return -EACCES;
	if (sticky(s, n, o->o_cr) || (old && sticky(d, old, o->o_cr)))
		return -EPERM;
	if (n->n_type == NS_DIR && s != d && !may(n, o->o_cr, 2))
		return -EACCES;
	if (!old)
		return 0;
	if (n->n_type == NS_DIR && old->n_type != NS_DIR)
		return -ENOTDIR;
	if (n->n_type != NS_DIR && old->n_type == NS_DIR)
		return -EISDIR;
	return old->n_type == NS_DIR && entries(old) ? -ENOTEMPTY : 0;
}

static int m_rename(struct op *o)
{
	struct node *s = o->o_a, *d = o->o_b, *n, *old;
	int rc;

	if (s->n_dead || s->n_type != NS_DIR)
		return s->n_dead ? -ESTALE : -ENOTDIR;
	rc = searchable(d, o->o_cr);
	if (rc == -EACCES || rc == 0)
		rc = rc ? rc : searchable(s, o->o_cr);
	if (rc)
		return rc;
	n = s->n_ent[o->o_name];
	old = d->n_ent[o->o_name2];
	if (!n)
		return -ENOENT;
	if (n == old)
		return 0;
	rc = m_rename_check(o, s, d, n, old);
	if (rc)
		return rc;
	s->n_ent[o->o_name] = NULL;
	d->n_ent[o->o_name2] = n;
	if (n->n_type == NS_DIR) {
		s->n_nlink--;
		d->n_nlink++;
		n->n_parent = d;
		if (old)
			d->n_nlink--;
	}
	touched(n, false);
	touched(s, true);
	if (s != d)
		touched(d, true);
	if (old)
		m_drop(o, old);
	must(o->o_out.i_ino == (old ? old->n_ino : 0), "replaced %lu",
	     (unsigned long)o->o_out.i_ino);
	return 0;
}

static uint16_t without_setid(const struct node *n, const struct ns_cred *cr, uint16_t mode)
{
	if (cr->cr_uid == 0)
		return mode;
	if ((mode & 010) || !in_group(cr, n->n_gid))
		mode &= 05777;
	return mode & 03777;
}

static int m_setattr_check(struct op *o)
{
	const struct ns_setattr *s = &o->o_set;
	struct node *n = o->o_a;

	if (s->s_mask & NS_S_SIZE) {
		if (n->n_type == NS_DIR)
			return -EISDIR;
		if (n->n_type != NS_REG)
			return -EINVAL;
	}
	if (o->o_cr->cr_uid == 0)
		return 0;
	if ((s->s_mask & NS_S_UID) && (!owns(n, o->o_cr) || s->s_uid != n->n_uid))
		return -EPERM;
	if ((s->s_mask & NS_S_GID) &&
	    (!owns(n, o->o_cr) || (s->s_gid != n->n_gid && !in_group(o->o_cr, s->s_gid))))
		return -EPERM;
	if ((s->s_mask & (NS_S_MODE | NS_S_ATIME | NS_S_MTIME)) && !owns(n, o->o_cr))
		return -EPERM;
	if ((s->s_mask & NS_S_SIZE) && !(s->s_mask & NS_S_HAS_WRITE) && !may(n, o->o_cr, 2))
		return -EACCES;
	if ((s->s_mask & (NS_S_ATIME_NOW | NS_S_MTIME_NOW)) && !owns(n, o->o_cr) &&
	    !may(n, o->o_cr, 2))
		return -EACCES;
	return 0;
}

static int m_setattr(struct op *o)
{
	const struct ns_setattr *s = &o->o_set;
	unsigned what = s->s_mask & ~(unsigned)(NS_S_HAS_WRITE | NS_S_GROW_ONLY);
	struct node *n = o->o_a;
	uint32_t gid;
	int rc;

	if (n->n_dead)
		return -ESTALE;
	rc = m_setattr_check(o);
	if (rc)
		return rc;
	if ((s->s_mask & NS_S_GROW_ONLY) && s->s_size <= n->n_size)
		what &= ~(unsigned)NS_S_SIZE;
	if (!what)
		return 0;
	gid = what & NS_S_GID ? s->s_gid : n->n_gid;
	if (what & NS_S_MODE) {
		n->n_mode = s->s_mode;
		if (o->o_cr->cr_uid && !in_group(o->o_cr, gid))
			n->n_mode &= 05777;
	}
	if (((what & (NS_S_UID | NS_S_GID)) && n->n_type != NS_DIR) || (what & NS_S_SIZE))
		n->n_mode = without_setid(n, o->o_cr, n->n_mode);
	if ((what & (NS_S_UID | NS_S_GID)) && n->n_type != NS_DIR)
		n->n_mode &= n->n_mode & 010 ? 01777 : 03777;
	n->n_gid = gid;
	if (what & NS_S_UID)
		n->n_uid = s->s_uid;
	if (what & NS_S_SIZE)
		n->n_size = s->s_size;
	touched(n, what & (NS_S_SIZE | NS_S_MTIME_NOW));
	if (what & NS_S_ATIME_NOW)
		n->n_atime = tick;
	if (what & NS_S_ATIME)
		n->n_atime = s->s_atime.t_sec;
	if (what & NS_S_MTIME)
		n->n_mtime = s->s_mtime.t_sec;
	return 0;
}

static int m_xattr(struct op *o, bool set)
{
	struct node *n = o->o_a;
	unsigned *x = &n->n_xattr[o->o_name % XATTRS];

	if (n->n_dead)
		return -ESTALE;
	if (n->n_type != NS_REG && n->n_type != NS_DIR)
		return -EPERM;
	if (n->n_type == NS_DIR && (n->n_mode & 01000) && !owns(n, o->o_cr))
		return -EPERM;
	if (!may(n, o->o_cr, 2))
		return -EACCES;
	if (set && o->o_how == NS_X_CREATE && *x)
		return -EEXIST;
	if (!*x && (!set || o->o_how == NS_X_REPLACE))
		return -ENODATA;
	*x = set ? o->o_len + 1 : 0;
	touched(n, false);
	return 0;
}

static int m_orphan_free(struct op *o)
{
	struct node *n = o->o_a;
	uint64_t expect_freed = n->n_orphan && !n->n_dead ? n->n_ino : 0;

	must(o->o_freed == expect_freed, "freed the map of %lu, not %lu", (unsigned long)o->o_freed,
	     (unsigned long)expect_freed);
	if (expect_freed)
		n->n_dead = true;
	return 0;
}

static int m_lookup(struct op *o)
{
	struct node *d = o->o_a;

	if (d->n_dead)
		return -ESTALE;
	if (d->n_type != NS_DIR)
		return -ENOTDIR;
	if (!d->n_ent[o->o_name])
		return -ENOENT;
	must(o->o_out.i_ino == d->n_ent[o->o_name]->n_ino &&
		     o->o_out.i_type == d->n_ent[o->o_name]->n_type,
	     "lookup");
	return 0;
}

/* The same on the real one */

enum { CREATE, REMOVE, LINK, RENAME, SETATTR, XSET, XREMOVE, ORPHAN_FREE, LOOKUP, KINDS };

static bool keep_open(void *arg, uint64_t ino)
{
	(void)ino;
	return ((struct op *)arg)->o_keep;
}

static int free_map(void *arg, struct kv_txn *t, const struct ns_inode *i)
{
	struct op *o = arg;

	(void)t;
	must(i->i_type == NS_REG && o->o_freed == 0, "map of %lu", (unsigned long)i->i_ino);
	o->o_freed = i->i_ino;
	return 0;
}

static const uint8_t bytes[1000];
static const char *const xnames[XATTRS] = {"a", "bb", "ccc", "d", "a-longer-name"};

static int r_create(struct op *o, struct kv_txn *t, struct ns_time now)
{
	struct ns_create_args a = {
		.a_dir = o->o_a->n_ino,
		.a_name = names[o->o_name],
		.a_len = strlen(names[o->o_name]),
		.a_cred = o->o_cr,
		.a_now = now,
		.a_attr = {.i_type = o->o_type,
			   .i_mode = o->o_set.s_mode,
			   .i_uid = o->o_cr->cr_uid,
			   .i_gid = o->o_cr->cr_gid},
	};
	static uint8_t blob[NS_BLOB_MAX];
	static char target[2000];
	struct ns_cinfo ci;

	memset(target, 't', sizeof(target));
	if (o->o_type == NS_LNK)
		a.a_attr.i_blob = ns_slice(target, 1 + o->o_len);
	else if (o->o_type == NS_REG)
		a.a_attr.i_blob = ns_slice(bytes, o->o_len);
	return ns_create(ns, t, &a, &o->o_out, blob, &ci);
}

static int real(struct op *o, struct kv_txn *t)
{
	struct ns_free_ops fo = {.f_keep_open = keep_open, .f_free_map = free_map, .f_arg = o};
	const char *n1 = names[o->o_name], *n2 = names[o->o_name2], *x = xnames[o->o_name % XATTRS];
	uint64_t a = o->o_a->n_ino, b = o->o_b->n_ino;
	struct ns_time now = {.t_sec = tick};
	struct ns_cinfo ci, ci2;

	o->o_freed = 0;
	switch (o->o_kind) {
	case CREATE:
		return r_create(o, t, now);
	case REMOVE:
		return ns_remove(ns, t, a, n1, strlen(n1), o->o_want, o->o_cr, now, &fo, &o->o_out,
				 &ci);
	case LINK:
		return ns_link(ns, t, a, b, n1, strlen(n1), o->o_cr, now, &ci);
	case RENAME:
		return ns_rename(ns, t, a, n1, strlen(n1), b, n2, strlen(n2), o->o_cr, now, &fo,
				 &o->o_out, &ci, &ci2);
	case SETATTR:
		return ns_setattr(ns, t, a, &o->o_set, o->o_cr, now, &o->o_out);
	case XSET:
		return ns_xattr_set(ns, t, a, x, strlen(x), ns_slice(bytes, o->o_len), o->o_how,
				    o->o_cr, now, &ci);
	case XREMOVE:
		return ns_xattr_remove(ns, t, a, x, strlen(x), o->o_cr, now, &ci);
	case ORPHAN_FREE:
		return ns_orphan_free(ns, t, a, &fo);
	default:
		return ns_lookup(ns, t, a, n1, strlen(n1), &o->o_out.i_ino, &o->o_out.i_type);
	}
}

static int model(struct op *o)
{
	switch (o->o_kind) {
	case CREATE:
		return m_create(o);
	case REMOVE:
		return m_remove(o);
	case LINK:
		return m_link(o);
	case RENAME:
		return m_rename(o);
	case SETATTR:
		return m_setattr(o);
	case XSET:
		return m_xattr(o, true);
	case XREMOVE:
		return m_xattr(o, false);
	case ORPHAN_FREE:
		return m_orphan_free(o);
	default:
		return m_lookup(o);
	}
}

/* Making operations */

static struct node *any(void)
{
	struct node *n = nodes[rnd(node_n)];

	while (n->n_dead && rnd(20))
		n = nodes[rnd(node_n)];
	return n;
}

/* Mostly directories that are alive: random handles alone seldom fit. */
static struct node *any_dir(void)
{
	struct node *n = any();

	for (unsigned k = 0; k < 50 && (n->n_dead || n->n_type != NS_DIR); k++)
		n = any();
	return n;
}

/* With d, preferably one that it has. */
static unsigned any_name(const struct node *d)
{
	unsigned n = rnd(NAMES);

	for (unsigned k = 0; d && k < NAMES && !d->n_ent[n]; k++)
		n = (n + 1) % NAMES;
	return n;
}

static unsigned alive(void)
{
	unsigned n = 0;

	for (unsigned k = 0; k < node_n; k++)
		n += !nodes[k]->n_dead;
	return n;
}

static void make_setattr(struct ns_setattr *s)
{
	static const uint16_t modes[] = {0755,	0777, 01777, 02777, 0700,  0644, 0666,
					 06777, 0600, 0,     02765, 04711, 0770, 07777};
	static const uint32_t ids[] = {0, 100, 200, 300, 500, 600};

	*s = (struct ns_setattr){
		.s_mode = modes[rnd(sizeof(modes) / sizeof(modes[0]))],
		.s_uid = ids[rnd(4)],
		.s_gid = ids[rnd(6)],
		.s_size = rnd(100000),
		.s_atime = {.t_sec = rnd(100000)},
		.s_mtime = {.t_sec = rnd(100000)},
	};
	for (unsigned k = 0; k <= rnd(3); k++)
		s->s_mask |= 1u << rnd(8);
	if (rnd(4) == 0)
		s->s_mask |= NS_S_SIZE | NS_S_HAS_WRITE;
	if ((s->s_mask & NS_S_SIZE) && rnd(3) == 0)
		s->s_mask |= NS_S_GROW_ONLY;
	if (rnd(10) == 0)
		s->s_mask |= NS_S_CTIME;
}

static void make(struct op *o)
{
	static const unsigned weights[KINDS] = {30, 20, 8, 20, 16, 8, 5, 5, 10};
	static const uint8_t types[] = {NS_REG, NS_REG,	 NS_REG,  NS_DIR, NS_DIR, NS_DIR,
					NS_LNK, NS_FIFO, NS_SOCK, NS_CHR, NS_BLK};
	unsigned pick = rnd(122);

	*o = (struct op){.o_kind = 0};
	while (pick >= weights[o->o_kind])
		pick -= weights[o->o_kind++];
	if (o->o_kind == CREATE && alive() > CROWDED)
		o->o_kind = REMOVE;
	o->o_name2 = rnd(NAMES);
	o->o_want = (unsigned[]){0, 0, NS_DIR, NS_REG}[rnd(4)];
	o->o_how = rnd(3);
	o->o_len = rnd(900);
	o->o_cr = &creds[rnd(3) ? 0 : rnd(4)];
	o->o_type = types[rnd(sizeof(types))];
	o->o_keep = rnd(2);
	make_setattr(&o->o_set);
	o->o_a = o->o_kind == CREATE || o->o_kind == REMOVE || o->o_kind == RENAME ||
				 o->o_kind == LOOKUP
			 ? any_dir()
			 : any();
	o->o_b = rnd(3) ? any_dir() : o->o_a;
	o->o_name = any_name(o->o_kind == CREATE || rnd(4) == 0 ? NULL : o->o_a);
}

struct step {
	unsigned s_ops;
	bool s_abort;
};

/* On the committer thread; the test waits. A refusal is no failure of the mutation: the next
 * operation of the step goes on. */
static int run_step(void *arg, struct kv_txn *t)
{
	struct step *s = arg;

	for (unsigned k = 0; k < s->s_ops; k++) {
		struct op o;
		int got, want;

		op_n++;
		tick++;
		make(&o);
		got = real(&o, t);
		if (s->s_abort)
			return got;
		want = model(&o);
		must(got == want, "kind %u on %lu and %lu as %u: %d, the model says %d", o.o_kind,
		     (unsigned long)o.o_a->n_ino, (unsigned long)o.o_b->n_ino, o.o_cr->cr_uid, got,
		     want);
	}
	return 0;
}

/* Comparing the whole */

struct listing {
	struct node *l_dir;
	unsigned l_n;
};

static int on_entry(void *arg, const struct ns_dirent *d)
{
	struct listing *l = arg;
	struct node *n;
	unsigned e;

	for (e = 0; e < NAMES; e++)
		if (strlen(names[e]) == d->d_len && !memcmp(names[e], d->d_name, d->d_len))
			break;
	must(e < NAMES, "directory %lu lists \"%.*s\"", (unsigned long)l->l_dir->n_ino,
	     (int)d->d_len, d->d_name);
	n = l->l_dir->n_ent[e];
	must(n && n->n_ino == d->d_ino && n->n_type == d->d_type, "directory %lu, entry \"%s\"",
	     (unsigned long)l->l_dir->n_ino, names[e]);
	l->l_n++;
	return 0;
}

static int on_xattr(void *arg, const char *name, size_t len)
{
	(void)name, (void)len;
	++*(unsigned *)arg;
	return 0;
}

static void compare_xattrs(struct kv_txn *t, struct node *n)
{
	unsigned want = 0, got = 0;
	struct kv_slice v;

	for (unsigned x = 0; x < XATTRS; x++) {
		int rc = ns_xattr_get(ns, t, n->n_ino, xnames[x], strlen(xnames[x]), &v);

		want += n->n_xattr[x] != 0;
		must(rc == (n->n_xattr[x] ? 0 : -ENODATA), "xattr %s of %lu: %d", xnames[x],
		     (unsigned long)n->n_ino, rc);
		must(rc || v.s_len == n->n_xattr[x] - 1, "xattr %s of %lu", xnames[x],
		     (unsigned long)n->n_ino);
	}
	must(ns_xattr_list(ns, t, n->n_ino, on_xattr, &got) == 0 && got == want, "xattrs of %lu",
	     (unsigned long)n->n_ino);
}

static void compare_node(struct kv_txn *t, struct node *n)
{
	unsigned long ino = n->n_ino;
	struct ns_inode i;
	int rc = ns_get(ns, t, n->n_ino, &i);

	must(rc == (n->n_dead ? -ESTALE : 0), "inode %lu: %d", ino, rc);
	if (rc)
		return;
	must(i.i_type == n->n_type && i.i_mode == n->n_mode,
	     "inode %lu: type %u, mode %o, model %o", ino, i.i_type, i.i_mode, n->n_mode);
	must(i.i_uid == n->n_uid && i.i_gid == n->n_gid && i.i_nlink == n->n_nlink,
	     "inode %lu: owner or links", ino);
	must(i.i_change == n->n_change, "inode %lu: change %lu, model %lu", ino,
	     (unsigned long)i.i_change, (unsigned long)n->n_change);
	must(i.i_atime.t_sec == n->n_atime && i.i_mtime.t_sec == n->n_mtime &&
		     i.i_ctime.t_sec == n->n_ctime && i.i_btime.t_sec == n->n_btime,
	     "inode %lu: times", ino);
	if (n->n_type == NS_DIR) {
		struct listing l = {.l_dir = n};
		bool eof;

		must(ns_readdir(ns, t, n->n_ino, 0, on_entry, &l, &eof) == 0 && eof,
		     "directory %lu", ino);
		must(l.l_n == entries(n) && i.i_entries == l.l_n, "directory %lu: %u entries", ino,
		     l.l_n);
		must(i.i_parent == n->n_parent->n_ino, "directory %lu: parent", ino);
	} else {
		must(i.i_size == n->n_size, "inode %lu: size", ino);
	}
	compare_xattrs(t, n);
}

static void on_violation(void *arg, const char *line)
{
	(void)arg;
	fprintf(stderr, "%s\n", line);
}

static void compare(void)
{
	struct ns_check_stats st;
	struct ns_counts c;
	struct kv_txn *t;

	must(kv_read_begin(kv, &t) == 0, "snapshot");
	for (unsigned k = 0; k < node_n; k++)
		compare_node(t, nodes[k]);
	must(ns_check(t, on_violation, NULL, &st) == 0 && st.cs_violations == 0, "the checker");
	must(st.cs_inodes == alive(), "%lu inodes, model %u", (unsigned long)st.cs_inodes, alive());
	must(ns_counts(ns, t, &c) == 0, "counts");
	kv_read_end(t);
}

static int on_batch(void *arg, const struct kv_writeset *ws)
{
	(void)arg;
	written = ws->ws_n;
	return commit_error;
}

static void open_store(void)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true};
	int rc = kv_open(&kv, dir, &o, err, sizeof(err));

	must(rc == 0, "%s", err);
	kv_set_batch_hook(kv, on_batch, NULL);
	rc = ns_open(&ns, kv, err, sizeof(err));
	must(rc == 0, "%s", err);
}

static void reopen(void)
{
	bool crash = rnd(2);

	if (!crash)
		ns_close(ns);
	kv_close(kv);
	if (crash)
		free(ns);
	open_store();
}

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *ftw)
{
	(void)st, (void)what, (void)ftw;
	return remove(path);
}

static void begin(void)
{
	const char *tmp = getenv("TMPDIR"), *given = getenv("NS_MODEL_SEED");
	struct kv_txn *t;
	struct ns_inode i;
	struct node *r;

	if (given)
		seed = strtoull(given, NULL, 0);
	else
		must(getrandom(&seed, sizeof(seed), 0) == sizeof(seed), "seed");
	state = seed | 1;
	printf("NS_MODEL_SEED=%lu\n", (unsigned long)seed);
	fflush(stdout);
	for (unsigned n = 0; n < NAMES; n++)
		snprintf(names[n], sizeof(names[n]), "%s%u", n % 2 ? "n" : "a name with \xc3\xbc ",
			 n);
	memset(names[NAMES - 1], 'N', NS_NAME_MAX);
	snprintf(dir, sizeof(dir), "%s/ns_model.XXXXXX", tmp ? tmp : "/tmp");
	must(mkdtemp(dir), "%s", dir);
	open_store();
	must(kv_read_begin(kv, &t) == 0 && ns_get(ns, t, NS_ROOT_INO, &i) == 0, "root");
	r = node_new();
	*r = (struct node){.n_ino = NS_ROOT_INO,
			   .n_type = NS_DIR,
			   .n_mode = 0755,
			   .n_nlink = 2,
			   .n_change = i.i_change,
			   .n_parent = r,
			   .n_atime = i.i_atime.t_sec,
			   .n_mtime = i.i_mtime.t_sec,
			   .n_ctime = i.i_ctime.t_sec,
			   .n_btime = i.i_btime.t_sec};
	kv_read_end(t);
	highest_ino = NS_ROOT_INO;
}

START_TEST(name_space_agrees_with_the_model)
{
	uint64_t ops = getenv("NS_MODEL_OPS") ? strtoull(getenv("NS_MODEL_OPS"), NULL, 0) : 20000,
		 aborted = 0, next = 1000;

	log_set_level(LOG_L_ERROR);
	begin();
	while (op_n < ops) {
		struct step s = {.s_ops = rnd(8) ? 1 : 1 + rnd(6), .s_abort = rnd(100) == 0};
		int rc;

		if (s.s_abort)
			s.s_ops = 1;
		written = 0;
		commit_error = s.s_abort ? -EIO : 0;
		rc = kv_run_sync(kv, run_step, &s);
		commit_error = 0;
		must(s.s_abort || rc == 0, "commit: %d", rc);
		must(!s.s_abort || !written || rc == -EIO, "refused commit: %d", rc);
		aborted += s.s_abort && written;
		if (rnd(400) == 0)
			reopen();
		if (op_n >= next) {
			compare();
			next += 1000;
		}
	}
	compare();
	must(ops < 1000 || aborted > 0, "no commit was refused");
	ns_close(ns);
	kv_close(kv);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ns model");
	TCase *c = tcase_create("model");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 0);
	tcase_add_test(c, name_space_agrees_with_the_model);
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
