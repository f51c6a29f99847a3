/* SPDX-License-Identifier: Apache-2.0 */
#include "base/near.h"
#include <stddef.h>
#include <string.h>

unsigned near_distance(const char *a, const char *b)
{
	unsigned row[NEAR_NAME + 1];
	size_t n = strlen(b);

	if (n > NEAR_NAME)
		return NEAR_NAME;
	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; *a; i++, a++) {
		unsigned diag = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			unsigned d = diag + (*a != b[j - 1]);

			diag = row[j];
			d = d < row[j] + 1 ? d : row[j] + 1;
			row[j] = d < row[j - 1] + 1 ? d : row[j - 1] + 1;
		}
	}
	return row[n];
}
