/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exclusive_test.c - the real mds/file/exclusive.c in a world of two holders and two data servers,
 * driven through all orders of events to a depth. The clock stands still: a deadline is an event
 * like any other.
 *
 * The world is one block of memory, in which the engine's requests lie as well: a state is kept and
 * put back by copying it, and two ways that lead to the same state are gone on with once.
 */
#include "tests/unit/excl_world.h"

/* ---- what has to hold ---- */

static bool honoured(unsigned s, uint32_t caps)
{
	return world.server[s].leased && caps >> world.server[s].epoch;
}

/* An answer that says that a server lives and has not confirmed: only those without a lease have.
 */
static bool not_confirmed;

/* Whether a server whose copy counts takes something of such capabilities. */
static bool any_honoured(uint32_t caps)
{
	for (unsigned s = 0; s < SERVERS; s++)
		if (!world.store.stale[s] && honoured(s, caps) &&
		    (!not_confirmed || world.server[s].generic))
			return true;
	return false;
}

static bool freezes(enum kind k)
{
	return k >= K_WRITES;
}

static bool cuts(enum kind k)
{
	return k == K_SIZE || k == K_SIZE_OWN;
}

/* What a caller may count on from its answer until it lets go. */
static void check_goes_on(const struct caller *c)
{
	for (unsigned h = 0; h < HOLDERS; h++) {
		const struct holder *o = &world.holder[h];
		bool own = c->kind == K_SIZE_OWN && h == 0;

		switch (c->kind) {
		case K_TAKE_BACK:
		case K_STALE:
			must(!o->has || !any_honoured(o->caps),
			     "who kept its layout is not fenced");
			must(!o->mode || not_confirmed, "who is fenced has a layout in the table");
			break;
		case K_SETTLE:
			must(!world.file.f_intent_old, "an earlier boot's mark stays");
			if (!c->began_clean) /* there was something of an earlier boot */
				must(!any_honoured(o->caps & 2),
				     "an earlier boot's capability is honoured");
			break;
		case K_FENCED:
		case K_LAYOUTS:
		case K_RIGHTS:
			must(!any_honoured(o->caps), "a capability of before is honoured");
			must(!o->mode || not_confirmed, "who is fenced has a layout in the table");
			break;
		case K_SIZE:
		case K_SIZE_OWN:
			must(!any_honoured(o->rw_caps),
			     "a write of before a size is taken after it");
			must(own || !(o->mode & WRITES) || not_confirmed,
			     "who is fenced has a layout in the table");
			break;
		case K_WRITES:
			must(!any_honoured(o->rw_caps),
			     "a write of before is taken by a frozen file");
			must(!(o->mode & WRITES), "who is fenced has a layout in the table");
			break;
		case K_ALL:
			must(!any_honoured(o->rw_caps),
			     "a write of before is taken by a frozen file");
			must(!o->has || !any_honoured(o->caps),
			     "who kept its layout is not fenced");
			must(!o->mode || not_confirmed, "who is fenced has a layout in the table");
			break;
		default:
			break;
		}
	}
	if (c->kind == K_LAYOUTS || (c->kind == K_FENCED && !c->began_fenced))
		must(world.store.epoch > c->began_epoch,
		     "the epoch did not go up before an exclusive change");
	must(!world.store.suspect || world.store.stale[0] || world.store.stale[1],
	     "copies that may differ are trusted");
}

static void check_goes_on_all_the_same(const struct caller *c)
{
	not_confirmed = true;
	check_goes_on(c);
	not_confirmed = false;
}

static void check_alone(const struct caller *c)
{
	for (unsigned k = 0; k < CALLERS; k++) {
		const struct caller *o = &world.caller[k];

		if (o == c)
			continue;
		must(!(freezes(c->kind) && o->stage == HAS_IT && freezes(o->kind)),
		     "two have the file");
		must(!(freezes(c->kind) && o->stage == CHANGES && cuts(o->kind)),
		     "a file is frozen that is being cut");
		must(!(cuts(c->kind) && o->stage == HAS_IT && freezes(o->kind)),
		     "a frozen file is cut");
	}
}

/* ---- callers ---- */

