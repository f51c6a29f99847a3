/* SPDX-License-Identifier: Apache-2.0 */
/* bench_clean.c - removes the work folder and all in it: at the end, when something fails, and when
 * weft-bench is interrupted. */
#include "tools/bench.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIES	    50
#define TRY_US	    100000
#define GIVEUP_MS   10000
#define BATCH_BYTES (256u << 10)

struct entry {
	struct weft_op e_op; /* its REMOVE */
	bool e_dir;
	char e_name[];
};

struct folder {
	struct weft_op f_op; /* READDIR */
	struct entry **f_entry;
	size_t f_n, f_room;
	bool f_short; /* of memory */
};

struct clean {
	struct weft_ring *c_ring;
	struct weft *c_w;
};

static void bench_clean_found(struct weft_op *op, const struct weft_entry *en)
{
	struct folder *f = (struct folder *)op;
	struct entry *e = malloc(sizeof(*e) + en->en_len + 1);

	if (e && f->f_n == f->f_room) {
		size_t room = f->f_room ? f->f_room * 2 : 256;
		struct entry **more = realloc(f->f_entry, room * sizeof(*more));

		if (more) {
			f->f_entry = more;
			f->f_room = room;
		}
	}
	if (!e || f->f_n == f->f_room) {
		free(e);
		f->f_short = true;
		return;
	}
	e->e_dir = en->en_attr.at_type == WEFT_DIR;
	memcpy(e->e_name, en->en_name, en->en_len + 1);
	f->f_entry[f->f_n++] = e;
}

static int bench_clean_folder_empty(struct clean *c, const struct weft_fh *fh);

static int folder_remove(struct clean *c, const struct weft_fh *in, const char *name)
{
	struct weft_op look = {.o_what = WEFT_LOOKUP, .o_fh = *in, .o_name = name},
		       rm = {.o_what = WEFT_REMOVE, .o_fh = *in, .o_name = name};
	int err = weft_do(c->c_w, &look);

	if (!err)
		err = bench_clean_folder_empty(c, &look.o_fh2);
	return err ? err : weft_do(c->c_w, &rm);
}

/* Removes what a READDIR found: files all at once, folders one after the other. */
static int batch_remove(struct clean *c, const struct weft_fh *fh, struct folder *f)
{
	size_t left = 0;
	int err = 0;

	for (size_t i = 0; i < f->f_n; i++) {
		struct entry *e = f->f_entry[i];

		if (e->e_dir)
			continue;
		e->e_op = (struct weft_op){.o_what = WEFT_REMOVE, .o_fh = *fh, .o_name = e->e_name};
		weft_submit(c->c_w, &e->e_op);
		left++;
	}
	while (left) {
		struct weft_op *done[64];
		int n = weft_reap(c->c_ring, done, 64, -1);

		for (int i = 0; i < n; i++)
			err = done[i]->o_err && done[i]->o_err != -ENOENT ? done[i]->o_err : err;
		left -= (size_t)n;
	}
	for (size_t i = 0; i < f->f_n; i++)
		if (f->f_entry[i]->e_dir && (!err || err == -ENOENT))
			err = folder_remove(c, fh, f->f_entry[i]->e_name);
	return err == -ENOENT ? 0 : err;
}

/* Reads from the beginning each time: the entries of the time before are gone. */
static int bench_clean_folder_empty(struct clean *c, const struct weft_fh *fh)
{
	bool more = true;
	int err = 0;

	while (more && !err) {
		struct folder f = {.f_op = {.o_what = WEFT_READDIR,
					    .o_fh = *fh,
					    .o_len = BATCH_BYTES,
					    .o_entry = bench_clean_found}};

		err = weft_do(c->c_w, &f.f_op);
		err = !err && f.f_short ? -ENOMEM : err;
		more = f.f_n != 0;
		if (!err)
			err = batch_remove(c, fh, &f);
		for (size_t i = 0; i < f.f_n; i++)
			free(f.f_entry[i]);
		free(f.f_entry);
	}
	return err;
}

/* Other threads may still be running for a moment. */
int bench_clean(void)
{
	struct weft_op look = {.o_what = WEFT_LOOKUP, .o_name = bench.bo_dir};
	struct weft_opts o = bench.bo_client;
	char name[64];
	struct clean c;
	int err;

	if (!atomic_load(&bench_made) || bench.bo_keep)
		return 0;
	o.wo_giveup_ms = GIVEUP_MS;
	o.wo_slots = 64;
	o.wo_no_layouts = true;
	err = weft_ring_create(&c.c_ring);
	if (err)
		return err;
	err = weft_connect(&c.c_w, c.c_ring, &o);
	if (!err) {
		snprintf(name, sizeof(name), "weft-bench.%ld", (long)getpid());
		err = weft_do(c.c_w, &look);
		for (int i = 0; i < TRIES && !err; i++) {
			err = folder_remove(&c, &look.o_fh2, name);
			if (err != -ENOTEMPTY)
				break;
			usleep(TRY_US);
			err = i + 1 < TRIES ? 0 : err;
		}
		weft_close(c.c_w);
	}
	if (err == -ENOENT) /* it could not be made */
		err = 0;
	weft_ring_destroy(c.c_ring);
	return err;
}

/* ---- interruptions ---- */

static void *watch(void *arg)
{
	int got = 0;

	sigwait(arg, &got);
	bench_die("%s", got == SIGINT ? "interrupted" : "terminated");
}

void bench_watch(void)
{
	static sigset_t set;
	pthread_t id;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (pthread_create(&id, NULL, watch, &set))
		bench_die("out of memory");
	pthread_detach(id);
}
