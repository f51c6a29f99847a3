/* SPDX-License-Identifier: Apache-2.0 */
/* weft_ds_io.h - data straight to and from the data servers of a layout. */
#ifndef CLIENT_WEFT_DS_IO_H
#define CLIENT_WEFT_DS_IO_H
#include <stdint.h>

struct wc_io;
struct wc_layout;

/* A part of an operation, within one stripe unit. */
void wc_ds_read(struct wc_io *io, struct wc_layout *lo, uint64_t off, uint8_t *buf, uint32_t len);
void wc_ds_write(struct wc_io *io, struct wc_layout *lo, uint64_t off, const uint8_t *buf,
		 uint32_t len);
/* Commits the data of io_dirty at this data server. */
void wc_ds_commit(struct wc_io *io, struct wc_layout *lo, uint32_t ds);
/* Ends what lo_late does not let go to data servers, from the loop. */
void wc_ds_cut(struct wc_layout *lo);
uint32_t wc_lo_index(const struct wc_layout *lo, unsigned mirror, uint64_t off);
#endif
