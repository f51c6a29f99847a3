/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_etcd.c - an answer of etcd is not understood, or gives rows of the keys that were asked for,
 * printable, which can be asked about; and a value says how long a lease is, or nothing. The first
 * byte says what it answers. */
#include "mds/etcd_json.h"
#include "mds/lease_key.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY0 "weft/lease/id"
#define KEY1 "weft/lease/1/00"

static void printable(const char *s, size_t size)
{
	if (!memchr(s, 0, size))
		abort();
	for (; *s; s++)
		if (*s < ' ' || *s > '~')
			abort();
}

/* What is understood is what a holder writes, but for zeros in front of numbers. */
static void value(const char *text)
{
	uint32_t ms = lease_key_ms(text);
	char number[ETCD_TEXT], again[ETCD_TEXT * 2];
	unsigned long long count;
	int at = 0;

	if (!ms)
		return;
	if (ms > 999999999 ||
	    sscanf(text, "1 %199[0-9a-f] %llu %*9[0-9]%n", number, &count, &at) != 2 || !at ||
	    text[at] != ' ')
		abort();
	snprintf(again, sizeof(again), "1 %s %llu %u %s", number, count, ms, text + at + 1);
	if (lease_key_ms(again) != ms)
		abort();
}

static void any_value(const uint8_t *data, size_t size)
{
	char text[ETCD_TEXT];

	if (size >= sizeof(text))
		size = sizeof(text) - 1;
	memcpy(text, data, size);
	text[size] = 0;
	value(text);
}

static void answer(const char *text, size_t len)
{
	static char ask[ETCD_ASK];
	struct etcd_answer a;

	if (etcd_parse(text, len, KEY0, KEY1, &a)) {
		if (a.ea_done || a.ea_row[0].er_mod || a.ea_row[1].er_mod)
			abort();
		return;
	}
	if (!a.ea_revision)
		abort();
	value(a.ea_row[1].er_value);
	for (int i = 0; i < ETCD_ROWS; i++) {
		printable(a.ea_row[i].er_value, ETCD_TEXT);
		if (a.ea_row[i].er_mod && strcmp(a.ea_row[i].er_key, i ? KEY1 : KEY0))
			abort();
	}
	if (!etcd_ask_swap(ask, a.ea_row, ETCD_ROWS, KEY0, KEY1, a.ea_row[1].er_value))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char token[ETCD_TOKEN];
	char why[ETCD_TEXT];

	if (!size)
		return 0;
	data++;
	size--;
	switch (data[-1] % 4) {
	case 0:
		answer((const char *)data, size);
		break;
	case 1:
		if (!etcd_parse_token((const char *)data, size, token))
			printable(token, sizeof(token));
		break;
	case 3:
		any_value(data, size);
		break;
	default:
		etcd_parse_error((const char *)data, size, why);
		printable(why, sizeof(why));
	}
	return 0;
}
