/* SPDX-License-Identifier: Apache-2.0 */
/* weft_op.h - operations on names. */
#ifndef CLIENT_WEFT_OP_H
#define CLIENT_WEFT_OP_H
#include "client/weft.h"

/* Begins an operation. */
void wc_op_begin(struct weft_op *op);
#endif