static void let_go(struct caller *c)
{
	c->stage = OVER;
	excl_end(&c->x, c->err);
	memset(&c->x, 0, sizeof(c->x));
}

static void answered(void *arg, int err)
{
	struct caller *c = arg;

	must(++c->answers == 1, "answered twice");
	c->err = err;
	if (!err && c->kind != K_TAKE_BACK_UNHEARD && !cuts(c->kind) && c->kind != K_RIGHTS)
		check_goes_on(c);
	if (err == -ETIMEDOUT && (c->kind == K_TAKE_BACK || c->kind == K_STALE))
		check_goes_on_all_the_same(c);
	if (!freezes(c->kind)) {
		c->stage = OVER;
		return;
	}
	if (!err)
		check_alone(c);
	c->stage = HAS_IT;
	if (err || c->gone)
		let_go(c);
}

/* A size, and rights: as mds/nfs4/size.c. */
static void change_over(struct caller *c, int err)
{
	c->err = err;
	must(++c->answers == 1, "answered twice");
	c->stage = OVER;
	excl_end(&c->x, err == -EIO ? err : 0);
	if (!err)
		check_goes_on(c);
	else if (err == -ETIMEDOUT)
		check_goes_on_all_the_same(c);
	memset(&c->x, 0, sizeof(c->x));
}

static void change_ordered(void *arg, int err)
{
	change_over(arg, err);
}

static int change_run(struct kv_op *op, struct kv_txn *t)
{
	struct caller *c = hash_entry(op, struct caller, op);
	struct ns_inode i = {.i_ino = INO};
	struct lo_map map;
	bool raise;
	int err;

	lo_map_decode((struct kv_slice){0}, &map);
	raise = c->x.ex_left || !map.lm_clean;
	err = excl_fence(&c->x, t, &i, &map, raise, cuts(c->kind), (struct ns_time){0});
	for (unsigned s = 0; s < SERVERS && cuts(c->kind); s++)
		put_order(s, map.lm_epoch, true);
	return err;
}

static void change_committed(struct kv_op *op, int err)
{
	struct caller *c = hash_entry(op, struct caller, op);

	if (err)
		change_over(c, err);
	else
		excl_order(&c->x, NULL, change_ordered, c);
}

static void change_recalled(void *arg, int err)
{
	struct caller *c = arg;

	must(!err && c->stage == WAITS, "answered twice");
	check_alone(c);
	c->stage = CHANGES;
	c->op = (struct kv_op){.o_run = change_run, .o_done = change_committed};
	kv_submit(NULL, &c->op);
}

static void change_begin(struct caller *c)
{
	bool size = cuts(c->kind);
	int waits = excl_change(&c->x, &env, NULL, INO, c->kind == K_SIZE_OWN ? &clients[0] : NULL,
				size ? EXCL_SIZE : EXCL_RIGHTS, size, change_recalled, c);

	if (waits < 0) {
		c->answers++;
		c->err = waits;
		c->stage = OVER;
	} else if (!waits) {
		change_recalled(c, 0);
	}
}

/* A copy becomes stale: as mds/jobs/dead_server.c. */
static int stale_run(struct kv_op *op, struct kv_txn *t)
{
	struct caller *c = hash_entry(op, struct caller, op);
	struct lo_map map;

	lo_map_decode((struct kv_slice){0}, &map);
	c->stale = lo_map_make_stale(&map, 2, NULL);
	return c->stale ? excl_stale(&c->hold, &env, t, INO, &map, (struct ns_time){0}) : 0;
}

static void stale_committed(struct kv_op *op, int err)
{
	struct caller *c = hash_entry(op, struct caller, op);

	if (!err && c->stale && excl_recall_stale(&c->hold, &env, NULL, INO, NULL, answered, c))
		return;
	excl_unblock(&c->hold);
	c->answers++;
	c->err = err;
	c->stage = OVER;
}

static const enum excl_how how_of[KINDS] = {
	[K_WRITES] = EXCL_WRITES, [K_LAYOUTS] = EXCL_LAYOUTS, [K_ALL] = EXCL_ALL};

