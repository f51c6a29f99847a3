/* SPDX-License-Identifier: Apache-2.0 */
/* admin_holders.h - the inside of admin: clients, layouts, paths. On the HTTP thread. */
#ifndef MDS_ADMIN_WHO_H
#define MDS_ADMIN_WHO_H
#include "mds/admin/admin_int.h"
#include "mds/state/st_view.h"

/* Reads the inode of the "path" argument, without its blob and ACL. False: an error was put into
 * rp. */
bool admin_inode_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp,
		     struct ns_inode *i);
/* Puts an errno about a path as one line. */
void admin_reply_errno(struct http_reply *rp, int err, const char *path);
/* Returns the clientid for the "client" argument: a number, a name, an address, or 0x and a
 * clientid. 0: an error was put into rp. */
uint64_t admin_client_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp);
/* Returns the number for the "ds" argument: a name, a number or an id. 0: an error was put into
 * rp. */
uint32_t admin_ds_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp);
/* Makes a JSON string of bytes. UTF-8 without control characters stays as it is. In anything else
 * each byte that is not printable ASCII, and the backslash, becomes \xNN. The caller owns the
 * reference. */
json_t *admin_text(const void *bytes, size_t len);
/* The number, or null for 0, where 0 means unknown or never. The caller owns the reference. */
json_t *admin_known(int64_t number);
/* True if nothing in it could control a terminal: it has no control characters of ASCII, except
 * those in but, or (as UTF-8) of ISO 8859. */
bool admin_plain(const void *bytes, size_t len, const char *but);
/* Returns a path of the inode as a JSON string (admin_text), or null where ns_path_of finds none.
 * The caller owns the reference. *budget: ns_path_of's. t may be NULL: null. */
json_t *admin_path_json(struct admin *a, struct kv_txn *t, uint64_t ino, unsigned *budget);
/* Returns the argument as a whole number from least to most, or fallback if it is absent; -1: an
 * error was put into rp. */
int64_t admin_number_arg(const struct http_req *rq, struct http_reply *rp, const char *name,
			 int64_t least, int64_t most, int64_t fallback);
/* Returns the name in a client's owner string: for Linux the host's, else the whole string. The
 * caller owns the reference. */
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
