/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trash.c - the trash expires, makes room, is emptied and restored (trash.h). All of it runs on one
 * loop, except where a comment says otherwise.
 *
 * Work is done in steps. A step reads one snapshot, chooses at most BATCH entries there, and takes
 * them out in one transaction, which looks again at each. So of an expiry and a restore of the same
 * entry the first one on the committer thread wins, and the other finds nothing.
 *
 * A job that was asked for has a row NS_T_TRASH_JOB from its beginning to its end. Each step that
 * changes something writes how far the job is, in the same transaction. Expiry has no row: it
 * begins again by itself.
 *
 * A step chooses for at most LOOK_US, and then gives the thread back: it shares it with clients. It
 * takes out what it chose until BATCH entries are out, and leaves the others to the next step: one
 * entry can take the directories of its path along.
 *
 * A row that is damaged stops nothing: the step that meets it sets it aside, and says so in the log
 * and in an event.
 */
#include "mds/jobs/trash.h"
#include "mds/file/orphan.h"
#include "mds/jobs/job_int.h"
#include "mds/journal/event_journal.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include <endian.h>
#include <errno.h>
#include <urcu/compiler.h>

#define EMPTY_LEVELS 64u /* directories that one entry takes along, in one step */
#define BATCH	     64
#define LOOK_US	     1000  /* that a step looks for what to do */
#define LOOK_CLOCK   8	   /* entries between two looks at the clock */
#define DAMAGED_MOST 8	   /* rows that a step sets aside */
#define ROOM_MS	     5000  /* between two looks at how full the data servers are */
#define DELETE_MS    60000 /* they get to delete, before the trash makes more room */
#define REST_MS	     10000
#define IDLE_MS	     1000 /* there was nothing to do: expiry counts in seconds */
#define ROW_VERSION  1

enum { ROW_RESTORE = 1, ROW_EMPTY = 2 };
#define ROW_ASIDE 0xff /* begins the id of a row that was set aside */

struct trash_job_rec {
	uint8_t j_version, j_kind, j_len;
	uint64_t j_begun, j_top, j_dir, j_before;
	uint64_t j_at[4]; /* it goes on behind this entry: directory, hash, when, inode */
	uint64_t j_done, j_bytes, j_failed;
} __attribute__((packed)); /* the name of what it is about follows */
_Static_assert(sizeof(struct trash_job_rec) == 91, "a job about the trash, version 1");

struct trash_job {
	struct job_trash_view v;
	struct ns_trash_top top;
	char name[NS_NAME_MAX];
	uint64_t before;
	struct ns_trash_at at;
};

/* A row that cannot be read. */
struct damaged {
	uint8_t da_key[KV_KEY_MAX];
	size_t da_len;
	uint64_t da_ino; /* 0: not known */
};

struct chosen {
	uint64_t ch_ino;
	/* of a job: how far it is with this entry, and how many had failed by then */
	struct ns_trash_at ch_at;
	uint64_t ch_failed;
};

/* What a full data server still has to get free. */
struct full {
	uint32_t ds;
	uint64_t need;
};

struct job_trash {
	struct mds *tr_m;
	struct loop *tr_loop;
	pthread_mutex_t tr_lock; /* protects the fields up to tr_expiring: any thread */
	struct trash_job tr_job[JOB_TRASH_MOST];
	unsigned tr_n, tr_coming; /* coming: their rows are being written */
	uint64_t tr_last;	  /* the highest number */
	/* Rows of (read, unread] were there at the start, and found no place in tr_job. */
	uint64_t tr_read, tr_unread;
	struct job_trash_view tr_expiring; /* tv_number 0: not now */
	/* the step */
	bool tr_busy, tr_all; /* all: nothing is left behind it */
	enum { STEP_EXPIRE, STEP_ROOM, STEP_JOB } tr_step;
	struct kv_op tr_op;
	struct loop_msg tr_msg;
	struct kv_txn *tr_txn;
	uint64_t tr_now, tr_look_until_ns;
	struct chosen tr_chosen[BATCH];
	/* taken: entries that went out, those of the paths as well; out: only what was chosen */
	unsigned tr_nchosen, tr_looked, tr_taken, tr_out, tr_ndamaged;
	struct damaged tr_damaged[DAMAGED_MOST];
	struct trash_job tr_work; /* the job of the step, as it will be */
	uint64_t tr_bytes;
	/* making room */
	struct full tr_full[DS_REG_MAX];
	unsigned tr_nfull;
	uint64_t tr_rest_until; /* after a step that failed */
	uint64_t tr_room_at[2], tr_room_after, tr_room_files, tr_room_bytes;
};

