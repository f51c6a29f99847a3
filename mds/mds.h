/*
 * mds.h - the metadata server: the parts that it is made of, and what its rooms share of its
 * configuration. main.c makes it; it stays as it is while anything is served, but for what says
 * otherwise.
 */
#ifndef MDS_MDS_H
#define MDS_MDS_H
#include "base/ask.h"
#include "base/metrics.h"
#include "mds/dataserver/dsc.h"
#include "mds/export/exp.h"
#include "mds/file/exclusive.h"
#include "mds/layout/lo.h"
#include "mds/namespace/ns.h"
#include "mds/state/st.h"
#include "proto/nfs4.h"
#include "proto/rpc.h"
#include "proto/rpc_limit.h"

/* The mapping is sparse, so an object's largest offset is the file's: what ext4 with 4 KiB blocks
 * takes, the smaller of the two file systems that stores are on. */
#define OP_MAX_FILE ((1ull << 44) - 4096)
_Static_assert(OP_MAX_FILE == DSC_GEN_SIZE_MAX, "sizes of generic data servers");
#define OP_GROUPS_NEAR 64

enum op_deleg_mode { OP_DELEG_NONE, OP_DELEG_READ, OP_DELEG_WRITE };
enum op_size_mode { OP_SIZE_ALWAYS, OP_SIZE_LAYOUT, OP_SIZE_NEVER };

/* limit.c */
enum op_limit {
	OP_LIMIT_CONNS,
	OP_LIMIT_CLIENTS,
	OP_LIMIT_OPENS,
	OP_LIMIT_LOCKS,
	OP_LIMIT_LAYOUTS,
	OP_LIMIT_STRANGERS /* not a limit, but counted alike */,
	OP_LIMITS
};
/* Whose a limit is: one client's, one address's, all clients' together. */
enum op_scope { OP_OF_CLIENT, OP_OF_ADDR, OP_OF_ALL, OP_SCOPES };
struct op_limits {
	struct rpc_limit lm_conns;
	uint32_t lm_clients, lm_clients_addr; /* likewise */
	uint32_t lm_opens[OP_SCOPES], lm_locks[OP_SCOPES], lm_layouts[OP_SCOPES];
	struct metric *lm_refused[OP_LIMITS];
	_Atomic uint64_t lm_told_ns[OP_LIMITS];
};

struct mds;
struct mds_thread {
	struct mds *mt_mds;
	struct loop *mt_loop;
	struct kv_txn *mt_txn;
	bool mt_fresh;	       /* mt_txn holds a snapshot of this turn */
	uint32_t mt_unwatches; /* st_unwatches when a request began last */
	struct loop_hook mt_hook;
	/* size.c: files whose last write layout came back; their marks go in batches */
	uint64_t *mt_returned;
	size_t mt_nreturned, mt_returned_cap;
	unsigned mt_asking;
	struct loop_timer mt_returned_timer;
	/* copy.c: those that wait for their turn */
	struct op_copy *mt_copies, **mt_copies_end;
	unsigned mt_copying;
	bool mt_copies_next;
	struct exp_table *mt_exports;		   /* in force when this thread looked last */
	struct heat *_Atomic mt_heat;		   /* heat.c */
	struct ask_val *mt_groups[OP_GROUPS_NEAR]; /* peer.c: of users seen lately */
};

struct mds {
	struct ns *m_ns;
	struct kv *m_kv;
	struct dsc *m_dsc;
	struct lo *m_lo;
	struct st *m_st;
	struct op_limits m_limits;
	struct exp_set *m_exports;
	struct ask *m_ask_names;  /* which hosts and netgroups of the exports an address is */
	struct ask *m_ask_groups; /* NULL: nobody's are looked up */
	bool m_server_groups;	  /* mds.groups: also those of AUTH_SYS */
	unsigned m_nthreads;
	_Atomic bool m_serving; /* serve.c */
	struct mds_thread *m_thread;
	uint32_t m_lease_ms, m_recall_ms, m_ds_lease_ms;
	struct file_env m_file; /* of the above, what the room mds/file works on: op_file_env */
	uint32_t m_unreached_ms;
	/* a server that has been silent for so long is waited for no more; DSC_GONE: one that is
	 * killed or forgotten only */
	uint64_t m_gone_ms;
	bool m_return_on_close;
	const char *m_striping; /* mds.striping_clients */
	enum op_size_mode m_size_mode;
	enum op_deleg_mode m_delegations; /* the most that is given */
	bool m_deleg_times;		  /* holders may keep the times (RFC 9754) */
	char m_scope[64];
	/* stands for the client of a session of an earlier boot (once.c): nothing is anybody's
	 * less */
	struct st_client m_gone;
	bool m_once_swept;
	unsigned m_losing;	    /* all is locked: transactions under way that give writers up */
	uint64_t m_lost_gen;	    /* rises with each; likewise */
	_Atomic bool m_lost;	    /* files may wait to be judged (truth.c), and the store knows */
	bool m_judging;		    /* the tick's loop's */
	struct op_repair *m_repair; /* repair.c */
	struct op_drain *m_drain;   /* drain.c */
	struct op_ending *m_ending; /* ending.c */
	struct op_sweep *m_sweep;   /* dead.c: the tick's loop's */
	struct op_verify *m_verify; /* verify.c */
	struct op_balance *m_balance;	  /* balance.c */
	struct op_restripe *m_restripe;	  /* restripe.c */
	struct op_scrub *m_scrub;	  /* scrub.c */
	struct op_choose *m_choose;	  /* choose.c */
	struct op_contended *m_contended; /* contend.c */
	/* contend.c, from before the loops run. Any thread: f_uneven of the file was set. */
	void (*m_uneven)(struct mds *m, uint64_t ino);
	struct metric *m_once;
	bool m_krb5;	       /* Kerberos is live */
	struct names *m_names; /* names.c; NULL: ids are numbers only */
	struct metric *m_op_count[NFS4_OP_MAX], *m_op_illegal, *m_op_time, *m_garbage, *m_creates,
		*m_copied;
};

/* How long data servers get to confirm: milliseconds, longer than any lease of theirs. By then each
 * has confirmed or serves nobody. What is left is a server that lives and says that it fails its
 * orders: one that says nothing is waited for until its lease is over (layout/order.c). */
static inline uint32_t op_confirm_ms(const struct mds *m)
{
	return m->m_ds_lease_ms + 5000u;
}
#endif
