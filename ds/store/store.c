/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - makes, opens and closes a store; its identity, write verifier, workers and write
 * barrier. */
#include "ds/store/rebuild_int.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <urcu/urcu-memb.h>

#define STORE_VERSION	     1
#define STORE_VERSION_LISTED 2 /* with a list of volumes (adopt.c) */
#define COUNTED_ID	     40
#define DRAIN_WARN_NS	     10000000000ull

struct metric *ds_m_syncs, *ds_m_sync_failures, *ds_m_direct, *ds_m_buffered, *ds_m_fixed,
	*ds_m_polled, *ds_m_errors, *ds_m_rebuilt[3], *ds_m_put_off;

void ds_store_metrics_init(void)
{
	ds_m_syncs = metric_counter("weft_ds_syncs_total",
				    "Syncs of objects; calls that meet share one.", "");
	ds_m_sync_failures =
		metric_counter("weft_ds_sync_failures_total",
			       "Syncs that failed; each changes the write verifier.", "");
	ds_m_direct =
		metric_counter("weft_ds_disk_io_total",
			       "Reads and writes given to the file system.", "path=\"direct\"");
	ds_m_buffered =
		metric_counter("weft_ds_disk_io_total",
			       "Reads and writes given to the file system.", "path=\"buffered\"");
	ds_m_errors = metric_counter("weft_ds_disk_errors_total",
				     "Reads, writes and syncs that the disk failed.", "");
	ds_m_rebuilt[0] =
		metric_counter("weft_ds_rebuild_bytes_total",
			       "Bytes of objects that were rebuilt here.", "what=\"copied\"");
	ds_m_rebuilt[1] =
		metric_counter("weft_ds_rebuild_bytes_total",
			       "Bytes of objects that were rebuilt here.", "what=\"same\"");
	ds_m_rebuilt[2] =
		metric_counter("weft_ds_rebuild_bytes_total",
			       "Bytes of objects that were rebuilt here.", "what=\"hole\"");
	ds_m_put_off =
		metric_counter("weft_ds_rebuild_put_off_total", "Writes put off by a rebuild.", "");
	ds_m_polled = metric_counter("weft_ds_polled_io_total",
				     "Direct reads and writes whose end was polled for.", "");
	ds_m_fixed = metric_counter("weft_ds_fixed_io_total",
				    "Reads and writes from and to memory that the ring knows.", "");
}

/* ---- the verifier ---- */

/* A random value that differs from the last: a client that sees the change sends its unstable data
 * again. */
void ds_verifier_change(struct ds_store *s)
{
	uint64_t old = atomic_load(&s->s_verifier), v;

	do
		randombytes_buf(&v, sizeof(v));
	while (v == old);
	atomic_store(&s->s_verifier, v);
}

uint64_t ds_store_verifier(struct ds_store *s)
{
	return atomic_load(&s->s_verifier);
}

/* ---- the write barrier ---- */

static struct ds_cell *cell_self(struct ds_store *s)
{
	static _Atomic unsigned next;
	static _Thread_local unsigned mine;

	if (!mine)
		mine = atomic_fetch_add(&next, 1) + 1;
	return &s->s_cell[mine % DS_CELLS];
}

/* A write first counts itself here and then checks the rules. A drain reads the counts only after
 * the new rule is in memory. */
unsigned ds_write_begin(struct ds_store *s)
{
	unsigned gen = atomic_load(&s->s_gen) & 1;

	atomic_fetch_add(&cell_self(s)->c_open[gen], 1);
	return gen;
}

void ds_write_end(struct ds_store *s, unsigned token)
{
	atomic_fetch_sub(&cell_self(s)->c_open[token], 1);
}

static bool cells_open(struct ds_store *s, unsigned gen)
{
	for (unsigned i = 0; i < DS_CELLS; i++)
		if (atomic_load(&s->s_cell[i].c_open[gen]))
			return true;
	return false;
}

/*
 * A drain waits for two generations, as SRCU does. While it waits for one, new writes count in the
 * other, so the wait ends. It waits for both because a writer may have read the generation before
 * an earlier drain advanced it, and counted itself afterwards.
 */
