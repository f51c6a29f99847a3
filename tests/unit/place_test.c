/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: labels, groups, domains, weights and what they add up to. The servers are made in
 * memory; nothing is asked of them. */
#include "base/clock.h"
#include "tests/unit/lo_seats.h"

/* ---- labels ---- */

START_TEST(labels_have_a_normal_form)
{
	char out[LABELS_LEN], two[LABELS_TWO_LEN], err[256];
	static const char *const bad[] = {"rack",
					  "rack=",
					  "=r1",
					  "1rack=r",
					  "rack=r 1",
					  "rack=r1,",
					  ",rack=r1",
					  "a=1,a=2",
					  "a=b=c",
					  "a=b/c",
					  "a=\xff",
					  "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1",
					  "abcdefghijklmnopq=1",
					  "a=123456789012345678901234567890123"};

	ck_assert_int_eq(
		labels_parse("speed=nvme,rack=r1,Rack-2=a.b_C", 31, false, out, err, sizeof(err)),
		0);
	ck_assert_str_eq(out, "Rack-2=a.b_C,rack=r1,speed=nvme");
	ck_assert_int_eq(labels_parse("", 0, false, out, err, sizeof(err)), 0);
	ck_assert_str_eq(out, "");
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err[0] = 0;
		ck_assert_msg(labels_parse(bad[i], strlen(bad[i]), false, out, err, sizeof(err)) ==
					      -EINVAL &&
				      *err,
			      "%s is taken", bad[i]);
	}
	ck_assert_int_eq(labels_parse("rack=,b=1", 9, true, out, err, sizeof(err)), 0);
	ck_assert_uint_eq(labels_merge("a=1,rack=r1", "b=2,rack=", two), 2);
	ck_assert_str_eq(two, "a=1,b=2");
	ck_assert_uint_eq(labels_merge("rack=r1,speed=hdd", "rack=r9", two), 2);
	ck_assert_str_eq(two, "rack=r9,speed=hdd");
	ck_assert_uint_eq(labels_merge("", "", two), 0);
	ck_assert_str_eq(two, "");
}
END_TEST

START_TEST(labels_of_every_length_fit)
{
	char text[LABELS_LEN + 64], out[LABELS_LEN], two[LABELS_TWO_LEN], other[LABELS_LEN],
		err[256];
	size_t at = 0;

	for (int i = 0; i < LABELS_MAX; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%c%015d=%032d",
				       i ? "," : "", 'a' + i, i, i);
	ck_assert_uint_eq(at, LABELS_LEN - 1);
	ck_assert_int_eq(labels_parse(text, at, false, out, err, sizeof(err)), 0);
	ck_assert_str_eq(out, text);
	strcpy(other, out);
	for (char *p = other; p; p = strchr(p + 1, ','))
		p[*p == ','] = (char)(p[*p == ','] - 'a' + 'A');
	ck_assert_uint_eq(labels_merge(out, other, two), 2 * LABELS_MAX);
	ck_assert_uint_eq(strlen(two), LABELS_TWO_LEN - 1);
}
END_TEST

/* ---- rows ---- */

