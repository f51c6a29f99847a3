/* SPDX-License-Identifier: Apache-2.0 */
/* back.h - the backchannel: calls of the server. */
#ifndef CLIENT_BACK_H
#define CLIENT_BACK_H
#include "proto/rpc.h"
#include "proto/xdr.h"

struct weft;

extern const struct rpc_service wc_back_service;
void wc_back_reset(struct weft *w);
/* CB_COMPOUND. False: its arguments are garbage. */
bool wc_back_compound(struct weft *w, struct xdr_in *x, struct xdr_out *out);
#endif
