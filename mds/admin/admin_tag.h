/* SPDX-License-Identifier: Apache-2.0 */
/* admin_tag.h - the inside of admin: tags, see mds/jobs/tag.h. */
#ifndef MDS_ADMIN_TAG_H
#define MDS_ADMIN_TAG_H
#include "mds/admin/admin_int.h"
#include "mds/jobs/tag.h"

/* Returns the place of the client's tag; 0: it has none. */
unsigned admin_tag_of(struct admin *a, const struct st_client_view *v);
/* Returns the name of the client's tag, or null. The caller owns the reference. */
json_t *admin_tag_json(struct admin *a, const struct st_client_view *v);
void admin_tag_metrics_init(struct admin *a);

void admin_get_tags(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_put_tag(void *arg, const struct http_req *rq, struct http_reply *rp);
void admin_delete_tag(void *arg, const struct http_req *rq, struct http_reply *rp);
#endif
