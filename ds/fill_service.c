/* SPDX-License-Identifier: Apache-2.0 */
/* fill_service.c - FILL: fills an object of a pending layout from objects of the file's present
 * layout (docs/restripe.md). Runs on the pullers. */
#include "ds/peer.h"
#include "ds/store/store_int.h"
#include <errno.h>
#include <unistd.h>

static bool args_fine(const ctl_fill_args *a)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < a->spans.spans_len; i++) {
		const ctl_span *sp = &a->spans.spans_val[i];

		if (!sp->length || sp->length > CTL_FILL_MAX ||
		    sp->offset > (uint64_t)INT64_MAX - CTL_FILL_MAX)
			return false;
		sum += sp->length;
	}
	return sum <= CTL_FILL_MAX && a->size <= INT64_MAX;
}

static ctl_status fill_span(struct ds *d, struct ds_obj *o, int fd, const ctl_fill_args *a,
			    const ctl_span *sp, ctl_fill_res *res)
{
	uint64_t end = sp->offset + sp->length;
	struct ds_fetch f = {.ft_to = sp->offset};

	while (f.ft_to < end) {
		uint64_t at = f.ft_to, n = DS_MAX_IO - at % DS_MAX_IO;
		int err;

		f.ft_off = at;
		if (ds_pull_fetch(d, a->object.ino, &a->source,
				  (uint32_t)(n < end - at ? n : end - at), &f))
			return CTL_SOURCE;
		err = ds_fill_write(o, fd, &f, ds_pull_memory(a->object.ino));
		if (err)
			return ds_ctl_status(err);
		res->copied += f.ft_len;
	}
	return CTL_OK;
}

ctl_status ds_fill(struct ds *d, const ctl_fill_args *a, ctl_fill_res *res)
{
	struct cap_object key;
	ctl_status st = CTL_OK;
	struct ds_obj *o;
	int err, fd;

	if (!ds_key_of(&a->object, &key) || !args_fine(a))
		return CTL_INVAL;
	err = ds_obj_get(d->d_store, &key, true, &o);
	if (err)
		return err == -ESTALE ? CTL_NOENT : ds_ctl_status(err);
	fd = ds_obj_reopen(o);
	if (fd < 0)
		st = ds_ctl_status(fd);
	for (unsigned i = 0; i < a->spans.spans_len && st == CTL_OK; i++)
		st = fill_span(d, o, fd, a, &a->spans.spans_val[i], res);
	if (st == CTL_OK && a->end)
		st = ds_ctl_status(ds_fill_end(fd, a->size));
	if (st == CTL_OK)
		st = ds_ctl_status(ds_fill_sync(o, fd));
	if (fd >= 0)
		close(fd);
	ds_obj_put(o);
	return st;
}
