/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_rows.c - what a row of each kind has, field by field, in the order of its bytes
 * (docs/schema.md, docs/formats.md, docs/meta-export.md). meta_io.c makes lines of it, and rows of
 * lines.
 */
#include "mds/meta.h"

static unsigned version(struct meta_io *m)
{
	return (unsigned)meta_uint(m, "version", 1);
}

/* ---- the name space ---- */

static void no_id(struct meta_io *m)
{
	(void)m;
}

static void ino_id(struct meta_io *m)
{
	meta_id(m, "ino");
}

static void super_row(struct meta_io *m)
{
	unsigned v = version(m);

	if (v >= 3)
		meta_bool(m, "sums");
	meta_zero(m, v >= 3 ? 2 : 3);
	meta_uint(m, "fs", 2);
	meta_uint(m, "incarnation", 2);
	meta_uuid(m, "uuid");
	meta_hex(m, "handle_key", 16);
	meta_hex(m, "name_key", 16);
	meta_uint(m, "boot", 8);
	meta_id(m, "next_ino");
	meta_uint(m, "next_order", 8);
	meta_uint(m, "inodes", 8);
	meta_uint(m, "next_ds", 4);
	meta_uint(m, "next_client", 4);
	if (v >= 2)
		meta_id(m, "boot_id");
}

static const char *const file_types[] = {"none",	 "file",	"directory",
					 "block-device", "char-device", "symlink",
					 "socket",	 "fifo",	NULL};
enum { FILE_REG = 1, FILE_DIR = 2, FILE_LNK = 5 };
enum { INODE_POLICY = 1, INODE_ACL = 4, INODE_SUMS = 8 };

static void sum_members(struct meta_io *m)
{
	meta_int(m, "files");
	meta_int(m, "dirs");
	meta_int(m, "bytes");
	meta_int(m, "stored_bytes");
}

static void sums_part(struct meta_io *m)
{
	struct meta_sub sums, list;
	size_t n;

	meta_begin(m, &sums, "sums");
	version(m);
	meta_bool(m, "unpushed");
	n = meta_count(m, "users", 1);
	meta_zero(m, 1);
	sum_members(m);
	meta_list(m, &list, "users", n);
	for (size_t i = 0; i < n && !meta_wrong(m); i++) {
		meta_item(m, &list, i);
		meta_uint(m, "uid", 4);
		sum_members(m);
		meta_item_end(m, &list);
	}
	meta_list_end(m, &list);
	meta_end(m, &sums);
}

static void acl_part(struct meta_io *m)
{
	static const char *const flags[] = {"auto-inherit", "protected", "defaulted", NULL};
	static const char *const types[] = {"allow", "deny", NULL};
	static const char *const who[] = {"owner", "group",	  "everyone",
					  "user",  "named-group", NULL};
	struct meta_sub acl, list;
	size_t n;

	meta_begin(m, &acl, "acl");
	version(m);
	meta_flags(m, "flags", flags);
	n = meta_count(m, "entries", 2);
	meta_list(m, &list, "entries", n);
	for (size_t i = 0; i < n && !meta_wrong(m); i++) {
		meta_item(m, &list, i);
		meta_word(m, "type", types);
		meta_word(m, "who", who);
		meta_uint(m, "flags", 2);
		meta_uint(m, "mask", 4);
		meta_uint(m, "id", 4);
		meta_item_end(m, &list);
	}
	meta_list_end(m, &list);
	meta_end(m, &acl);
}

/* The top bit of the byte says that no client has a capability of the epoch. */
static void map_unit(struct meta_io *m)
{
	uint8_t b = m->mi_out ? meta_raw(m, 0) : 0;
	uint64_t unit = meta_value(m, "unit_log2", b & 0x7f, 0x7f);
	uint64_t none = meta_value(m, "unfenced", b >> 7, 1);

	if (!m->mi_out)
		meta_raw(m, (uint8_t)(unit | none << 7));
}

