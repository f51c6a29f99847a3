/*
 * ctl_chan.h - the sealed channel of the control protocol (ctl.x) over one rpc_conn.
 *
 * The two sides derive two keys (one per direction) from the cluster key and both nonces (libsodium
 * generichash); every message is XChaCha20-Poly1305 with a counter as nonce that must rise by one
 * within a direction (a connection keeps order), and the direction, call or reply and op as
 * additional data. A message that does not open ends the connection. All on the connection's loop.
 */
#ifndef PROTO_CTL_CHAN_H
#define PROTO_CTL_CHAN_H
#include "proto/ctl.h"
#include "proto/rpc.h"

/* How long a batch of orders may take, in milliseconds; and a JOIN, which is answered when what the
 * server missed is done: more than a batch. */
#define CTL_ORDERS_MS 20000u
#define CTL_JOIN_MS   60000u
_Static_assert(CTL_JOIN_MS > 2 * CTL_ORDERS_MS, "a join outlasts its orders");

struct ctl_chan;

/* A request from the peer. Answer now or later with ctl_chan_reply (exactly once); req lives until
 * then. */
struct ctl_incoming {
	struct ctl_chan *in_chan;
	ctl_request in_req;
	struct rpc_call *in_call;
};
typedef void (*ctl_serve_fn)(struct ctl_incoming *in, void *arg);
void ctl_chan_reply(struct ctl_incoming *in, ctl_status status,
		    const ctl_result *res /* NULL unless CTL_OK */);

/* Client side (data server): HELLO, a second one where the MDS knows a lower protocol only, then
 * ready(err). */
int ctl_chan_connect(struct ctl_chan **out, struct rpc_conn *conn, const uint8_t cluster_key[32],
		     const uint8_t ds_uuid[16], ctl_serve_fn serve, void *arg,
		     void (*ready)(struct ctl_chan *, int err, void *arg));
/* The same of a server that has a key of its own: its control key, and its number (ds_key.h).
 * ready(-EKEYREJECTED): the MDS knows no such keys, or none of that number. */
int ctl_chan_connect_own(struct ctl_chan **out, struct rpc_conn *conn,
			 const uint8_t control_key[32], uint8_t number, const uint8_t ds_uuid[16],
			 ctl_serve_fn serve, void *arg,
			 void (*ready)(struct ctl_chan *, int err, void *arg));
/* Server side (MDS): called for CTL_PROC_HELLO; answers it. The uuid is claimed: the first sealed
 * message proves it. */
int ctl_chan_accept(struct ctl_chan **out, struct rpc_call *hello, const uint8_t cluster_key[32],
		    ctl_serve_fn serve, void *arg);
/* The same where the key is looked for: own is whether the server says that it has one of its own,
 * of that number. False: there is none, and no channel (-EKEYREJECTED). */
typedef bool (*ctl_key_fn)(void *arg, const uint8_t ds_uuid[16], bool own, uint8_t number,
			   uint8_t key[32]);
int ctl_chan_accept_by(struct ctl_chan **out, struct rpc_call *hello, ctl_key_fn find,
		       void *find_arg, ctl_serve_fn serve, void *arg);
/* Whether the peer came with a key of its own; and its number. */
bool ctl_chan_own(const struct ctl_chan *ch, uint8_t *number);
/* Dispatch of CTL_PROC_SEALED to the connection's channel. */
void ctl_chan_sealed(struct ctl_chan *ch, struct rpc_call *call);
/* A request of ours. done(err, status, res): err as in rpc_req; res valid during the call. The
 * request is encoded at once. */
int ctl_chan_call(struct ctl_chan *ch, const ctl_request *req, uint32_t timeout_ms,
		  void (*done)(void *arg, int err, const ctl_response *res), void *arg);
/* What both sides speak, CTL_PROTOCOL_MIN to CTL_PROTOCOL; settled once it is ready or accepted. */
uint32_t ctl_chan_protocol(const struct ctl_chan *ch);
const uint8_t *ctl_chan_uuid(const struct ctl_chan *ch);
struct rpc_conn *ctl_chan_conn(const struct ctl_chan *ch);
/* When the connection is gone (rs_closed): fails what is outstanding and frees. */
void ctl_chan_free(struct ctl_chan *ch);
#endif
