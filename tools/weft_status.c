/* weft_status.c - weft status: the cluster at a glance. */
#include "tools/weft.h"

static void status_table(const json_t *j)
{
	const json_t *ds = json_object_get(j, "ds"), *cl = json_object_get(j, "clients"),
		     *st = json_object_get(j, "store");
	double per =
		j_num(st, "commits") ? (double)j_num(st, "operations") / (double)j_num(st, "commits") : 0;

	printf("cluster       %s\n", j_str(j, "cluster"));
	printf("boot epoch    %lld%s\n", j_num(j, "boot_epoch"),
	       json_is_true(json_object_get(j, "grace")) ? " (in grace)" : "");
	printf("data servers  %lld known, %lld alive\n", j_num(ds, "known"), j_num(ds, "alive"));
	printf("space         %s available of %s\n", size_text(j_num(ds, "available")),
	       size_text(j_num(ds, "capacity")));
	printf("clients       %lld (%lld sessions, %lld opens, %lld layouts)\n", j_num(cl, "known"),
	       j_num(cl, "sessions"), j_num(cl, "opens"), j_num(cl, "layouts"));
	printf("orders        %lld not done\n", j_num(j, "orders"));
	printf("store         %lld inodes, %s, %lld commits, %.1f operations each\n",
	       j_num(st, "inodes"), size_text(j_num(st, "bytes_used")), j_num(st, "commits"), per);
}

int cmd_status(char **args)
{
	json_t *j;
	int rc = weft_ask("GET", "/v1/status", NULL, &j);

	(void)args;
	return weft_show(rc, j, status_table);
}