static void map_objects(struct meta_io *m, size_t n)
{
	static const char *const states[] = {"in-sync", "stale", "rebuilding", "absent", NULL};
	static const char *const known[] = {"exists", "leaving", "late", NULL};
	struct meta_sub list;

	meta_list(m, &list, "objects", n);
	for (size_t i = 0; i < n && !meta_wrong(m); i++) {
		meta_item(m, &list, i);
		meta_uint(m, "ds", 4);
		meta_word(m, "state", states);
		meta_flags(m, "known", known);
		meta_uint(m, "copy", 1);
		meta_uint(m, "next_copy", 1);
		meta_id(m, "writes");
		meta_item_end(m, &list);
	}
	meta_list_end(m, &list);
}

static void map_tail(struct meta_io *m, unsigned v)
{
	uint8_t b = m->mi_out ? meta_raw(m, 0) : 0;
	uint64_t flags = meta_value(m, "spare", b & 1, 1);
	size_t domain, group;

	flags |= meta_value(m, "moving", b >> 1 & 1, 1) << 1;
	flags |= meta_value(m, "pinned_mirror", b >> 2, 63) << 2;
	if (!m->mi_out)
		meta_raw(m, (uint8_t)flags);
	domain = meta_len(m, META_TEXT("domain"), 1);
	meta_uint(m, "from_ds", 4);
	meta_text(m, META_TEXT("domain"), domain);
	if (v >= 5) {
		group = meta_len(m, META_TEXT("pin_group"), 1);
		meta_text(m, META_TEXT("pin_group"), group);
	}
	meta_text(m, META_TEXT("groups"), META_REST);
}

/* It ends the row. */
static void map_part(struct meta_io *m)
{
	uint64_t stripes, mirrors;
	struct meta_sub map;
	unsigned v;

	meta_begin(m, &map, "layout");
	v = version(m);
	stripes = meta_uint(m, "stripes", 1);
	mirrors = meta_uint(m, "mirrors", 1);
	map_unit(m);
	meta_uint(m, "epoch", 4);
	map_objects(m, stripes * mirrors);
	if (v >= 3)
		map_tail(m, v);
	meta_end(m, &map);
}

static void policy_part(struct meta_io *m)
{
	struct meta_sub policy;
	size_t domain;
	unsigned v;

	meta_begin(m, &policy, "policy");
	v = version(m);
	meta_uint(m, "stripes", 1);
	meta_uint(m, "mirrors", 1);
	meta_uint(m, "unit_log2", 1);
	if (v >= 4) {
		meta_uint(m, "trash_s", 4);
		meta_bool(m, "has_threshold");
	}
	if (v >= 3)
		meta_uint(m, "threshold_bytes", 8);
	if (v >= 2) {
		domain = meta_len(m, META_TEXT("domain"), 1);
		meta_text(m, META_TEXT("domain"), domain);
		meta_text(m, META_TEXT("groups"), META_REST);
	}
	meta_end(m, &policy);
}

static void inode_row(struct meta_io *m)
{
	static const char *const flags[] = {"policy", "xattrs", "acl", "sums", NULL};
	unsigned type, has;

	version(m);
	type = meta_word(m, "type", file_types);
	meta_uint(m, "mode", 2);
	meta_uint(m, "incarnation", 2);
	has = meta_flags(m, "flags", flags);
	meta_zero(m, 1);
	meta_uint(m, "links", 4);
	meta_uint(m, "uid", 4);
	meta_uint(m, "gid", 4);
	meta_uint(m, "entries", 4);
	meta_uint(m, "size_bytes", 8);
	meta_uint(m, "used_bytes", 8);
	meta_id(m, "change");
	meta_id(m, "parent");
	meta_id(m, "verifier");
	meta_uint(m, "major", 4);
	meta_uint(m, "minor", 4);
	meta_time(m, "atime_at", "atime_ns");
	meta_time(m, "mtime_at", "mtime_ns");
	meta_time(m, "ctime_at", "ctime_ns");
	meta_time(m, "btime_at", "btime_ns");
	if (has & INODE_SUMS)
		sums_part(m);
	if (has & INODE_ACL)
		acl_part(m);
	if (type == FILE_REG && !meta_ends(m, "layout"))
		map_part(m);
	if (type == FILE_DIR && has & INODE_POLICY)
		policy_part(m);
	if (type == FILE_LNK)
		meta_text(m, META_TEXT("target"), META_REST);
}

