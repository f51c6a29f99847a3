/* SPDX-License-Identifier: Apache-2.0 */
/*
 * without.h - statements of the holder (pg/pg_int.h) with one rule taken away each: a mistake that
 * was made before. Only the programs of tests/ha use them. A checker must find each.
 *
 * without_guard needs a role that may write over batches, such as the superuser, and a table
 * public.own (owner text primary key, session int8, batch int8). There a process finds the batch
 * that it wrote itself, as if nobody else wrote: so it does not notice that the log has moved on
 * (settle() in pg_log.c compares).
 */
#ifndef TESTS_HA_WITHOUT_H
#define TESTS_HA_WITHOUT_H
#include "pg/pg_int.h"

static const struct pg_statements without_guard __attribute__((unused)) = {
	.append = "with g as (update instance set batch = $4, acked = $4 - 1"
		  " where id = $1 and ($2 + $3 + $7) is not null returning id),"
		  " o as (update public.own as own set batch = $4 where session = $3)"
		  " insert into log (part, batch, data) select $5::int8::int, $4, $6 from g"
		  " on conflict (part, batch) do update set data = excluded.data",
	.beat = "update instance set beat = beat + 1 where id = $1 and ($2 + $3) is not null"
		" returning batch, standbys(), turn",
	.begin = "with g as (update instance set beat = beat + 1"
		 " where id = $1 and $2 is not null returning batch, standbys() as n, turn),"
		 " o as (insert into public.own as own select $4, $3, batch from g"
		 " on conflict (owner) do update set session = excluded.session"
		 " returning own.batch)"
		 " select o.batch, n, turn from g, o",
};

/* begin is no write, so its answer may show what no standby has. There is no session number without
 * a write. */
static const struct pg_statements without_doubt __attribute__((unused)) = {
	.append = "with g as (update instance set batch = $4, acked = $4 - 1"
		  " where id = $1 and epoch = $2 and $3 <> 0 and batch = $4 - 1"
		  " and $7 > 0 returning id) insert into log (part, batch, data)"
		  " select $5::int8::int, $4, $6 from g",
	.beat = "update instance set beat = beat + 1, acked = batch where id = $1 and"
		" epoch = $2 and $3 <> 0 returning batch, standbys(), turn",
	.begin = "select batch, standbys(), turn from instance where id = $1 and"
		 " epoch = $2 and $3 <> 0 and owner = $4",
};
#endif