static void trash_step(struct job_trash *w);

/* ---- rows ---- */

static size_t row_encode(const struct trash_job *j, uint8_t *buf)
{
	struct trash_job_rec r = {.j_version = ROW_VERSION,
				  .j_kind = j->v.tv_kind == JOB_TRASH_RESTORE ? ROW_RESTORE
									      : ROW_EMPTY,
				  .j_len = (uint8_t)j->top.tp_len,
				  .j_begun = htole64(j->v.tv_begun),
				  .j_top = htole64(j->top.tp_ino),
				  .j_dir = htole64(j->top.tp_dir),
				  .j_before = htole64(j->before),
				  .j_at = {htole64(j->at.ta_dir), htole64(j->at.ta_hash),
					   htole64(j->at.ta_removed), htole64(j->at.ta_ino)},
				  .j_done = htole64(j->v.tv_done),
				  .j_bytes = htole64(j->v.tv_bytes),
				  .j_failed = htole64(j->v.tv_failed)};

	memcpy(buf, &r, sizeof(r));
	memcpy(buf + sizeof(r), j->name, j->top.tp_len);
	return sizeof(r) + j->top.tp_len;
}

static int row_put(struct kv_txn *t, const struct trash_job *j)
{
	uint8_t buf[sizeof(struct trash_job_rec) + NS_NAME_MAX];
	uint64_t id = htobe64(j->v.tv_number);

	return ns_row_put(t, NS_T_TRASH_JOB, &id, sizeof(id), buf, row_encode(j, buf));
}

static int row_del(struct kv_txn *t, uint64_t number)
{
	uint64_t id = htobe64(number);

	return ns_row_del(t, NS_T_TRASH_JOB, &id, sizeof(id));
}

/* False: it is damaged. */
static bool row_decode(struct kv_slice id, struct kv_slice val, struct trash_job *j)
{
	struct trash_job_rec r;
	uint64_t number;

	if (id.s_len != sizeof(number) || val.s_len < sizeof(r))
		return false;
	memcpy(&number, id.s_data, sizeof(number));
	memcpy(&r, val.s_data, sizeof(r));
	if (r.j_version != ROW_VERSION || val.s_len != sizeof(r) + r.j_len ||
	    (r.j_kind != ROW_RESTORE && r.j_kind != ROW_EMPTY))
		return false;
	*j = (struct trash_job){
		.v = {.tv_number = be64toh(number),
		      .tv_begun = le64toh(r.j_begun),
		      .tv_kind = r.j_kind == ROW_RESTORE ? JOB_TRASH_RESTORE : JOB_TRASH_EMPTY,
		      .tv_ino = le64toh(r.j_top),
		      .tv_done = le64toh(r.j_done),
		      .tv_bytes = le64toh(r.j_bytes),
		      .tv_failed = le64toh(r.j_failed)},
		.top = {le64toh(r.j_top), le64toh(r.j_dir), NULL, r.j_len},
		.before = le64toh(r.j_before),
		.at = {le64toh(r.j_at[0]), le64toh(r.j_at[1]), le64toh(r.j_at[2]),
		       le64toh(r.j_at[3])}};
	memcpy(j->name, (const uint8_t *)val.s_data + sizeof(r), r.j_len);
	return true;
}

static bool is_aside(struct kv_slice id)
{
	return id.s_len > 1 && *(const uint8_t *)id.s_data == ROW_ASIDE;
}

int job_trash_row_check(struct kv_slice id, struct kv_slice val)
{
	uint8_t buf[sizeof(struct trash_job_rec) + NS_NAME_MAX];
	struct trash_job j;

	if (is_aside(id))
		return 0;
	if (!row_decode(id, val, &j))
		return -EIO;
	return row_encode(&j, buf) == val.s_len && !memcmp(buf, val.s_data, val.s_len) ? 0
										       : -EINVAL;
}

static void note_damaged(struct job_trash *w, struct kv_slice key, uint64_t ino)
{
	struct damaged *d = &w->tr_damaged[w->tr_ndamaged];

	if (key.s_len > sizeof(d->da_key) - 2) /* with a byte more it is no key */
		return;
	memcpy(d->da_key, key.s_data, key.s_len);
	d->da_len = key.s_len;
	d->da_ino = ino;
	w->tr_ndamaged++;
}