void ds_write_drain(struct ds_store *s)
{
	uint64_t start = clock_mono_ns();
	bool warned = false;

	/* Two drains that advance the generation at the same time could each wait twice for the
	 * same one. */
	pthread_mutex_lock(&s->s_drain_lock);
	for (int turn = 0; turn < 2; turn++) {
		unsigned old = atomic_fetch_add(&s->s_gen, 1) & 1;

		while (cells_open(s, old)) {
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
			if (!warned && clock_mono_ns() - start > DRAIN_WARN_NS) {
				log_warn("store: an order has waited 10 s for writes that the disk "
					 "does not complete");
				warned = true;
			}
		}
	}
	pthread_mutex_unlock(&s->s_drain_lock);
}

/* ---- workers ---- */

static void *store_worker_run(void *arg)
{
	struct ds_worker *w = arg;

	for (;;) {
		struct ds_job *j;

		pthread_mutex_lock(&w->w_lock);
		while (!w->w_first && !w->w_stop) {
			w->w_waits = true;
			pthread_cond_wait(&w->w_cond, &w->w_lock);
		}
		j = w->w_first;
		if (j && !(w->w_first = j->jb_next))
			w->w_end = &w->w_first;
		pthread_mutex_unlock(&w->w_lock);
		if (!j)
			return NULL;
		j->jb_run(j);
	}
}

void ds_store_submit(struct ds_store *s, enum ds_worker_id id, struct ds_job *j)
{
	struct ds_worker *w = &s->s_worker[id];
	bool waits;

	j->jb_next = NULL;
	pthread_mutex_lock(&w->w_lock);
	*w->w_end = j;
	w->w_end = &j->jb_next;
	waits = w->w_waits;
	w->w_waits = false;
	pthread_mutex_unlock(&w->w_lock);
	/* Signal only after unlocking: otherwise the worker would wake up just to wait for the
	 * lock. */
	if (waits)
		pthread_cond_signal(&w->w_cond);
}

static int workers_start(struct ds_store *s)
{
	for (unsigned i = 0; i < DS_WORKERS; i++) {
		struct ds_worker *w = &s->s_worker[i];
		int err;

		w->w_end = &w->w_first;
		pthread_mutex_init(&w->w_lock, NULL);
		pthread_cond_init(&w->w_cond, NULL);
		err = pthread_create(&w->w_thread, NULL, store_worker_run, w);
		if (err)
			return -err;
		w->w_started = true;
	}
	return 0;
}

/* The worker first does what is queued. */
static void worker_stop(struct ds_worker *w)
{
	if (!w->w_started)
		return;
	pthread_mutex_lock(&w->w_lock);
	w->w_stop = true;
	pthread_cond_signal(&w->w_cond);
	pthread_mutex_unlock(&w->w_lock);
	pthread_join(w->w_thread, NULL);
	w->w_started = false;
}

/* ---- identity ---- */

static void store_hex(const uint8_t *in, size_t n, char *out)
{
	sodium_bin2hex(out, 2 * n + 1, in, n);
}

static int unhex(const char *in, uint8_t *out, size_t n)
{
	size_t len;

	return sodium_hex2bin(out, n, in, strlen(in), NULL, &len, NULL) == 0 && len == n ? 0
											 : -EINVAL;
}

int ds_identity_write(struct ds_store *s, const struct ds_identity *id)
{
	char text[512], uuid[33], cluster[33];

	store_hex(id->id_uuid, DS_UUID_LEN, uuid);
	store_hex(id->id_cluster, DS_UUID_LEN, cluster);
	snprintf(text, sizeof(text),
		 "weft-ds store\nversion=%d\nuuid=%s\nname=%s\ncluster=%s\nfs=%" PRIu32 "\n",
		 s->s_listed ? STORE_VERSION_LISTED : STORE_VERSION, uuid, id->id_name, cluster,
		 id->id_fs);
	return ds_file_put(s->s_home->v_dirfd, "identity", text);
}

