/* SPDX-License-Identifier: Apache-2.0 */
/* pg_check.h - weft pg verify: are an instance's log in PostgreSQL and its table sound? */
#ifndef MDS_PG_CHECK_H
#define MDS_PG_CHECK_H
#include <stdbool.h>
#include <stdint.h>

/* Reads the instance whole, as it is at one moment, and prints a line for each thing that it looks
 * at. store: the folder of a copy whose server does not run, which has to have the same; or NULL.
 * Changes nothing. Returns 0: all is sound; 1: it is not, or could not be read. */
int pg_check(const char *conninfo, uint32_t inst, const char *store, bool json);
#endif
