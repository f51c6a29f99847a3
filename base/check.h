/*
 * check.h - what a daemon can know of its configuration before it opens its store: the files and folders that keys name. For --check
 * and for the start alike, so that what passes the one does not fail the other.
 *
 * Each returns 0, or a negative errno with one line in err that begins with the key.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H
#include <stddef.h>
#include <stdint.h>
#define CHECK_KEY_LEN 32
/* The cluster key: one line of 64 hexadecimal digits. One that everybody can read is warned about. */
int check_cluster_key(const char *key, const char *path, uint8_t out[CHECK_KEY_LEN], char *err, size_t errlen);
/* "", "unix:/path" in a folder that is there, or 127.x.y.z:port. */
int check_admin(const char *key, const char *addr, char *err, size_t errlen);
/* The folder of a store, or, where it is to be made, the one above: is it there, and may this process write to it? */
int check_folder(const char *key, const char *path, char *err, size_t errlen);
/* "" or what an administrator can do about a path that cannot be used, begun with ": ". Static, or of this thread. */
const char *check_hint(int err, const char *path);
#endif
