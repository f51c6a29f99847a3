/* SPDX-License-Identifier: Apache-2.0 */
/* flexfiles.c - encodes Flex Files layouts (RFC 8435 sections 4.1 and 5.1), and describes a file's
 * layout as JSON. */
#include "common/exports.h"
#include "mds/layout/lo_int.h"
#include "proto/objname.h"
#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>

/* Clients sort mirrors by the sum of their efficiencies and read from the first. The row's rank is
 * added to these values. */
#define EFF_ALIVE 1000u
#define EFF_DEAD  1u
#define EFF_NONE  0u /* a row with an object that is being rebuilt */

void lo_mint(struct lo *lo, const struct ds_reg_server *sv, uint64_t ino, uint16_t incarnation,
	     const struct lo_map *m, unsigned obj, unsigned rights, uint32_t client,
	     uint8_t fh[CAP_LEN])
{
	/* Version 2 takes the file system number from the inode number, so a store with another
	 * number has no version 2. */
	bool two =
		sv->sv_protocol >= CTL_PROTOCOL_CAP2 && cap_fs_of(ino) == ns_super(lo->l_ns)->su_fs;
	struct cap c = {
		.cp_obj =
			{
				.co_ino = ino,
				.co_fs = ns_super(lo->l_ns)->su_fs,
				.co_incarnation = incarnation,
				.co_stripe = (uint8_t)(obj % m->lm_stripes),
				.co_copy = m->lm_obj[obj].ob_copy,
			},
		.cp_version = two ? 2 : 1,
		.cp_unit_log2 = m->lm_stripes > 1 ? (uint8_t)__builtin_ctz(m->lm_unit) : 0,
		.cp_stripes = m->lm_stripes,
		.cp_rights = (uint8_t)(rights | (m->lm_obj[obj].ob_known ? CAP_MUST_EXIST : 0)),
		.cp_key = sv->sv_key_number,
		.cp_epoch = m->lm_epoch,
		.cp_client = client,
	};

	cap_mint(&c, sv->sv_key, fh);
}

static struct cap_object cap_object(struct lo *lo, uint64_t ino, uint16_t incarnation,
				    const struct lo_map *m, unsigned obj)
{
	return (struct cap_object){
		.co_ino = ino,
		.co_fs = ns_super(lo->l_ns)->su_fs,
		.co_incarnation = incarnation,
		.co_stripe = (uint8_t)(obj % m->lm_stripes),
		.co_copy = m->lm_obj[obj].ob_copy,
	};
}

int lo_handle(struct lo *lo, const struct ds_reg_server *sv, uint64_t ino, uint16_t incarnation,
	      const struct lo_map *m, unsigned obj, unsigned rights, uint32_t client,
	      struct ds_reg_handle *h)
{
	struct cap_object co = cap_object(lo, ino, incarnation, m, obj);

	if (sv->sv_nfs3)
		return ds_reg_nfs3_handle(lo->l_dsc, sv->sv_id, &co, m->lm_epoch,
					  rights & CAP_WRITE, h);
	memset(h, 0, sizeof(*h));
	h->dh_len = CAP_LEN;
	lo_mint(lo, sv, ino, incarnation, m, obj, rights, client, h->dh_data);
	return 0;
}

/* Returns the objects (a bit each) of a map that the old map does not have (NULL: all of them). */
static uint64_t are_new(const struct lo_map *old, const struct lo_map *m)
{
	uint64_t bits = 0;

	for (unsigned k = 0; k < lo_objects(m); k++)
		if (m->lm_obj[k].ob_state != LO_ABSENT &&
		    (!old || lo_object_of(old, m->lm_obj[k].ob_ds, k % m->lm_stripes,
					  m->lm_obj[k].ob_copy) < 0))
			bits |= UINT64_C(1) << k;
	return bits;
}

int lo_adopt(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, const struct lo_map *old,
	     const struct lo_map *m)
{
	uint64_t new = are_new(old, m);
	struct ds_reg_server sv;
	int err = 0;

	for (unsigned k = 0; k < lo_objects(m) && ds_reg_has_generic(lo->l_dsc) && !err; k++) {
		struct cap_object co = cap_object(lo, i->i_ino, i->i_incarnation, m, k);

		if (!(new >> k & 1) || !ds_reg_get(lo->l_dsc, m->lm_obj[k].ob_ds, &sv) ||
		    !sv.sv_nfs3)
			continue;
		err = ds_reg_nfs3_take(lo->l_dsc, t, m->lm_obj[k].ob_ds, &co);
		/* Files made ahead have epoch 1. */
		if (!err && m->lm_epoch != 1)
			err = lo_order_fence_object(lo, t, i, m, k);
	}
	return err;
}

