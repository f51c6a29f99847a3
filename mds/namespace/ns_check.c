/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_check.c - the offline checker. In one snapshot it makes these ordered passes:
 *
 *	'S' the super record, which the others are compared with
 *	'i' every inode into a table, in order because the scan is
 *	'd', 'x', 'O', 'R' count what points at each inode
 *
 * Then one walk over the table compares what inodes say with what was counted. In a store without
 * violations, ns_check_sum.c then compares the sums.
 */
#include "mds/namespace/keys.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

enum {
	SN_HAS_XATTRS = 1,
	SN_XATTR = 2,
	SN_ORPHAN = 4,
	SN_WALK = 8,
	SN_REACHED = 16,
	SN_LOST = 32,
	SN_TRASH = 64
};

struct seen {
	uint64_t sn_ino, sn_parent;
	uint32_t sn_nlink, sn_entries;		 /* as recorded in the inode */
	uint32_t sn_links, sn_names, sn_subdirs; /* as counted */
	uint8_t sn_type, sn_flags;
};

/* An earlier entry of the present window. The same name twice in a window is a violation. re_name
 * points into the snapshot. */
struct recent {
	uint64_t re_dir, re_slot;
	const char *re_name;
	size_t re_len;
};

struct check {
	struct kv_txn *c_txn;
	void (*c_fn)(void *arg, const char *line);
	void *c_arg;
	struct ns_check_stats *c_st;
	struct ns_super c_super;
	bool c_has_super;
	struct seen *c_v;
	size_t c_n, c_cap;
	struct ns_trash_sums c_trash; /* as counted */
	struct recent c_recent[NS_SLOT_WINDOW];
	unsigned c_recent_at;
};

static void __attribute__((format(printf, 2, 3))) bad(struct check *c, const char *fmt, ...)
{
	char line[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	c->c_st->cs_violations++;
	c->c_fn(c->c_arg, line);
}

/* Writes a name so that a line can carry it. buf: 4 * len + 1 bytes */
static const char *ns_check_printable(const char *name, size_t len, char *buf)
{
	char *p = buf;

	for (size_t n = 0; n < len; n++) {
		unsigned char ch = (unsigned char)name[n];

		if (ch >= 0x20 && ch < 0x7f && ch != '"' && ch != '\\')
			*p++ = (char)ch;
		else
			p += sprintf(p, "\\x%02x", ch);
	}
	*p = 0;
	return buf;
}

static struct seen *seen_find(struct check *c, uint64_t ino)
{
	size_t lo = 0, hi = c->c_n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->c_v[mid].sn_ino < ino)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < c->c_n && c->c_v[lo].sn_ino == ino ? &c->c_v[lo] : NULL;
}

static struct seen *seen_add(struct check *c)
{
	if (c->c_n == c->c_cap) {
		size_t cap = c->c_cap ? c->c_cap * 2 : 1024;
		struct seen *v = reallocarray(c->c_v, cap, sizeof(*v));

		if (!v)
			return NULL;
		c->c_v = v;
		c->c_cap = cap;
	}
	c->c_v[c->c_n] = (struct seen){.sn_ino = 0};
	return &c->c_v[c->c_n++];
}

/* Calls fn for every pair under a one-byte prefix. */
static int scan(struct check *c, uint8_t prefix,
		int (*fn)(struct check *c, struct kv_slice key, struct kv_slice val))
{
	struct kv_slice p = ns_slice(&prefix, 1), key, val;
	struct kv_scan sc;
	int rc;

	rc = kv_scan_begin(c->c_txn, p, p, &sc);
	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		rc = fn(c, key, val);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc;
}

static int on_super(struct check *c, struct kv_slice key, struct kv_slice val)
{
	if (key.s_len != 1) {
		bad(c, "super: key of %zu bytes", key.s_len);
		return 0;
	}
	if (ns_super_decode(val, &c->c_super, &c->c_st->cs_counted)) {
		bad(c, "super: record damaged");
		return 0;
	}
	c->c_has_super = true;
	if (c->c_super.su_boot == 0)
		bad(c, "super: boot epoch 0");
	if (c->c_super.su_incarnation == 0)
		bad(c, "super: incarnation 0");
	return 0;
}

