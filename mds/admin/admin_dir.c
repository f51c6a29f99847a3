/* SPDX-License-Identifier: Apache-2.0 */
/* admin_dir.c - the names in one directory, in pieces. */
#include "mds/admin/admin_holders.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define ENTRIES_MOST	 1000
#define ENTRIES_FALLBACK 200

struct dir_list {
	struct ns *dl_ns;
	struct kv_txn *dl_txn;
	json_t *dl_entries;
	size_t dl_most;
	uint64_t dl_last; /* the cookie of the last entry that was taken */
};

static const char *dir_type(uint8_t type)
{
	return type == NS_DIR	? "directory"
	       : type == NS_REG ? "file"
	       : type == NS_LNK ? "symlink"
				: "special";
}

/* The name for a URL (RFC 3986): a name has bytes that JSON cannot carry. */
static json_t *dir_encoded(const char *name, size_t len)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-._~";
	char *text = malloc(3 * len + 1), *p = text;
	json_t *j;

	if (!text)
		return NULL;
	for (size_t i = 0; i < len; i++) {
		if (name[i] && strchr(plain, name[i]))
			*p++ = name[i];
		else
			p += sprintf(p, "%%%02X", (unsigned char)name[i]);
	}
	*p = 0;
	j = json_string(text);
	free(text);
	return j;
}

static int dir_entry(void *arg, const struct ns_dirent *d)
{
	struct dir_list *dl = arg;
	struct ns_inode i;
	json_t *size;

	if (json_array_size(dl->dl_entries) == dl->dl_most)
		return 1;
	dl->dl_last = d->d_cookie;
	size = d->d_type == NS_REG && !ns_get(dl->dl_ns, dl->dl_txn, d->d_ino, &i)
		       ? json_integer((json_int_t)i.i_size)
		       : json_null();
	json_array_append_new(dl->dl_entries, json_pack("{s:o, s:o, s:s, s:I, s:o}", "name",
							admin_text(d->d_name, d->d_len), "encoded",
							dir_encoded(d->d_name, d->d_len), "type",
							dir_type(d->d_type), "inode",
							(json_int_t)d->d_ino, "size_bytes", size));
	return 0;
}

/* *type: of what is at the path; only a directory has entries. 0 or a negative errno. */
static int dir_read(struct dir_list *dl, const char *path, uint64_t after, uint8_t *type, bool *eof)
{
	struct ns_inode i;
	uint64_t ino;
	int err = ns_path(dl->dl_ns, dl->dl_txn, path, &ino);

	if (!err)
		err = ns_get(dl->dl_ns, dl->dl_txn, ino, &i);
	if (err)
		return err;
	*type = i.i_type;
	if (i.i_type == NS_DIR)
		return ns_readdir(dl->dl_ns, dl->dl_txn, ino, after, dir_entry, dl, eof);
	*eof = true;
	return 0;
}

void admin_get_dir(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct dir_list dl = {.dl_ns = a->a_ops.ao_ns};
	const char *path = admin_path_arg(rq, rp);
	int64_t most, after;
	char next[24];
	bool eof = false;
	uint8_t type = 0;
	int err;

	if (!path)
		return;
	most = admin_number_arg(rq, rp, "limit", 1, ENTRIES_MOST, ENTRIES_FALLBACK);
	after = most < 0 ? -1 : admin_number_arg(rq, rp, "after", 0, INT64_MAX, 0);
	if (most < 0 || after < 0)
		return;
	dl.dl_most = (size_t)most;
	dl.dl_entries = json_array();
	err = kv_read_begin(ns_kv(dl.dl_ns), &dl.dl_txn);
	if (!err) {
		err = dir_read(&dl, path, (uint64_t)after, &type, &eof);
		kv_read_end(dl.dl_txn);
	}
	if (!err) {
		/* A text: a program that keeps numbers as doubles would round it. */
		snprintf(next, sizeof(next), "%" PRIu64, dl.dl_last);
		admin_reply_json(rp, 200,
				 json_pack("{s:o, s:s, s:O, s:o}", "path",
					   admin_text(path, strlen(path)), "type", dir_type(type),
					   "entries", dl.dl_entries, "next",
					   eof ? json_null() : json_string(next)));
	} else {
		admin_reply_errno(rp, err, path);
	}
	json_decref(dl.dl_entries);
}
