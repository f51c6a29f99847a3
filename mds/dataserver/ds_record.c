/* SPDX-License-Identifier: Apache-2.0 */
/* ds_record.c - a data server's durable record: NS_T_DS, keyed by its uuid. Integers are
 * little-endian.
 */
#include "base/format.h"
#include "mds/dataserver/ds_reg_int.h"
#include <errno.h>
#include <stddef.h>

#define ROW_VERSION 7

struct row_addr {
	char rad_netid[8], rad_uaddr[64];
	uint8_t rad_prefix; /* not in version 1 */
} __attribute__((packed));
#define ROW_ADDR_1 offsetof(struct row_addr, rad_prefix)
struct row {
	uint8_t rwo_version, rwo_naddrs, rwo_tls,
		rwo_clone; /* rwo_clone: log2 of the block, 0 for none */
	uint32_t rwo_id, rwo_max_read, rwo_max_write;
	uint64_t rwo_capacity, rwo_available;
	char rwo_name[64];
	struct row_addr rwo_addrs[];
} __attribute__((packed));
/* Follows the addresses since version 3. The two texts of labels follow it, without NULs. */
struct row_terms {
	uint32_t rte_weight;
	uint16_t rte_own, rte_set; /* lengths in bytes */
} __attribute__((packed));
#define WEIGHT_DRAINING (UINT32_C(1) << 31) /* flag in rte_weight */
_Static_assert(DS_REG_WEIGHT_MAX < WEIGHT_DRAINING, "the weight has room for it");
/* At the end, since version 4. */
struct row_bar {
	uint64_t rba_since;
	uint8_t rba_barred;
	uint8_t rba_protocol; /* 0 here and in rba_since_boot: an older release wrote it */
	uint32_t rba_since_boot;
	/* since version 6, which only servers with keys of their own have */
	uint8_t rba_own, rba_key_number;
} __attribute__((packed));
_Static_assert(sizeof(struct row_bar) == 16, "data server record, version 4");
/* The last join. Follows row_bar since version 5. */
struct row_join {
	uint64_t rjo_boot, rjo_start, rjo_start_id, rjo_order;
	uint8_t rjo_why, rjo_zero[7];
} __attribute__((packed));
_Static_assert(sizeof(struct row_join) == 40, "data server record, version 5");
/* Follows row_join since version 7, which only servers with join numbers have. */
struct row_count {
	uint64_t rco_had_boot;
	uint32_t rco_joins, rco_had_joins;
} __attribute__((packed));
_Static_assert(sizeof(struct row_count) == 16, "data server record, version 7");
FORMAT_AT(struct row, rwo_version, 0, 1);
FORMAT_AT(struct row, rwo_naddrs, 1, 1);
FORMAT_AT(struct row, rwo_tls, 2, 1);
FORMAT_AT(struct row, rwo_clone, 3, 1);
FORMAT_AT(struct row, rwo_id, 4, 4);
FORMAT_AT(struct row, rwo_max_read, 8, 4);
FORMAT_AT(struct row, rwo_max_write, 12, 4);
FORMAT_AT(struct row, rwo_capacity, 16, 8);
FORMAT_AT(struct row, rwo_available, 24, 8);
FORMAT_AT(struct row, rwo_name, 32, 64);
FORMAT_AT(struct row_addr, rad_netid, 0, 8);
FORMAT_AT(struct row_addr, rad_uaddr, 8, 64);
FORMAT_AT(struct row_addr, rad_prefix, 72, 1);
FORMAT_AT(struct row_terms, rte_weight, 0, 4);
FORMAT_AT(struct row_terms, rte_own, 4, 2);
FORMAT_AT(struct row_terms, rte_set, 6, 2);
FORMAT_AT(struct row_bar, rba_since, 0, 8);
FORMAT_AT(struct row_bar, rba_barred, 8, 1);
FORMAT_AT(struct row_bar, rba_protocol, 9, 1);
FORMAT_AT(struct row_bar, rba_since_boot, 10, 4);
FORMAT_AT(struct row_bar, rba_own, 14, 1);
FORMAT_AT(struct row_bar, rba_key_number, 15, 1);
FORMAT_AT(struct row_join, rjo_boot, 0, 8);
FORMAT_AT(struct row_join, rjo_start, 8, 8);
FORMAT_AT(struct row_join, rjo_start_id, 16, 8);
FORMAT_AT(struct row_join, rjo_order, 24, 8);
FORMAT_AT(struct row_join, rjo_why, 32, 1);
FORMAT_AT(struct row_join, rjo_zero, 33, 7);
FORMAT_AT(struct row_count, rco_had_boot, 0, 8);
FORMAT_AT(struct row_count, rco_joins, 8, 4);
FORMAT_AT(struct row_count, rco_had_joins, 12, 4);
_Static_assert(sizeof(struct row_terms) == 8, "data server record, version 3");
_Static_assert(sizeof(struct row) == 96 && sizeof(struct row_addr) == 73 && ROW_ADDR_1 == 72,
	       "data server record, versions 2 and 1");
