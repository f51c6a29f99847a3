/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health.c - finds out whether the disk under a volume works.
 *
 * One error concerns only the call that met it. After HEALTH_ERRORS errors in a row, of reads or of
 * writes, with no success between them, the volume is taken out of service: it gets no new objects,
 * and its space is not counted. (If it is the home, this server reports no free space at all, and
 * the MDS puts new files elsewhere.) Existing objects are served as far as possible. The volume
 * comes back by itself once a test file can be written, synced and read again; this server tries
 * that every HEALTH_AGAIN_MS.
 *
 * Traffic would not soon reveal that a seldom used disk has failed. So with the reports to the MDS,
 * at most every HEALTH_LOOK_MS, this server syncs the lock file, to which nothing was written. That
 * costs no I/O except a flush of the drive's cache, and a file system that has shut down returns an
 * error. Here one failure is enough.
 */
#include "base/clock.h"
#include "base/log.h"
#include "ds/store/store_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define HEALTH_ERRORS	8u
#define HEALTH_AGAIN_MS 30000u
#define HEALTH_LOOK_MS	5000u
#define PROBE_FILE	"probe"

/* True for errors that concern the disk rather than the call. */
bool ds_of_the_disk(int err)
{
	switch (-err) {
	case EIO:
	case EROFS:
	case ENXIO:
	case ENODEV:
	case EREMOTEIO:
	case ESHUTDOWN:
	case ETIMEDOUT:
	case EUCLEAN: /* damaged, in ext4 and XFS */
	case EBADMSG: /* a wrong checksum */
		return true;
	default:
		return false;
	}
}

static void take_out(struct ds_vol *v, const char *what, int err)
{
	struct ds_health *h = &v->v_health;

	if (atomic_exchange(&h->h_failing, true))
		return;
	atomic_store(&h->h_again_ms, clock_mono_ms() + HEALTH_AGAIN_MS);
	log_error("store: %s: %s: %s; until the disk works again %s", v->v_dir, what,
		  strerror(-err),
		  v == v->v_store->s_home ? "this server reports no free space"
					  : "this volume gets no new objects");
}

void ds_health_note(struct ds_vol *v, bool write, int err)
{
	struct ds_health *h = &v->v_health;
	char what[80];
	unsigned n;

	if (err >= 0) {
		if (atomic_load_explicit(&h->h_errors[write], memory_order_relaxed))
			atomic_store(&h->h_errors[write], 0);
		return;
	}
	if (!ds_of_the_disk(err))
		return;
	metric_add(ds_m_errors, 1);
	n = atomic_fetch_add(&h->h_errors[write], 1) + 1;
	if (n < HEALTH_ERRORS || atomic_load(&h->h_failing))
		return;
	snprintf(what, sizeof(what), "%u %s in a row failed, the last one with", n,
		 write ? "writes" : "reads");
	take_out(v, what, err);
}

/* On the health worker. Writes, syncs and reads a test file. */
static int probe(struct ds_vol *v)
{
	uint8_t out[DS_PAGE], in[DS_PAGE];
	int fd = openat(v->v_dirfd, PROBE_FILE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600),
	    err = 0;

	if (fd < 0)
		return -errno;
	memset(out, 'p', sizeof(out));
	errno = 0;
	if (pwrite(fd, out, sizeof(out), 0) != (ssize_t)sizeof(out) || fsync(fd) < 0 ||
	    pread(fd, in, sizeof(in), 0) != (ssize_t)sizeof(in))
		err = errno ? -errno : -EIO;
	close(fd);
	if (unlinkat(v->v_dirfd, PROBE_FILE, 0) < 0 && !err)
		err = -errno;
	return err;
}

static void probe_run(struct ds_job *j)
{
	struct ds_vol *v = caa_container_of(j, struct ds_vol, v_health.h_job);
	struct ds_health *h = &v->v_health;

	if (!probe(v)) {
		atomic_store(&h->h_errors[0], 0);
		atomic_store(&h->h_errors[1], 0);
		atomic_store(&h->h_failing, false);
		log_info("store: %s: works again", v->v_dir);
	}
	atomic_store(&h->h_probing, false);
}

/* A file system that became read-only, as ext4 does after an error, still syncs a file that was not
 * written. So check for write access as well. */
static void look_run(struct ds_job *j)
{
	struct ds_vol *v = caa_container_of(j, struct ds_vol, v_health.h_job);
	int err = fsync(v->v_lockfd) < 0 || faccessat(v->v_dirfd, "lock", W_OK, AT_EACCESS) < 0
			  ? -errno
			  : 0;

	if (ds_of_the_disk(err)) {
		metric_add(ds_m_errors, 1);
		take_out(v, "its file system does not work", err);
	} else if (v == v->v_store->s_home) {
		ds_reserve_make(v->v_store);
	}
	atomic_store(&v->v_health.h_probing, false);
}

static void health_job(struct ds_vol *v, void (*run)(struct ds_job *j))
{
	/* There are no workers yet while the store opens. */
	if (!v->v_store->s_opened || atomic_exchange(&v->v_health.h_probing, true))
		return;
	v->v_health.h_job.jb_run = run;
	ds_store_submit(v->v_store, DS_WORKER_HEALTH, &v->v_health.h_job);
}

bool ds_vol_failing(struct ds_vol *v)
{
	struct ds_health *h = &v->v_health;
	uint64_t now, again;

	if (!atomic_load(&h->h_failing))
		return false;
	now = clock_mono_ms();
	again = atomic_load(&h->h_again_ms);
	if (now >= again &&
	    atomic_compare_exchange_strong(&h->h_again_ms, &again, now + HEALTH_AGAIN_MS))
		health_job(v, probe_run);
	return true;
}

bool ds_store_failing(struct ds_store *s)
{
	bool any = false;

	for (unsigned i = 0; i < s->s_nvols; i++)
		any |= ds_vol_failing(s->s_vol[i]);
	return any;
}

void ds_health_look(struct ds_store *s)
{
	uint64_t now = clock_mono_ms();

	for (unsigned i = 0; i < s->s_nvols; i++) {
		struct ds_vol *v = s->s_vol[i];
		uint64_t due = atomic_load(&v->v_health.h_look_ms);

		if (!ds_vol_failing(v) && now >= due &&
		    atomic_compare_exchange_strong(&v->v_health.h_look_ms, &due,
						   now + HEALTH_LOOK_MS))
			health_job(v, look_run);
	}
}
