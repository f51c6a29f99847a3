/* who.h - inside admin: clients, layouts, paths. On the HTTP thread. */
#ifndef MDS_ADMIN_WHO_H
#define MDS_ADMIN_WHO_H
#include "mds/admin/admin_int.h"
#include "mds/state/view.h"

/* The inode that the "path" argument leads to; false: refused. Only its fixed part is good. */
bool admin_inode_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp,
		     struct ns_inode *i);
/* An errno about a path, as one line. */
void admin_reply_errno(struct http_reply *rp, int err, const char *path);
/* The "client" argument: a number, a name, an address or 0x and a clientid. 0: refused. */
uint64_t admin_client_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp);
/* The "ds" argument: a name, a number or an id; 0: refused. */
uint32_t admin_ds_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp);
/* Bytes as JSON can carry them: UTF-8 without control characters as it is; of anything else what is
 * not printable ASCII, and the backslash, as \xNN. The caller's reference. */
json_t *admin_text(const void *bytes, size_t len);
/* Nothing in it steers a terminal: no control characters, of ASCII or (as UTF-8) of ISO 8859. */
bool admin_plain(const void *bytes, size_t len, const char *but);
/* As a whole number from least to most, or fallback when it is not there; -1: refused. */
int64_t admin_number_arg(const struct http_req *rq, struct http_reply *rp, const char *name,
			 int64_t least, int64_t most, int64_t fallback);
/* The name that a client's owner string tells: Linux's, or the string as it is; the caller's
 * reference. */
json_t *admin_client_name(const struct st_client_view *v);

void admin_get_clients(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_client(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_layouts(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_recall(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_xattr(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_xattr(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_xattr(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_top(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_heat(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_find(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_get_events(void *arg, const struct http_req *rq, struct http_reply *rp);
#endif
