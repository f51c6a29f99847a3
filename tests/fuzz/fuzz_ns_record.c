/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ns_record.c - stored records are decoded without trust: any bytes give a structure that
 * keeps its promises, or -EIO. The first byte picks the record: from 0xf9 on those of jobs
 * about the trash, of tags, of pins and of the trash, others by their remainder. */
#include "mds/jobs/tag.h"
#include "mds/jobs/trash.h"
#include "mds/layout/lo_int.h"
#include "mds/layout/pin_row.h"
#include "mds/namespace/keys.h"
#include <errno.h>
#include <stdlib.h>

/* An ACL that decodes is evaluated, inherited and changed without harm, and makes the same
 * bytes. */
static void acl(const struct ns_inode *i)
{
	struct ns_cred cr = {.cr_uid = i->i_uid ^ 1, .cr_gid = i->i_gid};
	uint8_t buf[NS_ACL_REC_MAX];
	struct ns_acl a, child;
	struct kv_slice rec;
	uint32_t denied;

	ns_acl_get(i, &a);
	if (i->i_acl.s_len) {
		rec = ns_acl_encode(&a, buf);
		if (rec.s_len != i->i_acl.s_len || memcmp(buf, i->i_acl.s_data, rec.s_len))
			abort();
		if (ns_acl_eval(i, &cr, NS_R_ALL, &denied) & denied)
			abort();
		ns_acl_inherit(i->i_acl, i->i_size & 1, &child);
	}
	ns_acl_set_mode(&a, i->i_mode & 0777, i->i_mode, i->i_type == NS_DIR);
	if (ns_acl_mode(&a) != (i->i_mode & 0777) || a.acl_n > NS_ACL_MAX)
		abort();
}

/* Promised: what decodes can be encoded, to the same bytes. */
static void inode(struct kv_slice val)
{
	uint8_t buf[NS_INODE_VAL_MAX];
	struct ns_inode i;

	if (ns_inode_decode(val, 7, &i))
		return;
	if (i.i_blob.s_len > NS_SYMLINK_MAX || i.i_type < NS_REG || i.i_type > NS_FIFO ||
	    i.i_mode > 07777)
		abort();
	if (ns_inode_encode(&i, buf) != val.s_len || memcmp(buf, val.s_data, val.s_len))
		abort();
	acl(&i);
}

static void dirent(const uint8_t *data, size_t size)
{
	size_t klen = size && data[0] < size ? data[0] : NS_KEY_DIRENT;
	uint8_t buf[NS_DIRENT_VAL_MAX];
	struct ns_dirent d;
	uint64_t dir;
	size_t len;

	if (size < 1 + klen)
		return;
	if (ns_dirent_decode(ns_slice(data + 1, klen), ns_slice(data + 1 + klen, size - 1 - klen),
			     &dir, &d))
		return;
	if (ns_name_check(d.d_name, d.d_len) || d.d_cookie <= 2 || d.d_ino == 0)
		abort();
	len = ns_dirent_encode(d.d_ino, d.d_type, d.d_name, d.d_len, buf);
	if (len != size - 1 - klen || memcmp(buf, data + 1 + klen, len))
		abort();
}

static void super(struct kv_slice val)
{
	struct ns_super_rec r;
	struct ns_super su;
	uint64_t inodes;

	if (ns_super_decode(val, &su, &inodes))
		return;
	if (su.su_ino_next <= NS_ROOT_INO)
		abort();
	ns_super_encode(&su, inodes, &r);
	/* An older one is written as version 3: of version 1 with a boot that has no identity. */
	if (r.s_version != NS_SUPER_VERSION || (val.s_len == NS_SUPER_LEN1 && r.s_boot_id))
		abort();
	if (memcmp((const uint8_t *)&r + 1, (const uint8_t *)val.s_data + 1, val.s_len - 1))
		abort();
	if (val.s_len == sizeof(r) && *(const uint8_t *)val.s_data < 2)
		abort();
}

