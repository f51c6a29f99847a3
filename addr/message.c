/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - what a holder says, and the configuration. See addr.h. */
#include "addr/addr.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BLANKS " \t\r"
/* A day: a holder that wants to be believed for longer does not send LIVE. */
#define ALIVE_MAX_MS 86400000

bool addr_ip_parse(const char *text, struct addr_ip *out)
{
	memset(out, 0, sizeof *out);
	if (inet_pton(AF_INET, text, out->ip_bytes) == 1)
		out->ip_family = AF_INET;
	else if (inet_pton(AF_INET6, text, out->ip_bytes) == 1)
		out->ip_family = AF_INET6;
	return out->ip_family != 0;
}

bool addr_ip_same(const struct addr_ip *a, const struct addr_ip *b)
{
	return a->ip_family == b->ip_family && !memcmp(a->ip_bytes, b->ip_bytes, 16);
}

const char *addr_ip_text(const struct addr_ip *ip, char *buf)
{
	if (!inet_ntop(ip->ip_family, ip->ip_bytes, buf, ADDR_TEXT))
		strcpy(buf, "?");
	return buf;
}

/* A decimal number from low to high, and nothing behind it. */
static bool number(const char *text, int64_t low, int64_t high, int64_t *out)
{
	int64_t v = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		v = v * 10 + (*text - '0');
		if (v > high)
			return false;
	}
	*out = v;
	return v >= low;
}

static bool port(const char *text, uint16_t *out)
{
	int64_t v;

	if (!text || !number(text, 1, 65535, &v))
		return false;
	*out = (uint16_t)v;
	return true;
}

/* An address that one host has: no broadcast, no multicast, no wildcard, no IPv4 address that is
 * written as an IPv6 one. */
static bool host_address(const struct addr_ip *ip)
{
	static const uint8_t zero[16], mapped[12] = {[10] = 0xff, [11] = 0xff};
	size_t n = ip->ip_family == AF_INET ? 4 : 16;

	if (!memcmp(ip->ip_bytes, zero, n))
		return false;
	if (ip->ip_family == AF_INET)
		return ip->ip_bytes[0] < 224 && ip->ip_bytes[0] != 0;
	return ip->ip_bytes[0] != 0xff && memcmp(ip->ip_bytes, mapped, sizeof mapped) != 0;
}

/* Only this node, or only this link, knows such an address. */
static bool stays_here(const struct addr_ip *ip)
{
	static const uint8_t loopback[16] = {[15] = 1};
	const uint8_t *b = ip->ip_bytes;

	if (ip->ip_family == AF_INET)
		return b[0] == 127 || (b[0] == 169 && b[1] == 254);
	return !memcmp(b, loopback, 16) || (b[0] == 0xfe && (b[1] & 0xc0) == 0x80);
}

static int say(char *err, size_t errlen, const char *what, const char *value)
{
	/* What a peer sent goes into an answer and the log: only plain characters, and few. */
	char plain[64];
	size_t n = 0;

	for (; value && *value && n < sizeof plain - 1; value++)
		plain[n++] = *value > ' ' && *value < 127 ? *value : '?';
	plain[n] = 0;
	snprintf(err, errlen, "%s%s%s", what, n ? ": " : "", plain);
	return -EINVAL;
}

static int parse_hold(char *rest, struct addr_msg *m, char *err, size_t errlen)
{
	char *save, *save2;
	char *ports = strtok_r(rest, BLANKS "\n", &save);

	if (!ports)
		return say(err, errlen, "HOLD wants ports", NULL);
	for (char *p = strtok_r(ports, ",", &save2); p; p = strtok_r(NULL, ",", &save2)) {
		if (m->m_nports == ADDR_PORTS)
			return say(err, errlen, "too many ports", NULL);
		if (!port(p, &m->m_ports[m->m_nports]))
			return say(err, errlen, "not a port", p);
		for (unsigned i = 0; i < m->m_nports; i++)
			if (m->m_ports[i] == m->m_ports[m->m_nports])
				return say(err, errlen, "a port twice", p);
		m->m_nports++;
	}
	for (char *a; (a = strtok_r(NULL, BLANKS "\n", &save)) != NULL; m->m_nips++) {
		if (m->m_nips == ADDR_PLACES)
			return say(err, errlen, "too many addresses", NULL);
		if (!addr_ip_parse(a, &m->m_ips[m->m_nips]))
			return say(err, errlen, "not an address", a);
		for (unsigned i = 0; i < m->m_nips; i++)
			if (addr_ip_same(&m->m_ips[i], &m->m_ips[m->m_nips]))
				return say(err, errlen, "an address twice", a);
	}
	return m->m_nports && m->m_nips ? 0 : say(err, errlen, "HOLD wants addresses", NULL);
}

/* LOCAL PORT PEER PORT, one connection a line */
static int parse_row(char *line, struct addr_row *r, char *err, size_t errlen)
{
	char *save;
	char *local = strtok_r(line, BLANKS, &save), *lport = strtok_r(NULL, BLANKS, &save);
	char *peer = strtok_r(NULL, BLANKS, &save), *pport = strtok_r(NULL, BLANKS, &save);

	if (!pport || strtok_r(NULL, BLANKS, &save))
		return say(err, errlen, "a row has LOCAL PORT PEER PORT", NULL);
	if (!addr_ip_parse(local, &r->r_local) || !host_address(&r->r_local))
		return say(err, errlen, "not an address", local);
	if (!addr_ip_parse(peer, &r->r_peer) || !host_address(&r->r_peer))
		return say(err, errlen, "not an address", peer);
	if (r->r_local.ip_family != r->r_peer.ip_family)
		return say(err, errlen, "a row of IPv4 and IPv6", peer);
	if (!port(lport, &r->r_lport))
		return say(err, errlen, "not a port", lport);
	if (!port(pport, &r->r_pport))
		return say(err, errlen, "not a port", pport);
	return 0;
}

