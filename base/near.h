/* SPDX-License-Identifier: Apache-2.0 */
/* near.h - finds the name that a person meant where the name given does not exist. */
#ifndef BASE_NEAR_H
#define BASE_NEAR_H
#define NEAR_NAME  64 /* bytes of the longest name that is compared */
#define NEAR_EDITS 3  /* a name with more edits than this is another name */
/* How many characters have to be put, removed or replaced to make b of a (the Levenshtein
 * distance). NEAR_NAME if b is longer than that. */
unsigned near_distance(const char *a, const char *b);
#endif