static int identity_line(struct ds_identity *id, const char *key, const char *value, int *version)
{
	char *end;

	if (!strcmp(key, "version")) {
		*version = atoi(value);
		return 0;
	}
	if (!strcmp(key, "uuid"))
		return unhex(value, id->id_uuid, DS_UUID_LEN);
	if (!strcmp(key, "cluster"))
		return unhex(value, id->id_cluster, DS_UUID_LEN);
	if (!strcmp(key, "fs")) {
		id->id_fs = (uint32_t)strtoul(value, &end, 10);
		return *end ? -EINVAL : 0;
	}
	if (!strcmp(key, "name")) {
		if (strlen(value) > DS_NAME_MAX)
			return -EINVAL;
		strcpy(id->id_name, value);
	}
	return 0;
}

/* -ENOENT: there is no store here. */
static int identity_read(struct ds_store *s, struct ds_identity *id, char *err, size_t errlen)
{
	char text[1024], *save = NULL, *line, *eq;
	ssize_t n = ds_file_get(s->s_home->v_dirfd, "identity", text, sizeof(text));
	int version = 0;

	if (n < 0)
		return (int)n;
	memset(id, 0, sizeof(*id));
	line = strtok_r(text, "\n", &save);
	if (!line || strcmp(line, "weft-ds store"))
		goto bad;
	while ((line = strtok_r(NULL, "\n", &save))) {
		eq = strchr(line, '=');
		if (!eq)
			goto bad;
		*eq = 0;
		if (identity_line(id, line, eq + 1, &version))
			goto bad;
	}
	if (version != STORE_VERSION && version != STORE_VERSION_LISTED) {
		snprintf(err, errlen,
			 "%s: the store has version %d, this weft-ds knows versions %d and %d",
			 s->s_home->v_dir, version, STORE_VERSION, STORE_VERSION_LISTED);
		return -EPROTONOSUPPORT;
	}
	s->s_listed = version == STORE_VERSION_LISTED;
	if (!sodium_is_zero(id->id_uuid, DS_UUID_LEN))
		return 0;
bad:
	snprintf(err, errlen, "%s/identity: not the identity of a weft-ds store", s->s_home->v_dir);
	return -EINVAL;
}

struct ds_identity ds_store_identity(struct ds_store *s)
{
	struct ds_identity id;

	pthread_mutex_lock(&s->s_id_lock);
	id = s->s_id;
	pthread_mutex_unlock(&s->s_id_lock);
	return id;
}

int ds_store_set_cluster(struct ds_store *s, const uint8_t cluster[DS_UUID_LEN], uint32_t fs)
{
	struct ds_identity id = ds_store_identity(s);
	int err;

	if (id.id_fs)
		return memcmp(id.id_cluster, cluster, DS_UUID_LEN) ? -EXDEV : 0;
	/* The home's number is durable before the store meets another file system. */
	memcpy(id.id_cluster, cluster, DS_UUID_LEN);
	id.id_fs = fs;
	err = ds_identity_write(s, &id);
	if (err)
		return err;
	pthread_mutex_lock(&s->s_id_lock);
	s->s_id = id;
	pthread_mutex_unlock(&s->s_id_lock);
	atomic_store(&s->s_fs[0]->fs_number, fs);
	return 0;
}

int ds_store_text_get(struct ds_store *s, const char *name, char *text, size_t size)
{
	ssize_t n = ds_file_get(s->s_home->v_dirfd, name, text, size);

	return n < 0 ? (int)n : 0;
}

int ds_store_text_put(struct ds_store *s, const char *name, const char *text)
{
	return ds_file_put(s->s_home->v_dirfd, name, text);
}

/* ---- opening ---- */

static void raise_nofile(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < rl.rlim_max) {
		rl.rlim_cur = rl.rlim_max;
		setrlimit(RLIMIT_NOFILE, &rl);
	}
}

/* An object takes up to two descriptors. Leaves room for connections. */
static unsigned default_max_open(void)
{
	struct rlimit rl = {.rlim_cur = 1024};
	rlim_t n;

	getrlimit(RLIMIT_NOFILE, &rl);
	n = rl.rlim_cur == RLIM_INFINITY ? 1 << 20 : rl.rlim_cur;
	n /= 4;
	return n > 65536 ? 65536 : (unsigned)n;
}

