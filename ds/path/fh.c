/* SPDX-License-Identifier: Apache-2.0 */
/* fh.c - file handles of exported files: the kernel's handle (name_to_handle_at), the export's
 * number, and a MAC. The MAC is SipHash-2-4 under a key of the server's own. No key rotation
 * changes that key, so handles outlive the daemon. All integers are big-endian. */
#include "ds/path/path_int.h"
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#define MAC_LEN 8

struct fh_head {
	uint8_t h_kind;
	uint8_t h_len; /* of the kernel's handle, which follows; then the MAC */
	uint16_t h_export;
	int32_t h_type;
};
static_assert(sizeof(struct fh_head) == 8, "no padding");
static_assert(sizeof(struct fh_head) + PATH_FH_KERNEL_MAX + MAC_LEN <= NFS3_FHSIZE,
	      "the largest handle fits");
static_assert(sizeof(struct path_fh) == 8 + PATH_FH_KERNEL_MAX, "no padding");
static_assert(crypto_shorthash_BYTES == MAC_LEN && crypto_shorthash_KEYBYTES == CAP_KEY_LEN,
	      "SipHash-2-4");

bool path_is_fh(const uint8_t *fh, uint32_t len)
{
	return len > sizeof(struct fh_head) + MAC_LEN && fh[0] == PATH_FH_KIND &&
	       len == sizeof(struct fh_head) + fh[1] + MAC_LEN;
}

bool path_fh_read(struct path *p, const uint8_t *in, uint32_t len, struct path_fh *fh)
{
	uint8_t mac[MAC_LEN];
	struct fh_head h;

	if (len < sizeof(h) + MAC_LEN || len > NFS3_FHSIZE)
		return false;
	memcpy(&h, in, sizeof(h));
	if (h.h_kind != PATH_FH_KIND || h.h_len > PATH_FH_KERNEL_MAX ||
	    len != sizeof(h) + h.h_len + MAC_LEN)
		return false;
	crypto_shorthash(mac, in, len - MAC_LEN, p->p_key);
	if (sodium_memcmp(mac, in + len - MAC_LEN, MAC_LEN) != 0)
		return false;
	memset(fh, 0, sizeof(*fh));
	fh->fh_export = be16toh(h.h_export);
	fh->fh_type = (int32_t)be32toh((uint32_t)h.h_type);
	fh->fh_len = h.h_len;
	memcpy(fh->fh_kernel, in + sizeof(h), h.h_len);
	return true;
}

bool path_fh_ours(struct path *p, const uint8_t *in, uint32_t len)
{
	struct path_fh fh;

	return path_fh_read(p, in, len, &fh);
}

uint32_t path_fh_write(struct path *p, const struct path_fh *fh, uint8_t out[NFS3_FHSIZE])
{
	struct fh_head h = {
		.h_kind = PATH_FH_KIND,
		.h_len = fh->fh_len,
		.h_export = htobe16(fh->fh_export),
		.h_type = (int32_t)htobe32((uint32_t)fh->fh_type),
	};

	memcpy(out, &h, sizeof(h));
	memcpy(out + sizeof(h), fh->fh_kernel, fh->fh_len);
	crypto_shorthash(out + sizeof(h) + fh->fh_len, out, sizeof(h) + fh->fh_len, p->p_key);
	return (uint32_t)(sizeof(h) + fh->fh_len + MAC_LEN);
}

int path_fh_of(int dirfd, const char *name, uint16_t export, struct path_fh *fh)
{
	struct {
		struct file_handle h;
		uint8_t room[PATH_FH_KERNEL_MAX];
	} k = {.h.handle_bytes = PATH_FH_KERNEL_MAX};
	int mount;

	if (name_to_handle_at(dirfd, name, &k.h, &mount, *name ? 0 : AT_EMPTY_PATH))
		return errno == EOVERFLOW ? -EOPNOTSUPP : -errno;
	memset(fh, 0, sizeof(*fh));
	fh->fh_export = export;
	fh->fh_type = k.h.handle_type;
	fh->fh_len = (uint8_t)k.h.handle_bytes;
	memcpy(fh->fh_kernel, k.h.f_handle, k.h.handle_bytes);
	return 0;
}

int path_fh_open(int rootfd, const struct path_fh *fh)
{
	struct {
		struct file_handle h;
		uint8_t room[PATH_FH_KERNEL_MAX];
	} k = {.h = {.handle_bytes = fh->fh_len, .handle_type = fh->fh_type}};
	int fd;

	memcpy(k.h.f_handle, fh->fh_kernel, fh->fh_len);
	fd = open_by_handle_at(rootfd, &k.h, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	/* For a handle of another file system, file systems return different errors. */
	return errno == ENOENT || errno == EINVAL || errno == ENODEV ? -ESTALE : -errno;
}