static void once(struct kv_slice val)
{
	static uint8_t buf[NS_REPLY_HEAD + NS_REPLY_RESULTS_MAX];
	struct ns_reply o;

	if (ns_reply_decode(val, &o))
		return;
	if (o.on_results.s_len > NS_REPLY_RESULTS_MAX || o.on_last + 8 > o.on_results.s_len ||
	    o.on_slots == 0 || o.on_target == 0 || o.on_at < 2)
		abort();
	memcpy(buf + NS_REPLY_HEAD, o.on_results.s_data, o.on_results.s_len);
	if (ns_reply_encode(&o, buf) != val.s_len || memcmp(buf, val.s_data, val.s_len))
		abort();
}

/* An entry of the trash: its key, and then its value. */
static void trash(const uint8_t *data, size_t size)
{
	static uint8_t buf[NS_TRASH_VAL_MAX];
	size_t len = size - NS_KEY_TRASH_MAX;
	struct ns_trash e;

	if (size < NS_KEY_TRASH_MAX || ns_trash_decode(ns_slice(data, NS_KEY_TRASH_MAX),
						       ns_slice(data + NS_KEY_TRASH_MAX, len), &e))
		return;
	if (ns_name_check(e.tr_name, e.tr_len) || !e.tr_ino || !e.tr_parent ||
	    (e.tr_type == NS_REG) != !e.tr_inode.s_len)
		abort();
	if (len > sizeof(buf) || ns_trash_encode(&e, buf) != len ||
	    memcmp(buf, data + NS_KEY_TRASH_MAX, len))
		abort();
}

static void trash_place(struct kv_slice val)
{
	struct ns_trash at = {.tr_ino = 1};

	if (!ns_trash_place_decode(val, &at) && !at.tr_parent)
		abort();
}

/* A row of a pin, or of a file that it has given a copy. */
static void pin(struct kv_slice id, struct kv_slice val)
{
	struct lo_pin p;
	uint64_t ino;
	size_t len;

	if (lo_pin_decode(id, val, &p, &ino))
		return;
	len = strnlen(p.pi_group, sizeof(p.pi_group));
	if (!p.pi_number || (id.s_len == 8) != !ino || (ino && val.s_len != 1))
		abort();
	if (!ino && (!p.pi_ino || p.pi_state >= LO_PIN_STATES || !len ||
		     len == sizeof(p.pi_group) || !lo_group_ok(p.pi_group, len)))
		abort();
}

static void tag(struct kv_slice id, struct kv_slice val)
{
	struct job_tag_row r;

	if (job_tag_decode(id, val, &r))
		return;
	/* The two texts are the key again. */
	if (!job_tag_name_ok(r.jr_name) || !*r.jr_client ||
	    strlen(r.jr_name) + 1 + strlen(r.jr_client) != id.s_len ||
	    memcmp(r.jr_name, id.s_data, strlen(r.jr_name) + 1) ||
	    memcmp(r.jr_client, (const char *)id.s_data + strlen(r.jr_name) + 1,
		   strlen(r.jr_client)))
		abort();
}

static void trash_job(struct kv_slice id, struct kv_slice val)
{
	if (job_trash_row_check(id, val) == -EINVAL)
		abort();
}

/* Rows with a key of any length: a byte of it, the key, the value. */
static bool with_key(uint8_t what, const uint8_t *data, size_t size)
{
	static void (*const of[])(struct kv_slice id, struct kv_slice val) = {trash_job, tag, pin};
	size_t len;

	if (what < 0xf9 || what > 0xfb)
		return false;
	len = size && data[0] < size ? data[0] : 0;
	if (len)
		of[what - 0xf9](ns_slice(data + 1, len), ns_slice(data + 1 + len, size - 1 - len));
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] == 0xfd) {
		trash(data + 1, size - 1);
		return 0;
	}
	if (data[0] == 0xfc) {
		trash_place(ns_slice(data + 1, size - 1));
		return 0;
	}
	if (with_key(data[0], data + 1, size - 1))
		return 0;
	switch (data[0] % 4) {
	case 0:
		inode(ns_slice(data + 1, size - 1));
		break;
	case 1:
		dirent(data + 1, size - 1);
		break;
	case 2:
		once(ns_slice(data + 1, size - 1));
		break;
	default:
		super(ns_slice(data + 1, size - 1));
	}
	return 0;
}
