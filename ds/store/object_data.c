/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object_data.c - serves the MDS's requests about objects' data: find data and holes, reserve,
 * punch, copy. All of it blocks, and runs on the data worker.
 *
 * A change is bracketed like a client's write (store.h): an order that fences waits for it, or the
 * change sees the fence. Each change except COPY is synced on a descriptor of its own, as orders
 * are.
 */
#include "ds/store/store_int.h"
#include "ds/store/rebuild_int.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Limit of one request, so that a file of many units does not block others. The MDS then asks
 * again. */
#define SEEK_STEPS 65536
#define COPY_BYTES (1u << 20)

/* ---- seek ---- */

/* Which parts of a striped file's object belong to the file. */
struct units {
	uint64_t u_unit;
	uint32_t u_stripes, u_stripe;
};

/* The first offset at or after off in one of the stripe's own units, and the end of that unit.
 * UINT64_MAX: past all offsets. */
static uint64_t units_first(const struct units *u, uint64_t off, uint64_t *end)
{
	uint64_t k = off / u->u_unit, own = k - k % u->u_stripes + u->u_stripe;

	*end = UINT64_MAX;
	if (u->u_stripes == 1)
		return off;
	if (own < k)
		own += u->u_stripes;
	if (own > (uint64_t)INT64_MAX / u->u_unit - 1)
		return UINT64_MAX;
	*end = (own + 1) * u->u_unit;
	return own == k ? off : own * u->u_unit;
}

static int data_seek(int fd, const struct units *u, uint64_t off, int whence, ctl_seek_res *res)
{
	uint64_t end = 0;

	for (unsigned i = 0; i < SEEK_STEPS; i++) {
		off_t at;

		off = units_first(u, off, &end);
		res->found = CTL_SEEK_NONE;
		if (off > INT64_MAX)
			return 0;
		at = lseek(fd, (off_t)off, whence);
		if (at < 0 && errno != ENXIO)
			return -errno;
		/* Past the object's end there is only a hole. */
		if (at < 0 && whence == SEEK_DATA)
			return 0;
		if (at < 0)
			at = (off_t)off;
		if ((uint64_t)at < end) {
			res->found = CTL_SEEK_FOUND;
			res->offset = (uint64_t)at;
			return 0;
		}
		off = whence == SEEK_DATA ? (uint64_t)at : end;
	}
	res->found = CTL_SEEK_AGAIN;
	res->offset = off;
	return 0;
}

ctl_status ds_store_seek(struct ds_store *s, const ctl_seek_args *a, ctl_seek_res *res)
{
	struct units u = {.u_unit = a->unit, .u_stripes = a->stripes, .u_stripe = a->object.stripe};
	struct cap_object key;
	struct ds_obj *o;
	int fd, err;

	if (!ds_key_of(&a->object, &key) || !a->unit || !a->stripes ||
	    a->object.stripe >= a->stripes)
		return CTL_INVAL;
	err = ds_obj_get(s, &key, false, &o);
	if (err)
		return err == -ENOENT || err == -ESTALE ? CTL_NOENT : ds_ctl_status(err);
	/* A descriptor of its own: lseek moves the descriptor's offset. */
	fd = ds_obj_rebuilding(o) ? -ENOLINK : ds_obj_reopen(o);
	err = fd < 0 ? fd : data_seek(fd, &u, a->offset, a->hole ? SEEK_HOLE : SEEK_DATA, res);
	if (fd >= 0)
		close(fd);
	ds_obj_put(o);
	return ds_ctl_status(err);
}

/* ---- changes ---- */

static bool spans_ok(const ctl_change_args *a)
{
	for (unsigned i = 0; i < a->spans.spans_len; i++) {
		const ctl_span *sp = &a->spans.spans_val[i];

		if (!sp->length || sp->offset > INT64_MAX || sp->length > INT64_MAX - sp->offset ||
		    sp->from > INT64_MAX || sp->length > INT64_MAX - sp->from)
			return false;
	}
	return a->type >= CTL_CHANGE_ALLOCATE && a->type <= CTL_CHANGE_COPY;
}

/* A file system that becomes full during a reservation keeps what it has reserved so far. So a
 * reservation that cannot fit does not begin. */
static int room_for(int fd, const ctl_change_args *a)
{
	struct statvfs v;
	struct stat st;

	if (fstatvfs(fd, &v) < 0 || fstat(fd, &st) < 0)
		return -errno;
	return a->total / v.f_frsize > v.f_bavail + (uint64_t)st.st_blocks * 512 / v.f_frsize
		       ? -ENOSPC
		       : 0;
}

static int data_extend(int fd, uint64_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return (uint64_t)st.st_size >= size ? 0 : ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

static int punch(int fd, uint64_t off, uint64_t len)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) < 0
		       ? -errno
		       : 0;
}

