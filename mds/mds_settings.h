/* SPDX-License-Identifier: Apache-2.0 */
/* mds_settings.h - what struct mds and the state keep of the configuration from its start on. */
#ifndef MDS_MDS_SETTINGS_H
#define MDS_MDS_SETTINGS_H
#include "mds/mds.h"

struct conf;
struct op_limits;
struct st;

/* Fills the settings and limits of m. Call op_limits_init() after it. 0, or -ENOMEM. */
int mds_settings(struct mds *m, const struct conf *conf);
/* Gives st the limits of what one client, one address and all may have. st_max_delegs is set. */
void mds_settings_state(struct st *st, const struct op_limits *lm);
#endif
