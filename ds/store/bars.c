/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bars.c - the numbers of barred clients, in memory (docs/fencing.md, "What a data server keeps of
 * bars").
 *
 * Client numbers only rise, the MDS never uses one twice, and most of the clients that had one are
 * dead. So this file keeps bits, in leaves; the first bit of a leaf creates it. One shared full
 * leaf replaces each leaf whose numbers are all barred, and one shared full branch replaces each
 * full branch. Barring a number copies nothing, and a lookup is three loads, however many bars
 * there are.
 *
 * A lookup takes no lock: leaves and branches are freed only after an RCU grace period. A bit that
 * is set stays set: the full leaf or branch that replaces another has all bits set.
 */
#include "base/rcu.h"
#include "ds/store/store_int.h"
#include <errno.h>
#include <stdlib.h>

#define WORDS	    8u
#define LEAF_BITS   9u	/* of a number: the bit of the leaf */
#define BRANCH_BITS 11u /* the leaf of the branch; the bits above say which branch */
#define BRANCHES    (1u << (32 - BRANCH_BITS - LEAF_BITS))
#define LEAVES	    (1u << BRANCH_BITS)
#define IN_LEAF	    (1u << LEAF_BITS)
#define IN_BRANCH   (1u << (LEAF_BITS + BRANCH_BITS))
_Static_assert(WORDS * 64 == IN_LEAF, "a leaf has a bit for each of its numbers");

struct bar_leaf {
	_Atomic uint64_t bl_word[WORDS];
	struct bar_leaf *bl_next; /* in ba_old_leaves */
};

struct bar_branch {
	_Atomic(struct bar_leaf *) bb_leaf[LEAVES];
	struct bar_branch *bb_next; /* in ba_old_branches */
};

struct ds_bars {
	pthread_mutex_t ba_lock; /* held over changes */
	_Atomic size_t ba_runs;	 /* number of ranges of barred numbers */
	_Atomic size_t ba_bytes;
	struct bar_leaf *ba_old_leaves;
	struct bar_branch *ba_old_branches;
	struct bar_leaf ba_full_leaf;	  /* shared: stands for each full leaf */
	struct bar_branch ba_full_branch; /* shared: stands for each full branch */
	_Atomic(struct bar_branch *) ba_branch[BRANCHES];
};

int ds_bars_open(struct ds_fs *f)
{
	struct ds_bars *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	pthread_mutex_init(&b->ba_lock, NULL);
	for (unsigned w = 0; w < WORDS; w++)
		atomic_store(&b->ba_full_leaf.bl_word[w], UINT64_MAX);
	for (unsigned l = 0; l < LEAVES; l++)
		atomic_store(&b->ba_full_branch.bb_leaf[l], &b->ba_full_leaf);
	atomic_store(&b->ba_bytes, sizeof(*b));
	f->fs_bars = b;
	return 0;
}

/* ---- freeing leaves and branches ---- */

/* With ba_lock held. Lookups may still use l. */
static void leaf_drop(struct ds_bars *b, struct bar_leaf *l)
{
	if (!l || l == &b->ba_full_leaf)
		return;
	l->bl_next = b->ba_old_leaves;
	b->ba_old_leaves = l;
	atomic_fetch_sub(&b->ba_bytes, sizeof(*l));
}

static void branch_drop(struct ds_bars *b, struct bar_branch *br)
{
	if (!br || br == &b->ba_full_branch)
		return;
	for (unsigned l = 0; l < LEAVES; l++)
		leaf_drop(b, atomic_load(&br->bb_leaf[l]));
	br->bb_next = b->ba_old_branches;
	b->ba_old_branches = br;
	atomic_fetch_sub(&b->ba_bytes, sizeof(*br));
}

/* Frees what no lookup uses any more. */
static void free_all(struct bar_leaf *leaves, struct bar_branch *branches)
{
	for (struct bar_leaf *l; (l = leaves);) {
		leaves = l->bl_next;
		free(l);
	}
	for (struct bar_branch *br; (br = branches);) {
		branches = br->bb_next;
		free(br);
	}
}

void ds_bars_close(struct ds_fs *f)
{
	struct ds_bars *b = f->fs_bars;

	if (!b)
		return;
	for (unsigned i = 0; i < BRANCHES; i++)
		branch_drop(b, atomic_load(&b->ba_branch[i]));
	free_all(b->ba_old_leaves, b->ba_old_branches);
	pthread_mutex_destroy(&b->ba_lock);
	free(b);
	f->fs_bars = NULL;
}

/* ---- lookup ---- */

static bool barred(struct ds_bars *b, uint32_t client)
{
	struct bar_branch *br = atomic_load(&b->ba_branch[client / IN_BRANCH]);
	struct bar_leaf *l = br ? atomic_load(&br->bb_leaf[client / IN_LEAF % LEAVES]) : NULL;

	return l && atomic_load(&l->bl_word[client / 64 % WORDS]) >> client % 64 & 1;
}

/* Runs for each READ and WRITE. A write first counts itself and then looks here; an order that bars
 * first sets the bit and then waits for counted writes. So one of them always sees the other. */
bool ds_store_barred(struct ds_fs *f, uint32_t client)
{
	bool found;

	urcu_memb_read_lock();
	found = barred(f->fs_bars, client);
	urcu_memb_read_unlock();
	return found;
}

size_t ds_store_bars(struct ds_fs *f, size_t *bytes)
{
	*bytes = atomic_load(&f->fs_bars->ba_bytes);
	return atomic_load(&f->fs_bars->ba_runs);
}

/* The range that a walk is in. */
struct walk {
	void (*wk_run)(void *arg, uint32_t first, uint32_t last);
	void *wk_arg;
	uint64_t wk_first;
	bool wk_open;
};

/* All numbers from `from` up to the next call's are barred (bars), or none is. */
static void walk_at(struct walk *w, uint64_t from, bool bars)
{
	if (bars && !w->wk_open)
		w->wk_first = from;
	else if (!bars && w->wk_open)
		w->wk_run(w->wk_arg, (uint32_t)w->wk_first, (uint32_t)(from - 1));
	w->wk_open = bars;
}

static void walk_leaf(struct walk *w, struct bar_leaf *l, uint64_t from)
{
	for (unsigned i = 0; i < WORDS; i++, from += 64) {
		uint64_t word = atomic_load(&l->bl_word[i]);

		if (word == 0 || word == UINT64_MAX) {
			walk_at(w, from, word);
			continue;
		}
		for (unsigned bit = 0; bit < 64; bit++)
			walk_at(w, from + bit, word >> bit & 1);
	}
}

/* With ba_lock held. Calls run for every range, in ascending order. */
static void bars_walk(struct ds_bars *b, void (*run)(void *arg, uint32_t first, uint32_t last),
		      void *arg)
{
	struct walk w = {.wk_run = run, .wk_arg = arg};

	for (unsigned i = 0; i < BRANCHES; i++) {
		struct bar_branch *br = atomic_load(&b->ba_branch[i]);
		uint64_t from = (uint64_t)i * IN_BRANCH;

		if (!br || br == &b->ba_full_branch) {
			walk_at(&w, from, br);
			continue;
		}
		for (unsigned k = 0; k < LEAVES; k++, from += IN_LEAF) {
			struct bar_leaf *l = atomic_load(&br->bb_leaf[k]);

			if (!l || l == &b->ba_full_leaf)
				walk_at(&w, from, l);
			else
				walk_leaf(&w, l, from);
		}
	}
	walk_at(&w, (uint64_t)UINT32_MAX + 1, false);
}

size_t ds_bars_lock(struct ds_fs *f)
{
	pthread_mutex_lock(&f->fs_bars->ba_lock);
	return atomic_load(&f->fs_bars->ba_runs);
}

void ds_bars_each(struct ds_fs *f, void (*run)(void *arg, uint32_t first, uint32_t last), void *arg)
{
	bars_walk(f->fs_bars, run, arg);
}

void ds_bars_unlock(struct ds_fs *f)
{
	pthread_mutex_unlock(&f->fs_bars->ba_lock);
}

/* ---- barring ---- */

/* With ba_lock held. The leaf of a number; makes it if it is missing. NULL: out of memory. */
static struct bar_leaf *leaf_get(struct ds_bars *b, uint32_t client)
{
	_Atomic(struct bar_branch *) *at = &b->ba_branch[client / IN_BRANCH];
	struct bar_branch *br = atomic_load(at);
	struct bar_leaf *l;

	if (!br) {
		br = calloc(1, sizeof(*br));
		if (!br)
			return NULL;
		atomic_fetch_add(&b->ba_bytes, sizeof(*br));
		atomic_store(at, br);
	}
	l = atomic_load(&br->bb_leaf[client / IN_LEAF % LEAVES]);
	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l)
			return NULL;
		atomic_fetch_add(&b->ba_bytes, sizeof(*l));
		atomic_store(&br->bb_leaf[client / IN_LEAF % LEAVES], l);
	}
	return l;
}

