/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd_sim.c - the functions of mds/etcd.h over the simulator's network, and a model of etcd: three
 * members on machines of their own, and one history. A member answers while it and the leader are
 * linked, and the leader with a majority. A question that its process has given up may still arrive
 * and be done. While the members elect, nobody answers.
 */
#include "tests/sim/redirect.h"
#include "tests/sim/sim.h"
#include "mds/etcd.h"

struct etcd {
	unsigned e_at; /* the member that is asked */
	const char *e_why;
};

/* A question, and its answer. Memory of the schedule: messages outlive who sent them. */
struct call {
	struct sim_proc *c_proc;
	unsigned c_run, c_member;
	bool c_swaps, c_over, c_done; /* the process does not wait; the answer is here */
	unsigned c_n;
	struct etcd_row c_rows[ETCD_ROWS];
	char c_key[ETCD_ROWS][ETCD_TEXT], c_put[ETCD_TEXT], c_value[ETCD_TEXT];
	struct etcd_answer c_answer;
	struct waitq c_wait;
};

static struct {
	struct etcd_row e_row[ETCD_ROWS];
	uint64_t e_revision, e_away_until, e_lost;
	unsigned e_leader;
} etcd;

/* ---- the members ---- */

static bool linked(unsigned a, unsigned b)
{
	const struct sim_node *x = &sim_nodes[ETCD_NODE0 + a], *y = &sim_nodes[ETCD_NODE0 + b];

	return !x->n_off && !y->n_off && !x->n_cut[ETCD_NODE0 + b] && !y->n_cut[ETCD_NODE0 + a];
}

static bool leads(unsigned m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < ETCD_MEMBERS; i++)
		n += linked(m, i);
	return n > ETCD_MEMBERS / 2;
}

static void elect(void *arg, uint64_t n)
{
	(void)arg;
	(void)n;
	if (leads(etcd.e_leader)) {
		etcd.e_lost = 0;
	} else if (!etcd.e_lost) {
		etcd.e_lost = sim_now + SIM_MS(sim_between(200, 1500));
	} else if (sim_now >= etcd.e_lost) {
		for (unsigned i = 0; i < ETCD_MEMBERS; i++)
			if (leads(i))
				etcd.e_leader = i;
	}
	sim_at(sim_now + SIM_MS(50), elect, NULL, 0);
}

void etcd_away(uint64_t ns)
{
	sim_log("etcd does not answer for %.0f ms", (double)ns / 1e6);
	etcd.e_away_until = sim_now + ns;
}

static void on_again(void *arg, uint64_t node)
{
	(void)arg;
	sim_nodes[node].n_off = false;
}

void etcd_power_cut(unsigned member, uint64_t back_ns)
{
	sim_log("etcd %u loses its power%s", member, member == etcd.e_leader ? " (leader)" : "");
	sim_nodes[ETCD_NODE0 + member].n_off = true;
	sim_at(sim_now + back_ns, on_again, NULL, ETCD_NODE0 + member);
}

void etcd_heal(void)
{
	etcd.e_away_until = 0;
	for (unsigned i = 0; i < ETCD_MEMBERS; i++)
		sim_nodes[ETCD_NODE0 + i].n_off = false;
}

void etcd_begin(void)
{
	memset(&etcd, 0, sizeof(etcd));
	etcd.e_revision = 1;
	sim_at(sim_now + SIM_MS(50), elect, NULL, 0);
}

/* ---- transactions ---- */

static struct etcd_row *find(const char *key)
{
	for (unsigned i = 0; i < ETCD_ROWS; i++)
		if (etcd.e_row[i].er_mod && !strcmp(etcd.e_row[i].er_key, key))
			return &etcd.e_row[i];
	return NULL;
}

static bool equal(const struct etcd_row *want)
{
	const struct etcd_row *have = find(want->er_key);

	if (!want->er_mod || !have)
		return !want->er_mod && !have;
	return have->er_mod == want->er_mod && !strcmp(have->er_value, want->er_value);
}

static void put(const char *key, const char *value)
{
	struct etcd_row *r = find(key);

	for (unsigned i = 0; !r && i < ETCD_ROWS; i++)
		if (!etcd.e_row[i].er_mod)
			r = &etcd.e_row[i];
	if (!r)
		abort();
	snprintf(r->er_key, sizeof(r->er_key), "%s", key);
	snprintf(r->er_value, sizeof(r->er_value), "%s", value);
	r->er_mod = ++etcd.e_revision;
}

