/* SPDX-License-Identifier: Apache-2.0 */
/* ns_record.c - record formats: bytes to structures and back. Only these decoders read stored
 * bytes. */
#include "mds/namespace/keys.h"
#include <errno.h>
#include <sodium.h>

_Static_assert(crypto_shorthash_KEYBYTES == sizeof(((struct ns_super *)0)->su_dir_key),
	       "SipHash key");
_Static_assert(crypto_shorthash_BYTES == 8, "SipHash-2-4");

uint64_t ns_name_hash(const uint8_t key[16], const char *name, size_t len)
{
	uint8_t mac[8];

	crypto_shorthash(mac, (const uint8_t *)name, len, key);
	return NS_SLOT_MIN + ns_get64(mac) % (NS_SLOT_END - NS_SLOT_MIN);
}

int ns_name_check(const char *name, size_t len)
{
	if (len > NS_NAME_MAX)
		return -ENAMETOOLONG;
	if (len == 0 || memchr(name, '/', len) || memchr(name, 0, len))
		return -EINVAL;
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return -EINVAL;
	return 0;
}

int ns_xattr_name_check(const char *name, size_t len)
{
	if (len > NS_XATTR_NAME_MAX)
		return -ENAMETOOLONG;
	return len == 0 || memchr(name, 0, len) ? -EINVAL : 0;
}

static int time_decode(const struct ns_time_rec *r, struct ns_time *t)
{
	t->t_sec = (int64_t)le64toh(r->tr_sec);
	t->t_nsec = le32toh(r->tr_nsec);
	return t->t_nsec < 1000000000 ? 0 : -EIO;
}

static struct ns_time_rec time_encode(struct ns_time t)
{
	return (struct ns_time_rec){.tr_sec = htole64((uint64_t)t.t_sec),
				    .tr_nsec = htole32(t.t_nsec)};
}

/* Checks that the type may have such a blob. */
static bool blob_sane(const struct ns_inode *i)
{
	size_t len = i->i_blob.s_len;

	switch (i->i_type) {
	case NS_REG:
		return len <= NS_BLOB_MAX && !i->i_has_policy;
	case NS_DIR:
		return len <= NS_BLOB_MAX && i->i_has_policy == (len > 0);
	case NS_LNK:
		return len > 0 && len <= NS_SYMLINK_MAX && !i->i_has_policy && i->i_size == len;
	default:
		return len == 0 && !i->i_has_policy;
	}
}

/* Returns the length of the sums at the begin of p; 0: damaged. */
static size_t ns_sums_rec_len(const uint8_t *p, size_t max, uint8_t type)
{
	const struct ns_sums_rec *r = (const struct ns_sums_rec *)p;
	size_t len;

	if (type != NS_DIR || max < sizeof(*r))
		return 0;
	len = sizeof(*r) + r->sm_users * sizeof(struct ns_sum_user_rec);
	if (r->sm_version != NS_VERSION || r->sm_zero || r->sm_unpushed > 1 ||
	    r->sm_users > r->sm_unpushed * NS_SUM_USERS || len > max)
		return 0;
	return len;
}

