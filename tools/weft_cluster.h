/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_cluster.h - what the files of weft cluster share.
 *
 * A command first checks this machine, and puts what it would do into a plan: folders, files and
 * commands. plan_run then looks at all of them, and refuses before it has changed anything. A file
 * that is there already and has the same text is kept, so that a command that failed in the middle
 * goes on when it runs again.
 */
#ifndef TOOLS_WEFT_CLUSTER_H
#define TOOLS_WEFT_CLUSTER_H
#include "tools/weft_tool.h"
#include "proto/ds_key.h"
#include "proto/rpc.h"
#include <limits.h>
#include <sys/types.h>

/* ---- the plan; weft_cluster_plan.c ---- */

enum plan_owner { PLAN_ROOT, PLAN_ROOT_WEFT, PLAN_WEFT }; /* root:root, root:weft, weft:weft */
enum plan_kind { PLAN_FOLDER, PLAN_FILE, PLAN_COMMAND };

struct plan_step {
	enum plan_kind ps_kind;
	enum plan_owner ps_owner;
	mode_t ps_mode;
	char *ps_what; /* the path, or the command */
	char *ps_text; /* of a file */
	bool ps_secret;
	bool ps_there; /* it is there already, as it should be */
	bool ps_set;   /* a folder that is there gets another owner or mode */
	bool ps_aside; /* --force: another one is there, and is kept as NAME.before */
};

enum { PLAN_STEPS = 24 };
struct plan {
	const char *pl_root; /* before each path; "" or that of --root */
	bool pl_dry, pl_force, pl_systemd;
	uid_t pl_uid; /* of the user weft */
	gid_t pl_gid;
	struct plan_step pl_step[PLAN_STEPS];
	unsigned pl_n, pl_done;
	bool pl_failed; /* out of memory, or too many steps */
	json_t *pl_checks, *pl_did;
};

/* Reads the options that all commands have, and finds the user weft. Prints an error. */
int plan_begin(struct plan *p);
void plan_free(struct plan *p);
/* What a check found: it is good, or it is not and the command goes on. */
void plan_ok(struct plan *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void plan_warn(struct plan *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints an error, and returns EXIT_FAILED. */
int plan_refuse(struct plan *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, unless --force was given: then it is a warning, and returns EXIT_DONE. */
int plan_unless_forced(struct plan *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void plan_folder(struct plan *p, const char *path, enum plan_owner owner, mode_t mode);
/* text: malloc'd, and the plan's; NULL: out of memory. */
void plan_file(struct plan *p, const char *path, enum plan_owner owner, mode_t mode, char *text,
	       bool secret);
void plan_command(struct plan *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Looks at all steps: is there anything in their way? */
int plan_look(struct plan *p);
/* After that: does it replace a file, so that a daemon that runs must read it? */
bool plan_replaces(const struct plan *p);
/* Does the steps that are not done yet, up to the one of that number, or says what it would do. */
int plan_run(struct plan *p, unsigned to);
/* Gives a file its text, which nothing knew before: malloc'd, and the plan's. */
void plan_give_text(struct plan *p, unsigned step, char *text);
/* The text of a file below the root, malloc'd, or NULL. */
char *plan_text_of(const struct plan *p, const char *path);
/* Is there such a file below the root? */
bool plan_there(const struct plan *p, const char *path);
/* path with the root before it; false: too long. */
bool plan_path(const struct plan *p, const char *path, char out[PATH_MAX]);
/* Prints the JSON, if it is wanted. Returns rc. */
int plan_end(struct plan *p, int rc);
/* printf into malloc'd memory; NULL: there is none. */
char *plan_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- checks of this machine; weft_cluster_check.c ---- */

enum { ADDR_TEXT = 80, NET_TEXT = 80 };
/* An address of this machine: "ADDRESS" or "ADDRESS:PORT". */
struct own_addr {
	struct sockaddr_storage oa_ss;
	socklen_t oa_len;
	char oa_text[ADDR_TEXT]; /* with the port */
	char oa_host[ADDR_TEXT]; /* without */
	char oa_net[NET_TEXT];	 /* of its interface: "192.0.2.0/24" */
	bool oa_loopback;
};
/* text NULL: the only address of this machine that is neither of loopback nor of a link alone. */
int check_own_address(struct plan *p, const char *text, uint16_t port, bool alone,
		      struct own_addr *out);
/* Is the port free? Then 0, else an errno. */
int check_port(const struct own_addr *a);
/* The first free port from that of a on, for a data server. */
int check_next_port(struct plan *p, struct own_addr *a);
/* The folder of a store that is to be made, or that is ours already. */
int check_store(struct plan *p, const char *path, bool data, bool ours);
void check_names(struct plan *p, const struct own_addr *a);
void check_limits(struct plan *p);
void check_own_clock(struct plan *p);
/* now_us: what the metadata server's clock says, asked for at this moment. */
int check_clocks(struct plan *p, long long now_us, long long took_us);
unsigned check_threads(void);
/* Bytes of memory for a pool: a part of this machine's, in MiB between these. */
unsigned check_pool_mib(unsigned part, unsigned least, unsigned most);

/* ---- join tokens; weft_cluster_token.c ---- */

struct join_ticket {
	uint8_t jo_id[16], jo_secret[16];
	char jo_mds[ADDR_TEXT], jo_name[CTL_NAME_MAX + 1];
};
enum { TICKET_TEXT = 320 };
/* Which names a data server may have here: units and files are called after it. */
bool ticket_name_ok(const char *name);
/* False: a part is too long. */
bool ticket_make(const struct join_ticket *jo, char out[TICKET_TEXT]);
/* NULL: good; else what is wrong. */
const char *ticket_parse(const char *text, struct join_ticket *jo);
struct ticket_answer {
	ctl_status tx_status;
	long long tx_now_us, tx_ends_at, tx_took_us;
	uint8_t tx_server[16], tx_cluster[16]; /* whose the token is */
	struct ds_key tx_key;		       /* with CTL_TOKEN_TAKE */
};
/* Asks the metadata server. secret: of the claim. Returns 0, or a negative errno and one line in
 * why. */
int ticket_ask(const struct join_ticket *jo, const uint8_t secret[CTL_CLAIM_LEN],
	       ctl_token_step step, struct ticket_answer *out, char *why, size_t len);
#endif
