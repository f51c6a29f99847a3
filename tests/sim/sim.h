/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - a whole cluster in one process, on a clock that the simulator steps.
 *
 * Everything runs on one thread. What are threads in the product are coroutines here, and one runs
 * until it waits. All that is random comes from the seed of the schedule, so a seed gives the same
 * run again. docs/decisions/simulator.md says which files of the product run here as they are, and
 * what is a model.
 *
 * A process is a set of coroutines with memory and globals of its own. A kill drops them where they
 * stand. A pause keeps them from running, also in the middle of a function: each read of a clock,
 * each lock and each statement is a point at which a pause or a kill may strike (sim_point).
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MS(n) ((uint64_t)(n)*1000000)

/* ---- sched.c ---- */

struct co;
struct waitq {
	struct co *wq_first, *wq_last;
};

enum { SIM_NODES = 11, SIM_GLOBALS = 12 };

/* A machine. */
struct sim_node {
	const char *n_name;
	bool n_off; /* no power */
	/* Its clocks: the simulator's time, with an offset and a rate in parts per million. */
	int64_t n_boot, n_ppm;
	bool n_cut[SIM_NODES]; /* what it sends to that node does not arrive */
};

struct sim_proc {
	const char *p_name;
	unsigned p_node;
	bool p_alive, p_paused;
	unsigned p_run; /* rises with each start */
	void (*p_main)(void *arg);
	void *p_arg;
	struct co *p_held; /* those that would run if it were not paused */
	struct mem *p_mem;
	char *p_image; /* its globals while another process runs */
	/* After so many points: a pause of trap_ns, or with trap_ns 0 a kill. */
	unsigned p_trap;
	uint64_t p_trap_ns;
	void (*p_on_trap)(struct sim_proc *p);
	void (*p_died)(struct sim_proc *p);
	int p_status;
};

extern uint64_t sim_now; /* ns; the true time */
extern struct sim_node sim_nodes[SIM_NODES];
extern bool sim_verbose;
extern const char *sim_control; /* the planted fault; "" */
bool sim_planted(const char *name);

uint64_t sim_rand(void);
uint64_t sim_below(uint64_t n); /* 0 .. n - 1 */
bool sim_chance(unsigned per_mille);
uint64_t sim_between(uint64_t from, uint64_t to);

void sim_begin(uint64_t seed);
void sim_end(void);
/* Runs events until that time, or until sim_failed. */
void sim_run_until(uint64_t end);
/* fn runs at that time, outside of all processes. */
void sim_at(uint64_t when, void (*fn)(void *arg, uint64_t n), void *arg, uint64_t n);
/* Memory of the schedule; nobody frees it. Zeros. */
void *sim_alloc(size_t n);
void *sim_copy(const void *p, size_t n);

/* A variable of the product that each process has for itself. Before the first process. */
void sim_global(void *p, size_t n);
void sim_proc_start(struct sim_proc *p);
/* At once, at whatever point it is; also the running one: then it does not return. */
void sim_proc_kill(struct sim_proc *p, int status);
void sim_proc_pause(struct sim_proc *p, uint64_t ns);
struct sim_proc *sim_self(void);
void sim_point(void);
/* A coroutine of this process. */
struct co *sim_spawn(struct sim_proc *p, void *(*fn)(void *arg), void *arg);
/* True: woken; false: the time is over. */
bool sim_wait(struct waitq *q, uint64_t ns);
void sim_wake(struct waitq *q);
bool sim_wake_one(struct waitq *q); /* true: there was one */
void sim_sleep(uint64_t ns);
uint64_t sim_boot(unsigned node);
void *sim_malloc_for(struct sim_proc *p, size_t n);
/* Lets the code of the simulator look at a variable of a process that does not run. */
void *sim_global_of(struct sim_proc *p, void *var);

