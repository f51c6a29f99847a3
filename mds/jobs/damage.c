/* SPDX-License-Identifier: Apache-2.0 */
/* damage.c - see damage.h. */
#include "mds/jobs/damage.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <pthread.h>
#include <time.h>

#define LOOK_MS	    500u
#define PIECE_FILES 1024u  /* read with one snapshot */
#define REST	    4u	   /* after a piece, this many times as long as the piece took */
#define AGAIN_MS    60000u /* between two counts of the same dead servers */

struct job_damage {
	struct mds *jd_m;
	pthread_t jd_thread;
	pthread_mutex_t jd_lock; /* of jd_stop and jd_view */
	pthread_cond_t jd_cond;
	bool jd_stop;
	struct job_damage_view jd_view;
	/* of the thread: */
	uint64_t jd_servers; /* which servers were dead at the last look; 0: none */
	uint64_t jd_cursor;  /* the next inode; 0: no count is under way */
	uint64_t jd_degraded, jd_lost, jd_looked;
	uint64_t jd_again_ms;
	bool jd_failed;	  /* the last piece could not be read */
	unsigned jd_seen; /* in this piece */
};

/* Waits. False: the thread has to end. */
static bool damage_wait(struct job_damage *j, uint64_t ns)
{
	uint64_t until = clock_mono_ns() + ns;
	bool stop;

	pthread_mutex_lock(&j->jd_lock);
	while (!j->jd_stop && clock_cond_wait(&j->jd_cond, &j->jd_lock, until))
		;
	stop = j->jd_stop;
	pthread_mutex_unlock(&j->jd_lock);
	return !stop;
}

/* A server that waits because it never joined has no object of any file. */
static bool damage_counts(struct ds_reg *d, const struct ds_reg_server *sv)
{
	struct ds_reg_terms dt;

	if (sv->sv_state == DS_REG_DEAD || sv->sv_state == DS_REG_KILLED)
		return true;
	return sv->sv_state == DS_REG_WAITING && ds_reg_terms(d, sv->sv_id, &dt) &&
	       dt.dt_why == DS_REG_WHY_RESTORED;
}

/* Returns a number that another set of dead servers does not have; 0: none is dead. */
static uint64_t damage_servers(struct mds *m)
{
	struct ds_reg_server *sv = calloc(DS_REG_MAX, sizeof(*sv));
	unsigned n = sv ? ds_reg_list(m->m_dsc, sv, DS_REG_MAX) : 0;
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!damage_counts(m->m_dsc, &sv[i]))
			continue;
		sum = (sum ^ sv[i].sv_id) * UINT64_C(0x9e3779b97f4a7c15);
		sum = (sum ^ sv[i].sv_since_s ^ sum >> 29) * UINT64_C(0xbf58476d1ce4e5b9) | 1;
	}
	free(sv);
	return sum;
}

static int damage_file(void *arg, const struct ns_inode *i)
{
	struct job_damage *j = arg;
	struct lo_map map;

	if (j->jd_seen == PIECE_FILES)
		return 1;
	j->jd_seen++;
	j->jd_cursor = i->i_ino + 1;
	if (lo_map_decode(i->i_blob, &map))
		return 0; /* weft fsck and scrub report it */
	switch (lo_map_condition(j->jd_m->m_lo, &map)) {
	case LO_FINE:
		break;
	case LO_DEGRADED:
		j->jd_degraded++;
		break;
	case LO_LOST:
		j->jd_lost++;
		break;
	}
	return 0;
}

/* Examines some files. Returns true when it has examined the last one, or cannot go on: then
 * jd_failed is set, and what was known before is shown on. */
static bool damage_piece(struct job_damage *j)
{
	struct kv_txn *t;
	int err = kv_read_begin(j->jd_m->m_kv, &t);

	j->jd_seen = 0;
	if (!err) {
		err = ns_files(j->jd_m->m_ns, t, j->jd_cursor, damage_file, j);
		kv_read_end(t);
	}
	j->jd_failed = err < 0;
	if (j->jd_failed)
		log_error("cannot count degraded files: %s", strerror(-err));
	j->jd_looked += j->jd_seen;
	return err < 0 || j->jd_seen < PIECE_FILES;
}

static void damage_show(struct job_damage *j, bool whole)
{
	struct job_damage_view *v = &j->jd_view;

	pthread_mutex_lock(&j->jd_lock);
	v->dg_dead = j->jd_servers != 0;
	v->dg_looked = j->jd_looked;
	v->dg_counted += j->jd_seen;
	if (whole || !v->dg_whole) {
		v->dg_degraded = j->jd_degraded;
		v->dg_lost = j->jd_lost;
		v->dg_whole = whole;
	}
	pthread_mutex_unlock(&j->jd_lock);
}

/* Begins a count, if the servers that are dead are others than before, or if the last count is
 * old. */
static void damage_begin(struct job_damage *j)
{
	uint64_t now = damage_servers(j->jd_m);
	bool other = now != j->jd_servers;

	j->jd_servers = now;
	if (!other && (j->jd_cursor || clock_mono_ms() < j->jd_again_ms))
		return;
	j->jd_degraded = j->jd_lost = j->jd_looked = j->jd_seen = 0;
	j->jd_cursor = now != 0;
	if (!other)
		return;
	pthread_mutex_lock(&j->jd_lock);
	j->jd_view.dg_whole = false;
	pthread_mutex_unlock(&j->jd_lock);
	damage_show(j, false);
}

static void *damage_run(void *arg)
{
	struct job_damage *j = arg;
	uint64_t took = 0;

	do {
		uint64_t began;

		damage_begin(j);
		if (!j->jd_cursor) {
			took = 0;
			continue;
		}
		began = clock_mono_ns();
		if (damage_piece(j)) {
			if (!j->jd_failed)
				damage_show(j, true);
			j->jd_cursor = 0;
			j->jd_again_ms = clock_mono_ms() + AGAIN_MS;
		} else {
			damage_show(j, false);
		}
		took = clock_mono_ns() - began;
	} while (damage_wait(j, j->jd_cursor ? took * REST : LOOK_MS * UINT64_C(1000000)));
	return NULL;
}

int job_damage_open(struct mds *m)
{
	struct job_damage *j = calloc(1, sizeof(*j));
	int err;

	if (!j)
		return -ENOMEM;
	j->jd_m = m;
	pthread_mutex_init(&j->jd_lock, NULL);
	clock_cond_init(&j->jd_cond);
	err = -pthread_create(&j->jd_thread, NULL, damage_run, j);
	if (err) {
		free(j);
		return err;
	}
	m->m_damage = j;
	return 0;
}

void job_damage_close(struct mds *m)
{
	struct job_damage *j = m->m_damage;

	if (!j)
		return;
	pthread_mutex_lock(&j->jd_lock);
	j->jd_stop = true;
	pthread_cond_signal(&j->jd_cond);
	pthread_mutex_unlock(&j->jd_lock);
	pthread_join(j->jd_thread, NULL);
	m->m_damage = NULL;
	free(j);
}

void job_damage_look(struct mds *m, struct job_damage_view *out)
{
	struct job_damage *j = m->m_damage;

	*out = (struct job_damage_view){0};
	if (!j)
		return;
	pthread_mutex_lock(&j->jd_lock);
	*out = j->jd_view;
	pthread_mutex_unlock(&j->jd_lock);
}
