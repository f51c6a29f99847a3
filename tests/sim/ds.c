/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds.c - data servers, as far as they know instances: ds/store/fs.c as it is (joins, epochs, the
 * begin of a batch of orders), over a journal in memory. An order of an instance that was replaced
 * may still be on its way when the next one has joined; it must not be done.
 */
#include "tests/sim/redirect.h"
#include "tests/sim/sim.h"
#include "ds/store/store_int.h"

struct server_ds {
	struct ds_store d_store;
	/* What the journal has. */
	uint64_t d_instance, d_boot_id, d_high;
	uint32_t d_joins;
	uint64_t d_newest; /* the boot of the newest join, or order, that it said yes to */
};
static struct server_ds servers[DS_MAX];

/* ---- the journal, and what is not here ---- */

int ds_journal_append(struct ds_fs *f, struct ds_rec *recs, unsigned n)
{
	struct server_ds *d = (struct server_ds *)f->fs_store;

	(void)recs;
	(void)n;
	d->d_instance = atomic_load(&f->fs_instance);
	d->d_boot_id = atomic_load(&f->fs_boot_id);
	d->d_high = atomic_load(&f->fs_order_high);
	d->d_joins = f->fs_joins;
	atomic_store(&f->fs_order_durable, d->d_high);
	return 0;
}

bool ds_journal_behind(struct ds_store *s)
{
	(void)s;
	return false;
}

int ds_bars_open(struct ds_fs *f)
{
	(void)f;
	return 0;
}

void ds_bars_close(struct ds_fs *f)
{
	(void)f;
}

void ds_marks_meet(struct ds_fs *f)
{
	(void)f;
}

/* ---- starts ---- */

static void ds_start(struct server_ds *d)
{
	struct ds_fs *f;

	atomic_store(&d->d_store.s_nfs, 0);
	if (ds_fs_open(&d->d_store))
		abort();
	f = ds_store_fs_home(&d->d_store);
	atomic_store(&f->fs_number, 1);
	atomic_store(&f->fs_instance, d->d_instance);
	atomic_store(&f->fs_boot_id, d->d_boot_id);
	atomic_store(&f->fs_order_high, d->d_high);
	atomic_store(&f->fs_order_durable, d->d_high);
	f->fs_joins = d->d_joins;
}

void ds_kill(unsigned i)
{
	struct server_ds *d = &servers[i];

	sim_log("data server %u starts again", i);
	ds_fs_close(&d->d_store);
	ds_start(d);
}

void ds_begin(void)
{
	for (unsigned i = 0; i < DS_MAX; i++) {
		struct server_ds *d = &servers[i];

		d->d_instance = d->d_boot_id = d->d_high = d->d_newest = 0;
		d->d_joins = 0;
		ds_start(d);
	}
}

/* ---- messages ---- */

struct order {
	struct server_ds *o_ds;
	unsigned o_from;
	uint64_t o_boot, o_boot_id, o_number;
};

static void accepted(struct server_ds *d, const struct order *o, const char *what)
{
	if (o->o_boot < d->d_newest)
		sim_fail("old-order", "data server %u did %s %llu of boot %llu after boot %llu",
			 (unsigned)(d - servers), what, (unsigned long long)o->o_number,
			 (unsigned long long)o->o_boot, (unsigned long long)d->d_newest);
	else
		d->d_newest = o->o_boot;
}

static void join_arrives(void *arg)
{
	const struct order *o = arg;
	struct ds_fs *f = ds_store_fs(&o->o_ds->d_store, 1);

	if (ds_store_join(f, o->o_boot, o->o_boot_id, 1) == CTL_OK)
		accepted(o->o_ds, o, "the join");
}

static void order_arrives(void *arg)
{
	const struct order *o = arg;
	struct ds_fs *f = ds_store_fs(&o->o_ds->d_store, 1);
	const ctl_order one = {.number = o->o_number};
	uint64_t boot = o->o_boot;
	void *items;

	/* The planted fault: it does not look at who sends the order. */
	if (sim_planted("old-order") && boot < ds_store_seen(f).sn_instance)
		boot = ds_store_seen(f).sn_instance;
	if (ds_batch_begin(f, boot, &one, 1, 8, ds_journal_append, &items) != CTL_OK)
		return;
	free(items);
	accepted(o->o_ds, o, "order");
	if (o->o_number > ds_store_order_high(f))
		sim_fail("old-order", "the journal does not cover order %llu",
			 (unsigned long long)o->o_number);
}

static void to_all(const struct order *what, void (*fn)(void *arg))
{
	for (unsigned i = 0; i < DS_MAX; i++) {
		struct order *o = sim_copy(what, sizeof(*what));

		o->o_ds = &servers[i];
		sim_send(MDS_NODE0 + o->o_from, DS_NODE0 + i, NULL, fn, o);
	}
}

void ds_join_all(unsigned server, uint64_t boot, uint64_t boot_id)
{
	const struct order o = {.o_from = server, .o_boot = boot, .o_boot_id = boot_id};

	to_all(&o, join_arrives);
}

void ds_order(unsigned server, uint64_t boot, uint64_t number)
{
	const struct order o = {.o_from = server, .o_boot = boot, .o_number = number};

	to_all(&o, order_arrives);
}
