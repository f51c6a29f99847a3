/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict.c - evicts a client whose lease has run out. One transaction bars the client's number from
 * the data servers and deletes its record. The client's state goes only when every server has
 * confirmed (docs/fencing.md, "Eviction"). A client that lives after all comes back as a new client
 * with a new number.
 */
#include "base/log.h"
#include "mds/file/mirror_state.h"
#include "mds/file/evict.h"
#include "mds/journal/event_journal.h"
#include "mds/layout/repair_row.h"
#include <errno.h>

struct evict {
	struct kv_op op;
	const struct file_env *fe;
	struct loop *loop;
	uint64_t id;
	uint32_t number;
	bool barred, writer; /* writer: the files that it wrote must be resolved */
	bool asked, held;    /* held: it had an open or a layout to lose */
	char name[EV_SUBJECT_MAX + 1];
	uint8_t key[32];
};

static void evict_wait(struct evict *e);

static void evict_end(struct evict *e, bool gone)
{
	struct st *st = e->fe->fe_st;
	struct st_client *cl;

	st_all_lock(st);
	cl = st_client_get(st, e->id);
	if (cl && gone && (e->asked || e->held))
		journal_add(EV_CLIENT_EVICTED, e->name, 0, "client %u: %s", e->number,
			    e->asked ? "the administrator evicted it" : "its lease had run out");
	if (cl && gone)
		st_client_destroy(st, cl);
	else if (cl)
		atomic_store(&cl->cl_evicting, false); /* the next tick tries again */
	st_all_unlock(st);
	free(e);
}

static void evict_confirmed(void *arg, int err)
{
	struct evict *e = arg;

	if (!err) {
		evict_end(e, true);
		return;
	}
	log_error("client %u: a live data server does not bar it: %s", e->number, strerror(-err));
	evict_wait(e);
}

static void evict_wait(struct evict *e)
{
	lo_orders_wait(e->fe->fe_lo, 0, e->loop, e->fe->fe_confirm_ms, evict_confirmed, e);
}

static void evict_committed(struct kv_op *op, int err)
{
	struct evict *e = hash_entry(op, struct evict, op);

	if (err)
		log_error("cannot evict client %u now: %s", e->number, strerror(-err));
	if (e->writer) {
		/* The files are resolved even where the transaction failed. */
		atomic_store(&e->fe->fe_lost->fl_lost, true);
		file_lost_writers_end(e->fe);
	}
	if (err || !e->barred) {
		evict_end(e, !err);
		return;
	}
	lo_orders_wake(e->fe->fe_lo);
	evict_wait(e);
}

static int evict_run(struct kv_op *op, struct kv_txn *t)
{
	struct evict *e = hash_entry(op, struct evict, op);
	int err = st_record_del(e->fe->fe_st, t, e->key, e->number);

	if (!err && e->writer)
		err = lo_lost_writers_put(t);
	return err || !e->barred ? err : lo_order_bar(e->fe->fe_lo, t, e->number);
}

/* The end of the owner string says most: Linux puts the host's name there. */
void evict_name_of(const struct st_client *cl, char name[EV_SUBJECT_MAX + 1])
{
	uint32_t len = cl->cl_owner_len < EV_SUBJECT_MAX ? cl->cl_owner_len : EV_SUBJECT_MAX;
	const uint8_t *from = cl->cl_owner + cl->cl_owner_len - len;

	for (uint32_t i = 0; i < len; i++)
		name[i] = from[i] >= 0x20 && from[i] < 0x7f ? (char)from[i] : '?';
	name[len] = 0;
}

/* asked: the administrator asks for it, whether the lease has run out or not. Returns 0; -ENOENT;
 * -EALREADY: an eviction is under way; -EAGAIN: the client lives; -ENOMEM. */
static int evict_begin(const struct file_env *fe, struct loop *loop, uint64_t clientid, bool asked)
{
	struct evict *e = calloc(1, sizeof(*e));
	struct st *st = fe->fe_st;
	struct st_client *cl;
	int err;

	if (!e)
		return -ENOMEM;
	st_all_lock(st);
	cl = st_client_get(st, clientid);
	err = !cl							       ? -ENOENT
	      : atomic_load(&cl->cl_evicting)				       ? -EALREADY
	      : !asked && (!st_lease_expired(st, cl) || !st_client_leaves(cl)) ? -EAGAIN
									       : 0;
	if (err) {
		st_all_unlock(st);
		free(e);
		return err;
	}
	atomic_store(&cl->cl_evicting, true);
	while (cl->cl_sessions)
		st_session_destroy(st, cl->cl_sessions);
	e->fe = fe;
	e->loop = loop;
	e->id = clientid;
	e->number = cl->cl_number;
	e->held = st_open_next(cl, NULL) || st_layout_next(cl, NULL);
	/* otherwise it has returned all layouts */
	e->barred = atomic_load(&cl->cl_laid) && e->held;
	e->asked = asked;
	evict_name_of(cl, e->name);
	memcpy(e->key, cl->cl_key, sizeof(e->key));
	e->writer = file_lost_client(st, cl);
	fe->fe_lost->fl_losing += e->writer;
	fe->fe_lost->fl_gen += e->writer;
	st_all_unlock(st);
	if (asked)
		log_warn("evicting client %u at the request of the administrator", e->number);
	else if (e->barred)
		log_warn("evicting client %u: its lease has run out", e->number);
	e->op = (struct kv_op){.o_run = evict_run, .o_done = evict_committed, .o_loop = loop};
	kv_submit(fe->fe_kv, &e->op);
	return 0;
}

void file_evict(const struct file_env *fe, struct loop *loop, uint64_t clientid)
{
	evict_begin(fe, loop, clientid, false); /* no memory: the next tick tries again */
}

int file_evict_now(const struct file_env *fe, struct loop *loop, uint64_t clientid)
{
	return evict_begin(fe, loop, clientid, true);
}

/* Whether this open conflicts with that share reservation: it denies the access, or its own access
 * is denied. With neither access nor deny: whether this open has locks. */
static bool stands_in_way(const struct st_open *o, uint32_t access, uint32_t deny)
{
	if (o->o_deleg)
		return false;
	return access || deny ? (o->o_access & deny) || (o->o_deny & access) : st_open_has_locks(o);
}

void file_evict_in_way(const struct file_env *fe, struct loop *loop, uint64_t ino, uint32_t access,
		       uint32_t deny)
{
	struct st *st = fe->fe_st;
	uint64_t *ids = NULL;
	size_t n = 0, max = 0;
	struct st_file *f;

	st_all_lock(st);
	f = st_file_get(st, ino, false);
	for (const struct st_open *o = f ? f->f_opens : NULL; o; o = o->o_fnext)
		max++;
	ids = max ? malloc(max * sizeof(*ids)) : NULL; /* no memory: the next try evicts them */
	for (const struct st_open *o = ids ? f->f_opens : NULL; o; o = o->o_fnext) {
		if (stands_in_way(o, access, deny) && st_lease_expired(st, o->o_client) &&
		    !atomic_load(&o->o_client->cl_evicting))
			ids[n++] = o->o_client->cl_id;
	}
	st_all_unlock(st);
	for (size_t i = 0; i < n; i++)
		file_evict(fe, loop, ids[i]);
	free(ids);
}
