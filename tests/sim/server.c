/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.c - weft-mds: mds_log.c as main.c calls it, and in the place of the protocol some requests
 * that change the store, look at it, and give numbers out. Replies pass the lease's gate in the way
 * of proto/rpc_gate.c: first the look at the state, then store_lease_live(), then the send; and
 * what has to wait is sent when the lease lives again.
 */
#include "tests/sim/globals.h"
#include "tests/sim/redirect.h"
#include "tests/sim/store.h"
#include "base/conf.h"
#include "mds/admin/admin_standby.h"
#include "mds/mds_log.h"
#include <endian.h>

enum { LEASE_MS = 1500, WORKERS = 4, QUEUE = 64, ESTALE_STATUS = 75, BEAT_MS = 250, ORDERS = 1024 };

struct server {
	struct sim_proc s_proc;
	unsigned s_at;
	struct store *s_store;
	bool s_refill, s_serves, s_power, s_in_etcd;
	bool s_term, s_taken; /* a signal to stop has come; and a thread has taken it */
	struct sim_fd s_told;
	uint32_t s_lease_ms;
	struct waitq s_signal, s_work, s_idle;
	struct request s_queue[QUEUE];
	unsigned s_head, s_n, s_busy;
	struct mds *s_mds;
	uint64_t s_boot, s_ids, s_back_ns;
	uint64_t s_passed; /* when its newest reply passed the gate */
};
static struct server servers[MDS_MAX];
static bool quiet;
static uint64_t newest_boot, newest_passed;
static uint32_t given[ORDERS]; /* the boot that gave an order its number */

struct sim_proc *server_proc(unsigned i)
{
	return &servers[i].s_proc;
}

uint64_t server_lease_ms(void)
{
	return LEASE_MS;
}

bool server_serves(unsigned i)
{
	return servers[i].s_serves && servers[i].s_proc.p_alive;
}

bool servers_in_etcd(void)
{
	return servers[0].s_in_etcd || servers[1].s_in_etcd;
}

static struct server *self(void)
{
	return sim_self()->p_arg;
}

struct store *store_of_process(void)
{
	return self()->s_store;
}

void globals_of_server(void)
{
	sim_global((void *)&store_lease_is_lost, sizeof(store_lease_is_lost));
}

/* ---- the configuration, systemd ---- */

const char *conf_str(const struct conf *c, const char *key)
{
	(void)c;
	if (!strcmp(key, "mds.log_lease_in"))
		return self()->s_in_etcd ? "etcd:http://etcd0:2379" : "";
	return !strcmp(key, "mds.log")	   ? "postgresql:host=pg0,pg1,pg2"
	       : !strcmp(key, "mds.store") ? "/store"
					   : "";
}

int64_t conf_int(const struct conf *c, const char *key)
{
	(void)c;
	return !strcmp(key, "mds.log_copies") ? 2 : 1;
}

bool conf_bool(const struct conf *c, const char *key)
{
	(void)c;
	(void)key;
	return true;
}

int64_t conf_msec(const struct conf *c, const char *key)
{
	(void)c;
	return !strcmp(key, "mds.log_rank") ? 300 * self()->s_at : self()->s_lease_ms;
}

bool pg_has_password(const char *conninfo)
{
	(void)conninfo;
	return false;
}

int sd_notify(int unset, const char *state)
{
	(void)unset;
	(void)state;
	return 0;
}

int sd_notifyf(int unset, const char *fmt, ...)
{
	(void)unset;
	(void)fmt;
	return 0;
}

int admin_standby_start(struct admin_standby **out, const struct http_opts *o, char *err, size_t n)
{
	(void)o;
	(void)err;
	(void)n;
	*out = NULL;
	return 0;
}

void admin_standby_why(struct admin_standby *s, const char *why)
{
	(void)s;
	(void)why;
}

void admin_standby_stop(struct admin_standby *s)
{
	(void)s;
}

