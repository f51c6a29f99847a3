/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.c - the locks on state, its tables, and stateids.
 *
 * Each thread has a mutex of its own. The lock of "all" is the mutexes of all threads. The lock of
 * a file is the calling thread's mutex and the mutex of the file's shard. So threads that work on
 * different files write no common cache line, and a thread that takes "all" keeps every other
 * thread out.
 */
#include "mds/state/st.h"
#include "base/log.h"

#define TURNS 64u /* more threads than that share mutexes */

/* The first mutex also guards nturns and nthreads, and every holder of "all" has it. */
static struct {
	_Alignas(64) pthread_mutex_t t_lock;
} turns[TURNS] = {[0 ... TURNS - 1] = {PTHREAD_MUTEX_INITIALIZER}};
static unsigned nturns, nthreads;

/* Per thread: its index plus 1, and which lock it holds. */
static _Thread_local unsigned my_turn;
static _Thread_local enum { HAS_NOTHING, HAS_FILE, HAS_ALL } has;
static _Thread_local struct st_shard *my_shard;
static _Thread_local bool wants_all;

_Static_assert(sizeof(pthread_mutex_t) > 40 || sizeof(struct st_shard) == 64,
	       "a shard is one cache line");

static unsigned turn_get(void)
{
	if (!my_turn) {
		pthread_mutex_lock(&turns[0].t_lock);
		my_turn = nthreads++ % TURNS + 1;
		if (my_turn > nturns)
			nturns = my_turn;
		pthread_mutex_unlock(&turns[0].t_lock);
	}
	return my_turn - 1;
}

unsigned st_thread_index(void)
{
	return turn_get();
}

void st_all_lock(struct st *st)
{
	(void)st;
	if (has != HAS_NOTHING)
		log_fatal("state is locked twice");
	turn_get(); /* first, because turn_get locks turns[0] as well */
	pthread_mutex_lock(&turns[0].t_lock);
	for (unsigned i = 1; i < nturns; i++)
		pthread_mutex_lock(&turns[i].t_lock);
	has = HAS_ALL;
}

void st_all_unlock(struct st *st)
{
	(void)st;
	has = HAS_NOTHING;
	for (unsigned i = nturns; i > 1; i--)
		pthread_mutex_unlock(&turns[i - 1].t_lock);
	pthread_mutex_unlock(&turns[0].t_lock);
}

void st_file_lock(struct st *st, uint64_t ino)
{
	struct st_shard *sh = st_shard_of(st, ino);

	if (has != HAS_NOTHING)
		log_fatal("state is locked twice");
	pthread_mutex_lock(&turns[turn_get()].t_lock);
	pthread_mutex_lock(&sh->sh_lock);
	has = HAS_FILE;
	my_shard = sh;
}

void st_file_unlock(struct st *st, uint64_t ino)
{
	struct st_shard *sh = st_shard_of(st, ino);

	has = HAS_NOTHING;
	my_shard = NULL;
	pthread_mutex_unlock(&sh->sh_lock);
	pthread_mutex_unlock(&turns[my_turn - 1].t_lock);
}

void st_look_lock(struct st *st)
{
	(void)st;
	if (has != HAS_NOTHING)
		log_fatal("state is locked twice");
	pthread_mutex_lock(&turns[turn_get()].t_lock);
	has = HAS_FILE; /* without a shard */
}

void st_look_unlock(struct st *st)
{
	(void)st;
	has = HAS_NOTHING;
	pthread_mutex_unlock(&turns[my_turn - 1].t_lock);
}

void st_work_lock(struct st_work *w, struct st *st, uint64_t ino)
{
	w->swo_st = st;
	w->swo_ino = ino;
	wants_all = false;
	if (w->swo_all)
		st_all_lock(st);
	else
		st_file_lock(st, ino);
}

bool st_work_again(struct st_work *w)
{
	if (w->swo_all) {
		st_all_unlock(w->swo_st);
		return false;
	}
	st_file_unlock(w->swo_st, w->swo_ino);
	w->swo_all = wants_all;
	return w->swo_all;
}

bool st_needs_all(void)
{
	if (has == HAS_FILE)
		wants_all = true;
	return has != HAS_FILE;
}

bool st_has(const struct st *st, uint64_t ino)
{
	return has == HAS_ALL || (has == HAS_FILE && my_shard == &st->st_shards[ino % ST_SHARDS]);
}

