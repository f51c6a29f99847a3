/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.c - gives tests/ha/weft-mds another time of day, as where an administrator sets the clock.
 *
 *	WEFT_CLOCK=FILE		two numbers of 64 bits: by how many ns CLOCK_REALTIME is off, and
 *				how often it was asked for. A test writes the first while the
 *				server runs.
 *
 * The clocks that no administrator can set (CLOCK_MONOTONIC, CLOCK_BOOTTIME) are the kernel's.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static struct off {
	_Atomic int64_t o_ns, o_asked;
} * off;

__attribute__((constructor)) static void find(void)
{
	const char *path = getenv("WEFT_CLOCK");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *p = MAP_FAILED;

	if (fd >= 0) {
		p = mmap(NULL, sizeof(*off), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (p != MAP_FAILED)
		off = p;
}

/* The C library's, for all in this process. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, t);
	int64_t ns;

	if (rc || !off || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return rc;
	atomic_fetch_add(&off->o_asked, 1);
	ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + atomic_load(&off->o_ns);
	t->tv_sec = ns / 1000000000;
	t->tv_nsec = ns % 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec t;
	int rc = clock_gettime(CLOCK_REALTIME, &t);

	(void)zone;
	*tv = (struct timeval){.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
	return rc;
}

time_t time(time_t *out)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_REALTIME, &t);
	if (out)
		*out = t.tv_sec;
	return t.tv_sec;
}
