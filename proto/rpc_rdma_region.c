/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_rdma_region.c - the program's own memory, registered with every device, so that the payload
 * of our calls goes from and to it without a copy.
 *
 * The control thread registers a region; loops look into the table without a lock. A loop counts
 * itself as busy with a region, and then checks that the region is still the one that it found. A
 * thread that removes a region hides it, and then checks whether a loop is busy with it. One of the
 * two sees the other.
 */
#include "base/log.h"
#include "proto/rpc_rdma.h"
#include "proto/rpc_rdma_int.h"
#include <errno.h>

struct region {
	_Atomic(uint8_t *) rg_p; /* what loops see; NULL: nothing */
	_Atomic size_t rg_len;
	_Atomic unsigned rg_busy;
	bool rg_taken; /* with rg_base and rg_size, under lock */
	bool rg_there; /* under lock: a device that is opened registers it */
	uint8_t *rg_base;
	size_t rg_size;
};

static struct region regions[RD_REGIONS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;

/* A request to the control thread. The caller waits until it is done. */
struct rd_region_cmd {
	struct rd_cmd rc_cmd;
	unsigned rc_slot;
	bool rc_add, rc_done;
	int rc_err;
	pthread_mutex_t rc_lock;
	pthread_cond_t rc_cond;
};

static bool covers(struct region *rg, const uint8_t *p, size_t len)
{
	const uint8_t *base = atomic_load(&rg->rg_p);

	return base && p >= base && len <= atomic_load(&rg->rg_len) &&
	       (size_t)(p - base) <= atomic_load(&rg->rg_len) - len;
}

int rd_region_get(struct rd_dev *d, const void *p, size_t len, struct ibv_mr **mr)
{
	for (int i = 0; i < RD_REGIONS; i++) {
		if (!covers(&regions[i], p, len))
			continue;
		atomic_fetch_add(&regions[i].rg_busy, 1);
		/* Read this only when the region is known to stay. */
		*mr = covers(&regions[i], p, len) ? atomic_load(&d->dv_region[i]) : NULL;
		if (*mr)
			return i;
		rd_region_put(i);
	}
	return -1;
}

void rd_region_put(int region)
{
	if (region >= 0)
		atomic_fetch_sub(&regions[region].rg_busy, 1);
}

/* ---- on the control thread ---- */

/* Returns 0 or a negative errno. */
static int region_register(struct rd_dev *d, unsigned slot)
{
	struct ibv_mr *mr;
	bool relaxed;

	if (atomic_load(&d->dv_region[slot]))
		return 0;
	mr = rd_register(d->dv_pd, regions[slot].rg_base, regions[slot].rg_size,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
			 &relaxed);
	if (!mr)
		return -errno;
	atomic_store(&d->dv_region[slot], mr);
	return 0;
}

static void region_deregister(struct rd_dev *d, unsigned slot)
{
	struct ibv_mr *mr = atomic_exchange(&d->dv_region[slot], NULL);

	if (mr)
		ibv_dereg_mr(mr);
}

void rd_regions_open(struct rd_dev *d)
{
	int err;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < RD_REGIONS; i++) {
		err = regions[i].rg_there ? region_register(d, i) : 0;
		if (err)
			log_warn("rdma: %s: registering %zu KiB of the program's memory: %s%s; "
				 "what lies there is copied",
				 d->dv_name, regions[i].rg_size >> 10, strerror(-err),
				 rd_why_refused(-err));
	}
	pthread_mutex_unlock(&lock);
}

void rd_regions_close(struct rd_dev *d)
{
	for (unsigned i = 0; i < RD_REGIONS; i++)
		region_deregister(d, i);
}

