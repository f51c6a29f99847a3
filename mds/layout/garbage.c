/*
 * garbage.c - whose an object is (docs/scrub.md).
 *
 * The rule, for an object that a data server told of before the transaction began: an object is
 * made by who has a capability for it, or by an order or a rebuild, and each of these comes after
 * the commit of the map that names it, or of the row of a map that is to be in force (twin.h). So
 * what names it is in this transaction, or was there and is gone: then nobody may use the object
 * any more, and the transaction that took it out of the map has ordered its deletion. No object of
 * a file that is being made can look like garbage.
 */
#include "mds/layout/lo_int.h"
#include "mds/layout/twin.h"
#include <errno.h>

static enum lo_owner owner_of(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o)
{
	const struct ns_super *su = ns_super(lo->l_ns);
	struct lo_twin tw;
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
	/* What the file is to be laid out as (docs/restripe.md) is named by a row of its own, in a
	 * transaction that comes before its objects. */
	if (o->incarnation != i.i_incarnation && lo_twin_get(t, o->ino, &tw) == 0 &&
	    tw.tw_incarnation == o->incarnation &&
	    lo_object_of(&tw.tw_map, ds, o->stripe, o->mirror) >= 0)
		return LO_OWNED;
	if (o->incarnation != i.i_incarnation)
		return o->incarnation < i.i_incarnation
			       ? LO_NOBODYS
			       : LO_FOREIGN; /* it was placed again since */
	return lo_object_of(&m, ds, o->stripe, o->mirror) >= 0 ? LO_OWNED : LO_BESIDE;
}

/*
 * In a store that was put back the rule holds for files of this line of time alone
 * (docs/recovery.md): an object of an older number may be of a file that was made, or an object
 * that was placed, since the backup.
 */
enum lo_owner lo_owner_of(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o,
			  bool decided)
{
	enum lo_owner owner = owner_of(lo, t, ds, o);

	return (owner == LO_NOBODYS || owner == LO_BESIDE) && !decided &&
			       o->ino < ns_line_ino(lo->l_ns)
		       ? LO_NEWER
		       : owner;
}
