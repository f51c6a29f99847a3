/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_key_sim.c - mds/lease_key.c as it is, with planted faults: a standby takes the key after a
 * third of the lease; it waits for its own lease, where the holder's is longer; and the lease lasts
 * for 1.25 L.
 */
#include "tests/sim/redirect.h"
#include "tests/sim/sim.h"
#include "mds/lease_key.h"
#include <sodium.h>

static void random_bytes(void *p, size_t n)
{
	sim_getrandom(p, n, 0);
}
#define randombytes_buf random_bytes
#define lease_key_look	key_look
#define lease_key_open	key_open
#include "mds/lease_key.c"
#undef lease_key_look
#undef lease_key_open

int lease_key_look(struct lease_key *k, uint32_t inst, const uint8_t ident[16], uint32_t its_ms)
{
	int rc = key_look(k, inst, ident, its_ms);

	if (sim_planted("key-own-lease"))
		k->k_its_ms = 0;
	if (sim_planted("key-too-early") && k->k_seen &&
	    k->k_at - k->k_since >= SIM_MS(k->k_o.lk_lease_ms) / 3)
		k->k_since = 0;
	return rc;
}

static void (*held)(void *arg, uint64_t end_ns);

static void held_long(void *arg, uint64_t end_ns)
{
	held(arg, end_ns + SIM_MS(server_lease_ms()) / 2);
}

int lease_key_open(struct lease_key **out, const struct lease_key_opts *o, char *err, size_t errlen)
{
	struct lease_key_opts lasts = *o;

	held = o->lk_held;
	if (sim_planted("key-too-long"))
		lasts.lk_held = held_long;
	return key_open(out, &lasts, err, errlen);
}
