/* SPDX-License-Identifier: Apache-2.0 */
/* ns_path.c - finds a path for an inode, the reverse of ns_path. A directory's entries are in the
 * order of their names' hashes, so the entry of an inode is searched for. */
#include "mds/namespace/ns.h"
#include <errno.h>
#include <string.h>

#define DEPTH_MOST 256

struct name_of {
	uint64_t n_ino;
	unsigned *n_budget;
	char *n_out; /* NS_NAME_MAX + 1 bytes */
	bool n_found;
};

static int ns_path_name_is(void *arg, const struct ns_dirent *d)
{
	struct name_of *n = arg;

	if (!*n->n_budget)
		return 1;
	--*n->n_budget;
	if (d->d_ino != n->n_ino)
		return 0;
	memcpy(n->n_out, d->d_name, d->d_len);
	n->n_out[d->d_len] = 0;
	n->n_found = true;
	return 1;
}

int ns_path_of(struct ns *ns, struct kv_txn *t, uint64_t ino, unsigned *budget, char *out,
	       size_t max)
{
	char name[NS_NAME_MAX + 1];
	size_t at = max - 1;
	struct ns_inode i;
	bool eof;

	out[at] = 0;
	for (unsigned depth = 0; ino != NS_ROOT_INO; depth++) {
		struct name_of n = {.n_budget = budget, .n_out = name};
		int err = ns_get(ns, t, ino, &i);

		n.n_ino = ino;
		if (!err)
			err = ns_readdir(ns, t, i.i_parent, 0, ns_path_name_is, &n, &eof);
		if (err < 0)
			return err == -ENOTDIR ? -ENOENT : err;
		if (!n.n_found)
			return *budget ? -ENOENT : -E2BIG;
		if (depth == DEPTH_MOST || strlen(name) + 1 > at)
			return -E2BIG;
		at -= strlen(name);
		memcpy(out + at, name, strlen(name));
		out[--at] = '/';
		ino = i.i_parent;
	}
	if (at == max - 1)
		out[--at] = '/';
	memmove(out, out + at, max - at);
	return 0;
}
