/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_server.c - the three servers: what they have, replication, crashes, and the manager that
 * promotes (as Patroni does, with a look at both standbys). See engine.h.
 *
 * What is true to PostgreSQL: a commit waits for one of two standbys with its locks held; a primary
 * that starts again shows all that it has flushed, also what no standby has; a server that stands
 * still or is cut off goes on believing that it is the primary; a commit without a wait
 * (synchronous_commit=off) may be lost by a crash; who is ended while it waits has committed here.
 */
#include "tests/sim/engine.h"
#include <stdio.h>
#include <string.h>

struct pg_server pg_servers[PG_SERVERS];
static unsigned leader, fail_after_ms;
static bool healed;
static uint64_t wal_number;
static struct {
	bool r_flying;
	uint64_t r_since, r_gen;
} repl[PG_SERVERS];

static bool node_ok(unsigned i)
{
	return pg_servers[i].v_up && !pg_servers[i].v_paused && !sim_nodes[i].n_off;
}

/* ---- states ---- */

static int pair_find(const struct pg_state *s, const struct blob *k)
{
	for (unsigned i = 0; i < s->s_nkv; i++)
		if (s->s_kv[i].p_k->b_n == k->b_n &&
		    !memcmp(s->s_kv[i].p_k->b_data, k->b_data, k->b_n))
			return (int)i;
	return -1;
}

static void apply_pair(struct pg_state *s, const struct pg_pair *p)
{
	int at = pair_find(s, p->p_k);

	if (p->p_v && at >= 0)
		s->s_kv[at].p_v = p->p_v;
	else if (p->p_v && s->s_nkv < PG_PAIRS)
		s->s_kv[s->s_nkv++] = *p;
	else if (!p->p_v && at >= 0)
		s->s_kv[at] = s->s_kv[--s->s_nkv];
}

static void apply_reader(struct pg_state *s, const struct wal *w)
{
	unsigned i = 0;

	while (i < s->s_nreaders && strcmp(s->s_reader[i].r_name, w->w_reader) != 0)
		i++;
	if (i == PG_READERS)
		return;
	if (i < s->s_nreaders && w->w_alive)
		return;
	if (i == s->s_nreaders)
		memcpy(s->s_reader[s->s_nreaders++].r_name, w->w_reader, sizeof(w->w_reader));
	s->s_reader[i].r_batch = w->w_kept;
}

void state_apply(struct pg_state *s, const struct wal *w)
{
	if (w->w_inst)
		s->s_inst = w->w_row;
	if (w->w_log && w->w_batch < PG_BATCHES) {
		s->s_log[w->w_batch] = w->w_data;
		s->s_part[w->w_batch] = (int8_t)w->w_part;
		if (w->w_batch > s->s_newest)
			s->s_newest = w->w_batch;
	}
	if (w->w_fold) {
		s->s_folded = w->w_folded;
		s->s_head = w->w_head;
		for (unsigned i = 0; i < w->w_npairs; i++)
			apply_pair(s, &w->w_pairs[i]);
	}
	if (w->w_keep)
		apply_reader(s, w);
	for (int64_t b = 0; w->w_free && b <= s->s_newest; b++)
		if (s->s_log[b] && s->s_part[b] == w->w_part)
			s->s_log[b] = NULL;
}

void server_see(struct pg_server *v, unsigned at)
{
	if (v->v_seen[at])
		return;
	v->v_seen[at] = true;
	state_apply(v->v_state, v->v_wal[at]);
}

/* All that its list has, as after a start. */
static void recover(struct pg_server *v)
{
	static const struct pg_inst first = {.i_turn = 8, .i_id = 1};

	v->v_state = sim_alloc(sizeof(*v->v_state));
	v->v_state->s_inst = first;
	memset(v->v_seen, 0, v->v_room * sizeof(*v->v_seen));
	for (unsigned i = 0; i < v->v_n; i++)
		server_see(v, i);
}

static void list_room(struct pg_server *v, unsigned n)
{
	struct wal **was = v->v_wal;
	bool *seen = v->v_seen;

	if (n <= v->v_room)
		return;
	v->v_wal = sim_alloc(2 * n * sizeof(*was));
	v->v_seen = sim_alloc(2 * n * sizeof(*seen));
	if (v->v_n) {
		memcpy(v->v_wal, was, v->v_n * sizeof(*was));
		memcpy(v->v_seen, seen, v->v_n * sizeof(*seen));
	}
	v->v_room = 2 * n;
}

