/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_model.h - the model that ns_model_test.c compares mds/namespace with: names, attributes and
 * rules in plain arrays and pointers, written from POSIX' and Linux' rules. A function m_x does to
 * the model what the operation o does, and returns the errno that must come of it.
 */
#ifndef NS_MODEL_H
#define NS_MODEL_H
#include "base/log.h"
#include "mds/namespace/keys.h"
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES = 24, XATTRS = 5, NODES = 1500, CROWDED = 400, WALKS = 12, THREADS = 4, GROUP = 24 };

struct node {
	uint64_t n_ino, n_size, n_change, n_verifier;
	uint8_t n_type;
	uint16_t n_mode;
	uint32_t n_uid, n_gid, n_nlink;
	int64_t n_atime, n_mtime, n_ctime, n_btime;
	struct node *n_parent;
	struct node *n_ent[NAMES]; /* directories */
	uint64_t n_made[NAMES];	   /* of the entry: when it was linked */
	uint64_t n_cookie[NAMES];  /* of the entry, once it was listed */
	unsigned n_xattr[XATTRS];  /* the value's length + 1; 0: none */
	/* n_trash: in the trash, with this name of this directory, which may be gone. What is no
	 * regular file is dead there. */
	bool n_dead, n_orphan, n_trash;
	uint64_t n_was_in;
	unsigned n_was_name;
	unsigned n_walks; /* its place is not given to another while a walk is in it */
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

static void enter(struct node *d, unsigned name, struct node *n)
{
	static uint64_t links;

	d->n_ent[name] = n;
	d->n_made[name] = n ? ++links : 0;
	d->n_cookie[name] = 0;
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
	bool o_keep, o_trash;
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
		while (!nodes[at]->n_dead || nodes[at]->n_trash || nodes[at]->n_walks);
		free(nodes[at]);
	}
	nodes[at] = n;
	return n;
}

/* 0 where the name can be made in d. */
static int may_enter(const struct op *o, struct node *d)
{
	int rc = searchable(d, o->o_cr);

	if (rc)
		return rc;
	if (d->n_ent[o->o_name])
		return -EEXIST;
	return may(d, o->o_cr, 2) ? 0 : -EACCES;
}

static int m_create(struct op *o)
{
	struct node *d = o->o_a, *n;
	int rc = may_enter(o, d);

	if (rc)
		return rc;
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
	enter(d, o->o_name, n);
	d->n_nlink += n->n_type == NS_DIR;
	touched(d, true);
	n->n_ino = o->o_out.i_ino;
	must(n->n_ino > highest_ino, "inode number %lu was used before", (unsigned long)n->n_ino);
	highest_ino = n->n_ino;
	return 0;
}

/* A name of n in d is gone. */
static void m_drop(struct op *o, struct node *n, struct node *d, unsigned name)
{
	uint64_t expect_freed = 0;

	touched(n, false);
	n->n_nlink = n->n_type == NS_DIR ? 0 : n->n_nlink - 1;
	if (n->n_nlink == 0) {
		n->n_trash = o->o_trash &&
			     (n->n_type == NS_REG || n->n_type == NS_DIR || n->n_type == NS_LNK);
		n->n_was_in = d->n_ino;
		n->n_was_name = name;
		n->n_orphan = n->n_type == NS_REG && o->o_keep;
		n->n_dead = n->n_trash ? n->n_type != NS_REG : !n->n_orphan;
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
	enter(d, o->o_name, NULL);
	d->n_nlink -= n->n_type == NS_DIR;
	touched(d, true);
	m_drop(o, n, d, o->o_name);
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
	rc = may_enter(o, d);
	if (rc)
		return rc;
	if (n->n_type == NS_DIR)
		return -EISDIR;
	if (n->n_orphan || n->n_trash)
		return -ENOENT;
	enter(d, o->o_name, n);
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
	enter(s, o->o_name, NULL);
	enter(d, o->o_name2, n);
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
		m_drop(o, old, d, o->o_name2);
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

	if (n->n_dead || (n->n_trash && !n->n_orphan))
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
	uint64_t expect_freed = n->n_orphan && !n->n_dead && !n->n_trash ? n->n_ino : 0;

	must(o->o_freed == expect_freed, "freed the map of %lu, not %lu", (unsigned long)o->o_freed,
	     (unsigned long)expect_freed);
	if (expect_freed)
		n->n_dead = true;
	if (n->n_trash)
		n->n_orphan = false;
	return n->n_dead ? 0 : 1; /* 1: it has names, or is in the trash, and stays */
}

/* Finds what is there, or in the trash, with this number. */
static struct node *m_node(uint64_t ino)
{
	for (unsigned k = 0; k < node_n; k++)
		if (nodes[k]->n_ino == ino && (!nodes[k]->n_dead || nodes[k]->n_trash))
			return nodes[k];
	return NULL;
}

static int m_trash_drop(struct op *o)
{
	struct node *n = o->o_a;

	if (!n->n_trash)
		return -ENOENT;
	for (unsigned k = 0; n->n_type == NS_DIR && k < node_n; k++)
		if (nodes[k]->n_trash && nodes[k]->n_was_in == n->n_ino)
			return -ENOTEMPTY;
	n->n_trash = false;
	n->n_orphan = n->n_type == NS_REG;
	return 0;
}

static void m_restored(struct node *n, struct node *d, unsigned name)
{
	n->n_trash = n->n_dead = n->n_orphan = false;
	n->n_nlink = 1 + (n->n_type == NS_DIR);
	n->n_parent = d;
	touched(n, false);
	enter(d, name, n);
	d->n_nlink += n->n_type == NS_DIR;
	touched(d, true);
}

/* With o_want 0 where it was, else in o_b. */
static int m_trash_restore(struct op *o)
{
	struct node *n = o->o_a, *d = o->o_b, *up[NODES];
	unsigned name = o->o_name, ups = 0;

	if (!n->n_trash)
		return -ENOENT;
	if (o->o_want) {
		if (d->n_dead || d->n_type != NS_DIR)
			return d->n_dead ? -ESTALE : -ENOTDIR;
	} else {
		name = n->n_was_name;
		for (d = m_node(n->n_was_in); d && d->n_trash; d = m_node(d->n_was_in))
			up[ups++] = d;
		if (!d)
			return -ESTALE;
		/* The directories that have these names now. */
		while (ups && d->n_ent[up[ups - 1]->n_was_name]) {
			d = d->n_ent[up[--ups]->n_was_name];
			if (d->n_type != NS_DIR)
				return -ENOTDIR;
		}
	}
	if (!ups && d->n_ent[name])
		return -EEXIST;
	while (ups) {
		m_restored(up[ups - 1], d, up[ups - 1]->n_was_name);
		d = up[--ups];
	}
	m_restored(n, d, name);
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
#endif