START_TEST(rows_keep_weights_and_labels_and_old_rows_are_read)
{
	struct ds_reg_server sv = {.sv_id = 7,
				   .sv_naddrs = 2,
				   .sv_name = "ds7",
				   .sv_max_read = 4096,
				   .sv_max_write = 8192},
			     got;
	struct ds_reg_terms dt = {.dt_weight = 250,
				  .dt_own = "rack=r1,speed=hdd",
				  .dt_set = "rack=r2",
				  .dt_barred = DS_REG_KILLED,
				  .dt_barred_s = 1795000000,
				  .dt_boot = 65537,
				  .dt_start = 7,
				  .dt_start_id = UINT64_MAX - 1,
				  .dt_order = 9},
			    terms;
	uint8_t row[DS_REG_ROW_MAX], id[16] = {1};
	size_t n, head;

	for (unsigned i = 0; i < 2; i++) {
		strcpy(sv.sv_addrs[i].netid, "tcp");
		strcpy(sv.sv_addrs[i].uaddr, "127.0.0.1.8.1");
	}
	n = ds_reg_row_encode(&sv, &dt, row);
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, n},
					   &got, &terms),
			 0);
	ck_assert_uint_eq(terms.dt_weight, 250);
	ck_assert_str_eq(terms.dt_own, "rack=r1,speed=hdd");
	ck_assert_str_eq(terms.dt_set, "rack=r2");
	ck_assert_str_eq(terms.dt_labels, "rack=r2,speed=hdd");
	ck_assert_uint_eq(terms.dt_barred, DS_REG_KILLED);
	ck_assert_uint_eq(terms.dt_barred_s, 1795000000);
	ck_assert(terms.dt_boot == 65537 && terms.dt_start == 7 &&
		  terms.dt_start_id == UINT64_MAX - 1 && terms.dt_order == 9);
	for (size_t k = 0; k < n; k++)
		ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16},
						   (struct kv_slice){row, k}, &got, &terms),
				 -EIO);
	/* A reason to wait, of one that is killed. */
	row[n - 8] = DS_REG_WHY_RESTORED;
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, n},
					   &got, &terms),
			 -EIO);
	/* Version 4 ends before the last join. */
	n -= 40;
	row[0] = 4;
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, n},
					   &got, &terms),
			 0);
	ck_assert(terms.dt_barred == DS_REG_KILLED && !terms.dt_boot && !terms.dt_start);
	/* A word that is none. */
	row[n - 8] = DS_REG_DEAD;
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, n},
					   &got, &terms),
			 -EIO);
	/* Version 3 ends with the labels; labels that are none. */
	n -= 16;
	row[0] = 3;
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, n},
					   &got, &terms),
			 0);
	ck_assert_uint_eq(terms.dt_barred, 0);
	row[n - 1] = ' ';
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, n},
					   &got, &terms),
			 -EIO);
	/* Version 2 ends with the addresses; version 1 has shorter ones. */
	head = n - 8 - strlen(dt.dt_own) - strlen(dt.dt_set);
	row[0] = 2;
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, head},
					   &got, &terms),
			 0);
	ck_assert_uint_eq(got.sv_naddrs, 2);
	ck_assert_uint_eq(terms.dt_weight, DS_REG_WEIGHT_ONE);
	ck_assert_str_eq(terms.dt_labels, "");
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, n},
					   &got, &terms),
			 -EIO);
	row[0] = 1;
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16},
					   (struct kv_slice){row, head - 2}, &got, &terms),
			 0);
	row[0] = 4;
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, head},
					   &got, &terms),
			 -EIO);
}
END_TEST

START_TEST(rows_of_counted_joins_have_a_version_of_their_own)
{
	struct ds_reg_server sv = {.sv_id = 7,
				   .sv_naddrs = 1,
				   .sv_name = "ds7",
				   .sv_own = true,
				   .sv_key_number = 3},
			     got;
	struct ds_reg_terms dt = {.dt_weight = 100,
				  .dt_own = "rack=r1",
				  .dt_boot = 65537,
				  .dt_start = 7,
				  .dt_order = 9},
			    terms;
	uint8_t row[DS_REG_ROW_MAX], id[16] = {1};
	size_t n = ds_reg_row_encode(&sv, &dt, row), more;

	ck_assert_uint_eq(row[0], 6);
	dt.dt_joins = 5;
	dt.dt_had_boot = 65536;
	dt.dt_had_joins = UINT32_MAX;
	more = ds_reg_row_encode(&sv, &dt, row);
	ck_assert_uint_eq(row[0], 7);
	ck_assert_uint_eq(more, n + 16);
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, more},
					   &got, &terms),
			 0);
	ck_assert(terms.dt_joins == 5 && terms.dt_had_boot == 65536 &&
		  terms.dt_had_joins == UINT32_MAX);
	ck_assert(terms.dt_boot == 65537 && terms.dt_start == 7 && terms.dt_order == 9 &&
		  got.sv_own && got.sv_key_number == 3);
	ck_assert_str_eq(terms.dt_own, "rack=r1");
	for (size_t k = 0; k < more; k++)
		ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16},
						   (struct kv_slice){row, k}, &got, &terms),
				 -EIO);
	row[0] = 8;
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){id, 16}, (struct kv_slice){row, more},
					   &got, &terms),
			 -EIO);
}
END_TEST

struct said {
	struct ds_reg_command w;
	_Atomic int done;
	int err;
};

static void said(struct ds_reg_command *w, int err)
{
	struct said *s = caa_container_of(w, struct said, w);

	s->err = err;
	atomic_store(&s->done, 1);
}

static int say(struct said *s)
{
	s->w.dw_done = said;
	atomic_store(&s->done, 0);
	ds_reg_command_start(dsc, &s->w);
	while (!atomic_load(&s->done))
		usleep(1000);
	return s->err;
}