/* ---- commits ---- */

int server_standbys(const struct pg_server *v)
{
	int n = 0;

	if (v->v_empty_names)
		return -1;
	for (unsigned i = 0; i < PG_SERVERS; i++)
		n += i != v->v_at && v->v_streams[i];
	return n;
}

bool server_synced(const struct pg_server *v, unsigned upto)
{
	if (v->v_empty_names)
		return v->v_flushed >= upto;
	for (unsigned i = 0; i < PG_SERVERS; i++)
		if (i != v->v_at && v->v_acked[i] >= upto && v->v_flushed >= upto)
			return true;
	return false;
}

static void look_at_waits(struct pg_server *v)
{
	struct stmt **p = &v->v_waits, *st;

	while ((st = *p)) {
		if (st->st_run == v->v_run && !server_synced(v, st->st_upto)) {
			p = &st->st_next;
			continue;
		}
		*p = st->st_next;
		if (st->st_run == v->v_run)
			sql_committed(st, false);
	}
}

static void kick(unsigned standby);

static void flushed(void *arg, uint64_t n)
{
	struct pg_server *v = arg;

	if (!v->v_up || (n >> 32) != v->v_run)
		return;
	if ((unsigned)n > v->v_flushed && (unsigned)n <= v->v_n)
		v->v_flushed = (unsigned)n;
	for (unsigned i = 0; i < PG_SERVERS; i++)
		if (i != v->v_at && pg_servers[i].v_from == (int)v->v_at)
			kick(i);
	look_at_waits(v);
}

unsigned server_append(struct pg_server *v, const struct wal *w)
{
	struct wal *mine = sim_copy(w, sizeof(*w));

	mine->w_number = ++wal_number;
	list_room(v, v->v_n + 1);
	v->v_seen[v->v_n] = false;
	v->v_wal[v->v_n++] = mine;
	sim_at(sim_now + sim_between(60000, 900000), flushed, v, (uint64_t)v->v_run << 32 | v->v_n);
	return v->v_n;
}

/* ---- replication ---- */

struct shipment {
	struct pg_server *s_from, *s_to;
	unsigned s_upto, s_from_run, s_to_run;
	uint64_t s_gen;
};

static bool from_ready(void *arg)
{
	const struct shipment *s = arg;

	return !s->s_from->v_paused;
}

static bool to_ready(void *arg)
{
	const struct shipment *s = arg;

	return !s->s_to->v_paused;
}

static void acked(void *arg)
{
	const struct shipment *s = arg;
	struct pg_server *v = s->s_from;
	unsigned i = s->s_to->v_at;

	if (repl[i].r_gen == s->s_gen)
		repl[i].r_flying = false;
	if (!v->v_up || v->v_run != s->s_from_run || !v->v_primary)
		return;
	v->v_heard[i] = sim_now;
	v->v_streams[i] = true;
	if (s->s_upto > v->v_acked[i])
		v->v_acked[i] = s->s_upto;
	look_at_waits(v);
	if (v->v_flushed > s->s_upto)
		kick(i);
}

static void arrived(void *arg)
{
	struct shipment *s = arg;
	struct pg_server *to = s->s_to, *from = s->s_from;

	if (!to->v_up || to->v_run != s->s_to_run || to->v_from != (int)from->v_at)
		return;
	list_room(to, s->s_upto);
	while (to->v_n < s->s_upto) {
		to->v_wal[to->v_n] = from->v_wal[to->v_n];
		to->v_n++;
	}
	to->v_flushed = to->v_n;
	sim_send(to->v_at, from->v_at, from_ready, acked, s);
}

static void kick(unsigned i)
{
	struct pg_server *to = &pg_servers[i], *from;
	struct shipment s;

	if (to->v_from < 0 || !node_ok(i) || !node_ok((unsigned)to->v_from))
		return;
	if (repl[i].r_flying && sim_now - repl[i].r_since < SIM_MS(400))
		return;
	from = &pg_servers[to->v_from];
	if (!from->v_primary)
		return;
	repl[i].r_flying = true;
	repl[i].r_since = sim_now;
	s = (struct shipment){from, to, from->v_flushed, from->v_run, to->v_run, ++repl[i].r_gen};
	sim_send(from->v_at, i, to_ready, arrived, sim_copy(&s, sizeof(s)));
}

