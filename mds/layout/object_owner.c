/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_owner.c - decides which file an object belongs to (docs/scrub.md).
 *
 * The rule holds for an object that a data server reported before the transaction began. A client
 * makes an object by a capability, or an order or a rebuild makes it. Each of these comes after the
 * commit of the map that names the object, or of the row of a pending layout (pending_layout.h). So
 * what names the object is visible in this transaction, or it was there before and is gone. If it
 * is gone, no client may use the object any more, and the transaction that removed the object from
 * the map has ordered its deletion. So no object of a file that is being created can look like
 * garbage.
 */
#include "mds/layout/lo_int.h"
#include "mds/layout/pending_layout.h"
#include <errno.h>

static enum lo_owner owner_of(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o)
{
	const struct ns_super *su = ns_super(lo->l_ns);
	struct lo_pending tw;
	struct ns_inode i;
	struct lo_map m;
	uint64_t limit;
	int err = ns_ino_limit(t, &limit);

	if (err)
		return LO_OWNED;
	if (o->fs != su->su_fs || o->incarnation % NS_PLACED_AGAIN > su->su_incarnation)
		return LO_FOREIGN;
	if (o->ino >= limit)
		return LO_NOT_YET;
	err = ns_get(lo->l_ns, t, o->ino, &i);
	if (err == -ESTALE || err == -ENOENT)
		return LO_NOBODYS;
	if (err || i.i_type != NS_REG || lo_map_decode(i.i_blob, &m))
		return LO_OWNED;
	/* A row of its own names the objects of a pending layout (docs/restripe.md). The
	 * transaction that writes it comes before the objects. */
	if (o->incarnation != i.i_incarnation && lo_pending_get(t, o->ino, &tw) == 0 &&
	    tw.tw_incarnation == o->incarnation &&
	    lo_object_of(&tw.tw_map, ds, o->stripe, o->mirror) >= 0)
		return LO_OWNED;
	/* A lower incarnation is left from before the file was placed again. A higher one comes
	 * from a later placement than this store knows. */
	if (o->incarnation != i.i_incarnation)
		return o->incarnation < i.i_incarnation ? LO_NOBODYS : LO_FOREIGN;
	return lo_object_of(&m, ds, o->stripe, o->mirror) >= 0 ? LO_OWNED : LO_BESIDE;
}

/*
 * In a restored store the rule holds only for files of the current timeline (docs/recovery.md). An
 * object with an older inode number may belong to a file that was created, or was placed there,
 * after the backup.
 */
enum lo_owner lo_owner_of(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o,
			  bool decided)
{
	enum lo_owner owner = owner_of(lo, t, ds, o);

	return (owner == LO_NOBODYS || owner == LO_BESIDE) && !decided &&
			       o->ino < ns_timeline_ino(lo->l_ns)
		       ? LO_NEWER
		       : owner;
}
