/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.c - lets a test say how long tests/fault/weft-mds holds its store:
 *
 *	WEFT_LEASE_FIFO=PATH	a named pipe. Without it the store is always held.
 *
 * Each line of the pipe is an answer that the holder of the store would give: "hold MS" extends the
 * lease to MS milliseconds from now, "lost" says that another instance has claimed the store. There
 * is no lease before the first line.
 */
#include "common/store_lease.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *listen_to(void *arg)
{
	FILE *f = fopen(getenv("WEFT_LEASE_FIFO"), "r+"); /* a writer that closes is not the end */
	unsigned long ms;
	char line[64];

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "hold %lu", &ms) == 1)
			store_lease_extend(arg, clock_boot_ns() + ms * 1000000u);
		else if (!strncmp(line, "lost", 4))
			store_lease_lost("a test says so");
	}
	return NULL;
}

void store_lease_hook(struct store_lease *sl)
{
	sigset_t all, was;
	pthread_t thread;

	if (!getenv("WEFT_LEASE_FIFO"))
		return;
	store_lease_init(sl, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &was);
	if (pthread_create(&thread, NULL, listen_to, sl))
		abort();
	pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
}
