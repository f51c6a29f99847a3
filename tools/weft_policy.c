/* SPDX-License-Identifier: Apache-2.0 */
/* weft_policy.c - weft policy: shows and sets how new files are laid out. */
#include "tools/weft_tool.h"
#include <string.h>

static void policy_table(const json_t *j)
{
	puts(j_str(j, "policy"));
}

int cmd_policy_get(char **args)
{
	json_t *j;
	int rc = weft_ask_path("GET", "/v1/policy", args[0], NULL, &j);

	return weft_show(rc, j, policy_table);
}

int cmd_policy_set(char **args)
{
	json_t *j;
	int rc;

	/* To the server an empty policy means none. But a script's empty variable must not remove a
	 * policy. */
	if (!args[1][strspn(args[1], " \n")])
		return weft_usage_error("policy set: POLICY is empty; \"policy remove\" makes a "
					"directory inherit its parent's");
	rc = weft_ask_path("PUT", "/v1/policy", args[0], args[1], &j);
	return weft_show(rc, j, policy_table);
}

int cmd_policy_remove(char **args)
{
	json_t *j;
	int rc = weft_ask_path("PUT", "/v1/policy", args[0], "inherit", &j);

	return weft_show(rc, j, policy_table);
}