static void name_id(struct meta_io *m)
{
	meta_id(m, "dir");
	meta_id(m, "slot");
}

static void name_row(struct meta_io *m)
{
	version(m);
	meta_word(m, "type", file_types);
	meta_id(m, "ino");
	meta_text(m, META_TEXT("name"), META_REST);
}

static void xattr_id(struct meta_io *m)
{
	meta_id(m, "ino");
	meta_text(m, META_TEXT("name"), META_REST);
}

static void xattr_row(struct meta_io *m)
{
	version(m);
	meta_text(m, META_TEXT("value"), META_REST);
}

static void mark_row(struct meta_io *m)
{
	version(m);
}

static void stamp_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "until_ns", 8);
}

static void boot_id(struct meta_io *m)
{
	meta_uint(m, "boot", 8);
}

static void boot_row(struct meta_io *m)
{
	version(m);
	meta_id(m, "id");
}

/* ---- sums (docs/decisions/du.md) ---- */

static void dir_id(struct meta_io *m)
{
	meta_id(m, "dir");
}

static void user_id(struct meta_io *m)
{
	meta_uint(m, "uid", 4);
}

static void counted_row(struct meta_io *m)
{
	version(m);
	sum_members(m);
}

static void link_id(struct meta_io *m)
{
	meta_id(m, "ino");
	meta_id(m, "dir");
}

static void link_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "names", 4);
}

/* ---- the trash; the second byte of these keys says what the row is ---- */

static void trash_sum_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "entries", 8);
	meta_uint(m, "bytes", 8);
}

static void trash_id(struct meta_io *m)
{
	meta_id(m, "dir");
	meta_id(m, "hash");
	meta_id(m, "order");
	meta_id(m, "ino");
}

static void trash_row(struct meta_io *m)
{
	struct meta_sub inode;
	unsigned type;
	size_t len;

	version(m);
	type = meta_word(m, "type", file_types);
	len = meta_len(m, META_TEXT("name"), 1);
	meta_uint(m, "uid", 4);
	meta_uint(m, "bytes", 8);
	meta_uint(m, "removed_ns", 8);
	meta_uint(m, "expires_at", 8);
	meta_text(m, META_TEXT("name"), len);
	if (type == FILE_REG)
		return;
	meta_begin(m, &inode, "inode");
	inode_row(m);
	meta_end(m, &inode);
}

static void trash_expiry_id(struct meta_io *m)
{
	meta_uint(m, "expires_at", 8);
	meta_id(m, "ino");
}

static void trash_at_row(struct meta_io *m)
{
	version(m);
	meta_id(m, "dir");
	meta_id(m, "hash");
	meta_uint(m, "removed_ns", 8);
}

static void trash_job_id(struct meta_io *m)
{
	meta_uint(m, "number", 8);
}

static void trash_job_row(struct meta_io *m)
{
	static const char *const kinds[] = {"none", "restore", "empty", NULL};
	size_t len;

	version(m);
	meta_word(m, "job", kinds);
	len = meta_len(m, META_TEXT("name"), 1);
	meta_uint(m, "begun_at", 8);
	meta_id(m, "top");
	meta_id(m, "dir");
	meta_uint(m, "before_at", 8);
	meta_id(m, "at_dir");
	meta_id(m, "at_hash");
	meta_uint(m, "at_removed_ns", 8);
	meta_id(m, "at_ino");
	meta_uint(m, "done", 8);
	meta_uint(m, "bytes", 8);
	meta_uint(m, "failed", 8);
	meta_text(m, META_TEXT("name"), len);
}

