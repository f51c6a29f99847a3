/* SPDX-License-Identifier: Apache-2.0 */
/* weft_exports.c - weft exports: shows which clients may use what. */
#include "tools/weft.h"

static void exports_table(const json_t *j)
{
	const json_t *e, *r;
	const json_t *d = json_object_get(j, "ending");
	size_t i, k;

	json_array_foreach(json_object_get(j, "exports"), i, e)
	{
		printf("%s  id %lld%s\n", j_str(e, "path"), j_num(e, "id"),
		       json_is_true(json_object_get(e, "served"))
			       ? ""
			       : "  NOT SERVED: no such directory");
		json_array_foreach(json_object_get(e, "rules"), k, r)
		{
			printf("    ");
			j_words(json_object_get(r, "clients"));
			printf("  %s  squash=%s  anon=%lld:%lld  sec=", j_str(r, "access"),
			       j_str(r, "squash"), j_num(r, "anon_uid"), j_num(r, "anon_gid"));
			j_words(json_object_get(r, "sec"));
			printf("  tls=%s  privileged_port=%s  layouts=%s\n", j_str(r, "tls"),
			       json_is_true(json_object_get(r, "privileged_port")) ? "true"
										   : "false",
			       j_str(r, "layouts"));
		}
	}
	if (json_is_true(json_object_get(d, "running")))
		printf("ending what the new exports no longer allow: %lld files examined, "
		       "ended for %lld\n",
		       j_num(d, "looked"), j_num(d, "ended"));
}

int cmd_exports(char **args)
{
	json_t *j;
	int rc = weft_ask("GET", "/v1/exports", NULL, &j);

	(void)args;
	return weft_show(rc, j, exports_table);
}

int cmd_exports_reload(char **args)
{
	json_t *j;
	int rc = weft_ask("PUT", "/v1/exports", "", &j);

	(void)args;
	return weft_show(rc, j, exports_table);
}
