/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - checks of a daemon's configuration before it opens its store: the files and folders
 * that keys name. --check and the start use the same functions, so that a configuration that passes
 * the check does not fail at the start.
 *
 * Each function returns 0, or a negative errno with one line in err that begins with the key.
 */
#ifndef COMMON_CHECK_H
#define COMMON_CHECK_H
#include <stddef.h>
#include <stdint.h>
#define CHECK_KEY_LEN 32
/* Reads a file with a secret as a string; the caller must clear text. The file must meet the same
 * rules as the cluster key's file. */
int check_secret_file(const char *key, const char *path, char *text, size_t size, char *err,
		      size_t errlen);
/* The cluster key: one line of 64 hexadecimal digits. Refuses a file that others than owner and
 * group can read, or that others than the owner can write. */
int check_cluster_key(const char *key, const char *path, uint8_t out[CHECK_KEY_LEN], char *err,
		      size_t errlen);
/* The keys of the administration server of a section. mds.admin: a comma separated list of
 * "unix:/path" in a folder that exists (or is directly in /run, where units make theirs),
 * 127.x.y.z:port, [::1]:port, and https://ADDRESS:port where mds.tls_cert and mds.tls_key are set;
 * or "". ds.admin: the same without https://.
 * mds.admin_certs: "ROLE NAME, ROLE NAME..." or "". */
struct conf;
int check_admin(const struct conf *conf, const char *section, char *err, size_t errlen);
/* "" or a file with a token of 16 to CHECK_TOKEN_MAX printable characters that other users cannot
 * read; out gets the token, or "". */
#define CHECK_TOKEN_MAX 256
int check_token(const char *key, const char *path, char out[CHECK_TOKEN_MAX + 1], char *err,
		size_t errlen);
/* The folder of a store, or, if the store is to be made, its parent: does it exist, and may this
 * process write to it? */
int check_folder(const char *key, const char *path, char *err, size_t errlen);
/* What an administrator can do about a path that cannot be used, beginning with ": ", or "".
 * Static, or of this thread. */
const char *check_hint(int err, const char *path);
#endif
