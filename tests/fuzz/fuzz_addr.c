/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_addr.c - a message to weft-addr, or its configuration, is refused with one plain line, or
 * has only what it may have. A row of a connection in the store of weft-mds, whatever its bytes, is
 * refused there, or is a line that weft-addr takes and reads back as the same connection.
 */
#include "addr/addr.h"
#include "mds/conn_id.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void plain(const char *err)
{
	if (!*err || strlen(err) > 150)
		abort();
	for (; *err; err++)
		if (*err < ' ' || *err > 126)
			abort();
}

static void address(const struct addr_ip *ip)
{
	char text[ADDR_TEXT];
	struct addr_ip again;

	if (!addr_ip_parse(addr_ip_text(ip, text), &again) || !addr_ip_same(ip, &again))
		abort();
}

static void message(char *text, size_t size)
{
	static struct addr_msg m;
	char err[200] = "";

	if (addr_msg_parse(text, size, &m, err, sizeof(err))) {
		plain(err);
		return;
	}
	if (m.m_nips > ADDR_PLACES || m.m_nports > ADDR_PORTS || m.m_nrows > ADDR_ROWS ||
	    (m.m_verb == ADDR_HOLD) != (m.m_nips && m.m_nports) ||
	    (m.m_verb == ADDR_TICKLE) != (m.m_nrows != 0) ||
	    (m.m_verb == ADDR_LIVE) != (m.m_alive_ms > 0) || (m.m_keep && m.m_verb != ADDR_LIVE))
		abort();
	for (unsigned i = 0; i < m.m_nports; i++)
		if (!m.m_ports[i])
			abort();
	for (unsigned i = 0; i < m.m_nips; i++)
		address(&m.m_ips[i]);
	for (unsigned i = 0; i < m.m_nrows; i++) {
		address(&m.m_rows[i].r_local);
		address(&m.m_rows[i].r_peer);
		if (!m.m_rows[i].r_lport || !m.m_rows[i].r_pport ||
		    m.m_rows[i].r_local.ip_family != m.m_rows[i].r_peer.ip_family)
			abort();
	}
}

static void configuration(char *text)
{
	static struct addr_place places[ADDR_PLACES];
	char err[200] = "";
	int n = addr_conf_parse(text, places, err, sizeof(err));

	if (n < 0)
		plain(err);
	if (n > ADDR_PLACES)
		abort();
	for (int i = 0; i < n; i++) {
		address(&places[i].pl_ip);
		if (places[i].pl_prefix != (places[i].pl_ip.ip_family == AF_INET ? 32 : 128) ||
		    !*places[i].pl_ifname || places[i].pl_on)
			abort();
	}
}

static bool same(const struct addr_ip *ip, uint16_t port, const uint8_t addr[16],
		 const uint8_t want[2])
{
	bool v4 = ip->ip_family == AF_INET;

	return conn_addr_v4(addr) == v4 && conn_port(want) == port &&
	       !memcmp(ip->ip_bytes, v4 ? addr + 12 : addr, v4 ? 4 : 16);
}

/* A row as the store gives it: id and value have the bytes that they have. */
static bool row(const uint8_t *id, size_t len, struct conn_id *out)
{
	static const uint8_t version = 1;
	bool ok = conn_row_ok((struct kv_slice){id, len}, (struct kv_slice){&version, 1});

	if (!ok)
		return false;
	if (len != sizeof(*out))
		abort();
	memcpy(out, id, sizeof(*out));
	if (!conn_id_ok(out))
		abort();
	return true;
}

/* What weft-mds does not take for a connection weft-addr does not either. */
static void refused(const uint8_t *data)
{
	static struct addr_msg m;
	char text[7 + CONN_ID_LINE + 1] = "TICKLE\n", err[200] = "";
	struct conn_id id;
	size_t len;

	memcpy(&id, data, sizeof(id));
	len = 7 + conn_id_line(&id, text + 7);
	if (len > sizeof(text) - 2 || !addr_msg_parse(text, len, &m, err, sizeof(err)))
		abort();
}

/* What is to be told of rows: a message of the good ones, all of which are taken. */
static void rows(const uint8_t *data, size_t size)
{
	static struct addr_msg m;
	static struct conn_id ids[ADDR_ROWS];
	static char text[ADDR_MSG_MAX + 1];
	size_t len = (size_t)snprintf(text, sizeof(text), "TICKLE\n");
	char err[200] = "";
	unsigned n = 0;

	/* The rest is a row that is cut off. */
	if (size % sizeof(*ids) && row(data, size % sizeof(*ids), ids))
		abort();
	for (; size >= sizeof(*ids) && n < ADDR_ROWS; data += sizeof(*ids), size -= sizeof(*ids)) {
		if (row(data, sizeof(*ids), &ids[n]))
			len += conn_id_line(&ids[n++], text + len);
		else
			refused(data);
	}
	if (len > ADDR_MSG_MAX || (n && addr_msg_parse(text, len, &m, err, sizeof(err))) ||
	    (n && m.m_nrows != n))
		abort();
	for (unsigned i = 0; i < n; i++)
		if (!same(&m.m_rows[i].r_local, m.m_rows[i].r_lport, ids[i].ci_local,
			  ids[i].ci_lport) ||
		    !same(&m.m_rows[i].r_peer, m.m_rows[i].r_pport, ids[i].ci_peer,
			  ids[i].ci_pport))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = 0;
	message(text, size);
	memcpy(text, data, size);
	text[size] = 0;
	configuration(text);
	rows(data, size);
	free(text);
	return 0;
}
