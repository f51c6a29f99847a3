/* SPDX-License-Identifier: Apache-2.0 */
/* bench_io.c - data: each session reads and writes a file in pieces of one size; and NULL calls. */
#include "tools/bench.h"
#include <stdio.h>
#include <string.h>

const uint8_t *bench_content(uint64_t off)
{
	return bench_pattern + off / 4096 * 8168 % BENCH_PATTERN;
}

static uint64_t offset(const struct bench_job *j, bool random)
{
	uint64_t n = bench.bo_count, i = j->j_i,
		 x = (i + j->j_s->s_id * 7919ull) * 0x9e3779b97f4a7c15ull;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 32;
	return (random ? x % n : i) * bench.bo_size;
}

bool bench_one_file(void)
{
	return bench.bo_shared && bench.bo_what[0] == 'i';
}

void bench_file_name(const struct bench_session *s, char *name, size_t len)
{
	snprintf(name, len, "io.%u", bench_one_file() ? 0 : s->s_id);
}

static void bench_io_file_open(struct bench_session *s)
{
	struct weft_op op = {.o_what = WEFT_OPEN,
			     .o_fh = s->s_dir,
			     .o_flags = WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE,
			     .o_attr = {.at_set = WEFT_A_MODE, .at_mode = 0644}};
	char name[32];

	bench_file_name(s, name, sizeof(name));
	op.o_name = name;
	bench_do(s, &op, "opening a file");
	s->s_file = op.o_file;
	/* Write what the phase reads or writes over. */
	for (uint64_t off = op.o_attr.at_size / bench.bo_size * bench.bo_size;
	     strcmp(bench_now->p_name, "write") && off < bench.bo_count * bench.bo_size;
	     off += bench.bo_size) {
		struct weft_op wr = {.o_what = WEFT_WRITE,
				     .o_file = s->s_file,
				     .o_off = off,
				     .o_len = bench.bo_size,
				     .o_buf = (void *)(uintptr_t)bench_content(off)};

		bench_do(s, &wr, "filling a file");
	}
	op = (struct weft_op){.o_what = WEFT_COMMIT, .o_file = s->s_file};
	bench_do(s, &op, "filling a file");
}

static void bench_io_file_close(struct bench_session *s)
{
	struct weft_op op = {.o_what = WEFT_CLOSE, .o_file = s->s_file};

	bench_do(s, &op, "closing a file");
	s->s_file = NULL;
}

static bool bench_io_commit(struct bench_job *j)
{
	if (j->j_step)
		return false;
	j->j_op = (struct weft_op){.o_what = WEFT_COMMIT, .o_file = j->j_s->s_file};
	return true;
}

bool bench_step_write(struct bench_job *j)
{
	uint64_t off = offset(j, bench_now->p_name[0] == 'r');

	if (j->j_step == 1 && bench.bo_commit && !(++j->j_s->s_writes % bench.bo_commit)) {
		j->j_op = (struct weft_op){.o_what = WEFT_COMMIT, .o_file = j->j_s->s_file};
		return true;
	}
	if (j->j_step)
		return false;
	j->j_s->s_t->t_bytes += bench.bo_size;
	j->j_op = (struct weft_op){.o_what = WEFT_WRITE,
				   .o_file = j->j_s->s_file,
				   .o_off = off,
				   .o_len = bench.bo_size,
				   .o_buf = (void *)(uintptr_t)bench_content(off),
				   .o_flags = bench.bo_stable ? WEFT_STABLE : 0};
	return true;
}

static bool bench_io_step_read(struct bench_job *j)
{
	uint64_t off = offset(j, bench_now->p_name[1] == 'a');

	if (j->j_step) {
		if (j->j_op.o_count != bench.bo_size ||
		    (bench.bo_verify && memcmp(j->j_buf, bench_content(off), bench.bo_size)))
			bench_die("%s: %u bytes read at offset %llu differ from what was written",
				  bench_now->p_name, j->j_op.o_count, (unsigned long long)off);
		return false;
	}
	j->j_s->s_t->t_bytes += bench.bo_size;
	j->j_op = (struct weft_op){.o_what = WEFT_READ,
				   .o_file = j->j_s->s_file,
				   .o_off = off,
				   .o_len = bench.bo_size,
				   .o_buf = j->j_buf};
	return true;
}

/* Removes the files session by session: in a shared folder each session removes its own. */
bool bench_step_remove(struct bench_job *j)
{
	if (j->j_step)
		return false;
	bench_file_name(j->j_s, j->j_name, sizeof(j->j_name));
	j->j_op =
		(struct weft_op){.o_what = WEFT_REMOVE, .o_fh = j->j_s->s_dir, .o_name = j->j_name};
	return true;
}

const struct bench_phase bench_io[] = {
	{.p_name = "write",
	 .p_repeat = true,
	 .p_step = bench_step_write,
	 .p_before = bench_io_file_open,
	 .p_last = bench_io_commit,
	 .p_after = bench_io_file_close},
	{.p_name = "read",
	 .p_repeat = true,
	 .p_step = bench_io_step_read,
	 .p_before = bench_io_file_open,
	 .p_after = bench_io_file_close},
	{.p_name = "randwrite",
	 .p_repeat = true,
	 .p_step = bench_step_write,
	 .p_before = bench_io_file_open,
	 .p_last = bench_io_commit,
	 .p_after = bench_io_file_close},
	{.p_name = "randread",
	 .p_repeat = true,
	 .p_step = bench_io_step_read,
	 .p_before = bench_io_file_open,
	 .p_after = bench_io_file_close},
	{.p_name = "remove", .p_step = bench_step_remove, .p_once = true},
	{0}};

static bool step_null(struct bench_job *j)
{
	if (j->j_step)
		return false;
	j->j_op = (struct weft_op){.o_what = WEFT_NULL};
	return true;
}

const struct bench_phase bench_null[] = {{.p_name = "null", .p_repeat = true, .p_step = step_null},
					 {0}};
