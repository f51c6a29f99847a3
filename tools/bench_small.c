/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_small.c - two loads of machine learning. small: many small files; each is looked up,
 * opened, read and closed, in random order. storm: checkpoints; all sessions write a large file
 * each at the same time, from OPEN to CLOSE, with a COMMIT. The result says how even the sessions
 * are (slow/fast).
 */
#include "tools/bench.h"
#include <stdio.h>
#include <string.h>

/* ---- small ---- */

/* Shuffles by a Feistel network over the next power of four, which is repeated until the result is
 * below n. */
uint64_t bench_shuffled(uint64_t i, uint64_t n, uint64_t key)
{
	unsigned half = 1;
	uint64_t mask;

	while (half < 31 && 1ull << 2 * half < n)
		half++;
	mask = (1ull << half) - 1;
	do {
		uint64_t l = i >> half, r = i & mask;

		for (uint64_t round = 1; round <= 4; round++) {
			uint64_t x = (r + key + round * 0x9e3779b97f4a7c15ull) *
				     0xbf58476d1ce4e5b9ull,
				 was = r;

			r = (l ^ x >> 40) & mask;
			l = was;
		}
		i = l << half | r;
	} while (i >= n);
	return i;
}

static void name(struct bench_job *j, uint64_t i)
{
	snprintf(j->j_name, sizeof(j->j_name), "f%u.%llu", j->j_s->s_id, (unsigned long long)i);
}

static struct weft_op *bench_small_begin(struct bench_job *j, enum weft_what what)
{
	j->j_op = (struct weft_op){.o_what = what, .o_fh = j->j_s->s_dir, .o_name = j->j_name};
	return &j->j_op;
}

static bool bench_small_step_create(struct bench_job *j)
{
	struct weft_op *op = &j->j_op;

	switch (j->j_step) {
	case 0:
		name(j, j->j_i);
		op = bench_small_begin(j, WEFT_OPEN);
		op->o_flags = WEFT_O_WRITE | WEFT_O_CREATE | WEFT_O_EXCL;
		op->o_attr = (struct weft_attr){.at_set = WEFT_A_MODE, .at_mode = 0644};
		return true;
	case 1:
		*op = (struct weft_op){.o_what = WEFT_WRITE,
				       .o_file = op->o_file,
				       .o_len = bench.bo_body,
				       .o_buf = (void *)(uintptr_t)bench_content(j->j_i * 4096),
				       .o_flags = bench.bo_stable ? WEFT_STABLE : 0};
		j->j_s->s_t->t_bytes += bench.bo_body;
		return true;
	case 2:
		*op = (struct weft_op){.o_what = WEFT_CLOSE, .o_file = op->o_file};
		return true;
	default:
		return false;
	}
}

static bool bench_small_step_read(struct bench_job *j)
{
	uint64_t n = bench.bo_seconds ? j->j_s->s_files : bench.bo_count,
		 at = bench_shuffled(j->j_i, n, j->j_s->s_id);
	struct weft_op *op = &j->j_op;

	switch (j->j_step) {
	case 0:
		name(j, at);
		bench_small_begin(j, WEFT_LOOKUP);
		return true;
	case 1:
		op = bench_small_begin(j, WEFT_OPEN);
		op->o_flags = WEFT_O_READ;
		return true;
	case 2:
		*op = (struct weft_op){.o_what = WEFT_READ,
				       .o_file = op->o_file,
				       .o_len = bench.bo_body,
				       .o_buf = j->j_buf};
		j->j_s->s_t->t_bytes += bench.bo_body;
		return true;
	case 3:
		if (op->o_count != bench.bo_body ||
		    (bench.bo_verify && memcmp(j->j_buf, bench_content(at * 4096), bench.bo_body)))
			bench_die("read: the data of %s differ from what was written", j->j_name);
		*op = (struct weft_op){.o_what = WEFT_CLOSE, .o_file = op->o_file};
		return true;
	default:
		return false;
	}
}

/* The sessions' folders have no policy of their own. */
static void policy_other(struct bench_session *s)
{
	if (s->s_id == 0)
		bench_policy(s, bench.bo_reread);
}

static bool step_remove(struct bench_job *j)
{
	if (j->j_step)
		return false;
	name(j, j->j_i);
	bench_small_begin(j, WEFT_REMOVE);
	return true;
}

static void bench_small_files_made(struct bench_session *s)
{
	s->s_files = s->s_next;
}

static uint64_t bench_small_files(const struct bench_session *s)
{
	return s->s_files;
}

const struct bench_phase bench_small[] = {
	{.p_name = "create", .p_step = bench_small_step_create, .p_after = bench_small_files_made},
	{.p_name = "read",
	 .p_step = bench_small_step_read,
	 .p_pieces = bench_small_files,
	 .p_repeat = true},
	{.p_name = "reread",
	 .p_step = bench_small_step_read,
	 .p_before = policy_other,
	 .p_pieces = bench_small_files,
	 .p_repeat = true},
	{.p_name = "remove", .p_step = step_remove, .p_pieces = bench_small_files},
	{0}};

/* ---- storm ---- */

static bool storm_open(struct bench_job *j)
{
	if (j->j_step) {
		j->j_s->s_file = j->j_op.o_file;
		return false;
	}
	bench_file_name(j->j_s, j->j_name, sizeof(j->j_name));
	bench_small_begin(j, WEFT_OPEN);
	j->j_op.o_flags = WEFT_O_WRITE | WEFT_O_CREATE | WEFT_O_TRUNC;
	j->j_op.o_attr = (struct weft_attr){.at_set = WEFT_A_MODE, .at_mode = 0644};
	return true;
}

static bool storm_close(struct bench_job *j)
{
	if (j->j_step == 2)
		return false;
	j->j_op = (struct weft_op){.o_what = j->j_step ? WEFT_CLOSE : WEFT_COMMIT,
				   .o_file = j->j_s->s_file};
	return true;
}

const struct bench_phase bench_storm[] = {
	{.p_name = "write",
	 .p_first = storm_open,
	 .p_step = bench_step_write,
	 .p_last = storm_close},
	{.p_name = "remove", .p_step = bench_step_remove, .p_once = true},
	{0}};
