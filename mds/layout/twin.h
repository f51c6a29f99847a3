/*
 * twin.h - a file's other map, which is to be in force one day (docs/restripe.md): a row NS_T_TWIN
 * beside the inode. Its objects have the incarnation that the file gets when it is placed again, so
 * none is an object of the file; nobody has a layout with one of them.
 */
#ifndef MDS_LO_TWIN_H
#define MDS_LO_TWIN_H
#include "mds/layout/lo.h"

struct lo_twin {
	uint16_t tw_incarnation; /* of its objects */
	struct lo_map tw_map;
};
int lo_twin_get(struct kv_txn *t, uint64_t ino, struct lo_twin *tw);	   /* -ENOENT, -EIO */
int lo_twin_put(struct kv_txn *t, uint64_t ino, const struct lo_twin *tw); /* W */
/* W: its objects are somebody's */
int lo_twin_del(struct kv_txn *t, uint64_t ino);
/* W: and its objects are deleted. 0 as well where there is none. */
int lo_twin_free(struct lo *lo, struct kv_txn *t, const struct ns_inode *i);
bool lo_twin_is(struct kv_txn *t, uint64_t ino);
/* From an inode on; fn returns 0 to go on. */
int lo_twins(struct kv_txn *t, uint64_t from,
	     int (*fn)(void *arg, uint64_t ino, const struct lo_twin *tw), void *arg);
/* a row's bytes: 0 or -EIO */
int lo_twin_decode(struct kv_slice id, struct kv_slice val, uint64_t *ino, struct lo_twin *tw);
/* The same objects. */
bool lo_twin_same(const struct lo_twin *a, const struct lo_twin *b);
/* Placed, as the file's policy says but with these stripes of that unit, by servers of now; names
 * that no twin of the file had lately. -EINVAL, -EAGAIN or -ENOSPC with a line in err. */
int lo_twin_place(struct lo *lo, const struct ns_inode *i, const struct lo_map *m, unsigned stripes,
		  uint32_t unit, unsigned copy, uint32_t patience_ms, struct lo_twin *tw, char *err,
		  size_t errlen);

/* What data servers are asked (proto/ctl.x). done is called once, on the calling loop, never from
 * inside the call. 0; -ESTALE: it is not watched by this session; -EREMOTEIO: the source failed;
 * -ENOSPC, -EIO: the server failed; -ETIMEDOUT: it was not reached. */
struct lo_anew {
	void (*an_done)(struct lo_anew *an, int err);
	void *an_priv;
	/* WATCH: an object of the file */
	ctl_watch_res an_taken;
	ctl_span an_span[CTL_SPANS_MAX]; /* taken, or to be filled */
	unsigned an_nspan;
	unsigned an_source, an_target; /* FILL: objects of the file's map, and of the twin's */
	ctl_fill_res an_filled;
	/* lo's own */
	struct dsc_ctl an_ctl;
	ctl_status an_status;
	ctl_addr an_addrs[DSC_ADDRS];
	char an_key[2 * CAP_TLS_KEY_LEN + 1];
	struct dsc_server an_peer;
};
void lo_watch(struct lo *lo, struct lo_anew *an, const struct ns_inode *i, const struct lo_map *m,
	      unsigned obj, int step, uint64_t session);
/* an_span, an_source and an_target are set. end: and it ends at size. */
void lo_fill(struct lo *lo, struct lo_anew *an, const struct ns_inode *i, const struct lo_map *m,
	     const struct lo_twin *tw, bool end, uint64_t size);
#endif
