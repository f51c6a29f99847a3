/*
 * exports.h - the exports file (docs/weft-exports.5): who may use which part of a name space, from
 * where, with which protection.
 *
 * The file becomes a table, which its reader resolves: the metadata server to directories of its
 * name space (mds/export), a data server to folders of its machine (ds/path). A table never changes
 * after that: a reload makes another, and the old one lives as long as somebody refers to it.
 *
 * Threads: any.
 */
#ifndef BASE_EXPORTS_H
#define BASE_EXPORTS_H
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define EXP_MAX		64
#define EXP_CLIENTS_MAX 4096 /* patterns in one file */
#define EXP_NOBODY	65534u

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
	unsigned w_rule;    /* of the export */
	unsigned w_name;    /* HOST, WILD, GROUP: its place among the table's names */
	uint8_t w_addr[16]; /* NET; IPv4 as ::ffff:a.b.c.d */
	unsigned w_bits;    /* of w_addr */
	char *w_text;	    /* as written; GROUP without the @ */
};

struct exp {
	uint16_t e_id;
	bool e_create;
	char *e_path;	       /* "/", "/a/b" */
	struct exp_who *e_who; /* in the order of the file: the first that is met decides */
	unsigned e_nwho;
	struct exp_rule *e_rule;
	unsigned e_nrules;
	/* who resolves the table sets it; 0: the path leads to no directory, the export is not
	 * served */
	uint64_t e_root;
};

struct exp_pin;
struct exp_table {
	atomic_uint t_refs;
	uint64_t t_generation;
	int64_t t_sec; /* when it was loaded */
	uint32_t t_nsec;
	struct exp t_exp[EXP_MAX];
	unsigned t_n;
	unsigned t_npatterns;
	/* those that are names: what exp_names_match answers for, by place */
	struct exp_who **t_name;
	unsigned t_nnames;
	/* The metadata server's (mds/export/exp.h): */
	struct exp_pin *t_pin; /* by number; freed with the table */
	unsigned t_npins;
	bool t_plain; /* one export, of "/", number 0: nothing is crossed */
};

/* exports.c: name is for messages. 0, or a negative errno and one line in err. The table is not
 * resolved yet. */
int exp_parse(const char *text, const char *name, struct exp_table **out, char *err, size_t errlen);
/* The file's; path "": the built-in one. */
int exp_read(const char *path, struct exp_table **out, char *err, size_t errlen);
const char *exp_sec_name(enum exp_sec s);
/* The table as JSON text; malloc'd, NULL: no memory. */
char *exp_json(const struct exp_table *t, const char *path);

/* exports_who.c */
struct exp_table *exp_get(struct exp_table *t);
void exp_put(struct exp_table *t);
/* NULL: none has this number. */
const struct exp *exp_by_id(const struct exp_table *t, uint16_t id);
/* IPv4 as ::ffff:a.b.c.d; false: of another family. */
bool exp_addr(const struct sockaddr_storage *ss, uint8_t addr[16], uint16_t *port);
/* An address, or a network in CIDR notation: as exp_addr gives it, and how many of its bits
 * count. */
bool exp_net(const char *text, uint8_t addr[16], unsigned *bits);
/* The first bits of both are the same; at most 128. */
bool exp_same_net(const uint8_t a[16], const uint8_t b[16], unsigned bits);
/* What is known of a name and an address: two bits in match, by exp_who.w_name. NULL: nothing of
 * any. */
enum exp_met { EXP_NOT, EXP_MET, EXP_NOT_KNOWN };
static inline size_t exp_match_len(const struct exp_table *t)
{
	return (t->t_nnames + 3) / 4;
}
/* The rule for this address, or NULL. *unknown: NULL because it hangs on a name that is not known
 * now. */
const struct exp_rule *exp_match(const struct exp *e, const uint8_t addr[16], const uint8_t *match,
				 bool *unknown);
/* Blocks on NSS and DNS: which of the table's names this address is. match: exp_match_len bytes.
 * False: some rule hangs on a name that could not be told. */
bool exp_names_match(const struct exp_table *t, const uint8_t addr[16], uint8_t *match);

/* The same as a question of ask.h. Its key: */
struct exp_names_key {
	uint64_t nk_generation; /* of the table */
	uint8_t nk_addr[16];
};
/* On a worker: the answer about t, or NULL without memory. */
struct ask_val *exp_names_ask(const struct exp_table *t, const struct exp_names_key *key);
/* What the answer v (or NULL) says of t's names, for exp_match; NULL: nothing, it is of another
 * table. */
const uint8_t *exp_names_told(const struct exp_table *t, const struct ask_val *v);
#endif