/* Puts a job into the table, as long as there is room. */
static int trash_row_read(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct job_trash *w = arg;
	struct trash_job j;

	if (is_aside(id))
		return 1; /* behind all numbers */
	if (!row_decode(id, val, &j)) {
		if (w->tr_ndamaged < DAMAGED_MOST)
			note_damaged(w, id, 0);
		return 0;
	}
	if (j.v.tv_number > w->tr_last)
		w->tr_last = j.v.tv_number;
	if (w->tr_n + w->tr_coming == JOB_TRASH_MOST) {
		if (!w->tr_unread || j.v.tv_number > w->tr_unread)
			w->tr_unread = j.v.tv_number;
	} else {
		w->tr_job[w->tr_n++] = j;
		w->tr_read = j.v.tv_number;
	}
	return 0;
}

static int row_read_on(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct job_trash *w = arg;
	struct trash_job j;

	if (w->tr_n + w->tr_coming == JOB_TRASH_MOST || is_aside(id))
		return 1;
	if (!row_decode(id, val, &j))
		return 0;
	if (j.v.tv_number > w->tr_unread)
		return 1;
	w->tr_job[w->tr_n++] = j;
	w->tr_read = j.v.tv_number;
	return 0;
}

/* locked. There is room in the table for a job that found none at the start. */
static void rows_read_on(struct job_trash *w)
{
	uint64_t from = htobe64(w->tr_read + 1);
	struct kv_txn *t;

	if (!w->tr_unread || kv_read_begin(w->tr_m->m_kv, &t))
		return;
	if (!ns_rows(t, NS_T_TRASH_JOB, &from, sizeof(from), row_read_on, w) &&
	    w->tr_read >= w->tr_unread)
		w->tr_unread = 0;
	kv_read_end(t);
}

/* W: gives the row of a job another id, so that no start meets it again. */
static int trash_row_aside(struct kv_txn *t, const struct damaged *d)
{
	uint8_t id[KV_KEY_MAX + 1], *copy;
	struct kv_slice val;
	uint64_t number = 0;
	int err;

	if (ns_row_get(t, NS_T_TRASH_JOB, d->da_key, d->da_len, &val))
		return 0;
	if (d->da_len == sizeof(number))
		memcpy(&number, d->da_key, sizeof(number));
	copy = malloc(val.s_len + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, val.s_data, val.s_len);
	id[0] = ROW_ASIDE;
	memcpy(id + 1, d->da_key, d->da_len);
	err = ns_row_put(t, NS_T_TRASH_JOB, id, d->da_len + 1, copy, val.s_len);
	free(copy);
	if (!err)
		err = ns_row_del(t, NS_T_TRASH_JOB, d->da_key, d->da_len);
	return err ? err
		   : journal_put(t, EV_TRASH_DAMAGED, "", 0,
				 "a job about the trash, asked for at %lu: its row is damaged, and "
				 "was set aside",
				 (unsigned long)be64toh(number));
}

static int rows_aside(void *arg, struct kv_txn *t)
{
	struct job_trash *w = arg;
	int err = 0;

	for (unsigned i = 0; i < w->tr_ndamaged && !err; i++)
		err = trash_row_aside(t, &w->tr_damaged[i]);
	return err;
}

/* ---- a new job ---- */

static void ask_job(const struct job_trash_ask *ta, struct trash_job *j)
{
	*j = (struct trash_job){
		.v = {.tv_begun = ta->ta_begun,
		      .tv_number = ta->ta_job,
		      .tv_kind = ta->ta_restores ? JOB_TRASH_RESTORE : JOB_TRASH_EMPTY,
		      .tv_ino = ta->ta_top.tp_ino},
		.top = ta->ta_top,
		.before = ta->ta_before};
	if (j->top.tp_len)
		memcpy(j->name, ta->ta_top.tp_name, j->top.tp_len);
}

static int trash_ask_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_trash_ask *ta = caa_container_of(op, struct job_trash_ask, ta_op);
	struct job_trash *w = ta->ta_m->m_trash;
	struct trash_job j;
	bool full;

	ta->ta_begun = (uint64_t)file_now().t_sec;
	pthread_mutex_lock(&w->tr_lock);
	full = w->tr_n + w->tr_coming == JOB_TRASH_MOST;
	if (!full) {
		w->tr_coming++;
		w->tr_last = w->tr_last < ta->ta_begun ? ta->ta_begun : w->tr_last + 1;
		ta->ta_job = w->tr_last;
	}
	pthread_mutex_unlock(&w->tr_lock);
	if (full)
		return -EBUSY;
	ask_job(ta, &j);
	return row_put(t, &j);
}