static int put_row(void *arg, struct kv_txn *t)
{
	struct ds_reg_node *nd = arg;
	uint8_t row[DS_REG_ROW_MAX];

	return ns_row_put(t, NS_T_DS, nd->nd_sv.sv_uuid, 16, row,
			  ds_reg_row_encode(&nd->nd_sv, &nd->nd_terms, row));
}

START_TEST(the_administrators_word_is_in_force_and_stored)
{
	struct ds_reg_node *nd = server(1, "rack=r1,speed=hdd");
	struct said s = {.w = {.dw_id = 1, .dw_has_weight = true, .dw_weight = 50}};
	struct ds_reg_terms dt;
	struct ds_reg_server sv;
	struct kv_slice val;
	struct kv_txn *t;

	ck_assert_int_eq(kv_run_sync(kv, put_row, nd), 0);
	ck_assert_int_eq(say(&s), 0);
	s.w.dw_has_weight = false;
	s.w.dw_has_labels = true;
	strcpy(s.w.dw_labels, "rack=r9,site=a");
	ck_assert_int_eq(say(&s), 0);
	strcpy(s.w.dw_labels, "site=");
	ck_assert_int_eq(say(&s), 0);
	ck_assert(ds_reg_terms(dsc, 1, &dt));
	ck_assert_uint_eq(dt.dt_weight, 50);
	ck_assert_str_eq(dt.dt_labels, "rack=r9,speed=hdd");
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_int_eq(ns_row_get(t, NS_T_DS, nd->nd_sv.sv_uuid, 16, &val), 0);
	ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){nd->nd_sv.sv_uuid, 16}, val, &sv, &dt),
			 0);
	kv_read_end(t);
	ck_assert_uint_eq(dt.dt_weight, 50);
	ck_assert_str_eq(dt.dt_set, "rack=r9");
	/* Too many, all together; and nobody. */
	strcpy(s.w.dw_labels, "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1");
	ck_assert_int_eq(say(&s), -E2BIG);
	ck_assert(ds_reg_terms(dsc, 1, &dt));
	ck_assert_str_eq(dt.dt_set, "rack=r9");
	s.w.dw_id = 2;
	ck_assert_int_eq(say(&s), -ENOENT);
}
END_TEST

/* ---- policies ---- */

START_TEST(groups_and_domains_are_read_and_shown)
{
	static const struct {
		const char *text, *normal;
	} good[] = {{"domain=rack", "stripes=1,unit=1M,mirrors=1,domain=rack"},
		    {"group1=rack=r2,mirrors=2,group0=rack=r1",
		     "stripes=1,unit=1M,mirrors=2,group0=rack=r1,group1=rack=r2"},
		    {"group=speed=nvme/ssd+site=a,stripes=4",
		     "stripes=4,unit=1M,mirrors=1,group=speed=nvme/ssd+site=a"},
		    {"group0=a=1,group=b=2,domain=c\n",
		     "stripes=1,unit=1M,mirrors=1,domain=c,group=b=2,group0=a=1"},
		    {"mirrors=12,group11=a=1,group2=a=2",
		     "stripes=1,unit=1M,mirrors=12,group2=a=2,group11=a=1"}};
	static const struct {
		const char *text, *told;
	} bad[] = {{"domain=", "domain"},
		   {"domain=a=b", "domain"},
		   {"domain=rack,domain=rack", "domain"},
		   {"domain=abcdefghijklmnopq", "domain"},
		   {"group=", "group"},
		   {"group=rack", "group"},
		   {"group=rack=", "group"},
		   {"group=rack=r1/", "group"},
		   {"group=rack=r1+", "group"},
		   {"group=+rack=r1", "group"},
		   {"group=rack=r1+rack=r2", "each key once"},
		   {"group=a=1,group=b=1", "once"},
		   {"mirrors=2,group1=a=1,group1=a=1", "group1"},
		   {"group1=a=1", "group1: mirrors=1"},
		   {"group44=a=1,mirrors=44", "unknown key"},
		   {"group01=a=1,mirrors=2", "unknown key"},
		   {"group-1=a=1", "unknown key"},
		   {"groups=a=1", "unknown key"},
		   {"group99999999999=a=1", "unknown key"}};
	char err[256], text[LO_POLICY_TEXT], longest[2048] = "group=a=1";
	uint8_t stored[LO_POLICY_MAX];
	struct lo_policy p, q;
	size_t n;

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		p = policy(good[i].text);
		lo_policy_format(&p, text);
		ck_assert_str_eq(text, good[i].normal);
		n = lo_policy_encode(&p, stored, sizeof(stored));
		ck_assert_uint_gt(n, 4);
		ck_assert_int_eq(lo_policy_decode((struct kv_slice){stored, n}, &q), 0);
		lo_policy_format(&q, text);
		ck_assert_str_eq(text, good[i].normal);
		ck_assert_uint_eq(lo_policy_encode(&p, stored, n - 1), 0);
		for (size_t k = 1; k < 6; k++)
			ck_assert_int_eq(lo_policy_decode((struct kv_slice){stored, k}, &q), -EIO);
	}
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err[0] = 0;
		ck_assert_msg(lo_policy_parse(bad[i].text, strlen(bad[i].text), &p, err,
					      sizeof(err)) == -EINVAL,
			      "%s is taken", bad[i].text);
		ck_assert_msg(strstr(err, bad[i].told), "%s: %s", bad[i].text, err);
	}
	/* As long as can be, and longer. */
	for (size_t k = strlen(longest); k < 255; k += 2)
		strcpy(longest + k, "/1");
	p = policy(longest);
	ck_assert_uint_eq(strlen(p.lp_groups), 255);
	ck_assert_uint_gt(lo_policy_encode(&p, stored, sizeof(stored)), 0);
	strcat(longest, "1");
	ck_assert_int_eq(lo_policy_parse(longest, strlen(longest), &p, err, sizeof(err)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err, "at most 255"));
}
END_TEST

