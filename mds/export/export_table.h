/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_table.h - exports: which clients may use which part of the name space, from where, with
 * which protection.
 *
 * A file becomes a table (common/exports.h), and the table's paths become directories. A view of
 * the table says what one peer may do: for each export the rule that matches the peer's address, if
 * any. There is one view for each connection and table. A request then finds its rule by the number
 * in its file handle, without a lock and without a look-up of names.
 *
 * Names. An export has a number (given in the file, or made from its path), which is in every file
 * handle that is made under it. Number 0 is the export of "/". If that is not exported, or not to
 * this peer, it is the pseudo file system (RFC 8881 section 7): the directories that lead to what
 * the peer may use.
 *
 * Pins. The root of an export and the directories above it stay where they are while a table is in
 * force: to rename or remove one would lead handles out of their export. See export_set_pinned.
 *
 * Threads. export_set_get: any; a reload: any but a loop's or the committer's. Only the thread that
 * made a view uses it.
 */
#ifndef MDS_EXP_H
#define MDS_EXP_H
#include "common/exports.h"
#include "mds/namespace/ns.h"

/* A directory on the way to an export, or an export's root. */
struct exp_pin {
	uint64_t p_ino, p_parent; /* the root's parent is 0 */
	const char *p_name;	  /* in an export's path */
	size_t p_len;
	/* bits: exports whose root it is, or to whose root it leads */
	uint64_t p_below;
	int p_root;  /* the export whose root it is, or -1 */
	int p_owner; /* the innermost export in which it lies, or -1 */
};

/* export_table.c. Finds the directories of the exports; with create also makes them, which is W. */
int export_resolve(struct exp_table *t, struct ns *ns, struct kv_txn *txn, bool create,
		   struct ns_time now);
/* Have they the same directory, and the same rules for the same patterns? */
bool exp_same(const struct exp *a, const struct exp *b);
const struct exp_pin *exp_pin(const struct exp_table *t, uint64_t ino);

/*
 * export_record.c: keeps in the store what each export says. W: the table is in force from this
 * transaction on, as this generation. If an export is gone, or says something else about clients of
 * which it spoke before, puts a row for its directory: capabilities below it have to end. *changed:
 * how many exports came, went, or say something else than their rows; 0 where there were no rows.
 * -EIO, -EPROTONOSUPPORT: a row is damaged, or from a later program.
 */
int export_record(const struct exp_table *t, struct ns *ns, struct kv_txn *txn, uint64_t generation,
		  unsigned *changed);
/* What the exports say, in hexadecimal digits: the same on two nodes whose exports say the same, in
 * whatever order (docs/formats.md has the bytes). */
#define EXPORTS_HASH_LEN 32
void exports_hash(const struct exp_table *t, char out[EXPORTS_HASH_LEN + 1]);
/* Such a directory, and boot and generation of the change. The change is in force if it is from
 * another boot, or not after export_set_generation. */
struct export_revocation {
	uint64_t en_root, en_boot, en_generation;
};
/* fn as in ns_rows. */
int export_revocations(struct kv_txn *txn, int (*fn)(void *arg, const struct export_revocation *e),
		       void *arg);
/* W: nothing from before that change can be used any more, so deletes the row. Does nothing if the
 * directory was changed once more meanwhile. */
int export_revocation_over(struct kv_txn *txn, const struct export_revocation *e);

/* What a peer may do under one export, or in the pseudo file system. */
/* Places of exports in statistics: 0 is no export, the last is all exports past EXP_MAX different
 * ones. An export keeps its place until the process ends. */
#define EXP_SLOTS (EXP_MAX + 2)
/* Returns the number of the export with this place; -1: none has it. Any thread. */
int export_slot_id(unsigned slot);

struct exp_grant {
	const struct exp_rule *g_rule; /* NULL: the pseudo file system */
	uint64_t g_root;
	uint16_t g_id;
	uint8_t g_slot; /* its place in statistics, see export_slot_id */
	/* Bits by enum exp_sec: the flavours that this connection may use. */
	uint8_t g_ok;
	bool g_ro;
};