static void caller_begin(struct caller *c)
{
	bool waits = true;

	c->stage = WAITS;
	c->began_epoch = world.store.epoch;
	c->began_clean = !world.file.f_intent_old;
	c->began_fenced = world.store.clean;
	switch (c->kind) {
	case K_TAKE_BACK:
		waits = excl_recall_and_fence(&env, NULL, INO, NULL, answered, c);
		break;
	case K_TAKE_BACK_UNHEARD:
		excl_recall_and_fence(&env, NULL, INO, NULL, NULL, NULL);
		waits = false;
		break;
	case K_FENCED:
		excl_recall_and_fence_all(&env, NULL, INO, answered, c);
		break;
	case K_SETTLE:
		waits = excl_resolve(&env, NULL, INO, answered, c);
		break;
	case K_STALE:
		c->op = (struct kv_op){.o_run = stale_run, .o_done = stale_committed};
		kv_submit(NULL, &c->op);
		break;
	case K_RIGHTS:
	case K_SIZE:
	case K_SIZE_OWN:
		change_begin(c);
		break;
	default:
		excl_begin(&c->x, &env, NULL, INO, NULL, how_of[c->kind], answered, c);
	}
	if (!waits) {
		c->answers++;
		c->stage = OVER;
	}
}

/* ---- events ---- */

enum event {
	E_A_BEGINS,
	E_B_BEGINS,
	E_WRITER_RETURNS,
	E_READER_RETURNS,
	E_WRITER_HAS_NONE, /* CB_LAYOUTRECALL is answered NOMATCHING_LAYOUT */
	E_DEADLINE,	   /* of the recall that waits longest: who is left stays silent */
	E_LAST_DEADLINE,
	E_COMMITTED,
	E_COMMIT_FAILS,
	E_FIRST_CONFIRMS,
	E_SECOND_CONFIRMS,
	E_LEASE_OVER,	/* of the second server */
	E_RESTARTED,	/* the second server has done its orders, and serves again */
	E_CONFIRM_LATE, /* a server lives and does not do its orders */
	E_EVICTED,	/* the writer: its number is barred */
	E_WRITER_ASKS,	/* LAYOUTGET */
	E_READER_ASKS,
	E_A_LETS_GO,
	E_B_LETS_GO,
	E_A_IS_GONE, /* its COMPOUND */
	EVENTS
};

static void wait_ends(unsigned k, unsigned left)
{
	struct st_wait *x = world.wait[k];

	world.nwait--;
	for (; k < world.nwait; k++)
		world.wait[k] = world.wait[k + 1];
	world.wait[world.nwait] = NULL;
	x->w_then(x, left);
}

/* What the loop has to do, until there is nothing: messages, those whose layouts are back, those
 * whose orders are done. */
static void settle_down(void)
{
	for (bool any = true; any && !wrong;) {
		any = false;
		if (world.nmsg) {
			struct loop_msg *m = world.msg[0];

			world.nmsg--;
			memmove(world.msg, world.msg + 1, world.nmsg * sizeof(world.msg[0]));
			world.msg[world.nmsg] = NULL;
			m->m_run(m);
			any = true;
			continue;
		}
		for (unsigned k = 0; k < world.nwait && !any; k++) {
			if (count_left(world.wait[k]))
				continue;
			wait_ends(k, 0);
			any = true;
		}
		for (unsigned k = 0; k < SLOTS && !any; k++) {
			struct order_wait o = world.order[k];

			if (!o.done || !order_wait_over(&o))
				continue;
			world.order[k] = (struct order_wait){0};
			o.done(o.arg, 0);
			any = true;
		}
	}
}

static void layout_goes(unsigned h, bool unsent)
{
	struct holder *o = &world.holder[h];

	o->mode = 0;
	o->has = o->recalled = false;
	if (unsent)
		o->caps = o->rw_caps = 0;
	layouts_changed();
}

static void commit(bool ok)
{
	struct store was = world.store;
	struct kv_op *op = world.commit[0];
	int err = op->o_run(op, NULL);

	if (!ok) {
		world.store = was;
		err = err ? err : -EIO;
	}
	world.ncommit--;
	memmove(world.commit, world.commit + 1, world.ncommit * sizeof(world.commit[0]));
	world.commit[world.ncommit] = NULL;
	op->o_done(op, err);
}

