/* SPDX-License-Identifier: Apache-2.0 */
/* admin_int.h - the inside of admin. */
#ifndef MDS_ADMIN_INT_H
#define MDS_ADMIN_INT_H
#include "common/http.h"
#include "common/live.h"
#include "mds/admin/admin.h"
#include <jansson.h>
#include <pthread.h>

struct tokens;
struct sessions;
struct console;
struct admin {
	struct http *a_http;
	struct tokens *a_tokens;
	struct sessions *a_sessions;
	struct console *a_console; /* NULL: no page */
	struct scrape *a_scrape;   /* NULL: no mds.metrics */
	struct admin_ops a_ops;
};

/* Frees its reference to j. Status 500 if there is no memory. */
void admin_reply_json(struct http_reply *rp, int status, json_t *j);
void admin_reply_error(struct http_reply *rp, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* False: the request's role is too small for what it asks for; the error was put into rp. */
bool admin_may(const struct http_req *rq, struct http_reply *rp, enum http_role role,
	       const char *what);

/* Returns the "path" argument; NULL: an error was put into rp. */
const char *admin_path_arg(const struct http_req *rq, struct http_reply *rp);
/* admin_repair.c: returns the inode of the "path" argument, which must be a regular file; 0: an
 * error was put into rp. */
uint64_t admin_file_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp);

/* By this the HTTP thread waits for a mutation. No loop takes part: the loops may have stopped. */
struct admin_wait {
	pthread_mutex_t aw_lock;
	pthread_cond_t aw_cond;
	bool aw_done;
	int aw_err;
};
void admin_wait_init(struct admin_wait *w);
void admin_wait_done(struct admin_wait *w, int err); /* any thread */
/* Waits until it is done, and returns err. w is over then. */
int admin_wait_end(struct admin_wait *w);
/* The same for work of a loop. False: the loops are stopping, so it may never be done, and w is
 * still in use. */
bool admin_wait_loop(struct admin_wait *w, struct ds_reg *d);

/* admin_repair.c: copies that are not in sync, and moves */
void admin_get_repair(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_repair(void *arg, const struct http_req *rq, struct http_reply *rp);
/* Answers as GET does, about one file; ino 0: all. job: also the number of the job that was begun,
 * null where *job is 0; NULL: none of that. */
void admin_reply_repair(struct admin *a, uint64_t ino, const uint64_t *job, struct http_reply *rp);

/* admin_move.c: mirrors to add and remove, and objects to move */
void admin_put_mirror_add(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_mirror_remove(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_move(void *arg, const struct http_req *rq, struct http_reply *rp);

/* admin_restripe.c: files to restripe */
void admin_get_restripe(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_restripe(void *arg, const struct http_req *rq, struct http_reply *rp);

/* admin_verify.c: compares copies */
void admin_get_verify(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_verify(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_verify(void *arg, const struct http_req *rq, struct http_reply *rp);

/* admin_advise.c: servers that are behind, and what moves because of it */
void admin_get_balance(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_balance(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_balance(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_advise(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_top.c: the hottest directories, by path */
json_t *admin_hot_directories(struct admin *a, size_t most);

/* admin_orders.c: orders to data servers */
void admin_get_orders(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_pins(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_pin(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_pin(void *arg, const struct http_req *rq, struct http_reply *rp);

/* admin_elect.c: which copy is good */
void admin_get_elect(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_elect(void *arg, const struct http_req *rq, struct http_reply *rp);

/* admin_scrub.c: compares the data servers' objects with the maps */
void admin_get_scrub(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_scrub(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_scrub(void *arg, const struct http_req *rq, struct http_reply *rp);

/* admin_ds.c: the data servers */
/* Returns the server that an argument gives by name, number or id; 0: an error was put into rp. */
uint32_t admin_ds_named(struct admin *a, const char *what, struct http_reply *rp);
void admin_get_one(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_drain(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_undrain(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_kill(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_admit(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_key.c */
void admin_put_ds_key(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_post_join_token(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_key(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_rotate(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_forget.c, and admin_ds.c */
void admin_put_forget(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_ds(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_weight(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_labels(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_forget.c: makes every object on that server stale whose stripe has another copy in sync.
 * Blocks. 0 or -errno. */
int admin_ds_stale(struct admin *a, uint32_t ds);
/* the caller owns the reference */
json_t *admin_ds_json(struct admin *a, const struct ds_reg_server *sv);
/* admin_token.c: tokens for this API. Reads them from the store: 0 or -errno. */
int admin_tokens_open(struct admin *a);
void admin_tokens_close(struct admin *a);
bool admin_token_look(void *arg, const char *text, struct http_who *w); /* ho_token_look */
#define TOKEN_HASH 32
void admin_token_hash(const char *text, uint8_t out[TOKEN_HASH]);
/* The same as admin_token_look, for a token of which only the hash is known. */
bool admin_token_known(struct admin *a, const uint8_t hash[TOKEN_HASH], struct http_who *w);
void admin_get_tokens(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_post_token(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_token(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_session.c: logins of browsers. token: as ho_token. 0 or -ENOMEM. */
int admin_sessions_open(struct admin *a, const char *token);
void admin_sessions_close(struct admin *a);
/* ho_session_look */
bool admin_session_look(void *arg, const char *id, const char *csrf, struct http_who *w);
void admin_get_session(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_post_session(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_session(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_console.c: reads the files of the page, and puts them into opts. where: mds.console. 0, or
 * -errno and one line in err. */
int admin_console_open(struct admin *a, const char *where, struct http_opts *opts, char *err,
		       size_t errlen);
void admin_console_close(struct admin *a);
/* admin_dir.c: the names in a directory */
void admin_get_dir(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_metrics.c: makes the metrics that are read from the parts of the server. */
void admin_metrics_init(struct admin *a);
/* admin_metrics_use.c: those by client and by export. */
void admin_metrics_use_init(struct admin *a);
/* admin_jobs.c: what runs and waits */
void admin_get_jobs(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_job(void *arg, const struct http_req *rq, struct http_reply *rp);
json_t *admin_job_json(uint64_t id); /* null for 0; the caller owns the reference */
/* The job of a run; null: there was none yet. kind: enum job_kind. */
json_t *admin_run_json(struct admin *a, int kind, uint64_t number);
void admin_delete_job(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_du.c: what is below a directory, and what users have */
void admin_get_du(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_du_users(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_trace.c: what was done for requests */
void admin_get_trace(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_trash.c: what was removed and is kept */
void admin_get_trash(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_trash_restore(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_trash(void *arg, const struct http_req *rq, struct http_reply *rp);
/* admin_nfs3ds.c: adds an NFSv3 server as a data server */
void admin_post_ds(void *arg, const struct http_req *rq, struct http_reply *rp);
#endif