START_TEST(a_policy_that_can_never_be_met_is_refused_with_what_is_lacking)
{
	static const struct {
		const char *text, *told;
	} bad[] = {
		{"mirrors=5", "only 4 data servers"},
		{"mirrors=3,domain=rack", "only 2 values of that label"},
		{"mirrors=2,domain=shelf", "mirror 0: none of the 4 data servers"},
		{"group=rack=r9", "mirror 0: none of the 4"},
		{"mirrors=2,group1=rack=r9", "mirror 1: none of the 4"},
		{"mirrors=3,group=rack=r1", "only 2 of the data servers are"},
		{"mirrors=2,domain=rack,group=rack=r1", "only 1 value of that label"},
		{"mirrors=3,group0=speed=nvme,group1=speed=nvme", "too few data servers are in"}};
	static const char *const good[] = {"mirrors=4",
					   "mirrors=2,domain=rack",
					   "mirrors=2,group=rack=r1",
					   "mirrors=2,group0=rack=r1,group1=rack=r2",
					   "group=rack=r2",
					   "mirrors=2,domain=rack,group1=speed=nvme",
					   "mirrors=4,group3=speed=nvme",
					   "domain=rack,stripes=44"};

	server(1, "rack=r1,speed=nvme");
	server(2, "rack=r1,speed=hdd");
	server(3, "rack=r2,speed=hdd");
	server(4, "rack=r2,speed=hdd")->nd_link = NULL; /* dead, and known */
	seats_said();
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct lo_policy p = policy(bad[i].text);
		char err[256] = "";

		ck_assert_msg(lo_policy_check(lo, &p, err, sizeof(err)) == -EINVAL, "%s is taken",
			      bad[i].text);
		ck_assert_msg(strstr(err, bad[i].told), "%s: %s", bad[i].text, err);
	}
	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct lo_policy p = policy(good[i]);
		char err[256] = "";

		ck_assert_msg(!lo_policy_check(lo, &p, err, sizeof(err)), "%s: %s", good[i], err);
	}
}
END_TEST

/* ---- what it adds up to ---- */

/* Nothing is random in whose turn it is: the count of a server's files is within 2 of its share. */
START_TEST(ten_thousand_files_lie_as_the_weights_say)
{
	struct lo_policy p = lo_policy_default;
	unsigned files[4] = {0};

	for (unsigned i = 1; i <= 3; i++)
		server(i, "")->nd_terms.dt_weight = DS_REG_WEIGHT_ONE << (i - 1);
	seats_said();
	for (unsigned n = 1; n <= 10000; n++) {
		struct lo_map m;

		place(&p, 1000 + n, &m);
		files[m.lm_obj[0].ob_ds]++;
		for (unsigned i = 1; i <= 3; i++)
			ck_assert_double_le(fabs(files[i] - n * (1 << (i - 1)) / 7.0), 2);
	}
}
END_TEST

