/*
 * exp.h - exports: who may use which part of the name space, from where, with which protection.
 *
 * A file (exports(5), docs/weft-exports.5) becomes a table. A table never changes: a reload makes another, and the old one lives as long as somebody refers
 * to it. What one peer may do is a view of the table: for each export the rule that its address meets, if any. A view is made once per connection and table;
 * a request then finds its rule by the number in its file handle, without a lock and without a look-up of names.
 *
 * Names. An export has a number (given in the file, or made of its path), which is in every file handle given out under it. Number 0 is the export of "/",
 * and where that is not exported, or not to this peer, the pseudo file system (RFC 8881 section 7): the directories that lead to what the peer may use.
 *
 * Pins. The root of an export and the directories above it stay where they are while a table is in force: renaming or removing one would lead handles out of
 * their export. exp_set_pinned tells.
 *
 * Threads. exp_set_get: any; a reload: any but a loop's or the committer's. A view belongs to the thread that made it.
 */
#ifndef MDS_EXP_H
#define MDS_EXP_H
#include "mds/ns/ns.h"
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define EXP_MAX 64
#define EXP_CLIENTS_MAX 4096 /* patterns in one file */
#define EXP_NOBODY 65534u

enum exp_sec { EXP_NONE, EXP_SYS, EXP_KRB5, EXP_KRB5I, EXP_KRB5P, EXP_SECS };
enum exp_tls { EXP_TLS_NONE, EXP_TLS_ON, EXP_TLS_MUTUAL }; /* as the transport counts */
enum exp_squash { EXP_SQUASH_ROOT, EXP_SQUASH_ALL, EXP_SQUASH_NO };
enum exp_layouts { EXP_LAYOUTS_AUTO, EXP_LAYOUTS_YES, EXP_LAYOUTS_NO };

struct exp_rule {
	bool r_ro, r_privileged;
	enum exp_squash r_squash;
	enum exp_tls r_tls;
	enum exp_layouts r_layouts;
	uint32_t r_anon_uid, r_anon_gid;
	uint8_t r_sec[EXP_SECS], r_nsec; /* enum exp_sec, in the order of the file */
};

enum exp_kind { EXP_ANY, EXP_NET, EXP_HOST, EXP_WILD /* of a name */, EXP_GROUP };
struct exp_who {
	enum exp_kind w_kind;
	unsigned w_rule;         /* of the export */
	unsigned w_name;         /* HOST, WILD, GROUP: its place among the table's names */
	uint8_t w_addr[16];      /* NET; IPv4 as ::ffff:a.b.c.d */
	unsigned w_bits;         /* of w_addr */
	char *w_text;            /* as written; GROUP without the @ */
};

struct exp {
	uint16_t e_id;
	bool e_create;
	char *e_path;            /* "/", "/a/b" */
	struct exp_who *e_who;   /* in the order of the file: the first that is met decides */
	unsigned e_nwho;
	struct exp_rule *e_rule;
	unsigned e_nrules;
	uint64_t e_root;         /* 0: the path leads to no directory; the export is not served */
};

/* A directory on the way to an export, or an export's root. */
struct exp_pin {
	uint64_t p_ino, p_parent; /* the root's parent is 0 */
	const char *p_name;      /* in an export's path */
	size_t p_len;
	uint64_t p_below;        /* bits: exports whose root this is or leads to */
	int p_root;              /* the export whose root it is, or -1 */
	int p_owner;             /* the innermost export it lies in, or -1 */
};

struct exp_table {
	atomic_uint t_refs;
	uint64_t t_generation;
	struct ns_time t_time;
	struct exp t_exp[EXP_MAX];
	unsigned t_n;
	unsigned t_npatterns;
	struct exp_who **t_name; /* those that are names: what exp_names_match answers for, by place */
	unsigned t_nnames;
	struct exp_pin *t_pin;   /* by number */
	unsigned t_npins;
	bool t_plain;            /* one export, of "/", number 0: nothing is crossed */
};