/* ---- clients ---- */

static void reply_id(struct meta_io *m)
{
	meta_hex(m, "session", 16);
	meta_uint(m, "slot", 4);
}

static void reply_row(struct meta_io *m)
{
	static const char *const flags[] = {"stateid", "saved-stateid", "cached-only", NULL};

	version(m);
	meta_flags(m, "flags", flags);
	meta_uint(m, "at", 1);
	meta_zero(m, 1);
	meta_uint(m, "seq", 4);
	meta_hex(m, "check", 16);
	meta_uint(m, "slots", 4);
	meta_uint(m, "target_slots", 4);
	meta_uint(m, "limit_bytes", 4);
	meta_uint(m, "read_bytes", 4);
	meta_uint(m, "last", 4);
	meta_id(m, "current");
	meta_id(m, "saved");
	meta_id(m, "orders");
	meta_hex(m, "current_stateid", 16);
	meta_hex(m, "saved_stateid", 16);
	meta_uint(m, "current_export", 2);
	meta_uint(m, "saved_export", 2);
	meta_hex_rest(m, "results", 65536);
}

static void client_id(struct meta_io *m)
{
	meta_hex(m, "owner", 32);
}

static void client_row(struct meta_io *m)
{
	unsigned v = version(m);

	meta_uint(m, "number", 4);
	meta_id(m, "verifier");
	if (v >= 2)
		meta_uint(m, "flags", 1);
}

static void write_intent_row(struct meta_io *m)
{
	if (version(m) >= 2)
		meta_uint(m, "flags", 1);
}

/* ---- data servers ---- */

static void uuid_id(struct meta_io *m)
{
	meta_uuid(m, "uuid");
}

static void ds_addresses(struct meta_io *m, size_t n, unsigned v)
{
	struct meta_sub list;

	meta_list(m, &list, "addresses", n);
	for (size_t i = 0; i < n && !meta_wrong(m); i++) {
		meta_item(m, &list, i);
		meta_padded(m, META_TEXT("netid"), 8);
		meta_padded(m, META_TEXT("address"), 64);
		if (v >= 2)
			meta_uint(m, "prefix_bits", 1);
		meta_item_end(m, &list);
	}
	meta_list_end(m, &list);
}

static void ds_join(struct meta_io *m, unsigned v)
{
	meta_uint(m, "joined_boot", 8);
	meta_uint(m, "store_starts", 8);
	meta_id(m, "store_start_id");
	meta_uint(m, "highest_order", 8);
	meta_uint(m, "waits_why", 1);
	meta_zero(m, 7);
	if (v < 7)
		return;
	meta_uint(m, "known_boot", 8);
	meta_uint(m, "joins", 4);
	meta_uint(m, "known_joins", 4);
}

static void ds_row(struct meta_io *m)
{
	unsigned v = version(m);
	size_t n = meta_count(m, "addresses", 1), own, set;

	meta_uint(m, "tls", 1);
	meta_uint(m, "clone_log2", 1);
	meta_uint(m, "number", 4);
	meta_uint(m, "max_read_bytes", 4);
	meta_uint(m, "max_write_bytes", 4);
	meta_uint(m, "capacity_bytes", 8);
	meta_uint(m, "available_bytes", 8);
	meta_padded(m, META_TEXT("name"), 64);
	ds_addresses(m, n, v);
	if (v >= 3) {
		meta_uint(m, "weight", 4);
		own = meta_len(m, META_TEXT("own_labels"), 2);
		set = meta_len(m, META_TEXT("set_labels"), 2);
		meta_text(m, META_TEXT("own_labels"), own);
		meta_text(m, META_TEXT("set_labels"), set);
	}
	if (v >= 4) {
		meta_uint(m, "barred_at", 8);
		meta_uint(m, "barred", 1);
		meta_uint(m, "protocol", 1);
		meta_uint(m, "protocol_boot", 4);
		meta_bool(m, "own_keys");
		meta_uint(m, "key_number", 1);
	}
	if (v >= 5)
		ds_join(m, v);
}

