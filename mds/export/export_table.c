/* SPDX-License-Identifier: Apache-2.0 */
/* export_table.c - finds the directory of a path, and what a peer may do by the rule that it
 * matches. */
#include "mds/export/export_table.h"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PRIVILEGED_END 1024
#define COOKIE_FIRST   8u    /* cookies 0 to 2 have a meaning of their own */
#define UP_MAX	       4096u /* directories between a directory and its export's root */

/* ---- directories ---- */

static int make_dir(struct ns *ns, struct kv_txn *txn, uint64_t dir, const char *name, size_t len,
		    struct ns_time now, uint64_t *ino)
{
	struct ns_create_args a = {.a_dir = dir, .a_name = name, .a_len = len, .a_now = now};
	static const struct ns_cred root;
	uint8_t blob[NS_BLOB_MAX];
	struct ns_inode made;
	struct ns_cinfo ci;
	int err;

	a.a_cred = &root;
	a.a_attr.i_type = NS_DIR;
	a.a_attr.i_mode = 0755;
	err = ns_create(ns, txn, &a, &made, blob, &ci);
	*ino = made.i_ino;
	return err;
}

/* Calls fn with each directory on the way to path: the root first, the path's own directory last.
 * -ENOENT, -ENOTDIR: the path leads nowhere. */
static int export_table_walk(struct ns *ns, struct kv_txn *txn, const char *path, bool create,
			     struct ns_time now,
			     int (*fn)(void *arg, const struct exp_pin *at, bool last), void *arg)
{
	struct exp_pin at = {.p_ino = NS_ROOT_INO, .p_root = -1, .p_owner = -1};
	uint8_t type;
	int err;

	for (;;) {
		size_t len;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		err = fn ? fn(arg, &at, !len) : 0;
		if (err || !len)
			return err;
		at.p_parent = at.p_ino;
		at.p_name = path;
		at.p_len = len;
		err = ns_lookup(ns, txn, at.p_parent, path, len, &at.p_ino, &type);
		if (err == -ENOENT && create) {
			type = NS_DIR;
			err = make_dir(ns, txn, at.p_parent, path, len, now, &at.p_ino);
		}
		if (err)
			return err;
		if (type != NS_DIR)
			return -ENOTDIR;
		path += len;
	}
}

struct pinning {
	struct exp_table *t;
	unsigned exp;
};

static int export_table_pin_add(void *arg, const struct exp_pin *new, bool last)
{
	struct pinning *k = arg;
	struct exp_table *t = k->t;
	unsigned at = 0;

	while (at < t->xt_npins && t->xt_pin[at].p_ino < new->p_ino)
		at++;
	if (at == t->xt_npins || t->xt_pin[at].p_ino != new->p_ino) {
		struct exp_pin *v = reallocarray(t->xt_pin, t->xt_npins + 1, sizeof(*v));

		if (!v)
			return -ENOMEM;
		t->xt_pin = v;
		memmove(v + at + 1, v + at, (t->xt_npins - at) * sizeof(*v));
		v[at] = *new;
		t->xt_npins++;
	}
	t->xt_pin[at].p_below |= UINT64_C(1) << k->exp;
	if (!last)
		return 0;
	t->xt_pin[at].p_root = (int)k->exp;
	t->xt_exp[k->exp].e_root = new->p_ino;
	return 0;
}

/* The second walk: gives each directory the innermost export root on the way to it. */
static int pin_own(void *arg, const struct exp_pin *at, bool last)
{
	struct pinning *k = arg;
	struct exp_pin *p = (struct exp_pin *)exp_pin(k->t, at->p_ino);

	(void)last;
	if (p->p_root >= 0)
		k->exp = (unsigned)p->p_root;
	if (k->exp < k->t->xt_n)
		p->p_owner = (int)k->exp;
	return 0;
}

int export_resolve(struct exp_table *t, struct ns *ns, struct kv_txn *txn, bool create,
		   struct ns_time now)
{
	t->xt_sec = now.t_sec;
	t->xt_nsec = now.t_nsec;
	for (unsigned i = 0; i < t->xt_n; i++) {
		struct exp *e = &t->xt_exp[i];
		struct pinning k = {t, i};
		int err = export_table_walk(ns, txn, e->e_path, create && e->e_create, now, NULL,
					    NULL);

		if (!err)
			err = export_table_walk(ns, txn, e->e_path, false, now,
						export_table_pin_add, &k);
		if (err == -ENOENT || err == -ENOTDIR)
			log_warn("export \"%s\": no such directory: not served until a reload "
				 "finds it",
				 e->e_path);
		else if (err)
			return err;
	}
	for (unsigned i = 0; i < t->xt_n; i++) {
		struct pinning k = {t, t->xt_n};

		if (t->xt_exp[i].e_root)
			export_table_walk(ns, txn, t->xt_exp[i].e_path, false, now, pin_own, &k);
	}
	t->xt_plain = t->xt_n == 1 && t->xt_exp[0].e_id == 0 && t->xt_exp[0].e_root == NS_ROOT_INO;
	return 0;
}