/* The same with any weights, and with files of several policies at once. */
START_TEST(shares_hold_over_many_servers_and_policies)
{
	struct lo_policy all = lo_policy_default, near = policy("group=rack=r1"),
			 far = policy("group=rack=r2");
	unsigned files[33] = {0}, mixed[5] = {0};
	double total = 0;

	for (unsigned i = 1; i <= 32; i++)
		total += server(i, "")->nd_terms.dt_weight = (uint32_t)(hash_u64(i) % 1000 + 1);
	seats_said();
	for (unsigned n = 1; n <= 20000; n++) {
		struct lo_map m;

		place(&all, n, &m);
		files[m.lm_obj[0].ob_ds]++;
	}
	for (unsigned i = 1; i <= 32; i++)
		ck_assert_double_le(
			fabs(files[i] - 20000 * dsc->d_node[i]->nd_terms.dt_weight / total), 3);
	for (unsigned i = 5; i <= 32; i++)
		seat_set(i, nd_terms.dt_weight, 0);
	memset(lo->l_credit, 0, sizeof(lo->l_credit));
	for (unsigned i = 1; i <= 4; i++) {
		label(i, i <= 2 ? "rack=r1" : "rack=r2");
		seat_set(i, nd_terms.dt_weight, 100 * (i & 1 ? 1 : 3));
	}
	for (unsigned n = 0; n < 4000; n++) {
		struct lo_map m;

		place(n % 4 == 0 ? &near : n % 4 == 1 ? &far : &all, n, &m);
		mixed[m.lm_obj[0].ob_ds]++;
	}
	for (unsigned i = 1; i <= 4; i++)
		ck_assert_double_le(fabs(mixed[i] - (i & 1 ? 500.0 : 1500.0)), 8);
}
END_TEST

/* The first copy goes round; the second is drawn by weight among the others: binomial, within 4
 * sigma. */
START_TEST(second_copies_are_drawn_by_weight)
{
	static const uint32_t weight[5] = {0, 100, 100, 200, 400};
	struct lo_policy p = policy("mirrors=2");
	unsigned seen[5][5] = {{0}}, first[5] = {0};

	for (unsigned i = 1; i <= 4; i++)
		server(i, "")->nd_terms.dt_weight = weight[i];
	seats_said();
	for (unsigned n = 1; n <= 10000; n++) {
		struct lo_map m;

		place(&p, n, &m);
		first[m.lm_obj[0].ob_ds]++;
		seen[m.lm_obj[0].ob_ds][m.lm_obj[1].ob_ds]++;
	}
	for (unsigned a = 1; a <= 4; a++)
		for (unsigned b = 1; b <= 4; b++) {
			double q = (double)weight[b] / (800 - weight[a]), mean = first[a] * q;

			if (a == b)
				ck_assert_uint_eq(seen[a][b], 0);
			else
				ck_assert_double_le(fabs(seen[a][b] - mean),
						    4 * sqrt(mean * (1 - q)));
		}
}
END_TEST

static unsigned share(unsigned id, unsigned files)
{
	static uint64_t ino = 1;
	unsigned n = 0;

	memset(lo->l_credit, 0, sizeof(lo->l_credit));
	for (unsigned i = 0; i < files; i++) {
		struct lo_map m;

		place(&lo_policy_default, ino++, &m);
		n += m.lm_obj[0].ob_ds == id;
	}
	return n;
}

START_TEST(free_space_weight_and_load_make_the_share)
{
	struct ds_reg_node *a = server(1, ""), *b = server(2, "");

	ck_assert_uint_eq(share(1, 100), 50);
	a->nd_sv.sv_available = 3 * b->nd_sv.sv_available / 2;
	seats_said();
	ck_assert_uint_eq(share(1, 100), 60);
	a->nd_terms.dt_weight = 200;
	seats_said();
	ck_assert_uint_eq(share(1, 100), 75);
	a->nd_terms.dt_weight = 0;
	seats_said();
	ck_assert_uint_eq(share(1, 100), 0);
	a->nd_terms.dt_weight = 100;
	seats_said();
	a->nd_sv.sv_available = b->nd_sv.sv_available;
	seats_said();
	/* A few requests are no load; many more than the others have are, to a quarter of the
	 * share. */
	a->nd_terms.dt_load = 100;
	seats_said();
	ck_assert_uint_ge(share(1, 100), 48);
	a->nd_terms.dt_load = 3200; /* (8 + 16) / (8 + 32) */
	seats_said();
	ck_assert_uint_eq(share(1, 80), 30);
	a->nd_terms.dt_load = 1000000;
	seats_said();
	b->nd_terms.dt_load = 0;
	seats_said();
	ck_assert_uint_ge(share(1, 300), 99); /* against a mean that it makes by itself: a half */
	for (unsigned i = 3; i <= 22; i++)
		server(i, "");
	ck_assert_uint_eq(share(1, 850), 10); /* 1/4 to 21 */
}
END_TEST

