/* SPDX-License-Identifier: Apache-2.0 */
/* filter.c - the table of nftables that drops new connections. See addr.h. */
#include "addr/addr.h"
#include "base/log.h"
#include <errno.h>
#include <nftables/libnftables.h>
#include <stdio.h>
#include <string.h>

#define TABLE "inet weft_addr"

static struct nft_ctx *nft;

int addr_filter_open(void)
{
	nft = nft_ctx_new(NFT_CTX_DEFAULT);
	if (!nft || nft_ctx_buffer_error(nft) || nft_ctx_buffer_output(nft))
		return -ENOMEM;
	return 0;
}

int addr_filter_set(const struct addr_place *places, unsigned n)
{
	/* "add" first: a table that is not there cannot be deleted. */
	static char text[ADDR_PLACES * (ADDR_TEXT + ADDR_PORTS * 7 + 140) + 512];
	static const char begin[] = "add table " TABLE "\ndelete table " TABLE "\n";
	size_t len = sizeof begin - 1;
	bool any = false;
	FILE *f;

	memcpy(text, begin, sizeof begin);
	f = fmemopen(text + len, sizeof text - len, "w");
	if (!f)
		return -errno;
	for (unsigned i = 0; i < n; i++) {
		const struct addr_place *pl = &places[i];
		char ip[ADDR_TEXT];

		if (!pl->pl_quiet || !pl->pl_nports)
			continue;
		if (!any)
			fputs("table " TABLE " {\n\tchain input {\n\t\ttype filter hook input "
			      "priority -150; policy accept;\n",
			      f);
		any = true;
		fprintf(f, "\t\t%s daddr %s tcp dport {",
			pl->pl_ip.ip_family == AF_INET ? "ip" : "ip6",
			addr_ip_text(&pl->pl_ip, ip));
		for (unsigned p = 0; p < pl->pl_nports; p++)
			fprintf(f, "%s %u", p ? "," : "", pl->pl_ports[p]);
		fputs(" } tcp flags & (fin | syn | rst | ack) == syn drop\n", f);
	}
	if (any)
		fputs("\t}\n}\n", f);
	if (fclose(f))
		return -ENOSPC;
	if (nft_run_cmd_from_buffer(nft, text)) {
		const char *why = nft_ctx_get_error_buffer(nft);

		log_error("nftables: %.*s", (int)strcspn(why, "\n"), why);
		return -EIO;
	}
	return 0;
}
