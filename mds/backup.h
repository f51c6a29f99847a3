/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backup.h - the inside of weft-backup (docs/backup.md): backups of the metadata store.
 */
#ifndef MDS_BACKUP_H
#define MDS_BACKUP_H
#include "kv/kv_rows.h"
#include "mds/namespace/keys.h"
#include <jansson.h>
#include <sodium.h>

/* Exit statuses of weft-backup: done; not done, or a backup is not whole; a usage error. */
enum { BACKUP_DONE = 0, BACKUP_FAILED = 1, BACKUP_USAGE = 2 };

/* Writes "weft: ..." on stderr, and returns BACKUP_FAILED. */
int backup_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- the format of a backup: backup_file.c ---- */

#define BACKUP_LINE_MAX	 2048u
#define BACKUP_VERSION	 1
#define BACKUP_HASH	 32
#define BACKUP_TEXT_MAX	 64
#define BACKUP_UUID_TEXT 37
/* The first line of a backup. */
struct backup_head {
	bool bh_full;		   /* everything; or else what changed in bh_from + 1..bh_to */
	bool bh_logged;		   /* the store keeps its log under bh_log */
	uint8_t bh_log[16];	   /* numbers of transactions are those of this log */
	uint8_t bh_id[KV_ROWS_ID]; /* of this backup's records */
	uint64_t bh_from, bh_to;   /* transactions */
	char bh_cluster[BACKUP_UUID_TEXT];
	uint64_t bh_boot;
	unsigned bh_incarnation;
	int64_t bh_made_at; /* seconds of the epoch */
	char bh_program[BACKUP_TEXT_MAX];
};
/* Writes the line with its newline. */
int backup_head_text(const struct backup_head *h, char out[BACKUP_LINE_MAX]);
/* Trusts nothing. 0, or -EINVAL and what is wrong in why. */
int backup_head_parse(const char *line, size_t len, struct backup_head *h, char *why, size_t max);

struct backup_out {
	int bo_fd;
	struct kv_rows_out *bo_rows;
	crypto_generichash_state bo_hash;
	uint64_t bo_writes, bo_bytes;
};
/* Functions return 0 or -errno. */
int backup_out_begin(struct backup_out *o, int fd, const struct backup_head *h);
int backup_out_put(struct backup_out *o, uint64_t txn, const struct kv_write *w);
/* Writes the last line. */
int backup_out_end(struct backup_out *o);
void backup_out_free(struct backup_out *o);

struct backup_in {
	int bi_fd;
	const char *bi_name; /* for messages */
	struct backup_head bi_head;
	struct kv_rows_in bi_rows;
	crypto_generichash_state bi_hash;
	uint64_t bi_writes, bi_bytes; /* of this backup */
	size_t bi_at, bi_n;
	char bi_why[400]; /* one line after an error */
	char bi_buf[65536];
};
/* name lives as long as in. */
void backup_in_init(struct backup_in *in, int fd, const char *name);
/* Reads the first line of the next backup. Returns 1; 0: the end of the file; or -errno. */
int backup_in_begin(struct backup_in *in);
/* Reads the next record into bi_rows. Returns 1; 0: the backup is whole, its last line and its sum
 * included; or -errno. */
int backup_in_next(struct backup_in *in);
/* Begins again at the first byte of the file. 0 or -errno. */
int backup_in_rewind(struct backup_in *in);
void backup_in_free(struct backup_in *in);
/* Writes all, or returns -errno. */
int backup_write(int fd, const void *data, size_t len);

/* ---- taking one: backup_take.c ---- */

struct backup_store {
	const char *bs_path;
	struct kv *bs_kv;
	struct kv_txn *bs_txn; /* a snapshot */
	struct ns_super bs_super;
};
/* Opens a store to read, and ends this process when it keeps a server from recovering the store
 * after a crash. False: it was said why. */
bool backup_store_open(struct backup_store *s, const char *path);
void backup_store_close(struct backup_store *s);

struct backup_args {
	const char *ba_store, *ba_user; /* mds.store; mds.user or "" */
	const char *ba_conf;		/* the file that they come from */
	bool ba_incremental, ba_json;
	bool ba_log;	      /* mds.log is set there */
	const char *ba_after; /* the backup before, with ba_incremental to a pipe; or NULL */
	const char *ba_out;   /* "-" or a file; NULL: a folder */
	unsigned ba_keep;     /* so many full backups stay in the folder; 0: all */
};
int backup_take(const struct backup_args *a, const char *folder);

/* ---- a folder of backups, and putting one back: backup_restore.c ---- */

/* The backups of a folder, in the order of their numbers. */
struct backup_set {
	char **bk_path;
	size_t bk_n;
	unsigned bk_last; /* the highest number */
};
/* 0 or -errno */
int backup_set_list(const char *folder, struct backup_set *set);
void backup_set_free(struct backup_set *set);
/* Checks that every backup is whole, and that those of a folder follow each other. */
int backup_verify(char **sources, int n, bool json);
int backup_restore(const struct backup_args *a, char **sources, int n);

/* An empty store folder, and a store that is built in it (backup_build.c). */
struct backup_build {
	const char *bb_store;
	char bb_work[4096]; /* the folder in which it is built */
	int bb_lock;	    /* keeps a server from making a store there meanwhile */
	struct kv *bb_kv;
	uid_t bb_uid;
	gid_t bb_gid;
};
/* False: it was said why. */
bool backup_build_begin(struct backup_build *b, const struct backup_args *a);
bool backup_build_open(struct backup_build *b);
/* Closes the store and makes it the store of the folder, durably. */
bool backup_build_end(struct backup_build *b);
/* Removes what was built. */
void backup_build_undo(struct backup_build *b);
/* Says what to do next. */
int backup_build_next(const struct backup_args *a, const char *what);
#endif