static int store_subfolders(struct ds_store *s, char *err, size_t errlen)
{
	int e;

	if (mkdirat(s->s_home->v_dirfd, "journal", 0700) < 0 && errno != EEXIST) {
		snprintf(err, errlen, "%s: %s", s->s_home->v_dir, strerror(errno));
		return -errno;
	}
	for (unsigned i = 0; i < s->s_nvols; i++) {
		e = ds_vol_subfolder(s->s_vol[i]);
		if (e) {
			snprintf(err, errlen, "%s: %s", s->s_vol[i]->v_dir, strerror(-e));
			return e;
		}
	}
	return 0;
}

/* True if s is printable and one word, as the metadata server requires. */
static bool store_name_ok(const char *s)
{
	for (; *s; s++)
		if (*s <= ' ' || *s > '~' || *s == '"' || *s == '\\' || *s == '=')
			return false;
	return true;
}

static int store_identity(struct ds_store *s, void *arg, char *err, size_t errlen)
{
	const struct ds_store_opts *o = arg;
	int e = identity_read(s, &s->s_id, err, errlen);
	bool write = e == -ENOENT;

	if (e && e != -ENOENT) {
		if (!*err)
			snprintf(err, errlen, "%s/identity: %s", s->s_home->v_dir, strerror(-e));
		return e;
	}
	if (e == -ENOENT) {
		memset(&s->s_id, 0, sizeof(s->s_id));
		if (o->so_uuid)
			memcpy(s->s_id.id_uuid, o->so_uuid, DS_UUID_LEN);
		else
			randombytes_buf(s->s_id.id_uuid, DS_UUID_LEN);
	}
	if (o->so_name && *o->so_name && strcmp(s->s_id.id_name, o->so_name)) {
		if (strlen(o->so_name) > DS_NAME_MAX || !store_name_ok(o->so_name)) {
			snprintf(err, errlen,
				 "ds.name: \"%s\" is too long or contains a character that names "
				 "cannot have",
				 o->so_name);
			return -EINVAL;
		}
		strcpy(s->s_id.id_name, o->so_name);
		write = true;
	}
	atomic_store(&s->s_fs[0]->fs_number, s->s_id.id_fs);
	if (!*s->s_id.id_name) {
		if (gethostname(s->s_id.id_name, sizeof(s->s_id.id_name) - 1) < 0 ||
		    !*s->s_id.id_name)
			strcpy(s->s_id.id_name, "ds");
		write = true;
	}
	if (!write)
		return 0;
	e = ds_identity_write(s, &s->s_id);
	if (e)
		snprintf(err, errlen, "%s/identity: %s", s->s_home->v_dir, strerror(-e));
	return e;
}

/*
 * The file "counted" holds a boot number: mtimes have been write counts since that boot (object.c).
 * Beside it is the boot id of the machine's kernel, or "clean" if the daemon ended in order and the
 * file system was synced. If the kernel's boot id differs and the word is not "clean", the machine
 * may have crashed.
 */
static void kernel_run(char id[COUNTED_ID])
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");

	if (!f || fscanf(f, "%39s", id) != 1)
		strcpy(id, "unknown");
	if (f)
		fclose(f);
}

static int counted_write(struct ds_store *s, const char *id)
{
	char text[COUNTED_ID + 16];

	snprintf(text, sizeof(text), "%u %s\n", s->s_counted, id);
	return ds_file_put(s->s_home->v_dirfd, "counted", text);
}

static int counted_open(struct ds_store *s)
{
	char text[COUNTED_ID + 16], was[COUNTED_ID] = "", now[COUNTED_ID];
	unsigned v = 0;
	int err;

	if (ds_file_get(s->s_home->v_dirfd, "counted", text, sizeof(text)) < 0)
		*text = 0;
	kernel_run(now);
	if (sscanf(text, "%u %39s", &v, was) != 2 || !v || v > s->s_boot ||
	    (strcmp(was, "clean") && (strcmp(was, now) || !strcmp(now, "unknown"))))
		v = s->s_boot;
	s->s_counted = v;
	do
		err = counted_write(s, now);
	while (err == -ENOSPC && ds_reserve_give(s));
	/* If the file is missing, the next start assumes a crash: mtimes count from that boot on.
	 * Removing a file needs no space. */
	if (err == -ENOSPC && unlinkat(s->s_home->v_dirfd, "counted", 0) < 0 && errno != ENOENT)
		return err;
	return err == -ENOSPC ? fsync(s->s_home->v_dirfd) < 0 ? -errno : 0 : err;
}

