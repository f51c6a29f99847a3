/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_memlog.h - a redo log in memory that several processes share, for tests of copies
 * (kv/kv_redo.h). An append answers what a test asks for. What the log has is folded into a model.
 *
 * One process at a time calls it, except mem_trim and mem_state.
 */
#ifndef TESTS_UNIT_KV_MEMLOG_H
#define TESTS_UNIT_KV_MEMLOG_H
#include "kv/kv_redo.h"
#include "tests/unit/kv_store.h"
#include <endian.h>
#include <sodium.h>
#include <sys/mman.h>

enum { MEM_BATCHES = 8192, MEM_BYTES = 64 << 20, MEM_COPIES = 4, KEYS = 60, OPS = 20000 };

/* What the next append does. */
enum mem_append {
	MEM_DURABLE,
	MEM_FAIL,	/* it is not there, and never will be */
	MEM_DEPOSED,	/* another took the log just before */
	MEM_STOPPED_IN, /* stopped; it is there */
	MEM_STOPPED_OUT,
	MEM_DIE_IN, /* the process dies; it is there */
	MEM_DIE_OUT,
	MEM_LIE, /* planted: says durable, and is not there */
};
/* What reading does wrong. */
enum mem_read { MEM_RIGHT, MEM_TWICE, MEM_GAP, MEM_BIT, MEM_AWAY };

static struct mem {
	uint8_t m_id[KV_REDO_ID];
	uint64_t m_epoch, m_first, m_last;
	size_t m_at[MEM_BATCHES + 1];
	uint32_t m_len[MEM_BATCHES + 1];
	size_t m_end;
	enum mem_append m_next;
	enum mem_read m_wrong;
	_Atomic uint64_t m_trim[MEM_COPIES];
	bool m_base; /* a new copy begins with the state before m_first */
	bool m_base_fails;
	char m_data[MEM_BYTES];
} * mem;

/* A process' own. */
struct mem_log {
	unsigned ml_who;
	uint64_t ml_epoch;
};

