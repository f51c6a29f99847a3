/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrape.h - a read-only HTTP server for monitoring, on any address: GET /metrics and
 * GET /v1/health, and nothing else.
 *
 * It shares no thread, lock or connection limit with the administration server (http.h). A client
 * that reads slowly holds one of few connections, and the text that was rendered for it. The
 * metrics are rendered at most SCRAPE_APART_MS apart, however many clients ask.
 */
#ifndef COMMON_SCRAPE_H
#define COMMON_SCRAPE_H
#include "common/http.h"

#define SCRAPE_APART_MS 250

struct scrape;
/* addrs: "192.0.2.1:9300" and "[2001:db8::1]:9300" (0.0.0.0 and [::] are all addresses), comma
 * separated, at most 4. health answers GET /v1/health, on a thread of the server; arg must outlive
 * it. 0, or a negative errno with one line in err that begins with the key. */
int scrape_start(struct scrape **out, const char *key, const char *addrs,
		 void (*health)(void *arg, const struct http_req *rq, struct http_reply *rp),
		 void *arg, char *err, size_t errlen);
void scrape_stop(struct scrape *s); /* s may be NULL */
/* Checks such a list without opening anything. Returns as scrape_start. */
int scrape_check(const char *key, const char *addrs, char *err, size_t errlen);
#endif
