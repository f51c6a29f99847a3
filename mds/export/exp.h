/*
 * exp.h - exports: who may use which part of the name space, from where, with which protection.
 *
 * A file becomes a table (base/exports.h), and the table's paths become directories. What one peer
 * may do is a view of the table: for each export the rule that its address meets, if any. A view is
 * made once per connection and table; a request then finds its rule by the number in its file
 * handle, without a lock and without a look-up of names.
 *
 * Names. An export has a number (given in the file, or made of its path), which is in every file
 * handle given out under it. Number 0 is the export of "/", and where that is not exported, or not
 * to this peer, the pseudo file system (RFC 8881 section 7): the directories that lead to what the
 * peer may use.
 *
 * Pins. The root of an export and the directories above it stay where they are while a table is in
 * force: renaming or removing one would lead handles out of their export. exp_set_pinned tells.
 *
 * Threads. exp_set_get: any; a reload: any but a loop's or the committer's. A view belongs to the
 * thread that made it.
 */
#ifndef MDS_EXP_H
#define MDS_EXP_H
#include "base/exports.h"
#include "mds/namespace/ns.h"

/* A directory on the way to an export, or an export's root. */
struct exp_pin {
	uint64_t p_ino, p_parent; /* the root's parent is 0 */
	const char *p_name;	  /* in an export's path */
	size_t p_len;
	uint64_t p_below; /* bits: exports whose root this is or leads to */
	int p_root;	  /* the export whose root it is, or -1 */
	int p_owner;	  /* the innermost export it lies in, or -1 */
};

/* table.c. W where a directory is made: finds (create: makes) the directories. */
int exp_resolve(struct exp_table *t, struct ns *ns, struct kv_txn *txn, bool create,
		struct ns_time now);
/* The same directory, and the same rules for the same patterns. */
bool exp_same(const struct exp *a, const struct exp *b);
const struct exp_pin *exp_pin(const struct exp_table *t, uint64_t ino);

/*
 * record.c: what each export says is kept in the store. W: the table is in force from this
 * transaction on, as this generation. A directory whose export is gone, or says something else
 * about those that it spoke of before, is put down as one below which capabilities have to end.
 * -EIO, -EPROTONOSUPPORT: a row is damaged, or of a later program.
 */
int exp_record(const struct exp_table *t, struct ns *ns, struct kv_txn *txn, uint64_t generation);
/* Such a directory, and what the change is known by: one of another boot, or not after
 * exp_set_generation, is in force. */
struct exp_ending {
	uint64_t en_root, en_boot, en_generation;
};
/* fn as ns_rows's. */
int exp_endings(struct kv_txn *txn, int (*fn)(void *arg, const struct exp_ending *e), void *arg);
/* W: nothing of before that change can be used any more. Where it was changed once more meanwhile,
 * nothing is done. */
int exp_ending_over(struct kv_txn *txn, const struct exp_ending *e);

/* What a peer may do under one export, or in the pseudo file system. */
struct exp_grant {
	const struct exp_rule *g_rule; /* NULL: the pseudo file system */
	uint64_t g_root;
	uint16_t g_id;
	/* bits by enum exp_sec: what this connection may use it with */
	uint8_t g_ok;
	bool g_ro;
};

struct exp_view {
	unsigned v_refs; /* of one thread */
	struct exp_table *v_table;
	enum exp_tls v_tls;
	/* bits by export; unknown: it hangs on a name that is not known now */
	uint64_t v_usable, v_unknown;
	uint64_t v_until_ns; /* names are asked again; 0: never */
	struct exp_grant v_pseudo;
	struct exp_grant v_grant[]; /* by export; those that are not usable are zero */
};

/* What stands for the grant where it is not known yet which it is: the name service does not tell.
 * It is no grant, and nobody enters it. */
extern const struct exp_grant exp_unknown;

/* match as for exp_match. NULL: no memory. */
struct exp_view *exp_view_new(struct exp_table *t, const uint8_t addr[16], uint16_t port,
			      enum exp_tls tls, const uint8_t *match);
void exp_view_put(struct exp_view *v);
/* All that answer with a grant may answer &exp_unknown. */
/* Where a handle of this number and inode is: a grant, or NULL: not the peer's. */
const struct exp_grant *exp_of_handle(const struct exp_view *v, uint16_t id, uint64_t ino);
/* Where the root of the name space is: always somewhere. */
const struct exp_grant *exp_root(const struct exp_view *v);
/* Where a directory reached by name from a directory under `from` is: from itself, another export,
 * the pseudo file system, or NULL: it is not shown. */
const struct exp_grant *exp_down(const struct exp_view *v, const struct exp_grant *from,
				 uint64_t ino);
/* A directory of the pseudo file system, entry by entry: what is shown of it, not what is in it,
 * counts. Cookies as ns_readdir's. */
int exp_pseudo_readdir(const struct exp_view *v, uint64_t dir, uint64_t after,
		       int (*fn)(void *arg, const struct ns_dirent *d), void *arg, bool *eof);
/* Where the parent of a directory under `from` is; NULL: outside. dir is not the root of the name
 * space. */
const struct exp_grant *exp_up(const struct exp_view *v, const struct exp_grant *from, uint64_t dir,
			       uint64_t parent, struct ns *ns, struct kv_txn *txn);
static inline bool exp_is_pseudo(const struct exp_grant *g)
{
	return !g->g_rule;
}
/* What RFC 8881 section 2.6.3.1 offers for it: enum exp_sec in order. */
unsigned exp_secs(const struct exp_view *v, const struct exp_grant *g, uint8_t out[EXP_SECS]);

/* set.c: the table in force. */
struct exp_set;
/* Reads and resolves; a bad file is an error. Blocks: start-up and the reloading thread. */
int exp_set_open(struct exp_set **out, struct ns *ns, const char *path, char *err, size_t errlen);
void exp_set_close(struct exp_set *s);
/* The file again. On an error the old table stays. Any thread but a loop's or the committer's. */
int exp_set_reload(struct exp_set *s, char *err, size_t errlen);
/* The table in force, which the caller puts. Any thread. */
struct exp_table *exp_set_get(struct exp_set *s);
/* Rises with each reload: whoever keeps a table asks this, which is one load. */
uint64_t exp_set_generation(const struct exp_set *s);
/* There are some beside the root of the name space: one load. */
bool exp_set_has_pins(const struct exp_set *s);
/* Exports' roots and what is above them: on the committer, so that it holds in the transaction. */
bool exp_set_pinned(struct exp_set *s, uint64_t ino);
const char *exp_set_path(const struct exp_set *s);
#endif