static void inode_own(struct check *c, const struct ns_inode *i)
{
	unsigned long ino = i->i_ino;

	if (c->c_has_super && i->i_ino >= c->c_super.su_ino_next)
		bad(c, "inode %lu: number not reserved (the limit is %lu)", ino,
		    (unsigned long)c->c_super.su_ino_next);
	if (c->c_has_super && i->i_incarnation % NS_PLACED_AGAIN > c->c_super.su_incarnation)
		bad(c, "inode %lu: incarnation %u is ahead of the store's %u", ino,
		    i->i_incarnation, c->c_super.su_incarnation);
	if (i->i_type == NS_DIR && i->i_size != (uint64_t)i->i_entries * NS_ENTRY_SIZE)
		bad(c, "directory %lu: size %lu does not fit %u entries", ino,
		    (unsigned long)i->i_size, i->i_entries);
	if (i->i_type != NS_DIR && i->i_entries)
		bad(c, "inode %lu: not a directory, but has %u entries", ino, i->i_entries);
	if (i->i_acl.s_len) {
		struct ns_acl a;

		c->c_st->cs_acls++;
		ns_acl_decode(i->i_acl, &a);
		if (ns_acl_mode(&a) != (i->i_mode & 0777))
			bad(c, "inode %lu: mode %o, and its ACL says %o", ino, i->i_mode & 0777u,
			    ns_acl_mode(&a));
	}
	if (i->i_has_xattrs && i->i_type != NS_REG && i->i_type != NS_DIR)
		bad(c, "inode %lu: type %u has no extended attributes", ino, i->i_type);
}

static int on_inode(struct check *c, struct kv_slice key, struct kv_slice val)
{
	struct ns_inode i;
	struct seen *s;
	uint64_t ino;

	if (key.s_len != NS_KEY_INODE) {
		bad(c, "inode: key of %zu bytes", key.s_len);
		return 0;
	}
	ino = ns_get64((const uint8_t *)key.s_data + 1);
	c->c_st->cs_inodes++;
	if (ns_inode_decode(val, ino, &i)) {
		bad(c, "inode %lu: record damaged", (unsigned long)ino);
		return 0;
	}
	s = seen_add(c);
	if (!s)
		return -ENOMEM;
	c->c_st->cs_dirs += i.i_type == NS_DIR;
	*s = (struct seen){
		.sn_ino = ino,
		.sn_parent = i.i_parent,
		.sn_nlink = i.i_nlink,
		.sn_entries = i.i_entries,
		.sn_type = i.i_type,
		.sn_flags = i.i_has_xattrs ? SN_HAS_XATTRS : 0,
	};
	inode_own(c, &i);
	return 0;
}

static void entry_place(struct check *c, uint64_t dir, const struct ns_dirent *d, const char *name)
{
	uint64_t hash = ns_name_hash(c->c_super.su_dir_key, d->d_name, d->d_len);

	if (c->c_has_super && d->d_cookie - hash >= NS_SLOT_WINDOW)
		bad(c,
		    "directory %lu: entry \"%s\" lies at %lu, outside the window of its hash %lu",
		    (unsigned long)dir, name, (unsigned long)d->d_cookie, (unsigned long)hash);
	for (unsigned n = 0; n < NS_SLOT_WINDOW; n++) {
		const struct recent *r = &c->c_recent[n];

		if (r->re_dir == dir && r->re_len == d->d_len &&
		    d->d_cookie - r->re_slot < NS_SLOT_WINDOW &&
		    !memcmp(r->re_name, d->d_name, d->d_len))
			bad(c, "directory %lu: entry \"%s\" exists twice", (unsigned long)dir,
			    name);
	}
	c->c_recent[c->c_recent_at++ % NS_SLOT_WINDOW] = (struct recent){
		.re_dir = dir, .re_slot = d->d_cookie, .re_name = d->d_name, .re_len = d->d_len};
}

