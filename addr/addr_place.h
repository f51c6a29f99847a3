/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addr_place.h - the addresses of the configuration and what happens to them. One thread. Times are
 * milliseconds of CLOCK_BOOTTIME.
 */
#ifndef ADDR_PLACE_H
#define ADDR_PLACE_H
#include "addr/addr.h"
/* conf: n places, copied. wait: how long an address waits for its holder to come back, in
 * milliseconds; 0: not at all; -1: for ever. Removes what a former run left, or keeps it. What the
 * kernel does not take away is tried again by place_run. */
int place_open(const struct addr_place *conf, unsigned n, int64_t wait, bool keep, int64_t now);
/* Removes the table, and the addresses unless keep. False: after 2 s the kernel still has one that
 * should be gone. */
bool place_close(bool keep, int64_t now);
/* All or none of the addresses of HOLD; but one whose interface is not there comes later, if
 * another one is there. On error one line is in err and nothing has changed, but
 * that an address which waited for its holder is free. */
int place_hold(struct addr_holder *h, const struct addr_msg *m, int64_t now, char *err,
	       size_t errlen);
/* -ENOENT: the holder holds nothing. */
int place_listening(struct addr_holder *h);
int place_live(struct addr_holder *h, const struct addr_msg *m, int64_t now);
/* Returns how many rows were taken. */
int place_tickle(struct addr_holder *h, const struct addr_msg *m, int64_t now, char *err,
		 size_t errlen);
void place_release(struct addr_holder *h, int64_t now);
/* The holder's connection has ended. */
void place_gone(struct addr_holder *h, int64_t now);
/* Does what is due, and returns when there is more to do. */
int64_t place_run(int64_t now);
/* The answer to STATUS; returns its length. */
size_t place_status(char *buf, size_t len);
#endif
