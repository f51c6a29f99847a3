/* SPDX-License-Identifier: Apache-2.0 */
/* nfs3ds_checksum.c - the checksum of an object on an NFSv3 data server (proto/ctl.x, SUM): the
 * object is read here. See nfs3ds.h. Runs on the first loop. */
#include "mds/dataserver/nfs3ds.h"
#include <errno.h>
#include <sodium.h>
#include <urcu/compiler.h>

#define WINDOW	(1u << 20)
#define READ_MS 10000

_Static_assert(CTL_SUM_LEN == crypto_generichash_BYTES, "BLAKE2b-256");
_Static_assert(WINDOW % CTL_SUM_PAGE == 0, "windows are whole pages");

struct summing {
	struct gen *su_gen;
	struct ds_reg_ctl *su_ctl;
	struct ds_reg_io su_io;
	struct nfs3ds_rpc su_rpc;
	struct ds_reg_handle su_h;
	struct nfs3ds_fh su_fh;
	crypto_generichash_state su_state;
	uint64_t su_base, su_end; /* start of the window; end of the range */
	uint32_t su_at, su_len;
	ctl_sum_res su_res;
	uint8_t su_data[WINDOW];
};

static void sum_end(struct summing *su, ctl_status status)
{
	ctl_response res = {.status = status};
	struct ds_reg_ctl *c = su->su_ctl;

	crypto_generichash_final(&su->su_state, (uint8_t *)su->su_res.sum, CTL_SUM_LEN);
	res.result.ctl_result_u.sum = su->su_res;
	free(su);
	nfs3ds_answer(c, &res);
}

static void nfs3ds_checksum_add_pages(struct summing *su)
{
	for (uint32_t at = 0; at < su->su_len; at += CTL_SUM_PAGE) {
		const uint8_t *page = su->su_data + at;
		uint64_t place = htole64(su->su_base + at);

		if (!page[0] && !memcmp(page, page + 1, CTL_SUM_PAGE - 1))
			continue;
		crypto_generichash_update(&su->su_state, (const uint8_t *)&place, sizeof(place));
		crypto_generichash_update(&su->su_state, page, CTL_SUM_PAGE);
	}
}

static void next_window(struct summing *su);
static void nfs3ds_checksum_read_more(struct summing *su);

static void done(struct ds_reg_io *io, int err)
{
	struct summing *su = caa_container_of(io, struct summing, su_io);

	if (err) {
		sum_end(su, CTL_IO);
		return;
	}
	su->su_at += io->di_count;
	su->su_res.data += io->di_count;
	if (su->su_at < su->su_len && !io->di_eof) {
		nfs3ds_checksum_read_more(su);
		return;
	}
	nfs3ds_checksum_add_pages(su);
	su->su_base = io->di_eof ? su->su_end : su->su_base + su->su_len;
	next_window(su);
}

static void nfs3ds_checksum_read_more(struct summing *su)
{
	struct ds_reg_server sv;

	memset(&su->su_io, 0, sizeof(su->su_io));
	su->su_io.di_done = done;
	su->su_io.di_off = su->su_base + su->su_at;
	su->su_io.di_read_to = su->su_data + su->su_at;
	su->su_io.di_count = su->su_len - su->su_at;
	if (ds_reg_get(su->su_gen->gn_dsc, su->su_gen->gn_id, &sv) &&
	    su->su_io.di_count > sv.sv_max_read)
		su->su_io.di_count = sv.sv_max_read;
	ds_reg_read(su->su_gen->gn_dsc, su->su_gen->gn_id, &su->su_h, &su->su_io, READ_MS);
}

static void next_window(struct summing *su)
{
	if (su->su_base >= su->su_end) {
		sum_end(su, CTL_OK);
		return;
	}
	su->su_at = 0;
	su->su_len =
		su->su_end - su->su_base < WINDOW ? (uint32_t)(su->su_end - su->su_base) : WINDOW;
	memset(su->su_data, 0, sizeof(su->su_data));
	nfs3ds_checksum_read_more(su);
}

/* Reads as the object's present owner, which GETATTR has reported. */
static void nfs3ds_checksum_owned(struct nfs3ds_rpc *r)
{
	struct summing *su = caa_container_of(r, struct summing, su_rpc);

	if (!nfs3ds_sized(r)) {
		sum_end(su, CTL_IO);
		return;
	}
	su->su_h.dh_uid = r->gr_attr.fa_uid;
	su->su_h.dh_gid = r->gr_attr.fa_gid;
	su->su_res.size = r->gr_attr.fa_size;
	next_window(su);
}

void nfs3ds_sum(struct gen *g, struct ds_reg_ctl *c)
{
	const ctl_sum_args *a = &c->dc_req.ctl_request_u.sum;
	struct summing *su;
	uint8_t key[NFS3DS_OBJECT_KEY];
	struct nfs3ds_object o;
	int err;

	if (!a->length || a->length > CTL_SUM_MAX || a->offset % CTL_SUM_PAGE ||
	    a->offset > INT64_MAX - CTL_SUM_MAX) {
		nfs3ds_refuse(c, CTL_INVAL);
		return;
	}
	su = calloc(1, sizeof(*su));
	err = su ? nfs3ds_object_find(g, &a->object, 0, key, &o, &su->su_h) : -ENOMEM;
	if (err) {
		free(su);
		nfs3ds_refuse(c, err == -ENOENT ? CTL_NOENT : CTL_IO);
		return;
	}
	su->su_gen = g;
	su->su_ctl = c;
	su->su_base = a->offset;
	su->su_end = a->offset + a->length;
	crypto_generichash_init(&su->su_state, NULL, 0, CTL_SUM_LEN);
	su->su_rpc.gr_done = nfs3ds_checksum_owned;
	nfs3ds_getattr(g->gn_client, &su->su_rpc, &o.go_fh);
}