/* On the committer thread. */
static void ask_done(struct kv_op *op, int err)
{
	struct job_trash_ask *ta = caa_container_of(op, struct job_trash_ask, ta_op);
	struct job_trash *w = ta->ta_m->m_trash;

	pthread_mutex_lock(&w->tr_lock);
	w->tr_coming -= ta->ta_job != 0;
	if (!err)
		ask_job(ta, &w->tr_job[w->tr_n++]);
	pthread_mutex_unlock(&w->tr_lock);
	ta->ta_job = job_id(ta->ta_job, 0, JOB_OF_TRASH);
	ta->ta_done(ta, err);
}

void job_trash_ask(struct mds *m, struct job_trash_ask *ta)
{
	ta->ta_m = m;
	ta->ta_job = 0;
	ta->ta_op = (struct kv_op){.o_run = trash_ask_run, .o_done = ask_done};
	kv_submit(m->m_kv, &ta->ta_op);
}

unsigned job_trash_look(struct mds *m, struct job_trash_view out[JOB_TRASH_MOST + 1])
{
	struct job_trash *w = m->m_trash;
	unsigned n = 0;

	pthread_mutex_lock(&w->tr_lock);
	if (w->tr_expiring.tv_number)
		out[n++] = w->tr_expiring;
	for (unsigned i = 0; i < w->tr_n; i++) {
		out[n] = w->tr_job[i].v;
		out[n++].tv_waits = i > 0;
	}
	pthread_mutex_unlock(&w->tr_lock);
	return n;
}

bool job_trash_cancel(struct mds *m, uint64_t number)
{
	struct job_trash *w = m->m_trash;
	bool found = false;

	pthread_mutex_lock(&w->tr_lock);
	for (unsigned i = 0; i < w->tr_n; i++)
		if (w->tr_job[i].v.tv_number == number)
			found = w->tr_job[i].v.tv_cancelled = true;
	pthread_mutex_unlock(&w->tr_lock);
	return found;
}

/* ---- what a step chooses ---- */

static void trash_choose(struct job_trash *w, uint64_t ino)
{
	w->tr_chosen[w->tr_nchosen++] = (struct chosen){ino, w->tr_work.at, w->tr_work.v.tv_failed};
}

/* True: the step has looked for long enough, or is full. */
static bool chose_enough(struct job_trash *w)
{
	if (w->tr_nchosen == BATCH || w->tr_ndamaged == DAMAGED_MOST ||
	    (++w->tr_looked % LOOK_CLOCK == 0 && clock_mono_ns() > w->tr_look_until_ns)) {
		w->tr_all = false;
		return true;
	}
	return false;
}

static int choose_expired(void *arg, const struct ns_trash *e)
{
	struct job_trash *w = arg;

	if (e->tr_expires > w->tr_now || chose_enough(w))
		return 1;
	if (e->tr_damaged)
		note_damaged(w, e->tr_key, e->tr_ino);
	else
		trash_choose(w, e->tr_ino);
	return 0;
}

/* Does taking this file out give room where it is needed? Notes how much. */
static bool gives_room(struct job_trash *w, const struct ns_trash *e)
{
	struct ns_inode i;
	struct lo_map map;
	bool gives = false;

	if (e->tr_type != NS_REG || ns_get(w->tr_m->m_ns, w->tr_txn, e->tr_ino, &i) ||
	    lo_map_decode(i.i_blob, &map))
		return false;
	for (unsigned k = 0; k < w->tr_nfull; k++) {
		for (unsigned o = 0; o < map.lm_stripes * map.lm_mirrors; o++) {
			/* As it is known now: clients may have written it after its removal. */
			uint64_t part = (i.i_used ? i.i_used : i.i_size) / map.lm_stripes;

			if (map.lm_obj[o].ob_ds != w->tr_full[k].ds || !w->tr_full[k].need)
				continue;
			w->tr_full[k].need -= part < w->tr_full[k].need ? part : w->tr_full[k].need;
			gives = true;
		}
	}
	return gives;
}

static bool needs_room(const struct job_trash *w)
{
	bool needs = false;

	for (unsigned k = 0; k < w->tr_nfull; k++)
		needs |= w->tr_full[k].need > 0;
	return needs;
}

static int choose_room(void *arg, const struct ns_trash *e)
{
	struct job_trash *w = arg;

	if (!needs_room(w) || chose_enough(w))
		return 1;
	if (e->tr_damaged) {
		note_damaged(w, e->tr_key, e->tr_ino);
		return 0;
	}
	w->tr_room_at[0] = e->tr_expires;
	w->tr_room_at[1] = e->tr_ino;
	if (gives_room(w, e))
		trash_choose(w, e->tr_ino);
	return 0;
}

