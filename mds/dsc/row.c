/* row.c - a data server's durable record: NS_T_DS, keyed by its uuid. Integers are little-endian.
 */
#include "mds/dsc/dsc_int.h"
#include <errno.h>
#include <stddef.h>

#define ROW_VERSION 2

struct row_addr {
	char r_netid[8], r_uaddr[64];
	uint8_t r_prefix; /* version 1 has none */
} __attribute__((packed));
#define ROW_ADDR_1 offsetof(struct row_addr, r_prefix)
struct row {
	uint8_t r_version, r_naddrs, r_tls, r_clone; /* clone: log2 of the block, 0 for none */
	uint32_t r_id, r_max_read, r_max_write;
	uint64_t r_capacity, r_available;
	char r_name[64];
	struct row_addr r_addrs[];
} __attribute__((packed));
_Static_assert(sizeof(struct row) == 96 && sizeof(struct row_addr) == 73 && ROW_ADDR_1 == 72, "data server record, versions 2 and 1");
_Static_assert(sizeof(struct row) + DSC_ADDRS * sizeof(struct row_addr) <= DSC_ROW_MAX,
	       "a record fits");
_Static_assert(DSC_ADDRS == CTL_ADDRS_MAX && CTL_NAME_MAX == 64, "what joins can be kept");

size_t dsc_row_encode(const struct dsc_server *sv, uint8_t *out)
{
	struct row *r = (struct row *)out;

	memset(out, 0, DSC_ROW_MAX);
	r->r_version = ROW_VERSION;
	r->r_naddrs = (uint8_t)sv->sv_naddrs;
	r->r_tls = sv->sv_tls;
	r->r_clone = sv->sv_clone_block ? (uint8_t)__builtin_ctz(sv->sv_clone_block) : 0;
	r->r_id = htole32(sv->sv_id);
	r->r_max_read = htole32(sv->sv_max_read);
	r->r_max_write = htole32(sv->sv_max_write);
	r->r_capacity = htole64(sv->sv_capacity);
	r->r_available = htole64(sv->sv_available);
	memcpy(r->r_name, sv->sv_name, sizeof(r->r_name));
	for (unsigned i = 0; i < sv->sv_naddrs; i++) {
		memcpy(r->r_addrs[i].r_netid, sv->sv_addrs[i].netid, sizeof(r->r_addrs[i].r_netid));
		memcpy(r->r_addrs[i].r_uaddr, sv->sv_addrs[i].uaddr, sizeof(r->r_addrs[i].r_uaddr));
		r->r_addrs[i].r_prefix = sv->sv_addrs[i].prefix;
	}
	return sizeof(*r) + sv->sv_naddrs * sizeof(struct row_addr);
}

int dsc_row_decode(struct kv_slice id, struct kv_slice val, struct dsc_server *sv)
{
	const struct row *r = val.s_data;
	size_t each;

	memset(sv, 0, sizeof(*sv));
	if (id.s_len != 16 || val.s_len < sizeof(*r) || (r->r_version != ROW_VERSION && r->r_version != 1))
		return -EIO;
	each = r->r_version == 1 ? ROW_ADDR_1 : sizeof(struct row_addr);
	if (r->r_naddrs > DSC_ADDRS || val.s_len != sizeof(*r) + r->r_naddrs * each)
		return -EIO;
	memcpy(sv->sv_uuid, id.s_data, 16);
	sv->sv_tls = r->r_tls <= RPC_TLS_CERT ? r->r_tls : RPC_TLS_OFF;
	sv->sv_clone_block = r->r_clone && r->r_clone <= 20 ? 1u << r->r_clone : 0;
	sv->sv_id = le32toh(r->r_id);
	sv->sv_max_read = le32toh(r->r_max_read);
	sv->sv_max_write = le32toh(r->r_max_write);
	sv->sv_capacity = le64toh(r->r_capacity);
	sv->sv_available = le64toh(r->r_available);
	memcpy(sv->sv_name, r->r_name, sizeof(r->r_name));
	sv->sv_naddrs = r->r_naddrs;
	for (unsigned i = 0; i < sv->sv_naddrs; i++) {
		const struct row_addr *ra = (const struct row_addr *)((const uint8_t *)r->r_addrs + i * each);

		memcpy(sv->sv_addrs[i].netid, ra->r_netid, sizeof(ra->r_netid));
		memcpy(sv->sv_addrs[i].uaddr, ra->r_uaddr, sizeof(ra->r_uaddr));
		sv->sv_addrs[i].prefix = r->r_version == 1 ? 0 : ra->r_prefix;
		sv->sv_addrs[i].netid[7] = 0;
		sv->sv_addrs[i].uaddr[63] = 0;
	}
	return sv->sv_id && sv->sv_id <= DSC_MAX ? 0 : -EIO;
}
