/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - see process.h. */
#include "base/process.h"
#include "base/log.h"
#include "base/metrics.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double start_s;

static double process_time(clockid_t clock)
{
	struct timespec t = {0};

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_counter(void *arg)
{
	(void)arg;
	return process_time(CLOCK_PROCESS_CPUTIME_ID);
}

static double start_gauge(void *arg)
{
	(void)arg;
	return start_s;
}

static double resident_gauge(void *arg)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	(void)arg;
	if (f && fscanf(f, "%*u %lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Not the descriptor that it reads the folder with. */
static double fds_gauge(void *arg)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	(void)arg;
	for (const struct dirent *e; d && (e = readdir(d));)
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n ? n - 1 : 0;
}

static double max_fds_gauge(void *arg)
{
	struct rlimit r = {0};

	(void)arg;
	getrlimit(RLIMIT_NOFILE, &r);
	return (double)r.rlim_cur;
}

void process_metrics(void)
{
	start_s = process_time(CLOCK_REALTIME);
	metric_counter_of("process_cpu_seconds_total", "Processor time used by this process.", "",
			  cpu_counter, NULL);
	metric_gauge("process_resident_memory_bytes", "Memory of this process that is resident.",
		     "", resident_gauge, NULL);
	metric_gauge("process_open_fds", "Open file descriptors.", "", fds_gauge, NULL);
	metric_gauge("process_max_fds", "The limit of open file descriptors.", "", max_fds_gauge,
		     NULL);
	metric_gauge("process_start_time_seconds",
		     "When this process started, in seconds since 1970.", "", start_gauge, NULL);
}

void process_files(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		rlim_t had = r.rlim_cur;

		r.rlim_cur = r.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &r))
			log_warn("cannot raise the limit of open files, it stays at %lu: %s",
				 (unsigned long)had, strerror(errno));
	}
}
