/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mds_log_sim.c - mds/mds_log.c as it is, and its variables for the scheduler. Its file with the
 * identity of a copy is in the model of the folder.
 */
#include "tests/sim/globals.h"
#include "tests/sim/store.h"
#include <sodium.h>
#include <sys/stat.h>

static int no_mkdir(const char *path, mode_t mode)
{
	(void)path;
	(void)mode;
	errno = EEXIST;
	return -1;
}

static void random_bytes(void *p, size_t n)
{
	sim_getrandom(p, n, 0);
}
#define mkdir		no_mkdir
#define randombytes_buf random_bytes
#define fopen		store_fopen
#define rename		store_rename
#define fileno(f)	((void)(f), -1)
#define fsync(fd)	((void)(fd), 0)
#include "mds/mds_log.c"

void globals_of_mds_log(void)
{
	sim_global(&the_log, sizeof(the_log));
}
