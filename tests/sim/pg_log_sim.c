/* SPDX-License-Identifier: Apache-2.0 */
/* pg_log_sim.c - pg/pg_log.c as it is, and the planted faults in its statements. */
#include "tests/sim/sim.h"
#include "pg/pg_log.c"

void pg_plant(void)
{
	if (sim_planted("no-guard")) {
		pg_statements.append = "with g as (update instance set batch = $4, acked = $4 - 1"
				       " where id = $1 and batch = $4 - 1 returning id)"
				       " insert into log (part, batch, data)"
				       " select $5::int8::int, $4, $6 from g";
		pg_statements.beat = "update instance set beat = beat + 1, acked = batch"
				     " where id = $1 returning batch, standbys(), turn";
		pg_statements.begin = "update instance set beat = beat + 1"
				      " where id = $1 returning batch, standbys(), turn";
	}
	/* Nothing else guards: the session of the beat before is not looked at either. */
	if (sim_planted("guard-at-least")) {
		pg_statements.append =
			"with g as (update instance set batch = $4, acked = $4 - 1"
			" where id = $1 and epoch >= $2 and batch = $4 - 1 returning id)"
			" insert into log (part, batch, data)"
			" select $5::int8::int, $4, $6 from g";
		pg_statements.beat = "update instance set beat = beat + 1, acked = batch"
				     " where id = $1 and epoch >= $2"
				     " returning batch, standbys(), turn";
	}
	/* Who looks by reading gives the row no session. */
	if (sim_planted("doubt-by-read")) {
		pg_statements.append =
			"with g as (update instance set batch = $4, acked = $4 - 1"
			" where id = $1 and epoch = $2 and batch = $4 - 1 returning id)"
			" insert into log (part, batch, data)"
			" select $5::int8::int, $4, $6 from g";
		pg_statements.beat = "update instance set beat = beat + 1, acked = batch"
				     " where id = $1 and epoch = $2"
				     " returning batch, standbys(), turn";
		pg_statements.begin = "select batch, standbys(), turn from instance"
				      " where id = $1 and epoch = $2 and owner = $4";
	}
}
