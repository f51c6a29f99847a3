/* weft_mirror.c - weft mirror: copies that are not in sync. */
#include "tools/weft.h"

static void repair_table(const json_t *j)
{
	const json_t *e;
	size_t i;

	if (!j_num(j, "files") && !json_array_size(json_object_get(j, "running"))) {
		puts("all copies are in sync");
		return;
	}
	printf("%lld files with copies that are not in sync; %lld at a time, %s/s\n", j_num(j, "files"), j_num(j, "files_at_a_time"), j_num(j, "rate") ? size_text(j_num(j, "rate")) : "any rate");
	printf("%-12s %-6s %-16s %-8s %s\n", "INODE", "OBJECT", "SERVER", "STATE", "PROGRESS");
	json_array_foreach(json_object_get(j, "running"), i, e)
	{
		long long whole = j_num(e, "size");

		printf("%-12lld %-6lld %-16s %-8s %3lld%%  %s of %s from %s, %s/s", j_num(e, "inode"), j_num(e, "object"), j_str(e, "ds"), j_str(e, "step"), whole ? j_num(e, "done") * 100 / whole : 0,
		       size_text(j_num(e, "done")), size_text(whole), j_str(e, "from"), size_text(j_num(e, "rate")));
		if (json_is_integer(json_object_get(e, "seconds_left")))
			printf(", %lld s left", j_num(e, "seconds_left"));
		putchar('\n');
	}
	json_array_foreach(json_object_get(j, "waiting"), i, e)
	{
		printf("%-12lld %-6lld %-16s %-8s %s", j_num(e, "inode"), j_num(e, "object"), j_str(e, "ds"), "waits", j_str(e, "why"));
		if (j_num(e, "seconds_left"))
			printf(", %lld s more", j_num(e, "seconds_left"));
		putchar('\n');
	}
}

int cmd_mirror_status(char **args)
{
	json_t *j;
	int rc = weft_ask_path("GET", "/v1/repair", args[0], NULL, &j);

	return weft_show(rc, j, repair_table);
}

int cmd_mirror_repair(char **args)
{
	json_t *j;
	int rc = weft_ask_path("PUT", "/v1/repair", args[0], "", &j);

	return weft_show(rc, j, repair_table);
}