struct exp_view {
	unsigned v_refs; /* of one thread */
	struct exp_table *v_table;
	enum exp_tls v_tls;
	/* Bits by export. v_unknown: it depends on a name that is not known now. */
	uint64_t v_usable, v_unknown;
	uint64_t v_until_ns; /* when names must be looked up again; 0: never */
	struct exp_grant v_pseudo;
	struct exp_grant v_grant[]; /* by export; zero where not usable */
};

/* Stands for a grant that is not known yet, because the name service does not answer. It grants
 * nothing, and a request must not enter it. */
extern const struct exp_grant exp_unknown;

/* match: see exp_match. NULL: no memory. */
struct exp_view *export_view_new(struct exp_table *t, const uint8_t addr[16], uint16_t port,
				 enum exp_tls tls, const uint8_t *match);
void export_view_put(struct exp_view *v);
/* All functions that return a grant may return &exp_unknown. */
/* Returns the grant of a handle with this export number and inode. NULL: none of the peer's. */
const struct exp_grant *exp_of_handle(const struct exp_view *v, uint16_t id, uint64_t ino);
/* Returns the grant of the name space's root: never NULL. */
const struct exp_grant *exp_root(const struct exp_view *v);
/* Returns the grant of a directory that is reached by name from a directory under `from`: from
 * itself, another export, or the pseudo file system. NULL: the peer must not see it. */
const struct exp_grant *exp_down(const struct exp_view *v, const struct exp_grant *from,
				 uint64_t ino);
/* Lists a directory of the pseudo file system: the entries that the peer may see, whatever else the
 * directory has. Cookies as in ns_readdir. */
int exp_pseudo_readdir(const struct exp_view *v, uint64_t dir, uint64_t after,
		       int (*fn)(void *arg, const struct ns_dirent *d), void *arg, bool *eof);
/* Returns the grant of the parent of a directory under `from`; NULL: outside. dir must not be the
 * root of the name space. */
const struct exp_grant *exp_up(const struct exp_view *v, const struct exp_grant *from, uint64_t dir,
			       uint64_t parent, struct ns *ns, struct kv_txn *txn);
static inline bool exp_is_pseudo(const struct exp_grant *g)
{
	return !g->g_rule;
}
/* Fills out with the flavours that SECINFO offers (RFC 8881 section 2.6.3.1), in the order of enum
 * exp_sec, and returns how many. */
unsigned exp_secs(const struct exp_view *v, const struct exp_grant *g, uint8_t out[EXP_SECS]);

/* export_set.c: the table in force. */
struct exp_set;
/* Reads the file and resolves its paths; a bad file is an error, with a line in err. Blocks: call
 * it at the start. */
int export_set_open(struct exp_set **out, struct ns *ns, const char *path, char *err,
		    size_t errlen);
void export_set_close(struct exp_set *s);
/* Reads the file again. On an error the old table stays, and err has a line. Blocks. Any thread but
 * a loop's or the committer's. */
int export_set_reload(struct exp_set *s, char *err, size_t errlen);
/* Returns the table in force; the caller releases it by exp_put. Any thread. */
struct exp_table *export_set_get(struct exp_set *s);
/* How many exports differed, at the start, from those that were in force in the store before; 0
 * from the first reload on. Any thread. */
unsigned export_set_differed(const struct exp_set *s);
/* Rises with each reload. A thread that keeps a table compares it with this; it costs one load. */
uint64_t export_set_generation(const struct exp_set *s);
/* Are there pins other than the root of the name space? It costs one load. */
bool export_set_has_pins(const struct exp_set *s);
/* Is it an export's root, or above one? Call it on the committer, so that the answer holds in the
 * transaction. */
bool export_set_pinned(struct exp_set *s, uint64_t ino);
const char *export_set_path(const struct exp_set *s);
#endif
