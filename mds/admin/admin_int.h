/* admin_int.h - inside admin. */
#ifndef MDS_ADMIN_INT_H
#define MDS_ADMIN_INT_H
#include "base/http.h"
#include "mds/admin/admin.h"
#include <jansson.h>
#include <pthread.h>

struct admin {
	struct http *a_http;
	struct admin_ops a_ops;
};

/* Takes j; status 500 without memory. */
void admin_reply_json(struct http_reply *rp, int status, json_t *j);
void admin_reply_error(struct http_reply *rp, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The "path" argument; NULL: refused. */
const char *admin_path_arg(const struct http_req *rq, struct http_reply *rp);
/* The inode of the "path" argument, a regular file's; 0: refused. repair.c */
uint64_t admin_file_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp);

/* The HTTP thread waits for a mutation; no loop has a part in it: they may have stopped. */
struct admin_wait {
	pthread_mutex_t aw_lock;
	pthread_cond_t aw_cond;
	bool aw_done;
	int aw_err;
};
void admin_wait_init(struct admin_wait *w);
void admin_wait_done(struct admin_wait *w, int err); /* any thread */
/* Until it is done; what it says. w is over. */
int admin_wait_end(struct admin_wait *w);
/* The same for what a loop does. False: the loops stop, and nobody may do it any more; w is in use
 * yet. */
bool admin_wait_loop(struct admin_wait *w, struct dsc *d);

/* repair.c: copies that are not in sync, and what moves */
void admin_get_repair(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_repair(void *arg, const struct http_req *rq, struct http_reply *rp);
/* Answers as GET does, about one file; 0: all. */
void admin_reply_repair(struct admin *a, uint64_t ino, struct http_reply *rp);

/* move.c: mirrors that come and go, and objects that move */
void admin_put_mirror_add(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_mirror_remove(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_move(void *arg, const struct http_req *rq, struct http_reply *rp);

/* restripe.c: files that are laid out anew */
void admin_get_restripe(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_restripe(void *arg, const struct http_req *rq, struct http_reply *rp);

/* verify.c: copies are compared */
void admin_get_verify(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_verify(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_verify(void *arg, const struct http_req *rq, struct http_reply *rp);

/* advise.c: who is behind, and what is moved for it */
void admin_get_balance(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_balance(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_balance(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_advise(void *arg, const struct http_req *rq, struct http_reply *rp);
/* top.c: the hottest directories, by path */
json_t *admin_hot_directories(struct admin *a, size_t most);

/* choose.c: which copy is good */
void admin_get_choose(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_choose(void *arg, const struct http_req *rq, struct http_reply *rp);

/* scrub.c: what data servers have is compared with the maps */
void admin_get_scrub(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_scrub(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_scrub(void *arg, const struct http_req *rq, struct http_reply *rp);

/* ds.c: the data servers */
/* The server that an argument names by name, number or id; 0: refused. */
uint32_t admin_ds_named(struct admin *a, const char *what, struct http_reply *rp);
void admin_get_one(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_drain(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_undrain(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_kill(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_admit(void *arg, const struct http_req *rq, struct http_reply *rp);
/* key.c */
void admin_put_ds_key(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_key(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_rotate(void *arg, const struct http_req *rq, struct http_reply *rp);
/* forget.c */
void admin_put_forget(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_ds(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_weight(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_labels(void *arg, const struct http_req *rq, struct http_reply *rp);
/* forget.c: every object on that server becomes stale where another copy of its stripe is in sync.
 * Blocks. 0 or a negative errno. */
int admin_ds_stale(struct admin *a, uint32_t ds);
json_t *admin_ds_json(struct admin *a, const struct dsc_server *sv); /* the caller's reference */
/* gen.c: any NFSv3 server becomes one */
void admin_post_ds(void *arg, const struct http_req *rq, struct http_reply *rp);
#endif
