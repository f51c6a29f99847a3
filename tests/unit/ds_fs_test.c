/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_fs_test.c - a store that serves several file systems: three metadata servers give random
 * orders, and what one of them does is compared with a model of its own. And what such a store's
 * files have.
 */
#include "tests/unit/ds_store.h"
#include <sys/wait.h>

#define MDSS	3
#define FILES	40
#define CLIENTS 32

static const uint8_t cluster[16] = "some cluster";

static struct ds_fs *fs_of(uint32_t number)
{
	struct ds_fs *f;

	ck_assert_int_eq(ds_store_fs_meet(S, number, &f), 0);
	return f;
}

/* ---- a model: what each metadata server knows of its own objects ---- */

struct mds {
	uint32_t number;
	uint64_t epoch, order;
	bool there[FILES], gone[FILES], barred[CLIENTS];
	uint32_t fence[FILES];
};
static struct mds mds[MDSS];

/* The file systems' inode numbers differ in the top 16 bits, their clients' and orders' do not. */
static uint64_t ino_of(const struct mds *m, unsigned file)
{
	return (m->number == 1 ? 0 : (uint64_t)m->number << 48) + 2 + file;
}

static ctl_object object_of(const struct mds *m, unsigned file)
{
	return (ctl_object){.ino = ino_of(m, file), .fs = m->number, .incarnation = 1};
}

static ctl_status give(struct mds *m, ctl_order *o)
{
	ctl_status res = CTL_IO, st;

	o->number = ++m->order;
	st = (o->type == CTL_FENCE || o->type == CTL_BAR_CLIENT
		      ? ds_store_fences
		      : ds_store_orders)(fs_of(m->number), m->epoch, o, 1, &res);
	return st == CTL_OK ? res : st;
}

static void random_order(struct mds *m)
{
	unsigned file = (unsigned)rand() % FILES, client = (unsigned)rand() % CLIENTS;
	ctl_order o = {.object = object_of(m, file), .epoch = m->fence[file]};

	switch (rand() % 16) {
	case 0:
		if (m->gone[file])
			return;
		o.type = CTL_DELETE;
		ck_assert_int_eq(give(m, &o), CTL_OK);
		m->gone[file] = true;
		m->there[file] = false;
		return;
	case 1:
		o.type = CTL_BAR_CLIENT;
		o.client = client + 1;
		ck_assert_int_eq(give(m, &o), CTL_OK);
		m->barred[client] = true;
		return;
	case 2: /* a boot of this metadata server; the others' go on */
		m->epoch++;
		ck_assert_int_eq(ds_store_join(fs_of(m->number), m->epoch, m->epoch * 7, 1),
				 CTL_OK);
		return;
	case 3: /* its former boot gives an order */
		m->epoch--;
		o.type = CTL_FENCE;
		o.epoch = m->fence[file] + 100;
		ck_assert_int_eq(give(m, &o), CTL_STALE_INSTANCE);
		m->epoch++;
		return;
	default:
		if (m->gone[file])
			return;
		o.type = rand() % 2 ? CTL_FENCE : CTL_TRUNCATE;
		o.epoch = ++m->fence[file];
		o.size = o.type == CTL_TRUNCATE ? 1 + (unsigned)rand() % 4000 : 0;
		ck_assert_int_eq(give(m, &o), CTL_OK);
		m->there[file] = true;
	}
}

/* What LIST gives this metadata server: its own objects, and all of them. */
static void check_list(const struct mds *m)
{
	bool seen[FILES] = {false};
	ctl_list_entry e[CTL_BATCH_MAX];
	uint8_t cookie[64];
	unsigned n, len = 0;

	do {
		ck_assert_int_eq(ds_store_list(fs_of(m->number), cookie, len, CTL_BATCH_MAX, e, &n,
					       cookie, &len),
				 0);
		for (unsigned i = 0; i < n; i++) {
			uint64_t file = e[i].object.ino - ino_of(m, 0);

			ck_assert_uint_eq(e[i].object.fs, m->number);
			ck_assert_uint_lt(file, FILES);
			seen[file] = true;
		}
	} while (len);
	for (unsigned i = 0; i < FILES; i++)
		ck_assert_msg(seen[i] == m->there[i], "file system %u, file %u: listed %d",
			      m->number, i, seen[i]);
}