static void entry_target(struct check *c, uint64_t dir, const struct ns_dirent *d, const char *name)
{
	unsigned long at = dir, ino = d->d_ino;
	struct seen *s = seen_find(c, d->d_ino);

	if (!s) {
		bad(c, "directory %lu: entry \"%s\" points at missing inode %lu", at, name, ino);
		return;
	}
	s->sn_links++;
	if (s->sn_type != d->d_type)
		bad(c, "directory %lu: entry \"%s\" says type %u, inode %lu says %u", at, name,
		    d->d_type, ino, s->sn_type);
	if (s->sn_type != NS_DIR)
		return;
	if (s->sn_ino == NS_ROOT_INO)
		bad(c, "directory %lu: entry \"%s\" points at the root", at, name);
	else if (s->sn_parent != dir)
		bad(c, "directory %lu: lies in directory %lu (\"%s\") and says its parent is %lu",
		    ino, at, name, (unsigned long)s->sn_parent);
}

static int on_dirent(struct check *c, struct kv_slice key, struct kv_slice val)
{
	char name[4 * NS_NAME_MAX + 1];
	struct ns_dirent d;
	struct seen *s;
	uint64_t dir;

	c->c_st->cs_entries++;
	if (ns_dirent_decode(key, val, &dir, &d)) {
		dir = key.s_len >= NS_KEY_INODE ? ns_get64((const uint8_t *)key.s_data + 1) : 0;
		bad(c, "directory %lu: entry damaged", (unsigned long)dir);
		return 0;
	}
	ns_check_printable(d.d_name, d.d_len, name);
	entry_place(c, dir, &d, name);
	entry_target(c, dir, &d, name);
	s = seen_find(c, dir);
	if (!s || s->sn_type != NS_DIR) {
		bad(c, "entry \"%s\": lies in inode %lu, which is %s", name, (unsigned long)dir,
		    s ? "not a directory" : "missing");
		return 0;
	}
	s->sn_names++;
	s->sn_subdirs += d.d_type == NS_DIR;
	return 0;
}

static int on_xattr(struct check *c, struct kv_slice key, struct kv_slice val)
{
	const uint8_t *k = key.s_data, *v = val.s_data;
	struct seen *s;
	uint64_t ino;

	c->c_st->cs_xattrs++;
	if (key.s_len <= NS_KEY_INODE ||
	    ns_xattr_name_check((const char *)k + NS_KEY_INODE, key.s_len - NS_KEY_INODE)) {
		bad(c, "extended attribute: key damaged");
		return 0;
	}
	ino = ns_get64(k + 1);
	if (val.s_len < 1 || val.s_len > NS_XATTR_VALUE_MAX + 1 || v[0] != NS_VERSION)
		bad(c, "inode %lu: extended attribute damaged", (unsigned long)ino);
	s = seen_find(c, ino);
	if (!s && ns_trash_get(c->c_txn, ino, &(struct ns_trash){.tr_ino = 0}) == 0)
		return 0;
	if (!s) {
		bad(c, "extended attribute of missing inode %lu", (unsigned long)ino);
		return 0;
	}
	s->sn_flags |= SN_XATTR;
	return 0;
}

static int on_orphan(struct check *c, struct kv_slice key, struct kv_slice val)
{
	const uint8_t *v = val.s_data;
	struct seen *s;
	uint64_t ino;

	c->c_st->cs_orphans++;
	if (key.s_len != NS_KEY_INODE || val.s_len != 1 || v[0] != NS_VERSION) {
		bad(c, "orphan: record damaged");
		return 0;
	}
	ino = ns_get64((const uint8_t *)key.s_data + 1);
	s = seen_find(c, ino);
	if (!s) {
		bad(c, "orphan %lu: no such inode", (unsigned long)ino);
		return 0;
	}
	s->sn_flags |= SN_ORPHAN;
	if (s->sn_nlink)
		bad(c, "orphan %lu: has %u links", (unsigned long)ino, s->sn_nlink);
	return 0;
}