int lo_can_adopt(struct lo *lo, struct kv_txn *t, const struct lo_map *old, const struct lo_map *m)
{
	uint64_t new = are_new(old, m);
	int err = 0;

	for (unsigned k = 0; k < lo_objects(m) && ds_reg_has_generic(lo->l_dsc) && !err; k++) {
		unsigned n = 0;

		for (unsigned i = 0; (new >> k & 1) && i <= k; i++)
			n += (new >> i & 1) && m->lm_obj[i].ob_ds == m->lm_obj[k].ob_ds;
		err = ds_reg_nfs3_ready(lo->l_dsc, t, m->lm_obj[k].ob_ds, n);
	}
	return err;
}

static bool any_generic(struct lo *lo, const struct lo_map *m, bool rebuilding)
{
	struct ds_reg_server sv;

	for (unsigned k = 0; k < lo_objects(m) && ds_reg_has_generic(lo->l_dsc); k++)
		if (m->lm_obj[k].ob_state != LO_ABSENT &&
		    (!rebuilding || m->lm_obj[k].ob_state == LO_REBUILDING) &&
		    ds_reg_get(lo->l_dsc, m->lm_obj[k].ob_ds, &sv) && sv.sv_nfs3)
			return true;
	return false;
}

bool lo_generic(struct lo *lo, const struct lo_map *m)
{
	return any_generic(lo, m, false);
}

bool lo_copied_here(struct lo *lo, const struct lo_map *m)
{
	return any_generic(lo, m, true);
}

void lo_ctl_object(struct lo *lo, uint64_t ino, uint16_t incarnation, const struct lo_map *m,
		   unsigned obj, ctl_object *out)
{
	*out = (ctl_object){
		.ino = ino,
		.fs = ns_super(lo->l_ns)->su_fs,
		.incarnation = incarnation,
		.stripe = obj % m->lm_stripes,
		.mirror = m->lm_obj[obj].ob_copy,
	};
}

void lo_object_name(struct lo *lo, uint64_t ino, uint16_t incarnation, const struct lo_map *m,
		    unsigned obj, ctl_object *out)
{
	lo_ctl_object(lo, ino, incarnation, m, obj, out);
}

/* ---- ff_layout4 ---- */

struct encoding {
	struct lo *en_lo;
	const struct ns_inode *en_inode;
	const struct lo_map *en_map;
	bool en_read, en_write, en_same; /* en_same: rd_same */
	uint32_t en_client;
	struct xdr_out *en_x;
	/* The copies of each stripe, lm_mirrors places per stripe: first the copies in sync, in the
	 * order for this client, then, if it writes, the copies being rebuilt. */
	uint8_t en_order[LO_MAX_OBJECTS], en_count[LO_MAX_OBJECTS], en_sync[LO_MAX_OBJECTS];
};

/* Encodes one ff_data_server4. whole: all objects of its row are in sync. */
static int put_data_server(const struct encoding *en, unsigned obj, bool whole, unsigned rank)
{
	const struct lo_map *m = en->en_map;
	/* Where copies may differ, clients read only the first. A client that fails to read it
	 * reports that to the metadata server and does not try another copy by itself. */
	bool first = !en->en_same || obj == en->en_order[obj % m->lm_stripes * m->lm_mirrors];
	bool read = en->en_read && first && m->lm_obj[obj].ob_state == LO_IN_SYNC;
	unsigned rights = (read ? CAP_READ : 0) | (en->en_write ? CAP_WRITE : 0) |
			  (m->lm_stripes > 1 ? CAP_STRIPED : 0);
	static const uint8_t anonymous[16];
	struct ds_reg_handle h;
	struct ds_reg_server sv;
	char user[16], group[16];
	int err;

	if (!ds_reg_get(en->en_lo->l_dsc, m->lm_obj[obj].ob_ds, &sv))
		return -EIO;
	err = lo_handle(en->en_lo, &sv, en->en_inode->i_ino, en->en_inode->i_incarnation, m, obj,
			rights, en->en_client, &h);
	if (err)
		return err == -ENOBUFS ? -EAGAIN : err;
	xdr_put_fixed(en->en_x, sv.sv_uuid, 16);
	xdr_put_u32(en->en_x,
		    whole ? (sv.sv_alive || en->en_same ? EFF_ALIVE : EFF_DEAD) + rank : EFF_NONE);
	xdr_put_fixed(en->en_x, anonymous, 16);
	xdr_put_u32(en->en_x, 1);
	xdr_put_opaque(en->en_x, h.dh_data, h.dh_len);
	/* The client accepts only numbers here. weft's data servers check the capability and ignore
	 * the user, so both are 0 for them. */
	xdr_put_opaque(en->en_x, user, (uint32_t)snprintf(user, sizeof(user), "%u", h.dh_uid));
	xdr_put_opaque(en->en_x, group, (uint32_t)snprintf(group, sizeof(group), "%u", h.dh_gid));
	return 0;
}