/* ---- ends and starts ---- */

static void server_down(struct pg_server *v, bool power)
{
	v->v_up = false;
	conns_lost(v, !power);
	v->v_run++;
	v->v_waits = v->v_queue = v->v_lock_inst = v->v_lock_fold = NULL;
	/* What was not flushed is gone. */
	if (v->v_n > v->v_flushed)
		v->v_n = v->v_flushed;
	memset(v->v_streams, 0, sizeof(v->v_streams));
	memset(v->v_acked, 0, sizeof(v->v_acked));
	for (unsigned i = 0; i < PG_SERVERS && !power; i++)
		pg_servers[i].v_streams[v->v_at] = false;
}

static void follow(struct pg_server *v, unsigned whom)
{
	const struct pg_server *p = &pg_servers[whom];
	unsigned n = 0;

	/* What the other one never had is taken back (pg_rewind). */
	while (n < v->v_n && n < p->v_n && v->v_wal[n] == p->v_wal[n])
		n++;
	v->v_n = v->v_flushed = n;
	v->v_primary = false;
	v->v_from = (int)whom;
	v->v_timeline = p->v_timeline;
	repl[v->v_at].r_flying = false;
	kick(v->v_at);
}

static void start(struct pg_server *v)
{
	v->v_up = true;
	v->v_run++;
	sim_nodes[v->v_at].n_off = false;
	sim_log("PostgreSQL %u starts", v->v_at);
	/* One that missed a promotion learns of it first. */
	if (v->v_at == leader) {
		v->v_primary = true;
		v->v_from = -1;
		recover(v);
	} else if (v->v_from < 0 || v->v_primary || v->v_from != (int)leader) {
		follow(v, leader);
	}
}

static void come_back(void *arg, uint64_t run)
{
	struct pg_server *v = arg;

	if (!v->v_up && v->v_run == run)
		start(v);
}

void engine_kill(unsigned i, bool power, uint64_t back_ns)
{
	struct pg_server *v = &pg_servers[i];

	if (!v->v_up || healed)
		return;
	sim_log("PostgreSQL %u %s%s", i, power ? "loses its power" : "is killed",
		i == leader ? " (primary)" : "");
	server_down(v, power);
	sim_nodes[i].n_off = power;
	sim_at(sim_now + back_ns, come_back, v, v->v_run);
}

static void wake(void *arg, uint64_t n)
{
	struct pg_server *v = arg;

	(void)n;
	v->v_paused = false;
	sim_log("PostgreSQL %u wakes", v->v_at);
	look_at_waits(v);
	kick(v->v_at);
}

void engine_pause(unsigned i, uint64_t ns)
{
	struct pg_server *v = &pg_servers[i];

	if (v->v_paused || healed)
		return;
	sim_log("PostgreSQL %u stands still for %.0f ms%s", i, (double)ns / 1e6,
		i == leader ? " (primary)" : "");
	v->v_paused = true;
	sim_at(sim_now + ns, wake, v, 0);
}

void engine_heal(void)
{
	healed = true;
	for (unsigned i = 0; i < PG_SERVERS; i++)
		if (!pg_servers[i].v_up)
			sim_at(sim_now + SIM_MS(100), come_back, &pg_servers[i],
			       pg_servers[i].v_run);
}

void engine_cancel(void)
{
	struct pg_server *v = &pg_servers[leader];
	struct stmt *st = v->v_waits;

	if (!v->v_up || v->v_paused || !st)
		return;
	sim_log("an administrator ends a wait for a standby");
	v->v_waits = st->st_next;
	sql_committed(st, true);
}

/* ---- the manager ---- */

static bool linked(unsigned a, unsigned b)
{
	return !sim_nodes[a].n_cut[b] && !sim_nodes[b].n_cut[a];
}