/* What is in the trash: its inode, and its place in the order of expiry. */
static void trash_entry(struct check *c, const struct ns_trash *e)
{
	unsigned long ino = e->tr_ino;
	struct seen *s = seen_find(c, e->tr_ino);
	struct ns_trash got;

	c->c_trash.ts_entries++;
	c->c_trash.ts_bytes += e->tr_bytes;
	if (e->tr_type != NS_REG && s) {
		bad(c, "trash: inode %lu is there as well", ino);
	} else if (e->tr_type == NS_REG) {
		if (!s || s->sn_type != NS_REG)
			bad(c, "trash: inode %lu: no such file", ino);
		else if (s->sn_nlink)
			bad(c, "trash: inode %lu: has %u links", ino, s->sn_nlink);
		else
			s->sn_flags |= SN_TRASH;
	}
	if (ns_trash_get(c->c_txn, e->tr_ino, &got) || got.tr_name != e->tr_name)
		bad(c, "trash: inode %lu: is not found by its number", ino);
	if (!ns_trash_expires(c->c_txn, e))
		bad(c, "trash: inode %lu: not in the order of expiry", ino);
}

static int on_trash(struct check *c, struct kv_slice key, struct kv_slice val)
{
	struct ns_trash e;
	int kind = key.s_len > 1 ? ((const uint8_t *)key.s_data)[1] : -1;

	if (ns_trash_aside_kind(key))
		bad(c, "trash: a damaged row of kind %d was set aside", *ns_trash_aside_kind(key));
	else if (kind == 1 && !ns_trash_decode(key, val, &e))
		trash_entry(c, &e);
	else if (kind == 1 || !ns_trash_row_ok(c->c_txn, key, val))
		bad(c, "trash: a row of kind %d is damaged, or leads to nothing", kind);
	return 0;
}

static void trash_sums(struct check *c)
{
	struct ns_trash_sums said;

	if (ns_trash_sums(c->c_txn, &said))
		bad(c, "trash: the row of its sums is damaged");
	else if (said.ts_entries != c->c_trash.ts_entries || said.ts_bytes != c->c_trash.ts_bytes)
		bad(c, "trash: says %lu entries of %lu bytes, and has %lu of %lu",
		    (unsigned long)said.ts_entries, (unsigned long)said.ts_bytes,
		    (unsigned long)c->c_trash.ts_entries, (unsigned long)c->c_trash.ts_bytes);
	c->c_st->cs_trash = c->c_trash.ts_entries;
}

static int on_row(struct check *c, struct kv_slice key, struct kv_slice val)
{
	(void)key;
	(void)val;
	c->c_st->cs_rows++;
	return 0;
}

static int on_once(struct check *c, struct kv_slice key, struct kv_slice val)
{
	struct ns_reply o;

	c->c_st->cs_rows++;
	if (key.s_len != 1 + NS_REPLY_KEY || ns_reply_decode(val, &o))
		bad(c, "stored reply of a request: record damaged");
	return 0;
}

static int on_unknown(struct check *c, struct kv_slice key, struct kv_slice val)
{
	(void)val;
	bad(c, "key of unknown kind 0x%02x, %zu bytes", *(const uint8_t *)key.s_data, key.s_len);
	return 0;
}

/* Checks a record of the boots' identities. */
static int on_boot(struct check *c, struct kv_slice key, struct kv_slice val)
{
	const struct ns_boot_rec *r = val.s_data;

	if (key.s_len != 9 || val.s_len != sizeof(*r) || r->b_version != NS_VERSION || !r->b_id)
		bad(c, "a boot's record is damaged");
	else if (c->c_has_super && ns_get64((const uint8_t *)key.s_data + 1) > c->c_super.su_boot)
		bad(c, "a boot's record is of a later one than the super record's");
	return 0;
}

