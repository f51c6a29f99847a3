/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_instances.h - the addresses of metadata servers that one of them tells its data servers, in
 * the answer to a JOIN2 (CTL_MORE_INSTANCES in ctl.x; docs/formats.md has the bytes).
 */
#ifndef PROTO_CTL_INSTANCES_H
#define PROTO_CTL_INSTANCES_H
#include "proto/ctl.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define CTL_INSTANCES_MAX 64
/* An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d, and the port, big-endian. */
#define CTL_INSTANCE_LEN   18
#define CTL_INSTANCES_PART (CTL_MORE_LEN / CTL_INSTANCE_LEN)
/* So many entries of ctl_more have a list, at most. */
#define CTL_INSTANCES_PARTS ((CTL_INSTANCES_MAX + CTL_INSTANCES_PART - 1) / CTL_INSTANCES_PART)

struct ctl_instances {
	unsigned ci_n;
	uint8_t ci_addr[CTL_INSTANCES_MAX][CTL_INSTANCE_LEN];
};

/* Reads a setting: addresses separated by commas or blanks, port where one has none. Each is one
 * that a data server can connect to, and is there once. 0, or -EINVAL and one line in err, which
 * begins with key. */
int ctl_instances_parse(const char *key, const char *list, uint16_t port, struct ctl_instances *out,
			char *err, size_t errlen);
/* Fills entries, one of no bytes for an empty list, and returns how many. Their data is ci's. */
unsigned ctl_instances_put(const struct ctl_instances *ci, ctl_more more[CTL_INSTANCES_PARTS]);
/* 0; -ENOENT: no entry has a list; -EINVAL: a part of it is no address that one can connect to;
 * -E2BIG: more than CTL_INSTANCES_MAX. An address that is there twice counts once. */
int ctl_instances_get(const ctl_more *list, unsigned len, struct ctl_instances *out);
/* Converts. False: it is no address that one can connect to. */
bool ctl_instance_of(const struct sockaddr_storage *ss, uint8_t out[CTL_INSTANCE_LEN]);
bool ctl_instance_addr(const uint8_t in[CTL_INSTANCE_LEN], struct sockaddr_storage *out,
		       socklen_t *len);
#endif