static void generic_row(struct meta_io *m)
{
	size_t path;

	version(m);
	meta_uint(m, "handle_length", 1);
	path = meta_len(m, META_TEXT("path"), 2);
	meta_zero(m, 4);
	meta_uint(m, "next", 8);
	meta_hex(m, "handle", 64);
	meta_text(m, META_TEXT("path"), path);
}

static void spare_id(struct meta_io *m)
{
	meta_uint(m, "ds", 4);
	meta_uint(m, "number", 8);
}

static void spare_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "handle_length", 1);
	meta_hex_rest(m, "handle", 64);
}

static void object_id(struct meta_io *m)
{
	meta_uint(m, "ds", 4);
	meta_id(m, "ino");
	meta_uint(m, "incarnation", 2);
	meta_uint(m, "stripe", 1);
	meta_uint(m, "copy", 1);
}

static void object_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "handle_length", 1);
	meta_zero(m, 6);
	meta_uint(m, "number", 8);
	meta_uint(m, "done_order", 8);
	meta_hex_rest(m, "handle", 64);
}

static void keys_id(struct meta_io *m)
{
	meta_zero(m, 1);
}

static void keys_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "number", 1);
	meta_bool(m, "before_good");
	meta_zero(m, 5);
	meta_uint(m, "rotated_at", 8);
	meta_hex(m, "key", 32);
	meta_hex(m, "key_before", 32);
}

static void order_id(struct meta_io *m)
{
	meta_uint(m, "ds", 4);
	meta_uint(m, "order", 8);
}

static void order_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "type", 1);
	meta_uint(m, "stripe", 1);
	meta_uint(m, "copy", 1);
	meta_uint(m, "fs", 2);
	meta_uint(m, "incarnation", 2);
	meta_id(m, "ino");
	meta_uint(m, "size_bytes", 8);
	meta_uint(m, "epoch", 4);
	meta_uint(m, "client_or_flags", 4);
	if (meta_ends(m, "source"))
		return;
	meta_id(m, "source");
	meta_uint(m, "source_offset", 8);
	meta_uint(m, "offset", 8);
	meta_uint(m, "source_incarnation", 2);
	meta_uint(m, "source_copy", 1);
	meta_bool(m, "source_exists");
	meta_zero(m, 4);
}

/* ---- jobs ---- */

/* Of inode 0: a flag, the version alone. */
static void repair_row(struct meta_io *m)
{
	version(m);
	if (meta_ends(m, "object"))
		return;
	meta_uint(m, "object", 1);
	meta_uint(m, "fails", 1);
	meta_uint(m, "why", 1);
	meta_uint(m, "bad_ds", 4);
	meta_id(m, "session");
	meta_uint(m, "done_bytes", 8);
	meta_uint(m, "after_at", 8);
	meta_bool(m, "now");
	meta_uint(m, "asked", 1);
	meta_uint(m, "number", 1);
	meta_bool(m, "cancelled");
	meta_uint(m, "begun_at", 4);
}

static void moved_row(struct meta_io *m)
{
	version(m);
	meta_zero(m, 7);
	meta_uint(m, "moved_at", 8);
}

static void restripe_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "number", 1);
	meta_uint(m, "incarnation", 2);
	map_part(m);
}

static void hint_id(struct meta_io *m)
{
	static const char *const what[] = {"none", "threshold", "trash", NULL};

	meta_word(m, "what", what);
}