/* Orders the copies of each stripe. Returns the most copies that any stripe has, or 0 when a stripe
 * has none in sync. */
static unsigned put_in_order(struct encoding *en, uint64_t ino, const struct lo_reader *reader)
{
	const struct lo_map *m = en->en_map;
	unsigned most = 0, from = lo_prefer_from(m, ino, reader);
	uint64_t firsts = 0;

	for (unsigned k = 0; k < m->lm_stripes; k++) {
		unsigned s = (from + k) % m->lm_stripes;
		uint8_t *order = en->en_order + s * m->lm_mirrors;
		unsigned n = lo_prefer(en->en_lo, m, ino, s, reader, firsts, order);
		int obj;

		if (!n)
			return 0;
		firsts |= UINT64_C(1) << order[0];
		en->en_sync[s] = (uint8_t)n;
		for (; en->en_write && (obj = lo_writer(m, s, n)) >= 0; n++)
			order[n] = (uint8_t)obj;
		en->en_count[s] = (uint8_t)n;
		most = n > most ? n : most;
	}
	return most;
}

/* Returns the object that row r names for a stripe. */
static unsigned in_row(const struct encoding *en, unsigned stripe, unsigned r)
{
	return en->en_order[stripe * en->en_map->lm_mirrors +
			    (r < en->en_count[stripe] ? r : en->en_sync[stripe] - 1u)];
}

static int flexfiles_put_row(const struct encoding *en, unsigned r, unsigned rank)
{
	const struct lo_map *m = en->en_map;
	bool whole = true;
	int err = 0;

	for (unsigned s = 0; s < m->lm_stripes; s++)
		whole &= m->lm_obj[in_row(en, s, r)].ob_state == LO_IN_SYNC;
	xdr_put_u32(en->en_x, m->lm_stripes);
	for (unsigned s = 0; s < m->lm_stripes && !err; s++)
		err = put_data_server(en, in_row(en, s, r), whole, rank);
	return err;
}

int lo_encode_layout(struct lo *lo, const struct ns_inode *i, const struct lo_map *m, bool read,
		     bool write, const struct lo_reader *reader, uint32_t flags, struct xdr_out *x)
{
	struct encoding en = {.en_lo = lo,
			      .en_inode = i,
			      .en_map = m,
			      .en_read = read,
			      .en_write = write,
			      .en_same = reader->rd_same,
			      .en_client = reader->rd_client,
			      .en_x = x};
	struct lo_map worth = *m;
	size_t at = x->x_len;
	unsigned nrows;
	int err = 0;

	if (!write && !reader->rd_same) {
		lo_map_make_stale(&worth, lo_map_dead(lo, m), NULL); /* in this layout only */
		en.en_map = m = &worth;
	}
	nrows = put_in_order(&en, i->i_ino, reader);
	if (!nrows)
		return -EAGAIN;
	if (!write && reader->rd_same)
		nrows = 1;
	xdr_put_u64(x, m->lm_stripes > 1 ? m->lm_unit : 0);
	xdr_put_u32(x, nrows);
	for (unsigned r = 0; r < nrows && !err; r++)
		err = flexfiles_put_row(&en, r, nrows - 1 - r);
	xdr_put_u32(x, flags);
	xdr_put_u32(x, 0);
	if (!err && !x->bad && x->x_len - at > LO_LAYOUT_MAX)
		err = -E2BIG;
	if (!err && x->bad)
		err = -ENOBUFS;
	if (err)
		xdr_truncate(x, at);
	return err;
}

/* ---- ff_device_addr4 ---- */

