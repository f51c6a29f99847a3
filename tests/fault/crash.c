/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash.c - what makes tests/fault/weft-mds of weft-mds: it kills itself, as kill -9 would, at the
 * point that the environment names:
 *
 *	WEFT_CRASH_AT=POINT[:COUNT]     when it comes there for the COUNT-th time (1)
 *
 * POINT is one of base/crash.h's, or one inside a commit or a checkpoint of the store, which do no
 * more than these calls: write (before a write), half (after the first half of one), log and
 * halflog (the same of a write to the log), sync (before the sync of the pages) and synced (after
 * it).
 */
#include "base/crash.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void die(void)
{
	for (;;)
		kill(getpid(), SIGKILL);
}

static bool due(const char *point)
{
	static _Atomic long passed;
	const char *at = getenv("WEFT_CRASH_AT");
	size_t n = strlen(point);

	if (!at || strncmp(at, point, n) != 0 || (at[n] && at[n] != ':'))
		return false;
	return atomic_fetch_add(&passed, 1) + 1 == (at[n] ? atol(at + n + 1) : 1);
}

void crash_hook(const char *point)
{
	if (due(point))
		die();
}

/* The store's calls, LMDB's among them, come here before libc's; everybody else's go through. */
static bool commits(void)
{
	char name[16];

	return getenv("WEFT_CRASH_AT") && prctl(PR_GET_NAME, name) == 0 &&
	       strncmp(name, "kv-", 3) == 0;
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
	if (commits() && due("write"))
		die();
	if (commits() && due("half")) {
		syscall(SYS_pwrite64, fd, buf, n / 2, at);
		die();
	}
	return syscall(SYS_pwrite64, fd, buf, n, at);
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
	if (commits() && due("write"))
		die();
	if (commits() && n > 1 && due("half")) {
		syscall(SYS_writev, fd, iov, n / 2);
		die();
	}
	return syscall(SYS_writev, fd, iov, n);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
	if (commits() && due("log"))
		die();
	if (commits() && due("halflog")) {
		syscall(SYS_pwrite64, fd, iov->iov_base, iov->iov_len / 2, at);
		die();
	}
	return syscall(SYS_pwritev2, fd, iov, n, at, 0, flags);
}

int fdatasync(int fd)
{
	int rc;

	if (commits() && due("sync"))
		die();
	rc = (int)syscall(SYS_fdatasync, fd);
	if (commits() && due("synced"))
		die();
	return rc;
}