/* An older one of the name that the job looked at last: of each name the newest is restored. */
static bool is_older(const struct trash_job *j, const struct ns_trash *e)
{
	return j->v.tv_kind == JOB_TRASH_RESTORE && e->tr_parent == j->at.ta_dir &&
	       e->tr_hash == j->at.ta_hash;
}

static int choose_job(void *arg, const struct ns_trash *e)
{
	struct job_trash *w = arg;
	struct trash_job *j = &w->tr_work;
	bool older = is_older(j, e);
	int below;

	if (chose_enough(w))
		return 1;
	if (e->tr_damaged) {
		note_damaged(w, e->tr_key, e->tr_ino);
		return 0;
	}
	j->at = ns_trash_at(e);
	if (older || e->tr_removed / NS_TRASH_SECOND > j->before)
		return 0;
	below = ns_trash_below(w->tr_m->m_ns, w->tr_txn, e->tr_ino, &j->top);
	/* -EIO: a directory above it is damaged. Whoever asked hears of it. */
	if (below == -EIO) {
		j->v.tv_failed++;
		snprintf(j->v.tv_error, sizeof(j->v.tv_error),
			 "inode %lu: a directory of its path is damaged", (unsigned long)e->tr_ino);
		log_error("trash: %s", j->v.tv_error);
		return 0;
	}
	if (below > 0)
		trash_choose(w, e->tr_ino);
	return below < 0 ? below : 0;
}

/* ---- what a step does, on the committer thread ---- */

static int first_child(void *arg, const struct ns_trash *e)
{
	*(struct ns_trash *)arg = *e;
	return 1;
}

/* A directory stays until what was in it is gone, so that it can be restored with it. */
static int stay_with_child(struct kv_txn *t, uint64_t ino, uint64_t now)
{
	struct ns_trash child = {.tr_expires = 0};
	int err = ns_trash_each(t, &(struct ns_trash_at){.ta_dir = ino}, first_child, &child);

	return err ? err
		   : ns_trash_later(t, ino, child.tr_expires > now ? child.tr_expires : now + 1);
}

/* W: takes one out for good. */
static int drop_one(struct job_trash *w, struct kv_txn *t, uint64_t ino)
{
	struct ns_trash e;
	uint64_t bytes, expires;
	int err = ns_trash_get(t, ino, &e);

	if (err)
		return err == -ENOENT ? 0 : err; /* restored meanwhile */
	bytes = e.tr_bytes;
	expires = e.tr_expires;
	if (w->tr_step == STEP_EXPIRE && expires > w->tr_now)
		return 0;
	err = ns_trash_drop(t, ino);
	if (err == -ENOTEMPTY)
		return w->tr_step == STEP_EXPIRE ? stay_with_child(t, ino, w->tr_now) : 0;
	if (!err) {
		w->tr_taken++;
		w->tr_out++;
		w->tr_bytes += bytes;
	}
	return err;
}

/* W: takes one out for the job that empties, and then the directories that it was the last in. */
static int empty_one(struct job_trash *w, struct kv_txn *t, uint64_t ino)
{
	const struct trash_job *j = &w->tr_work;
	struct ns_trash e;
	uint64_t up;
	int err = ns_trash_get(t, ino, &e);

	/* Deeper chains are left to another step of the job, or to expiry. */
	for (unsigned n = 0;
	     n < EMPTY_LEVELS && !err && e.tr_removed / NS_TRASH_SECOND <= j->before; n++) {
		unsigned out = w->tr_out;

		err = ns_trash_below(w->tr_m->m_ns, t, ino, &j->top);
		if (err <= 0)
			return err;
		up = e.tr_parent;
		err = drop_one(w, t, ino);
		if (err || w->tr_out == out)
			return err;
		ino = up;
		err = ns_trash_get(t, ino, &e);
	}
	return err == -ENOENT ? 0 : err;
}

static const char *restore_why(int err)
{
	return err == -EIO	 ? "a row of it, or of its path, is damaged"
	       : err == -EEXIST	 ? "its name exists"
	       : err == -ENOTDIR ? "the name of a directory of its path exists, and is none"
	       : err == -ESTALE	 ? "a directory of its path is gone"
	       : err == -EMLINK	 ? "its directory is full"
	       : err == -ELOOP	 ? "its path is too deep"
				 : "its directory has no slot for the name";
}

/* W: gives one its name again. */
static int trash_restore_one(struct job_trash *w, struct kv_txn *t, uint64_t ino,
			     struct ns_time now)
{
	struct trash_job *j = &w->tr_work;
	uint64_t newest = 0, bytes;
	struct ns_trash_back back;
	struct ns_trash e;
	bool dir;
	int err = ns_trash_get(t, ino, &e);