/* Whether two addresses agree in the first `bits` bits. */
static bool flexfiles_same_net(const struct sockaddr_storage *a, const struct sockaddr_storage *b,
			       unsigned bits)
{
	uint8_t x[16], y[16];
	uint16_t port;

	if (a->ss_family != b->ss_family || !bits || !exp_addr(a, x, &port) ||
	    !exp_addr(b, y, &port))
		return false;
	if (a->ss_family == AF_INET)
		bits += 96;
	return bits <= 128 && exp_same_net(x, y, bits);
}

unsigned lo_order_addrs(const struct ds_reg_server *sv, const struct sockaddr_storage *peer,
			bool tls, uint8_t order[DS_REG_ADDRS])
{
	unsigned rank[DS_REG_ADDRS], n = 0;

	for (unsigned i = 0; i < sv->sv_naddrs; i++) {
		struct sockaddr_storage ss;
		socklen_t len;
		unsigned k;

		rank[i] = strncmp(sv->sv_addrs[i].netid, "rdma", 4) ? 2 : 0;
		if (tls && !rank[i])
			continue;
		if (rpc_uaddr_parse(sv->sv_addrs[i].netid, sv->sv_addrs[i].uaddr, &ss, &len) ||
		    !flexfiles_same_net(peer, &ss, sv->sv_addrs[i].prefix))
			rank[i]++;
		for (k = n++; k && rank[order[k - 1]] > rank[i]; k--)
			order[k] = order[k - 1];
		order[k] = (uint8_t)i;
	}
	return n;
}

/* Encodes one NFSv3 version. ffdv_tightly_coupled is false, as RFC 8435 section 4.1 wants it with
 * version 3: clients send their own ids, and weft's data servers ignore them. */
static void put_device(const struct ds_reg_server *sv, const struct sockaddr_storage *peer,
		       bool tls, struct xdr_out *x)
{
	uint8_t order[DS_REG_ADDRS];
	unsigned n = lo_order_addrs(sv, peer, tls, order);

	xdr_put_u32(x, n);
	for (unsigned k = 0; k < n; k++) {
		unsigned i = order[k];

		xdr_put_opaque(x, sv->sv_addrs[i].netid, (uint32_t)strlen(sv->sv_addrs[i].netid));
		xdr_put_opaque(x, sv->sv_addrs[i].uaddr, (uint32_t)strlen(sv->sv_addrs[i].uaddr));
	}
	xdr_put_u32(x, 1);
	xdr_put_u32(x, 3);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, sv->sv_max_read < 4096 ? 4096 : sv->sv_max_read);
	xdr_put_u32(x, sv->sv_max_write < 4096 ? 4096 : sv->sv_max_write);
	xdr_put_bool(x, false);
}

int lo_encode_device(struct lo *lo, const uint8_t deviceid[16], const struct sockaddr_storage *peer,
		     bool tls, struct xdr_out *x)
{
	size_t at = x->x_len;
	struct ds_reg_server sv;

	if (!ds_reg_get_uuid(lo->l_dsc, deviceid, &sv))
		return -ENOENT;
	put_device(&sv, peer, tls, x);
	if (x->bad) {
		xdr_truncate(x, at);
		return -ENOBUFS;
	}
	return 0;
}

/* ---- JSON ---- */

static const char *state_name(uint8_t state)
{
	static const char *const names[] = {"in-sync", "stale", "rebuilding", "absent"};

	return state < 4 ? names[state] : "?";
}

/* Formats a universal address as people write it: "127.0.0.1:12050", "[::1]:12050". */
static json_t *address(const char *netid, const char *uaddr)
{
	char host[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + 10];
	struct sockaddr_storage ss;
	socklen_t len;

	if (rpc_uaddr_parse(netid, uaddr, &ss, &len))
		return json_string(uaddr);
	if (ss.ss_family == AF_INET6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;

		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(text, sizeof(text), "[%s]:%u", host, ntohs(in6->sin6_port));
	} else {
		struct sockaddr_in *in = (struct sockaddr_in *)&ss;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(text, sizeof(text), "%s:%u", host, ntohs(in->sin_port));
	}
	return json_string(text);
}

void lo_uuid_text(const uint8_t uuid[16], char out[37])
{
	char *p = out;

	for (unsigned i = 0; i < 16; i++)
		p += sprintf(p, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			     uuid[i]);
}

struct json_t *lo_addrs_json(const struct ds_reg_server *sv)
{
	json_t *addrs = json_array();

	for (unsigned i = 0; i < sv->sv_naddrs; i++)
		json_array_append_new(addrs, address(sv->sv_addrs[i].netid, sv->sv_addrs[i].uaddr));
	return addrs;
}

