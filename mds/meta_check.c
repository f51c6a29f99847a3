/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_check.c - reads an export line by line, and says what is wrong with the first wrong line:
 * the form of each line, and what a server that has the row would refuse or not find. Needs no
 * memory but for one line.
 */
#include "mds/layout/lo.h"
#include "mds/meta.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool meta_check_begin(struct meta_check *c, bool edited)
{
	*c = (struct meta_check){.mc_edited = edited};
	crypto_generichash_init(&c->mc_hash, NULL, 0, BACKUP_HASH);
	c->mc_row.mr_val = malloc(KV_VALUE_MAX);
	return c->mc_row.mr_val != NULL;
}

void meta_check_free(struct meta_check *c)
{
	free(c->mc_row.mr_val);
	c->mc_row.mr_val = NULL;
}

static int check_fail(char *why, size_t max, const char *what)
{
	snprintf(why, max, "%s", what);
	return -EINVAL;
}

static struct kv_slice check_key(const struct meta_check *c)
{
	return (struct kv_slice){c->mc_row.mr_key, c->mc_row.mr_key_len};
}

static struct kv_slice check_val(const struct meta_check *c)
{
	return (struct kv_slice){c->mc_row.mr_val, c->mc_row.mr_val_len};
}

static int check_super(struct meta_check *c, char *why, size_t max)
{
	char cluster[BACKUP_UUID_TEXT];
	struct ns_super su;
	uint64_t inodes;

	if (c->mc_super)
		return check_fail(why, max, "a second line of kind cluster");
	if (ns_super_decode(check_val(c), &su, &inodes))
		return check_fail(why, max, "weft-mds would not read this row: a value is wrong");
	lo_uuid_text(su.su_uuid, cluster);
	if (strcmp(cluster, c->mc_head.mh_cluster) != 0)
		return check_fail(why, max, "uuid: the first line names another cluster");
	memcpy(c->mc_dir_key, su.su_dir_key, sizeof(c->mc_dir_key));
	c->mc_super = true;
	return 1;
}

static int meta_check_inode(struct meta_check *c, char *why, size_t max)
{
	struct ns_inode i;
	struct lo_map map;

	if (ns_inode_decode(check_val(c), ns_get64(c->mc_row.mr_key + 1), &i))
		return check_fail(why, max, "weft-mds would not read this row: a value is wrong");
	if (i.i_type == NS_REG && i.i_blob.s_len && lo_map_decode(i.i_blob, &map))
		return check_fail(why, max, "layout: weft-mds would not read it");
	if (i.i_ino == NS_ROOT_INO && i.i_type == NS_DIR)
		c->mc_root = true;
	return 1;
}

/* A name in another slot would be in READDIR, and LOOKUP would not find it. */
static int check_name(struct meta_check *c, char *why, size_t max)
{
	struct ns_dirent d;
	uint64_t dir, hash;

	if (ns_dirent_decode(check_key(c), check_val(c), &dir, &d))
		return check_fail(why, max, "weft-mds would not read this row: a value is wrong");
	hash = ns_name_hash(c->mc_dir_key, d.d_name, d.d_len);
	if (d.d_cookie < hash || d.d_cookie >= hash + NS_SLOT_WINDOW)
		return check_fail(why, max, "slot: it is none of this name's");
	return 1;
}

static int check_row(struct meta_check *c, const char *line, size_t len, char *why, size_t max)
{
	if (!meta_row_of(line, len, &c->mc_row, why, max, KV_VALUE_MAX))
		return -EINVAL;
	c->mc_raw += c->mc_row.mr_raw;
	if (!c->mc_super && (c->mc_row.mr_raw || c->mc_row.mr_key[0] != NS_K_SUPER))
		return check_fail(why, max, "the second line must be of kind cluster");
	if (c->mc_row.mr_raw)
		return 1;
	switch (c->mc_row.mr_key[0]) {
	case NS_K_SUPER:
		return check_super(c, why, max);
	case NS_K_INODE:
		return meta_check_inode(c, why, max);
	case NS_K_DIRENT:
		return check_name(c, why, max);
	default:
		return 1;
	}
}

/* The kind stands first, maybe with spaces that an editor has put. */
static bool is_last(const char *line, size_t len)
{
	static const char *const words[] = {"{", "\"kind\"", ":", "\"end\""};
	size_t at = 0;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i]);

		while (at < len && line[at] == ' ')
			at++;
		if (len - at < n || memcmp(line + at, words[i], n) != 0)
			return false;
		at += n;
	}
	return true;
}

static int check_last(struct meta_check *c, const char *line, size_t len, char *why, size_t max)
{
	uint8_t hash[BACKUP_HASH], said[BACKUP_HASH];
	struct json_read jr;
	uint64_t rows;
	bool bad;

	crypto_generichash_final(&c->mc_hash, hash, sizeof(hash));
	json_read_line(&jr, line, len);
	json_read_text(&jr, "kind", 8);
	rows = (uint64_t)json_read_int(&jr, "rows", 0, INT64_MAX);
	json_read_hex(&jr, "blake2b", said, sizeof(said));
	json_read_end(&jr);
	bad = jr.jr_bad;
	if (bad)
		snprintf(why, max, "%s", jr.jr_why);
	json_read_free(&jr);
	if (bad)
		return -EINVAL;
	if (rows != c->mc_lines - 2) {
		snprintf(why, max, "rows: it says %lu, and there are %lu lines of rows before it",
			 (unsigned long)rows, (unsigned long)c->mc_lines - 2);
		return -EINVAL;
	}
	if (!c->mc_edited && memcmp(hash, said, sizeof(hash)) != 0)
		return check_fail(why, max,
				  "blake2b: the lines before it have another sum: they were "
				  "damaged, or changed (--edited takes changed lines)");
	c->mc_over = true;
	return 0;
}

int meta_check_line(struct meta_check *c, const char *line, size_t len, char *why, size_t max)
{
	int rc = 0;

	why[0] = 0;
	c->mc_lines++;
	if (c->mc_over)
		return check_fail(why, max, "there are lines behind the last one");
	if (c->mc_lines == 1)
		rc = meta_head_parse(line, len, &c->mc_head, why, max) ? 0 : -EINVAL;
	else if (is_last(line, len))
		return check_last(c, line, len, why, max);
	else
		rc = check_row(c, line, len, why, max);
	crypto_generichash_update(&c->mc_hash, (const uint8_t *)line, len);
	crypto_generichash_update(&c->mc_hash, (const uint8_t *)"\n", 1);
	return rc;
}

bool meta_check_end(const struct meta_check *c, char *why, size_t max)
{
	if (!c->mc_over)
		snprintf(why, max,
			 "the file ends behind line %lu, without its last line: it was "
			 "cut off",
			 (unsigned long)c->mc_lines);
	else if (!c->mc_root)
		snprintf(why, max, "there is no line of the root directory (inode %016x)",
			 NS_ROOT_INO);
	else
		return true;
	return false;
}