static void confirms(unsigned s)
{
	if (world.store.todo[s].epoch > world.server[s].epoch)
		world.server[s].epoch = world.store.todo[s].epoch;
	memset(&world.store.todo[s], 0, sizeof(world.store.todo[s]));
}

static bool somebodys(void)
{
	bool any = false;

	for (unsigned k = 0; k < CALLERS; k++) {
		const struct caller *c = &world.caller[k];

		/* A layout for reading may be given while a right is taken of nobody. */
		any |= (c->stage == WAITS && c->kind != K_STALE && c->kind != K_SETTLE) ||
		       c->stage == CHANGES || c->stage == HAS_IT;
	}
	return any;
}

/* As mds/nfs4/op_layout.c. */
static void asks(unsigned h)
{
	struct holder *o = &world.holder[h];

	if (world.file.f_nexcl || world.file.f_suspect || world.file.f_intent_old)
		return;
	must(!somebodys(), "a layout is given while the file is somebody's");
	o->mode = h ? LAYOUTIOMODE4_READ : LAYOUTIOMODE4_RW;
	o->has = true;
	o->recalled = false;
	o->caps |= 1u << world.store.epoch;
	o->rw_caps |= h ? 0 : 1u << world.store.epoch;
	world.store.clean = false;
	world.file.f_intent |= !h;
	layouts_changed();
}

/* By a server that has no lease. */
static bool owed(const struct order_wait *o)
{
	return o->of[1] && world.server[1].generic && world.store.todo[1].first &&
	       world.store.todo[1].first <= o->high;
}

/* Of each function: false, it cannot happen now, or is another's. */

static bool callers_do(enum event e)
{
	switch (e) {
	case E_A_BEGINS:
	case E_B_BEGINS:
		if (world.caller[e - E_A_BEGINS].stage != NOT_BEGUN)
			return false;
		caller_begin(&world.caller[e - E_A_BEGINS]);
		break;
	case E_A_LETS_GO:
	case E_B_LETS_GO:
		if (world.caller[e - E_A_LETS_GO].stage != HAS_IT)
			return false;
		let_go(&world.caller[e - E_A_LETS_GO]);
		break;
	case E_A_IS_GONE:
		if (!freezes(world.caller[0].kind) || world.caller[0].stage != WAITS ||
		    world.caller[0].gone)
			return false;
		world.caller[0].gone = true;
		break;
	default:
		return false;
	}
	return true;
}

static bool holders_do(enum event e)
{
	struct holder *writer = &world.holder[0], *reader = &world.holder[1];

	switch (e) {
	case E_WRITER_RETURNS:
	case E_READER_RETURNS:
		if (!world.holder[e - E_WRITER_RETURNS].has)
			return false;
		layout_goes(e - E_WRITER_RETURNS, false);
		break;
	case E_WRITER_HAS_NONE:
		if (!writer->mode || !writer->recalled)
			return false;
		layout_goes(0, true);
		break;
	case E_EVICTED:
		if (world.evicted || !writer->caps)
			return false;
		world.evicted = true;
		world.file.f_suspect |= writer->mode != 0;
		world.file.f_suspect_gen += writer->mode != 0;
		layout_goes(0, true);
		break;
	case E_WRITER_ASKS:
	case E_READER_ASKS:
		if ((e == E_WRITER_ASKS ? writer : reader)->mode ||
		    (world.evicted && e == E_WRITER_ASKS))
			return false;
		if (world.store.epoch > 20)
			return false;
		asks(e - E_WRITER_ASKS);
		break;
	default:
		return false;
	}
	return true;
}

/* The deadlines of recalls, and the store. */
static bool mds_does(enum event e)
{
	unsigned at;

	switch (e) {
	case E_DEADLINE:
	case E_LAST_DEADLINE:
		if (world.nwait < (e == E_DEADLINE ? 1 : 2))
			return false;
		at = e == E_DEADLINE ? 0 : world.nwait - 1;
		wait_ends(at, count_left(world.wait[at]));
		break;
	case E_COMMITTED:
	case E_COMMIT_FAILS:
		if (!world.ncommit || (e == E_COMMIT_FAILS && world.failed))
			return false;
		world.failed |= e == E_COMMIT_FAILS;
		commit(e == E_COMMITTED);
		break;
	default:
		return false;
	}
	return true;
}