/* Returns where a file of this size ends in the objects of a stripe: the end of the file's last
 * unit there. */
static uint64_t stripe_end(const struct lo_map *m, unsigned stripe, uint64_t size)
{
	uint64_t units, last;

	if (!size)
		return 0;
	units = (size - 1) / m->lm_unit; /* number of the file's last unit */
	if (units < stripe)
		return 0;
	last = units - (units - stripe) % m->lm_stripes;
	return last == units ? size : (last + 1) * m->lm_unit;
}

static json_t *object_json(struct lo *lo, const struct ns_inode *i, const struct lo_map *m,
			   unsigned obj, unsigned *eff)
{
	struct cap_object co = {
		.co_ino = i->i_ino,
		.co_fs = ns_super(lo->l_ns)->su_fs,
		.co_incarnation = i->i_incarnation,
		.co_stripe = (uint8_t)(obj % m->lm_stripes),
		.co_copy = m->lm_obj[obj].ob_copy,
	};
	char path[OBJPATH_MAX > DS_REG_GEN_PATH ? OBJPATH_MAX : DS_REG_GEN_PATH], id[37], name[32];
	struct ds_reg_server sv;
	json_t *j;

	if (m->lm_obj[obj].ob_state == LO_ABSENT)
		return json_pack("{s:n, s:n, s:[], s:n, s:i, s:s}", "ds", "id", "addr", "object",
				 "size", 0, "state", state_name(LO_ABSENT));
	if (!ds_reg_get(lo->l_dsc, m->lm_obj[obj].ob_ds, &sv)) {
		memset(&sv, 0, sizeof(sv));
		snprintf(name, sizeof(name), "unknown-%u", m->lm_obj[obj].ob_ds);
		strcpy(sv.sv_name, name);
	}
	*eff += sv.sv_alive ? EFF_ALIVE : EFF_DEAD;
	if (!sv.sv_nfs3 || !ds_reg_nfs3_path(lo->l_dsc, sv.sv_id, &co, path))
		objpath(&co, path);
	lo_uuid_text(sv.sv_uuid, id);
	j = json_pack("{s:s, s:s, s:o, s:s, s:I, s:s}", "ds", sv.sv_name, "id", id, "addr",
		      lo_addrs_json(&sv), "object", path, "size",
		      (json_int_t)stripe_end(m, co.co_stripe, i->i_size), "state",
		      state_name(m->lm_obj[obj].ob_state));
	if (m->lm_obj[obj].ob_leaving)
		json_object_set_new(j, "leaving", json_true());
	return j;
}

static json_t *mirror_json(struct lo *lo, const struct ns_inode *i, const struct lo_map *m,
			   unsigned mirror)
{
	json_t *objects = json_array();
	uint8_t state = LO_IN_SYNC;
	unsigned eff = 0;
	json_t *j;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		unsigned obj = mirror * m->lm_stripes + s;

		json_array_append_new(objects, object_json(lo, i, m, obj, &eff));
		if (m->lm_obj[obj].ob_state != LO_ABSENT &&
		    (m->lm_obj[obj].ob_state == LO_STALE || state == LO_IN_SYNC))
			state = m->lm_obj[obj].ob_state;
	}
	j = json_pack("{s:s, s:i, s:o}", "state", state_name(state), "efficiency", (int)eff,
		      "objects", objects);
	if (m->lm_pending_mirror && mirror == m->lm_mirrors - 1u)
		json_object_set_new(j, "spare", json_true());
	if (mirror + 1 == m->lm_pin)
		json_object_set_new(j, "pinned", json_true());
	return j;
}

char *lo_layout_json(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		     const struct lo_map *m)
{
	json_t *mirrors = json_array(), *root;
	uint64_t threshold = lo_threshold(lo, t, i);
	char *text, policy[LO_POLICY_TEXT] = "";
	struct lo_policy p;

	for (unsigned k = 0; k < m->lm_mirrors; k++)
		json_array_append_new(mirrors, mirror_json(lo, i, m, k));
	if (lo_map_policy(m, &p) == 0)
		lo_policy_format(&p, policy);
	root = json_pack("{s:i, s:I, s:I, s:I, s:s, s:o}", "version", 1, "inode",
			 (json_int_t)i->i_ino, "size", (json_int_t)i->i_size, "unit",
			 (json_int_t)m->lm_unit, "policy", policy, "mirrors", mirrors);
	if (root && threshold)
		json_object_set_new(root, "threshold", json_integer((json_int_t)threshold));
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}
