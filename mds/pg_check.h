/* SPDX-License-Identifier: Apache-2.0 */
/* pg_check.h - weft pg verify: are an instance's log in PostgreSQL and its table sound? */
#ifndef MDS_PG_CHECK_H
#define MDS_PG_CHECK_H
#include <stdbool.h>
#include <stdint.h>

enum { PG_CHECK_SOUND = 0, PG_CHECK_WRONG = 1, PG_CHECK_NOT_COMPARED = 3 };
/* Reads the instance whole, as it is at one moment, and prints a line for each thing that it looks
 * at. store: the folder of a copy whose server does not run, which has to have the same; or NULL.
 * Changes nothing. PG_CHECK_SOUND: all is. PG_CHECK_WRONG: it is not, or could not be read.
 * PG_CHECK_NOT_COMPARED: nothing is wrong, and table and log no longer make the batch that the copy
 * holds. */
int pg_check(const char *conninfo, uint32_t inst, const char *store, bool json);
#endif
