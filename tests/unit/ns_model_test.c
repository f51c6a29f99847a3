/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_model_test.c - random operations against the name space and against a simple model in memory.
 *
 * The model is written from POSIX' and Linux' rules, not from mds/namespace: arrays and pointers,
 * no keys. Results and attributes must agree after every step; the checker must find nothing, also
 * in the snapshots that a thread takes all the time. What is below each directory, and what each
 * user has there and in the trash, is added up from the model; sums are pushed at any time, and now
 * and then computed again. Some commits are refused (the store must be as before), some steps run
 * several operations in one mutation, some are many mutations that threads submit at once and that
 * share commits, and the store is closed, or left as by a crash, in between. Directories are listed
 * page by page while all this goes on.
 *
 * NS_MODEL_OPS (20000; a million with WEFT_SOAK) operations; NS_MODEL_SEED repeats a run: all
 * chance is drawn on the committer's thread or between steps, so threads do not change it.
 */
#include "mds/namespace/ns_sum.h"
#include "tests/unit/ns_model.h"
#include "tests/unit/unit.h"

/* The same on the real one */

enum {
	CREATE,
	REMOVE,
	LINK,
	RENAME,
	SETATTR,
	XSET,
	XREMOVE,
	ORPHAN_FREE,
	LOOKUP,
	TRASH_DROP,
	RESTORE,
	KINDS
};

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
	struct ns_free_ops fo = {.f_keep_open = keep_open,
				 .f_free_map = free_map,
				 .f_arg = o,
				 .f_keep_s = o->o_trash ? 1000 : 0,
				 .f_uid = o->o_cr->cr_uid};
	const char *n1 = names[o->o_name], *n2 = names[o->o_name2], *x = xnames[o->o_name % XATTRS];
	uint64_t a = o->o_a->n_ino, b = o->o_b->n_ino;
	struct ns_time now = {.t_sec = tick};
	struct ns_cinfo ci, ci2;
	struct ns_trash_back back;

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
	case TRASH_DROP:
		return ns_trash_drop(t, a);
	case RESTORE:
		return ns_trash_restore(ns, t, a, o->o_want ? b : 0, n1, strlen(n1), now, &back);
	default:
		return ns_lookup(ns, t, a, n1, strlen(n1), &o->o_out.i_ino, &o->o_out.i_type);
	}
}

static uint64_t restored, trash_dropped;