static bool same_rule(const struct exp_rule *a, const struct exp_rule *b)
{
	return a->r_ro == b->r_ro && a->r_privileged == b->r_privileged &&
	       a->r_squash == b->r_squash && a->r_tls == b->r_tls && a->r_layouts == b->r_layouts &&
	       a->r_anon_uid == b->r_anon_uid && a->r_anon_gid == b->r_anon_gid &&
	       a->r_nsec == b->r_nsec && memcmp(a->r_sec, b->r_sec, a->r_nsec) == 0;
}

bool exp_same(const struct exp *a, const struct exp *b)
{
	bool same = a->e_root == b->e_root && a->e_nwho == b->e_nwho && a->e_nrules == b->e_nrules;

	for (unsigned i = 0; same && i < a->e_nrules; i++)
		same = same_rule(&a->e_rule[i], &b->e_rule[i]);
	for (unsigned i = 0; same && i < a->e_nwho; i++) {
		const struct exp_who *x = &a->e_who[i], *y = &b->e_who[i];

		same = x->w_kind == y->w_kind && x->w_rule == y->w_rule &&
		       strcmp(x->w_text, y->w_text) == 0;
	}
	return same;
}

const struct exp_pin *exp_pin(const struct exp_table *t, uint64_t ino)
{
	unsigned lo = 0, hi = t->xt_npins;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if (t->xt_pin[mid].p_ino < ino)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < t->xt_npins && t->xt_pin[lo].p_ino == ino ? &t->xt_pin[lo] : NULL;
}

/* ---- views ---- */

/* Which of a rule's flavours this connection may use. The port matters only for flavours that prove
 * nothing better. */
static uint8_t grant_ok(const struct exp_rule *r, uint16_t port, enum exp_tls tls)
{
	uint8_t ok = 0;

	if (tls < r->r_tls)
		return 0;
	for (unsigned i = 0; i < r->r_nsec; i++) {
		if (r->r_privileged && r->r_sec[i] <= EXP_SYS && port >= PRIVILEGED_END)
			continue;
		ok |= (uint8_t)(1u << r->r_sec[i]);
	}
	return ok;
}

const struct exp_grant exp_unknown = {.g_ro = true};

/* Numbers of exports by place, plus one; 0: free. */
static _Atomic uint32_t slots[EXP_SLOTS];

static uint8_t slot_of(uint16_t id)
{
	for (unsigned i = 1; i < EXP_SLOTS - 1; i++) {
		uint32_t was = 0;

		if (atomic_compare_exchange_strong(&slots[i], &was, id + 1u) || was == id + 1u)
			return (uint8_t)i;
	}
	return EXP_SLOTS - 1;
}

int export_slot_id(unsigned slot)
{
	return (int)atomic_load(&slots[slot]) - 1;
}

struct exp_view *export_view_new(struct exp_table *t, const uint8_t addr[16], uint16_t port,
				 enum exp_tls tls, const uint8_t *match)
{
	struct exp_view *v = calloc(1, sizeof(*v) + t->xt_n * sizeof(v->v_grant[0]));

	if (!v)
		return NULL;
	v->v_refs = 1;
	v->v_table = exp_get(t);
	v->v_tls = tls;
	v->v_pseudo = (struct exp_grant){.g_ro = true, .g_ok = 0xff};
	for (unsigned i = 0; i < t->xt_n; i++) {
		const struct exp *e = &t->xt_exp[i];
		bool unknown = false;
		const struct exp_rule *r = e->e_root ? exp_match(e, addr, match, &unknown) : NULL;

		v->v_unknown |= (uint64_t)unknown << i;
		if (!r)
			continue;
		v->v_usable |= UINT64_C(1) << i;
		v->v_grant[i] = (struct exp_grant){.g_rule = r,
						   .g_root = e->e_root,
						   .g_id = e->e_id,
						   .g_slot = slot_of(e->e_id),
						   .g_ok = grant_ok(r, port, tls),
						   .g_ro = r->r_ro};
	}
	return v;
}

void export_view_put(struct exp_view *v)
{
	if (!v || --v->v_refs)
		return;
	exp_put(v->v_table);
	free(v);
}

static const struct exp_grant *usable(const struct exp_view *v, int exp)
{
	if (exp >= 0 && v->v_unknown >> exp & 1)
		return &exp_unknown;
	return exp >= 0 && v->v_usable >> exp & 1 ? &v->v_grant[exp] : NULL;
}

