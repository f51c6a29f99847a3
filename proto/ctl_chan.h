/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_chan.h - the sealed channel of the control protocol (ctl.x) over one rpc_conn.
 *
 * The two sides derive two keys (one per direction) from the cluster key and both nonces (libsodium
 * generichash). Every message is XChaCha20-Poly1305. Its nonce is a counter that must rise by one
 * within a direction (a connection keeps order); its additional data are the direction, call or
 * reply, and op. A message that does not open ends the connection. All on the connection's loop.
 */
#ifndef PROTO_CTL_CHAN_H
#define PROTO_CTL_CHAN_H
#include "proto/ctl.h"
#include "proto/rpc.h"

/* The longest time of a batch of orders, in milliseconds, and of a JOIN, which is answered when the
 * orders that the server missed are done: more than a batch. */
#define CTL_ORDERS_MS 20000u
#define CTL_JOIN_MS   60000u
_Static_assert(CTL_JOIN_MS > 2 * CTL_ORDERS_MS, "a join outlasts its orders");

struct ctl_chan;

/* A request from the peer. The receiver answers now or later with ctl_chan_reply, exactly once; req
 * lives until then. */
struct ctl_incoming {
	struct ctl_chan *in_chan;
	ctl_request in_req;
	struct rpc_call *in_call;
};
typedef void (*ctl_serve_fn)(struct ctl_incoming *in, void *arg);
void ctl_chan_reply(struct ctl_incoming *in, ctl_status status,
		    const ctl_result *res /* NULL unless CTL_OK */);

/* Client side (data server): sends HELLO, and a second one if the MDS knows only a lower protocol;
 * then calls ready(err). */
int ctl_chan_connect(struct ctl_chan **out, struct rpc_conn *conn, const uint8_t cluster_key[32],
		     const uint8_t ds_uuid[16], ctl_serve_fn serve, void *arg,
		     void (*ready)(struct ctl_chan *, int err, void *arg));
/* As ctl_chan_connect, for a server that has a key of its own: its control key and the key's number
 * (ds_key.h). ready(-EKEYREJECTED): the MDS knows no such keys, or none of that number. */
int ctl_chan_connect_own(struct ctl_chan **out, struct rpc_conn *conn,
			 const uint8_t control_key[32], uint8_t number, const uint8_t ds_uuid[16],
			 ctl_serve_fn serve, void *arg,
			 void (*ready)(struct ctl_chan *, int err, void *arg));
/*
 * As the two above, for a server with keys of its own of some file systems (fs: the one that is
 * expected; 0: ask). When it is known, pick says what to seal with; it fills key and, with
 * CTL_SEAL_OWN, *number. ready(-EXDEV): the MDS has another file system than fs. ready(-EAGAIN): it
 * does not know the question, so it is of file system 1.
 */
enum ctl_seal { CTL_SEAL_CLUSTER, CTL_SEAL_OWN, CTL_SEAL_MEET };
typedef enum ctl_seal (*ctl_pick_fn)(void *arg, uint16_t fs, uint8_t *number, uint8_t key[32]);
int ctl_chan_connect_pick(struct ctl_chan **out, struct rpc_conn *conn, uint16_t fs,
			  ctl_pick_fn pick, const uint8_t ds_uuid[16], ctl_serve_fn serve,
			  void *arg, void (*ready)(struct ctl_chan *, int err, void *arg));
/* Server side (MDS): called for CTL_PROC_HELLO; answers it, with the number of the file system that
 * the MDS serves. The uuid is only claimed until the first sealed message proves it. */
int ctl_chan_accept(struct ctl_chan **out, struct rpc_call *hello, uint16_t fs,
		    const uint8_t cluster_key[32], ctl_serve_fn serve, void *arg);
/* As ctl_chan_accept, but find looks the key up; number: of a key of the server's own. find returns
 * false when there is no key: then there is no channel (-EKEYREJECTED). -EAGAIN: the server asked
 * for the file system only. */
typedef bool (*ctl_key_fn)(void *arg, const uint8_t ds_uuid[16], enum ctl_seal seal, uint8_t number,
			   uint8_t key[32]);
int ctl_chan_accept_by(struct ctl_chan **out, struct rpc_call *hello, uint16_t fs, ctl_key_fn find,
		       void *find_arg, ctl_serve_fn serve, void *arg);
/* True when the peer used a key of its own; *number is the key's number. */
bool ctl_chan_own(const struct ctl_chan *ch, uint8_t *number);
/* What seals it. */
enum ctl_seal ctl_chan_seal(const struct ctl_chan *ch);
/* Handles CTL_PROC_SEALED of the connection's channel. */
void ctl_chan_sealed(struct ctl_chan *ch, struct rpc_call *call);
/* Sends a request of ours. done(err, status, res): err as in rpc_req; res valid during the call.
 * Encodes the request before it returns. */
int ctl_chan_call(struct ctl_chan *ch, const ctl_request *req, uint32_t timeout_ms,
		  void (*done)(void *arg, int err, const ctl_response *res), void *arg);
/* The protocol of both sides, CTL_PROTOCOL_MIN to CTL_PROTOCOL; fixed once ready or accepted. */
uint32_t ctl_chan_protocol(const struct ctl_chan *ch);
/* The file system of the MDS, as HELLO says it: not proven. An MDS from before protocol 6: 1. */
uint32_t ctl_chan_fs(const struct ctl_chan *ch);
const uint8_t *ctl_chan_uuid(const struct ctl_chan *ch);
struct rpc_conn *ctl_chan_conn(const struct ctl_chan *ch);
/* When the connection is gone (rs_closed): fails the outstanding requests and frees the channel. */
void ctl_chan_free(struct ctl_chan *ch);
#endif
