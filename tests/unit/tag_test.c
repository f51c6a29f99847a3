/* SPDX-License-Identifier: Apache-2.0 */
/* tag_test.c - tags: an answer about all of them makes no request wait, and stays whole while tags
 * change. */
#include "mds/jobs/tag.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS 100u

static char dir[256], err[512];
static struct mds mds;
static sem_t counted;
static unsigned slot_found, texts_seen;
static pthread_t counter, changer;

static void setup(void)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true};
	const char *texts[CLIENTS];
	char text[CLIENTS][16];
	size_t bad;

	ck_assert(scratch_make(dir, sizeof(dir), "tag_test"));
	ck_assert_int_eq(kv_open(&mds.m_kv, dir, &o, err, sizeof(err)), 0);
	ck_assert_int_eq(job_tags_open(&mds), 0);
	for (unsigned i = 0; i < CLIENTS; i++) {
		snprintf(text[i], sizeof(text[i]), "client%02u", i);
		texts[i] = text[i];
	}
	ck_assert_int_eq(job_tag_add(&mds, "job", texts, CLIENTS, &bad), 0);
	sem_init(&counted, 0, 0);
}

static void teardown(void)
{
	kv_close(mds.m_kv);
	scratch_remove(dir);
}

static void *count_main(void *arg)
{
	slot_found = job_tag_with(&mds, "client07");
	sem_post(&counted);
	return arg;
}

static void on_tag_count(void *arg, const struct job_tag_view *v)
{
	struct timespec until;

	(void)v;
	ck_assert_int_eq(pthread_create(&counter, NULL, count_main, NULL), 0);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	*(int *)arg = sem_timedwait(&counted, &until);
}

START_TEST(an_answer_makes_no_request_wait)
{
	int waited = -1;

	job_tags_each(&mds, on_tag_count, &waited);
	pthread_join(counter, NULL);
	ck_assert_int_eq(waited, 0);
	ck_assert_uint_eq(slot_found, 1);
}
END_TEST

static void *change_main(void *arg)
{
	*(int *)arg = job_tag_del(&mds, "job", NULL);
	return NULL;
}

static int any_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	(void)id, (void)val;
	*(bool *)arg = true;
	return 1;
}

static bool stored(void)
{
	struct kv_txn *t;
	bool any = false;

	ck_assert_int_eq(kv_read_begin(mds.m_kv, &t), 0);
	ck_assert_int_ge(ns_rows(t, NS_T_TAG, "", 0, any_row, &any), 0);
	kv_read_end(t);
	return any;
}

static void on_tag_change(void *arg, const struct job_tag_view *v)
{
	char text[16];

	ck_assert_int_eq(pthread_create(&changer, NULL, change_main, arg), 0);
	/* The change is stored, and not in force while the answer reads the table. */
	for (unsigned n = 0; stored(); n++) {
		ck_assert_uint_lt(n, 60000);
		usleep(1000);
	}
	ck_assert_uint_eq(v->jv_n, CLIENTS);
	for (unsigned i = 0; i < v->jv_n; i++) {
		snprintf(text, sizeof(text), "client%02u", i);
		ck_assert_str_eq(v->jv_client[i], text);
		texts_seen++;
	}
	ck_assert_uint_eq(job_tag_with(&mds, "client07"), 1);
}

START_TEST(an_answer_stays_whole_while_tags_change)
{
	int rc = -1;

	texts_seen = 0;
	job_tags_each(&mds, on_tag_change, &rc);
	pthread_join(changer, NULL);
	ck_assert_uint_eq(texts_seen, CLIENTS);
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(job_tag_with(&mds, "client07"), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("tags");
	TCase *c = tcase_create("answers");

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_set_timeout(c, 100);
	tcase_add_test(c, an_answer_makes_no_request_wait);
	tcase_add_test(c, an_answer_stays_whole_while_tags_change);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
