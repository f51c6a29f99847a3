/*
 * health.c - whether the disk under the store works.
 *
 * One error is the matter of the call that met it. When so many come one after another, reads or writes with none between
 * them that works, the store is taken out: the MDS hears that it has no room, and puts new files elsewhere. What is there is served
 * as far as it goes. The store comes back by itself when a file can be written, synced and read again, which is tried every
 * HEALTH_AGAIN_MS.
 */
#include "base/log.h"
#include "ds/store/store_int.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define HEALTH_ERRORS	8u
#define HEALTH_AGAIN_MS 30000u
#define PROBE_FILE	"probe"

/* What tells of the disk, and not of the call. */
static bool of_the_disk(int err)
{
	switch (-err) {
	case EIO:
	case EROFS:
	case ENXIO:
	case ENODEV:
	case EREMOTEIO:
	case ESHUTDOWN:
	case ETIMEDOUT:
	case EUCLEAN: /* damaged, say ext4 and XFS */
	case EBADMSG: /* a checksum that is wrong */
		return true;
	default:
		return false;
	}
}

static uint64_t health_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void ds_health_note(struct ds_store *s, bool write, int err)
{
	struct ds_health *h = &s->s_health;
	unsigned n;

	if (err >= 0) {
		if (atomic_load_explicit(&h->h_errors[write], memory_order_relaxed))
			atomic_store(&h->h_errors[write], 0);
		return;
	}
	if (!of_the_disk(err))
		return;
	metric_add(ds_m_errors, 1);
	n = atomic_fetch_add(&h->h_errors[write], 1) + 1;
	if (n < HEALTH_ERRORS || atomic_exchange(&h->h_failing, true))
		return;
	atomic_store(&h->h_again_ms, health_now() + HEALTH_AGAIN_MS);
	log_error("store: %s: %u %s failed one after another, the last: %s: from now on it says that it has no room", s->s_dir, n,
		  write ? "writes" : "reads", strerror(-err));
}

/* On the queries worker. */
static int probe(struct ds_store *s)
{
	uint8_t out[DS_PAGE], in[DS_PAGE];
	int fd = openat(s->s_dirfd, PROBE_FILE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), err = 0;

	if (fd < 0)
		return -errno;
	memset(out, 'p', sizeof(out));
	if (pwrite(fd, out, sizeof(out), 0) != (ssize_t)sizeof(out) || fsync(fd) < 0 || pread(fd, in, sizeof(in), 0) != (ssize_t)sizeof(in))
		err = errno ? -errno : -EIO;
	close(fd);
	if (unlinkat(s->s_dirfd, PROBE_FILE, 0) < 0 && !err)
		err = -errno;
	return err;
}

static void probe_run(struct ds_job *j)
{
	struct ds_store *s = caa_container_of(j, struct ds_store, s_health.h_job);
	struct ds_health *h = &s->s_health;

	if (!probe(s)) {
		atomic_store(&h->h_errors[0], 0);
		atomic_store(&h->h_errors[1], 0);
		atomic_store(&h->h_failing, false);
		log_info("store: %s: works again", s->s_dir);
	}
	atomic_store(&h->h_probing, false);
}

bool ds_store_failing(struct ds_store *s)
{
	struct ds_health *h = &s->s_health;

	if (!atomic_load(&h->h_failing))
		return false;
	if (health_now() >= atomic_load(&h->h_again_ms) && !atomic_exchange(&h->h_probing, true)) {
		atomic_store(&h->h_again_ms, health_now() + HEALTH_AGAIN_MS);
		h->h_job.jb_run = probe_run;
		ds_store_submit(s, DS_WORKER_QUERIES, &h->h_job);
	}
	return true;
}
