/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin_health.h - what is wrong with the cluster, in one answer: `weft health`, GET /v1/health,
 * and the metrics weft_health_status and weft_health_reason (docs/health.md).
 *
 * An answer examines the data servers and at most HEALTH_ROWS rows of the table of repairs, however
 * many files there are. What takes longer (files on dead servers) is counted elsewhere
 * (mds/jobs/damage.h).
 *
 * GET /v1/health needs no token over TCP. So its texts name data servers, and neither paths nor
 * clients.
 */
#ifndef MDS_ADMIN_HEALTH_H
#define MDS_ADMIN_HEALTH_H
#include "mds/admin/admin_int.h"

enum { HEALTH_ROWS = 4096, HEALTH_FILES = 1000, HEALTH_TEXT = 400 };

/* Call it before the loops run, also where there is no admin address: makes the metrics. ops is
 * copied. The second call does nothing. */
void admin_health_open(const struct admin_ops *ops);
void admin_get_health(void *arg, const struct http_req *rq, struct http_reply *rp);
/* "ok", "near-full" or "full", by mds.near_full and mds.full. */
const char *admin_health_space(const struct admin_ops *ops, uint64_t capacity, uint64_t available);
#endif
