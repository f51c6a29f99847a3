/* repair.h - inside admin: the repair of mirrors (admin.h). On the HTTP thread. */
#ifndef MDS_ADMIN_REPAIR_H
#define MDS_ADMIN_REPAIR_H
#include "base/http.h"

struct mds;
void admin_get_repair(struct mds *m, const struct http_req *rq, struct http_reply *rp);
void admin_put_repair(struct mds *m, const struct http_req *rq, struct http_reply *rp);
#endif
