/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_instances.c - see ctl_instances.h. */
#include "proto/ctl_instances.h"
#include "proto/rpc.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(CTL_INSTANCE_LEN == 16 + 2, "address and port");
_Static_assert(CTL_INSTANCES_PARTS + 5 <= CTL_MORE_MAX, "beside what else an answer has");

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* Whether a connection to this address can be meant. */
static bool reachable(const uint8_t a[CTL_INSTANCE_LEN])
{
	static const uint8_t none[16];

	if (!a[16] && !a[17])
		return false;
	if (!memcmp(a, mapped, sizeof(mapped)))
		return a[12] != 0 && a[12] < 224; /* this network, multicast, reserved */
	/* Multicast; a link-local address needs an interface, which it does not name. */
	return memcmp(a, none, sizeof(none)) != 0 && a[0] != 0xff &&
	       !(a[0] == 0xfe && (a[1] & 0xc0) == 0x80);
}

bool ctl_instance_of(const struct sockaddr_storage *ss, uint8_t out[CTL_INSTANCE_LEN])
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
	const struct sockaddr_in *in = (const struct sockaddr_in *)ss;

	if (ss->ss_family == AF_INET6) {
		memcpy(out, &in6->sin6_addr, 16);
		memcpy(out + 16, &in6->sin6_port, 2);
	} else if (ss->ss_family == AF_INET) {
		memcpy(out, mapped, sizeof(mapped));
		memcpy(out + 12, &in->sin_addr, 4);
		memcpy(out + 16, &in->sin_port, 2);
	} else {
		return false;
	}
	return reachable(out);
}

bool ctl_instance_addr(const uint8_t in[CTL_INSTANCE_LEN], struct sockaddr_storage *out,
		       socklen_t *len)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
	struct sockaddr_in *in4 = (struct sockaddr_in *)out;

	memset(out, 0, sizeof(*out));
	if (!memcmp(in, mapped, sizeof(mapped))) {
		in4->sin_family = AF_INET;
		memcpy(&in4->sin_addr, in + 12, 4);
		memcpy(&in4->sin_port, in + 16, 2);
		*len = sizeof(*in4);
	} else {
		in6->sin6_family = AF_INET6;
		memcpy(&in6->sin6_addr, in, 16);
		memcpy(&in6->sin6_port, in + 16, 2);
		*len = sizeof(*in6);
	}
	return reachable(in);
}

static bool instances_have(const struct ctl_instances *ci, const uint8_t a[CTL_INSTANCE_LEN])
{
	for (unsigned i = 0; i < ci->ci_n; i++)
		if (!memcmp(ci->ci_addr[i], a, CTL_INSTANCE_LEN))
			return true;
	return false;
}

/* Reads one address of the setting. */
static int instances_one(const char *key, const char *one, uint16_t port, struct ctl_instances *out,
			 char *err, size_t errlen)
{
	uint8_t addr[CTL_INSTANCE_LEN];
	struct sockaddr_storage ss;
	socklen_t len;

	if (rpc_addr_parse(one, port, &ss, &len)) {
		snprintf(err, errlen,
			 "%s: \"%s\" is not an address; expected 192.0.2.1:2049, "
			 "[2001:db8::1]:2049, or one without a port",
			 key, one);
		return -EINVAL;
	}
	if (!ctl_instance_of(&ss, addr)) {
		snprintf(err, errlen,
			 "%s: \"%s\" is not an address that a data server can connect "
			 "to",
			 key, one);
		return -EINVAL;
	}
	if (instances_have(out, addr)) {
		snprintf(err, errlen, "%s: %s is there twice", key, one);
		return -EINVAL;
	}
	if (out->ci_n == CTL_INSTANCES_MAX) {
		snprintf(err, errlen, "%s: more than %d addresses", key, CTL_INSTANCES_MAX);
		return -EINVAL;
	}
	memcpy(out->ci_addr[out->ci_n++], addr, sizeof(addr));
	return 0;
}

int ctl_instances_parse(const char *key, const char *list, uint16_t port, struct ctl_instances *out,
			char *err, size_t errlen)
{
	char *copy = strdup(list), *save = NULL;
	int e = 0;

	out->ci_n = 0;
	if (!copy) {
		snprintf(err, errlen, "%s: out of memory", key);
		return -ENOMEM;
	}
	for (char *one = strtok_r(copy, ", ", &save); one && !e; one = strtok_r(NULL, ", ", &save))
		e = instances_one(key, one, port, out, err, errlen);
	free(copy);
	return e;
}

unsigned ctl_instances_put(const struct ctl_instances *ci, ctl_more more[CTL_INSTANCES_PARTS])
{
	unsigned n = 0, at = 0;

	do {
		unsigned part =
			ci->ci_n - at < CTL_INSTANCES_PART ? ci->ci_n - at : CTL_INSTANCES_PART;

		more[n].kind = CTL_MORE_INSTANCES;
		more[n].data.data_len = part * CTL_INSTANCE_LEN;
		more[n++].data.data_val = (char *)ci->ci_addr[at];
		at += part;
	} while (at < ci->ci_n);
	return n;
}

int ctl_instances_get(const ctl_more *list, unsigned len, struct ctl_instances *out)
{
	bool found = false;

	out->ci_n = 0;
	for (unsigned k = 0; k < len; k++) {
		const uint8_t *p = (const uint8_t *)list[k].data.data_val;

		if (list[k].kind != CTL_MORE_INSTANCES)
			continue;
		found = true;
		if (list[k].data.data_len % CTL_INSTANCE_LEN)
			return -EINVAL;
		for (unsigned n = list[k].data.data_len / CTL_INSTANCE_LEN; n; n--) {
			if (!reachable(p))
				return -EINVAL;
			if (!instances_have(out, p)) {
				if (out->ci_n == CTL_INSTANCES_MAX)
					return -E2BIG;
				memcpy(out->ci_addr[out->ci_n++], p, CTL_INSTANCE_LEN);
			}
			p += CTL_INSTANCE_LEN;
		}
	}
	return found ? 0 : -ENOENT;
}
