/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_more.h - what a JOIN2 and its answer carry beside their fields (ctl.x, CTL_MORE_...): lists
 * of 8-byte numbers. And the names of orders and answers. */
#ifndef PROTO_CTL_MORE_H
#define PROTO_CTL_MORE_H
#include "proto/ctl.h"
#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define CTL_MORE_NUMBERS 4 /* the most that a kind has */

static inline const char *ctl_order_name(uint32_t type)
{
	static const char *const names[] = {
		[CTL_TRUNCATE] = "truncate",	   [CTL_EXTEND] = "extend",
		[CTL_DELETE] = "delete",	   [CTL_FENCE] = "fence",
		[CTL_BAR_CLIENT] = "bar a client", [CTL_CLONE] = "clone"};
	const char *name = type < sizeof(names) / sizeof(names[0]) ? names[type] : NULL;

	return name ? name : "unknown";
}

/* What a server answered, as one line of a log says it. */
static inline const char *ctl_status_text(uint32_t status)
{
	static const char *const texts[] = {
		[CTL_OK] = "done",
		[CTL_NOENT] = "no such object",
		[CTL_IO] = "input/output error",
		[CTL_NOSPC] = "no space left",
		[CTL_STALE_INSTANCE] = "it follows a newer instance of the metadata server",
		[CTL_NOT_JOINED] = "it has not joined",
		[CTL_BAD_CLUSTER] = "it belongs to another cluster",
		[CTL_INVAL] = "it takes the order for invalid",
		[CTL_FENCED] = "the object is fenced",
		[CTL_NOTSUPP] = "it does not know this order",
		[CTL_BAD_SESSION] = "the rebuild has begun again",
		[CTL_SOURCE] = "the other copy cannot be read",
		[CTL_REBUILDING] = "the object is being rebuilt",
		[CTL_NOT_ADMITTED] = "it is not admitted",
		[CTL_LOST] = "its store has lost what it had",
	};
	const char *text = status < sizeof(texts) / sizeof(texts[0]) ? texts[status] : NULL;

	return text ? text : "unknown error";
}

/* Fills m; its data is in buf. */
static inline void ctl_more_put(ctl_more *m, unsigned kind, const uint64_t *numbers, unsigned n,
				uint8_t buf[8 * CTL_MORE_NUMBERS])
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t v = htobe64(numbers[i]);

		memcpy(buf + 8 * i, &v, 8);
	}
	m->kind = kind;
	m->data.data_len = 8 * n;
	m->data.data_val = (char *)buf;
}

/* Fills m with the program's version, which must outlive it. */
static inline void ctl_more_put_version(ctl_more *m, const char *version)
{
	m->kind = CTL_MORE_VERSION;
	m->data.data_len = (unsigned)strnlen(version, CTL_VERSION_LEN);
	m->data.data_val = (char *)version;
}

/* Copies the version; what does not print becomes a question mark. "": there is none. */
static inline void ctl_more_get_version(const ctl_more *list, unsigned len,
					char out[CTL_VERSION_LEN + 1])
{
	unsigned n = 0;

	for (unsigned k = 0; k < len && !n; k++) {
		if (list[k].kind != CTL_MORE_VERSION)
			continue;
		for (; n < list[k].data.data_len && n < CTL_VERSION_LEN; n++) {
			char c = list[k].data.data_val[n];

			out[n] = c > ' ' && c < 127 && c != '"' && c != '\\' ? c : '?';
		}
	}
	out[n] = 0;
}

/* Reads n numbers of the first entry of this kind. False: no entry has so many. A longer entry
 * comes from a newer program; its first n numbers count. */
static inline bool ctl_more_get(const ctl_more *list, unsigned len, unsigned kind,
				uint64_t *numbers, unsigned n)
{
	for (unsigned k = 0; k < len; k++) {
		if (list[k].kind != kind || list[k].data.data_len < 8 * n)
			continue;
		for (unsigned i = 0; i < n; i++) {
			memcpy(&numbers[i], list[k].data.data_val + 8 * i, 8);
			numbers[i] = be64toh(numbers[i]);
		}
		return true;
	}
	return false;
}
#endif