static int model(struct op *o)
{
	int rc;

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
	case TRASH_DROP:
		rc = m_trash_drop(o);
		trash_dropped += rc == 0;
		return rc;
	case RESTORE:
		rc = m_trash_restore(o);
		restored += rc == 0;
		return rc;
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

/* Mostly what is in the trash. */
static struct node *any_trash(void)
{
	struct node *n = any();

	for (unsigned k = 0; k < 200 && !n->n_trash; k++)
		n = nodes[rnd(node_n)];
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
	static const unsigned weights[KINDS] = {30, 20, 8, 20, 16, 8, 5, 5, 10, 6, 6};
	static const uint8_t types[] = {NS_REG, NS_REG,	 NS_REG,  NS_DIR, NS_DIR, NS_DIR,
					NS_LNK, NS_FIFO, NS_SOCK, NS_CHR, NS_BLK};
	unsigned pick = rnd(134);

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
	o->o_trash = rnd(3) == 0;
	make_setattr(&o->o_set);
	o->o_a = o->o_kind == CREATE || o->o_kind == REMOVE || o->o_kind == RENAME ||
				 o->o_kind == LOOKUP
			 ? any_dir()
		 : o->o_kind == TRASH_DROP || o->o_kind == RESTORE || rnd(4) == 0 ? any_trash()
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

/* Many mutations at once. Each is refused or not by itself, whatever its batch holds. */

struct member {
	struct kv_op m_op;
	struct step m_step;
	int m_want;
	_Atomic bool m_done;
};
struct crowd {
	pthread_t c_thread;
	struct member c_v[GROUP];
	unsigned c_n;
};

static int member_run(struct kv_op *op, struct kv_txn *t)
{
	struct member *m = (struct member *)op;
	struct op o;
	int got;

	op_n++;
	tick++;
	make(&o);
	got = real(&o, t);
	if (m->m_step.s_abort)
		return got;
	m->m_want = model(&o);
	must(got == m->m_want, "kind %u in a group: %d, the model says %d", o.o_kind, got,
	     m->m_want);
	/* 1: the orphan that was not freed has names. That is no error of the mutation. */
	if (got > 0)
		got = m->m_want = 0;
	return got;
}

static void member_done(struct kv_op *op, int err)
{
	struct member *m = (struct member *)op;

	must(m->m_step.s_abort || err == m->m_want, "a member of a group: %d, the model says %d",
	     err, m->m_want);
	m->m_done = true;
}

static void *crowd_run(void *arg)
{
	struct crowd *c = arg;

	for (unsigned i = 0; i < c->c_n; i++)
		kv_submit(kv, &c->c_v[i].m_op);
	for (unsigned i = 0; i < c->c_n; i++)
		while (!c->c_v[i].m_done)
			usleep(50);
	return NULL;
}

static void group(bool refused)
{
	static struct crowd crowd[THREADS];

	for (unsigned k = 0; k < THREADS; k++) {
		crowd[k].c_n = 1 + rnd(GROUP - 1);
		for (unsigned i = 0; i < crowd[k].c_n; i++)
			crowd[k].c_v[i] = (struct member){
				.m_op = {.o_run = member_run, .o_done = member_done},
				.m_step = {.s_abort = refused}};
	}
	commit_error = refused ? -EIO : 0;
	for (unsigned k = 0; k < THREADS; k++)
		must(pthread_create(&crowd[k].c_thread, NULL, crowd_run, &crowd[k]) == 0, "thread");
	for (unsigned k = 0; k < THREADS; k++)
		pthread_join(crowd[k].c_thread, NULL);
	commit_error = 0;
}

/* Listing while others change. What is there from the first page to the last comes once; nothing
 * comes that is not there when its page is read; cookies rise, and an entry keeps its own as long
 * as it lives. */

struct walk {
	struct node *w_dir;
	uint64_t w_cookie, w_made[NAMES], w_seen[NAMES];
	unsigned w_page;
};
static struct walk walks[WALKS];
static uint64_t walked, walks_across;

static unsigned name_index(const struct ns_dirent *d)
{
	unsigned e = 0;

	while (e < NAMES && (strlen(names[e]) != d->d_len || memcmp(names[e], d->d_name, d->d_len)))
		e++;
	must(e < NAMES, "listed: \"%.*s\"", (int)d->d_len, d->d_name);
	return e;
}

static int on_walk(void *arg, const struct ns_dirent *d)
{
	struct walk *w = arg;
	struct node *dir = w->w_dir;
	unsigned e = name_index(d);

	if (w->w_page-- == 0)
		return 1;
	must(dir->n_ent[e] && dir->n_ent[e]->n_ino == d->d_ino, "directory %lu lists \"%s\"",
	     (unsigned long)dir->n_ino, names[e]);
	must(d->d_cookie > w->w_cookie && d->d_cookie > 2, "cookie %lu after %lu",
	     (unsigned long)d->d_cookie, (unsigned long)w->w_cookie);
	must(!dir->n_cookie[e] || dir->n_cookie[e] == d->d_cookie,
	     "the cookie of \"%s\" has changed", names[e]);
	must(w->w_seen[e] != dir->n_made[e], "directory %lu: \"%s\" twice",
	     (unsigned long)dir->n_ino, names[e]);
	dir->n_cookie[e] = w->w_cookie = d->d_cookie;
	w->w_seen[e] = dir->n_made[e];
	return 0;
}

static void walk_end(struct walk *w)
{
	for (unsigned e = 0; e < NAMES; e++) {
		bool stayed = w->w_made[e] && w->w_made[e] == w->w_dir->n_made[e];

		must(!stayed || w->w_seen[e] == w->w_made[e],
		     "directory %lu: \"%s\" was always there and was not listed",
		     (unsigned long)w->w_dir->n_ino, names[e]);
	}
	w->w_dir->n_walks--;
	w->w_dir = NULL;
	walked++;
}

/* A page of some walk; or a new one begins. */
static void walk(void)
{
	struct walk *w = &walks[rnd(WALKS)];
	struct kv_txn *t;
	bool eof;
	int rc;

	if (!w->w_dir) {
		*w = (struct walk){.w_dir = any_dir()};
		w->w_dir->n_walks++;
		if (!w->w_dir->n_dead && w->w_dir->n_type == NS_DIR)
			memcpy(w->w_made, w->w_dir->n_made, sizeof(w->w_made));
	}
	w->w_page = 1 + rnd(4);
	walks_across += w->w_cookie != 0;
	must(kv_read_begin(kv, &t) == 0, "snapshot");
	rc = ns_readdir(ns, t, w->w_dir->n_ino, w->w_cookie, on_walk, w, &eof);
	kv_read_end(t);
	if (w->w_dir->n_dead || w->w_dir->n_type != NS_DIR) {
		must(rc == (w->w_dir->n_dead ? -ESTALE : -ENOTDIR), "listing of %lu: %d",
		     (unsigned long)w->w_dir->n_ino, rc);
		w->w_dir->n_walks--;
		w->w_dir = NULL;
		return;
	}
	must(rc == 0, "listing of %lu: %d", (unsigned long)w->w_dir->n_ino, rc);
	if (eof)
		walk_end(w);
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
	unsigned e = name_index(d);

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

/* What the model has below each directory, and of each user. A file with several names counts in
 * the directory that its inode says; the checker sees that it has a name there. */

static int by_ino(const void *a, const void *b)
{
	const struct node *const *x = a, *const *y = b;

	return (*x)->n_ino < (*y)->n_ino ? -1 : (*x)->n_ino > (*y)->n_ino;
}

struct user_sum {
	uint32_t us_id;
	struct ns_sum us_model, us_real, us_trash, us_real_trash;
};
static struct user_sum user_sums[64];
static unsigned user_sum_n;

static struct user_sum *user_sum(uint32_t uid)
{
	for (unsigned k = 0; k < user_sum_n; k++)
		if (user_sums[k].us_id == uid)
			return &user_sums[k];
	must(user_sum_n < 64, "users");
	user_sums[user_sum_n] = (struct user_sum){.us_id = uid};
	return &user_sums[user_sum_n++];
}

static int on_user(void *arg, uint32_t uid, const struct ns_sum *s, const struct ns_sum *trash)
{
	struct user_sum *u = user_sum(uid);

	(void)arg;
	must(ns_sum_zero(&u->us_real) && ns_sum_zero(&u->us_real_trash), "user %u twice", uid);
	u->us_real = *s;
	u->us_real_trash = *trash;
	return 0;
}

static struct node *node_at(struct node **v, unsigned n, uint64_t ino)
{
	struct node key = {.n_ino = ino}, *p = &key, **found;

	found = bsearch(&p, v, n, sizeof(*v), by_ino);
	must(found, "no directory %lu", (unsigned long)ino);
	return *found;
}

/* Its room is that of the store: the model does not know it. */
static struct ns_sum counts(struct kv_txn *t, const struct node *n)
{
	struct ns_sum s = {.sum_files = n->n_type != NS_DIR, .sum_dirs = n->n_type == NS_DIR};
	struct ns_inode i;

	if (n->n_type == NS_REG && !n->n_dead) {
		must(ns_get(ns, t, n->n_ino, &i) == 0, "inode");
		s.sum_bytes = n->n_size;
		s.sum_stored = i.i_used;
	}
	return s;
}

static void compare_sums(struct kv_txn *t)
{
	static struct node *v[NODES];
	static struct ns_sum sums[NODES];
	struct ns_du *du;
	unsigned n = 0;

	user_sum_n = 0;
	for (unsigned k = 0; k < node_n; k++) {
		struct ns_sum s = counts(t, nodes[k]);

		if (nodes[k]->n_trash)
			ns_sum_plus(&user_sum(nodes[k]->n_uid)->us_trash, &s);
		else if (!nodes[k]->n_dead && !nodes[k]->n_orphan)
			v[n++] = nodes[k];
	}
	qsort(v, n, sizeof(*v), by_ino);
	memset(sums, 0, sizeof(sums));
	for (unsigned k = 0; k < n; k++) {
		struct ns_inode i;
		struct ns_sum s;
		struct node *up;

		if (v[k]->n_ino == NS_ROOT_INO)
			continue;
		must(ns_get(ns, t, v[k]->n_ino, &i) == 0, "inode");
		s = counts(t, v[k]);
		ns_sum_plus(&user_sum(v[k]->n_uid)->us_model, &s);
		for (up = node_at(v, n, i.i_parent);; up = up->n_parent) {
			for (unsigned at = 0;; at++)
				if (nodes[at] == up) {
					ns_sum_plus(&sums[at], &s);
					break;
				}
			if (up->n_ino == NS_ROOT_INO)
				break;
		}
	}
	must(ns_du_begin(&du, ns, t) == 0, "du");
	for (unsigned k = 0; k < node_n; k++) {
		struct ns_sum s;

		if (nodes[k]->n_dead || nodes[k]->n_type != NS_DIR)
			continue;
		must(ns_du_get(du, nodes[k]->n_ino, &s) == 0, "du of a directory");
		must(ns_sum_same(&s, &sums[k]), "directory %lu: %lu files, the model has %lu",
		     (unsigned long)nodes[k]->n_ino, (unsigned long)s.sum_files,
		     (unsigned long)sums[k].sum_files);
	}
	must(ns_du_users(du, on_user, NULL) == 0, "du of users");
	for (unsigned k = 0; k < user_sum_n; k++) {
		struct user_sum *u = &user_sums[k];

		must(ns_sum_same(&u->us_model, &u->us_real),
		     "user %u: %lu files, the model has %lu", u->us_id,
		     (unsigned long)u->us_real.sum_files, (unsigned long)u->us_model.sum_files);
		must(ns_sum_same(&u->us_trash, &u->us_real_trash),
		     "user %u: %lu files in the trash, the model has %lu", u->us_id,
		     (unsigned long)u->us_real_trash.sum_files,
		     (unsigned long)u->us_trash.sum_files);
	}
	ns_du_end(du);
}

static uint64_t folds, pushed_all;

static int fold_step(void *arg, struct kv_txn *t)
{
	return ns_sum_fold(ns, t, arg);
}

/* Pushes some sums, or all of them. */
static void push_sums(void)
{
	uint64_t from = rnd(4) ? 1 + rnd((unsigned)highest_ino) : 0;
	bool all = rnd(8) == 0;

	do {
		must(kv_run_sync(kv, fold_step, &from) == 0, "fold");
		folds++;
	} while (all && atomic_load(&ns->n_unpushed) > 0);
	pushed_all += all;
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
	compare_sums(t);
	must(ns_counts(ns, t, &c) == 0, "counts");
	kv_read_end(t);
}

/* Every snapshot is whole, whenever it is taken. */
static pthread_mutex_t store_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool watching;
static uint64_t watched;

static void *watch(void *arg)
{
	(void)arg;
	while (watching) {
		struct ns_check_stats st;
		struct kv_txn *t;

		pthread_mutex_lock(&store_lock);
		must(kv_read_begin(kv, &t) == 0 && ns_check(t, on_violation, NULL, &st) == 0 &&
			     st.cs_violations == 0,
		     "a snapshot");
		kv_read_end(t);
		pthread_mutex_unlock(&store_lock);
		watched++;
		usleep(2000);
	}
	return NULL;
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

	pthread_mutex_lock(&store_lock);
	if (!crash)
		ns_close(ns);
	kv_close(kv);
	if (crash)
		free(ns);
	open_store();
	if (rnd(4) == 0)
		must(ns_sum_rebuild(ns, NULL) == 0, "rebuild");
	pthread_mutex_unlock(&store_lock);
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
	snprintf(dir, sizeof(dir), "%s/ns_model.XXXXXX",
		 tmp			    ? tmp
		 : access("/dev/shm", W_OK) ? "/tmp"
					    : "/dev/shm");
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
	uint64_t ops = getenv("WEFT_SOAK") ? 1000000 : 20000, aborted = 0, next = 1000;
	pthread_t watcher;
	struct kv_stats stats;

	log_set_level((enum log_level) - 1); /* refused commits are logged as errors */
	if (getenv("NS_MODEL_OPS"))
		ops = strtoull(getenv("NS_MODEL_OPS"), NULL, 0);
	begin();
	watching = true;
	must(pthread_create(&watcher, NULL, watch, NULL) == 0, "thread");
	while (op_n < ops) {
		struct step s = {.s_ops = rnd(8) ? 1 : 1 + rnd(6), .s_abort = rnd(100) == 0};
		int rc;

		if (rnd(3) == 0)
			walk();
		if (rnd(60) == 0)
			group(rnd(10) == 0);
		if (rnd(30) == 0)
			push_sums();
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
	watching = false;
	pthread_join(watcher, NULL);
	kv_stats(kv, &stats);
	fprintf(stderr,
		"# %lu operations, %lu listings in %lu pages behind a first, %lu snapshots "
		"checked; %lu taken out of the trash, %lu freed from it; mutations per commit "
		"since "
		"the store was opened: %.1f\n",
		(unsigned long)op_n, (unsigned long)walked, (unsigned long)walks_across,
		(unsigned long)watched, (unsigned long)restored, (unsigned long)trash_dropped,
		(double)stats.ks_ops / (double)(stats.ks_commits ? stats.ks_commits : 1));
	must(ops < 1000 ||
		     (aborted > 0 && walked > 50 && walks_across > walked / 4 && watched > 5 &&
		      folds > 20 && pushed_all > 0 && restored > 20 && trash_dropped > 20),
	     "nothing was proved");
	ns_close(ns);
	kv_close(kv);
	scratch_remove(dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ns model");
	TCase *c = tcase_create("model");

	tcase_set_timeout(c, 0);
	tcase_add_test(c, name_space_agrees_with_the_model);
	suite_add_tcase(s, c);
	return unit_run(s);
}