static void check_model(const struct mds *m)
{
	struct ds_fs *f = fs_of(m->number);

	for (unsigned i = 0; i < CLIENTS; i++)
		ck_assert_msg(ds_store_barred(f, i + 1) == m->barred[i],
			      "file system %u, client %u", m->number, i + 1);
	for (unsigned i = 0; i < FILES; i++) {
		ctl_object o = object_of(m, i);
		ctl_stat st;

		ds_store_stat(S, &o, &st);
		ck_assert_int_eq(st.status, m->there[i] ? CTL_OK : CTL_NOENT);
		if (m->there[i])
			ck_assert_uint_eq(st.epoch, m->fence[i]);
	}
	ck_assert(ds_store_instance_ok(f, m->epoch));
	ck_assert(!ds_store_instance_ok(f, m->epoch - 1));
	ck_assert_uint_ge(ds_store_order_high(f), m->order);
	ck_assert_uint_le(ds_store_order_high(f), m->order + 2 * CTL_ORDER_STEP);
	check_list(m);
}

START_TEST(each_metadata_server_acts_on_its_own_objects_alone)
{
	unsigned turns = getenv("DS_FS_ORDERS") ? (unsigned)atoi(getenv("DS_FS_ORDERS")) : 3000;

	srand(getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : 1);
	ck_assert_int_eq(ds_store_set_cluster(S, cluster, 1), 0);
	for (unsigned i = 0; i < MDSS; i++) {
		mds[i] = (struct mds){.number = i ? 0x100 + i : 1, .epoch = 50 * i + 1};
		/* Numbers that are far apart, and the same clients. */
		mds[i].order = i * 7 * CTL_ORDER_STEP;
		ck_assert_int_eq(ds_store_join(fs_of(mds[i].number), mds[i].epoch, 7, 1), CTL_OK);
	}
	for (unsigned k = 0; k < turns; k++) {
		random_order(&mds[rand() % MDSS]);
		if (k % (turns / 8) == turns / 8 - 1) {

			ck_assert_int_eq(ds_store_set_cluster(S, cluster, 1), 0);
			reopen();
			for (unsigned i = 0; i < MDSS; i++)
				check_model(&mds[i]);
		}
	}
}
END_TEST

/* ---- the journal ---- */

/* The types of the records in the last segment, as bits; and whether a bar names a file system. */
static unsigned journal_types(bool *named)
{
	char cmd[160], path[300];
	struct ds_rec r;
	unsigned types = 0;
	FILE *p, *f;

	snprintf(cmd, sizeof(cmd), "ls %s/journal | tail -1", dir);
	p = popen(cmd, "r");
	ck_assert(fscanf(p, "%159s", cmd) == 1);
	pclose(p);
	snprintf(path, sizeof(path), "%s/journal/%s", dir, cmd);
	f = fopen(path, "r");
	*named = false;
	while (fread(&r, sizeof(r), 1, f) == 1) {
		types |= 1u << r.dsr_type;
		*named |= (r.dsr_type == DS_REC_BAR || r.dsr_type == DS_REC_RUN) && r.dsr_fs;
	}
	fclose(f);
	return types;
}

START_TEST(a_store_of_one_file_system_writes_what_older_programs_read)
{
	bool named;

	ck_assert_int_eq(ds_store_set_cluster(S, cluster, 1), 0);
	ck_assert_int_eq(ds_store_join(fs_of(1), 5, 1, 1), CTL_OK);
	ck_assert_int_eq(ds_bar(fs_of(1), 3), 0);
	reopen();
	ck_assert_uint_eq(journal_types(&named) & 1u << DS_REC_STATE_OF, 0);
	ck_assert(!named);
	ck_assert_int_eq(ds_store_join(fs_of(2), 9, 2, 1), CTL_OK);
	ck_assert_uint_ne(journal_types(&named) & 1u << DS_REC_STATE_OF, 0);
	reopen();
	ck_assert(!ds_store_instance_ok(fs_of(2), 8) && ds_store_instance_ok(fs_of(1), 5));
	ck_assert_uint_eq(ds_store_seen(fs_of(2)).sn_boot_id, 2);
	ck_assert_uint_eq(ds_store_seen(fs_of(1)).sn_boot_id, 1);
}
END_TEST

