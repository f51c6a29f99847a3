/*
 * check.h - what a daemon can know of its configuration before it opens its store: the files and
 * folders that keys name. For --check and for the start alike, so that what passes the one does not
 * fail the other.
 *
 * Each returns 0, or a negative errno with one line in err that begins with the key.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H
#include <stddef.h>
#include <stdint.h>
#define CHECK_KEY_LEN 32
/* What is in a file of a key's, as a string, which the caller clears. It must be what the cluster
 * key's file must. */
int check_secret_file(const char *key, const char *path, char *text, size_t size, char *err,
		      size_t errlen);
/* The cluster key: one line of 64 hexadecimal digits. One that others than owner and group can
 * read, or than the owner can write, is refused. */
int check_cluster_key(const char *key, const char *path, uint8_t out[CHECK_KEY_LEN], char *err,
		      size_t errlen);
/* A comma separated list of "unix:/path" in a folder that is there, and 127.x.y.z:port; or "". */
int check_admin(const char *key, const char *addr, char *err, size_t errlen);
/* "" or a file with a token of 16 to CHECK_TOKEN_MAX printable characters, which nobody else may
 * read; out gets it, or "". */
#define CHECK_TOKEN_MAX 256
int check_token(const char *key, const char *path, char out[CHECK_TOKEN_MAX + 1], char *err,
		size_t errlen);
/* The folder of a store, or, where it is to be made, the one above: is it there, and may this
 * process write to it? */
int check_folder(const char *key, const char *path, char *err, size_t errlen);
/* "" or what an administrator can do about a path that cannot be used, begun with ": ". Static, or
 * of this thread. */
const char *check_hint(int err, const char *path);
#endif
