/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd_json.h - what is said to etcd through its JSON gateway, and what it answers.
 *
 * A question is a transaction over two keys, the cluster's number and the lease's key. Keys and
 * values are text that is printable. The answer comes from the network: its length is bounded
 * before it is parsed, and what is not understood is -EPROTO.
 */
#ifndef MDS_ETCD_JSON_H
#define MDS_ETCD_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	ETCD_TEXT = 200,	 /* a key or a value, with its 0 */
	ETCD_ASK = 4096,	 /* a question */
	ETCD_ANSWER = 64 * 1024, /* an answer */
	ETCD_TOKEN = 4096,
};

/* A key with its value, as it was at one moment. */
struct etcd_row {
	uint64_t er_mod; /* the revision of its last change; 0: there is no such key */
	char er_key[ETCD_TEXT], er_value[ETCD_TEXT];
};

/* The answer to a transaction. A row that was not asked for is all zeros; one that is not there has
 * its key, and zeros. */
enum { ETCD_ROWS = 2 };
struct etcd_answer {
	bool ea_done; /* what was compared was equal */
	uint64_t ea_revision;
	struct etcd_row ea_row[ETCD_ROWS]; /* in the order of the question */
};

/* Questions: each writes into out and returns its length, or 0: it is too long. Reads both rows: */
size_t etcd_ask_rows(char out[ETCD_ASK], const char *key0, const char *key1);
/* If each of the n rows is as it says, writes value to put; else reads both rows. put is rows' last
 * key. */
size_t etcd_ask_swap(char out[ETCD_ASK], const struct etcd_row *rows, unsigned n, const char *key0,
		     const char *key1, const char *value);
/* Asks for a token. */
size_t etcd_ask_token(char out[ETCD_ASK], const char *user, const char *password);

/* 0; -EPROTO. key0 and key1: what was asked for; a row of another key is -EPROTO. */
int etcd_parse(const char *text, size_t len, const char *key0, const char *key1,
	       struct etcd_answer *out);
int etcd_parse_token(const char *text, size_t len, char token[ETCD_TOKEN]);
/* The message of an answer that says an error, or its first line; printable; "" if there is none.
 * True: the token is wanted, or is no longer good. */
bool etcd_parse_error(const char *text, size_t len, char why[ETCD_TEXT]);
#endif