static int parse_tickle(char *rest, struct addr_msg *m, char *err, size_t errlen)
{
	char *save;

	for (char *line = strtok_r(rest, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		int rc;

		if (m->m_nrows == ADDR_ROWS)
			return say(err, errlen, "too many rows", NULL);
		rc = parse_row(line, &m->m_rows[m->m_nrows], err, errlen);
		if (rc < 0)
			return rc;
		m->m_nrows++;
	}
	return m->m_nrows ? 0 : say(err, errlen, "TICKLE wants rows", NULL);
}

/* MILLISECONDS [KEEP] */
static int parse_live(char *rest, struct addr_msg *m, char *err, size_t errlen)
{
	char *save;
	char *ms = strtok_r(rest, BLANKS "\n", &save), *keep = strtok_r(NULL, BLANKS "\n", &save);

	if (!ms || !number(ms, 1, ALIVE_MAX_MS, &m->m_alive_ms))
		return say(err, errlen, "LIVE wants milliseconds", ms);
	if (keep && (strcmp(keep, "KEEP") != 0 || strtok_r(NULL, BLANKS "\n", &save)))
		return say(err, errlen, "LIVE has MILLISECONDS [KEEP]", keep);
	m->m_keep = keep != NULL;
	return 0;
}

int addr_msg_parse(char *text, size_t len, struct addr_msg *m, char *err, size_t errlen)
{
	static const char *const verbs[] = {"HOLD",   "LISTENING", "LIVE",
					    "TICKLE", "RELEASE",   "STATUS"};
	size_t word;
	char *rest;

	if (len > ADDR_MSG_MAX || memchr(text, 0, len))
		return say(err, errlen, "not a message", NULL);
	text[len] = 0;
	m->m_nports = m->m_nips = m->m_nrows = 0;
	m->m_alive_ms = 0;
	m->m_keep = false;
	word = strcspn(text, BLANKS "\n");
	rest = text + word + (text[word] ? 1 : 0);
	text[word] = 0;
	for (m->m_verb = ADDR_HOLD; m->m_verb <= ADDR_STATUS; m->m_verb++)
		if (!strcmp(text, verbs[m->m_verb]))
			break;
	switch (m->m_verb) {
	case ADDR_HOLD:
		return parse_hold(rest, m, err, errlen);
	case ADDR_TICKLE:
		return parse_tickle(rest, m, err, errlen);
	case ADDR_LIVE:
		return parse_live(rest, m, err, errlen);
	case ADDR_LISTENING:
	case ADDR_RELEASE:
	case ADDR_STATUS:
		return rest[strspn(rest, BLANKS "\n")] ? say(err, errlen, "too many words", rest)
						       : 0;
	}
	return say(err, errlen, "unknown message", text);
}

/* ADDRESS[/PREFIX] INTERFACE */
static int conf_line(char *line, struct addr_place *pl, char *err, size_t errlen)
{
	char *save;
	char *address = strtok_r(line, BLANKS, &save), *ifname = strtok_r(NULL, BLANKS, &save);
	char *slash = strchr(address, '/');
	int64_t prefix, most;

	if (!ifname || strtok_r(NULL, BLANKS, &save))
		return say(err, errlen, "a line has ADDRESS[/PREFIX] INTERFACE", address);
	if (slash)
		*slash++ = 0;
	memset(pl, 0, sizeof *pl);
	if (!addr_ip_parse(address, &pl->pl_ip) || !host_address(&pl->pl_ip))
		return say(err, errlen, "not an address", address);
	if (stays_here(&pl->pl_ip))
		return say(err, errlen, "an address that cannot move to another node", address);
	/* A shorter prefix would be a second route to that network. Without it the node would use
	 * the service address for what it sends by itself, and lose its own addresses with it. */
	most = pl->pl_ip.ip_family == AF_INET ? 32 : 128;
	prefix = most;
	if (slash && !number(slash, most, most, &prefix)) {
		slash[-1] = '/';
		return say(err, errlen, "not a host address, which has no prefix, or /32 or /128",
			   address);
	}
	pl->pl_prefix = (uint8_t)prefix;
	if (strlen(ifname) >= sizeof pl->pl_ifname || strchr(ifname, '/'))
		return say(err, errlen, "not an interface", ifname);
	strcpy(pl->pl_ifname, ifname);
	return 0;
}

int addr_conf_parse(char *text, struct addr_place *out, char *err, size_t errlen)
{
	int n = 0;

	for (char *line = text, *next; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		line[strcspn(line, "#")] = 0;
		line += strspn(line, BLANKS);
		if (!*line)
			continue;
		if (n == ADDR_PLACES)
			return say(err, errlen, "too many addresses", line);
		if (conf_line(line, &out[n], err, errlen) < 0)
			return -EINVAL;
		for (int i = 0; i < n; i++)
			if (addr_ip_same(&out[i].pl_ip, &out[n].pl_ip))
				return say(err, errlen, "an address twice", line);
		n++;
	}
	return n;
}
