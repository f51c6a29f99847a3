/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_check.c - see pg_check.h.
 *
 * Looked at: the numbers in the row agree; the log has no gap; each batch behind the table is
 * whole, and follows from the one before it, the first from the batch that the table is as of; a
 * copy has the pairs that table and log make, as of the batch that the copy holds. A log that was
 * made another one (weft-mds --restored) keeps batches with the identity of before, all of them in
 * the table: only those behind the table are read.
 */
#include "mds/pg_check.h"
#include "mds/pg_record.h"
#include <endian.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 10000 };

enum verdict { SOUND, WRONG, NOT_COMPARED };

struct said {
	json_t *sd_lines; /* NULL: printed at once */
	bool sd_wrong, sd_not_compared;
};

static void __attribute__((format(printf, 3, 4)))
say(struct said *sd, enum verdict is, const char *fmt, ...)
{
	static const char *const words[] = {"sound", "WRONG", "not compared"};
	char line[600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	sd->sd_wrong |= is == WRONG;
	sd->sd_not_compared |= is == NOT_COMPARED;
	if (!sd->sd_lines)
		printf("%s: %s\n", words[is], line);
	else
		json_array_append_new(
			sd->sd_lines,
			json_pack("{s:o,s:s}", "sound",
				  is == NOT_COMPARED ? json_null() : json_boolean(is == SOUND),
				  "what", line));
}

/* Batches behind the table, in order. pg_decode_fn has no argument for this. */
static struct chain {
	uint8_t ch_ident[KV_REDO_ID], ch_before[KV_REDO_SUM], ch_sum[KV_REDO_SUM];
	uint64_t ch_first, ch_n;
	const char *ch_wrong; /* of the batch behind them; NULL: nothing */
} chain;

static int chain_check(struct kv_redo_rec *r, size_t len)
{
	if (len < sizeof(*r) ||
	    !kv_redo_rec_ok(chain.ch_ident, r->rr_before, le64toh(r->rr_batch), r, len))
		chain.ch_wrong = "is damaged, or is one of another log";
	else if (chain.ch_n && (le64toh(r->rr_batch) != chain.ch_first + chain.ch_n ||
				memcmp(r->rr_before, chain.ch_sum, KV_REDO_SUM)))
		chain.ch_wrong = "does not follow from the one before it";
	if (chain.ch_wrong)
		return -EIO;
	if (!chain.ch_n++) {
		chain.ch_first = le64toh(r->rr_batch);
		memcpy(chain.ch_before, r->rr_before, KV_REDO_SUM);
	}
	memcpy(chain.ch_sum, r->rr_sum, KV_REDO_SUM);
	return 0;
}

static int check_decode(const void *data, size_t len, pg_write_fn *write, void *arg)
{
	return pg_record_writes(data, len, chain_check, write, arg);
}

/* 0; or negative, and a line was said. */
static int digest_store(const char *store, struct pg_digest *d, uint64_t *number, struct said *sd)
{
	const struct kv_opts o = {.ko_readonly = true};
	struct kv_slice none = {"", 0}, k, v;
	struct kv_txn *t = NULL;
	struct kv_scan sc;
	char err[256] = "";
	struct kv *kv;
	int rc = kv_open(&kv, store, &o, err, sizeof(err));

	if (rc) {
		say(sd, WRONG, "the copy cannot be read: %s", err[0] ? err : strerror(-rc));
		return rc;
	}
	rc = kv_read_begin(kv, &t);
	if (!rc) {
		*number = kv_read_number(t);
		rc = kv_scan_begin(t, none, none, &sc);
	}
	if (!rc) {
		while ((rc = kv_scan_next(&sc, &k, &v)) == 1)
			pg_digest_add(d, (struct iovec){(void *)k.s_data, k.s_len},
				      (struct iovec){(void *)v.s_data, v.s_len});
		kv_scan_end(&sc);
	}
	if (t)
		kv_read_end(t);
	kv_close(kv);
	if (rc)
		say(sd, WRONG, "the copy in %s cannot be read: %s", store, strerror(-rc));
	return rc;
}

static void check_numbers(const struct pg_verified *v, struct said *sd)
{
	uint64_t last = v->v_batch;

	if (v->v_folded > last || v->v_acked > last)
		say(sd, WRONG, "the row counts %llu batches, and the table is as of batch %llu",
		    (unsigned long long)last, (unsigned long long)v->v_folded);
	if (!v->v_n && v->v_folded < last)
		say(sd, WRONG, "the log is empty, and lacks batches %llu to %llu",
		    (unsigned long long)v->v_folded + 1, (unsigned long long)last);
	else if (v->v_n && (v->v_max != last || v->v_first > v->v_folded + 1 ||
			    v->v_n != v->v_max - v->v_first + 1))
		say(sd, WRONG,
		    "the log has %llu batches between %llu and %llu, and should have all from %llu "
		    "to %llu",
		    (unsigned long long)v->v_n, (unsigned long long)v->v_first,
		    (unsigned long long)v->v_max,
		    (unsigned long long)(v->v_first > v->v_folded + 1 ? v->v_folded + 1
								      : v->v_first),
		    (unsigned long long)last);
	else if (v->v_n)
		say(sd, SOUND, "the log has batches %llu to %llu, without a gap",
		    (unsigned long long)v->v_first, (unsigned long long)v->v_max);
	else
		say(sd, SOUND, "the log has no batch that the table lacks");
}

/* Does the first batch behind the table follow from the one that the table is as of? */
static void check_head(const struct pg_verified *v, struct said *sd)
{
	static const uint8_t none[KV_REDO_SUM];
	struct kv_redo_rec r = {.rr_len = 0};

	if (v->v_folded) {
		if (v->v_headlen >= sizeof(r))
			memcpy(&r, v->v_head, sizeof(r));
		if (v->v_headlen < sizeof(r) || le64toh(r.rr_batch) != v->v_folded) {
			say(sd, WRONG, "the table does not say which batch it is as of");
			return;
		}
	}
	if (chain.ch_n && memcmp(chain.ch_before, v->v_folded ? r.rr_sum : none, KV_REDO_SUM))
		say(sd, WRONG,
		    "batch %llu does not follow from batch %llu, which the table is as of",
		    (unsigned long long)chain.ch_first, (unsigned long long)v->v_folded);
	else
		say(sd, SOUND, "%llu batches behind the table follow from it, each from the other",
		    (unsigned long long)chain.ch_n);
}

static void check_copy(const struct pg_verified *v, const char *store, const struct pg_digest *d,
		       uint64_t number, struct said *sd)
{
	if (number > v->v_batch)
		say(sd, WRONG, "the copy in %s holds batch %llu, and the log ends at %llu", store,
		    (unsigned long long)number, (unsigned long long)v->v_batch);
	else if (number < v->v_folded || number != v->v_last)
		/* A server that runs folds every second. */
		say(sd, NOT_COMPARED,
		    "the copy in %s holds batch %llu, and PostgreSQL has no state of that batch: "
		    "the table is as of batch %llu; stop all processes of the instance, and the "
		    "one of this copy last",
		    store, (unsigned long long)number, (unsigned long long)v->v_folded);
	else if (memcmp(d, &v->v_digest, sizeof(*d)))
		say(sd, WRONG,
		    "the copy in %s has %llu pairs and is not what table and log make of batch "
		    "%llu",
		    store, (unsigned long long)d->d_rows, (unsigned long long)number);
	else
		say(sd, SOUND, "the copy in %s has the same pairs as of batch %llu", store,
		    (unsigned long long)number);
}

static int check_look(const struct pg_options *o, struct pg_row *row, struct said *sd)
{
	struct pg_watch *w;
	int rc = pg_watch_open(&w, o);

	if (!rc) {
		rc = pg_watch_look(w, row);
		if (rc)
			say(sd, WRONG, "PostgreSQL: %s", pg_watch_why(w));
		pg_watch_close(w);
	} else {
		say(sd, WRONG, "the connection string is wrong");
	}
	return rc;
}

static void check_all(const struct pg_options *o, const char *store, struct said *sd)
{
	struct pg_digest copy = {.d_rows = 0};
	struct pg_verified v = {.v_upto = 0};
	uint64_t number = 0;
	char why[PG_WHY] = "";
	struct pg_row row;
	int rc;

	if (check_look(o, &row, sd) || (store && digest_store(store, &copy, &number, sd)))
		return;
	memcpy(chain.ch_ident, row.r_ident, sizeof(chain.ch_ident));
	v.v_upto = store ? number : 0;
	rc = pg_verify(o, check_decode, &v, why);
	if (rc && rc != -EIO) {
		say(sd, WRONG, "PostgreSQL: %s", *why ? why : strerror(-rc));
		return;
	}
	check_numbers(&v, sd);
	if (rc) {
		say(sd, WRONG, "batch %llu of the log %s",
		    (unsigned long long)(v.v_folded + 1 + chain.ch_n),
		    chain.ch_wrong ? chain.ch_wrong : "is not there");
		return;
	}
	check_head(&v, sd);
	say(sd, SOUND, "table and log make %llu pairs as of batch %llu",
	    (unsigned long long)v.v_digest.d_rows, (unsigned long long)v.v_last);
	if (store)
		check_copy(&v, store, &copy, number, sd);
	if (row.r_restored)
		say(sd, WRONG,
		    "the log was put back to an earlier time: start weft-mds once with "
		    "--restored");
}

int pg_check(const char *conninfo, uint32_t inst, const char *store, bool json)
{
	const struct pg_options o = {.o_conninfo = conninfo,
				     .o_inst = inst,
				     .o_owner = "weft pg verify",
				     .o_lease_ms = 4 * LOOK_MS,
				     .o_replicas = 1};
	struct said sd = {.sd_lines = json ? json_array() : NULL};

	check_all(&o, store, &sd);
	if (json) {
		json_t *all = json_pack("{s:i,s:b,s:o}", "instance", (int)inst, "sound",
					!sd.sd_wrong, "looked_at", sd.sd_lines);

		json_dumpf(all, stdout, JSON_INDENT(2));
		puts("");
		json_decref(all);
	}
	return sd.sd_wrong	    ? PG_CHECK_WRONG
	       : sd.sd_not_compared ? PG_CHECK_NOT_COMPARED
				    : PG_CHECK_SOUND;
}
