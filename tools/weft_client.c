/* SPDX-License-Identifier: Apache-2.0 */
/* weft_client.c - weft client: lists the clients, and evicts one. */
#include "tools/weft_tool.h"

const struct column client_columns[] = {{"NUM", COL_RIGHT},
					{"NAME", COL_CUT},
					{"STATE", COL_STATE},
					{"LEASE", COL_RIGHT},
					{"VERSION", COL_ROOM},
					{"OPENS", COL_RIGHT},
					{"LOCKS", COL_RIGHT},
					{"DELEGS", COL_RIGHT},
					{"LAYOUTS", COL_RIGHT},
					{"SESSIONS", COL_RIGHT | COL_ROOM},
					{"BACK", COL_ROOM},
					{"FLAVOUR", 0},
					{"ADDRESSES", COL_CUT},
					{"OWNER", COL_MORE},
					{"JOB", COL_MORE},
					{"CLIENTID", COL_MORE},
					{0}};

/* Shows what protects the client's calls: krb5p, sys+tls. */
static void flavour_cell(struct table *t, const json_t *c)
{
	const char *tls = j_str(c, "tls");

	table_cell(t, "%s%s", j_str(c, "flavour"),
		   tls[0] == 'n'   ? ""
		   : tls[0] == 'm' ? "+mtls"
				   : "+tls");
}

static void client_table(const json_t *j)
{
	struct table t;
	const json_t *c;
	size_t i;

	table_begin(&t, client_columns);
	json_array_foreach(json_object_get(j, "clients"), i, c)
	{
		double left = j_real(c, "lease_left_s");

		if (j_num(c, "number"))
			table_cell(&t, "%lld", j_num(c, "number"));
		else
			table_cell(&t, "-");
		table_cell(&t, "%s", j_str(c, "name"));
		table_cell(&t, "%s", j_str(c, "state"));
		if (left > 0)
			table_cell(&t, "%s", time_text(left));
		else
			table_cell(&t, "-%s",
				   time_text(j_real(c, "silent_s") - j_real(j, "lease_s")));
		table_cell(&t, j_num(c, "minor") ? "4.%lld" : "-", j_num(c, "minor"));
		table_cell(&t, "%lld", j_num(c, "opens"));
		table_cell(&t, "%lld", j_num(c, "locks"));
		table_cell(&t, "%lld", j_num(c, "delegations"));
		table_cell(&t, "%lld", j_num(c, "layouts"));
		table_cell(&t, "%lld", j_num(c, "sessions"));
		table_cell(&t, "%s", j_num(c, "backchannels") ? "yes" : "no");
		flavour_cell(&t, c);
		table_words(&t, json_object_get(c, "addr"));
		table_cell(&t, "%s", j_str(c, "owner"));
		table_cell(&t, "%s", j_str(c, "tag"));
		table_cell(&t, "%s", j_str(c, "clientid"));
	}
	table_end(&t);
	if (j_num(j, "known") > (long long)json_array_size(json_object_get(j, "clients")) &&
	    json_array_size(json_object_get(j, "clients")) > 1)
		printf("not all clients are shown; there are %lld\n", j_num(j, "known"));
}

int cmd_client_list(char **args)
{
	json_t *j;
	int rc = weft_ask("GET", "/v1/clients", NULL, &j);

	(void)args;
	return weft_show(rc, j, client_table);
}

/* Asks the server at each step. Returns 1 while the client is being evicted, 0 when it is gone,
 * or -1 if it lives on. */
static int goes(const char *id)
{
	json_t *j;
	const json_t *c;
	size_t i;
	int is = 0;

	if (weft_ask_with("GET", "/v1/clients", NULL, &j, "client", id, NULL))
		return -1;
	json_array_foreach(json_object_get(j, "clients"), i, c) is =
		j_str(c, "state")[0] == 'e' ? 1 : -1;
	json_decref(j);
	return is;
}

static void evicted(const json_t *j)
{
	printf("client %lld (%s) is evicted\n", j_num(j, "number"), j_str(j, "name"));
}

int cmd_client_evict(char **args)
{
	json_t *j;
	int rc, is = 1;

	if (!weft_sure("Client %s loses its opens, locks and layouts at once, and its programs get "
		       "errors.\n"
		       "Data that they wrote but did not commit is lost.",
		       args[0]))
		return EXIT_FAILED;
	rc = weft_ask_with("DELETE", "/v1/clients", NULL, &j, "client", args[0], NULL);

	if (rc)
		return rc;
	for (unsigned step = 0; (is = goes(j_str(j, "clientid"))) == 1; step++)
		weft_wait_step(step, "waiting for the data servers to confirm; the eviction "
				     "continues if this command is interrupted");
	weft_wait_over();
	if (is) {
		fprintf(stderr,
			"weft: client %lld is not evicted: the server cannot delete its record; "
			"its log says why\n",
			j_num(j, "number"));
		json_decref(j);
		return EXIT_FAILED;
	}
	json_object_set_new(j, "state", json_string("evicted"));
	return weft_show(EXIT_DONE, j, evicted);
}