static void scrub_row(struct meta_io *m)
{
	static const char *const flags[] = {"running", "stopped",    "content",	  "dry",
					    "behind",  "first-pass", "not-newer", NULL};
	static const char *const phases[] = {"list",	"second-sight", "files",
					     "content", "over",		NULL};

	version(m);
	meta_flags(m, "flags", flags);
	meta_word(m, "phase", phases);
	meta_uint(m, "cookie_length", 1);
	meta_uint(m, "ds", 4);
	meta_numbers(m, "numbers", 14);
	meta_numbers(m, "counts", 13);
	meta_hex(m, "cookie", 64);
}

static void finding_id(struct meta_io *m)
{
	meta_uint(m, "index", 4);
}

static void finding_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "finding", 1);
	meta_uint(m, "done", 1);
	meta_uint(m, "stripe", 1);
	meta_uint(m, "copy", 1);
	meta_zero(m, 1);
	meta_uint(m, "incarnation", 2);
	meta_uint(m, "ds", 4);
	meta_id(m, "ino");
	meta_uint(m, "size_bytes", 8);
	meta_uint(m, "want_bytes", 8);
}

static void seen_row(struct meta_io *m)
{
	version(m);
	meta_zero(m, 7);
	meta_uint(m, "size_bytes", 8);
}

static void pin_id(struct meta_io *m)
{
	meta_uint(m, "pin", 8);
}

static void pin_row(struct meta_io *m)
{
	static const char *const flags[] = {"recursive", "warm", NULL};
	static const char *const states[] = {"counted", "copied", "held", "leaving", NULL};

	version(m);
	meta_flags(m, "flags", flags);
	meta_word(m, "state", states);
	meta_zero(m, 5);
	meta_id(m, "ino");
	meta_uint(m, "made_at", 8);
	meta_uint(m, "until_at", 8);
	meta_uint(m, "files", 8);
	meta_uint(m, "bytes", 8);
	meta_uint(m, "passed", 8);
	meta_text(m, META_TEXT("group"), META_REST);
}

static void pin_file_id(struct meta_io *m)
{
	meta_uint(m, "pin", 8);
	meta_id(m, "ino");
}

/* ---- exports, tokens, events ---- */

static void export_id(struct meta_io *m)
{
	meta_uint(m, "export", 2);
}

static void export_row(struct meta_io *m)
{
	version(m);
	meta_zero(m, 1);
	meta_uint(m, "patterns", 2);
	meta_id(m, "root");
	meta_hex(m, "digest", 32);
}

static void revocation_id(struct meta_io *m)
{
	meta_id(m, "dir");
}

static void revocation_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "boot", 8);
	meta_uint(m, "generation", 8);
}

static void token_id(struct meta_io *m)
{
	meta_text(m, META_TEXT("name"), META_REST);
}

static void token_row(struct meta_io *m)
{
	static const char *const roles[] = {"none", "read", "operate", "admin", NULL};

	version(m);
	meta_word(m, "role", roles);
	meta_uint(m, "made_at", 8);
	meta_uint(m, "ends_at", 8);
	meta_uint(m, "used_at", 8);
	meta_hex(m, "hash", 32);
}

/* Its two texts have a NUL between them. */
static void tag_id(struct meta_io *m)
{
	meta_text(m, META_TEXT("key"), META_REST);
}

static void tag_row(struct meta_io *m)
{
	version(m);
	meta_uint(m, "made_at", 8);
}

static void join_token_id(struct meta_io *m)
{
	meta_hex(m, "token", 16);
}

static void join_token_row(struct meta_io *m)
{
	version(m);
	meta_bool(m, "used");
	meta_uint(m, "made_at", 8);
	meta_uint(m, "ends_at", 8);
	meta_hex(m, "key", 32);
	meta_hex(m, "claim", 16);
	meta_uuid(m, "uuid");
	meta_text(m, META_TEXT("name"), META_REST);
}

static void event_id(struct meta_io *m)
{
	meta_uint(m, "ring", 1);
	meta_uint(m, "number", 8);
}

