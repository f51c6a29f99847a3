/* SPDX-License-Identifier: Apache-2.0 */
/* http_page.c - what a browser gets: files, and the headers that limit what a page may do. */
#include "common/http_int.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A page may load its scripts, styles and data from here, and nothing else from anywhere. */
#define POLICY_OF_FILES                                                                            \
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "          \
	"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
#define POLICY_OF_ANSWERS "default-src 'none'; frame-ancestors 'none'"

bool http_page_headers(struct MHD_Response *r, const struct http_file *f)
{
	const char *const header[][2] = {
		{"Content-Security-Policy", f ? POLICY_OF_FILES : POLICY_OF_ANSWERS},
		{"X-Content-Type-Options", "nosniff"},
		{"Referrer-Policy", "no-referrer"},
		{"Cross-Origin-Opener-Policy", "same-origin"},
		{"Cross-Origin-Resource-Policy", "same-origin"},
		/* A file is asked for again by its ETag; an answer is kept nowhere. */
		{MHD_HTTP_HEADER_CACHE_CONTROL, f ? "no-cache" : "no-store"},
	};

	for (size_t i = 0; i < sizeof header / sizeof header[0]; i++)
		if (MHD_add_response_header(r, header[i][0], header[i][1]) != MHD_YES)
			return false;
	return true;
}

bool http_other_site(struct MHD_Connection *conn)
{
	const char *site = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Sec-Fetch-Site");

	return site && strcmp(site, "same-origin") && strcmp(site, "none");
}

const struct http_file *http_file_find(const struct http *h, const char *path)
{
	for (size_t i = 0; i < h->h_nfiles; i++)
		if (!strcmp(h->h_files[i].hf_path, path))
			return &h->h_files[i];
	return NULL;
}

/* Whether the browser has this file: If-None-Match is "*", or names the ETag, as a weak one too
 * (RFC 9110 section 13.1.2). */
static bool has_it(struct MHD_Connection *conn, const struct http_file *f)
{
	const char *match =
		MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);

	return match && (!strcmp(match, "*") || strstr(match, f->hf_etag));
}

enum MHD_Result http_file_reply(struct MHD_Connection *conn, const struct http_file *f)
{
	unsigned status = !f->hf_type	    ? MHD_HTTP_PERMANENT_REDIRECT
			  : has_it(conn, f) ? MHD_HTTP_NOT_MODIFIED
					    : MHD_HTTP_OK;
	bool whole = status == MHD_HTTP_OK;
	struct MHD_Response *r = MHD_create_response_from_buffer(
		whole ? f->hf_len : 0, whole ? (void *)f->hf_data : "", MHD_RESPMEM_PERSISTENT);
	enum MHD_Result ok = MHD_NO;
	char to[128];
	bool made;

	if (!r)
		return MHD_NO;
	made = http_page_headers(r, f);
	if (f->hf_type) {
		made = made && MHD_add_response_header(r, MHD_HTTP_HEADER_ETAG, f->hf_etag) &&
		       MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, f->hf_type);
	} else {
		snprintf(to, sizeof to, "%s/", f->hf_path);
		made = made && MHD_add_response_header(r, MHD_HTTP_HEADER_LOCATION, to);
	}
	if (made)
		ok = MHD_queue_response(conn, status, r);
	MHD_destroy_response(r);
	return ok;
}
