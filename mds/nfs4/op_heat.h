/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_heat.h - counts what a COMPOUND does, by client, directory, file, export and tag.
 */
#ifndef MDS_NFS4_HEAT_H
#define MDS_NFS4_HEAT_H
#include "mds/jobs/heat.h"
#include "mds/nfs4/op.h"

/* Call these on the compound's loop. */
void op_heat_op(struct compound *c);			/* an operation begins */
void op_heat_opened(struct compound *c);		/* OPEN succeeded: c->cur is the file */
void op_heat_compound(struct compound *c, uint64_t us); /* the compound ends */
/* Data that was read or written through the MDS. */
void op_heat_io(struct compound *c, const struct ns_inode *i, uint64_t bytes, bool write);
/* What a client reported of a layout: with its return (last), or earlier. held_ms: for how long it
 * had the layout, as it says. */
void op_heat_report(struct compound *c, uint32_t ds, const struct heat_report *read,
		    const struct heat_report *write, uint64_t held_ms, bool last);
#endif
