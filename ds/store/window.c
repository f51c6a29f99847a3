/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.c - the bytes of a rebuild and of a FILL: reads a piece of the source with its holes, and
 * writes it to the target (rebuild.h).
 *
 * This file first compares the piece with what the target has, and writes only pages that differ.
 * It then reads the written pages back, past the page cache if the store can, and compares them
 * with the fetched ones.
 */
#include "base/log.h"
#include "ds/store/rebuild_int.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static uint64_t window_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Reads n bytes, or up to the end of the file. Returns the number of bytes read, or -errno. */
static ssize_t read_at(int fd, uint8_t *mem, size_t n, uint64_t off)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, mem + done, n - done, (off_t)(off + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		done += (size_t)got;
		/* A direct read that stops inside a page is at the end of the file. */
		if (!got || done % DS_PAGE)
			break;
	}
	return (ssize_t)done;
}

static int write_at(int fd, const uint8_t *mem, size_t n, uint64_t off)
{
	size_t done = 0;

	while (done < n) {
		ssize_t window_put = pwrite(fd, mem + done, n - done, (off_t)(off + done));

		if (window_put < 0 && errno == EINTR)
			continue;
		if (window_put <= 0)
			return window_put ? -errno : -EIO;
		done += (size_t)window_put;
	}
	return 0;
}

/* ---- the source ---- */

/* Finds the parts of [ft_off, end) that are data. Stops early if there are too many. */
static int window_find_parts(int fd, uint64_t end, struct ds_fetch *f)
{
	uint64_t at = f->ft_off;

	while (at < end) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			return 0;
		if (data < 0)
			return -errno;
		if ((uint64_t)data >= end)
			return 0;
		if (f->ft_nparts == CTL_PEER_PARTS) {
			f->ft_to = (uint64_t)data;
			return 0;
		}
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0 && errno == ENXIO)
			return 0; /* the file was truncated meanwhile */
		if (hole < 0)
			return -errno;
		at = window_least((uint64_t)hole, end);
		f->ft_part[f->ft_nparts++] =
			(struct ds_part){(uint64_t)data, (uint32_t)(at - (uint64_t)data)};
	}
	return 0;
}

/* A part that was truncated since find_parts reads as zeros. */
static int read_part(struct ds_obj *o, const struct ds_part *pt, uint8_t *mem)
{
	int dfd = ds_obj_direct_fd(o);
	bool direct = dfd >= 0 && pt->pt_off % DS_PAGE == 0 && (uintptr_t)mem % DS_PAGE == 0;
	size_t whole = (pt->pt_len + DS_PAGE - 1) & ~(size_t)(DS_PAGE - 1);
	struct ds_change c;
	ssize_t n;

	ds_change_lock(&c, o, pt->pt_off, pt->pt_off + pt->pt_len,
		       direct ? DS_LOCK_DIRECT : DS_LOCK_BUFFERED);
	n = direct ? read_at(dfd, mem, whole, pt->pt_off)
		   : read_at(o->ob_fd, mem, pt->pt_len, pt->pt_off);
	ds_change_end(&c);
	if (n == -EINVAL && direct) {
		ds_change_lock(&c, o, pt->pt_off, pt->pt_off + pt->pt_len, DS_LOCK_BUFFERED);
		n = read_at(o->ob_fd, mem, pt->pt_len, pt->pt_off);
		ds_change_end(&c);
	}
	ds_health_note(o->ob_vol, false, (int)n);
	if (n < 0)
		return (int)n;
	if ((size_t)n < pt->pt_len)
		memset(mem + n, 0, pt->pt_len - (size_t)n);
	return 0;
}

