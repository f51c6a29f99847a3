/*
 * priv.h - giving up privileges: a daemon started by root opens what needs root, then becomes a
 * user for good.
 *
 * priv_prepare, priv_own_folder (any number), priv_drop, in this order, before any thread is made:
 * no_new_privs and the bounding set are the calling thread's, and threads inherit them. After
 * priv_drop there are no capabilities but those of priv_keep, and none can be had again.
 */
#ifndef BASE_PRIV_H
#define BASE_PRIV_H
#include <stddef.h>
#include <stdint.h>
/* Finds the user. name "": the process stays who it is. Otherwise it must be root, or that user
 * already. key names the configuration key in messages. Returns 0, or a negative errno with one
 * line in err. */
int priv_prepare(const char *key, const char *name, char *err, size_t errlen);
/* A folder that the daemon is to fill: made if it is missing, given to the user if it is empty. One
 * that has something in it stays as it is: opening it tells what is wrong. */
int priv_own_folder(const char *path, char *err, size_t errlen);
/* Before priv_drop: bits by capability that the calling thread keeps, permitted and not in effect,
 * for threads that it is to make; those it has. */
void priv_keep(uint64_t caps);
int priv_drop(char *err, size_t errlen);
/* They have been made: the calling thread, unless it stayed root, has no capability any more. 0 or
 * a negative errno. */
int priv_keep_no_more(void);
/* For messages: the name of the user the process became, or "". */
const char *priv_user(void);
/* No core dump is written: keys are in memory. */
void priv_no_core(void);
#endif