static int on_stamp(struct check *c, struct kv_slice key, struct kv_slice val)
{
	int64_t until;

	c->c_st->cs_rows++;
	if (key.s_len != 2 || ((const uint8_t *)key.s_data)[1])
		bad(c, "a row of the newest time has another key than the one that there is");
	else if (ns_stamp_decode(val, &until))
		bad(c, "the row of the newest time is damaged");
	return 0;
}

static int on_event(struct check *c, struct kv_slice key, struct kv_slice val)
{
	(void)key;
	(void)val;
	c->c_st->cs_events++;
	return 0;
}

/* Kind 0 belongs to the engine. */
static int scan_rest(struct check *c)
{
	static const uint8_t known[] = {NS_K_SUPER,  NS_K_INODE, NS_K_DIRENT, NS_K_XATTR,
					NS_K_ORPHAN, NS_T_REPLY, NS_T_EVENT,  NS_T_BOOT,
					NS_K_TRASH,  NS_K_LINK,	 NS_K_USER,   NS_K_UNPUSHED,
					NS_T_STAMP};
	static const uint8_t rows[] = {
		NS_T_CLIENT, NS_T_DS,	     NS_T_ORDER,      NS_T_WRITE_INTENT, NS_T_REPAIR,
		NS_T_NFS3DS, NS_T_RELOCATED, NS_T_PENDING,    NS_T_SCRUB,	 NS_T_HINT,
		NS_T_KEY,    NS_T_EXPORT,    NS_T_REVOCATION, NS_T_TOKEN,	 NS_T_JOIN_TOKEN,
		NS_T_PIN,    NS_T_TRASH_JOB, NS_T_TAG,	      NS_T_CONN};
	int rc = scan(c, NS_T_REPLY, on_once);

	if (rc >= 0)
		rc = scan(c, NS_T_EVENT, on_event);
	if (rc >= 0)
		rc = scan(c, NS_T_BOOT, on_boot);
	if (rc >= 0)
		rc = scan(c, NS_T_STAMP, on_stamp);
	for (unsigned b = 1; b < 256 && rc >= 0; b++) {
		if (memchr(known, (int)b, sizeof(known)))
			continue;
		rc = scan(c, (uint8_t)b, memchr(rows, (int)b, sizeof(rows)) ? on_row : on_unknown);
	}
	return rc;
}

/* Whether a directory's parents lead to the root. Each directory is walked once, because the walk
 * leaves its result in all directories on the way. */
static bool ns_check_reached(struct check *c, struct seen *s)
{
	struct seen *at = s;
	uint8_t verdict;

	while (at && at->sn_type == NS_DIR && !(at->sn_flags & (SN_WALK | SN_REACHED | SN_LOST)) &&
	       at->sn_ino != NS_ROOT_INO) {
		at->sn_flags |= SN_WALK;
		at = seen_find(c, at->sn_parent);
	}
	verdict = at && at->sn_type == NS_DIR &&
				  (at->sn_ino == NS_ROOT_INO || (at->sn_flags & SN_REACHED))
			  ? SN_REACHED
			  : SN_LOST;
	for (at = s; at && (at->sn_flags & SN_WALK); at = seen_find(c, at->sn_parent))
		at->sn_flags = (uint8_t)((at->sn_flags & ~SN_WALK) | verdict);
	return s->sn_ino == NS_ROOT_INO || (s->sn_flags & SN_REACHED);
}

