/* SPDX-License-Identifier: Apache-2.0 */
/* restore.c - prepares the files of a restored store; see restore.h. It handles some files per
 * transaction. When it is interrupted, it starts again from the beginning. */
#include "mds/layout/restore.h"
#include "mds/layout/lo.h"
#include "mds/layout/repair_row.h"
#include <errno.h>

#define RESTORE_FILES 512u /* files per transaction */

struct restore {
	struct ns *re_ns;
	int (*re_mark)(struct kv_txn *t, uint64_t ino);
	uint64_t re_next, re_ino[RESTORE_FILES];
	unsigned re_n;
	int64_t re_files;
};

static int restore_collect(void *arg, const struct ns_inode *i)
{
	struct restore *re = arg;
	struct lo_map map;

	if (re->re_n == RESTORE_FILES)
		return 1;
	re->re_next = i->i_ino + 1;
	if (!lo_map_decode(i->i_blob, &map)) /* the checker reports damaged maps */
		re->re_ino[re->re_n++] = i->i_ino;
	return 0;
}

static int restore_file(struct restore *re, struct kv_txn *t, uint64_t ino)
{
	uint32_t first = ns_timeline_epoch(re->re_ns);
	uint8_t blob[NS_BLOB_MAX];
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(re->re_ns, t, ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		/* -ESTALE: a file that was unlinked while it was open */
		return err == -ESTALE ? 0 : err;
	if (map.lm_epoch < first)
		map.lm_epoch = first;
	err = ns_set_blob_quietly(re->re_ns, t, ino, blob, lo_map_encode(&map, blob, sizeof(blob)));
	return err ? err : re->re_mark(t, ino);
}

static int restore_run(void *arg, struct kv_txn *t)
{
	struct restore *re = arg;
	int err;

	re->re_n = 0;
	err = ns_files(re->re_ns, t, re->re_next, restore_collect, re);
	for (unsigned k = 0; !err && k < re->re_n; k++)
		err = restore_file(re, t, re->re_ino[k]);
	re->re_files += re->re_n;
	return err ? err : lo_lost_writers_put(t);
}

int64_t lo_restore(struct kv *kv, struct ns *ns, int (*mark)(struct kv_txn *t, uint64_t ino))
{
	struct restore re = {.re_ns = ns, .re_mark = mark, .re_next = 1};
	int err;

	do
		err = kv_run_sync(kv, restore_run, &re);
	while (!err && re.re_n == RESTORE_FILES);
	return err ? err : re.re_files;
}
