/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - reports about the data servers of a layout to the server. */
#ifndef CLIENT_REPORT_H
#define CLIENT_REPORT_H
#include "client/weft.h"
#include "proto/xdr.h"

struct wc_kind;
struct wc_layout;
struct wc_lo_traffic;
struct weft_file;

/* Records an error that is reported with the layout's return. */
void wc_lo_error(struct wc_layout *lo, uint32_t ds, uint64_t off, uint64_t len, uint32_t status,
		 uint32_t op);
/* Reports an error at once; the layout stays. False: the server takes no such report. */
bool wc_lo_report(struct weft_file *f, const struct wc_layout *lo, uint32_t ds, uint64_t off,
		  uint64_t len, uint32_t status, uint32_t op);
void wc_lo_begins(struct weft *w, struct wc_lo_traffic *lt, uint32_t bytes);
/* began_ns: of this request; bytes 0: it failed. */
void wc_lo_ends(struct weft *w, struct wc_lo_traffic *lt, uint64_t began_ns, uint32_t bytes);
/* ff_layoutreturn4 (RFC 8435 section 9.3) */
void wc_lo_put_reports(struct weft *w, struct xdr_out *x, const struct wc_layout *lo);
/* Reports statistics of layouts whose time has come; called now and then. */
void wc_lo_tell_stats(struct weft *w);
extern const struct wc_kind wc_report_kind, wc_stats_kind;
#endif
