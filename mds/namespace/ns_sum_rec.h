/* SPDX-License-Identifier: Apache-2.0 */
/* ns_sum_rec.h - the inside of the sums: records to structures and back (ns_sum.h). */
#ifndef MDS_NS_SUM_REC_H
#define MDS_NS_SUM_REC_H
#include "mds/namespace/keys.h"
#include "mds/namespace/ns_sum.h"

static inline struct ns_sum ns_sum_decode(const struct ns_sum_rec *r)
{
	return (struct ns_sum){.sum_files = le64toh(r->sr_files),
			       .sum_dirs = le64toh(r->sr_dirs),
			       .sum_bytes = le64toh(r->sr_bytes),
			       .sum_stored = le64toh(r->sr_stored)};
}

static inline struct ns_sum_rec ns_sum_encode(const struct ns_sum *s)
{
	return (struct ns_sum_rec){.sr_files = htole64(s->sum_files),
				   .sr_dirs = htole64(s->sum_dirs),
				   .sr_bytes = htole64(s->sum_bytes),
				   .sr_stored = htole64(s->sum_stored)};
}

/* buf: NS_KEY_LINK bytes; its first NS_KEY_INODE bytes are the file's prefix */
static inline struct kv_slice ns_key_link(uint8_t *buf, uint64_t ino, uint64_t dir)
{
	ns_key_ino(buf, NS_K_LINK, ino);
	ns_put64(buf + NS_KEY_INODE, dir);
	return ns_slice(buf, NS_KEY_LINK);
}

int ns_counted_decode(struct kv_slice val, struct ns_sum *out);		       /* -EIO */
int ns_link_decode(struct kv_slice val, uint32_t *names);		       /* -EIO */
int ns_link_put(struct kv_txn *t, uint64_t ino, uint64_t dir, uint32_t names); /* W; 0 deletes */
/* ns_trash.c: what of a user's is in the trash; and all of these rows. */
int ns_trash_user(struct kv_txn *t, uint32_t uid, struct ns_sum *out);
int ns_trash_user_put(struct kv_txn *t, uint32_t uid, const struct ns_sum *s); /* W; 0 deletes */
/* As ns_user_rows, for keys that are a prefix and a user's number. */
int ns_user_rows_of(struct kv_txn *t, struct kv_slice prefix,
		    int (*fn)(void *arg, uint32_t uid, const struct ns_sum *s), void *arg);
/* All users' rows. s: NULL of a damaged one. fn: 0 goes on, positive stops, negative stops and is
 * returned. */
int ns_user_rows(struct kv_txn *t, int (*fn)(void *arg, uint32_t uid, const struct ns_sum *s),
		 void *arg);
/* The same of what is in the trash. */
int ns_trash_users(struct kv_txn *t, int (*fn)(void *arg, uint32_t uid, const struct ns_sum *s),
		   void *arg);
int ns_trash_users_del(struct kv_txn *t, unsigned max); /* as ns_prefix_del */
/* W: as ns_sum_changed, for what has no name. */
int ns_trash_changed(struct kv_txn *t, const struct ns_inode *i, const struct ns_sum *was,
		     uint32_t uid);
struct ns_trash;
/* What an entry counts, and of whom. */
int ns_trash_counts(struct kv_txn *t, const struct ns_trash *e, uint32_t *uid, struct ns_sum *out);
int ns_user_put(struct kv_txn *t, uint32_t uid, const struct ns_sum *s); /* W; 0 deletes */

/* Of a directory's inode: */
struct ns_sum ns_sums_total(const struct ns_inode *dir);
bool ns_sums_unpushed(const struct ns_inode *dir);
/* The users' parts that wait in it. Returns how many. */
unsigned ns_sums_users(const struct ns_inode *dir, struct ns_sum_user out[NS_SUM_USERS]);
/* What its parent has counted of it. -EIO: the row is missing or damaged. */
int ns_sums_counted(struct kv_txn *t, const struct ns_inode *dir, struct ns_sum *out);
/* Calls fn for the rows NS_K_UNPUSHED, from a directory on. fn: 0 goes on, positive stops, negative
 * stops and is returned. */
int ns_unpushed_rows(struct kv_txn *t, uint64_t from,
		     int (*fn)(void *arg, uint64_t ino, struct kv_slice val), void *arg);
/* Logs that a row of sums is damaged, and counts it. */
void ns_sum_damaged(const char *what, uint64_t of);
/* For ns_open: counts the damaged rows of the store, and the rows NS_K_UNPUSHED. */
int ns_sum_look(struct kv_txn *t, int64_t *unpushed);
#endif