/* ---- who takes part ---- */

START_TEST(full_servers_take_what_no_other_can)
{
	struct lo_policy one = lo_policy_default, two = policy("mirrors=2,stripes=4"),
			 wide = policy("stripes=8");
	struct lo_map m;

	server(1, "");
	server(2, "")->nd_sv.sv_available = GIB; /* less than a hundredth */
	seats_said();
	server(3, "")->nd_sv.sv_available = GIB;
	seats_said();
	for (unsigned i = 0; i < 50; i++) {
		place(&one, i, &m);
		ck_assert_uint_eq(m.lm_obj[0].ob_ds, 1);
	}
	place(&wide, 1, &m);
	for (unsigned k = 0; k < 8; k++)
		ck_assert_uint_eq(m.lm_obj[k].ob_ds, 1);
	place(&two, 2, &m);
	for (unsigned k = 0; k < 4; k++)
		ck_assert_msg((m.lm_obj[k].ob_ds == 1) + (m.lm_obj[k + 4].ob_ds == 1) == 1,
			      "stripe %u", k);
	seat_set(1, nd_terms.dt_weight, 0);
	place(&one, 3, &m);
	ck_assert_uint_ne(m.lm_obj[0].ob_ds, 1);
}
END_TEST

START_TEST(who_was_heard_a_moment_ago_is_waited_for_and_others_are_not)
{
	struct lo_policy p = policy("mirrors=2,domain=rack");
	struct ds_reg_node *b;
	struct lo_map m;

	server(1, "rack=r1");
	server(3, "rack=r1");
	ck_assert_int_eq(lo_place(lo, &p, 1, PATIENCE_MS, &m), -ENOSPC);
	b = server(2, "rack=r2");
	place(&p, 1, &m);
	b->nd_joined = false;
	seats_said();
	ck_assert_int_eq(lo_place(lo, &p, 1, PATIENCE_MS, &m), -EAGAIN);
	b->nd_terms.dt_weight = 0; /* the administrator's word is not waited out */
	seats_said();
	ck_assert_int_eq(lo_place(lo, &p, 1, PATIENCE_MS, &m), -ENOSPC);
	b->nd_terms.dt_weight = 100;
	seats_said();
	b->nd_heard_ms -= PATIENCE_MS + 1000;
	ck_assert_int_eq(lo_place(lo, &p, 1, PATIENCE_MS, &m), -ENOSPC);
	/* Right after a start those may come that were never heard of. */
	dsc->d_start_ms = clock_mono_ms();
	ck_assert_int_eq(lo_place(lo, &p, 1, PATIENCE_MS, &m), -EAGAIN);
}
END_TEST

/* ---- domains and groups ---- */

/* Copies apart, groups kept, every server with as many objects as another or one more. */
static void check_map(const struct lo_policy *p, const struct lo_map *m, unsigned nracks)
{
	for (unsigned s = 0; s < p->lp_stripes; s++) {
		unsigned racks = 0;

		for (unsigned k = 0; k < p->lp_mirrors; k++) {
			unsigned r =
				(unsigned)(rack_of(m->lm_obj[k * p->lp_stripes + s].ob_ds) - 'a');

			ck_assert_uint_lt(r, nracks);
			ck_assert_msg(!(racks >> r & 1), "stripe %u has two copies in rack %c", s,
				      'a' + (int)r);
			racks |= 1u << r;
		}
	}
}

START_TEST(copies_of_a_stripe_never_share_a_domain)
{
	unsigned id = 1;

	/* Racks of 1, 2, 3 and 4 servers; and one that says nothing of its rack, and takes
	 * nothing. */
	for (unsigned r = 0; r < 4; r++)
		for (unsigned k = 0; k <= r; k++) {
			char labels[] = "rack=a";

			labels[5] = (char)('a' + (int)r);
			server(id++, labels);
		}
	server(id, "speed=nvme");
	for (unsigned mirrors = 1; mirrors <= 4; mirrors++)
		for (unsigned stripes = 1; stripes <= LO_MAX_OBJECTS / mirrors; stripes++) {
			struct lo_policy p = policy("domain=rack");

			p.lp_mirrors = (uint8_t)mirrors;
			p.lp_stripes = (uint8_t)stripes;
			if (!lo_shape_ok(stripes, mirrors))
				continue;
			for (unsigned i = 0; i < 20; i++) {
				struct lo_map m;

				place(&p, i * 1000 + stripes, &m);
				check_map(&p, &m, 4);
				for (unsigned k = 0; k < mirrors * stripes; k++)
					ck_assert_uint_ne(m.lm_obj[k].ob_ds, id);
			}
		}
}
END_TEST