void sim_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A rule is broken: the schedule ends. */
void sim_fail(const char *rule, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
extern bool sim_failed;
extern char sim_rule[64], sim_text[400];

/* File descriptors that the product waits for. */
struct sim_fd {
	bool (*f_ready)(struct sim_fd *f);
	struct waitq f_wait;
	uint64_t f_count; /* an eventfd */
};
int sim_fd_new(struct sim_fd *f);
void sim_fd_free(int fd);

/* ---- net.c ---- */

/* fn runs when the message arrives. A cut link delays it, as TCP does. gone: it never arrives,
 * because the machine or the process is gone; may be NULL. */
struct sim_msg {
	unsigned m_from, m_to;
	bool (*m_ready)(void *arg); /* false: whoever gets it stands still */
	void (*m_fn)(void *arg);
	void *m_arg;
	uint64_t m_until;
};
void sim_send(unsigned from, unsigned to, bool (*ready)(void *arg), void (*fn)(void *arg),
	      void *arg);
extern uint64_t sim_slow_ns; /* besides what a message takes */

/* ---- pg_server.c, pg_sql.c, libpq.c: PostgreSQL ---- */

enum { PG_SERVERS = 3, PG_NODE0 = 0, MDS_NODE0 = 3, CLIENT_NODE = 5, DS_NODE0 = 6 };
void engine_begin(void);
void engine_kill(unsigned server, bool power, uint64_t back_ns);
void engine_pause(unsigned server, uint64_t ns);
void engine_heal(void);
void pg_plant(void); /* pg_log_sim.c: the planted faults in statements */
/* An administrator's pg_cancel_backend of whatever waits. */
void engine_cancel(void);
int engine_primary(void);
void engine_describe(char *out, size_t n);
uint64_t engine_epoch(void);

/* ---- etcd_sim.c ---- */

enum { ETCD_MEMBERS = 3, ETCD_NODE0 = 8 };
void etcd_begin(void);
void etcd_away(uint64_t ns);
void etcd_power_cut(unsigned member, uint64_t back_ns);
void etcd_heal(void);

/* ---- store.c: LMDB and the folder of a store ---- */

struct store;
struct store *store_new(void);
/* The machine lost its power, or the process was killed: back to a checkpoint. */
void store_crash(struct store *s);
void store_wipe(struct store *s);

/* ---- server.c: weft-mds ---- */

enum { MDS_MAX = 2, DS_MAX = 2, REGS = 4 };
enum op_kind { ASK_READ, ASK_ADD, ASK_ID };
struct request {
	enum op_kind rq_kind;
	unsigned rq_reg;
	uint64_t rq_id; /* of the operation; a retry has the same */
	unsigned rq_try;
	bool rq_by_address; /* it goes to the service address */
	uint64_t rq_asked;  /* when the operation began */
	uint64_t rq_floor;  /* ASK_READ, ASK_ADD: what was acknowledged by then */
};
void servers_begin(void);
struct sim_proc *server_proc(unsigned i);
void server_ask(unsigned i, const struct request *rq);
void server_stop(unsigned i);
void server_lose_store(unsigned i);
bool server_serves(unsigned i);
uint64_t server_lease_ms(void);
bool servers_in_etcd(void); /* is there one whose lease is in etcd? */
/* Of all servers: is there one with a smaller epoch whose lease lives? */
void servers_claimed(uint64_t epoch);
void servers_quiet(void); /* nothing new fails */
bool server_kill(unsigned i, bool power, uint64_t back_ns);

/* ---- addr_sim.c: weft-addr ---- */

enum sim_addr {
	SIM_ADDR_HOLD,
	SIM_ADDR_LISTENING,
	SIM_ADDR_LIVE,
	SIM_ADDR_RELEASE,
	SIM_ADDR_GONE /* the holder's connection has ended */
};
void addr_begin(void);
void addr_say(unsigned server, enum sim_addr what);
void addr_power_cut(unsigned server);
/* The server to which clients take the service address to belong; does its node take what comes? */
unsigned addr_where(void);
bool addr_takes(unsigned server);

/* ---- client.c ---- */

void clients_begin(void);
void client_answer(const struct request *rq, unsigned server, uint64_t epoch, uint64_t value,
		   uint64_t looked);
/* All is healed: does everything that was acknowledged come back? */
void clients_finish(void);
bool clients_done(void);
uint64_t clients_acked(void);

/* ---- ds.c ---- */

void ds_begin(void);
void ds_join_all(unsigned server, uint64_t epoch, uint64_t boot_id);
void ds_order(unsigned server, uint64_t epoch, uint64_t number);
void ds_kill(unsigned i);

/* ---- faults.c ---- */

void faults_begin(uint64_t end);
enum { SIM_FAULTS = 21 };
extern unsigned faults_struck[SIM_FAULTS];
extern const char *const fault_names[SIM_FAULTS];
#endif
