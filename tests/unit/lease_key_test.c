/* SPDX-License-Identifier: Apache-2.0 */
/* lease_key_test.c - the key in etcd that says who may answer. The etcd is a fake one here: it
 * loses answers, makes what it was asked late, or answers nothing. */
#include "mds/lease_key.h"
#include "base/clock.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the fake etcd, in place of etcd.c ---- */

enum { ROWS = 2, LATE = 4 };
enum fault {
	FINE,
	NO_ANSWER,  /* it is made, and the answer is lost */
	NOT_MADE,   /* the question is lost */
	LATE_MADE,  /* it is made before the next question but one, and the answer is lost */
	TWICE,	    /* the question comes twice, and the second answer is what is heard */
	OTHER_ETCD, /* another etcd answers */
};

static bool is_heard(int fault)
{
	return fault == FINE || fault == TWICE || fault == OTHER_ETCD;
}

struct swap {
	struct etcd_row s_rows[ROWS];
	unsigned s_n;
	char s_value[ETCD_TEXT];
};

static struct {
	pthread_mutex_t f_lock;
	struct etcd_row f_row[ROWS];
	uint64_t f_revision;
	struct swap f_late[LATE];
	unsigned f_nlate;
} fake = {.f_lock = PTHREAD_MUTEX_INITIALIZER};

struct etcd {
	_Atomic int e_fault;
	_Atomic unsigned e_asked;
};
static _Atomic(struct etcd *) opened;

int etcd_open(struct etcd **out, const struct etcd_opts *o, char *err, size_t errlen)
{
	(void)o;
	(void)err;
	(void)errlen;
	*out = calloc(1, sizeof(**out));
	atomic_store(&opened, *out);
	return 0;
}

void etcd_close(struct etcd *e)
{
	free(e);
}

const char *etcd_why(const struct etcd *e)
{
	(void)e;
	return "no answer";
}

static bool made(const struct swap *s)
{
	struct etcd_row *r = NULL;

	for (unsigned i = 0; i < s->s_n; i++) {
		const struct etcd_row *w = &s->s_rows[i];

		r = strcmp(w->er_key, "weft/lease/id") ? &fake.f_row[1] : &fake.f_row[0];
		if (r->er_mod != w->er_mod || (w->er_mod && strcmp(r->er_value, w->er_value)))
			return false;
	}
	r->er_mod = ++fake.f_revision;
	memcpy(r->er_key, s->s_rows[s->s_n - 1].er_key, ETCD_TEXT);
	memcpy(r->er_value, s->s_value, ETCD_TEXT);
	return true;
}

static int rows_of(int fault, struct etcd_answer *out)
{
	memcpy(out->ea_row, fake.f_row, sizeof(out->ea_row));
	out->ea_revision = fake.f_revision + 1;
	if (fault != OTHER_ETCD)
		return 0;
	out->ea_row[0].er_mod = 1;
	snprintf(out->ea_row[0].er_value, ETCD_TEXT, "another");
	out->ea_row[1] = (struct etcd_row){0};
	return 0;
}

static void make_late(void)
{
	for (unsigned i = 0; i < fake.f_nlate; i++)
		made(&fake.f_late[i]);
	fake.f_nlate = 0;
}

int etcd_rows(struct etcd *e, const char *key0, const char *key1, uint64_t until_ns,
	      struct etcd_answer *out)
{
	int fault = atomic_load(&e->e_fault);

	(void)until_ns;
	*out = (struct etcd_answer){0};
	atomic_fetch_add(&e->e_asked, 1);
	if (!is_heard(fault))
		return -EAGAIN;
	pthread_mutex_lock(&fake.f_lock);
	rows_of(fault, out);
	pthread_mutex_unlock(&fake.f_lock);
	memcpy(out->ea_row[0].er_key, key0, strlen(key0) + 1);
	memcpy(out->ea_row[1].er_key, key1, strlen(key1) + 1);
	return 0;
}

int etcd_swap(struct etcd *e, const struct etcd_row *rows, unsigned n, const char *key0,
	      const char *key1, const char *value, uint64_t until_ns, struct etcd_answer *out)
{
	int fault = atomic_load(&e->e_fault);
	struct swap s = {.s_n = n};

	(void)key0;
	(void)key1;
	(void)until_ns;
	memcpy(s.s_rows, rows, n * sizeof(*rows));
	snprintf(s.s_value, ETCD_TEXT, "%s", value);
	*out = (struct etcd_answer){0};
	pthread_mutex_lock(&fake.f_lock);
	if (fault == LATE_MADE && fake.f_nlate < LATE) {
		fake.f_late[fake.f_nlate++] = s;
	} else if (fault == FINE || fault == TWICE || fault == NO_ANSWER) {
		make_late();
		if (fault == TWICE)
			made(&s);
		out->ea_done = made(&s);
		out->ea_revision = fake.f_revision;
	}
	if (!out->ea_done)
		rows_of(fault, out);
	pthread_mutex_unlock(&fake.f_lock);
	atomic_fetch_add(&e->e_asked, 1);
	return is_heard(fault) ? 0 : -EAGAIN;
}