void ds_store_sync(struct ds_store *s)
{
	struct ds_vol *bad = s->s_home;
	int err = ds_volumes_sync(s, &bad);

	ds_marks_close(s);
	if (!err)
		err = counted_write(s, "clean");
	if (err)
		log_warn("store: %s: cannot sync it at shutdown: %s", bad->v_dir, strerror(-err));
}

static int store_open(struct ds_store *s, const struct ds_store_opts *o, char *err, size_t errlen)
{
	int e = ds_volumes_make(s, o->so_dir, err, errlen);

	s->s_reserve = o->so_reserve ? o->so_reserve : DS_RESERVE_BYTES;
	if (!e)
		e = ds_volumes_open(s, store_identity, (void *)o, err, errlen);
	if (!e)
		e = store_subfolders(s, err, errlen);
	if (!e)
		e = ds_journal_open(s, err, errlen);
	if (!e)
		e = ds_marks_settle(s);
	if (e && !*err)
		snprintf(err, errlen, "ds.store: %s", strerror(-e));
	if (e)
		return e;
	e = counted_open(s);
	if (e) {
		snprintf(err, errlen, "%s/counted: %s", s->s_home->v_dir, strerror(-e));
		return e;
	}
	ds_reserve_make(s);
	ds_volumes_probe(s, o->so_no_direct, o->so_poll);
	e = ds_objects_init(s, o->so_max_open ? o->so_max_open : default_max_open());
	if (!e)
		e = workers_start(s);
	if (e)
		snprintf(err, errlen, "%s: %s", s->s_home->v_dir, strerror(-e));
	s->s_opened = !e;
	return e;
}

int ds_store_open(struct ds_store **out, const struct ds_store_opts *o, char *err, size_t errlen)
{
	struct ds_store *s;
	int e;

	*err = 0;
	if (sodium_init() < 0) {
		snprintf(err, errlen, "cannot initialize libsodium");
		return -ENOSYS;
	}
	s = aligned_alloc(64, (sizeof(*s) + 63) & ~(size_t)63);
	if (!s)
		return -ENOMEM;
	memset(s, 0, sizeof(*s));
	s->s_marks_fd = s->s_journal.j_fd = s->s_journal.j_dirfd = -1;
	s->s_tomb_keep_ns = o->so_tomb_keep_ms * 1000000u;
	pthread_mutex_init(&s->s_id_lock, NULL);
	pthread_mutex_init(&s->s_drain_lock, NULL);
	pthread_mutex_init(&s->s_owed_lock, NULL);
	pthread_mutex_init(&s->s_sessions_lock, NULL);
	ds_verifier_change(s);
	randombytes_buf(&s->s_start_id, sizeof(s->s_start_id));
	raise_nofile();
	e = ds_fs_open(s);
	if (!e)
		e = store_open(s, o, err, errlen);
	if (e) {
		ds_store_close(s);
		return e;
	}
	*out = s;
	return 0;
}

void ds_store_close(struct ds_store *s)
{
	worker_stop(&s->s_worker[DS_WORKER_FENCES]); /* it leaves work for the next one */
	worker_stop(&s->s_worker[DS_WORKER_ORDERS]);
	worker_stop(&s->s_worker[DS_WORKER_DATA]);
	worker_stop(&s->s_worker[DS_WORKER_HEALTH]);
	ds_sessions_close(s);
	ds_watches_close(s);
	/* Dropping the objects queues the closing of objects with unstable data. */
	ds_objects_drop(s);
	worker_stop(&s->s_worker[DS_WORKER_QUERIES]);
	if (s->s_opened)
		ds_store_sync(s);
	ds_journal_close(s);
	ds_volumes_close(s);
	ds_owed_close(s);
	ds_claims_close(s);
	ds_fs_close(s);
	free(s);
}

/* ---- small queries ---- */

unsigned ds_store_open_objects(struct ds_store *s)
{
	return atomic_load(&s->s_open);
}
