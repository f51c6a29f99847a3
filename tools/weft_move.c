/* weft_move.c - weft move: a file's objects to other servers. */
#include "tools/weft.h"

int cmd_move(char **args)
{
	json_t *j;
	int rc = weft_ask_with("PUT", "/v1/move", "", &j, "path", args[0], "group", weft_option("group"), "policy", weft_option("policy"), "from", weft_option("from"), "cancel",
			       weft_option("cancel") ? "1" : NULL, NULL);

	return mirror_follow(rc, j, args[0]);
}