	if (!err)
		err = ns_trash_newest(w->tr_m->m_ns, t, e.tr_parent, e.tr_name, e.tr_len, &newest);
	if (err)
		return err == -ENOENT ? 0 : err; /* restored already */
	if (newest != ino) {			 /* removed since the step looked */
		ino = newest;
		err = ns_trash_get(t, ino, &e);
		if (err)
			return err;
	}
	dir = e.tr_type == NS_DIR;
	bytes = e.tr_bytes;
	err = ns_trash_restore(w->tr_m->m_ns, t, ino, 0, NULL, 0, now, &back);
	w->tr_taken += back.tb_out; /* also of what is refused: it has read the path */
	if (!err) {
		w->tr_out++;
		w->tr_bytes += bytes;
	} else if (err == -EEXIST || err == -ENOTDIR || err == -ESTALE || err == -EMLINK ||
		   err == -ELOOP || err == -ENOSPC || err == -EIO) {
		/* What was in a directory goes to the one that has its name now. */
		if (!dir || err != -EEXIST) {
			j->v.tv_failed++;
			snprintf(j->v.tv_error, sizeof(j->v.tv_error), "inode %lu: %s",
				 (unsigned long)ino, restore_why(err));
		}
		err = 0;
	}
	return err;
}

/* W: says that a row is damaged. */
static int say_damaged(struct job_trash *w, struct kv_txn *t, uint64_t ino, bool aside)
{
	struct trash_job *j = &w->tr_work;
	char what[100];

	if (ino)
		snprintf(what, sizeof(what), "in the trash: what leads to inode %lu is damaged%s",
			 (unsigned long)ino, aside ? ", and was set aside" : "");
	else
		snprintf(what, sizeof(what), "in the trash: a row is damaged, and was set aside");
	if (w->tr_step == STEP_JOB) {
		j->v.tv_failed++;
		snprintf(j->v.tv_error, sizeof(j->v.tv_error), "%s", what);
	}
	log_error("%s", what);
	return journal_put(t, EV_TRASH_DAMAGED, "", ino, "%s", what);
}

