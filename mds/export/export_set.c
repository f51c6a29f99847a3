/* SPDX-License-Identifier: Apache-2.0 */
/* export_set.c - the exports in force, and their replacement. */
#include "mds/export/export_table.h"
#include "base/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct exp_set {
	struct ns *s_ns;
	char *s_path;
	pthread_mutex_t s_reload; /* one reload at a time */
	pthread_mutex_t s_lock;	  /* protects s_table */
	struct exp_table *s_table;
	_Atomic uint64_t s_generation;
	atomic_bool s_pins;
	atomic_uint s_differed;
};

struct replace {
	struct exp_set *s;
	struct exp_table *t, *old;
	unsigned changed;
	struct ns_time now;
};

/* On the committer, so that no rename or removal comes between finding the directories and pinning
 * them. */
static int export_set_replace_run(void *arg, struct kv_txn *txn)
{
	struct replace *k = arg;
	struct exp_set *s = k->s;
	int err = export_resolve(k->t, s->s_ns, txn, true, k->now);

	if (!err)
		err = export_record(k->t, s->s_ns, txn, atomic_load(&s->s_generation) + 1,
				    &k->changed);
	if (err)
		return err;
	pthread_mutex_lock(&s->s_lock);
	k->t->xt_generation = atomic_load(&s->s_generation) + 1;
	k->old = s->s_table;
	s->s_table = k->t;
	atomic_store(&s->s_pins, k->t->xt_npins > 1);
	pthread_mutex_unlock(&s->s_lock);
	return 0;
}

static int replace(struct exp_set *s, char *err, size_t errlen)
{
	struct replace k = {.s = s};
	int rc = exp_read(s->s_path, &k.t, err, errlen);

	if (rc)
		return rc;
	k.now = ns_now();
	rc = kv_run_sync(ns_kv(s->s_ns), export_set_replace_run, &k);
	pthread_mutex_lock(&s->s_lock);
	/* not committed: the directories in the new table may not exist */
	if (rc && s->s_table == k.t) {
		s->s_table = k.old;
		atomic_store(&s->s_pins, k.old && k.old->xt_npins > 1);
		k.old = NULL;
	}
	if (!rc)
		atomic_store(&s->s_generation, k.t->xt_generation);
	pthread_mutex_unlock(&s->s_lock);
	if (rc) {
		snprintf(err, errlen, "exports: %s", strerror(-rc));
		exp_put(k.t);
		return rc;
	}
	/* At the start: another node, or somebody while the server was stopped, changed them. */
	if (!k.old && k.changed)
		log_warn("exports: %u of them are not as they were in force before: another node "
			 "has another file, or it was changed while the server was stopped",
			 k.changed);
	atomic_store(&s->s_differed, k.old ? 0 : k.changed);
	exp_put(k.old);
	return 0;
}

int export_set_open(struct exp_set **out, struct ns *ns, const char *path, char *err, size_t errlen)
{
	struct exp_set *s = calloc(1, sizeof(*s));
	int rc;

	if (!s || !(s->s_path = strdup(path))) {
		free(s);
		snprintf(err, errlen, "exports: out of memory");
		return -ENOMEM;
	}
	s->s_ns = ns;
	pthread_mutex_init(&s->s_reload, NULL);
	pthread_mutex_init(&s->s_lock, NULL);
	rc = replace(s, err, errlen);
	if (rc) {
		export_set_close(s);
		return rc;
	}
	*out = s;
	return 0;
}

void export_set_close(struct exp_set *s)
{
	exp_put(s->s_table);
	pthread_mutex_destroy(&s->s_reload);
	pthread_mutex_destroy(&s->s_lock);
	free(s->s_path);
	free(s);
}

int export_set_reload(struct exp_set *s, char *err, size_t errlen)
{
	int rc;

	pthread_mutex_lock(&s->s_reload);
	rc = replace(s, err, errlen);
	pthread_mutex_unlock(&s->s_reload);
	if (rc)
		log_error("exports not reloaded, the old ones stay in force: %s", err);
	else
		log_info("exports reloaded from %s",
			 *s->s_path ? s->s_path : "the built-in exports");
	return rc;
}

struct exp_table *export_set_get(struct exp_set *s)
{
	struct exp_table *t;

	pthread_mutex_lock(&s->s_lock);
	t = exp_get(s->s_table);
	pthread_mutex_unlock(&s->s_lock);
	return t;
}

unsigned export_set_differed(const struct exp_set *s)
{
	return atomic_load(&s->s_differed);
}

uint64_t export_set_generation(const struct exp_set *s)
{
	return atomic_load_explicit(&s->s_generation, memory_order_acquire);
}

bool export_set_has_pins(const struct exp_set *s)
{
	return atomic_load(&s->s_pins);
}

bool export_set_pinned(struct exp_set *s, uint64_t ino)
{
	bool pinned;

	pthread_mutex_lock(&s->s_lock);
	pinned = exp_pin(s->s_table, ino) != NULL;
	pthread_mutex_unlock(&s->s_lock);
	return pinned;
}

const char *export_set_path(const struct exp_set *s)
{
	return s->s_path;
}