int ds_fetch_read(struct ds_obj *o, uint32_t count, struct ds_fetch *f)
{
	int fd = o ? ds_obj_reopen(o) : -1, err = 0;
	struct stat st = {0};

	f->ft_nparts = 0;
	f->ft_len = 0;
	f->ft_size = 0;
	f->ft_to = f->ft_off + count;
	if (o && fd < 0)
		return fd == -ENOENT ? -ESTALE : fd;
	if (o && fstat(fd, &st) < 0)
		err = -errno;
	f->ft_size = (uint64_t)st.st_size;
	if (o && !err)
		err = window_find_parts(fd, window_least(f->ft_to, f->ft_size), f);
	if (fd >= 0)
		close(fd);
	for (unsigned i = 0; i < f->ft_nparts && !err; i++) {
		err = read_part(o, &f->ft_part[i], f->ft_data + f->ft_len);
		f->ft_len += f->ft_part[i].pt_len;
	}
	return err;
}

/* ---- the target ---- */

/* A window, while its range is locked. */
struct window {
	struct ds_obj *w_obj;
	int w_fd;
	const struct ds_fetch *w_f;
	ctl_rebuild_res *w_res;
	uint64_t w_base; /* offset of the memory: the page of ft_off */
	uint8_t *w_new, *w_old;
	uint64_t w_size; /* the target's size */
	unsigned w_part; /* the first part not yet passed */
	uint32_t w_pos;	 /* where its data is in ft_data */
};

/* mem: page-aligned, DS_SESSION_MEM bytes. */
static struct window window_on(struct ds_obj *o, int fd, const struct ds_fetch *f, uint8_t *mem,
			       ctl_rebuild_res *res)
{
	return (struct window){.w_obj = o,
			       .w_fd = fd,
			       .w_f = f,
			       .w_res = res,
			       .w_base = f->ft_off / DS_PAGE * DS_PAGE,
			       .w_new = mem,
			       .w_old = mem + DS_MAX_IO + DS_PAGE};
}

static int window_stat(struct window *w)
{
	struct stat st;

	if (fstat(w->w_fd, &st) < 0)
		return -errno;
	w->w_size = (uint64_t)st.st_size;
	return 0;
}

static uint8_t *new_at(const struct window *w, uint64_t off)
{
	return w->w_new + (off - w->w_base);
}

/* Reads into w_old, as far as the file goes; leaves the rest of the memory alone. */
static int read_back(struct window *w, uint64_t from, uint64_t to)
{
	struct ds_obj *o = w->w_obj;
	uint64_t first = from / DS_PAGE * DS_PAGE, end = (to + DS_PAGE - 1) / DS_PAGE * DS_PAGE;
	int dfd = ds_obj_direct_fd(o);
	ssize_t n = dfd < 0 ? -EINVAL
			    : read_at(dfd, w->w_old + (first - w->w_base), (size_t)(end - first),
				      first);

	if (n == -EINVAL)
		n = read_at(w->w_fd, w->w_old + (from - w->w_base), (size_t)(to - from), from);
	ds_health_note(o->ob_vol, false, (int)n);
	return n < 0 ? (int)n : 0;
}

/* Writes; whole pages go past the page cache. */
static int window_put(struct window *w, uint64_t from, uint64_t to)
{
	uint64_t head = window_least((from + DS_PAGE - 1) / DS_PAGE * DS_PAGE, to),
		 tail = to / DS_PAGE * DS_PAGE;
	int dfd = ds_obj_direct_fd(w->w_obj), fd = w->w_fd, err;

	if (tail <= head)
		head = tail = to;
	err = write_at(fd, new_at(w, from), (size_t)(head - from), from);
	if (!err && head < tail) {
		err = dfd < 0 ? -EINVAL
			      : write_at(dfd, new_at(w, head), (size_t)(tail - head), head);
		if (err == -EINVAL)
			err = write_at(fd, new_at(w, head), (size_t)(tail - head), head);
	}
	if (!err)
		err = write_at(fd, new_at(w, tail), (size_t)(to - tail), tail);
	ds_health_note(w->w_obj->ob_vol, true, err);
	if (!err && to > w->w_size)
		w->w_size = to;
	return err;
}

