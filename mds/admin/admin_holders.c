/* SPDX-License-Identifier: Apache-2.0 */
/* admin_holders.c - the arguments that requests about clients, layouts and files share. */
#include "mds/admin/admin_holders.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

void admin_reply_errno(struct http_reply *rp, int err, const char *path)
{
	if (err == -ENOENT || err == -ESTALE || err == -ENOTDIR)
		admin_reply_error(rp, 404, "%s: no such file or directory", path);
	else if (err == -ENAMETOOLONG || err == -EINVAL)
		admin_reply_error(rp, 400, "%s: not a path", path);
	else if (err == -ENOSPC)
		admin_reply_error(rp, 409, "%s: the metadata store is full", path);
	else
		admin_reply_error(rp, 500, "%s: %s", path, strerror(-err));
}

bool admin_inode_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp,
		     struct ns_inode *i)
{
	const char *path = http_arg(rq, "path");
	struct ns *ns = a->a_ops.ao_ns;
	struct kv_txn *t;
	uint64_t ino;
	int err;

	if (!path || path[0] != '/') {
		admin_reply_error(rp, 400, "%s: expected an absolute path", path ? path : "path");
		return false;
	}
	err = kv_read_begin(ns_kv(ns), &t);
	if (!err) {
		err = ns_path(ns, t, path, &ino);
		if (!err)
			err = ns_get(ns, t, ino, i);
		i->i_blob = i->i_acl = (struct kv_slice){0};
		kv_read_end(t);
	}
	if (err)
		admin_reply_errno(rp, err, path);
	return !err;
}

bool admin_plain(const void *bytes, size_t len, const char *but)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < len; i++) {
		if ((p[i] < 0x20 && (!p[i] || !strchr(but, p[i]))) || p[i] == 0x7f)
			return false;
		if (p[i] == 0xc2 && i + 1 < len && p[i + 1] < 0xa0)
			return false;
	}
	return true;
}

json_t *admin_known(int64_t number)
{
	return number ? json_integer((json_int_t)number) : json_null();
}

json_t *admin_text(const void *bytes, size_t len)
{
	const uint8_t *p = bytes;
	char *out, *q;
	json_t *s;

	s = admin_plain(bytes, len, "") ? json_stringn(bytes, len) : NULL;
	if (s)
		return s;
	q = out = malloc(4 * len + 1);
	for (size_t i = 0; out && i < len; i++) {
		if (p[i] >= 0x20 && p[i] < 0x7f && p[i] != '\\')
			*q++ = (char)p[i];
		else
			q += sprintf(q, "\\x%02x", p[i]);
	}
	if (!out)
		return NULL;
	*q = 0;
	s = json_string(out);
	free(out);
	return s;
}

json_t *admin_path_json(struct admin *a, struct kv_txn *t, uint64_t ino, unsigned *budget)
{
	char path[4096];

	if (!t || !*budget || ns_path_of(a->a_ops.ao_ns, t, ino, budget, path, sizeof(path)))
		return json_null();
	return admin_text(path, strlen(path));
}

int64_t admin_number_arg(const struct http_req *rq, struct http_reply *rp, const char *name,
			 int64_t least, int64_t most, int64_t fallback)
{
	const char *text = http_arg(rq, name);
	char *end;
	long long v;

	if (!text)
		return fallback;
	errno = 0;
	v = strtoll(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || v < least || v > most) {
		admin_reply_error(rp, 400, "%s: expected a number from %lld to %lld", name,
				  (long long)least, (long long)most);
		return -1;
	}
	return v;
}

json_t *admin_client_name(const struct st_client_view *v)
{
	uint32_t len;
	const uint8_t *name = st_owner_name(v->cv_owner, v->cv_owner_len, &len);

	return admin_text(name, len);
}
