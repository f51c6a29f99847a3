/* SPDX-License-Identifier: Apache-2.0 */
/* live.c - see live.h. */
#include "common/live.h"
#include "base/log.h"
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct live {
	struct live_opts l_opts;
	pthread_mutex_t l_lock;
	/* for each key: its value in the file, which holds from the next start on; or NULL */
	char **l_waits;
};

int live_open(struct live **out, const struct live_opts *o)
{
	struct live *l = calloc(1, sizeof(*l));

	if (l)
		l->l_waits = calloc(conf_nkeys, sizeof(*l->l_waits));
	if (!l || !l->l_waits) {
		free(l);
		return -ENOMEM;
	}
	l->l_opts = *o;
	pthread_mutex_init(&l->l_lock, NULL);
	*out = l;
	return 0;
}

/* Keys of this daemon, and those that both have: log, rdma. */
static bool is_mine(const struct live *l, size_t key)
{
	const char *name = conf_keys[key].ck_name;
	size_t len = strlen(l->l_opts.lv_daemon);

	if (!strncmp(name, l->l_opts.lv_daemon, len) && name[len] == '.')
		return true;
	return strncmp(name, "mds.", 4) != 0 && strncmp(name, "ds.", 3) != 0;
}

static const struct live_key *live_key(const struct live *l, size_t key)
{
	for (size_t i = 0; i < l->l_opts.lv_nkeys; i++)
		if (!strcmp(l->l_opts.lv_keys[i].lk_name, conf_keys[key].ck_name))
			return &l->l_opts.lv_keys[i];
	return NULL;
}

/* locked */
static int live_change(struct live *l, const struct live_key *k, size_t key, const char *text,
		       enum conf_from from, char *err, size_t errlen)
{
	const struct live_opts *o = &l->l_opts;
	char *was = strdup(conf_value(o->lv_conf, key));
	int e;

	if (!was) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	e = conf_put(o->lv_conf, key, text, from, err, errlen);
	if (!e && strcmp(was, text) != 0) {
		k->lk_apply(o->lv_arg, o->lv_conf);
		log_info("%s is %s now; it was %s", k->lk_name, text, was);
		if (o->lv_changed)
			o->lv_changed(o->lv_arg, k->lk_name, text, from);
	}
	free(was);
	return e;
}

/* locked; text NULL: the file says what is in force */
static void waits_set(struct live *l, size_t key, const char *text)
{
	free(l->l_waits[key]);
	l->l_waits[key] = text ? strdup(text) : NULL;
	if (text)
		log_warn("%s is %s in %s: it takes effect when the daemon starts again",
			 conf_keys[key].ck_name, text, l->l_opts.lv_path);
}

int live_reload(struct live *l, char *err, size_t errlen)
{
	const struct live_opts *o = &l->l_opts;
	struct conf *now;
	int e = conf_load(&now, o->lv_path, err, errlen);

	if (e)
		return e;
	for (unsigned i = 0; i < o->lv_nsets && !e; i++)
		e = conf_set(now, o->lv_sets[i], err, errlen);
	pthread_mutex_lock(&l->l_lock);
	for (size_t i = 0; i < conf_nkeys && !e; i++) {
		const char *text = conf_value(now, i);
		const struct live_key *k = live_key(l, i);
		bool same = !strcmp(text, conf_value(o->lv_conf, i));

		if (!is_mine(l, i))
			continue;
		if (k)
			e = live_change(l, k, i, text, conf_from(now, i), err, errlen);
		else if (!same || l->l_waits[i])
			waits_set(l, i, same ? NULL : text);
	}
	pthread_mutex_unlock(&l->l_lock);
	conf_free(now);
	return e;
}

/* ---- over HTTP ---- */

static void live_reply(struct http_reply *rp, int status, json_t *j)
{
	rp->rp_status = j ? status : 500;
	rp->rp_body = j ? json_dumps(j, JSON_COMPACT) : NULL;
	json_decref(j);
}

static void live_error(struct http_reply *rp, int status, const char *text)
{
	live_reply(rp, status, json_pack("{s:s}", "error", text));
}

/* locked */
static json_t *live_json(const struct live *l, size_t key)
{
	static const char *const from[] = {
		[CONF_FROM_DEFAULT] = "default",
		[CONF_FROM_FILE] = "file",
		[CONF_FROM_OPTION] = "option",
		[CONF_FROM_LIVE] = "set",
	};
	const struct conf *c = l->l_opts.lv_conf;

	return json_pack("{s:s, s:s, s:s, s:s, s:b, s:s?}", "key", conf_keys[key].ck_name, "value",
			 conf_value(c, key), "default", conf_keys[key].ck_default, "from",
			 from[conf_from(c, key)], "live", live_key(l, key) != NULL, "next_start",
			 l->l_waits[key]);
}

/* The place of the key that the request names, which must be this daemon's; or conf_nkeys and an
 * error in rp. */
static size_t key_arg(const struct live *l, const struct http_req *rq, struct http_reply *rp)
{
	const char *name = http_arg(rq, "key");
	char err[512];
	size_t key;

	if (!name) {
		live_error(rp, 400, "key= is missing");
		return conf_nkeys;
	}
	key = conf_find(name, err, sizeof(err));
	if (key == conf_nkeys) {
		live_error(rp, 404, err);
	} else if (!is_mine(l, key)) {
		snprintf(err, sizeof(err), "%s is not a key of weft-%s", name, l->l_opts.lv_daemon);
		live_error(rp, 404, err);
		key = conf_nkeys;
	}
	return key;
}

void live_get(struct live *l, const struct http_req *rq, struct http_reply *rp)
{
	size_t one = conf_nkeys;
	json_t *keys;

	if (http_arg(rq, "key") && (one = key_arg(l, rq, rp)) == conf_nkeys)
		return;
	keys = json_array();
	pthread_mutex_lock(&l->l_lock);
	for (size_t i = 0; i < conf_nkeys; i++)
		if (is_mine(l, i) && (one == conf_nkeys || one == i))
			json_array_append_new(keys, live_json(l, i));
	pthread_mutex_unlock(&l->l_lock);
	live_reply(rp, 200, json_pack("{s:s?, s:o}", "file", l->l_opts.lv_path, "keys", keys));
}

void live_put(struct live *l, const struct http_req *rq, struct http_reply *rp)
{
	const char *value = http_arg(rq, "value");
	size_t key = key_arg(l, rq, rp);
	const struct live_key *k;
	char err[512];
	int e;

	if (key == conf_nkeys)
		return;
	if (!value) {
		live_error(rp, 400, "value= is missing");
		return;
	}
	k = live_key(l, key);
	if (!k) {
		snprintf(err, sizeof(err),
			 "%s takes effect when the daemon starts: change it in %s and restart "
			 "weft-%s",
			 conf_keys[key].ck_name,
			 l->l_opts.lv_path ? l->l_opts.lv_path : "its configuration",
			 l->l_opts.lv_daemon);
		live_error(rp, 409, err);
		return;
	}
	pthread_mutex_lock(&l->l_lock);
	e = live_change(l, k, key, value, CONF_FROM_LIVE, err, sizeof(err));
	pthread_mutex_unlock(&l->l_lock);
	if (e)
		live_error(rp, e == -ENOMEM ? 500 : 400, err);
	else
		live_get(l, rq, rp);
}