void rd_region_asked(struct rd_region_cmd *rc, struct rd_dev *devs)
{
	for (struct rd_dev *d = devs; d && rc->rc_add && !rc->rc_err; d = d->dv_next)
		rc->rc_err = d->dv_dead ? 0 : region_register(d, rc->rc_slot);
	if (!rc->rc_add || rc->rc_err) {
		pthread_mutex_lock(&lock);
		regions[rc->rc_slot].rg_there = false;
		pthread_mutex_unlock(&lock);
		for (struct rd_dev *d = devs; d; d = d->dv_next)
			region_deregister(d, rc->rc_slot);
	}
	pthread_mutex_lock(&rc->rc_lock);
	rc->rc_done = true;
	pthread_cond_signal(&rc->rc_cond);
	pthread_mutex_unlock(&rc->rc_lock);
}

/* ---- anywhere else ---- */

static int rpc_rdma_region_ask(unsigned slot, bool add)
{
	struct rd_region_cmd rc = {.rc_slot = slot,
				   .rc_add = add,
				   .rc_lock = PTHREAD_MUTEX_INITIALIZER,
				   .rc_cond = PTHREAD_COND_INITIALIZER};

	rd_cmd(&rc.rc_cmd, CM_REGION, &rc);
	pthread_mutex_lock(&rc.rc_lock);
	while (!rc.rc_done)
		pthread_cond_wait(&rc.rc_cond, &rc.rc_lock);
	pthread_mutex_unlock(&rc.rc_lock);
	return rc.rc_err;
}

void rd_regions_start(void)
{
	pthread_mutex_lock(&lock);
	started = true;
	pthread_mutex_unlock(&lock);
}

static int rpc_rdma_region_slot_take(uint8_t *p, size_t len, unsigned *slot)
{
	int err = -ENOSPC;

	for (unsigned i = 0; i < RD_REGIONS; i++) {
		struct region *rg = &regions[i];

		if (!rg->rg_taken) {
			*slot = i;
			err = err == -ENOSPC ? 0 : err;
		} else if (p < rg->rg_base + rg->rg_size && rg->rg_base < p + len) {
			err = -EEXIST;
		}
	}
	if (!err) {
		regions[*slot].rg_taken = regions[*slot].rg_there = true;
		regions[*slot].rg_base = p;
		regions[*slot].rg_size = len;
	}
	return err;
}

static void rpc_rdma_region_slot_leave(unsigned slot)
{
	pthread_mutex_lock(&lock);
	regions[slot].rg_taken = regions[slot].rg_there = false;
	pthread_mutex_unlock(&lock);
}

int rpc_rdma_memory_add(void *p, size_t len)
{
	unsigned slot = 0;
	bool asks;
	int err;

	if (!p || !len || (uintptr_t)p + len < (uintptr_t)p)
		return -EINVAL;
	pthread_mutex_lock(&lock);
	err = rpc_rdma_region_slot_take(p, len, &slot);
	asks = started;
	pthread_mutex_unlock(&lock);
	if (err)
		return err;
	err = asks ? rpc_rdma_region_ask(slot, true) : 0;
	if (err) {
		rpc_rdma_region_slot_leave(slot);
		return err;
	}
	atomic_store(&regions[slot].rg_len, len);
	atomic_store(&regions[slot].rg_p, p);
	return 0;
}

int rpc_rdma_memory_remove(void *p)
{
	unsigned slot = 0;
	int err = 0;
	bool asks;

	pthread_mutex_lock(&lock);
	while (slot < RD_REGIONS && (!p || atomic_load(&regions[slot].rg_p) != p))
		slot++;
	if (slot == RD_REGIONS) {
		err = -ENOENT;
	} else {
		atomic_store(&regions[slot].rg_p, NULL);
		if (atomic_load(&regions[slot].rg_busy)) {
			atomic_store(&regions[slot].rg_p, p);
			err = -EBUSY;
		}
	}
	asks = started;
	pthread_mutex_unlock(&lock);
	if (err)
		return err;
	if (asks)
		rpc_rdma_region_ask(slot, false);
	rpc_rdma_region_slot_leave(slot);
	return 0;
}