int ns_inode_decode(struct kv_slice val, uint64_t ino, struct ns_inode *out)
{
	const uint8_t *rest = (const uint8_t *)val.s_data + sizeof(struct ns_inode_rec);
	const struct ns_inode_rec *r = val.s_data;
	size_t left, acl = 0, sums = 0;

	if (val.s_len < sizeof(*r) || ino == 0)
		return -EIO;
	left = val.s_len - sizeof(*r);
	if (r->r_version != NS_VERSION || r->r_type < NS_REG || r->r_type > NS_FIFO || r->r_zero ||
	    (r->r_flags & ~(NS_F_POLICY | NS_F_XATTRS | NS_F_ACL | NS_F_SUMS)))
		return -EIO;
	if (r->r_flags & (NS_F_ACL | NS_F_SUMS)) {
		if (r->r_flags & NS_F_SUMS) {
			sums = ns_sums_rec_len(rest, left, r->r_type);
			if (!sums)
				return -EIO;
			rest += sums;
			left -= sums;
		}
		if (r->r_flags & NS_F_ACL) {
			acl = ns_acl_rec_len(rest, left, r->r_type);
			if (!acl)
				return -EIO;
		}
	}
	*out = (struct ns_inode){
		.i_ino = ino,
		.i_type = r->r_type,
		.i_mode = le16toh(r->r_mode),
		.i_incarnation = le16toh(r->r_incarnation),
		.i_nlink = le32toh(r->r_nlink),
		.i_uid = le32toh(r->r_uid),
		.i_gid = le32toh(r->r_gid),
		.i_size = le64toh(r->r_size),
		.i_used = le64toh(r->r_used),
		.i_change = le64toh(r->r_change),
		.i_parent = le64toh(r->r_parent),
		.i_rdev_major = le32toh(r->r_rdev_major),
		.i_rdev_minor = le32toh(r->r_rdev_minor),
		.i_verifier = le64toh(r->r_verifier),
		.i_entries = le32toh(r->r_entries),
		.i_has_policy = r->r_flags & NS_F_POLICY,
		.i_has_xattrs = r->r_flags & NS_F_XATTRS,
		.i_acl = ns_slice(rest, acl),
		.i_sums = ns_slice(rest - sums, sums),
		.i_blob = ns_slice(rest + acl, left - acl),
	};
	if (out->i_mode > 07777 || out->i_size > INT64_MAX || out->i_change == 0 || !blob_sane(out))
		return -EIO;
	if (time_decode(&r->r_atime, &out->i_atime) || time_decode(&r->r_mtime, &out->i_mtime) ||
	    time_decode(&r->r_ctime, &out->i_ctime) || time_decode(&r->r_btime, &out->i_btime))
		return -EIO;
	return 0;
}

size_t ns_inode_encode(const struct ns_inode *i, uint8_t buf[NS_INODE_VAL_MAX])
{
	struct ns_inode_rec r = {
		.r_version = NS_VERSION,
		.r_type = i->i_type,
		.r_mode = htole16(i->i_mode),
		.r_incarnation = htole16(i->i_incarnation),
		.r_flags = (i->i_has_policy ? NS_F_POLICY : 0) |
			   (i->i_has_xattrs ? NS_F_XATTRS : 0) | (i->i_acl.s_len ? NS_F_ACL : 0) |
			   (i->i_sums.s_len ? NS_F_SUMS : 0),
		.r_nlink = htole32(i->i_nlink),
		.r_uid = htole32(i->i_uid),
		.r_gid = htole32(i->i_gid),
		.r_entries = htole32(i->i_entries),
		.r_size = htole64(i->i_size),
		.r_used = htole64(i->i_used),
		.r_change = htole64(i->i_change),
		.r_parent = htole64(i->i_parent),
		.r_verifier = htole64(i->i_verifier),
		.r_rdev_major = htole32(i->i_rdev_major),
		.r_rdev_minor = htole32(i->i_rdev_minor),
		.r_atime = time_encode(i->i_atime),
		.r_mtime = time_encode(i->i_mtime),
		.r_ctime = time_encode(i->i_ctime),
		.r_btime = time_encode(i->i_btime),
	};
	uint8_t *at = buf;

	memcpy(at, &r, sizeof(r));
	at += sizeof(r);
	if (i->i_sums.s_len)
		memcpy(at, i->i_sums.s_data, i->i_sums.s_len);
	at += i->i_sums.s_len;
	if (i->i_acl.s_len)
		memcpy(at, i->i_acl.s_data, i->i_acl.s_len);
	at += i->i_acl.s_len;
	if (i->i_blob.s_len)
		memcpy(at, i->i_blob.s_data, i->i_blob.s_len);
	return (size_t)(at - buf) + i->i_blob.s_len;
}

