/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - ties the bytes that are stored or sent to docs/formats.md.
 *
 * A format is a packed struct. FORMAT_AT names each of its fields once, with its offset and its
 * length, and the page has a row with the same numbers. The compiler checks the code, and
 * tests/unit/formats.sh checks the page.
 */
#ifndef BASE_FORMAT_H
#define BASE_FORMAT_H
#include <stddef.h>

#define FORMAT_AT(type, field, at, bytes)                                                          \
	_Static_assert(offsetof(type, field) == (at) && sizeof(((type *)0)->field) == (bytes),     \
		       "docs/formats.md: " #type ", " #field)
#endif