bool st_has_all(void)
{
	return has == HAS_ALL;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void st_must_have(const struct st *st, uint64_t ino)
{
	if (!st_has(st, ino))
		log_fatal("the state of inode %lu is used without its lock", (unsigned long)ino);
}

void st_must_have_all(void)
{
	if (!st_has_all())
		log_fatal("state is used without the lock of all");
}
#endif

/* ---- tables ---- */

int st_shards_new(struct st *st)
{
	st->st_shards = aligned_alloc(64, ST_SHARDS * sizeof(*st->st_shards));
	if (!st->st_shards)
		return -1;
	memset(st->st_shards, 0, ST_SHARDS * sizeof(*st->st_shards));
	for (size_t i = 0; i < ST_SHARDS; i++)
		pthread_mutex_init(&st->st_shards[i].sh_lock, NULL);
	return 0;
}

size_t st_states(const struct st *st)
{
	size_t n = 0;

	for (size_t i = 0; i < ST_SHARDS; i++)
		n += st->st_shards[i].sh_table.h_count;
	return n;
}

/* The hash contains the kind, so that a walk can select the links of one kind by it. */
static uint64_t hash_of(uint64_t n, enum st_kind kind)
{
	return (hash_u64(n) & ~(3ull << 62)) | (uint64_t)kind << 62;
}

/* Different stateids nearly always have different bits here. */
static uint64_t bits_of(const struct st_stateid *sid)
{
	uint64_t n;

	memcpy(&n, sid->other + 4, 8);
	return n;
}

struct hash_link *st_first_by_ino(struct st *st, uint64_t ino)
{
	st_must_have(st, ino);
	return hash_first(&st_shard_of(st, ino)->sh_table, hash_of(ino, ST_FILE));
}

int st_add_by_ino(struct st *st, uint64_t ino, struct hash_link *l)
{
	st_must_have(st, ino);
	return hash_add(&st_shard_of(st, ino)->sh_table, l, hash_of(ino, ST_FILE));
}

struct hash_link *st_first_by_sid(struct st *st, const struct st_stateid *sid, enum st_kind kind)
{
	struct st_shard *sh = my_shard;
	struct st_id_state s;

	/* With a file's lock only that file's shard may be read. With the lock of all, the stateid
	 * names the shard. */
	if (has != HAS_FILE) {
		st_id_state_get(&st->st_ids, sid->other, &s);
		sh = &st->st_shards[s.is_shard];
	}
	return sh ? hash_first(&sh->sh_table, hash_of(bits_of(sid), kind)) : NULL;
}

int st_add_by_sid(struct st *st, uint64_t ino, const struct st_stateid *sid, enum st_kind kind,
		  struct hash_link *l)
{
	st_must_have(st, ino);
	return hash_add(&st_shard_of(st, ino)->sh_table, l, hash_of(bits_of(sid), kind));
}

void st_table_del(struct st *st, uint64_t ino, struct hash_link *l)
{
	st_must_have(st, ino);
	hash_del(&st_shard_of(st, ino)->sh_table, l);
}

/* ---- stateids ---- */

_Static_assert(ST_SHARDS == 65536, "a stateid has two bytes for its shard");

void st_sid_make(struct st *st, uint64_t ino, unsigned type, struct st_stateid *sid)
{
	struct st_shard *sh = st_shard_of(st, ino);
	struct st_id_state s = {
		.is_epoch = st->st_epoch,
		.is_kind = (uint8_t)type,
		.is_count = atomic_fetch_add(&sh->sh_next, 1) & 0xffffffffffull,
		.is_shard = (uint16_t)(ino % ST_SHARDS),
	};

	sid->seqid = 1;
	st_id_state_put(&st->st_ids, &s, sid->other);
}

bool st_sid_ours(struct st *st, const struct st_stateid *sid, unsigned type)
{
	struct st_id_state s;

	st_id_state_get(&st->st_ids, sid->other, &s);
	return s.is_epoch == st->st_epoch && s.is_kind == type;
}

bool st_sid_special(const struct st_stateid *sid)
{
	static const uint8_t zero[NFS4_OTHER_SIZE],
		ones[NFS4_OTHER_SIZE] = {255, 255, 255, 255, 255, 255,
					 255, 255, 255, 255, 255, 255};

	return (sid->seqid == 0 && memcmp(sid->other, zero, NFS4_OTHER_SIZE) == 0) ||
	       (sid->seqid == UINT32_MAX && memcmp(sid->other, ones, NFS4_OTHER_SIZE) == 0);
}
