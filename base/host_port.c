/* SPDX-License-Identifier: Apache-2.0 */
/* host_port.c - see host_port.h. */
#include "base/host_port.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool host_is_here(const char *host)
{
	size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
	char text[INET_ADDRSTRLEN];
	struct in_addr in;

	if (n == 9 && !strncasecmp(host, "localhost", 9))
		return true;
	if (n == 5 && !memcmp(host, "[::1]", 5))
		return !host[5] || host[5] == ':';
	if (n >= sizeof(text))
		return false;
	memcpy(text, host, n);
	text[n] = 0;
	return inet_pton(AF_INET, text, &in) == 1 && ntohl(in.s_addr) >> 24 == 127;
}

bool host_port_ok(const char *text)
{
	const char *colon = strrchr(text, ':');
	char *end;
	unsigned long port;

	if (!colon || colon == text || strcspn(text, "/ @?#\\\"") != strlen(text) ||
	    colon[1] < '0' || colon[1] > '9')
		return false;
	/* An IPv6 address is in brackets. */
	if (memchr(text, ':', (size_t)(colon - text)) && (*text != '[' || colon[-1] != ']'))
		return false;
	port = strtoul(colon + 1, &end, 10);
	return port && port <= 65535 && !*end;
}
