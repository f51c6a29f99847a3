/* SPDX-License-Identifier: Apache-2.0 */
/* mds_gauges.h - see mds_gauges.c. */
#ifndef MDS_MDS_GAUGES_H
#define MDS_MDS_GAUGES_H
#include "mds/mds.h"

void mds_gauges(struct mds *m); /* once the store and the state are open */
#endif
