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
void admin_reply_error(struct http_reply *rp, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

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

/* ds.c: the data servers */
void admin_get_ds(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_weight(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_labels(void *arg, const struct http_req *rq, struct http_reply *rp);
#endif
