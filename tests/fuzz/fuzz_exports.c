/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_exports.c - a file of exports is refused with one line that names it, or gives a table that
 * keeps its promises. */
#include "mds/export/export_table.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t addr[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1};
	char *text = malloc(size + 1), *json, err[512] = "";
	struct exp_table *t = NULL;

	memcpy(text, data, size);
	text[size] = 0;
	if (exp_parse(text, "file", &t, err, sizeof(err))) {
		if (strncmp(err, "file:", 5) != 0 || strchr(err, '\n') || t)
			abort();
		free(text);
		return 0;
	}
	for (unsigned i = 0; i < t->xt_n; i++) {
		const struct exp *e = &t->xt_exp[i];
		bool unknown;
		const struct exp_rule *r = exp_match(e, addr, NULL, &unknown);

		if (e->e_path[0] != '/' || !e->e_nwho || !e->e_nrules || (r && unknown) ||
		    (r && (!r->r_nsec || r->r_nsec > EXP_SECS)) || (e->e_id == 0 && e->e_path[1]))
			abort();
	}
	json = exp_json(t, "file");
	if (!json)
		abort();
	free(json);
	exp_put(t);
	free(text);
	return 0;
}
