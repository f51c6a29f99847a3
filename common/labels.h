/* SPDX-License-Identifier: Apache-2.0 */
/*
 * labels.h - an administrator's labels of a data server, as text: "rack=r1,speed=nvme".
 *
 * A key begins with a letter and has letters, digits, '-' and '_'; a value may also have '.'. In
 * the normal form the keys stand once each, in byte order. "" means no labels.
 */
#ifndef COMMON_LABELS_H
#define COMMON_LABELS_H
#include <stdbool.h>
#include <stddef.h>

#define LABELS_KEY_MAX	 16
#define LABELS_VALUE_MAX 32
#define LABELS_MAX	 8
/* bytes of LABELS_MAX labels, with the NUL: 8 * (16 + 1 + 32) + 7 commas */
#define LABELS_LEN     400
#define LABELS_TWO_LEN 800 /* of two texts merged */

/* Brings text into the normal form. -EINVAL with one line in err that names the label and what was
 * expected. drops: also takes KEY= (no value), and keeps it for labels_merge. */
int labels_parse(const char *text, size_t len, bool drops, char out[LABELS_LEN], char *err,
		 size_t errlen);
/* Checks a key or value alone (n bytes). */
bool labels_key_ok(const char *p, size_t n);
bool labels_value_ok(const char *p, size_t n);
/* The value of a key in a text in normal form, or NULL. */
const char *labels_get(const char *labels, const char *key, size_t n, size_t *len);
/* Merges the labels of base and over. Where both have a key, over's value counts; an empty one
 * removes the label. Returns how many labels there are. out must be neither base nor over. */
unsigned labels_merge(const char *base, const char *over, char out[LABELS_TWO_LEN]);
#endif
