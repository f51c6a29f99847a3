/* SPDX-License-Identifier: Apache-2.0 */
/* rpcbind.c - registers the ports of NFS and MOUNT with this machine's rpcbind, for clients that
 * ask it. A thread of its own does that, because rpcbind may hang or be missing. */
#include "base/log.h"
#include "ds/path/path.h"
#include <arpa/inet.h>
#include <netconfig.h>
#include <pthread.h>
#include <rpc/rpc.h>
#include <rpc/rpcb_clnt.h>

static const struct {
	rpcprog_t prog;
	rpcvers_t vers;
} programs[] = {{NFS3_PROGRAM, NFS3_VERSION}, {MOUNT3_PROGRAM, MOUNT3_VERSION}};

static bool register_one(const char *netid, void *addr, unsigned len)
{
	struct netconfig *nc = getnetconfigent(netid);
	struct netbuf nb = {.maxlen = len, .len = len, .buf = addr};
	bool ok = nc;

	for (unsigned i = 0; ok && i < 2; i++) {
		rpcb_unset(programs[i].prog, programs[i].vers, nc);
		ok = rpcb_set(programs[i].prog, programs[i].vers, nc, &nb);
	}
	if (nc)
		freenetconfigent(nc);
	return ok;
}

static void rpcbind_tell(const char *netid, uint16_t port, void *addr, unsigned len)
{
	if (!port)
		return;
	if (register_one(netid, addr, len))
		log_info("registered NFS and MOUNT over %s at port %u with rpcbind", netid, port);
	else
		log_warn("cannot register NFS and MOUNT over %s with rpcbind: clients must name "
			 "the ports (port=%u,mountport=%u)",
			 netid, port, port);
}

static void *rpcbind_run(void *arg)
{
	uint16_t port4 = (uint16_t)(uintptr_t)arg, port6 = (uint16_t)((uintptr_t)arg >> 16);
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port4)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port6)};

	rpcbind_tell("tcp", port4, &v4, sizeof(v4));
	rpcbind_tell("tcp6", port6, &v6, sizeof(v6));
	return NULL;
}

void path_rpcbind(uint16_t port4, uint16_t port6)
{
	pthread_t t;

	if (pthread_create(&t, NULL, rpcbind_run,
			   (void *)((uintptr_t)port4 | (uintptr_t)port6 << 16)))
		log_warn("cannot register NFS and MOUNT with rpcbind: cannot start a thread");
	else
		pthread_detach(t);
}

void path_rpcbind_end(void)
{
	static const char *const netids[] = {"tcp", "tcp6"};

	for (unsigned i = 0; i < 2; i++) {
		struct netconfig *nc = getnetconfigent(netids[i]);

		for (unsigned k = 0; nc && k < 2; k++)
			rpcb_unset(programs[k].prog, programs[k].vers, nc);
		if (nc)
			freenetconfigent(nc);
	}
}
