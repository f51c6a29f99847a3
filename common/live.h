/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.h - keys of the configuration that change while a daemon runs: by PUT /v1/config, or when it
 * reads its file again. All other keys hold from one start to the next; a change of theirs is
 * refused, or said to wait for the next start.
 *
 * Any thread. A daemon has one of these at most.
 */
#ifndef COMMON_LIVE_H
#define COMMON_LIVE_H
#include "base/conf.h"
#include "common/http.h"

struct live;
struct live_key {
	const char *lk_name;
	/* The value in c has changed. Called under a lock, by one thread at a time. */
	void (*lk_apply)(void *arg, const struct conf *c);
};
struct live_opts {
	/* The values in force. Other threads read no live key of it when the daemon has started. */
	struct conf *lv_conf;
	const char *lv_path; /* its file, or NULL */
	const char *const
		*lv_sets; /* KEY=VALUE of the command line: they count more than the file */
	unsigned lv_nsets;
	const char *lv_daemon; /* "mds": the first part of its own keys */
	const struct live_key *lv_keys;
	size_t lv_nkeys;
	/* NULL, or is called after a change, under the lock: what has become of a key, and where
	 * that came from. */
	void (*lv_changed)(void *arg, const char *key, const char *value, enum conf_from from);
	void *lv_arg;
};
/* All that o points to must stay. 0 or -ENOMEM. */
int live_open(struct live **out, const struct live_opts *o);
/* Reads the file again. Applies the live keys that differ, and logs the others that do. A file with
 * an error changes nothing. 0, or -errno and one line in err. */
int live_reload(struct live *l, char *err, size_t errlen);
/* GET /v1/config?key=K, PUT /v1/config?key=K&value=V. */
void live_get(struct live *l, const struct http_req *rq, struct http_reply *rp);
void live_put(struct live *l, const struct http_req *rq, struct http_reply *rp);
#endif