static void transact(struct call *c)
{
	struct etcd_answer *a = &c->c_answer;

	a->ea_done = true;
	for (unsigned i = 0; i < c->c_n; i++)
		a->ea_done = equal(&c->c_rows[i]) && a->ea_done;
	if (c->c_swaps && a->ea_done)
		put(c->c_put, c->c_value);
	for (unsigned i = 0; i < ETCD_ROWS && !(c->c_swaps && a->ea_done); i++) {
		const struct etcd_row *r = find(c->c_key[i]);

		if (r)
			a->ea_row[i] = *r;
		else
			memcpy(a->ea_row[i].er_key, c->c_key[i], ETCD_TEXT);
	}
	a->ea_revision = etcd.e_revision;
}

/* ---- a question's way ---- */

/* The kernel takes it, also while the process stands still: who wakes late may find it. */
static void answer_arrives(void *arg)
{
	struct call *c = arg;

	if (!c->c_proc->p_alive || c->c_proc->p_run != c->c_run || c->c_over)
		return;
	c->c_done = true;
	sim_wake(&c->c_wait);
}

static void question_arrives(void *arg);

static void done_later(void *arg, uint64_t n)
{
	(void)n;
	question_arrives(arg);
}

static void question_arrives(void *arg)
{
	struct call *c = arg;

	/* Some are done later, when they are wanted no more. */
	if (sim_now < etcd.e_away_until) {
		if (sim_chance(500))
			sim_at(etcd.e_away_until, done_later, c, 0);
		return;
	}
	if (!leads(etcd.e_leader) || !linked(c->c_member, etcd.e_leader))
		return;
	transact(c);
	sim_send(ETCD_NODE0 + c->c_member, c->c_proc->p_node, NULL, answer_arrives, c);
}

/* One member, and after a failure the next time another one. Nobody knows then what was done. */
static int ask(struct etcd *e, const struct call *what, uint64_t until_ns, struct etcd_answer *out)
{
	struct call *c = sim_copy(what, sizeof(*what));
	struct sim_proc *p = sim_self();
	uint64_t now = sim_boot(p->p_node);

	memset(out, 0, sizeof(*out));
	e->e_why = "no answer";
	if (now >= until_ns)
		return -EAGAIN;
	c->c_proc = p;
	c->c_run = p->p_run;
	c->c_member = e->e_at;
	sim_point();
	sim_send(p->p_node, ETCD_NODE0 + c->c_member, NULL, question_arrives, c);
	sim_wait(&c->c_wait, until_ns - now);
	c->c_over = true;
	sim_point();
	if (c->c_done) {
		*out = c->c_answer;
		return 0;
	}
	e->e_at = (e->e_at + 1) % ETCD_MEMBERS;
	return -EAGAIN;
}

int etcd_check(const struct etcd_opts *o, char *err, size_t errlen)
{
	(void)o;
	(void)err;
	(void)errlen;
	return 0;
}

int etcd_open(struct etcd **out, const struct etcd_opts *o, char *err, size_t errlen)
{
	(void)o;
	(void)err;
	(void)errlen;
	*out = calloc(1, sizeof(**out));
	(*out)->e_why = "";
	return 0;
}

void etcd_close(struct etcd *e)
{
	free(e);
}

const char *etcd_why(const struct etcd *e)
{
	return e->e_why;
}

static void keys(struct call *c, const char *key0, const char *key1)
{
	snprintf(c->c_key[0], ETCD_TEXT, "%s", key0);
	snprintf(c->c_key[1], ETCD_TEXT, "%s", key1);
}

int etcd_rows(struct etcd *e, const char *key0, const char *key1, uint64_t until_ns,
	      struct etcd_answer *out)
{
	struct call c = {0};

	keys(&c, key0, key1);
	return ask(e, &c, until_ns, out);
}

int etcd_swap(struct etcd *e, const struct etcd_row *rows, unsigned n, const char *key0,
	      const char *key1, const char *value, uint64_t until_ns, struct etcd_answer *out)
{
	struct call c = {.c_swaps = true, .c_n = n};

	keys(&c, key0, key1);
	memcpy(c.c_rows, rows, n * sizeof(*rows));
	snprintf(c.c_put, ETCD_TEXT, "%s", rows[n - 1].er_key);
	snprintf(c.c_value, ETCD_TEXT, "%s", value);
	/* The planted fault: the lease's key is written whoever wrote it last. */
	if (sim_planted("key-blind") && n == 2)
		c.c_n = 1;
	return ask(e, &c, until_ns, out);
}