int sim_sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *t)
{
	struct server *s = self();

	(void)set;
	(void)info;
	if (!s->s_term)
		sim_wait(&s->s_signal, (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec);
	s->s_taken = s->s_term;
	return s->s_term ? SIGTERM : -1;
}

static bool pending(struct sim_fd *f)
{
	struct server *s = (struct server *)((char *)f - offsetof(struct server, s_told));

	return s->s_term && !s->s_taken;
}

int sim_signalfd(int fd, const sigset_t *set, int flags)
{
	(void)fd;
	(void)set;
	(void)flags;
	self()->s_told = (struct sim_fd){.f_ready = pending};
	return sim_fd_new(&self()->s_told);
}

/* ---- what is asked ---- */

struct change {
	const struct request *c_rq;
	uint64_t c_value;
};

static uint64_t number_of(struct kv_slice v, size_t at)
{
	uint64_t n;

	memcpy(&n, (const char *)v.s_data + at, sizeof(n));
	return le64toh(n);
}

static struct kv_slice key_of(char key[16], char kind, uint64_t n)
{
	return (struct kv_slice){key, (size_t)snprintf(key, 16, "%c%u", kind, (unsigned)n)};
}

/* W: one more, once for each operation, however often it is sent. */
static int add(void *arg, struct kv_txn *t)
{
	struct change *c = arg;
	const struct request *rq = c->c_rq;
	char k1[16], k2[16];
	struct kv_slice reg = key_of(k1, 'r', rq->rq_reg), once = key_of(k2, 'c', rq->rq_id >> 32);
	struct kv_slice v;
	uint64_t two[2];
	int rc = kv_get(t, once, &v);

	if (!rc && number_of(v, 0) == rq->rq_id) {
		c->c_value = number_of(v, 8);
		return -EALREADY;
	}
	/* An old message of an operation that was answered long ago. */
	if (!rc && number_of(v, 0) > rq->rq_id)
		return -EINVAL;
	c->c_value = 1;
	if (!kv_get(t, reg, &v))
		c->c_value = number_of(v, 0) + 1;
	two[0] = htole64(rq->rq_id);
	two[1] = htole64(c->c_value);
	rc = kv_put(t, reg, (struct kv_slice){&two[1], 8});
	rc = rc ? rc : kv_put(t, once, (struct kv_slice){two, 16});
	/* A row that comes with each value, and goes with the next. */
	rc = rc ? rc : kv_put(t, key_of(k1, 't', rq->rq_reg * 10000 + c->c_value), once);
	if (!rc && c->c_value > 1)
		rc = kv_del(t, key_of(k1, 't', rq->rq_reg * 10000 + c->c_value - 1));
	return rc;
}

struct named {
	const char *n_what;
	uint64_t n_value;
};

/* W: the next number of a row. */
static int next(void *arg, struct kv_txn *t)
{
	struct named *n = arg;
	struct kv_slice key = {n->n_what, strlen(n->n_what)}, v;
	uint64_t le;

	n->n_value = kv_get(t, key, &v) ? 1 : number_of(v, 0) + 1;
	le = htole64(n->n_value);
	return kv_put(t, key, (struct kv_slice){&le, 8});
}

static int next_of(struct server *s, const char *what, uint64_t *out)
{
	struct named n = {what, 0};
	int rc = kv_run_sync(s->s_mds->m_kv, next, &n);

	*out = n.n_value;
	return rc;
}

static int look(struct server *s, const struct request *rq, uint64_t *value)
{
	struct kv_slice v;
	struct kv_txn *t;
	char key[16];

	if (kv_read_begin(s->s_mds->m_kv, &t))
		return -EIO;
	*value = kv_get(t, key_of(key, 'r', rq->rq_reg), &v) ? 0 : number_of(v, 0);
	kv_read_end(t);
	sim_point();
	return 0;
}

static int perform(struct server *s, const struct request *rq, uint64_t *value)
{
	struct change c = {.c_rq = rq};
	int rc;

	if (rq->rq_kind == ASK_READ)
		return look(s, rq, value);
	if (rq->rq_kind == ASK_ID) {
		*value = s->s_boot << 32 | ++s->s_ids;
		sim_point();
		return 0;
	}
	rc = kv_run_sync(s->s_mds->m_kv, add, &c);
	*value = c.c_value;
	return rc == -EALREADY ? 0 : rc;
}

/* ---- the gate ---- */

struct gate {
	struct store_lease_watch g_watch;
	bool g_cached; /* the lease lived at the last look: a planted fault */
	struct waitq g_wait;
};

static void again(struct store_lease_watch *w)
{
	sim_wake(&((struct gate *)w)->g_wait);
}

/* Returns when the reply may leave: at which moment it was looked at. */
static uint64_t pass(struct server *s, struct gate *g)
{
	struct store_lease *sl = &s->s_mds->m_store_lease;

	for (;;) {
		uint64_t now = sim_now;

		if (sim_planted("no-lease-check") || g->g_cached || store_lease_live(sl) ||
		    store_lease_wait(sl, &g->g_watch))
			return now;
		sim_wait(&g->g_wait, UINT64_MAX);
	}
}

/* Never two that answer for one file system. */
static void passed(struct server *s, uint64_t when)
{
	if (s->s_boot < newest_boot && when > newest_passed)
		sim_fail("two-answer",
			 "%s (boot %llu) answered at %.3f ms, and boot %llu at %.3f ms",
			 s->s_proc.p_name, (unsigned long long)s->s_boot, (double)when / 1e6,
			 (unsigned long long)newest_boot, (double)newest_passed / 1e6);
	if (s->s_boot > newest_boot) {
		newest_boot = s->s_boot;
		newest_passed = when;
	}
}

static void serve(struct server *s, const struct request *rq, struct gate *g)
{
	uint64_t value = 0, when;

	if (perform(s, rq, &value))
		return;
	when = pass(s, g);
	passed(s, when);
	client_answer(rq, s->s_at, s->s_boot, value, when);
}

static void *worker(void *arg)
{
	struct server *s = arg;
	struct gate *g = sim_calloc(1, sizeof(*g));

	g->g_watch.lw_again = again;
	store_lease_watch(&s->s_mds->m_store_lease, &g->g_watch);
	while (!s->s_term) {
		struct request rq;

		/* The planted fault: one look for what comes next, also after a pause. */
		if (sim_planted("wake-sends"))
			g->g_cached = store_lease_live(&s->s_mds->m_store_lease);
		if (!s->s_n) {
			sim_wait(&s->s_work, UINT64_MAX);
		}
		if (!s->s_n)
			continue;
		rq = s->s_queue[s->s_head];
		s->s_head = (s->s_head + 1) % QUEUE;
		s->s_n--;
		s->s_busy++;
		serve(s, &rq, g);
		s->s_busy--;
	}
	sim_wake(&s->s_idle);
	return NULL;
}

struct asked {
	unsigned a_server;
	struct request a_rq;
};

static bool asked_ready(void *arg)
{
	return !servers[((struct asked *)arg)->a_server].s_proc.p_paused;
}

static void asked(void *arg)
{
	const struct asked *a = arg;
	struct server *s = &servers[a->a_server];

	if (a->a_rq.rq_by_address && !addr_takes(a->a_server))
		return;
	/* A standby does not read what it gets. */
	if (!s->s_proc.p_alive || !s->s_serves || s->s_n == QUEUE)
		return;
	s->s_queue[(s->s_head + s->s_n++) % QUEUE] = a->a_rq;
	sim_wake_one(&s->s_work);
}

void server_ask(unsigned i, const struct request *rq)
{
	struct asked a = {i, *rq};

	sim_send(CLIENT_NODE, MDS_NODE0 + i, asked_ready, asked, sim_copy(&a, sizeof(a)));
}

/* ---- data servers ---- */

static void *orders(void *arg)
{
	struct server *s = arg;
	struct gate *g = sim_calloc(1, sizeof(*g));
	uint64_t id = sim_rand(), number;

	g->g_watch.lw_again = again;
	store_lease_watch(&s->s_mds->m_store_lease, &g->g_watch);
	pass(s, g);
	ds_join_all(s->s_at, s->s_boot, id);
	while (!s->s_term) {
		sim_sleep(SIM_MS(sim_between(50, BEAT_MS)));
		if (s->s_term || next_of(s, "order", &number))
			break;
		pass(s, g);
		/* A thread that stood still behind its look at the lease comes late. */
		if (number < ORDERS && given[number])
			sim_fail("twice",
				 "order number %llu was given out by boot %u and boot %llu",
				 (unsigned long long)number, given[number],
				 (unsigned long long)s->s_boot);
		if (number < ORDERS)
			given[number] = (uint32_t)s->s_boot;
		ds_order(s->s_at, s->s_boot, number);
	}
	return NULL;
}

/* As mds_addr.c does: the addresses once the store is held; twice a second LIVE, while it is. */
static void *addresses(void *arg)
{
	struct server *s = arg;

	addr_say(s->s_at, SIM_ADDR_HOLD);
	addr_say(s->s_at, SIM_ADDR_LISTENING);
	while (!s->s_term) {
		if (store_lease_live(&s->s_mds->m_store_lease))
			addr_say(s->s_at, SIM_ADDR_LIVE);
		sim_sleep(SIM_MS(500));
	}
	return NULL;
}

/* ---- a life ---- */

static void ends(struct server *s)
{
	while (s->s_busy && !s->s_proc.p_status)
		sim_wait(&s->s_idle, SIM_MS(20));
	mds_log_ending(s->s_mds);
}

static void *ending(void *arg)
{
	ends(arg);
	return NULL;
}

static void life(void *arg)
{
	struct server *s = arg;
	struct kv_opts opts = {.ko_create = true, .ko_refill = s->s_refill};
	char err[512] = "";
	pthread_t t;
	int rc;

	s->s_mds = aligned_alloc(64, (sizeof(*s->s_mds) + 63) / 64 * 64);
	memset(s->s_mds, 0, sizeof(*s->s_mds));
	store_lease_init(&s->s_mds->m_store_lease, 0);
	rc = mds_log_open(s->s_mds, NULL, NULL, false, &opts, err, sizeof(err));
	if (rc) {
		mds_log_give_up(s->s_mds);
		sim_log("%s cannot start: %s", s->s_proc.p_name, err);
		if (rc == -EIO)
			sim_fail("damaged", "%s: %s", s->s_proc.p_name, err);
		sim_exit(rc == -ESTALE ? ESTALE_STATUS : 1);
	}
	s->s_refill = false;
	rc = next_of(s, "boot", &s->s_boot);
	if (rc)
		sim_exit(1);
	sim_log("%s serves: boot %llu", s->s_proc.p_name, (unsigned long long)s->s_boot);
	s->s_serves = true;
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_create(&t, NULL, worker, s);
	pthread_create(&t, NULL, orders, s);
	pthread_create(&t, NULL, addresses, s);
	while (!s->s_term)
		sim_wait(&s->s_signal, UINT64_MAX);
	s->s_taken = true;
	addr_say(s->s_at, SIM_ADDR_RELEASE);
	s->s_serves = false;
	sim_wake(&s->s_work);
	pthread_create(&t, NULL, ending, s);
	while (s->s_busy)
		sim_wait(&s->s_idle, SIM_MS(20));
	kv_close(s->s_mds->m_kv);
	mds_log_close();
}

static void begins(void *arg, uint64_t run)
{
	struct server *s = arg;

	if (s->s_proc.p_alive || s->s_proc.p_run != run)
		return;
	if (sim_nodes[s->s_proc.p_node].n_off)
		sim_nodes[s->s_proc.p_node].n_off = false;
	s->s_term = s->s_taken = s->s_serves = false;
	s->s_signal = s->s_work = s->s_idle = (struct waitq){0};
	s->s_n = s->s_busy = 0;
	s->s_ids = 0;
	sim_proc_start(&s->s_proc);
}

static void died(struct sim_proc *p)
{
	struct server *s = p->p_arg;
	uint64_t back = s->s_back_ns ? s->s_back_ns : SIM_MS(sim_between(100, 800));

	s->s_serves = false;
	s->s_back_ns = 0;
	if (sim_nodes[p->p_node].n_off)
		addr_power_cut(s->s_at);
	else
		addr_say(s->s_at, SIM_ADDR_GONE);
	if (p->p_status)
		store_crash(s->s_store);
	/* An administrator removes the store, or has it filled again. */
	if (p->p_status == ESTALE_STATUS && sim_chance(500))
		store_wipe(s->s_store);
	else if (p->p_status == ESTALE_STATUS)
		s->s_refill = true;
	sim_at(sim_now + (quiet ? SIM_MS(100) : back), begins, s, p->p_run);
}

bool server_kill(unsigned i, bool power, uint64_t back_ns)
{
	struct server *s = &servers[i];

	if (!s->s_proc.p_alive)
		return false;
	s->s_back_ns = back_ns;
	sim_nodes[s->s_proc.p_node].n_off = power;
	sim_proc_kill(&s->s_proc, 137);
	return true;
}

void server_stop(unsigned i)
{
	servers[i].s_term = true;
	sim_wake(&servers[i].s_signal);
	sim_wake(&servers[i].s_told.f_wait);
}

void server_lose_store(unsigned i)
{
	if (server_kill(i, false, SIM_MS(sim_between(50, 500))))
		store_wipe(servers[i].s_store);
}

void servers_quiet(void)
{
	quiet = true;
}

void servers_claimed(uint64_t epoch)
{
	(void)epoch;
	for (unsigned i = 0; i < MDS_MAX; i++) {
		struct server *s = &servers[i];
		uint64_t end;

		if (!server_serves(i))
			continue;
		end = atomic_load(&s->s_mds->m_store_lease.sl_end_ns);
		if (sim_boot(s->s_proc.p_node) < end &&
		    !*(bool *)sim_global_of(&s->s_proc, (void *)&store_lease_is_lost))
			sim_fail("lease-outlived",
				 "%s may answer for %.3f ms more, and another one has claimed",
				 s->s_proc.p_name,
				 (double)(end - sim_boot(s->s_proc.p_node)) / 1e6);
	}
}

void servers_begin(void)
{
	static const char *const names[MDS_MAX] = {"mdsA", "mdsB"};
	bool in_etcd;

	memset(servers, 0, sizeof(servers));
	quiet = false;
	newest_boot = newest_passed = 0;
	memset(given, 0, sizeof(given));
	/* Where a fault is planted, each schedule is one in which it may strike. */
	in_etcd = sim_chance(!strncmp(sim_control, "key-", 4) ? 1000 : 350);
	for (unsigned i = 0; i < MDS_MAX; i++) {
		struct server *s = &servers[i];

		s->s_at = i;
		/* Seldom one has it in etcd, and the other one in PostgreSQL. */
		s->s_in_etcd = sim_chance(40) ? !in_etcd : in_etcd;
		/* Each knows its own, and the longer one counts. */
		s->s_lease_ms = sim_chance(strstr(sim_control, "own-lease") ? 1000 : 200)
					? (uint32_t)sim_between(600, 4000)
					: LEASE_MS;
		s->s_store = store_new();
		s->s_proc = (struct sim_proc){.p_name = names[i],
					      .p_node = MDS_NODE0 + i,
					      .p_main = life,
					      .p_arg = s,
					      .p_died = died};
		sim_at(sim_now + SIM_MS(1 + 100 * i), begins, s, 0);
	}
}
