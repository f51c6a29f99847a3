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
	uint8_t fw_version, fw_zero;
	uint16_t fw_fs;
	uint16_t fw_incarnation;
	/* number of the export that gave the handle (export_table.h); 0 also in handles from before
	 * there were exports */
	uint16_t fw_export;
	uint32_t fw_uuid;
	uint64_t fw_ino;
	uint8_t fw_mac[8];
} __attribute__((packed));

FORMAT_AT(struct fh_wire, fw_version, 0, 1);
FORMAT_AT(struct fh_wire, fw_zero, 1, 1);
FORMAT_AT(struct fh_wire, fw_fs, 2, 2);
FORMAT_AT(struct fh_wire, fw_incarnation, 4, 2);
FORMAT_AT(struct fh_wire, fw_export, 6, 2);
FORMAT_AT(struct fh_wire, fw_uuid, 8, 4);
FORMAT_AT(struct fh_wire, fw_ino, 12, 8);
FORMAT_AT(struct fh_wire, fw_mac, 20, 8);
static_assert(sizeof(struct fh_wire) == OP_FH_LEN, "a file handle is 28 bytes");

static void fh_mac(struct mds *m, const struct fh_wire *w, uint8_t mac[8])
{
	crypto_shorthash(mac, (const uint8_t *)w, offsetof(struct fh_wire, fw_mac),
			 ns_super(m->m_ns)->su_fh_key);
}

static void fh_fill(struct mds *m, uint16_t export, uint64_t ino, struct fh_wire *w)
{
	const struct ns_super *su = ns_super(m->m_ns);

	*w = (struct fh_wire){
		.fw_version = FH_VERSION,
		.fw_fs = htobe16(su->su_fs),
		.fw_incarnation = htobe16(su->su_incarnation),
		.fw_export = htobe16(export),
		.fw_ino = htobe64(ino),
	};
	memcpy(&w->fw_uuid, su->su_uuid, 4);
}

void op_fh_make(struct mds *m, uint16_t export, uint64_t ino, uint8_t out[OP_FH_LEN])
{
	struct fh_wire w;

	fh_fill(m, export, ino, &w);
	fh_mac(m, &w, w.fw_mac);
	memcpy(out, &w, OP_FH_LEN);
}

uint16_t op_fh_export(const uint8_t *fh, uint32_t len)
{
	struct fh_wire w;

	if (len != OP_FH_LEN)
		return 0;
	memcpy(&w, fh, OP_FH_LEN);
	return be16toh(w.fw_export);
}

nfsstat4 op_fh_open(struct mds *m, const uint8_t *fh, uint32_t len, uint16_t *export, uint64_t *ino)
{
	struct fh_wire w, good;
	uint8_t mac[8];

	if (len != OP_FH_LEN)
		return NFS4ERR_BADHANDLE;
	memcpy(&w, fh, OP_FH_LEN);
	fh_mac(m, &w, mac);
	if (sodium_memcmp(w.fw_mac, mac, sizeof(mac)) != 0)
		return NFS4ERR_BADHANDLE;
	*ino = be64toh(w.fw_ino);
	*export = be16toh(w.fw_export);
	/* This server made the handle. A difference says: before the store was restored. */
	fh_fill(m, *export, *ino, &good);
	return memcmp(&w, &good, offsetof(struct fh_wire, fw_mac)) == 0 ? NFS4_OK : NFS4ERR_STALE;
}