/* Of the first that is waited for. */
static bool confirm_is_late(void)
{
	for (unsigned k = 0; k < SLOTS && !world.late; k++) {
		struct order_wait o = world.order[k];

		if (!o.done)
			continue;
		world.late = true;
		world.order[k] = (struct order_wait){0};
		o.done(o.arg, owed(&o) ? -EBUSY : -ETIMEDOUT);
		return true;
	}
	return false;
}

static bool servers_do(enum event e)
{
	switch (e) {
	case E_FIRST_CONFIRMS:
	case E_SECOND_CONFIRMS:
		if (!world.store.todo[e - E_FIRST_CONFIRMS].first ||
		    !world.server[e - E_FIRST_CONFIRMS].leased || world.ncommit)
			return false;
		confirms(e - E_FIRST_CONFIRMS);
		break;
	case E_LEASE_OVER:
		if (world.lease_over || !world.server[1].leased || world.server[1].generic)
			return false;
		world.lease_over = true;
		world.server[1].leased = false;
		break;
	case E_RESTARTED:
		if (world.restarted || world.server[1].generic ||
		    (world.server[1].leased && !world.store.todo[1].first))
			return false;
		world.restarted = true;
		confirms(1);
		world.server[1].leased = true;
		break;
	case E_CONFIRM_LATE:
		return confirm_is_late();
	default:
		return false;
	}
	return true;
}

static bool happens(enum event e)
{
	if (!callers_do(e) && !holders_do(e) && !mds_does(e) && !servers_do(e))
		return false;
	settle_down();
	for (unsigned k = 0; k < CALLERS; k++)
		if (world.caller[k].stage == HAS_IT)
			check_goes_on(&world.caller[k]);
	return true;
}

static void begin(enum kind a, enum kind b, enum start start)
{
	memset(&world, 0, sizeof(world));
	wrong = NULL;
	world.file.f_ino = INO;
	world.store.epoch = 1;
	for (unsigned s = 0; s < SERVERS; s++)
		world.server[s] = (struct server){.epoch = 1, .leased = true};
	for (unsigned h = 0; h < HOLDERS; h++) {
		world.holder[h].client = &clients[h];
		if (h == 0 && start == READER_ONLY)
			continue;
		world.holder[h].mode = h ? LAYOUTIOMODE4_READ : LAYOUTIOMODE4_RW;
		world.holder[h].has = true;
		world.holder[h].caps = 2;
		world.holder[h].rw_caps = h ? 0 : 2;
	}
	if (start == OLD_BOOT) {
		world.file.f_intent_old = true;
		world.holder[0].mode = world.holder[1].mode = 0; /* nobody has come back */
	}
	world.server[1].generic = start == GENERIC;
	world.file.f_intent = start != READER_ONLY;
	layouts_changed();
	world.caller[0].kind = a;
	world.caller[1].kind = b;
}

/* ---- all orders ---- */

#define SEEN_BITS 17
static struct {
	uint64_t key;
	uint8_t depth; /* that was left */
	uint32_t round;
} * seen;
static uint32_t seen_round;
static uint64_t states, ways;
static size_t seen_now;

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
	const uint64_t *v = p;

	for (; n >= 8; n -= 8)
		h = (h ^ *v++) * 0x9e3779b97f4a7c15ull, h ^= h >> 29;
	return h;
}

/* Of a request what tells what it does next. */
static uint64_t mix_excl(uint64_t h, const struct excl *x)
{
	uint64_t v[] = {
		x->ex_phase | (uint64_t)x->ex_how << 4 | (uint64_t)x->ex_held << 8 |
			(uint64_t)x->ex_rw_only << 9 | (uint64_t)x->ex_changed << 10 |
			(uint64_t)x->ex_late << 11 | (uint64_t)x->ex_unfenced << 12 |
			(uint64_t)x->ex_raised << 13 | (uint64_t) !!x->ex_hold.eh_env << 14 |
			(uint64_t) !!x->ex_then << 15,
		x->ex_left | (uint64_t)x->ex_judged << 32,
		x->ex_silent | x->ex_quiet << 8 | (uint64_t)(uint32_t)x->ex_err << 32,
		x->ex_map.lm_epoch | (uint64_t)x->ex_map.lm_stripes << 32 |
			(uint64_t)x->ex_map.lm_obj[0].ob_state << 40 |
			(uint64_t)x->ex_map.lm_obj[1].ob_state << 48,
		(uintptr_t)x->ex_arg,
	};

	return mix(h, v, sizeof(v));
}

