/* SPDX-License-Identifier: Apache-2.0 */
/* bench_md.c - operations on names, in the order of mdtest's phases: later phases use what earlier
 * ones make. */
#include "tools/bench.h"
#include <stdio.h>
#include <string.h>

static struct weft_op *bench_md_begin(struct bench_job *j, enum weft_what what, const char *kind)
{
	struct weft_op *op = &j->j_op;
	bool any = bench.bo_random && bench_now->p_repeat && !bench_now->p_once;
	uint64_t n = bench.bo_seconds ? j->j_s->s_files : bench.bo_count,
		 i = any ? bench_shuffled(j->j_i, n, j->j_s->s_id) : j->j_i;

	snprintf(j->j_name, sizeof(j->j_name), "%s%u.%llu", kind, j->j_s->s_id,
		 (unsigned long long)i);
	*op = (struct weft_op){.o_what = what, .o_fh = j->j_s->s_dir, .o_name = j->j_name};
	return op;
}

static bool step_mkdir(struct bench_job *j)
{
	if (j->j_step)
		return false;
	bench_md_begin(j, WEFT_MKDIR, "d")->o_attr =
		(struct weft_attr){.at_set = WEFT_A_MODE, .at_mode = 0755};
	return true;
}

static bool step_rmdir(struct bench_job *j)
{
	if (j->j_step)
		return false;
	bench_md_begin(j, WEFT_REMOVE, "d");
	return true;
}

/* Uses the file of the OPEN that has just ended: first what comes between, then CLOSE. */
static bool with_body(struct bench_job *j, enum weft_what what)
{
	struct weft_op *op = &j->j_op;
	struct weft_file *f = op->o_file;

	if (j->j_step == 1 && bench.bo_body) {
		*op = (struct weft_op){.o_what = what, .o_file = f, .o_len = bench.bo_body};
		op->o_flags = bench.bo_stable ? WEFT_STABLE : 0;
		op->o_buf = what == WEFT_WRITE ? bench_pattern : j->j_buf;
		return true;
	}
	if (j->j_step == 2 && what == WEFT_READ && bench.bo_body &&
	    (op->o_count != bench.bo_body ||
	     (bench.bo_verify && memcmp(j->j_buf, bench_pattern, bench.bo_body))))
		bench_die("open: the data of %s differ from what was written", j->j_name);
	if (j->j_step > (bench.bo_body ? 2 : 1))
		return false;
	j->j_s->s_t->t_bytes += bench.bo_body;
	*op = (struct weft_op){.o_what = WEFT_CLOSE, .o_file = f};
	return true;
}

static bool bench_md_step_create(struct bench_job *j)
{
	struct weft_op *op;

	if (j->j_step)
		return with_body(j, WEFT_WRITE);
	op = bench_md_begin(j, WEFT_OPEN, "f");
	op->o_flags =
		WEFT_O_WRITE | WEFT_O_CREATE | WEFT_O_EXCL | (bench.bo_body ? 0 : WEFT_O_NO_DATA);
	op->o_attr = (struct weft_attr){.at_set = WEFT_A_MODE, .at_mode = 0644};
	return true;
}

static bool step_open(struct bench_job *j)
{
	if (j->j_step)
		return with_body(j, WEFT_READ);
	bench_md_begin(j, WEFT_OPEN, "f")->o_flags =
		WEFT_O_READ | (bench.bo_body ? 0 : WEFT_O_NO_DATA);
	return true;
}

static bool step_stat(struct bench_job *j)
{
	if (j->j_step)
		return false;
	bench_md_begin(j, WEFT_LOOKUP, "f");
	return true;
}

static void bench_md_count(struct weft_op *op, const struct weft_entry *en)
{
	struct bench_job *j = (struct bench_job *)op;

	(void)en;
	j->j_s->s_t->t_units++;
}

/* Reads a listing, in as many calls as it takes. */
static bool step_readdir(struct bench_job *j)
{
	if (j->j_step)
		return !j->j_op.o_eof; /* go on where the last call ended */
	bench_md_begin(j, WEFT_READDIR, "")->o_entry = bench_md_count;
	return true;
}

static bool step_rename(struct bench_job *j)
{
	struct weft_op *op;

	if (j->j_step)
		return false;
	op = bench_md_begin(j, WEFT_RENAME, "f");
	snprintf(j->j_name2, sizeof(j->j_name2), "g%u.%llu", j->j_s->s_id,
		 (unsigned long long)j->j_i);
	op->o_fh2 = j->j_s->s_dir;
	op->o_name2 = j->j_name2;
	return true;
}

static bool step_unlink(struct bench_job *j)
{
	if (j->j_step)
		return false;
	bench_md_begin(j, WEFT_REMOVE, j->j_i < j->j_s->s_renamed ? "g" : "f");
	return true;
}

/* Notes what a phase left for later phases. */
static void dirs_made(struct bench_session *s)
{
	s->s_dirs = s->s_next;
}

static void bench_md_files_made(struct bench_session *s)
{
	s->s_files = s->s_next;
	s->s_renamed = 0;
}

static void files_renamed(struct bench_session *s)
{
	s->s_renamed = s->s_next;
}

static uint64_t dirs(const struct bench_session *s)
{
	return s->s_dirs;
}

static uint64_t bench_md_files(const struct bench_session *s)
{
	return s->s_files;
}

const struct bench_phase bench_md[] = {
	{.p_name = "mkdir", .p_step = step_mkdir, .p_after = dirs_made},
	{.p_name = "rmdir", .p_step = step_rmdir, .p_pieces = dirs},
	{.p_name = "create", .p_step = bench_md_step_create, .p_after = bench_md_files_made},
	{.p_name = "stat", .p_step = step_stat, .p_pieces = bench_md_files, .p_repeat = true},
	{.p_name = "open", .p_step = step_open, .p_pieces = bench_md_files, .p_repeat = true},
	{.p_name = "readdir", .p_step = step_readdir, .p_once = true, .p_repeat = true},
	{.p_name = "rename",
	 .p_step = step_rename,
	 .p_pieces = bench_md_files,
	 .p_after = files_renamed},
	{.p_name = "unlink", .p_step = step_unlink, .p_pieces = bench_md_files},
	{0}};
