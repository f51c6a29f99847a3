/* SPDX-License-Identifier: Apache-2.0 */
/* identity.h - which file system of which cluster this metadata server has (docs/instances.md). */
#ifndef MDS_IDENTITY_H
#define MDS_IDENTITY_H
#include "base/conf.h"
#include "mds/mds.h"
#include "proto/ctl_instances.h"

/* Reads mds.fs and mds.cluster. 0, or -EINVAL and one line in err. */
int mds_identity_conf(const struct conf *c, struct ns_identity *id, char *err, size_t errlen);
/* Reads mds.instances. 0, or a negative errno and one line in err. */
int mds_instances_conf(const struct conf *c, struct ctl_instances *ci, char *err, size_t errlen);
/* Once the store is open: what EXCHANGE_ID says of the server. */
void mds_identity_names(struct mds *m);
#endif