static inline void mem_setup(void)
{
	setup();
	mem = mmap(NULL, sizeof(*mem), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(mem, MAP_FAILED);
	memset(mem->m_id, 7, sizeof(mem->m_id));
	mem->m_first = 1;
	log_set_level(LOG_L_ERROR);
}

static char *mem_rec(uint64_t n)
{
	return mem->m_data + mem->m_at[n];
}

static int mem_id(void *log, uint8_t id[KV_REDO_ID], char *text, size_t len)
{
	(void)log, (void)text, (void)len;
	memcpy(id, mem->m_id, KV_REDO_ID);
	return 0;
}

static int mem_take(void *log, struct kv_redo_end *end, char *text, size_t len)
{
	struct mem_log *ml = log;

	(void)text, (void)len;
	ml->ml_epoch = ++mem->m_epoch;
	*end = (struct kv_redo_end){.re_epoch = ml->ml_epoch, .re_last = mem->m_last};
	return 0;
}

static void mem_keep(const struct kv_redo_batch *b)
{
	ck_assert_uint_lt(b->rb_number, MEM_BATCHES);
	ck_assert_uint_le(mem->m_end + b->rb_len + 8, MEM_BYTES);
	mem->m_at[b->rb_number] = mem->m_end;
	mem->m_len[b->rb_number] = b->rb_len;
	memcpy(mem->m_data + mem->m_end, b->rb_rec, b->rb_len);
	mem->m_end += (b->rb_len + 7) / 8 * 8;
	mem->m_last = b->rb_number;
}

static int mem_append(void *log, const struct kv_redo_batch *b)
{
	struct mem_log *ml = log;
	enum mem_append how = mem->m_next;

	mem->m_next = MEM_DURABLE;
	mem->m_epoch += how == MEM_DEPOSED;
	if (ml->ml_epoch != mem->m_epoch || b->rb_number != mem->m_last + 1)
		return how == MEM_LIE ? KV_REDO_DURABLE : KV_REDO_DEPOSED;
	if (how == MEM_DURABLE || how == MEM_STOPPED_IN || how == MEM_DIE_IN)
		mem_keep(b);
	switch (how) {
	case MEM_FAIL:
		return -EAGAIN;
	case MEM_STOPPED_IN:
	case MEM_STOPPED_OUT:
		return KV_REDO_STOPPED;
	case MEM_DIE_IN:
	case MEM_DIE_OUT:
		_exit(9);
	default:
		return KV_REDO_DURABLE;
	}
}

static int mem_read(void *log, uint64_t after, kv_redo_batch_fn fn, void *arg, char *text,
		    size_t len)
{
	int rc = 0;

	(void)log;
	if (mem->m_wrong == MEM_AWAY) {
		snprintf(text, len, "the log is away");
		return -ECONNRESET;
	}
	if (after + 1 < mem->m_first) {
		snprintf(text, len, "batch %lu was trimmed", (unsigned long)after + 1);
		return -ESTALE;
	}
	for (uint64_t n = after + 1; n <= mem->m_last && !rc; n++) {
		char *rec = malloc(mem->m_len[n]);

		memcpy(rec, mem_rec(n), mem->m_len[n]);
		if (mem->m_wrong == MEM_BIT)
			rec[mem->m_len[n] - 1] ^= 4;
		if (mem->m_wrong != MEM_GAP || n != after + 1)
			rc = fn(arg, n, rec, mem->m_len[n]);
		if (mem->m_wrong == MEM_TWICE && !rc)
			rc = fn(arg, n + 1, rec, mem->m_len[n]);
		free(rec);
	}
	return rc;
}

static void mem_trim(void *log, uint64_t upto)
{
	atomic_store(&mem->m_trim[((struct mem_log *)log)->ml_who], upto);
}

static void mem_state(void *log, struct kv_redo_state *out)
{
	(void)log;
	*out = (struct kv_redo_state){
		.rs_up = true, .rs_first = mem->m_first, .rs_last = mem->m_last};
}

/* The model: what the batches up to a number make. */

struct fold {
	struct kv_slice f_val[KEYS + 1]; /* s_data NULL: absent; the last is "last" */
	uint32_t f_seen[OPS];		 /* how often the mutation is in the log */
	uint8_t f_sum[KV_REDO_SUM];
};

static unsigned fold_key(struct kv_slice k)
{
	char text[16] = "";
	unsigned i = KEYS;

	ck_assert_uint_lt(k.s_len, sizeof(text));
	memcpy(text, k.s_data, k.s_len);
	ck_assert(!strcmp(text, "last") || (sscanf(text, "k%u", &i) == 1 && i < KEYS));
	return i;
}

/* Returns false where the log itself is no chain of whole records. */
static bool fold_upto(uint64_t n, struct fold *f)
{
	memset(f, 0, sizeof(*f));
	for (uint64_t i = 1; i <= n; i++) {
		uint32_t pos = sizeof(struct kv_redo_rec);
		struct kv_write w;

		if (!kv_redo_rec_ok(mem->m_id, f->f_sum, i, mem_rec(i), mem->m_len[i]))
			return false;
		while (kv_redo_rec_next(mem_rec(i), &pos, &w) > 0) {
			unsigned k = fold_key(w.w_key);

			f->f_val[k] = w.w_del ? (struct kv_slice){NULL, 0} : w.w_val;
			if (k == KEYS)
				f->f_seen[atoi(w.w_val.s_data)]++;
		}
		memcpy(f->f_sum, ((struct kv_redo_rec *)mem_rec(i))->rr_sum, KV_REDO_SUM);
	}
	return true;
}

static void key_text(unsigned i, char key[16])
{
	if (i == KEYS)
		strcpy(key, "last");
	else
		snprintf(key, 16, "k%03u", i);
}

static int mem_base(void *log, kv_redo_pair_fn fn, void *arg, struct kv_redo_base *base, char *text,
		    size_t len)
{
	static struct fold f;
	int rc = 0;

	(void)log, (void)text, (void)len;
	if (!mem->m_base)
		return -ENOENT;
	base->ba_batch = mem->m_first - 1;
	ck_assert(fold_upto(base->ba_batch, &f));
	memcpy(base->ba_sum, f.f_sum, KV_REDO_SUM);
	for (unsigned i = 0; fn && i <= KEYS && !rc; i++) {
		char key[16];

		key_text(i, key);
		if (f.f_val[i].s_data)
			rc = fn(arg, S(key), f.f_val[i]);
		if (i == KEYS / 2 && mem->m_base_fails)
			rc = -ECONNRESET;
	}
	return rc;
}

static const struct kv_redo_ops mem_ops = {
	.ro_name = "memory",
	.ro_id = mem_id,
	.ro_take = mem_take,
	.ro_append = mem_append,
	.ro_read = mem_read,
	.ro_base = mem_base,
	.ro_trim = mem_trim,
	.ro_state = mem_state,
};

/* All pairs, in order. */
struct pairs {
	crypto_generichash_state p_sum;
	unsigned p_n;
};

static void pairs_add(struct pairs *p, struct kv_slice k, struct kv_slice v)
{
	uint32_t len[2] = {(uint32_t)k.s_len, (uint32_t)v.s_len};

	crypto_generichash_update(&p->p_sum, (uint8_t *)len, sizeof(len));
	crypto_generichash_update(&p->p_sum, k.s_data, k.s_len);
	crypto_generichash_update(&p->p_sum, v.s_data, v.s_len);
	p->p_n++;
}

static inline void pairs_of_store(struct kv *kv, uint8_t sum[32], uint64_t *number)
{
	struct kv_slice none = {"", 0}, k, v;
	struct pairs p = {.p_n = 0};
	struct kv_scan sc;
	struct kv_txn *t;

	crypto_generichash_init(&p.p_sum, NULL, 0, 32);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	*number = kv_read_number(t);
	ck_assert_int_eq(kv_scan_begin(t, none, none, &sc), 0);
	while (kv_scan_next(&sc, &k, &v) == 1)
		pairs_add(&p, k, v);
	kv_scan_end(&sc);
	kv_read_end(t);
	crypto_generichash_final(&p.p_sum, sum, 32);
}

static inline void pairs_of_fold(const struct fold *f, uint8_t sum[32])
{
	struct pairs p = {.p_n = 0};

	crypto_generichash_init(&p.p_sum, NULL, 0, 32);
	for (unsigned i = 0; i <= KEYS; i++) {
		char key[16];

		key_text(i, key);
		if (f->f_val[i].s_data)
			pairs_add(&p, S(key), f->f_val[i]);
	}
	crypto_generichash_final(&p.p_sum, sum, 32);
}

/* Mutation number i. */
struct change {
	unsigned seed;
	uint32_t i;
};

static inline int run_change(void *arg, struct kv_txn *t)
{
	const struct change *c = arg;
	unsigned s = c->seed ^ (c->i * 2654435761u);
	char key[16], val[9000];
	int rc = 0;

	rand_r(&s);
	for (int n = 1 + rand_r(&s) % 4; n > 0 && !rc; n--) {
		size_t len = (size_t)rand_r(&s) % (rand_r(&s) % 20 ? 300 : sizeof(val));

		snprintf(key, sizeof(key), "k%03u", (unsigned)rand_r(&s) % KEYS);
		memset(val, 'a' + rand_r(&s) % 26, sizeof(val));
		rc = rand_r(&s) % 4 ? kv_put(t, S(key), (struct kv_slice){val, len})
				    : kv_del(t, S(key));
		rc = rc == -ENOENT ? 0 : rc;
	}
	snprintf(val, sizeof(val), "%u", c->i);
	return rc ? rc : kv_put(t, S("last"), (struct kv_slice){val, strlen(val) + 1});
}

static inline int change(struct kv *kv, uint32_t i)
{
	struct change c = {1, i};

	return kv_run_sync(kv, run_change, &c);
}

/* Is the store what its log makes, up to the batch that it holds? */
static inline bool is_fold(struct kv *kv)
{
	static struct fold f;
	uint8_t store[32], fold[32];
	uint64_t n;

	pairs_of_store(kv, store, &n);
	if (n > mem->m_last || n != kv_held(kv) || !fold_upto(n, &f))
		return false;
	pairs_of_fold(&f, fold);
	return !memcmp(store, fold, sizeof(store));
}
#endif