static void event_row(struct meta_io *m)
{
	size_t len;

	version(m);
	meta_uint(m, "event", 1);
	len = meta_len(m, META_TEXT("subject"), 1);
	meta_time(m, "made_at", "made_ns");
	meta_id(m, "ino");
	meta_text(m, META_TEXT("subject"), len);
	meta_text(m, META_TEXT("text"), META_REST);
}

/* clang-format off */
const struct meta_kind meta_kinds[] = {
	{"cluster", NS_K_SUPER, -1, 1, no_id, super_row},
	{"inode", NS_K_INODE, -1, 9, ino_id, inode_row},
	{"name", NS_K_DIRENT, -1, 17, name_id, name_row},
	{"xattr", NS_K_XATTR, -1, 0, xattr_id, xattr_row},
	{"orphan", NS_K_ORPHAN, -1, 9, ino_id, mark_row},
	{"unpushed", NS_K_UNPUSHED, -1, 9, dir_id, counted_row},
	{"further-names", NS_K_LINK, -1, 17, link_id, link_row},
	{"user", NS_K_USER, -1, 5, user_id, counted_row},
	{"trash-sum", NS_K_TRASH, 0, 2, no_id, trash_sum_row},
	{"trash", NS_K_TRASH, 1, 34, trash_id, trash_row},
	{"trash-expiry", NS_K_TRASH, 2, 18, trash_expiry_id, mark_row},
	{"trash-at", NS_K_TRASH, 3, 10, ino_id, trash_at_row},
	{"trash-user", NS_K_TRASH, 4, 6, user_id, counted_row},
	{"trash-job", NS_T_TRASH_JOB, -1, 9, trash_job_id, trash_job_row},
	{"boot", NS_T_BOOT, -1, 9, boot_id, boot_row},
	{"stamp", NS_T_STAMP, 0, 2, no_id, stamp_row},
	{"reply", NS_T_REPLY, -1, 21, reply_id, reply_row},
	{"client", NS_T_CLIENT, -1, 33, client_id, client_row},
	{"write-intent", NS_T_WRITE_INTENT, -1, 9, ino_id, write_intent_row},
	{"data-server", NS_T_DS, -1, 17, uuid_id, ds_row},
	{"generic-server", NS_T_NFS3DS, 'S', 18, uuid_id, generic_row},
	{"generic-spare", NS_T_NFS3DS, 'P', 14, spare_id, spare_row},
	{"generic-object", NS_T_NFS3DS, 'O', 18, object_id, object_row},
	{"cluster-keys", NS_T_KEY, -1, 2, keys_id, keys_row},
	{"order", NS_T_ORDER, -1, 13, order_id, order_row},
	{"repair", NS_T_REPAIR, -1, 9, ino_id, repair_row},
	{"moved", NS_T_RELOCATED, -1, 9, ino_id, moved_row},
	{"restripe", NS_T_PENDING, -1, 9, ino_id, restripe_row},
	{"hint", NS_T_HINT, -1, 2, hint_id, mark_row},
	{"scrub", NS_T_SCRUB, 0, 2, no_id, scrub_row},
	{"scrub-finding", NS_T_SCRUB, 1, 6, finding_id, finding_row},
	{"scrub-seen", NS_T_SCRUB, 2, 18, object_id, seen_row},
	{"event", NS_T_EVENT, -1, 10, event_id, event_row},
	{"export", NS_T_EXPORT, -1, 3, export_id, export_row},
	{"revocation", NS_T_REVOCATION, -1, 9, revocation_id, revocation_row},
	{"token", NS_T_TOKEN, -1, 0, token_id, token_row},
	{"tag", NS_T_TAG, -1, 0, tag_id, tag_row},
	{"join-token", NS_T_JOIN_TOKEN, -1, 17, join_token_id, join_token_row},
	{"pin", NS_T_PIN, -1, 9, pin_id, pin_row},
	{"pin-file", NS_T_PIN, -1, 17, pin_file_id, mark_row},
};
/* clang-format on */
const size_t meta_kinds_n = sizeof(meta_kinds) / sizeof(meta_kinds[0]);
