/* SPDX-License-Identifier: Apache-2.0 */
/* pg_none.c - in a build without PostgreSQL: what is asked for says so. */
#include "pg/pg.h"
#include "pg/pg_member.h"
#include <errno.h>
#include <stdio.h>

int pg_init(struct pg_init *i, char why[PG_WHY])
{
	i->i_new = false;
	snprintf(why, PG_WHY, "this weft was built without PostgreSQL (configure)");
	return -ENOSYS;
}

bool pg_has_password(const char *conninfo)
{
	(void)conninfo;
	return false;
}

static int none(void)
{
	return -ENOSYS;
}

int pg_member_open(struct pg_member **out, const struct pg_member_opts *o)
{
	(void)o;
	*out = NULL;
	return none();
}

void pg_member_close(struct pg_member *m)
{
	(void)m;
}

const char *pg_member_why(const struct pg_member *m)
{
	(void)m;
	return "this weft was built without PostgreSQL (configure)";
}

int pg_member_say(struct pg_member *m, const char *role, uint64_t has, uint64_t as_of_ms)
{
	(void)m, (void)role, (void)has, (void)as_of_ms;
	return none();
}

int pg_member_leave(struct pg_member *m)
{
	(void)m;
	return none();
}

int pg_member_has(struct pg_member *m, const char *node, uint64_t *has)
{
	(void)m, (void)node, (void)has;
	return none();
}

int pg_member_move(struct pg_member *m, uint32_t inst, struct pg_move *mv)
{
	(void)m, (void)inst, (void)mv;
	return none();
}

int pg_member_ask(struct pg_member *m, uint32_t inst, const char *node, uint64_t *seq)
{
	(void)m, (void)inst, (void)node, (void)seq;
	return none();
}

int pg_member_step(struct pg_member *m, uint32_t inst, uint64_t seq, const char *from,
		   const char *to, const char *why)
{
	(void)m, (void)inst, (void)seq, (void)from, (void)to, (void)why;
	return none();
}

int pg_member_prefer(struct pg_member *m, uint32_t inst, const char *node)
{
	(void)m, (void)inst, (void)node;
	return none();
}

int pg_member_took(struct pg_member *m, const struct pg_takeover *t)
{
	(void)m, (void)t;
	return none();
}

int pg_member_list(struct pg_member *m, uint32_t inst, char **json)
{
	(void)m, (void)inst;
	*json = NULL;
	return none();
}