static uint64_t world_hash(void)
{
	uint64_t h = mix(1, &world, offsetof(struct world, caller) & ~(size_t)7);
	uint64_t flags = (uint64_t)world.failed | (uint64_t)world.late << 1 |
			 (uint64_t)world.evicted << 2 | (uint64_t)world.restarted << 3 |
			 (uint64_t)world.lease_over << 4;

	for (unsigned k = 0; k < CALLERS; k++) {
		const struct caller *c = &world.caller[k];

		h = mix(h, c, offsetof(struct caller, x) & ~(size_t)7);
		h = mix_excl(h, &c->x);
		h = mix(h, &c->hold, sizeof(c->hold));
	}
	for (unsigned k = 0; k < SLOTS; k++)
		if (world.used[k])
			h = mix_excl(h + k, (const struct excl *)(const void *)world.slot[k].bytes);
	return mix(h, &flags, sizeof(flags)) * 0x9e3779b97f4a7c15ull;
}

/* False: it was gone on with before, as far as this. */
static bool is_new(unsigned left)
{
	uint64_t h = world_hash();
	size_t at = h >> (64 - SEEN_BITS), most = (size_t)1 << SEEN_BITS;

	for (;; at = (at + 1) % most) {
		if (seen[at].round != seen_round) {
			seen[at].key = h;
			seen[at].round = seen_round;
			seen[at].depth = (uint8_t)left;
			states++;
			must(++seen_now < most / 2, "more states than there is room for");
			return true;
		}
		if (seen[at].key == h)
			break;
	}
	if (seen[at].depth >= left)
		return false;
	seen[at].depth = (uint8_t)left;
	return true;
}

/* A free place is zeros. */
static void world_copy(struct world *to, const struct world *from)
{
	unsigned n = SLOTS;

	while (n && !from->used[n - 1] && !to->used[n - 1])
		n--;
	memcpy(to, from, offsetof(struct world, slot[n]));
}

/* All that has to come comes: nobody waits any more. */
static void check_ends(const struct world *from, const enum event *order, unsigned n)
{
	world_copy(&world, from);
	for (unsigned turns = 0, k = 0; k < n && !wrong; k++) {
		if (!happens(order[k]))
			continue;
		k = (unsigned)-1; /* from the first again */
		if (!must(++turns < 100, "there is no end"))
			return;
	}
	if (wrong)
		return;
	for (unsigned k = 0; k < CALLERS; k++)
		must(world.caller[k].stage == OVER && world.caller[k].answers == 1,
		     "somebody waits for ever");
	must(!world.nwait && !world.ncommit && !world.nmsg, "something waits for ever");
	must(!world.file.f_nexcl && !world.file.f_nrecalling && !world.file.f_nfrozen &&
		     !world.file.f_nhidden && !world.file.f_nsizing,
	     "the file is not let go");
	for (unsigned k = 0; k < SLOTS; k++)
		must(!world.used[k] && !world.order[k].done, "a request is left behind");
}

static void check_all_ends(void)
{
	static const enum event confirmed[] = {
		E_A_BEGINS,	   E_B_BEGINS,	E_COMMITTED,  E_DEADLINE,  E_FIRST_CONFIRMS,
		E_SECOND_CONFIRMS, E_RESTARTED, E_LEASE_OVER, E_A_LETS_GO, E_B_LETS_GO};
	static const enum event returned[] = {E_A_BEGINS,	E_B_BEGINS,	   E_WRITER_RETURNS,
					      E_READER_RETURNS, E_COMMITTED,	   E_LEASE_OVER,
					      E_FIRST_CONFIRMS, E_SECOND_CONFIRMS, E_RESTARTED,
					      E_DEADLINE,	E_A_LETS_GO,	   E_B_LETS_GO};
	static struct world was;

	world_copy(&was, &world);
	check_ends(&was, confirmed, sizeof(confirmed) / sizeof(confirmed[0]));
	if (!wrong)
		check_ends(&was, returned, sizeof(returned) / sizeof(returned[0]));
	world_copy(&world, &was);
}