START_TEST(what_a_store_has_before_its_first_join_is_the_first_ones)
{
	struct ds_fs *home = ds_store_fs_home(S), *f;

	ck_assert_uint_eq(ds_fs_number(home), 0);
	ck_assert_ptr_null(ds_store_fs(S, 7));
	ck_assert_int_eq(ds_bar(home, 3), 0);
	ck_assert_int_eq(ds_store_fs_meet(S, 7, &f), -ENOTCONN);
	ck_assert_int_eq(ds_store_set_cluster(S, cluster, 7), 0);
	ck_assert_int_eq(ds_store_set_cluster(S, cluster, 8), 0);
	ck_assert_int_eq(ds_store_set_cluster(S, (const uint8_t *)"another cluster.", 7), -EXDEV);
	ck_assert_ptr_eq(fs_of(7), home);
	ck_assert_ptr_ne(fs_of(8), home);
	ck_assert(ds_store_barred(fs_of(7), 3) && !ds_store_barred(fs_of(8), 3));
}
END_TEST

START_TEST(a_store_serves_so_many_file_systems_and_no_more)
{
	struct ds_fs *f;

	ck_assert_int_eq(ds_store_set_cluster(S, cluster, 1), 0);
	for (uint32_t i = 1; i <= DS_FS_MAX; i++)
		ck_assert_int_eq(ds_store_join(fs_of(i), i, i, 1), CTL_OK);
	ck_assert_int_eq(ds_store_fs_meet(S, DS_FS_MAX + 1, &f), -EOVERFLOW);
	ck_assert_int_eq(ds_store_fs_meet(S, 0, &f), -EINVAL);
	ck_assert_int_eq(ds_store_fs_meet(S, 65536, &f), -EINVAL);
	ck_assert_int_eq(ds_store_fs_meet(S, DS_FS_MAX, &f), 0);
	ck_assert_uint_eq(ds_fs_place(f), DS_FS_MAX - 1);
}
END_TEST

/* ---- the marks of volumes ---- */

START_TEST(marks_are_each_file_systems_own)
{
	static char two[160];
	struct cap_object a = {.co_ino = 90000, .co_fs = 1, .co_incarnation = 1},
			  b = {.co_ino = (UINT64_C(2) << 48) + 7, .co_fs = 2, .co_incarnation = 1};
	struct ds_obj *o;
	unsigned v;

	snprintf(two, sizeof(two), "%s,%s.second", dir, dir);
	opts.so_dir = two;
	ck_assert_int_eq(ds_store_set_cluster(S, cluster, 1), 0);
	reopen();
	v = S->s_vol[1]->v_number;
	fs_of(2);
	ck_assert_int_eq(ds_obj_get_at(S, &a, true, S->s_vol[1], &o), 0);
	ds_obj_put(o);
	ck_assert_int_eq(ds_obj_get_at(S, &b, true, S->s_vol[1], &o), 0);
	ds_obj_put(o);
	for (unsigned k = 0; k < 2; k++) {
		ck_assert_uint_eq(atomic_load(&fs_of(1)->fs_mark[v].mr_high), a.co_ino);
		ck_assert_uint_eq(atomic_load(&fs_of(2)->fs_mark[v].mr_high), b.co_ino);
		reopen();
	}
	/* A file system that the store met without marks: nothing says what it has. */
	ck_assert_int_eq(ds_store_join(fs_of(3), 1, 1, 1), CTL_OK);
	ds_store_close(S);
	S = NULL;
	ck_assert_int_eq(truncate(strcat(strcpy(two, dir), "/marks"), 4L * 4096), 0);
	snprintf(two, sizeof(two), "%s,%s.second", dir, dir);
	reopen();
	ck_assert_uint_eq(atomic_load(&fs_of(2)->fs_mark[v].mr_high), b.co_ino);
	ck_assert_uint_eq(atomic_load(&fs_of(3)->fs_mark[v].mr_high), UINT64_MAX);
	opts.so_dir = dir;
	ds_store_close(S);
	S = NULL;
	snprintf(two, sizeof(two), "%s.second", dir);
	scratch_remove(two);
}
END_TEST

int main(void)
{
	static const TTest *tests[6];
	Suite *s = suite_create("ds_fs");

	tests[0] = each_metadata_server_acts_on_its_own_objects_alone;
	tests[1] = a_store_of_one_file_system_writes_what_older_programs_read;
	tests[2] = what_a_store_has_before_its_first_join_is_the_first_ones;
	tests[3] = a_store_serves_so_many_file_systems_and_no_more;
	tests[4] = marks_are_each_file_systems_own;
	unit_add(s, "several", setup, teardown, 600, tests);
	return unit_run(s);
}