static void promote(unsigned best, unsigned other)
{
	struct pg_server *v = &pg_servers[best];

	sim_log("PostgreSQL %u is promoted with %u changes; %u has %u, %u had %u", best, v->v_n,
		other, pg_servers[other].v_n, leader, pg_servers[leader].v_n);
	pg_servers[other].v_from = -1;
	v->v_from = -1;
	v->v_primary = true;
	v->v_timeline++;
	v->v_run++;
	v->v_flushed = v->v_n;
	memset(v->v_acked, 0, sizeof(v->v_acked));
	memset(v->v_streams, 0, sizeof(v->v_streams));
	recover(v);
	leader = best;
	v->v_lost = 0;
	if (node_ok(other))
		follow(&pg_servers[other], best);
}

/* A standby of the history that the primary had. */
static bool candidate(unsigned i)
{
	const struct pg_server *v = &pg_servers[i];

	return node_ok(i) && !v->v_primary && v->v_timeline == pg_servers[leader].v_timeline;
}

static void fail_over(void)
{
	unsigned a = (leader + 1) % PG_SERVERS, b = (leader + 2) % PG_SERVERS;
	bool both = candidate(a) && candidate(b) && linked(a, b);

	if (sim_planted("blind-promotion") && (candidate(a) || candidate(b))) {
		unsigned behind = pg_servers[a].v_n < pg_servers[b].v_n ? a : b;

		if (!candidate(behind))
			behind = behind == a ? b : a;
		promote(behind, behind == a ? b : a);
		return;
	}
	/* One of them may lack what was acknowledged: both are looked at. */
	if (!both)
		return;
	if (pg_servers[a].v_n < pg_servers[b].v_n)
		promote(b, a);
	else
		promote(a, b);
}

/* A server that missed a promotion learns of it, and follows. */
static void demote(struct pg_server *v)
{
	sim_log("PostgreSQL %u follows %u", v->v_at, leader);
	if (v->v_primary)
		server_down(v, false);
	v->v_up = true;
	follow(v, leader);
}

static void manager(void *arg, uint64_t n)
{
	struct pg_server *p = &pg_servers[leader];
	unsigned a = (leader + 1) % PG_SERVERS, b = (leader + 2) % PG_SERVERS;

	(void)arg;
	(void)n;
	if (node_ok(leader) && (linked(leader, a) || linked(leader, b))) {
		p->v_lost = 0;
	} else if (!p->v_lost) {
		p->v_lost = sim_now;
		fail_after_ms = (unsigned)sim_between(800, 3000);
	} else if (sim_now - p->v_lost > SIM_MS(fail_after_ms)) {
		fail_over();
	}
	p = &pg_servers[leader];
	for (unsigned i = 0; i < PG_SERVERS; i++) {
		struct pg_server *v = &pg_servers[i];

		if (i == leader)
			continue;
		if (node_ok(i) && node_ok(leader) && linked(i, leader) &&
		    (v->v_primary || v->v_from != (int)leader))
			demote(v);
		if (p->v_streams[i] && sim_now - p->v_heard[i] > SIM_MS(2000))
			p->v_streams[i] = false;
		kick(i);
	}
	sim_at(sim_now + SIM_MS(100), manager, NULL, 0);
}

int engine_primary(void)
{
	return (int)leader;
}

uint64_t engine_epoch(void)
{
	return (uint64_t)pg_servers[leader].v_state->s_inst.i_epoch;
}

void engine_describe(char *out, size_t n)
{
	const struct pg_server *v = &pg_servers[leader];

	snprintf(out, n, "primary %u, epoch %lld, batch %lld", leader,
		 (long long)v->v_state->s_inst.i_epoch, (long long)v->v_state->s_inst.i_batch);
}

void engine_begin(void)
{
	memset(pg_servers, 0, sizeof(pg_servers));
	memset(repl, 0, sizeof(repl));
	leader = 0;
	healed = false;
	wal_number = 0;
	conns_begin();
	for (unsigned i = 0; i < PG_SERVERS; i++) {
		struct pg_server *v = &pg_servers[i];

		v->v_at = i;
		v->v_up = true;
		v->v_from = i ? 0 : -1;
		v->v_primary = i == 0;
		list_room(v, 256);
	}
	recover(&pg_servers[0]);
	sim_at(sim_now + SIM_MS(1), manager, NULL, 0);
}