/* ---- a process ---- */

struct process {
	struct lease_key *p_key;
	struct etcd *p_etcd;
	_Atomic uint64_t p_end;
	_Atomic bool p_lost;
	uint32_t p_its_ms; /* what the row says */
};

static const uint8_t ident[16] = {1, 2, 3};

static void held(void *arg, uint64_t end_ns)
{
	struct process *p = arg;

	if (end_ns > atomic_load(&p->p_end))
		atomic_store(&p->p_end, end_ns);
}

static void lost(void *arg, const char *why)
{
	struct process *p = arg;

	(void)why;
	atomic_store(&p->p_end, 0);
	atomic_store(&p->p_lost, true);
}

static void start(struct process *p, uint32_t lease_ms)
{
	const struct lease_key_opts o = {.lk_owner = "host:/store",
					 .lk_lease_ms = lease_ms,
					 .lk_held = held,
					 .lk_lost = lost,
					 .lk_arg = p};
	char err[128];

	*p = (struct process){0};
	ck_assert_int_eq(lease_key_open(&p->p_key, &o, err, sizeof(err)), 0);
	p->p_etcd = atomic_load(&opened);
}

static void end(struct process *p)
{
	atomic_store(&p->p_etcd->e_fault, FINE);
	lease_key_give_up(p->p_key);
	lease_key_close(p->p_key);
}

static bool live(struct process *p)
{
	return clock_boot_ns() < atomic_load(&p->p_end);
}

static int look(struct process *p)
{
	return lease_key_look(p->p_key, 1, ident, p->p_its_ms);
}

/* Looks until it is due, or so many ms are over. */
static bool becomes_due(struct process *p, uint64_t ms)
{
	uint64_t until = clock_boot_ns() + ms * 1000000;

	while (look(p) || !lease_key_due(p->p_key)) {
		if (clock_boot_ns() > until)
			return false;
		usleep(5000);
	}
	return true;
}

static void holds(struct process *p, uint32_t lease_ms)
{
	start(p, lease_ms);
	ck_assert(becomes_due(p, 60000));
	ck_assert_int_eq(lease_key_take(p->p_key), 0);
	ck_assert(!atomic_load(&p->p_end));
	lease_key_serve(p->p_key);
	ck_assert(atomic_load(&p->p_end));
}

static void wait_for(bool (*fn)(struct process *), struct process *p)
{
	uint64_t until = clock_boot_ns() + 60 * 1000000000ull;

	while (!fn(p)) {
		ck_assert_uint_lt(clock_boot_ns(), until);
		usleep(2000);
	}
}

static bool is_over(struct process *p)
{
	return !live(p);
}

static bool is_lost(struct process *p)
{
	return atomic_load(&p->p_lost);
}

static void begin(void)
{
	memset(fake.f_row, 0, sizeof(fake.f_row));
	fake.f_revision = 1;
	fake.f_nlate = 0;
}

/* ---- tests ---- */

START_TEST(an_absent_key_is_waited_for_and_a_free_one_is_not)
{
	struct process a, b;
	uint64_t from = clock_boot_ns();

	holds(&a, 1000);
	ck_assert_uint_ge(clock_boot_ns() - from, 1000000000);
	end(&a);
	ck_assert_str_eq(fake.f_row[1].er_value, "1 free");
	start(&b, 60000);
	ck_assert_int_eq(look(&b), 0);
	ck_assert(lease_key_due(b.p_key));
	end(&b);
}
END_TEST

START_TEST(the_lease_lives_while_etcd_answers_and_counts_from_the_question)
{
	struct lease_key_state st;
	struct process a;

	holds(&a, 1000);
	for (int i = 0; i < 20; i++) {
		lease_key_state(a.p_key, &st);
		ck_assert_uint_le(st.ls_end_ns, clock_boot_ns() + 750000000);
		usleep(100000);
	}
	lease_key_state(a.p_key, &st);
	ck_assert_uint_gt(st.ls_asked, 5);
	atomic_store(&a.p_etcd->e_fault, NOT_MADE);
	wait_for(is_over, &a);
	ck_assert(!atomic_load(&a.p_lost));
	atomic_store(&a.p_etcd->e_fault, FINE);
	while (!live(&a))
		usleep(2000);
	end(&a);
}
END_TEST

