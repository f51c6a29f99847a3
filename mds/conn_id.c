/* SPDX-License-Identifier: Apache-2.0 */
/* conn_id.c - see conn_id.h. */
#include "mds/conn_id.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

bool conn_addr_v4(const uint8_t addr[16])
{
	return !memcmp(addr, mapped, sizeof(mapped));
}

void conn_addr_of(const struct sockaddr_storage *ss, uint8_t out[16])
{
	memset(out, 0, 16);
	if (ss->ss_family == AF_INET) {
		memcpy(out, mapped, sizeof(mapped));
		memcpy(out + 12, &((const struct sockaddr_in *)ss)->sin_addr, 4);
	} else if (ss->ss_family == AF_INET6) {
		memcpy(out, &((const struct sockaddr_in6 *)ss)->sin6_addr, 16);
	}
}

static void port_of(const struct sockaddr_storage *ss, uint8_t out[2])
{
	memset(out, 0, 2);
	if (ss->ss_family == AF_INET)
		memcpy(out, &((const struct sockaddr_in *)ss)->sin_port, 2);
	else if (ss->ss_family == AF_INET6)
		memcpy(out, &((const struct sockaddr_in6 *)ss)->sin6_port, 2);
}

bool conn_id_make(struct conn_id *id, const struct sockaddr_storage *local,
		  const struct sockaddr_storage *peer)
{
	conn_addr_of(local, id->ci_local);
	port_of(local, id->ci_lport);
	conn_addr_of(peer, id->ci_peer);
	port_of(peer, id->ci_pport);
	return conn_id_ok(id);
}

bool conn_addr_ok(const uint8_t addr[16])
{
	static const uint8_t zero[16];

	if (conn_addr_v4(addr))
		return addr[12] != 0 && addr[12] < 224;
	return addr[0] != 0xff && memcmp(addr, zero, 16) != 0;
}

uint16_t conn_port(const uint8_t port[2])
{
	return (uint16_t)(port[0] << 8 | port[1]);
}

bool conn_id_ok(const struct conn_id *id)
{
	return conn_addr_ok(id->ci_local) && conn_addr_ok(id->ci_peer) && conn_port(id->ci_lport) &&
	       conn_port(id->ci_pport) && conn_addr_v4(id->ci_local) == conn_addr_v4(id->ci_peer);
}

bool conn_addr_parse(const char *text, uint8_t out[16])
{
	memcpy(out, mapped, sizeof(mapped));
	if (inet_pton(AF_INET, text, out + 12) == 1)
		return true;
	/* An IPv4 address that is written as an IPv6 one would be another one for weft-addr. */
	return inet_pton(AF_INET6, text, out) == 1 && !conn_addr_v4(out);
}

const char *conn_addr_text(const uint8_t addr[16], char *out)
{
	bool v4 = conn_addr_v4(addr);

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? addr + 12 : addr, out, INET6_ADDRSTRLEN);
	return out;
}

size_t conn_id_line(const struct conn_id *id, char out[CONN_ID_LINE])
{
	char local[INET6_ADDRSTRLEN], peer[INET6_ADDRSTRLEN];

	return (size_t)snprintf(out, CONN_ID_LINE, "%s %u %s %u\n",
				conn_addr_text(id->ci_local, local), conn_port(id->ci_lport),
				conn_addr_text(id->ci_peer, peer), conn_port(id->ci_pport));
}

bool conn_row_ok(struct kv_slice id, struct kv_slice val)
{
	struct conn_id copy;

	if (id.s_len != sizeof(copy) || val.s_len != 1 ||
	    *(const uint8_t *)val.s_data != CONN_VERSION)
		return false;
	memcpy(&copy, id.s_data, sizeof(copy));
	return conn_id_ok(&copy);
}
