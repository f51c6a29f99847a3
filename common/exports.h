/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exports.h - the exports file (docs/weft-exports.5): which clients may use which part of a name
 * space, from where, with which protection.
 *
 * The reader of the file makes a table of it and resolves it: the metadata server to directories of
 * its name space (mds/export), a data server to folders of its machine (ds/path). A table never
 * changes after that. A reload makes a new table; the old one lives as long as it has references.
 *
 * Threads: any.
 */
#ifndef COMMON_EXPORTS_H
#define COMMON_EXPORTS_H
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
enum exp_tls { EXP_TLS_NONE, EXP_TLS_ON, EXP_TLS_MUTUAL }; /* the transport's protection */
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
	unsigned w_rule;    /* the number of the rule in the export */
	unsigned w_name;    /* HOST, WILD, GROUP: its index in xt_name */
	uint8_t w_addr[16]; /* NET; IPv4 as ::ffff:a.b.c.d */
	unsigned w_bits;    /* prefix length of w_addr */
	char *w_text;	    /* as written; GROUP without the @ */
};

struct exp {
	uint16_t e_id;
	bool e_create;
	char *e_path;	       /* "/", "/a/b" */
	struct exp_who *e_who; /* in the order of the file: the first match decides */
	unsigned e_nwho;
	struct exp_rule *e_rule;
	unsigned e_nrules;
	/* set by the daemon that resolves the table; 0: the path leads to no directory, and the
	 * export is not served */
	uint64_t e_root;
};

struct exp_pin;
struct exp_table {
	atomic_uint xt_refs;
	uint64_t xt_generation;
	int64_t xt_sec; /* when it was loaded */
	uint32_t xt_nsec;
	struct exp xt_exp[EXP_MAX];
	unsigned xt_n;
	unsigned xt_npatterns;
	/* patterns that are names; exp_names_match answers for each, by index */
	struct exp_who **xt_name;
	unsigned xt_nnames;
	/* The metadata server's (mds/export/export_table.h): */
	struct exp_pin *xt_pin; /* by number; freed with the table */
	unsigned xt_npins;
	bool xt_plain; /* the only export is "/", number 0: no export is crossed */
};

/* exports.c. name: for messages. Returns 0, or a negative errno and one line in err. The table is
 * not resolved yet. */
int exp_parse(const char *text, const char *name, struct exp_table **out, char *err, size_t errlen);
/* As exp_parse, for a file. path "": the built-in exports. */
int exp_read(const char *path, struct exp_table **out, char *err, size_t errlen);
const char *exp_sec_name(enum exp_sec s);
/* The table as JSON text; malloc'd; NULL: no memory. */
char *exp_json(const struct exp_table *t, const char *path);

/* exports_who.c */
struct exp_table *exp_get(struct exp_table *t);
void exp_put(struct exp_table *t);
/* NULL: no export has this number. */
const struct exp *exp_by_id(const struct exp_table *t, uint16_t id);
/* IPv4 as ::ffff:a.b.c.d; false: another address family. */
bool exp_addr(const struct sockaddr_storage *ss, uint8_t addr[16], uint16_t *port);
/* Parses an address, or a network in CIDR notation; addr as from exp_addr; bits: the prefix
 * length. */
bool exp_net(const char *text, uint8_t addr[16], unsigned *bits);
/* True when the first bits of both are the same; at most 128. */
bool exp_same_net(const uint8_t a[16], const uint8_t b[16], unsigned bits);
/* What is known of an address and the table's names: two bits in match for each exp_who.w_name.
 * match NULL: nothing is known. */
enum exp_met { EXP_NOT, EXP_MET, EXP_NOT_KNOWN };
static inline size_t exp_match_len(const struct exp_table *t)
{
	return (t->xt_nnames + 3) / 4;
}
/* The rule for this address, or NULL. *unknown: NULL because the rule depends on a name that is not
 * known now. */
const struct exp_rule *exp_match(const struct exp *e, const uint8_t addr[16], const uint8_t *match,
				 bool *unknown);
/* Finds out by NSS and DNS which of the table's names this address has; blocks. match:
 * exp_match_len bytes. False: some rule depends on a name that could not be found out. */
bool exp_names_match(const struct exp_table *t, const uint8_t addr[16], uint8_t *match);

/* The same as a query of ask.h. Its key: */
struct exp_names_key {
	uint64_t nk_generation; /* of the table */
	uint8_t nk_addr[16];
};
/* On a worker: the answer for t, or NULL without memory. */
struct ask_val *exp_names_ask(const struct exp_table *t, const struct exp_names_key *key);
/* The part of the answer v (or NULL) that exp_match takes for t; NULL: none, or v is of another
 * table. */
const uint8_t *exp_names_told(const struct exp_table *t, const struct ask_val *v);
#endif
