/* bench_md.c - operations on names, in the order of mdtest's phases: what one makes, the next ones use. */
#include "tools/bench.h"
#include <stdio.h>
#include <string.h>

static struct weft_op *begin(struct bench_job *j, enum weft_what what, const char *kind)
{
	struct weft_op *op = &j->j_op;

	snprintf(j->j_name, sizeof(j->j_name), "%s%u.%llu", kind, j->j_s->s_id, (unsigned long long)j->j_i);
	*op = (struct weft_op){.o_what = what, .o_fh = j->j_s->s_dir, .o_name = j->j_name};
	return op;
}

static bool step_mkdir(struct bench_job *j)
{
	if (j->j_step)
		return false;
	begin(j, WEFT_MKDIR, "d")->o_attr = (struct weft_attr){.at_set = WEFT_A_MODE, .at_mode = 0755};
	return true;
}

static bool step_rmdir(struct bench_job *j)
{
	if (j->j_step)
		return false;
	begin(j, WEFT_REMOVE, "d");
	return true;
}

/* The file of the OPEN that has just ended: what comes between, then CLOSE. */
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
	    (op->o_count != bench.bo_body || (bench.bo_verify && memcmp(j->j_buf, bench_pattern, bench.bo_body))))
		bench_die("open: %s has other data than what was written", j->j_name);
	if (j->j_step > (bench.bo_body ? 2 : 1))
		return false;
	j->j_s->s_t->t_bytes += bench.bo_body;
	*op = (struct weft_op){.o_what = WEFT_CLOSE, .o_file = f};
	return true;
}

static bool step_create(struct bench_job *j)
{
	struct weft_op *op;

	if (j->j_step)
		return with_body(j, WEFT_WRITE);
	op = begin(j, WEFT_OPEN, "f");
	op->o_flags = WEFT_O_WRITE | WEFT_O_CREATE | WEFT_O_EXCL;
	op->o_attr = (struct weft_attr){.at_set = WEFT_A_MODE, .at_mode = 0644};
	return true;
}

static bool step_open(struct bench_job *j)
{
	if (j->j_step)
		return with_body(j, WEFT_READ);
	begin(j, WEFT_OPEN, "f")->o_flags = WEFT_O_READ;
	return true;
}

static bool step_stat(struct bench_job *j)
{
	if (j->j_step)
		return false;
	begin(j, WEFT_LOOKUP, "f");
	return true;
}

static void count(struct weft_op *op, const struct weft_entry *en)
{
	struct bench_job *j = (struct bench_job *)op;

	(void)en;
	j->j_s->s_t->t_units++;
}

/* A listing, as many calls as it takes. */
static bool step_readdir(struct bench_job *j)
{
	if (j->j_step)
		return !j->j_op.o_eof; /* where the last one ended */
	begin(j, WEFT_READDIR, "")->o_entry = count;
	return true;
}

static bool step_rename(struct bench_job *j)
{
	struct weft_op *op;

	if (j->j_step)
		return false;
	op = begin(j, WEFT_RENAME, "f");
	snprintf(j->j_name2, sizeof(j->j_name2), "g%u.%llu", j->j_s->s_id, (unsigned long long)j->j_i);
	op->o_fh2 = j->j_s->s_dir;
	op->o_name2 = j->j_name2;
	return true;
}

static bool step_unlink(struct bench_job *j)
{
	if (j->j_step)
		return false;
	begin(j, WEFT_REMOVE, "g");
	return true;
}

const struct bench_phase bench_md[] = {
	{.p_name = "mkdir", .p_step = step_mkdir},   {.p_name = "rmdir", .p_step = step_rmdir},
	{.p_name = "create", .p_step = step_create}, {.p_name = "stat", .p_step = step_stat},
	{.p_name = "open", .p_step = step_open},     {.p_name = "readdir", .p_step = step_readdir, .p_once = true},
	{.p_name = "rename", .p_step = step_rename}, {.p_name = "unlink", .p_step = step_unlink},
	{0}};