/* file.c: name is for messages. 0, or a negative errno and one line in err. The table is not resolved yet. */
int exp_parse(const char *text, const char *name, struct exp_table **out, char *err, size_t errlen);
/* The file's; path "": the built-in one. */
int exp_read(const char *path, struct exp_table **out, char *err, size_t errlen);
const char *exp_sec_name(enum exp_sec s);
/* The table as JSON text; malloc'd, NULL: no memory. */
char *exp_json(const struct exp_table *t, const char *path);

/* table.c. W where a directory is made: finds (create: makes) the directories. */
int exp_resolve(struct exp_table *t, struct ns *ns, struct kv_txn *txn, bool create, struct ns_time now);
struct exp_table *exp_get(struct exp_table *t);
void exp_put(struct exp_table *t);
/* NULL: none has this number. */
const struct exp *exp_by_id(const struct exp_table *t, uint16_t id);
/* The same directory, and the same rules for the same patterns. */
bool exp_same(const struct exp *a, const struct exp *b);
const struct exp_pin *exp_pin(const struct exp_table *t, uint64_t ino);
/* IPv4 as ::ffff:a.b.c.d; false: of another family. */
bool exp_addr(const struct sockaddr_storage *ss, uint8_t addr[16], uint16_t *port);
/* What is known of a name and an address: two bits in match, by exp_who.w_name. NULL: nothing of any. */
enum exp_met { EXP_NOT, EXP_MET, EXP_NOT_KNOWN };
static inline size_t exp_match_len(const struct exp_table *t)
{
	return (t->t_nnames + 3) / 4;
}
/* The rule for this address, or NULL. *unknown: NULL because it hangs on a name that is not known now. */
const struct exp_rule *exp_match(const struct exp *e, const uint8_t addr[16], const uint8_t *match, bool *unknown);
/* Blocks on NSS and DNS: which of the table's names this address is. match: exp_match_len bytes. False: some rule hangs on a name that could not be told. */
bool exp_names_match(const struct exp_table *t, const uint8_t addr[16], uint8_t *match);

/* What a peer may do under one export, or in the pseudo file system. */
struct exp_grant {
	const struct exp_rule *g_rule; /* NULL: the pseudo file system */
	uint64_t g_root;
	uint16_t g_id;
	uint8_t g_ok;                  /* bits by enum exp_sec: what this connection may use it with */
	bool g_ro;
};

struct exp_view {
	unsigned v_refs;               /* of one thread */
	struct exp_table *v_table;
	enum exp_tls v_tls;
	uint64_t v_usable, v_unknown;  /* bits by export; unknown: it hangs on a name that is not known now */
	uint64_t v_until_ns;           /* names are asked again; 0: never */
	struct exp_grant v_pseudo;
	struct exp_grant v_grant[];    /* by export; those that are not usable are zero */
};

/* What stands for the grant where it is not known yet which it is: the name service does not tell. It is no grant, and nobody enters it. */
extern const struct exp_grant exp_unknown;

/* match as for exp_match. NULL: no memory. */
struct exp_view *exp_view_new(struct exp_table *t, const uint8_t addr[16], uint16_t port, enum exp_tls tls, const uint8_t *match);
void exp_view_put(struct exp_view *v);
/* All that answer with a grant may answer &exp_unknown. */
/* Where a handle of this number and inode is: a grant, or NULL: not the peer's. */
const struct exp_grant *exp_of_handle(const struct exp_view *v, uint16_t id, uint64_t ino);
/* Where the root of the name space is: always somewhere. */
const struct exp_grant *exp_root(const struct exp_view *v);
/* Where a directory reached by name from a directory under `from` is: from itself, another export, the pseudo file system, or NULL: it is not shown. */
const struct exp_grant *exp_down(const struct exp_view *v, const struct exp_grant *from, uint64_t ino);
/* A directory of the pseudo file system, entry by entry: what is shown of it, not what is in it, counts. Cookies as ns_readdir's. */
int exp_pseudo_readdir(const struct exp_view *v, uint64_t dir, uint64_t after, int (*fn)(void *arg, const struct ns_dirent *d), void *arg, bool *eof);
/* Where the parent of a directory under `from` is; NULL: outside. dir is not the root of the name space. */
const struct exp_grant *exp_up(const struct exp_view *v, const struct exp_grant *from, uint64_t dir, uint64_t parent, struct ns *ns, struct kv_txn *txn);
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
