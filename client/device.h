/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the data servers of a layout. */
#ifndef CLIENT_DEVICE_H
#define CLIENT_DEVICE_H
#include "client/weft.h"
#include "proto/nfs4.h"
#include "proto/rpc.h"

struct weft;

struct wc_dev_conn {
	struct rpc_client *dn_client; /* connected to dv_at; NULL before its first call */
	unsigned dn_calls;	      /* under way */
};

enum wc_dev_state { WC_DEV_ASKED, WC_DEV_GOOD, WC_DEV_BAD };
struct wc_device {
	struct wc_device *dv_next;
	uint8_t dv_id[NFS4_DEVICEID4_SIZE];
	enum wc_dev_state dv_state;
	bool dv_again;	    /* it did not answer: it may have another address by now */
	uint64_t dv_bad_ns; /* until then other mirrors are read first */
	char dv_netid[8], dv_uaddr[128];
	/* The same by RDMA; dv_rlen 0: there is none. */
	struct sockaddr_storage dv_raddr;
	socklen_t dv_rlen;
	uint64_t dv_no_rdma_ns; /* until then RDMA is not tried: it failed */
	struct sockaddr_storage dv_addr;
	socklen_t dv_len;
	unsigned dv_version; /* index of the chosen version, and so of the file handle */
	uint32_t dv_rsize, dv_wsize;
	struct wc_dev_conn dv_conns[WEFT_MAX_CONNS];
	bool dv_is_rdma; /* by RDMA */
	struct sockaddr_storage dv_at;
	socklen_t dv_at_len;
};

/* Finds a device by its id; asks the server for an unknown one. NULL without memory. */
struct wc_device *wc_device_get(struct weft *w, const uint8_t id[NFS4_DEVICEID4_SIZE]);
/* Ends calls; none begins again once the client is closing. */
void wc_devices_drop(struct weft *w);
void wc_devices_free(struct weft *w);
/* The connection with the fewest calls; the caller counts its own. NULL: no way to the device. */
struct wc_dev_conn *wc_device_conn(struct weft *w, struct wc_device *dv);
bool wc_device_may_rdma(const struct weft *w, const struct wc_device *dv);
/* RDMA failed there: use TCP for a while. */
void wc_device_no_rdma(struct weft *w, struct wc_device *dv);
#endif