_Static_assert(sizeof(struct row) + DS_REG_ADDRS * sizeof(struct row_addr) +
			       sizeof(struct row_terms) + 2 * LABELS_LEN + sizeof(struct row_bar) +
			       sizeof(struct row_join) + sizeof(struct row_count) <=
		       DS_REG_ROW_MAX,
	       "a record fits");
_Static_assert(DS_REG_ADDRS == CTL_ADDRS_MAX && CTL_NAME_MAX == 64 &&
		       CTL_LABELS_MAX >= LABELS_LEN - 1,
	       "what joins can be kept");

static bool ds_record_counted(const struct ds_reg_terms *dt)
{
	return dt->dt_joins || dt->dt_had_joins || dt->dt_had_boot;
}

static size_t terms_encode(const struct ds_reg_server *sv, const struct ds_reg_terms *dt,
			   uint8_t *out)
{
	size_t own = strlen(dt->dt_own), set = strlen(dt->dt_set);
	struct row_terms *rt = (struct row_terms *)out;
	struct row_bar bar = {0};
	struct row_join join = {0};
	struct row_count count = {0};
	size_t len = sizeof(*rt) + own + set;

	rt->rte_weight = htole32(dt->dt_weight | (dt->dt_draining ? WEIGHT_DRAINING : 0));
	rt->rte_own = htole16((uint16_t)own);
	rt->rte_set = htole16((uint16_t)set);
	memcpy(out + sizeof(*rt), dt->dt_own, own);
	memcpy(out + sizeof(*rt) + own, dt->dt_set, set);
	bar.rba_since = htole64(dt->dt_barred_s);
	bar.rba_barred = dt->dt_barred;
	bar.rba_protocol = sv->sv_protocol;
	bar.rba_since_boot = htole32(sv->sv_since_boot);
	bar.rba_own = sv->sv_own;
	bar.rba_key_number = sv->sv_own ? sv->sv_key_number : 0;
	memcpy(out + len, &bar, sizeof(bar));
	join.rjo_boot = htole64(dt->dt_boot);
	join.rjo_start = htole64(dt->dt_start);
	join.rjo_start_id = htole64(dt->dt_start_id);
	join.rjo_order = htole64(dt->dt_order);
	join.rjo_why = dt->dt_why;
	memcpy(out + len + sizeof(bar), &join, sizeof(join));
	if (!ds_record_counted(dt))
		return len + sizeof(bar) + sizeof(join);
	count.rco_had_boot = htole64(dt->dt_had_boot);
	count.rco_joins = htole32(dt->dt_joins);
	count.rco_had_joins = htole32(dt->dt_had_joins);
	memcpy(out + len + sizeof(bar) + sizeof(join), &count, sizeof(count));
	return len + sizeof(bar) + sizeof(join) + sizeof(count);
}

/* Decodes labels as they were written. -EIO: not valid labels. */
static int labels_decode(const uint8_t *p, size_t n, char out[LABELS_LEN])
{
	char err[256];

	if (n >= LABELS_LEN || labels_parse((const char *)p, n, false, out, err, sizeof(err)))
		return -EIO;
	return strlen(out) == n && !memcmp(out, p, n) ? 0 : -EIO;
}