/* Copies from one file system to another, of any type. */
static int copy_bytes(int from, int to, off_t at, off_t off, uint64_t len)
{
	uint8_t *buf = malloc(COPY_BYTES);
	int err = buf ? 0 : -ENOMEM;

	while (len && !err) {
		ssize_t n = pread(from, buf, len < COPY_BYTES ? (size_t)len : COPY_BYTES, at),
			w = 0;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			err = n < 0 ? -errno : -EIO;
		while (!err && w < n) {
			ssize_t k = pwrite(to, buf + w, (size_t)(n - w), off + w);

			if (k > 0)
				w += k;
			else if (k == 0 || errno != EINTR)
				err = k ? -errno : -EIO;
		}
		at += w;
		off += w;
		len -= (uint64_t)w;
	}
	free(buf);
	return err;
}

/* Copies by reflink if the file system has it. */
static int copy_data(int from, int to, off_t at, off_t off, uint64_t len)
{
	while (len) {
		ssize_t n = copy_file_range(from, &at, to, &off, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EXDEV)
			return copy_bytes(from, to, at, off, len);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		len -= (uint64_t)n;
	}
	return 0;
}

/* Copies sp; holes stay holes. from < 0: the source object does not exist. */
static int data_copy(int from, int to, const ctl_span *sp)
{
	uint64_t done = 0;
	int err = 0;

	while (!err && done < sp->length) {
		off_t data = from < 0 ? -1 : lseek(from, (off_t)(sp->from + done), SEEK_DATA), hole;
		uint64_t n = sp->length - done;

		if (data < 0 && from >= 0 && errno != ENXIO)
			return -errno;
		if (data < 0 || (uint64_t)data - sp->from >= sp->length) {
			err = punch(to, sp->offset + done, n);
		} else if ((uint64_t)data > sp->from + done) {
			n = (uint64_t)data - sp->from - done;
			err = punch(to, sp->offset + done, n);
		} else {
			hole = lseek(from, data, SEEK_HOLE);
			if (hole < 0)
				return -errno;
			if ((uint64_t)(hole - data) < n)
				n = (uint64_t)(hole - data);
			err = copy_data(from, to, data, (off_t)(sp->offset + done), n);
		}
		done += n;
	}
	return err ? err : data_extend(to, sp->offset + sp->length);
}

/* Clones whole blocks by reflink, and copies the rest. */
static int reflink(int from, int to, const ctl_order *o, uint64_t len, uint32_t block)
{
	struct file_clone_range r = {.src_fd = from,
				     .src_offset = o->from,
				     .src_length = len - len % block,
				     .dest_offset = o->offset};

	/* FICLONERANGE takes a length of 0 for the whole file. */
	if (r.src_length && ioctl(to, FICLONERANGE, &r) < 0)
		return -errno;
	return len % block ? copy_data(from, to, (off_t)(o->from + r.src_length),
				       (off_t)(o->offset + r.src_length), len % block)
			   : 0;
}

/* Zeros the rest of the block in which the clone ends (RFC 7862 section 15.13.3). */
static int clone_data(int from, int to, const ctl_order *o, uint64_t len, uint32_t block,
		      bool apart)
{
	uint64_t end = o->offset + o->size + (block - (o->offset + o->size) % block) % block;
	const ctl_span span = {.offset = o->offset, .from = o->from, .length = len};
	int err = apart ? data_copy(from, to, &span) : reflink(from, to, o, len, block);

	if (err)
		return err;
	return end > o->offset + len ? punch(to, o->offset + len, end - o->offset - len) : 0;
}

int ds_clone_is_all(const ctl_order *o, int fd)
{
	struct stat st;
	off_t data = lseek(fd, 0, SEEK_DATA);

	if ((data < 0 && errno != ENXIO) || fstat(fd, &st) < 0)
		return -errno;
	return (uint64_t)st.st_size <= o->offset + o->size &&
	       (data < 0 || (uint64_t)data >= o->offset);
}

static bool in_blocks(const ctl_order *o, const struct ds_obj *target)
{
	uint32_t block = target->ob_vol->v_clone_block;

	return block && o->offset % block == 0 && o->from % block == 0;
}

uint32_t ds_clone_rounds(const ctl_order *o, const struct ds_obj *target)
{
	return in_blocks(o, target) ? target->ob_vol->v_clone_block : DS_PAGE;
}

int ds_clone(const ctl_order *o, const struct ds_obj *source, const struct ds_obj *target, int fd)
{
	bool apart = !in_blocks(o, target) || (source && source->ob_vol != target->ob_vol);
	int from = source ? ds_obj_reopen(source) : -1, err = 0;
	struct stat src, dst;
	uint64_t len = 0;

	if (source && from < 0)
		return from;
	if (fstat(fd, &dst) < 0 || (source && fstat(from, &src) < 0))
		err = -errno;
	/* The source object may end before the file does. */
	if (!err && source && (uint64_t)src.st_size > o->from)
		len = (uint64_t)src.st_size - o->from < o->size ? (uint64_t)src.st_size - o->from
								: o->size;
	if (!err)
		err = clone_data(from, fd, o, len, ds_clone_rounds(o, target), apart);
	if (!err)
		err = data_extend(fd, o->offset + o->size);
	if (!err)
		err = ds_mtime_set(fd, ds_mtime_ns(&dst));
	if (from >= 0)
		close(from);
	return err;
}