/* Whatever is drawn first, a server is left for the copy that can only be there. */
START_TEST(each_mirror_is_in_its_own_group)
{
	struct lo_policy racks = policy("mirrors=2,stripes=4,group0=rack=a,group1=rack=b"),
			 tight = policy("mirrors=3,stripes=2,domain=rack,group2=speed=nvme");
	struct lo_policy chain = policy("mirrors=3,group0=rack=a/b,group1=rack=b/c,group2=rack=c");
	struct lo_map m;

	server(1, "rack=a,speed=nvme");
	server(2, "rack=a,speed=hdd");
	server(3, "rack=b,speed=hdd");
	server(4, "rack=b,speed=hdd");
	server(5, "rack=c,speed=hdd");
	for (unsigned i = 0; i < 200; i++) {
		place(&racks, i, &m);
		for (unsigned k = 0; k < 8; k++)
			ck_assert_int_eq(rack_of(m.lm_obj[k].ob_ds), k < 4 ? 'a' : 'b');
		place(&tight, i, &m);
		check_map(&tight, &m, 3);
		for (unsigned s = 0; s < 2; s++)
			ck_assert_uint_eq(m.lm_obj[4 + s].ob_ds, 1);
		place(&chain, i, &m);
		ck_assert_int_eq(rack_of(m.lm_obj[2].ob_ds), 'c');
		ck_assert_int_eq(rack_of(m.lm_obj[1].ob_ds), 'b');
		ck_assert_uint_ne(m.lm_obj[0].ob_ds, m.lm_obj[1].ob_ds);
	}
}
END_TEST

static unsigned first_of_all(void *arg, const struct lo_candidate *seat, const uint16_t *pick,
			     unsigned n)
{
	(void)seat;
	(void)pick;
	ck_assert_uint_gt(n, 0);
	return *(const uint64_t *)arg % n;
}

/* Over every shape and number of servers: as even as can be, with nothing asked but servers
 * apart. */
START_TEST(objects_are_spread_evenly)
{
	for (unsigned n = 1; n <= 16; n++)
		for (unsigned mirrors = 1; mirrors <= n && mirrors <= 8; mirrors++)
			for (unsigned stripes = 1; stripes * mirrors <= LO_MAX_OBJECTS; stripes++)
				for (uint64_t seed = 0; seed < 4; seed++) {
					struct lo_candidate seat[16];
					struct lo_plan pl = {.pl_seat = seat,
							     .pl_n = n,
							     .pl_stripes = stripes,
							     .pl_mirrors = mirrors,
							     .pl_seed = hash_u64(seed),
							     .pl_first = first_of_all,
							     .pl_arg = &seed};
					unsigned held[16] = {0}, least = 99, most = 0;

					for (unsigned i = 0; i < n; i++)
						seat[i] = (struct lo_candidate){i + 1, (uint16_t)i,
										false, UINT64_MAX,
										1 + i};
					ck_assert_int_eq(lo_plan(&pl), 0);
					for (unsigned k = 0; k < stripes * mirrors; k++) {
						held[pl.pl_pick[k]]++;
						for (unsigned j = k % stripes; j < k; j += stripes)
							ck_assert_uint_ne(pl.pl_pick[j],
									  pl.pl_pick[k]);
					}
					for (unsigned i = 0; i < n; i++) {
						least = held[i] < least ? held[i] : least;
						most = held[i] > most ? held[i] : most;
					}
					ck_assert_msg(most - least <= 1,
						      "%u servers, %u x %u: from %u to %u", n,
						      stripes, mirrors, least, most);
				}
}
END_TEST

/* Random groups: a plan is found exactly where a matching of mirrors to domains exists, which is
 * looked for by brute force. */
static bool brute(const struct lo_candidate *seat, unsigned n, unsigned mirrors, unsigned m,
		  unsigned used)
{
	if (m == mirrors)
		return true;
	for (unsigned i = 0; i < n; i++)
		if ((seat[i].st_mirrors >> m & 1) && !(used >> seat[i].st_domain & 1) &&
		    brute(seat, n, mirrors, m + 1, used | 1u << seat[i].st_domain))
			return true;
	return false;
}

