/* SPDX-License-Identifier: Apache-2.0 */
/* sum.c - SUM: the checksum of a range of an object (proto/ctl.x, ctl_sum_args), by which the MDS
 * compares copies on different servers without moving their data. Reads past the page cache where
 * possible. */
#include "ds/peer.h"
#include "ds/store/store_int.h"
#include <errno.h>
#include <sodium.h>

_Static_assert(CTL_SUM_LEN == crypto_generichash_BYTES, "BLAKE2b-256");
_Static_assert(DS_MAX_IO % CTL_SUM_PAGE == 0, "windows are whole pages");

static bool sum_is_zero(const uint8_t *page)
{
	return !page[0] && !memcmp(page, page + 1, CTL_SUM_PAGE - 1);
}

static void sum_add_pages(crypto_generichash_state *h, const uint8_t *flat, uint64_t off,
			  uint64_t n)
{
	for (uint64_t at = 0; at < n; at += CTL_SUM_PAGE) {
		uint64_t place = htole64(off + at);

		if (sum_is_zero(flat + at))
			continue;
		crypto_generichash_update(h, (const uint8_t *)&place, sizeof(place));
		crypto_generichash_update(h, flat + at, CTL_SUM_PAGE);
	}
}

/* Adds one window. Holes count as zeros, and so does the part past the object's end. A window of
 * many parts takes several reads. */
static int add_window(crypto_generichash_state *h, struct ds_obj *o, struct ds_fetch *f,
		      uint8_t *flat, uint64_t base, uint64_t end, ctl_sum_res *res)
{
	bool any = false;

	memset(flat, 0, DS_MAX_IO);
	for (f->ft_off = base; f->ft_off < end; f->ft_off = f->ft_to) {
		uint32_t pos = 0;
		int err = ds_fetch_read(o, (uint32_t)(end - f->ft_off), f);

		if (!err && f->ft_to <= f->ft_off)
			err = -EIO;
		if (err)
			return err;
		res->size = f->ft_size;
		res->data += f->ft_len;
		any |= f->ft_nparts;
		for (unsigned i = 0; i < f->ft_nparts; i++) {
			memcpy(flat + (f->ft_part[i].pt_off - base), f->ft_data + pos,
			       f->ft_part[i].pt_len);
			pos += f->ft_part[i].pt_len;
		}
	}
	if (any)
		sum_add_pages(h, flat, base, end - base);
	return 0;
}

static int add_all(struct ds_obj *o, const ctl_sum_args *a, struct ds_fetch *f, uint8_t *flat,
		   ctl_sum_res *res)
{
	uint64_t end = a->offset + a->length;
	crypto_generichash_state h;
	int err = 0;

	crypto_generichash_init(&h, NULL, 0, CTL_SUM_LEN);
	for (uint64_t base = a->offset; base < end && !err; base += DS_MAX_IO)
		err = add_window(&h, o, f, flat, base,
				 end - base < DS_MAX_IO ? end : base + DS_MAX_IO, res);
	crypto_generichash_final(&h, (uint8_t *)res->sum, CTL_SUM_LEN);
	return err;
}

ctl_status ds_sum(struct ds_store *s, const ctl_sum_args *a, ctl_sum_res *res)
{
	struct ds_fetch f = {0};
	struct cap_object key;
	struct ds_obj *o;
	uint8_t *flat;
	int err;

	if (!ds_key_of(&a->object, &key) || !a->length || a->length > CTL_SUM_MAX ||
	    a->offset % CTL_SUM_PAGE || a->offset > INT64_MAX - CTL_SUM_MAX)
		return CTL_INVAL;
	err = ds_obj_get(s, &key, false, &o);
	if (err)
		return err == -ENOENT || err == -ESTALE ? CTL_NOENT : ds_ctl_status(err);
	f.ft_data = aligned_alloc(DS_PAGE, DS_FETCH_MEM);
	flat = malloc(DS_MAX_IO);
	err = !f.ft_data || !flat    ? -ENOMEM
	      : ds_obj_rebuilding(o) ? -ENOLINK
				     : add_all(o, a, &f, flat, res);
	/* A rebuild that has begun meanwhile writes into the object. */
	if (!err && ds_obj_rebuilding(o))
		err = -ENOLINK;
	free(f.ft_data);
	free(flat);
	ds_obj_put(o);
	return ds_ctl_status(err);
}
