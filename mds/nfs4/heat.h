/*
 * heat.h - what a COMPOUND does, counted by client, directory and file (mds/jobs/heat.h).
 */
#ifndef MDS_NFS4_HEAT_H
#define MDS_NFS4_HEAT_H
#include "mds/jobs/heat.h"
#include "mds/nfs4/op.h"

/* On the compound's loop. */
void op_heat_op(struct compound *c);			/* an operation begins */
void op_heat_opened(struct compound *c);		/* OPEN has succeeded: c->cur is the file */
void op_heat_compound(struct compound *c, uint64_t us); /* it ends */
/* through us */
void op_heat_io(struct compound *c, const struct ns_inode *i, uint64_t bytes, bool write);
/* What a client told in that layout's return (last), or while it has it. */
void op_heat_told(struct compound *c, uint32_t ds, const struct heat_told *read,
		  const struct heat_told *write, bool last);
#endif