int ds_bar(struct ds_fs *f, uint32_t client)
{
	struct ds_bars *b = f->fs_bars;
	struct bar_leaf *l;
	int err = 0;

	pthread_mutex_lock(&b->ba_lock);
	l = barred(b, client) ? NULL : leaf_get(b, client);
	if (l) {
		bool before = client && barred(b, client - 1),
		     after = client < UINT32_MAX && barred(b, client + 1);

		atomic_fetch_or(&l->bl_word[client / 64 % WORDS], UINT64_C(1) << client % 64);
		atomic_store(&b->ba_runs, atomic_load(&b->ba_runs) + 1 - before - after);
	} else if (!barred(b, client)) {
		err = -ENOMEM;
	}
	pthread_mutex_unlock(&b->ba_lock);
	return err;
}

/* With ba_lock held. */
static bool leaf_full(const struct ds_bars *b, struct bar_leaf *l)
{
	for (unsigned w = 0; l && l != &b->ba_full_leaf && w < WORDS; w++)
		if (atomic_load(&l->bl_word[w]) != UINT64_MAX)
			return false;
	return l;
}

/* With ba_lock held. Bars all numbers from first to last, whole branches and leaves at once.
 * *changed: some of them were not barred before. */
static int run_set(struct ds_bars *b, uint32_t first, uint32_t last, bool *changed)
{
	for (uint64_t at = first; at <= last;) {
		_Atomic(struct bar_branch *) *branch = &b->ba_branch[at / IN_BRANCH];
		_Atomic(struct bar_leaf *) *leaf;
		uint64_t word, n = 64 - at % 64;
		struct bar_leaf *l;

		if (at % IN_BRANCH == 0 && last - at >= IN_BRANCH - 1) {
			*changed |= atomic_load(branch) != &b->ba_full_branch;
			branch_drop(b, atomic_exchange(branch, &b->ba_full_branch));
			at += IN_BRANCH;
			continue;
		}
		if (at % IN_LEAF == 0 && last - at >= IN_LEAF - 1 && atomic_load(branch)) {
			leaf = &atomic_load(branch)->bb_leaf[at / IN_LEAF % LEAVES];
			*changed |= !leaf_full(b, atomic_load(leaf));
			leaf_drop(b, atomic_exchange(leaf, &b->ba_full_leaf));
			at += IN_LEAF;
			continue;
		}
		l = leaf_get(b, (uint32_t)at);
		if (!l)
			return -ENOMEM;
		n = n < last - at + 1 ? n : last - at + 1;
		word = (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1) << at % 64;
		*changed |= (atomic_fetch_or(&l->bl_word[at / 64 % WORDS], word) & word) != word;
		at += n;
	}
	return 0;
}