static bool has_asked(struct process *p)
{
	return atomic_load(&p->p_etcd->e_asked) >= 3;
}

/* The process that took the key is told that it changed: it is its own value. */
START_TEST(a_taking_that_was_sent_twice_is_one)
{
	struct process a;

	start(&a, 1000);
	ck_assert(becomes_due(&a, 60000));
	atomic_store(&a.p_etcd->e_fault, TWICE);
	ck_assert_int_eq(lease_key_take(a.p_key), 0);
	lease_key_serve(a.p_key);
	ck_assert(atomic_load(&a.p_end));
	atomic_store(&a.p_etcd->e_asked, 0);
	wait_for(has_asked, &a);
	ck_assert(!atomic_load(&a.p_lost));
	end(&a);
	ck_assert_str_eq(fake.f_row[1].er_value, "1 free");
}
END_TEST

/* In each way in which an answer is lost, the holder stays the holder. */
START_TEST(an_answer_that_was_lost_deposes_nobody)
{
	struct process a;

	holds(&a, 1000);
	for (int fault = NO_ANSWER; fault <= OTHER_ETCD; fault++) {
		atomic_store(&a.p_etcd->e_asked, 0);
		atomic_store(&a.p_etcd->e_fault, fault);
		wait_for(has_asked, &a);
		atomic_store(&a.p_etcd->e_fault, FINE);
		atomic_store(&a.p_etcd->e_asked, 0);
		wait_for(has_asked, &a);
		ck_assert(!atomic_load(&a.p_lost));
	}
	end(&a);
	ck_assert_str_eq(fake.f_row[1].er_value, "1 free");
}
END_TEST

static void rewrite(const char *value)
{
	pthread_mutex_lock(&fake.f_lock);
	fake.f_row[1].er_mod = value ? ++fake.f_revision : 0;
	snprintf(fake.f_row[1].er_value, ETCD_TEXT, "%s", value ? value : "");
	pthread_mutex_unlock(&fake.f_lock);
}

START_TEST(a_key_that_another_wrote_or_removed_deposes)
{
	char value[ETCD_TEXT];
	struct process a;

	holds(&a, 1000);
	rewrite(NULL);
	wait_for(is_lost, &a);
	ck_assert(!live(&a));
	end(&a);
	begin();
	holds(&a, 1000);
	rewrite("1 0000000000000000 1 another");
	wait_for(is_lost, &a);
	end(&a);
	begin();
	/* Its own value of before, which it has moved on from. */
	holds(&a, 1000);
	atomic_store(&a.p_etcd->e_asked, 0);
	wait_for(has_asked, &a);
	pthread_mutex_lock(&fake.f_lock);
	memcpy(value, fake.f_row[1].er_value, sizeof(value));
	pthread_mutex_unlock(&fake.f_lock);
	rewrite(value);
	wait_for(is_lost, &a);
	end(&a);
}
END_TEST

START_TEST(a_key_that_changes_is_not_due)
{
	struct process a, b;

	holds(&a, 2000);
	start(&b, 2000);
	ck_assert(!becomes_due(&b, 4000));
	/* Another process's look that is old takes nothing. */
	ck_assert_int_eq(lease_key_take(b.p_key), -EAGAIN);
	ck_assert(!atomic_load(&a.p_lost));
	end(&a);
	ck_assert(becomes_due(&b, 60000));
	end(&b);
}
END_TEST

/* A process with a shorter lease than the holder's waits for that one: the key says it, and where
 * the key is gone, the row does. */
START_TEST(the_longer_lease_is_waited_for)
{
	struct process a, b;
	uint64_t from;

	holds(&a, 4000);
	atomic_store(&a.p_etcd->e_fault, NOT_MADE);
	start(&b, 1000);
	ck_assert(becomes_due(&b, 60000));
	ck_assert(!live(&a));
	ck_assert_int_eq(lease_key_take(b.p_key), 0);
	end(&b);
	end(&a);
	begin();
	start(&b, 1000);
	b.p_its_ms = 3000;
	from = clock_boot_ns();
	while (clock_boot_ns() - from < 2000000000) {
		look(&b);
		ck_assert_int_eq(lease_key_take(b.p_key), -EAGAIN);
		usleep(5000);
	}
	ck_assert(!fake.f_row[1].er_mod);
	ck_assert(becomes_due(&b, 60000));
	ck_assert_uint_ge(clock_boot_ns() - from, 3000000000);
	end(&b);
}
END_TEST

