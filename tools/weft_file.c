/* weft_file.c - weft file: where a file lies. */
#include "tools/weft.h"

static void file_table(const json_t *j)
{
	const json_t *mirror, *object;
	size_t m, o;

	printf("inode %lld, %lld bytes, unit %s\n", j_num(j, "inode"), j_num(j, "size"),
	       size_text(j_num(j, "unit")));
	printf("%-6s %-6s %-10s %-16s %12s  %-44s %s\n", "MIRROR", "STRIPE", "STATE", "SERVER",
	       "SIZE", "OBJECT", "ADDRESSES");
	json_array_foreach(json_object_get(j, "mirrors"), m, mirror)
	{
		json_array_foreach(json_object_get(mirror, "objects"), o, object)
		{
			printf("%-6zu %-6zu %-10s %-16s %12lld  %-44s ", m, o, j_str(object, "state"),
			       j_str(object, "ds"), j_num(object, "size"), j_str(object, "object"));
			j_words(json_object_get(object, "addr"));
			putchar('\n');
		}
	}
}

int cmd_file_show(char **args)
{
	json_t *j;
	int rc = weft_ask_path("GET", "/v1/file", args[0], NULL, &j);

	return weft_show(rc, j, file_table);
}