static int bar_decode(const uint8_t *p, struct ds_reg_server *sv, struct ds_reg_terms *dt)
{
	const struct row_bar *rb = (const struct row_bar *)p;

	sv->sv_protocol = rb->rba_protocol;
	sv->sv_since_boot = le32toh(rb->rba_since_boot);
	sv->sv_own = rb->rba_own == 1;
	sv->sv_key_number = rb->rba_key_number;
	dt->dt_barred = rb->rba_barred;
	dt->dt_barred_s = le64toh(rb->rba_since);
	return dt->dt_barred == 0 || dt->dt_barred == DS_REG_KILLED ||
			       dt->dt_barred == DS_REG_WAITING
		       ? 0
		       : -EIO;
}

static int join_decode(const uint8_t *p, struct ds_reg_terms *dt)
{
	const struct row_join *rj = (const struct row_join *)p;

	dt->dt_boot = le64toh(rj->rjo_boot);
	dt->dt_start = le64toh(rj->rjo_start);
	dt->dt_start_id = le64toh(rj->rjo_start_id);
	dt->dt_order = le64toh(rj->rjo_order);
	dt->dt_why = rj->rjo_why;
	return dt->dt_why < DS_REG_WHYS && (!dt->dt_why || dt->dt_barred == DS_REG_WAITING) ? 0
											    : -EIO;
}

static void count_decode(const uint8_t *p, struct ds_reg_terms *dt)
{
	const struct row_count *rc = (const struct row_count *)p;

	dt->dt_had_boot = le64toh(rc->rco_had_boot);
	dt->dt_joins = le32toh(rc->rco_joins);
	dt->dt_had_joins = le32toh(rc->rco_had_joins);
}

static int terms_decode(const uint8_t *p, size_t n, struct ds_reg_terms *dt)
{
	const struct row_terms *rt = (const struct row_terms *)p;
	size_t own, set;

	if (n < sizeof(*rt))
		return -EIO;
	own = le16toh(rt->rte_own);
	set = le16toh(rt->rte_set);
	dt->dt_weight = le32toh(rt->rte_weight) & ~WEIGHT_DRAINING;
	dt->dt_draining = le32toh(rt->rte_weight) & WEIGHT_DRAINING;
	if (n != sizeof(*rt) + own + set || dt->dt_weight > DS_REG_WEIGHT_MAX ||
	    labels_decode(p + sizeof(*rt), own, dt->dt_own) ||
	    labels_decode(p + sizeof(*rt) + own, set, dt->dt_set))
		return -EIO;
	return 0;
}

size_t ds_reg_row_encode(const struct ds_reg_server *sv, const struct ds_reg_terms *dt,
			 uint8_t *out)
{
	struct row *r = (struct row *)out;

	memset(out, 0, DS_REG_ROW_MAX);
	r->rwo_version = ds_record_counted(dt) ? ROW_VERSION
			 : sv->sv_own	       ? ROW_VERSION - 1
					       : ROW_VERSION - 2;
	r->rwo_naddrs = (uint8_t)sv->sv_naddrs;
	r->rwo_tls = sv->sv_peers ? CTL_TLS_PEERS : sv->sv_tls;
	r->rwo_clone = sv->sv_clone_block ? (uint8_t)__builtin_ctz(sv->sv_clone_block) : 0;
	r->rwo_id = htole32(sv->sv_id);
	r->rwo_max_read = htole32(sv->sv_max_read);
	r->rwo_max_write = htole32(sv->sv_max_write);
	r->rwo_capacity = htole64(sv->sv_capacity);
	r->rwo_available = htole64(sv->sv_available);
	memcpy(r->rwo_name, sv->sv_name, sizeof(r->rwo_name));
	for (unsigned i = 0; i < sv->sv_naddrs; i++) {
		memcpy(r->rwo_addrs[i].rad_netid, sv->sv_addrs[i].netid,
		       sizeof(r->rwo_addrs[i].rad_netid));
		memcpy(r->rwo_addrs[i].rad_uaddr, sv->sv_addrs[i].uaddr,
		       sizeof(r->rwo_addrs[i].rad_uaddr));
		r->rwo_addrs[i].rad_prefix = sv->sv_addrs[i].prefix;
	}
	return sizeof(*r) + sv->sv_naddrs * sizeof(struct row_addr) +
	       terms_encode(sv, dt, (uint8_t *)&r->rwo_addrs[sv->sv_naddrs]);
}