/* W: sets aside what the step met. */
static int set_aside(struct job_trash *w, struct kv_txn *t)
{
	for (unsigned i = 0; i < w->tr_ndamaged; i++) {
		const struct damaged *d = &w->tr_damaged[i];
		int rc = ns_trash_aside(t, (struct kv_slice){d->da_key, d->da_len}, d->da_ino);

		if (rc > 0)
			rc = say_damaged(w, t, d->da_ino, true);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* W: -EIO of one entry, which has then written nothing, stops no other one. What expires and cannot
 * go is set aside, or it would be met again at once; a job has passed it. */
static int step_one(struct job_trash *w, struct kv_txn *t, uint64_t ino, struct ns_time now)
{
	bool job = w->tr_step == STEP_JOB;
	int err = !job					    ? drop_one(w, t, ino)
		  : w->tr_work.v.tv_kind == JOB_TRASH_EMPTY ? empty_one(w, t, ino)
							    : trash_restore_one(w, t, ino, now);

	if (err != -EIO)
		return err;
	err = job ? 0 : ns_trash_aside(t, (struct kv_slice){NULL, 0}, ino);
	return err < 0 ? err : say_damaged(w, t, ino, !job);
}

/* Leaves what is behind the first n to the next step, which looks there again. failed: after the
 * choice. */
static void step_stop(struct job_trash *w, unsigned n, uint64_t failed)
{
	const struct chosen *c = &w->tr_chosen[n - 1];

	w->tr_all = false;
	w->tr_work.at = c->ch_at;
	w->tr_work.v.tv_failed -= failed - c->ch_failed;
}

static int trash_step_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_trash *w = caa_container_of(op, struct job_trash, tr_op);
	struct trash_job *j = &w->tr_work;
	uint64_t failed = j->v.tv_failed;
	struct ns_time now = file_now();
	int err = set_aside(w, t);
	unsigned n = 0;

	while (n < w->tr_nchosen && w->tr_taken < BATCH && !err)
		err = step_one(w, t, w->tr_chosen[n++].ch_ino, now);
	if (!err && n < w->tr_nchosen)
		step_stop(w, n, failed);
	if (err || w->tr_step != STEP_JOB)
		return err;
	j->v.tv_done += w->tr_out;
	j->v.tv_bytes += w->tr_bytes;
	return w->tr_all || j->v.tv_cancelled ? row_del(t, j->v.tv_number) : row_put(t, j);
}

/* ---- how a step ends ---- */

static void expired_some(struct job_trash *w)
{
	struct job_trash_view over = {.tv_number = 0};

	pthread_mutex_lock(&w->tr_lock);
	/* What one step does is no job. */
	if (!w->tr_expiring.tv_number && !w->tr_all)
		w->tr_expiring = (struct job_trash_view){
			.tv_number = w->tr_now, .tv_begun = w->tr_now, .tv_kind = JOB_TRASH_EXPIRE};
	w->tr_expiring.tv_done += w->tr_out;
	w->tr_expiring.tv_bytes += w->tr_bytes;
	if (w->tr_all) {
		over = w->tr_expiring;
		w->tr_expiring = (struct job_trash_view){.tv_number = 0};
	}
	pthread_mutex_unlock(&w->tr_lock);
	if (over.tv_number)
		job_trash_over(w->tr_m, &over, NULL);
}

static void made_room(struct job_trash *w)
{
	w->tr_room_files += w->tr_out;
	w->tr_room_bytes += w->tr_bytes;
	if (!w->tr_all && needs_room(w))
		return;
	if (w->tr_room_files)
		journal_add(EV_TRASH_EMPTIED, "", 0,
			    "%lu files of %lu bytes went before their time, because a data server "
			    "is nearly full",
			    (unsigned long)w->tr_room_files, (unsigned long)w->tr_room_bytes);
	w->tr_nfull = 0;
	if (w->tr_room_files)
		w->tr_room_after = clock_mono_ms() + DELETE_MS;
}

static void job_went_on(struct job_trash *w)
{
	struct trash_job *j = &w->tr_work;
	bool over = w->tr_all || j->v.tv_cancelled;

	pthread_mutex_lock(&w->tr_lock);
	j->v.tv_cancelled = w->tr_job[0].v.tv_cancelled;
	w->tr_job[0] = *j;
	pthread_mutex_unlock(&w->tr_lock);
	if (!over)
		return;
	job_trash_over(w->tr_m, &j->v, NULL);
	pthread_mutex_lock(&w->tr_lock);
	memmove(w->tr_job, w->tr_job + 1, --w->tr_n * sizeof(w->tr_job[0]));
	rows_read_on(w);
	pthread_mutex_unlock(&w->tr_lock);
}

static void trash_step_done(struct kv_op *op, int err)
{
	struct job_trash *w = caa_container_of(op, struct job_trash, tr_op);

	if (err) {
		log_error("trash: a step failed, and is tried again: %s", strerror(-err));
		w->tr_out = 0;
		w->tr_bytes = 0;
		w->tr_busy = false;
		w->tr_rest_until = clock_mono_ms() + REST_MS;
		return;
	}
	crash_point("trash");
	if (w->tr_step == STEP_EXPIRE)
		expired_some(w);
	else if (w->tr_step == STEP_ROOM)
		made_room(w);
	else
		job_went_on(w);
	if (w->tr_out && (w->tr_step != STEP_JOB || w->tr_work.v.tv_kind == JOB_TRASH_EMPTY))
		file_orphan_sweep(&w->tr_m->m_file, w->tr_loop);
	w->tr_busy = false;
	if (!w->tr_all)
		trash_step(w);
}

/* ---- the next step ---- */

/* Which servers are full? */
static void room_look(struct job_trash *w)
{
	struct ds_reg_server *sv;
	unsigned n;

	if (w->tr_nfull || clock_mono_ms() < w->tr_room_after)
		return;
	w->tr_room_after = clock_mono_ms() + ROOM_MS;
	w->tr_room_at[0] = w->tr_room_at[1] = w->tr_room_files = w->tr_room_bytes = 0;
	sv = calloc(DS_REG_MAX, sizeof(*sv));
	n = sv ? ds_reg_list(w->tr_m->m_dsc, sv, DS_REG_MAX) : 0;
	for (unsigned i = 0; i < n; i++) {
		uint64_t whole = sv[i].sv_capacity, used = whole - sv[i].sv_available;

		/* No free byte: full, or its disks fail (JOIN, HEARTBEAT). What a failing server
		 * has must not go for that. */
		if (sv[i].sv_alive && sv[i].sv_available && used > whole / 100 * JOB_TRASH_FULL)
			w->tr_full[w->tr_nfull++] =
				(struct full){sv[i].sv_id, used - whole / 100 * JOB_TRASH_ROOM};
	}
	free(sv);
}

static void step_begin(struct job_trash *w, int step)
{
	w->tr_step = step;
	w->tr_all = true;
	w->tr_nchosen = w->tr_looked = w->tr_taken = w->tr_out = w->tr_ndamaged = 0;
	w->tr_bytes = 0;
}

/* Chooses what the next step does. False: there is nothing to do. */
static bool step_choose(struct job_trash *w, int *err)
{
	/* The trash's sums may be wrong: the rows say what there is. */
	step_begin(w, STEP_EXPIRE);
	*err = ns_trash_by_expiry(w->tr_txn, 0, 0, choose_expired, w);
	if (*err || w->tr_nchosen || w->tr_ndamaged)
		return !*err;
	room_look(w);
	if (needs_room(w)) {
		step_begin(w, STEP_ROOM);
		*err = ns_trash_by_expiry(w->tr_txn, w->tr_room_at[0], w->tr_room_at[1],
					  choose_room, w);
		return !*err;
	}
	pthread_mutex_lock(&w->tr_lock);
	if (w->tr_n)
		w->tr_work = w->tr_job[0];
	pthread_mutex_unlock(&w->tr_lock);
	if (!w->tr_work.v.tv_number)
		return false;
	w->tr_work.top.tp_name = w->tr_work.name;
	step_begin(w, STEP_JOB);
	if (!w->tr_work.v.tv_cancelled)
		*err = ns_trash_each(w->tr_txn, &w->tr_work.at, choose_job, w);
	return !*err;
}

static void step_again(struct loop_msg *msg)
{
	struct job_trash *w = caa_container_of(msg, struct job_trash, tr_msg);

	w->tr_busy = false;
	trash_step(w);
}

/* The step looked for long enough, and found nothing yet: it goes on after the thread's other work.
 * A restart would look there again, so that is not committed. */
static void look_on(struct job_trash *w)
{
	if (w->tr_step == STEP_JOB) {
		pthread_mutex_lock(&w->tr_lock);
		w->tr_work.v.tv_cancelled = w->tr_job[0].v.tv_cancelled;
		w->tr_job[0] = w->tr_work;
		pthread_mutex_unlock(&w->tr_lock);
	}
	w->tr_busy = true;
	w->tr_msg.m_run = step_again;
	loop_post(w->tr_loop, &w->tr_msg);
}

static void trash_step(struct job_trash *w)
{
	bool works;
	int err;

	if (w->tr_busy || kv_read_begin(w->tr_m->m_kv, &w->tr_txn))
		return;
	w->tr_now = (uint64_t)file_now().t_sec;
	w->tr_look_until_ns = clock_mono_ns() + LOOK_US * UINT64_C(1000);
	w->tr_work.v.tv_number = 0;
	works = step_choose(w, &err);
	kv_read_end(w->tr_txn);
	if (err) {
		log_error("trash: cannot read it: %s", strerror(-err));
		w->tr_rest_until = clock_mono_ms() + REST_MS;
	}
	if (!works) {
		if (!err)
			w->tr_rest_until = clock_mono_ms() + IDLE_MS;
		return;
	}
	if (!w->tr_nchosen && !w->tr_ndamaged && !w->tr_all) {
		look_on(w);
		return;
	}
	w->tr_busy = true;
	w->tr_op = (struct kv_op){
		.o_run = trash_step_run, .o_done = trash_step_done, .o_loop = w->tr_loop};
	kv_submit(w->tr_m->m_kv, &w->tr_op);
}

/* While clients may reclaim opens, nothing is freed. */
void job_trash_tick(struct mds *m)
{
	if (!st_in_grace(m->m_st) && clock_mono_ms() >= m->m_trash->tr_rest_until)
		trash_step(m->m_trash);
}

int job_trash_open(struct mds *m, struct loop *loop)
{
	struct job_trash *w = calloc(1, sizeof(*w));
	struct kv_txn *t;
	int err = w ? kv_read_begin(m->m_kv, &t) : -ENOMEM;

	if (err) {
		free(w);
		return err;
	}
	w->tr_m = m;
	w->tr_loop = loop;
	pthread_mutex_init(&w->tr_lock, NULL);
	m->m_trash = w;
	do {
		w->tr_ndamaged = w->tr_n = 0;
		w->tr_read = w->tr_unread = 0;
		err = ns_rows(t, NS_T_TRASH_JOB, NULL, 0, trash_row_read, w);
		kv_read_end(t);
		if (err || !w->tr_ndamaged)
			return err;
		log_error("trash: %u rows of jobs are damaged, and are set aside", w->tr_ndamaged);
		err = kv_run_sync(m->m_kv, rows_aside, w);
		/* A store that takes no write stops no start because of them. */
		if (err)
			log_error("trash: cannot set them aside: %s", strerror(-err));
	} while (!err && w->tr_ndamaged == DAMAGED_MOST && !kv_read_begin(m->m_kv, &t));
	return 0;
}