int ns_dirent_decode(struct kv_slice key, struct kv_slice val, uint64_t *dir, struct ns_dirent *out)
{
	const uint8_t *k = key.s_data;
	struct ns_dirent_rec r;

	if (key.s_len != NS_KEY_DIRENT || k[0] != NS_K_DIRENT || val.s_len < sizeof(r))
		return -EIO;
	memcpy(&r, val.s_data, sizeof(r));
	*dir = ns_get64(k + 1);
	*out = (struct ns_dirent){
		.d_cookie = ns_get64(k + NS_KEY_INODE),
		.d_ino = le64toh(r.ndr_ino),
		.d_type = r.ndr_type,
		.d_name = (const char *)val.s_data + sizeof(r),
		.d_len = val.s_len - sizeof(r),
	};
	if (r.ndr_version != NS_VERSION || r.ndr_type < NS_REG || r.ndr_type > NS_FIFO ||
	    out->d_ino == 0 || out->d_cookie < NS_SLOT_MIN ||
	    out->d_cookie >= NS_SLOT_END + NS_SLOT_WINDOW)
		return -EIO;
	return ns_name_check(out->d_name, out->d_len) ? -EIO : 0;
}

size_t ns_dirent_encode(uint64_t ino, uint8_t type, const char *name, size_t len,
			uint8_t buf[NS_DIRENT_VAL_MAX])
{
	struct ns_dirent_rec r = {
		.ndr_version = NS_VERSION, .ndr_type = type, .ndr_ino = htole64(ino)};

	memcpy(buf, &r, sizeof(r));
	memcpy(buf + sizeof(r), name, len);
	return sizeof(r) + len;
}

int ns_super_decode(struct kv_slice val, struct ns_super *su, uint64_t *inodes)
{
	struct ns_super_rec r;

	if (val.s_len != sizeof(r) && val.s_len != NS_SUPER_LEN1)
		return -EIO;
	memset(&r, 0, sizeof(r));
	memcpy(&r, val.s_data, val.s_len);
	if (val.s_len == NS_SUPER_LEN1 ? r.s_version != 1
				       : r.s_version != 2 && r.s_version != NS_SUPER_VERSION)
		return -EIO;
	if (r.s_sums > (r.s_version == NS_SUPER_VERSION) || r.s_zero[0] || r.s_zero[1])
		return -EIO;
	*su = (struct ns_super){
		.su_fs = le16toh(r.s_fs),
		.su_incarnation = le16toh(r.s_incarnation),
		.su_boot = le64toh(r.s_boot),
		.su_boot_id = le64toh(r.s_boot_id),
		.su_ino_next = le64toh(r.s_ino_next),
		.su_ds_next = le32toh(r.s_ds_next),
		.su_client_next = le32toh(r.s_client_next),
		.su_order_next = le64toh(r.s_order_next),
		.su_sums = r.s_sums,
	};
	memcpy(su->su_uuid, r.s_uuid, sizeof(r.s_uuid));
	memcpy(su->su_fh_key, r.s_fh_key, sizeof(r.s_fh_key));
	memcpy(su->su_dir_key, r.s_dir_key, sizeof(r.s_dir_key));
	*inodes = le64toh(r.s_inodes);
	return su->su_ino_next > NS_ROOT_INO && su->su_order_next && su->su_ds_next &&
			       su->su_client_next
		       ? 0
		       : -EIO;
}

void ns_super_encode(const struct ns_super *su, uint64_t inodes, struct ns_super_rec *out)
{
	*out = (struct ns_super_rec){
		.s_version = NS_SUPER_VERSION,
		.s_sums = su->su_sums,
		.s_fs = htole16(su->su_fs),
		.s_incarnation = htole16(su->su_incarnation),
		.s_boot = htole64(su->su_boot),
		.s_boot_id = htole64(su->su_boot_id),
		.s_ino_next = htole64(su->su_ino_next),
		.s_order_next = htole64(su->su_order_next),
		.s_inodes = htole64(inodes),
		.s_ds_next = htole32(su->su_ds_next),
		.s_client_next = htole32(su->su_client_next),
	};
	memcpy(out->s_uuid, su->su_uuid, sizeof(out->s_uuid));
	memcpy(out->s_fh_key, su->su_fh_key, sizeof(out->s_fh_key));
	memcpy(out->s_dir_key, su->su_dir_key, sizeof(out->s_dir_key));
}