/* The grant of a directory that leads to an export that the peer may use, or may be able to use
 * when more is known. Otherwise NULL. */
static const struct exp_grant *pseudo(const struct exp_view *v, const struct exp_pin *p)
{
	if (p && p->p_below & v->v_usable)
		return &v->v_pseudo;
	return p && p->p_below & v->v_unknown ? &exp_unknown : NULL;
}

const struct exp_grant *exp_of_handle(const struct exp_view *v, uint16_t id, uint64_t ino)
{
	const struct exp_table *t = v->v_table;
	const struct exp_grant *g = NULL;
	const struct exp_pin *p;
	int at = 0;

	while (at < (int)t->xt_n && t->xt_exp[at].e_id != id)
		at++;
	if (at < (int)t->xt_n)
		g = usable(v, at);
	if (t->xt_plain && g)
		return g;
	p = exp_pin(t, ino);
	/* An export's root, or a directory that leads to one, has one place. Under an older table
	 * it may have had another. */
	if (g && (!p || p->p_owner == at))
		return g;
	if (id)
		return NULL;
	return ino == NS_ROOT_INO ? &v->v_pseudo : pseudo(v, p);
}

const struct exp_grant *exp_root(const struct exp_view *v)
{
	const struct exp_pin *p = exp_pin(v->v_table, NS_ROOT_INO);
	const struct exp_grant *g = p ? usable(v, p->p_root) : NULL;

	return g ? g : &v->v_pseudo;
}

const struct exp_grant *exp_down(const struct exp_view *v, const struct exp_grant *from,
				 uint64_t ino)
{
	const struct exp_table *t = v->v_table;
	const struct exp_pin *p = t->xt_plain ? NULL : exp_pin(t, ino);

	if (!p)
		return exp_is_pseudo(from) ? NULL : from;
	if (p->p_root >= 0)
		return usable(v, p->p_root) ? usable(v, p->p_root) : pseudo(v, p);
	return exp_is_pseudo(from) ? pseudo(v, p) : from;
}

/* The pins are ordered by inode number, and the cookies are made of these numbers: they stay the
 * same over reloads. */
int exp_pseudo_readdir(const struct exp_view *v, uint64_t dir, uint64_t after,
		       int (*fn)(void *arg, const struct ns_dirent *d), void *arg, bool *eof)
{
	const struct exp_table *t = v->v_table;

	*eof = false;
	for (unsigned i = 0; i < t->xt_npins; i++) {
		const struct exp_pin *p = &t->xt_pin[i];
		struct ns_dirent d = {.d_cookie = p->p_ino + COOKIE_FIRST,
				      .d_ino = p->p_ino,
				      .d_type = NS_DIR,
				      .d_name = p->p_name,
				      .d_len = p->p_len};

		if (p->p_parent != dir || d.d_cookie <= after ||
		    !exp_down(v, &v->v_pseudo, p->p_ino))
			continue;
		if (fn(arg, &d))
			return 0;
	}
	*eof = true;
	return 0;
}

const struct exp_grant *exp_up(const struct exp_view *v, const struct exp_grant *from, uint64_t dir,
			       uint64_t parent, struct ns *ns, struct kv_txn *txn)
{
	const struct exp_pin *p = exp_pin(v->v_table, parent);
	struct ns_inode i;

	if (exp_is_pseudo(from) || from->g_root == dir) {
		if (p && usable(v, p->p_owner))
			return usable(v, p->p_owner);
		return parent == NS_ROOT_INO ? &v->v_pseudo : pseudo(v, p);
	}
	/* A handle must not climb out of its export, wherever the directory lies by now. */
	for (unsigned n = 0; from->g_root != NS_ROOT_INO && parent != from->g_root; n++) {
		if (parent == NS_ROOT_INO || n == UP_MAX || ns_get(ns, txn, parent, &i))
			return NULL;
		parent = i.i_parent;
	}
	return from;
}

/* The pseudo file system accepts every flavour. It offers the flavours of the exports that can be
 * reached, as far as these are known. */
unsigned exp_secs(const struct exp_view *v, const struct exp_grant *g, uint8_t out[EXP_SECS])
{
	unsigned n = 0, seen = 0;

	for (unsigned i = 0; i < v->v_table->xt_n; i++) {
		const struct exp_grant *one = exp_is_pseudo(g)	    ? usable(v, (int)i)
					      : &v->v_grant[i] == g ? g
								    : NULL;

		for (unsigned k = 0; one && one != &exp_unknown && k < one->g_rule->r_nsec; k++) {
			unsigned s = one->g_rule->r_sec[k];

			if ((seen >> s & 1) || !(one->g_ok >> s & 1))
				continue;
			seen |= 1u << s;
			out[n++] = (uint8_t)s;
		}
	}
	return n;
}