/* With ba_lock held. Replaces leaves and branches that have become full by the shared ones. */
static void collapse(struct ds_bars *b)
{
	for (unsigned i = 0; i < BRANCHES; i++) {
		struct bar_branch *br = atomic_load(&b->ba_branch[i]);
		unsigned full = 0;

		for (unsigned k = 0; br && br != &b->ba_full_branch && k < LEAVES; k++) {
			struct bar_leaf *l = atomic_load(&br->bb_leaf[k]);

			if (!leaf_full(b, l))
				continue;
			full++;
			if (l == &b->ba_full_leaf)
				continue;
			atomic_store(&br->bb_leaf[k], &b->ba_full_leaf);
			leaf_drop(b, l);
		}
		if (full == LEAVES) {
			atomic_store(&b->ba_branch[i], &b->ba_full_branch);
			branch_drop(b, br);
		}
	}
}

static void count_run(void *arg, uint32_t first, uint32_t last)
{
	(void)first;
	(void)last;
	++*(size_t *)arg;
}

/* With ba_lock held on entry; releases it. Call it after run_set. Waits for the lookups under
 * way. */
static void bars_settle(struct ds_bars *b)
{
	struct bar_branch *branches;
	struct bar_leaf *leaves;
	size_t runs = 0;

	collapse(b);
	bars_walk(b, count_run, &runs);
	atomic_store(&b->ba_runs, runs);
	leaves = b->ba_old_leaves;
	branches = b->ba_old_branches;
	b->ba_old_leaves = NULL;
	b->ba_old_branches = NULL;
	pthread_mutex_unlock(&b->ba_lock);
	if (leaves || branches)
		urcu_memb_synchronize_rcu();
	free_all(leaves, branches);
}

