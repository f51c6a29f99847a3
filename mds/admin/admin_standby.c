/* SPDX-License-Identifier: Apache-2.0 */
/* admin_standby.c - see admin_standby.h. The answer has the form of admin_health.c's. */
#include "mds/admin/admin_standby.h"
#include "mds/admin/admin_int.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct admin_standby {
	struct http *s_http;
	pthread_mutex_t s_lock;
	char s_why[320];
};

static void get_health(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin_standby *s = arg;
	char why[sizeof(s->s_why)], text[sizeof(why) + 32];

	(void)rq;
	pthread_mutex_lock(&s->s_lock);
	memcpy(why, s->s_why, sizeof(why));
	pthread_mutex_unlock(&s->s_lock);
	snprintf(text, sizeof(text), "nothing is served yet: %s", why);
	admin_reply_json(rp, 503,
			 json_pack("{s:s, s:s, s:s, s:[{s:s, s:s, s:s, s:s, s:i, s:b}], s:i, s:s}",
				   "status", "waiting", "why", why, "health", "error", "reasons",
				   "code", "not-serving", "severity", "error", "text", text, "hint",
				   "docs/ha.md", "count", 1, "count_is_minimum", 0, "rows_examined",
				   0, "error", why));
}

static const struct http_route routes[] = {{"GET", "/v1/health", HTTP_OPEN, get_health}};

int admin_standby_start(struct admin_standby **out, const struct http_opts *opts, char *err,
			size_t errlen)
{
	struct admin_standby *s = calloc(1, sizeof(*s));
	struct http_opts mine = *opts;
	int e = s ? http_bound_copy(&mine.ho_bound, opts->ho_bound) : -ENOMEM;

	if (e) {
		snprintf(err, errlen, "mds.admin: %s", strerror(-e));
		free(s);
		return e;
	}
	pthread_mutex_init(&s->s_lock, NULL);
	e = http_start(&s->s_http, &mine, routes, 1, s, err, errlen);
	if (e) {
		pthread_mutex_destroy(&s->s_lock);
		free(s);
		return e;
	}
	*out = s;
	return 0;
}

void admin_standby_why(struct admin_standby *s, const char *why)
{
	pthread_mutex_lock(&s->s_lock);
	snprintf(s->s_why, sizeof(s->s_why), "%s", why);
	pthread_mutex_unlock(&s->s_lock);
}

void admin_standby_stop(struct admin_standby *s)
{
	if (!s)
		return;
	http_stop(s->s_http);
	pthread_mutex_destroy(&s->s_lock);
	free(s);
}