/* Writes pages that differ, and verifies them by reading back. */
static int put_differing(struct window *w, uint64_t from, uint64_t to)
{
	int err = window_put(w, from, to);

	w->w_res->copied += to - from;
	if (!err)
		err = read_back(w, from, to);
	if (!err && memcmp(new_at(w, from), w->w_old + (from - w->w_base), (size_t)(to - from))) {
		log_error("store: object %016" PRIx64
			  ": the disk returned other data than was written at %" PRIu64
			  " to %" PRIu64,
			  w->w_obj->ob_key.co_ino, from, to);
		err = -EIO;
	}
	return err;
}

static bool page_same(const struct window *w, uint64_t from, uint64_t to, uint64_t have)
{
	return to <= have &&
	       !memcmp(new_at(w, from), w->w_old + (from - w->w_base), (size_t)(to - from));
}

static int window_put_data(struct window *w, uint64_t from, uint64_t to)
{
	uint64_t have = w->w_size, at = from, run = from;
	int err = from < have ? read_back(w, from, window_least(to, have)) : 0;

	while (at < to && !err) {
		uint64_t next = window_least((at / DS_PAGE + 1) * DS_PAGE, to);

		if (page_same(w, at, next, have)) {
			w->w_res->same += next - at;
			err = run < at ? put_differing(w, run, at) : 0;
			run = next;
		}
		at = next;
	}
	return err || run == to ? err : put_differing(w, run, to);
}

/* Punches only where there is data: reserved space stays reserved. */
static int window_put_hole(struct window *w, uint64_t from, uint64_t to)
{
	int fd = w->w_fd;
	uint64_t at = from;

	if (from < w->w_f->ft_size)
		w->w_res->holes += window_least(to, w->w_f->ft_size) - from;
	to = window_least(to, w->w_size);
	while (at < to) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA), hole;
		uint64_t end;

		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		if ((uint64_t)data >= to)
			return 0;
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		end = window_least((uint64_t)hole, to);
		if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, data,
			      (off_t)(end - (uint64_t)data)) < 0)
			return -errno;
		at = end;
	}
	return 0;
}

/* Makes a range without notes equal to the source. */
static int put_range(struct window *w, uint64_t from, uint64_t to)
{
	const struct ds_fetch *f = w->w_f;
	int err = 0;

	while (from < to && !err) {
		const struct ds_part *pt = w->w_part < f->ft_nparts ? &f->ft_part[w->w_part] : NULL;
		uint64_t end = to;

		if (pt && pt->pt_off + pt->pt_len <= from) {
			w->w_pos += pt->pt_len;
			w->w_part++;
			continue;
		}
		if (pt && pt->pt_off <= from) {
			end = window_least(to, pt->pt_off + pt->pt_len);
			memcpy(new_at(w, from), f->ft_data + w->w_pos + (from - pt->pt_off),
			       (size_t)(end - from));
			err = window_put_data(w, from, end);
		} else {
			end = pt ? window_least(to, pt->pt_off) : to;
			err = window_put_hole(w, from, end);
		}
		from = end;
	}
	return err;
}

/* The next range without a note at this moment. False: none. */
static bool window_next_range(struct ds_session *ss, uint64_t from, uint64_t to, struct extent *gap)
{
	bool any;

	pthread_mutex_lock(&ss->ss_obj->ob_lock);
	any = extents_gap(&ss->ss_notes, from, to, gap);
	pthread_mutex_unlock(&ss->ss_obj->ob_lock);
	return any;
}

/*
 * Sets the object's end: the source's end, or where a change since BEGIN has moved it. If a change
 * since BEGIN set the size, the object already has it. If the source has become shorter than the
 * object, an order that is still to come cuts this object as well.
 */
static int window_put_end(struct window *w, struct ds_session *ss)
{
	uint64_t size = w->w_f->ft_size > w->w_f->ft_off ? w->w_f->ft_size : w->w_f->ft_off;
	const struct extents *ns = &ss->ss_notes;
	bool set;

	pthread_mutex_lock(&ss->ss_obj->ob_lock);
	set = ns->es_n && ns->es_at[ns->es_n - 1].e_to == EXTENT_END;
	size = ss->ss_least > size ? ss->ss_least : size;
	pthread_mutex_unlock(&ss->ss_obj->ob_lock);
	if (set || size == w->w_size)
		return 0;
	return ftruncate(w->w_fd, (off_t)size) < 0 ? -errno : 0;
}

