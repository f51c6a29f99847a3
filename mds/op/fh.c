/* The MDS's file handles: version, cluster, inode, incarnation, MAC (SipHash under the store's own key). */
#include "mds/op/op.h"
#include <assert.h>
#include <sodium.h>

#define FH_VERSION 1

struct fh_wire {
	uint8_t w_version, w_zero;
	uint16_t w_fs;
	uint16_t w_incarnation, w_zero2;
	uint32_t w_uuid;
	uint64_t w_ino;
	uint8_t w_mac[8];
} __attribute__((packed));

static_assert(sizeof(struct fh_wire) == OP_FH_LEN, "a file handle is 28 bytes");

static void fh_fill(struct mds *m, uint64_t ino, struct fh_wire *w)
{
	const struct ns_super *su = ns_super(m->m_ns);

	*w = (struct fh_wire){
		.w_version = FH_VERSION,
		.w_fs = htobe16(su->su_fs),
		.w_incarnation = htobe16(su->su_incarnation),
		.w_ino = htobe64(ino),
	};
	memcpy(&w->w_uuid, su->su_uuid, 4);
	crypto_shorthash(w->w_mac, (const uint8_t *)w, offsetof(struct fh_wire, w_mac), su->su_fh_key);
}

void op_fh_make(struct mds *m, uint64_t ino, uint8_t out[OP_FH_LEN])
{
	struct fh_wire w;

	fh_fill(m, ino, &w);
	memcpy(out, &w, OP_FH_LEN);
}

bool op_fh_open(struct mds *m, const uint8_t *fh, uint32_t len, uint64_t *ino)
{
	struct fh_wire w, good;

	if (len != OP_FH_LEN)
		return false;
	memcpy(&w, fh, OP_FH_LEN);
	*ino = be64toh(w.w_ino);
	fh_fill(m, *ino, &good);
	return sodium_memcmp(&w, &good, OP_FH_LEN) == 0;
}
