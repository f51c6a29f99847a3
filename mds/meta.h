/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.h - the inside of export-meta and import-meta (docs/meta-export.md): a metadata store as
 * lines of JSON.
 */
#ifndef MDS_META_H
#define MDS_META_H
#include "kv/kv.h"
#include "mds/backup.h"
#include "mds/backup_json.h"

/* No line is longer: a row of the largest size as bytes. */
#define META_LINE_MAX (2u * (KV_KEY_MAX + KV_VALUE_MAX) + 512)
#define META_VERSION  1

/* ---- one description for both ways: meta_io.c ---- */

/* A line that is being made. */
struct meta_line {
	char *ml_buf;
	size_t ml_len, ml_room;
	bool ml_failed; /* out of memory */
};
void meta_line_add(struct meta_line *l, const char *text, size_t len);
void meta_line_string(struct meta_line *l, const char *text, size_t len); /* in quotes */
void meta_line_hex(struct meta_line *l, const uint8_t *p, size_t len);	  /* in quotes */

/*
 * A row on its way: from its bytes to the members of a line (mi_out), or back (mi_jr). Each
 * function below describes the next bytes of the row, in both directions. Going out, bytes that do
 * not fit set mi_bad; coming in, a member that does not fit is an error of mi_jr.
 */
struct meta_io {
	struct meta_line *mi_out;
	const uint8_t *mi_in;
	size_t mi_left;
	bool mi_bad;
	struct json_read *mi_jr;
	uint8_t *mi_to;
	size_t mi_len, mi_max;
	bool mi_big; /* in keys numbers are big-endian */
};
bool meta_wrong(const struct meta_io *m);
/* Numbers of n bytes. */
uint64_t meta_uint(struct meta_io *m, const char *name, unsigned n);
int64_t meta_int(struct meta_io *m, const char *name); /* two's complement */
uint64_t meta_id(struct meta_io *m, const char *name); /* 16 hexadecimal digits, highest first */
bool meta_bool(struct meta_io *m, const char *name);
/* A byte that is the place of a word. */
unsigned meta_word(struct meta_io *m, const char *name, const char *const *words);
/* A byte: an array of the words whose bits are set. */
unsigned meta_flags(struct meta_io *m, const char *name, const char *const *words);
void meta_time(struct meta_io *m, const char *seconds, const char *nanoseconds);
/* A plain byte, of which the caller makes members. */
uint8_t meta_raw(struct meta_io *m, uint8_t v);
uint64_t meta_value(struct meta_io *m, const char *name, uint64_t v, uint64_t most);
void meta_zero(struct meta_io *m, size_t n);
void meta_hex(struct meta_io *m, const char *name, size_t n);
void meta_hex_rest(struct meta_io *m, const char *name, size_t most);
void meta_uuid(struct meta_io *m, const char *name);
/* Texts. What is not UTF-8, or has a NUL, is the member with _hex. */
#define META_TEXT(name) name, name "_hex"
#define META_REST	SIZE_MAX
/* n bytes that hold the length of a text that follows later. */
size_t meta_len(struct meta_io *m, const char *name, const char *hex, unsigned n);
void meta_text(struct meta_io *m, const char *name, const char *hex, size_t len);
void meta_padded(struct meta_io *m, const char *name, const char *hex, size_t n);
/* Does the row end here? Coming in: because the member is not there. */
bool meta_ends(const struct meta_io *m, const char *next);

/* An object in an object, and an array. */
struct meta_sub {
	struct json_read ms_read, *ms_was;
	const char *ms_name;
	json_t *ms_array;
};
void meta_begin(struct meta_io *m, struct meta_sub *s, const char *name);
void meta_end(struct meta_io *m, struct meta_sub *s);
/* n bytes that hold the number of items of an array that follows later. */
size_t meta_count(struct meta_io *m, const char *name, unsigned n);
void meta_list(struct meta_io *m, struct meta_sub *s, const char *name, size_t n);
void meta_item(struct meta_io *m, struct meta_sub *s, size_t i);
void meta_item_end(struct meta_io *m, struct meta_sub *s);
void meta_list_end(struct meta_io *m, struct meta_sub *s);
/* n numbers of 8 bytes. */
void meta_numbers(struct meta_io *m, const char *name, size_t n);

/* ---- the rows: meta_rows.c ---- */

struct meta_kind {
	const char *mk_name;
	uint8_t mk_table; /* the first byte of the key */
	int mk_sort;	  /* the second one; -1: no matter */
	size_t mk_key;	  /* length of the key; 0: no matter */
	void (*mk_id)(struct meta_io *m);
	void (*mk_row)(struct meta_io *m);
};
extern const struct meta_kind meta_kinds[];
extern const size_t meta_kinds_n;

/* ---- lines: meta_line.c ---- */

/* Makes the line of a row, with its newline. *raw: the row is none that is known, so that its line
 * has its bytes. 0 or -ENOMEM. */
int meta_line_of(struct meta_line *l, struct kv_slice key, struct kv_slice val, bool *raw);

struct meta_row {
	uint8_t mr_key[KV_KEY_MAX];
	uint8_t *mr_val; /* the caller's */
	size_t mr_key_len, mr_val_len;
	bool mr_raw;
};
/* Reads the line of a row; mr_val has so much room. Trusts nothing. False: why says what is
 * wrong. */
bool meta_row_of(const char *line, size_t len, struct meta_row *r, char *why, size_t max,
		 size_t room);

struct meta_head {
	char mh_cluster[BACKUP_UUID_TEXT];
	uint64_t mh_boot;
	unsigned mh_incarnation;
	int64_t mh_made_at;
	char mh_program[BACKUP_TEXT_MAX];
};
int meta_head_text(const struct meta_head *h, char out[BACKUP_LINE_MAX]);
bool meta_head_parse(const char *line, size_t len, struct meta_head *h, char *why, size_t max);

/* ---- an import, line by line: meta_check.c ---- */

/* What is known so far of the lines of an export. */
struct meta_check {
	uint64_t mc_lines; /* read so far */
	struct meta_head mc_head;
	bool mc_edited; /* the sum may be another one */
	bool mc_super, mc_root, mc_over;
	uint8_t mc_dir_key[16];
	uint64_t mc_raw; /* lines of bytes */
	crypto_generichash_state mc_hash;
	struct meta_row mc_row; /* of the last line, if it had one */
};
bool meta_check_begin(struct meta_check *c, bool edited);
void meta_check_free(struct meta_check *c);
/* Takes the next line, without its newline. Returns 1: mc_row is a row to put; 0: none; or -EINVAL
 * and why. */
int meta_check_line(struct meta_check *c, const char *line, size_t len, char *why, size_t max);
/* At the end of the input. */
bool meta_check_end(const struct meta_check *c, char *why, size_t max);

/* ---- the commands ---- */
int meta_export(const struct backup_args *a, const char *to);
int meta_import(const struct backup_args *a, const char *from, bool edited);
#endif
