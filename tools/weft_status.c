/* SPDX-License-Identifier: Apache-2.0 */
/* weft_status.c - weft status: shows the cluster at a glance. */
#include "tools/weft_tool.h"

#define LOOK_S 1.0 /* at most, to look at files */

static void status_table(const json_t *j)
{
	const json_t *ds = json_object_get(j, "ds"), *cl = json_object_get(j, "clients"),
		     *st = json_object_get(j, "store");
	double per = j_num(st, "commits")
			     ? (double)j_num(st, "operations") / (double)j_num(st, "commits")
			     : 0;

	printf("version       %s\n", j_str(j, "version"));
	printf("cluster       %s\n", j_str(j, "cluster"));
	printf("boot epoch    %lld%s\n", j_num(j, "boot_epoch"),
	       json_is_true(json_object_get(j, "grace")) ? " (in grace)" : "");
	printf("data servers  %lld known, %lld alive\n", j_num(ds, "known"), j_num(ds, "alive"));
	printf("space         %s available of %s\n", size_text(j_num(ds, "available")),
	       size_text(j_num(ds, "capacity")));
	printf("clients       %lld (%lld sessions, %lld opens, %lld layouts)\n", j_num(cl, "known"),
	       j_num(cl, "sessions"), j_num(cl, "opens"), j_num(cl, "layouts"));
	printf("orders        %lld pending%s\n", j_num(j, "orders"),
	       j_num(j, "orders") ? " (\"weft orders\" lists them)" : "");
	wrong_print("health        ", json_object_get(j, "health"), j_num(j, "files_not_in_sync"));
	printf("store         %lld inodes, %s, %lld commits, %.1f operations each\n",
	       j_num(st, "inodes"), size_text(j_num(st, "bytes_used")), j_num(st, "commits"), per);
}

int cmd_status(char **args)
{
	json_t *j, *wrong, *repair = NULL;
	int rc = weft_ask("GET", "/v1/status", NULL, &j);

	(void)args;
	if (rc)
		return rc;
	rc = wrong_ask(LOOK_S, &wrong);
	if (!rc)
		rc = weft_ask("GET", "/v1/repair", NULL, &repair);
	json_object_set_new(j, "health", wrong);
	json_object_set_new(j, "files_not_in_sync", json_integer(j_num(repair, "files")));
	json_decref(repair);
	if (rc)
		json_decref(j);
	return weft_show(rc, j, status_table);
}
