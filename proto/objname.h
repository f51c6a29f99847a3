/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objname.h - the path of an object in a data server's store. Shared, because the MDS shows it to
 * administrators (weft file show). There are two levels of 256 folders, hashed from the inode
 * number, so that consecutive inode numbers spread; all objects of one file on a server are in one
 * folder.
 */
#ifndef PROTO_OBJNAME_H
#define PROTO_OBJNAME_H
#include "proto/cap.h"
#include <inttypes.h>
#include <stdio.h>

/* "1122334455667788.0001.00.00" */
#define OBJNAME_LEN 27
/* "objects/XX/YY/" and the name, with the NUL */
#define OBJPATH_MAX (14 + OBJNAME_LEN + 1)

/* Folder number 0..65535: XX is the high byte, YY the low one. On disk for ever: never change
 * it. */
static inline uint16_t objname_folder(uint64_t ino)
{
	return (uint16_t)((ino * UINT64_C(0x9e3779b97f4a7c15)) >> 48);
}
static inline void objname(const struct cap_object *o, char out[OBJNAME_LEN + 1])
{
	snprintf(out, OBJNAME_LEN + 1, "%016" PRIx64 ".%04x.%02x.%02x", o->co_ino,
		 o->co_incarnation, o->co_stripe, o->co_copy);
}
static inline void objpath(const struct cap_object *o, char out[OBJPATH_MAX])
{
	uint16_t f = objname_folder(o->co_ino);
	char name[OBJNAME_LEN + 1];

	objname(o, name);
	snprintf(out, OBJPATH_MAX, "objects/%02x/%02x/%s", f >> 8, f & 255, name);
}
#endif
