/* SPDX-License-Identifier: Apache-2.0 */
/* res.h - results and attributes, by cursor; what calls put; errors. */
#ifndef CLIENT_RES_H
#define CLIENT_RES_H
#include "client/weft.h"
#include "proto/nfs4.h"
#include "proto/xdr.h"

struct wc_call;

struct wc_stateid {
	uint32_t si_seq;
	uint8_t si_other[NFS4_OTHER_SIZE];
};

/* Results, one after the other. */
struct wc_res {
	struct xdr_in *x;
	uint32_t r_left;   /* results that follow */
	uint32_t r_status; /* of the COMPOUND; the first result that is not OK ends it */
	bool r_failed;	   /* a result was not OK: it is r_status */
	bool r_bad;
};

/* mdsthreshold (RFC 8881 section 5.12.6) for Flex Files layouts: smaller files or I/O go through
 * the server. 0: no such limit. */
struct wc_limits {
	uint64_t th_read_size, th_write_size, th_read_io, th_write_io;
};

bool wc_res_op(struct wc_res *r, uint32_t op);
void wc_put_fh(struct wc_call *c, struct xdr_out *x, const struct weft_fh *fh);
bool wc_res_fh(struct wc_res *r, const struct weft_fh *fh);
bool wc_get_fh(struct wc_res *r, struct weft_fh *fh); /* GETFH */
void wc_put_stateid(struct xdr_out *x, const struct wc_stateid *si);
void wc_get_stateid(struct xdr_in *x, struct wc_stateid *si);
/* Reads an owner whose name is a number (RFC 8881 section 5.9); false: it is another name. */
bool wc_get_id(struct xdr_in *x, uint32_t *id);
void wc_put_getattr(struct wc_call *c, struct xdr_out *x);
bool wc_res_attr(struct wc_res *r, struct weft_attr *a);
/* As the two above, with the limits. */
void wc_put_getattr_limits(struct wc_call *c, struct xdr_out *x);
bool wc_res_attr_limits(struct wc_res *r, struct weft_attr *a, struct wc_limits *th);
/* Puts the bitmap of the attributes to ask for; readdir: with the file handle. */
void wc_put_mask(struct xdr_out *x, bool readdir);
void wc_put_bits(struct xdr_out *x, const unsigned *bits, unsigned n);
/* Skips words beyond the third. */
void wc_get_bits(struct xdr_in *x, uint32_t mask[3]);
/* Reads fattr4. fh and th may be NULL. */
void wc_get_attrs(struct xdr_in *x, struct weft_attr *a, struct weft_fh *fh, struct wc_limits *th);
void wc_put_attrs(struct xdr_out *x, const struct weft_attr *a, uint32_t which);
int wc_errno(uint32_t status);
#endif
