/* SPDX-License-Identifier: Apache-2.0 */
/* weft_xattr.c - weft xattr: shows and sets extended attributes in readable form. */
#include "tools/weft_tool.h"
#include <string.h>

static void xattr_line(const json_t *x)
{
	const char *text = json_string_value(json_object_get(x, "text")),
		   *hex = json_string_value(json_object_get(x, "hex"));
	json_t *o = text && text[0] == '{' ? json_loads(text, 0, NULL) : NULL;

	printf("%s%s = ", j_str(x, "name"),
	       json_is_true(json_object_get(x, "virtual")) ? " (virtual)" : "");
	if (o) {
		json_dumpf(o, stdout, WEFT_JSON_STYLE);
		putchar('\n');
	} else if (text) {
		printf("%s\n", text);
	} else {
		printf("0x%s\n", hex ? hex : "");
	}
	json_decref(o);
}

static void xattr_table(const json_t *j)
{
	const json_t *x;
	size_t i;

	json_array_foreach(json_object_get(j, "xattrs"), i, x) xattr_line(x);
}

int cmd_xattr_show(char **args)
{
	json_t *j;
	int rc =
		weft_ask_with("GET", "/v1/xattr", NULL, &j, "path", args[0], "name", args[1], NULL);

	return weft_show(rc, j, xattr_table);
}

/* Takes values like setfattr: 0x and pairs of hexadecimal digits are bytes, anything else is the
 * text itself. */
int cmd_xattr_set(char **args)
{
	const char *value = args[2] ? args[2] : "";
	bool hex = !strncmp(value, "0x", 2);
	json_t *j;
	int rc = weft_ask_with("PUT", "/v1/xattr", hex ? value + 2 : value, &j, "path", args[0],
			       "name", args[1], "encoding", hex ? "hex" : NULL, NULL);

	return weft_show(rc, j, xattr_table);
}

int cmd_xattr_remove(char **args)
{
	json_t *j;
	int rc = weft_ask_with("DELETE", "/v1/xattr", NULL, &j, "path", args[0], "name", args[1],
			       NULL);

	return weft_show(rc, j, xattr_table);
}