/* Looks that were not quick, or had a gap, say nothing. */
START_TEST(a_gap_between_looks_begins_anew)
{
	struct process b;

	start(&b, 1000);
	for (int i = 0; i < 6; i++) {
		ck_assert_int_eq(look(&b), 0);
		ck_assert(!lease_key_due(b.p_key));
		usleep(300000);
	}
	ck_assert(becomes_due(&b, 60000));
	end(&b);
}
END_TEST

/* ---- two processes, and all faults ---- */

static _Atomic bool over;
static struct process pair[2];

/* What a process does that is deposed: it ends, and another begins. Who asks whether two leases
 * live must not see a process of which the end was set meanwhile: pair's ends are never freed. */
static void *lives(void *arg)
{
	struct process *p = arg;
	unsigned *taken = malloc(sizeof(*taken));

	*taken = 0;
	start(p, 400);
	while (!atomic_load(&over)) {
		if (!becomes_due(p, 500) || lease_key_take(p->p_key))
			continue;
		(*taken)++;
		lease_key_serve(p->p_key);
		while (!atomic_load(&over) && !atomic_load(&p->p_lost))
			usleep(1000);
		lease_key_give_up(p->p_key);
		atomic_store(&p->p_lost, false);
	}
	return taken;
}

START_TEST(two_leases_never_live)
{
	pthread_t t[2];
	unsigned n = 0, r = 1;
	uint64_t until = clock_boot_ns() + 15000000000ull, change = 0;

	atomic_store(&over, false);
	for (int i = 0; i < 2; i++) {
		pthread_create(&t[i], NULL, lives, &pair[i]);
		while (!*(struct lease_key *volatile *)&pair[i].p_key)
			usleep(1000);
	}
	while (clock_boot_ns() < until) {
		uint64_t end0 = atomic_load(&pair[0].p_end), end1 = atomic_load(&pair[1].p_end);
		uint64_t now = clock_boot_ns();

		/* Both were set before the clock was read. */
		ck_assert(now >= end0 || now >= end1);
		if (now > change) {
			r = r * 1103515245 + 12345;
			change = now + 200000000 + (r >> 8) % 800000000;
			atomic_store(&pair[r >> 16 & 1].p_etcd->e_fault,
				     r >> 20 & 1 ? (int)(r >> 24) % (OTHER_ETCD + 1) : FINE);
		}
		usleep(500);
	}
	atomic_store(&over, true);
	n = 0;
	for (int i = 0; i < 2; i++) {
		void *taken;

		atomic_store(&pair[i].p_etcd->e_fault, FINE);
		pthread_join(t[i], &taken);
		n += *(unsigned *)taken;
		free(taken);
		end(&pair[i]);
	}
	printf("# %u takings\n", n);
}
END_TEST

/* ---- what etcd says ---- */

#define K0	     "weft/lease/id"
#define K1	     "weft/lease/1/00"
#define ANSWER(rest) "{\"header\":{\"revision\":\"12\"}," rest "}"
#define ROW(key, mod, value)                                                                       \
	"{\"response_range\":{\"kvs\":[{\"key\":\"" key "\",\"mod_revision\":" mod                 \
	",\"value\":\"" value "\"}]}}"
#define NONE "{\"response_range\":{}}"
#define B0   "d2VmdC9sZWFzZS9pZA=="
#define B1   "d2VmdC9sZWFzZS8xLzAw"

#define OLD_TOKEN "{\"code\":3,\"message\":\"etcdserver: revision of auth store is old\"}"

static int parse(const char *text, struct etcd_answer *a)
{
	return etcd_parse(text, strlen(text), K0, K1, a);
}