static int change_span(int fd, int from, ctl_change_type type, const ctl_span *sp)
{
	switch (type) {
	case CTL_CHANGE_ALLOCATE:
		return fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)sp->offset, (off_t)sp->length) < 0
			       ? -errno
			       : 0;
	case CTL_CHANGE_EXTEND:
		return data_extend(fd, sp->offset + sp->length);
	case CTL_CHANGE_DEALLOCATE:
		return punch(fd, sp->offset, sp->length);
	case CTL_CHANGE_COPY:
		return data_copy(from, fd, sp);
	}
	return -EINVAL;
}

/* ALLOCATE needs no note: it changes nothing that a rebuild compares. */
static int change_noted(struct ds_obj *o, int fd, int from, ctl_change_type type,
			const ctl_span *sp)
{
	uint64_t end = sp->offset + sp->length;
	struct ds_change c = {.dc_obj = NULL};
	int err = 0;

	if (type == CTL_CHANGE_EXTEND)
		err = ds_change_begin(&c, o, end, end, end);
	else if (type != CTL_CHANGE_ALLOCATE)
		err = ds_change_begin(&c, o, sp->offset, end, type == CTL_CHANGE_COPY ? end : 0);
	if (!err)
		err = change_span(fd, from, type, sp);
	if (err && c.dc_obj)
		ds_obj_note_failed(o, err);
	ds_change_end(&c);
	return err;
}

static int change_sync(struct ds_obj *o, int fd)
{
	int err = fsync(fd) < 0 ? -errno : 0;

	if (err)
		ds_obj_sync_failed(o, err);
	return err ? err : ds_obj_sync_dirs(o);
}

static int data_change(struct ds_obj *o, struct ds_obj *source, const ctl_change_args *a)
{
	int fd = ds_obj_reopen(o), from = source ? ds_obj_reopen(source) : -1, err = 0;

	if (fd < 0 || (source && from < 0))
		err = fd < 0 ? fd : from;
	if (!err && a->type == CTL_CHANGE_ALLOCATE)
		err = room_for(fd, a);
	for (unsigned i = 0; !err && i < a->spans.spans_len; i++)
		err = change_noted(o, fd, from, a->type, &a->spans.spans_val[i]);
	/* Also after an error: a part may be done. */
	if (fd >= 0)
		ds_obj_wrote(o);
	if (!err && a->type != CTL_CHANGE_COPY)
		err = change_sync(o, fd);
	if (fd >= 0)
		close(fd);
	if (from >= 0)
		close(from);
	return err;
}

static ctl_status change_bracketed(struct ds_store *s, const ctl_change_args *a,
				   const struct cap_object *key, struct ds_obj *source)
{
	struct ds_obj *o;
	/* A reflink works only within one volume. */
	struct ds_vol *at =
		source && source->ob_vol->v_clone_block && ds_vol_has_room(source->ob_vol)
			? source->ob_vol
			: NULL;
	int err = ds_obj_get_at(s, key, a->type != CTL_CHANGE_DEALLOCATE && !(a->known & CTL_KNOWN),
				at, &o);

	if (err)
		return err == -ENOENT || err == -ESTALE ? CTL_NOENT : ds_ctl_status(err);
	if (ds_obj_deleted(o))
		err = -ESTALE;
	else if (a->epoch >= ds_obj_epoch(o))
		err = data_change(o, source, a);
	else
		err = -EACCES;
	ds_obj_put(o);
	return err == -ESTALE	    ? CTL_NOENT
	       : err == -EACCES	    ? CTL_FENCED
	       : err == -EOPNOTSUPP ? CTL_NOTSUPP
				    : ds_ctl_status(err);
}

ctl_status ds_store_change(struct ds_fs *f, const ctl_change_args *a, ctl_change_res *res)
{
	struct ds_store *s = f->fs_store;
	struct cap_object key, from;
	struct ds_obj *source = NULL;
	ctl_status st;
	unsigned token;
	int err = 0;

	if (!ds_store_instance_ok(f, a->instance_epoch))
		return CTL_STALE_INSTANCE;
	if (!ds_key_of(&a->object, &key) || !spans_ok(a) ||
	    (a->type == CTL_CHANGE_COPY && !ds_key_of(&a->source, &from)))
		return CTL_INVAL;
	if (a->type == CTL_CHANGE_COPY)
		err = ds_obj_get(s, &from, false, &source);
	if (source && ds_obj_rebuilding(source)) {
		ds_obj_put(source);
		return CTL_REBUILDING;
	}
	if (err && (err != -ENOENT || (a->known & CTL_KNOWN_SOURCE)))
		return err == -ESTALE || err == -ENOENT ? CTL_NOENT : ds_ctl_status(err);
	/* NFSv3 sends the verifier's bytes as they are in memory. A reader that takes them for a
	 * number has the first byte as the highest. */
	res->verifier = be64toh(ds_store_verifier(s));
	token = ds_write_begin(s);
	st = change_bracketed(s, a, &key, source);
	ds_write_end(s, token);
	if (source)
		ds_obj_put(source);
	return st;
}
