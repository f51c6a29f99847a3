/* SPDX-License-Identifier: Apache-2.0 */
/*
 * priv.h - giving up privileges: a daemon started by root opens what needs root, then becomes a
 * user for good.
 *
 * Call priv_prepare, priv_own_folder (any number of times) and priv_drop, in this order, before any
 * thread is made: no_new_privs and the bounding set belong to the calling thread, and new threads
 * inherit them. After priv_drop there are no capabilities but those of priv_keep, and the process
 * cannot get any others.
 */
#ifndef BASE_PRIV_H
#define BASE_PRIV_H
#include <stddef.h>
#include <stdint.h>
/* Finds the user. name "": the process keeps its user. Otherwise the process must be root, or run
 * as that user already. key: the configuration key, for messages. Returns 0, or a negative errno
 * with one line in err. */
int priv_prepare(const char *key, const char *name, char *err, size_t errlen);
/* A folder that the daemon is to fill: makes it if it is missing, gives it to the user if it is
 * empty. Leaves a folder that has something in it as it is: opening it later reports what is
 * wrong. */
int priv_own_folder(const char *path, char *err, size_t errlen);
/* Before priv_drop. caps: a bit for each capability that the calling thread keeps for threads that
 * it will make. They are permitted and not in effect; capabilities that the thread does not have
 * are ignored. key: the configuration key that needs those threads, for messages; not copied. */
void priv_keep(uint64_t caps, const char *key);
int priv_drop(char *err, size_t errlen);
/* After these threads were made: drops all capabilities of the calling thread, unless it stayed
 * root. Returns 0 or a negative errno. */
int priv_keep_no_more(void);
/* For messages: the name of the user that the process became, or "". */
const char *priv_user(void);
/* Disables core dumps: keys are in memory. */
void priv_no_core(void);
#endif