static struct world kept[16];
static enum event way[16];

static void explore(unsigned at, unsigned depth)
{
	bool any = false;

	if (at == depth) {
		ways++;
		check_all_ends();
		return;
	}
	world_copy(&kept[at], &world);
	for (enum event e = 0; e < EVENTS && !wrong; e++) {
		if (!happens(e))
			continue;
		any = true;
		way[at] = e;
		if (!wrong && is_new(depth - at - 1))
			explore(at + 1, depth);
		if (!wrong)
			world_copy(&world, &kept[at]);
	}
	if (!any && !wrong)
		check_all_ends();
}

static const char *const event_name[EVENTS] = {"A begins",
					       "B begins",
					       "the writer returns",
					       "the reader returns",
					       "the writer has none",
					       "deadline",
					       "the last's deadline",
					       "committed",
					       "the commit fails",
					       "server 1 confirms",
					       "server 2 confirms",
					       "server 2's lease ends",
					       "server 2 restarts",
					       "not confirmed in time",
					       "the writer is evicted",
					       "the writer asks",
					       "the reader asks",
					       "A lets go",
					       "B lets go",
					       "A's COMPOUND is gone"};

/* NULL: nothing is violated. */
static const char *try_all(enum kind a, enum kind b, enum start start, unsigned depth, char *told,
			   size_t max)
{
	size_t n;

	seen_round++;
	seen_now = 0;
	memset(way, 0xff, sizeof(way));
	begin(a, b, start);
	explore(0, depth);
	if (!wrong)
		return NULL;
	n = (size_t)snprintf(told, max, "%s, %s, start %d: %s:", kind_name[a], kind_name[b],
			     (int)start, wrong);
	for (unsigned k = 0; k < depth && way[k] < EVENTS && n < max; k++)
		n += (size_t)snprintf(told + n, max - n, " %s;", event_name[way[k]]);
	return wrong;
}

static void setup(void)
{
	seen = calloc((size_t)1 << SEEN_BITS, sizeof(*seen));
	ck_assert_ptr_nonnull(seen);
}

static void teardown(void)
{
	free(seen);
	fault = FAULT_NONE;
}

#define DEPTH 8

/* Of all pairs with this caller and those that come after it. */
START_TEST(in_all_orders_of_events_nobody_goes_on_before_the_others_are_out)
{
	char told[1024] = "";

	for (enum kind b = (enum kind)_i; b < KINDS; b++)
		for (enum start s = 0; s < STARTS; s++)
			ck_assert_msg(!try_all((enum kind)_i, b, s, DEPTH, told, sizeof(told)),
				      "%s", told);
	printf("# %s: %lu states, %lu ways of %d events\n", kind_name[_i], (unsigned long)states,
	       (unsigned long)ways, DEPTH);
	ck_assert_uint_gt(states, 100);
}
END_TEST

/* It is found where it is, by some pair of callers. */
START_TEST(a_planted_fault_is_found)
{
	char told[1024] = "";
	bool found = false;

	fault = (enum fault)_i;
	for (enum start s = 0; s < STARTS && !found; s++)
		for (enum kind a = 0; a < KINDS && !found; a++)
			for (enum kind b = a; b < KINDS && !found; b++)
				found = try_all(a, b, s, DEPTH, told, sizeof(told));
	printf("# fault %d: %s\n", _i, told);
	ck_assert_msg(found, "planted fault %d is not found", _i);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exclusive");
	TCase *tc = tcase_create("orders of events");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, in_all_orders_of_events_nobody_goes_on_before_the_others_are_out, 0,
			    KINDS);
	tcase_add_loop_test(tc, a_planted_fault_is_found, FAULT_NONE + 1, FAULTS);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