int ds_reg_row_decode(struct kv_slice id, struct kv_slice val, struct ds_reg_server *sv,
		      struct ds_reg_terms *dt)
{
	const struct row *r = val.s_data;
	size_t each, len, end, count;

	memset(sv, 0, sizeof(*sv));
	memset(dt, 0, sizeof(*dt));
	dt->dt_weight = DS_REG_WEIGHT_ONE;
	if (id.s_len != 16 || val.s_len < sizeof(*r) || !r->rwo_version ||
	    r->rwo_version > ROW_VERSION)
		return -EIO;
	each = r->rwo_version == 1 ? ROW_ADDR_1 : sizeof(struct row_addr);
	len = sizeof(*r) + r->rwo_naddrs * each;
	if (r->rwo_naddrs > DS_REG_ADDRS || val.s_len < len ||
	    (r->rwo_version < 3 && val.s_len != len))
		return -EIO;
	count = r->rwo_version >= 7 ? sizeof(struct row_count) : 0;
	end = (r->rwo_version >= 4 ? sizeof(struct row_bar) : 0) +
	      (r->rwo_version >= 5 ? sizeof(struct row_join) : 0) + count;
	if (val.s_len < len + end ||
	    (end && bar_decode((const uint8_t *)val.s_data + val.s_len - end, sv, dt)))
		return -EIO;
	if (r->rwo_version >= 5 &&
	    join_decode((const uint8_t *)val.s_data + val.s_len - count - sizeof(struct row_join),
			dt))
		return -EIO;
	if (count)
		count_decode((const uint8_t *)val.s_data + val.s_len - count, dt);
	if (r->rwo_version >= 3 &&
	    terms_decode((const uint8_t *)val.s_data + len, val.s_len - len - end, dt))
		return -EIO;
	labels_merge(dt->dt_own, dt->dt_set, dt->dt_labels);
	memcpy(sv->sv_uuid, id.s_data, 16);
	sv->sv_tls = r->rwo_tls <= RPC_TLS_CERT ? r->rwo_tls : RPC_TLS_OFF;
	sv->sv_peers = r->rwo_tls == CTL_TLS_PEERS;
	sv->sv_clone_block = r->rwo_clone && r->rwo_clone <= 20 ? 1u << r->rwo_clone : 0;
	sv->sv_id = le32toh(r->rwo_id);
	sv->sv_max_read = le32toh(r->rwo_max_read);
	sv->sv_max_write = le32toh(r->rwo_max_write);
	sv->sv_capacity = le64toh(r->rwo_capacity);
	sv->sv_available = le64toh(r->rwo_available);
	memcpy(sv->sv_name, r->rwo_name, sizeof(r->rwo_name));
	sv->sv_naddrs = r->rwo_naddrs;
	for (unsigned i = 0; i < sv->sv_naddrs; i++) {
		const struct row_addr *ra =
			(const struct row_addr *)((const uint8_t *)r->rwo_addrs + i * each);

		memcpy(sv->sv_addrs[i].netid, ra->rad_netid, sizeof(ra->rad_netid));
		memcpy(sv->sv_addrs[i].uaddr, ra->rad_uaddr, sizeof(ra->rad_uaddr));
		sv->sv_addrs[i].prefix = r->rwo_version == 1 ? 0 : ra->rad_prefix;
		sv->sv_addrs[i].netid[7] = 0;
		sv->sv_addrs[i].uaddr[63] = 0;
	}
	return sv->sv_id && sv->sv_id <= DS_REG_MAX ? 0 : -EIO;
}
