/* SPDX-License-Identifier: Apache-2.0 */
/* weft_alone.h - libweft without a server, for a unit test and a fuzzer: calls wait until they are
 * taken and answered by hand. */
#ifndef WEFT_TESTS_UNIT_WEFT_ALONE_H
#define WEFT_TESTS_UNIT_WEFT_ALONE_H

#include "client/device.h"
#include "client/open.h"
#include "client/ring.h"
#include "client/session.h"
#include "client/weft_call.h"
#include <errno.h>

/* A client with a session of 8 slots on the ring r. A test that needs other values sets them
 * afterwards. */
static inline void alone_begin(struct weft *w, struct weft_ring *r)
{
	memset(w, 0, sizeof(*w));
	w->w_ring = r;
	w->w_loop = r->r_loop;
	w->w_queue_end = &w->w_queue;
	w->w_nslots = w->w_opts.wo_slots = 8;
	w->w_target = 7;
	w->w_max_read = w->w_max_write = 4096;
	w->w_max_req = w->w_max_resp = w->w_max_cached = 16384;
	w->w_max_ops = 8;
	w->w_minor = 2;
	for (unsigned i = 0; i < 8; i++)
		w->w_slots[i].sl_seq = 1;
}

/* Ends all calls, and frees what they left. */
static inline void alone_end(struct weft *w)
{
	w->w_state = WC_CLOSING;
	wc_calls_fail(w, -ECANCELED);
	while (w->w_all || w->w_ds_calls) {
		wc_ring_run(w->w_ring, 0);
		wc_calls_fail(w, -ECANCELED);
	}
	while (w->w_files)
		wc_file_free(w->w_files);
	wc_devices_free(w);
}

#endif