START_TEST(answers_are_understood)
{
	struct etcd_answer a;
	char token[ETCD_TOKEN], why[ETCD_TEXT];

	ck_assert_int_eq(
		parse(ANSWER("\"succeeded\":true,\"responses\":[{\"response_put\":{}}]"), &a), 0);
	ck_assert(a.ea_done && a.ea_revision == 12);
	ck_assert_int_eq(parse(ANSWER("\"responses\":[" ROW(B0, "\"7\"", "YQ==") "," NONE "]"), &a),
			 0);
	ck_assert(!a.ea_done && a.ea_row[0].er_mod == 7 && !a.ea_row[1].er_mod);
	ck_assert_str_eq(a.ea_row[0].er_value, "a");
	/* Bytes that are not printable do not equal what this program writes. */
	ck_assert_int_eq(parse(ANSWER("\"responses\":[" NONE "," ROW(B1, "\"9\"", "AGE=") "]"), &a),
			 0);
	ck_assert_str_eq(a.ea_row[1].er_value, "?a");
	ck_assert_int_eq(etcd_parse_token("{\"token\":\"a.1\"}", 15, token), 0);
	ck_assert_str_eq(token, "a.1");
	ck_assert(etcd_parse_error("{\"message\":\"x\",\"code\":16}", 25, why));
	ck_assert_str_eq(why, "x");
	ck_assert(etcd_parse_error(OLD_TOKEN, strlen(OLD_TOKEN), why));
	ck_assert(!etcd_parse_error("no\nmore", 7, why));
	ck_assert_str_eq(why, "no");
}
END_TEST

START_TEST(a_value_says_how_long_the_lease_is_or_nothing)
{
	static const struct {
		const char *value;
		uint32_t ms;
	} v[] = {{"1 0123456789abcdef 17 1500 node1", 1500},
		 {"1 a 1 999999999 ", 999999999},
		 {"1 a 1 0 node1", 0},
		 /* the lease is of another length, or of none */
		 {"1 a 1 9999999999 node1", 0},
		 {"1 a 1 1500", 0},
		 {"1 a 1 1500x node1", 0},
		 {"1 a 1 -1500 node1", 0},
		 {"1 a 1  1500 node1", 0},
		 {"1 a 1 node1 1500 ", 0},
		 {"1 free", 0},
		 {"1 g 1 1500 node1", 0},
		 {"1  1 1500 node1", 0},
		 {"2 a 1 1500 node1", 0},
		 {"1", 0},
		 {"", 0}};

	for (size_t i = 0; i < sizeof(v) / sizeof(*v); i++)
		ck_assert_msg(lease_key_ms(v[i].value) == v[i].ms, "%s", v[i].value);
}
END_TEST

START_TEST(answers_that_are_wrong_are_refused)
{
	static const char *const wrong[] = {
		"",
		"[]",
		"{}",
		"null",
		ANSWER("\"responses\":[]"),
		ANSWER("\"succeeded\":true"),
		"{\"responses\":[" NONE "," NONE "]}",
		"{\"header\":{\"revision\":\"0\"},\"responses\":[" NONE "," NONE "]}",
		"{\"header\":{\"revision\":\"-1\"},\"responses\":[" NONE "," NONE "]}",
		"{\"header\":{\"revision\":12},\"responses\":[" NONE "," NONE "]}",
		ANSWER("\"succeeded\":1,\"responses\":[" NONE "," NONE "]"),
		ANSWER("\"responses\":[{\"response_put\":{}}]"),
		ANSWER("\"responses\":[" NONE "]"),
		ANSWER("\"responses\":[" NONE ",1]"),
		/* The keys are exchanged; there is no revision; it is no base64. */
		ANSWER("\"responses\":[" ROW(B1, "\"7\"", "YQ==") "," NONE "]"),
		ANSWER("\"responses\":[" ROW(B0, "\"0\"", "YQ==") "," NONE "]"),
		ANSWER("\"responses\":[" ROW(B0, "\"7\"", "*") "," NONE "]"),
	};
	struct etcd_answer a;
	char token[ETCD_TOKEN];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		ck_assert_msg(parse(wrong[i], &a) == -EPROTO, "%s", wrong[i]);
		ck_assert(!a.ea_done && !a.ea_row[0].er_mod);
	}
	ck_assert_int_eq(etcd_parse_token("{\"token\":\"a\\r\\nb\"}", 18, token), -EPROTO);
	ck_assert_int_eq(etcd_parse_token("{\"token\":7}", 11, token), -EPROTO);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		an_absent_key_is_waited_for_and_a_free_one_is_not,
		the_lease_lives_while_etcd_answers_and_counts_from_the_question,
		a_taking_that_was_sent_twice_is_one,
		an_answer_that_was_lost_deposes_nobody,
		a_key_that_another_wrote_or_removed_deposes,
		a_key_that_changes_is_not_due,
		the_longer_lease_is_waited_for,
		a_gap_between_looks_begins_anew,
		two_leases_never_live,
		answers_are_understood,
		a_value_says_how_long_the_lease_is_or_nothing,
		answers_that_are_wrong_are_refused,
		NULL};
	Suite *s = suite_create("lease_key");

	unit_add(s, "lease_key", begin, NULL, 300, tests);
	return unit_run(s);
}