static int put_window(struct window *w, struct ds_session *ss, bool eof)
{
	uint64_t at = w->w_f->ft_off, to = eof ? INT64_MAX : w->w_f->ft_to;
	struct extent gap;
	int err = window_stat(w);

	while (!err && window_next_range(ss, at, to, &gap)) {
		err = put_range(w, gap.e_from, gap.e_to);
		at = gap.e_to;
	}
	return !err && eof ? window_put_end(w, ss) : err;
}

/* The cursor moves while the window is locked: a change that waits for the window then finds itself
 * behind the cursor. */
static void window_done(struct ds_session *ss, const struct ds_fetch *f, bool eof)
{
	pthread_mutex_lock(&ss->ss_obj->ob_lock);
	ss->ss_cursor = eof ? EXTENT_END : f->ft_to;
	ss->ss_size = f->ft_size;
	extents_forget(&ss->ss_notes, ss->ss_cursor);
	pthread_mutex_unlock(&ss->ss_obj->ob_lock);
}

static bool session_dead(struct ds_session *ss)
{
	bool dead;

	pthread_mutex_lock(&ss->ss_obj->ob_lock);
	dead = ss->ss_dead;
	pthread_mutex_unlock(&ss->ss_obj->ob_lock);
	return dead;
}

ctl_status ds_session_write(struct ds_session *ss, const struct ds_fetch *f, uint8_t *mem,
			    ctl_rebuild_res *res)
{
	struct window w = window_on(ss->ss_obj, ss->ss_fd, f, mem, res);
	ctl_rebuild_res was = *res;
	bool eof = f->ft_size <= f->ft_to;
	struct ds_change c;
	ctl_status st;
	int err;

	if (f->ft_off != ds_session_cursor(ss) || f->ft_to - f->ft_off > DS_MAX_IO ||
	    f->ft_to < f->ft_off)
		return CTL_INVAL;
	st = ds_session_check(ss);
	if (st != CTL_OK)
		return st;
	ds_change_lock(&c, ss->ss_obj, f->ft_off, eof ? EXTENT_END : f->ft_to, DS_LOCK_ALONE);
	if (session_dead(ss)) {
		ds_change_end(&c);
		return CTL_BAD_SESSION;
	}
	err = put_window(&w, ss, eof);
	ds_obj_wrote(ss->ss_obj);
	if (!err)
		window_done(ss, f, eof);
	ds_change_end(&c);
	metric_add(ds_m_rebuilt[0], res->copied - was.copied);
	metric_add(ds_m_rebuilt[1], res->same - was.same);
	metric_add(ds_m_rebuilt[2], res->holes - was.holes);
	if (err)
		log_error("store: object %016" PRIx64 ": its rebuild stopped: %s",
			  ss->ss_obj->ob_key.co_ino, strerror(-err));
	return ds_ctl_status(err);
}

/* No client writes the object yet: nothing is noted, and each byte is the source's. */
int ds_fill_write(struct ds_obj *o, int fd, const struct ds_fetch *f, uint8_t *mem)
{
	ctl_rebuild_res res = {0};
	struct window w = window_on(o, fd, f, mem, &res);
	struct ds_change c;
	int err;

	if (f->ft_to < f->ft_off || f->ft_to - f->ft_off > DS_MAX_IO)
		return -EINVAL;
	ds_change_lock(&c, o, f->ft_off, f->ft_to, DS_LOCK_ALONE);
	err = window_stat(&w);
	if (!err)
		err = put_range(&w, f->ft_off, f->ft_to);
	ds_obj_wrote(o);
	ds_change_end(&c);
	return err;
}
