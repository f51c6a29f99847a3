/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd.h - asks etcd 3.4 or later, through its JSON gateway (libcurl).
 *
 * A transaction goes to one endpoint at a time: the one that answered last, and after a failure the
 * next one. A failure says nothing of what became of the transaction. No call takes longer than its
 * caller allows, but looking up a name of a host may: use addresses.
 *
 * One thread at a time uses a handle. Errors are negative errno: -EAGAIN: no answer now, and
 * etcd_why() says more.
 */
#ifndef MDS_ETCD_H
#define MDS_ETCD_H
#include "mds/etcd_json.h"

/* Copied; files are read when they are needed, by the user that the process runs as. */
struct etcd_opts {
	const char *eo_endpoints;     /* http://HOST:PORT or https://HOST:PORT, comma separated */
	const char *eo_ca;	      /* PEM file; "": the system's authorities */
	const char *eo_cert, *eo_key; /* PEM files of this client; "": it has none */
	const char *eo_user;	      /* "": etcd asks for nobody */
	const char *eo_password;      /* a file, whose first line is the password */
};

struct etcd;
/* -EINVAL and one line in err: something is wrong with the options. Connects to nothing. */
int etcd_check(const struct etcd_opts *o, char *err, size_t errlen);
/* On the first thread, before others use libcurl. */
int etcd_open(struct etcd **out, const struct etcd_opts *o, char *err, size_t errlen);
void etcd_close(struct etcd *e);
/* Reads two rows as they are at one moment. Ends before until_ns (CLOCK_BOOTTIME). */
int etcd_rows(struct etcd *e, const char *key0, const char *key1, uint64_t until_ns,
	      struct etcd_answer *out);
/* Writes value to the last of n rows if all of them are as they say, or are not there (er_mod 0);
 * else reads the rows of the two keys. */
int etcd_swap(struct etcd *e, const struct etcd_row *rows, unsigned n, const char *key0,
	      const char *key1, const char *value, uint64_t until_ns, struct etcd_answer *out);
const char *etcd_why(const struct etcd *e);
#endif
