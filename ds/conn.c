/* SPDX-License-Identifier: Apache-2.0 */
/* conn.c - connections of the data server: limits their number, and says which may send long
 * records. */
#include "base/log.h"
#include "ds/ds.h"
#include "ds/path/path.h"

static struct metric *m_refused;

void ds_conn_metrics_init(void)
{
	m_refused = metric_counter("weft_ds_refused_total", "Connections over their limit.",
				   "what=\"connections\"");
}

void ds_conn_opened(struct rpc_conn *conn, void *arg)
{
	static _Atomic uint64_t told;
	struct ds *d = arg;

	if (rpc_limit_opened(&d->d_limit, conn))
		return;
	metric_add(m_refused, 1);
	if (log_due(&told))
		log_warn("refused connections over the limit (ds.connections, "
			 "ds.connections_of_address); weft_ds_refused_total counts them");
	rpc_conn_close(conn); /* ds_conn_closed takes it out of the count */
}

void ds_conn_closed(struct rpc_conn *conn, void *arg)
{
	rpc_limit_closed(&((struct ds *)arg)->d_limit, conn);
}

/* Every procedure but NULL begins with a file handle. True if its MAC was made with a key of this
 * server. */
bool ds_conn_first(struct rpc_conn *conn, uint32_t prog, uint32_t proc, struct xdr_in *x, void *arg)
{
	struct ds *d = arg;
	struct cap cap;
	const uint8_t *fh;
	uint32_t len;

	(void)conn;
	if (prog != NFS3_PROGRAM || proc == NFS3_NULL)
		return false;
	fh = xdr_get_opaque(x, NFS3_FHSIZE, &len);
	if (!fh)
		return false;
	if (path_is_fh(fh, len))
		return d->d_path && path_fh_ours(d->d_path, fh, len);
	return len == CAP_LEN && ds_cap_open(d, fh, &cap);
}
