/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_addr.c - a message to weft-addr, or its configuration, is refused with one plain line, or
 * has only what it may have. */
#include "addr/addr.h"
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
	    (m.m_verb == ADDR_LIVE) != (m.m_alive_ms > 0))
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
		if (!places[i].pl_prefix || !*places[i].pl_ifname || places[i].pl_on)
			abort();
	}
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
	free(text);
	return 0;
}
