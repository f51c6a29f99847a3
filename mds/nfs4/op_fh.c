/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata server's file handles: version, file system, incarnation, export, cluster, inode,
 * and a MAC (SipHash under the store's own key). */
#include "base/format.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include <assert.h>
#include <sodium.h>

#define FH_VERSION 1

struct fh_wire {
	uint8_t w_version, w_zero;
	uint16_t w_fs;
	uint16_t w_incarnation;
	/* number of the export that gave the handle (export_table.h); 0 also in handles from before
	 * there were exports */
	uint16_t w_export;
	uint32_t w_uuid;
	uint64_t w_ino;
	uint8_t w_mac[8];
} __attribute__((packed));

FORMAT_AT(struct fh_wire, w_version, 0, 1);
FORMAT_AT(struct fh_wire, w_zero, 1, 1);
FORMAT_AT(struct fh_wire, w_fs, 2, 2);
FORMAT_AT(struct fh_wire, w_incarnation, 4, 2);
FORMAT_AT(struct fh_wire, w_export, 6, 2);
FORMAT_AT(struct fh_wire, w_uuid, 8, 4);
FORMAT_AT(struct fh_wire, w_ino, 12, 8);
FORMAT_AT(struct fh_wire, w_mac, 20, 8);
static_assert(sizeof(struct fh_wire) == OP_FH_LEN, "a file handle is 28 bytes");

static void fh_mac(struct mds *m, const struct fh_wire *w, uint8_t mac[8])
{
	crypto_shorthash(mac, (const uint8_t *)w, offsetof(struct fh_wire, w_mac),
			 ns_super(m->m_ns)->su_fh_key);
}

static void fh_fill(struct mds *m, uint16_t export, uint64_t ino, struct fh_wire *w)
{
	const struct ns_super *su = ns_super(m->m_ns);

	*w = (struct fh_wire){
		.w_version = FH_VERSION,
		.w_fs = htobe16(su->su_fs),
		.w_incarnation = htobe16(su->su_incarnation),
		.w_export = htobe16(export),
		.w_ino = htobe64(ino),
	};
	memcpy(&w->w_uuid, su->su_uuid, 4);
}

void op_fh_make(struct mds *m, uint16_t export, uint64_t ino, uint8_t out[OP_FH_LEN])
{
	struct fh_wire w;

	fh_fill(m, export, ino, &w);
	fh_mac(m, &w, w.w_mac);
	memcpy(out, &w, OP_FH_LEN);
}

uint16_t op_fh_export(const uint8_t *fh, uint32_t len)
{
	struct fh_wire w;

	if (len != OP_FH_LEN)
		return 0;
	memcpy(&w, fh, OP_FH_LEN);
	return be16toh(w.w_export);
}

nfsstat4 op_fh_open(struct mds *m, const uint8_t *fh, uint32_t len, uint16_t *export, uint64_t *ino)
{
	struct fh_wire w, good;
	uint8_t mac[8];

	if (len != OP_FH_LEN)
		return NFS4ERR_BADHANDLE;
	memcpy(&w, fh, OP_FH_LEN);
	fh_mac(m, &w, mac);
	if (sodium_memcmp(w.w_mac, mac, sizeof(mac)) != 0)
		return NFS4ERR_BADHANDLE;
	*ino = be64toh(w.w_ino);
	*export = be16toh(w.w_export);
	/* This server made the handle. A difference says: before the store was restored. */
	fh_fill(m, *export, *ino, &good);
	return memcmp(&w, &good, offsetof(struct fh_wire, w_mac)) == 0 ? NFS4_OK : NFS4ERR_STALE;
}
