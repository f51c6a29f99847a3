/* SPDX-License-Identifier: Apache-2.0 */
/* version.c - see version.h. The only file that is compiled with the version in it. */
#include "common/version.h"
#include "base/log.h"
#include "base/metrics.h"
#include <stdio.h>

const char version_text[] = PACKAGE_VERSION;

int version_print(const char *program)
{
	printf("%s %s\n", program, version_text);
	return fflush(stdout) ? 1 : 0;
}

void version_log(void)
{
	log_info("version %s", version_text);
}

static double version_gauge(void *arg)
{
	(void)arg;
	return 1;
}

void version_metric(void)
{
	metric_gauge("weft_build_info", "The version of this program.",
		     "version=\"" PACKAGE_VERSION "\"", version_gauge, NULL);
}
