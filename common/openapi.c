/* SPDX-License-Identifier: Apache-2.0 */
/* openapi.c - GET /v1/openapi.json: docs/openapi.json as the program was built with it. */
#include "common/http.h"
#include <stdlib.h>
#include <string.h>

__asm__(".section .rodata\n"
	"openapi_text:\n"
	".incbin \"" OPENAPI_FILE "\"\n"
	".byte 0\n"
	".globl openapi_text\n"
	".hidden openapi_text\n"
	".previous\n");
extern const char openapi_text[] __attribute__((visibility("hidden")));

void http_openapi(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	(void)arg;
	(void)rq;
	rp->rp_body = strdup(openapi_text);
}
