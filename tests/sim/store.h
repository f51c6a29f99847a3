/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - the folder of the running process. */
#ifndef TESTS_SIM_STORE_H
#define TESTS_SIM_STORE_H
#include "common/trace.h"
#include <stdio.h>
struct store *store_of_process(void);
/* Of mds_log.c: its file with the identity of a copy, in that folder. */
FILE *store_fopen(const char *path, const char *mode);
int store_rename(const char *from, const char *to);
#endif