/* The journal's ranges come one after another: the caller calls ds_bars_settle once, after the
 * last. */
int ds_bar_run(struct ds_fs *f, uint32_t first, uint32_t last)
{
	bool changed = false;
	int err;

	pthread_mutex_lock(&f->fs_bars->ba_lock);
	err = run_set(f->fs_bars, first, last, &changed);
	pthread_mutex_unlock(&f->fs_bars->ba_lock);
	return err;
}

void ds_bars_settle(struct ds_fs *f)
{
	pthread_mutex_lock(&f->fs_bars->ba_lock);
	bars_settle(f->fs_bars);
}

/* ---- the MDS reports which clients live ---- */

static bool dead_ok(const ctl_dead_args *a)
{
	uint64_t least = a->first;

	if (!a->first || a->first > a->last) /* 0 is the MDS itself */
		return false;
	for (unsigned i = 0; i < a->living.living_len; i++) {
		if (a->living.living_val[i] < least || a->living.living_val[i] > a->last)
			return false;
		least = (uint64_t)a->living.living_val[i] + 1;
	}
	return true;
}

/* With ba_lock held. Bars all numbers of the span that are not in the list. */
static int dead_set(struct ds_bars *b, const ctl_dead_args *a, bool *changed)
{
	uint64_t from = a->first;
	int err = 0;

	for (unsigned i = 0; i < a->living.living_len && !err; i++) {
		uint32_t lives = a->living.living_val[i];

		err = from < lives ? run_set(b, (uint32_t)from, lives - 1, changed) : 0;
		from = (uint64_t)lives + 1;
	}
	return err || from > a->last ? err : run_set(b, (uint32_t)from, a->last, changed);
}

struct records {
	const struct ds_fs *re_fs;
	struct ds_rec *re_rec;
	unsigned re_n;
	const ctl_dead_args *re_span;
};

static void bars_record_run(void *arg, uint32_t first, uint32_t last)
{
	struct records *re = arg;

	if (last >= re->re_span->first && first <= re->re_span->last)
		re->re_rec[re->re_n++] = ds_rec_run(re->re_fs, first, last);
}

/* Writes the ranges that the span has now to the journal. */
static int dead_store(struct ds_fs *f, const ctl_dead_args *a)
{
	struct records re = {.re_fs = f, .re_span = a};
	size_t n = ds_bars_lock(f);
	int err;

	re.re_rec = calloc(n ? n : 1, sizeof(*re.re_rec));
	if (re.re_rec)
		ds_bars_each(f, bars_record_run, &re);
	ds_bars_unlock(f);
	err = re.re_rec ? ds_journal_append(f, re.re_rec, re.re_n) : -ENOMEM;
	free(re.re_rec);
	return err;
}

ctl_status ds_store_dead(struct ds_fs *f, const ctl_dead_args *a, unsigned *runs)
{
	bool changed = false;
	int err;

	if (!ds_store_instance_ok(f, a->instance_epoch))
		return CTL_STALE_INSTANCE;
	if (!dead_ok(a))
		return CTL_INVAL;
	pthread_mutex_lock(&f->fs_bars->ba_lock);
	err = dead_set(f->fs_bars, a, &changed);
	bars_settle(f->fs_bars);
	/* Also if nothing changed: bars make the journal's segment longer without starting a new
	 * one; an append may start one. */
	if (!err)
		err = changed ? dead_store(f, a) : ds_journal_append(f, NULL, 0);
	*runs = (unsigned)atomic_load(&f->fs_bars->ba_runs);
	return ds_ctl_status(err);
}
