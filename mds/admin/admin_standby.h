/* SPDX-License-Identifier: Apache-2.0 */
/* admin_standby.h - what a weft-mds that does not hold its store answers over HTTP: GET /v1/health,
 * with 503 and the reason, and /metrics. Everything else is 503 by the store's lease. */
#ifndef MDS_ADMIN_STANDBY_H
#define MDS_ADMIN_STANDBY_H
#include "common/http.h"

struct admin_standby;
/* opts: as for admin_start, and ho_bound stays the caller's. Returns 0; or -errno and a line in
 * err. */
int admin_standby_start(struct admin_standby **out, const struct http_opts *opts, char *err,
			size_t errlen);
/* Why it waits; copied. */
void admin_standby_why(struct admin_standby *s, const char *why);
/* s may be NULL. The addresses are free after that. */
void admin_standby_stop(struct admin_standby *s);
#endif
