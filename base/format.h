/*
 * format.h - the bytes of what is stored or sent, held to docs/formats.md.
 *
 * A format is a packed struct. Each of its fields is named once by FORMAT_AT with its place and its
 * length, and the page has a row with the same: the compiler holds the code to it,
 * tests/unit/formats.sh the page.
 */
#ifndef BASE_FORMAT_H
#define BASE_FORMAT_H
#include <stddef.h>

#define FORMAT_AT(type, field, at, bytes)                                                          \
	_Static_assert(offsetof(type, field) == (at) && sizeof(((type *)0)->field) == (bytes),     \
		       "docs/formats.md: " #type ", " #field)
#endif
