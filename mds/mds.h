/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mds.h - the metadata server: its parts, and the configuration that its rooms share. main.c fills
 * struct mds before anything is served. A field does not change after that unless its comment says
 * so.
 *
 * In the headers of mds/, "W:" marks a function that runs on the committer thread inside the write
 * transaction that it gets. "locked" means that the caller holds the file's lock, or all, as
 * state/st.h says.
 */
#ifndef MDS_MDS_H
#define MDS_MDS_H
#include "base/ask.h"
#include "base/metrics.h"
#include "mds/dataserver/ds_reg.h"
#include "mds/export/export_table.h"
#include "mds/file/exclusive.h"
#include "mds/file/file_size.h"
#include "mds/layout/lo.h"
#include "mds/namespace/ns.h"
#include "mds/state/st.h"
#include "proto/nfs4.h"
#include "proto/rpc.h"
#include "proto/rpc_limit.h"

/* The mapping is sparse (RFC 8435 section 6), so an object can be as long as its file. The limit is
 * that of ext4 with 4 KiB blocks, the smaller of the two file systems that stores are on. */
#define OP_MAX_FILE ((1ull << 44) - 4096)
_Static_assert(OP_MAX_FILE == DS_REG_GEN_SIZE_MAX, "sizes of generic data servers");
#define OP_GROUPS_NEAR 64

enum op_deleg_mode { OP_DELEG_NONE, OP_DELEG_READ, OP_DELEG_WRITE };

/* Limits, see limit.c. */
enum op_limit {
	OP_LIMIT_CONNS,
	OP_LIMIT_CLIENTS,
	OP_LIMIT_OPENS,
	OP_LIMIT_LOCKS,
	OP_LIMIT_LAYOUTS,
	/* not a limit, but counted in the same way: requests of clients without access to any
	 * export */
	OP_LIMIT_STRANGERS,
	OP_LIMITS
};
/* Whether a limit holds for one client, for one address, or for all clients together. */
enum op_scope { OP_OF_CLIENT, OP_OF_ADDR, OP_OF_ALL, OP_SCOPES };
struct op_limits {
	struct rpc_limit lm_conns;
	uint32_t lm_clients, lm_clients_addr; /* for all, and for each address */
	uint32_t lm_opens[OP_SCOPES], lm_locks[OP_SCOPES], lm_layouts[OP_SCOPES];
	struct metric *lm_refused[OP_LIMITS];
	_Atomic uint64_t lm_logged_ns[OP_LIMITS];
};

/* Places of tags (jobs/tag.h) in statistics; 0 is no tag. */
#define MDS_TAG_SLOTS 65u

struct mds;
struct mds_thread {
	struct mds *mt_mds;
	struct loop *mt_loop;
	struct kv_txn *mt_txn;
	bool mt_fresh;	       /* mt_txn holds a snapshot of this turn of the loop */
	uint32_t mt_unwatches; /* st_unwatches() when a request last began */
	uint32_t mt_opnum;     /* of the operation that was called last (common/trace.h) */
	struct loop_hook mt_hook;
	struct file_returned mt_returned;
	/* copy.c: COPY requests that wait for their turn */
	struct op_copy *mt_copies, **mt_copies_end;
	unsigned mt_copying;
	bool mt_copies_next;
	struct compound *mt_grace, **mt_grace_end; /* await_grace.c: those that wait */
	struct loop_timer mt_grace_look;
	/* the exports in force when this thread last looked */
	struct exp_table *mt_exports;
	struct heat *_Atomic mt_heat; /* see jobs/heat.c */
	unsigned mt_heat_turn;	      /* op_heat.c */
	/* By exp_grant.g_slot: operations, bytes read, bytes written. Only this thread writes
	 * them. */
	_Atomic uint64_t mt_export[EXP_SLOTS][3];
	_Atomic uint64_t mt_tag[MDS_TAG_SLOTS][3]; /* the same by place of a tag (jobs/tag.h) */
	struct ask_val *mt_groups[OP_GROUPS_NEAR]; /* credentials.c: groups of users seen lately */
};

struct mds {
	struct ns *m_ns;
	struct kv *m_kv;
	struct ds_reg *m_dsc;
	struct lo *m_lo;
	struct st *m_st;
	struct op_limits m_limits;
	struct exp_set *m_exports;
	/* looks up which hosts and netgroups of the exports an address is */
	struct ask *m_ask_names;
	struct ask *m_ask_groups; /* looks up users' groups; NULL: no user's */
	bool m_server_groups;	  /* mds.groups: also for AUTH_SYS */
	unsigned m_nthreads;
	_Atomic bool m_serving; /* see serve.c; changes once */
	struct mds_thread *m_thread;
	uint32_t m_lease_ms, m_recall_ms, m_ds_lease_ms;
	uint32_t m_room_ms; /* a create waits so long for data servers that are away */
	struct store_lease m_store_lease; /* whether this instance holds its store */
	struct file_env m_file;		  /* op_file_env: the fields above that mds/file works on */
	_Atomic uint32_t m_unreached_ms;  /* may change at any time, as m_gone_ms */
	/* op_all_gone does not wait for a data server that has been silent for this many
	 * milliseconds. DS_REG_GONE: only a killed or forgotten server counts as gone. */
	_Atomic uint64_t m_gone_ms;
	bool m_return_on_close;
	const char *m_striping;		  /* mds.striping_clients */
	enum op_deleg_mode m_delegations; /* the strongest type that is granted */
	bool m_deleg_times;		  /* delegation holders may keep the times (RFC 9754) */
	/* of EXCHANGE_ID: the server scope, and so_major_id (identity.c) */
	char m_scope[64], m_owner[64];
	/* Stands for the client of a session of an earlier boot (replay.c). It has no state. */
	struct st_client m_gone;
	bool m_once_swept;
	struct file_lost m_lost;  /* of m_file */
	struct job_frame *m_jobs; /* jobs/job.h */
	struct job_repair *m_repair;
	struct job_drain *m_drain;
	struct job_revocation *m_ending;
	struct op_sweep *m_sweep; /* see dead_server.c; used by the tick's loop only */
	struct job_verify *m_verify;
	struct job_balance *m_balance;
	struct job_restripe *m_restripe;
	struct job_scrub *m_scrub;
	struct job_elect *m_choose;
	struct job_contended *m_contended;
	struct job_damage *m_damage;
	struct job_pins *m_pins; /* jobs/pin.h */
	struct job_trash *m_trash;
	struct job_tags *m_tags; /* jobs/tag.h; NULL: there are none */
	struct metric *m_once;
	bool m_krb5;	       /* Kerberos is configured and works */
	struct names *m_names; /* see idmap.c; NULL: owners and groups are numbers only */
	struct metric *m_op_time[NFS4_OP_MAX]; /* see compound_time */
	struct metric *m_op_count[NFS4_OP_MAX], *m_op_illegal, *m_garbage, *m_creates, *m_copied;
};

/* How many milliseconds data servers get to confirm an order: longer than any of their leases. By
 * then each server has confirmed, or serves no client because its lease is over: for a silent
 * server the wait ends with that lease (layout/order.c). Only a server that lives and reports that
 * it fails its orders is left. */
static inline uint32_t op_confirm_ms(const struct mds *m)
{
	return m->m_ds_lease_ms + 5000u;
}
#endif