START_TEST(what_can_be_met_is_met)
{
	unsigned met = 0, not_met = 0;

	for (uint64_t round = 0; round < 4000; round++) {
		uint64_t r = hash_u64(round + 77), seed = r;
		unsigned n = 1 + r % 9, mirrors = 1 + (r >> 8) % 5,
			 stripes = 1 + (r >> 16) % (LO_MAX_OBJECTS / mirrors);
		struct lo_candidate seat[9];
		struct lo_plan pl = {.pl_seat = seat,
				     .pl_n = n,
				     .pl_stripes = stripes,
				     .pl_mirrors = mirrors,
				     .pl_seed = r,
				     .pl_first = first_of_all,
				     .pl_arg = &seed};
		bool can;

		for (unsigned i = 0; i < n; i++) {
			uint64_t q = hash_u64(r + i);

			seat[i] = (struct lo_candidate){i + 1, (uint16_t)(q % 7), q >> 30 & 1,
							(q >> 8 & q >> 16) & 31, 1};
		}
		can = brute(seat, n, mirrors, 0, 0);
		ck_assert_int_eq(lo_plan_can(seat, n, mirrors), can);
		ck_assert_int_eq(lo_plan(&pl), can ? 0 : -EAGAIN);
		met += can;
		not_met += !can;
		for (unsigned s = 0; can && s < stripes; s++) {
			unsigned used = 0;

			for (unsigned m = 0; m < mirrors; m++) {
				const struct lo_candidate *st = &seat[pl.pl_pick[m * stripes + s]];

				ck_assert(st->st_mirrors >> m & 1);
				ck_assert(!(used >> st->st_domain & 1));
				used |= 1u << st->st_domain;
			}
		}
	}
	ck_assert_uint_gt(met, 500);
	ck_assert_uint_gt(not_met, 500);
}
END_TEST

/* The largest that there can be, so that the time it takes is known: a create waits for it. */
START_TEST(a_thousand_servers_are_no_burden)
{
	struct lo_policy one = lo_policy_default,
			 most = policy("mirrors=4,stripes=11,domain=rack,group3=speed=nvme");
	struct timespec a, b;
	struct lo_map m;
	char labels[64];

	for (unsigned i = 1; i <= DS_REG_MAX; i++) {
		snprintf(labels, sizeof(labels), "rack=r%u,site=b,speed=%s", i / 16,
			 i % 10 ? "hdd" : "nvme");
		server(i, labels);
	}
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (unsigned i = 0; i < 1000; i++)
		place(&one, i, &m);
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("1024 servers: %.1f us for a plain file\n",
	       ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 1e6);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (unsigned i = 0; i < 200; i++)
		place(&most, i, &m);
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("1024 servers: %.1f us for 11 stripes in 4 mirrors with groups and domains\n",
	       ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 200e3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("place");
	TCase *plain = tcase_create("plain"), *live = tcase_create("servers");

	tcase_set_timeout(plain, 60);
	tcase_set_timeout(live, 60);
	tcase_add_test(plain, labels_have_a_normal_form);
	tcase_add_test(plain, labels_of_every_length_fit);
	tcase_add_test(plain, rows_keep_weights_and_labels_and_old_rows_are_read);
	tcase_add_test(plain, rows_of_counted_joins_have_a_version_of_their_own);
	tcase_add_test(plain, groups_and_domains_are_read_and_shown);
	tcase_add_test(plain, objects_are_spread_evenly);
	tcase_add_test(plain, what_can_be_met_is_met);
	tcase_add_checked_fixture(live, setup, teardown);
	tcase_add_test(live, the_administrators_word_is_in_force_and_stored);
	tcase_add_test(live, a_policy_that_can_never_be_met_is_refused_with_what_is_lacking);
	tcase_add_test(live, ten_thousand_files_lie_as_the_weights_say);
	tcase_add_test(live, shares_hold_over_many_servers_and_policies);
	tcase_add_test(live, second_copies_are_drawn_by_weight);
	tcase_add_test(live, free_space_weight_and_load_make_the_share);
	tcase_add_test(live, full_servers_take_what_no_other_can);
	tcase_add_test(live, who_was_heard_a_moment_ago_is_waited_for_and_others_are_not);
	tcase_add_test(live, copies_of_a_stripe_never_share_a_domain);
	tcase_add_test(live, each_mirror_is_in_its_own_group);
	tcase_add_test(live, a_thousand_servers_are_no_burden);
	suite_add_tcase(s, plain);
	suite_add_tcase(s, live);
	return unit_run(s);
}