static void compare_dir(struct check *c, struct seen *s)
{
	unsigned long ino = s->sn_ino;
	bool root = s->sn_ino == NS_ROOT_INO;

	if (s->sn_links > 1)
		bad(c, "directory %lu: %u entries point at it", ino, s->sn_links);
	if (!root && s->sn_links == 0)
		bad(c, "directory %lu: no entry points at it", ino);
	else if (!ns_check_reached(c, s))
		bad(c, "directory %lu: not below the root", ino);
	if (s->sn_nlink != s->sn_subdirs + 2)
		bad(c, "directory %lu: says %u links and has %u subdirectories", ino, s->sn_nlink,
		    s->sn_subdirs);
	if (s->sn_entries != s->sn_names)
		bad(c, "directory %lu: says %u entries and has %u", ino, s->sn_entries,
		    s->sn_names);
	if (s->sn_flags & SN_ORPHAN)
		bad(c, "orphan %lu: is a directory", ino);
	if (root && s->sn_parent != NS_ROOT_INO)
		bad(c, "root: its parent is %lu", (unsigned long)s->sn_parent);
}

static void compare_file(struct check *c, struct seen *s)
{
	unsigned long ino = s->sn_ino;

	if (s->sn_links == 0 && !(s->sn_flags & (SN_ORPHAN | SN_TRASH)))
		bad(c, "inode %lu: no entry points at it, and it is not an orphan", ino);
	if (s->sn_links && (s->sn_flags & SN_TRASH))
		bad(c, "inode %lu: has an entry, and is in the trash", ino);
	if (s->sn_nlink != s->sn_links)
		bad(c, "inode %lu: says %u links and has %u", ino, s->sn_nlink, s->sn_links);
}

static void ns_check_compare(struct check *c)
{
	struct seen *root = seen_find(c, NS_ROOT_INO);

	if (!root)
		bad(c, "root: missing");
	else if (root->sn_type != NS_DIR)
		bad(c, "root: not a directory");
	for (size_t n = 0; n < c->c_n; n++) {
		struct seen *s = &c->c_v[n];

		if (s->sn_type == NS_DIR)
			compare_dir(c, s);
		else
			compare_file(c, s);
		if (!(s->sn_flags & SN_HAS_XATTRS) != !(s->sn_flags & SN_XATTR))
			bad(c, "inode %lu: says it has %s extended attributes, and there are %s",
			    (unsigned long)s->sn_ino, s->sn_flags & SN_HAS_XATTRS ? "some" : "no",
			    s->sn_flags & SN_XATTR ? "some" : "none");
	}
}

static void on_sum_bad(void *arg, const char *line)
{
	bad(arg, "%s", line);
}

int ns_check(struct kv_txn *t, void (*fn)(void *arg, const char *line), void *arg,
	     struct ns_check_stats *st)
{
	struct check c = {.c_txn = t, .c_fn = fn, .c_arg = arg, .c_st = st};
	uint64_t rows = 0;
	int rc;

	*st = (struct ns_check_stats){.cs_inodes = 0};
	rc = scan(&c, NS_K_SUPER, on_super);
	if (rc >= 0 && !c.c_has_super && st->cs_violations == 0)
		bad(&c, "super: missing");
	if (rc >= 0)
		rc = scan(&c, NS_K_INODE, on_inode);
	if (rc >= 0)
		rc = scan(&c, NS_K_DIRENT, on_dirent);
	if (rc >= 0)
		rc = scan(&c, NS_K_XATTR, on_xattr);
	if (rc >= 0)
		rc = scan(&c, NS_K_ORPHAN, on_orphan);
	if (rc >= 0)
		rc = scan(&c, NS_K_TRASH, on_trash);
	if (rc >= 0) {
		trash_sums(&c);
		rc = scan_rest(&c);
	}
	if (rc >= 0)
		ns_check_compare(&c);
	free(c.c_v);
	/* The sums of a store that is not whole would add up to nothing but more lines; those of an
	 * older store come when weft-mds starts. */
	if (rc >= 0 && c.c_has_super && c.c_super.su_sums && !st->cs_violations) {
		rc = ns_check_sums(t, on_sum_bad, &c, &rows);
		st->cs_sums = rows;
	}
	return rc < 0 ? rc : 0;
}
