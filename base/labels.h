/*
 * labels.h - what an administrator says of a data server, as text: "rack=r1,speed=nvme".
 *
 * A key begins with a letter and has letters, digits, '-' and '_'; a value has '.' as well. In the
 * normal form keys come once each, in the order of their bytes. No labels are "".
 */
#ifndef BASE_LABELS_H
#define BASE_LABELS_H
#include <stdbool.h>
#include <stddef.h>

#define LABELS_KEY_MAX	 16
#define LABELS_VALUE_MAX 32
#define LABELS_MAX	 8
/* bytes of LABELS_MAX labels, with the NUL: 8 * (16 + 1 + 32) + 7 commas */
#define LABELS_LEN     400
#define LABELS_TWO_LEN 800 /* of two texts merged */

/* Into the normal form. -EINVAL with one line in err that names the label and what was expected.
 * drops: KEY= (no value) is taken, too, as it stands: for labels_merge. */
int labels_parse(const char *text, size_t len, bool drops, char out[LABELS_LEN], char *err,
		 size_t errlen);
/* A key or value by itself (n bytes). */
bool labels_key_ok(const char *p, size_t n);
bool labels_value_ok(const char *p, size_t n);
/* The value of a key in a text in normal form, or NULL. */
const char *labels_get(const char *labels, const char *key, size_t n, size_t *len);
/* Those of base and of over; over's value counts where both have a key, and takes the label away
 * where it is empty. How many there are. base or over may not be out. */
unsigned labels_merge(const char *base, const char *over, char out[LABELS_TWO_LEN]);
#endif
