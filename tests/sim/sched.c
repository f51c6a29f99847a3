/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched.c - coroutines, processes and events on the stepped clock. See sim.h.
 *
 * A coroutine that may run is an event, a few microseconds ahead: so those of all machines take
 * turns, in an order that the seed gives.
 */
#include "tests/sim/sim.h"
#include "tests/sim/own.h"
#include "tests/sim/sched.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIM_SWAPCONTEXT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_SWAPCONTEXT 1
#endif
#endif

enum { STACK = 256 << 10, GUARD = 4096, ARENA = 4 << 20 };

uint64_t sim_now;
struct sim_node sim_nodes[SIM_NODES];
bool sim_verbose, sim_failed;
const char *sim_control = "";
char sim_rule[64], sim_text[400];

static struct co *running;
static struct sim_proc *loaded; /* whose globals are in place */

/* ---- what is random ---- */

static uint64_t rnd[2];

uint64_t sim_rand(void)
{
	uint64_t a = rnd[0], b = rnd[1];

	rnd[0] = b;
	a ^= a << 23;
	rnd[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
	return rnd[1] + b;
}

uint64_t sim_below(uint64_t n)
{
	return n ? sim_rand() % n : 0;
}

bool sim_chance(unsigned per_mille)
{
	return sim_below(1000) < per_mille;
}

uint64_t sim_between(uint64_t from, uint64_t to)
{
	return from + sim_below(to - from + 1);
}

static void seed(uint64_t s)
{
	for (int i = 0; i < 2; i++) {
		uint64_t z = (s += 0x9e3779b97f4a7c15u);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
		rnd[i] = z ^ (z >> 31);
	}
}

bool sim_planted(const char *name)
{
	return !strcmp(sim_control, name);
}

/* ---- memory of a schedule ---- */

struct chunk {
	struct chunk *c_next;
	size_t c_used;
	char c_data[];
};
static struct chunk *arena, *spare; /* spare: of ARENA bytes each, from earlier schedules */

void *sim_alloc(size_t n)
{
	char *p;

	n = (n + 15) / 16 * 16;
	if (!arena || arena->c_used + n > ARENA) {
		struct chunk *c = n > ARENA ? NULL : spare;

		if (c)
			spare = c->c_next;
		else
			c = malloc(sizeof(*c) + (n > ARENA ? n : ARENA));
		if (!c)
			abort();
		c->c_next = arena;
		c->c_used = 0;
		arena = c;
	}
	p = arena->c_data + arena->c_used;
	arena->c_used += n;
	memset(p, 0, n);
	return p;
}

void *sim_copy(const void *p, size_t n)
{
	void *q = sim_alloc(n + 1);

	if (n)
		memcpy(q, p, n);
	return q;
}

/* The pages are kept: they are needed again at once. */
static void arena_free(void)
{
	struct chunk *c;

	while ((c = arena)) {
		arena = c->c_next;
		if (c->c_used > ARENA) {
			free(c);
			continue;
		}
		c->c_next = spare;
		spare = c;
	}
}

/* ---- what was said ---- */

void sim_log(const char *fmt, ...)
{
	va_list ap;

	if (!sim_verbose)
		return;
	printf("%10.3f %-5s ", (double)sim_now / 1e6, running ? running->co_proc->p_name : "-");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void sim_fail(const char *rule, const char *fmt, ...)
{
	va_list ap;

	if (sim_failed)
		return;
	sim_failed = true;
	snprintf(sim_rule, sizeof(sim_rule), "%s", rule);
	va_start(ap, fmt);
	vsnprintf(sim_text, sizeof(sim_text), fmt, ap);
	va_end(ap);
	sim_log("VIOLATION %s: %s", rule, sim_text);
}

/* ---- events: a heap ---- */

struct event {
	uint64_t e_when, e_seq, e_n;
	void (*e_fn)(void *arg, uint64_t n);
	void *e_arg;
};
static struct event *heap;
static size_t heap_n, heap_room;
static uint64_t heap_seq;

static bool before(const struct event *a, const struct event *b)
{
	return a->e_when < b->e_when || (a->e_when == b->e_when && a->e_seq < b->e_seq);
}

void sim_at(uint64_t when, void (*fn)(void *arg, uint64_t n), void *arg, uint64_t n)
{
	struct event e = {when < sim_now ? sim_now : when, heap_seq++, n, fn, arg};
	size_t i;

	if (heap_n == heap_room) {
		heap_room = heap_room ? 2 * heap_room : 1024;
		heap = realloc(heap, heap_room * sizeof(*heap));
		if (!heap)
			abort();
	}
	for (i = heap_n++; i && before(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = e;
}

static bool pop(struct event *out, uint64_t end)
{
	struct event last;
	size_t i = 0;

	if (!heap_n || heap[0].e_when > end)
		return false;
	*out = heap[0];
	last = heap[--heap_n];
	for (;;) {
		size_t k = 2 * i + 1;

		if (k + 1 < heap_n && before(&heap[k + 1], &heap[k]))
			k++;
		if (k >= heap_n || !before(&heap[k], &last))
			break;
		heap[i] = heap[k];
		i = k;
	}
	heap[i] = last;
	return true;
}

void sim_run_until(uint64_t end)
{
	struct event e;

	while (!sim_failed && pop(&e, end)) {
		sim_now = e.e_when > sim_now ? e.e_when : sim_now;
		e.e_fn(e.e_arg, e.e_n);
	}
	if (!sim_failed && sim_now < end)
		sim_now = end;
}

/* ---- globals ---- */

static struct {
	void *g_p;
	size_t g_n, g_at;
} globals[SIM_GLOBALS];
static unsigned nglobals;
static size_t image_n;
static char *pristine;

void sim_global(void *p, size_t n)
{
	if (nglobals == SIM_GLOBALS)
		abort();
	globals[nglobals].g_p = p;
	globals[nglobals].g_n = n;
	globals[nglobals++].g_at = image_n;
	pristine = realloc(pristine, image_n + n);
	if (!pristine)
		abort();
	memcpy(pristine + image_n, p, n);
	image_n += n;
}

static void load(struct sim_proc *p)
{
	if (loaded == p)
		return;
	for (unsigned i = 0; loaded && i < nglobals; i++)
		memcpy(loaded->p_image + globals[i].g_at, globals[i].g_p, globals[i].g_n);
	loaded = p;
	for (unsigned i = 0; p && i < nglobals; i++)
		memcpy(globals[i].g_p, p->p_image + globals[i].g_at, globals[i].g_n);
}

void *sim_global_of(struct sim_proc *p, void *var)
{
	for (unsigned i = 0; i < nglobals; i++)
		if (globals[i].g_p == var)
			return loaded == p ? var : p->p_image + globals[i].g_at;
	abort();
}

/* ---- coroutines ---- */

static struct co *pool, *all;
#ifdef SIM_SWAPCONTEXT
static ucontext_t outside_ctx;
#else
static jmp_buf outside;
#endif

static void leave(struct co *c)
{
#ifdef SIM_SWAPCONTEXT
	swapcontext(&c->co_first, &outside_ctx);
#else
	if (!_setjmp(c->co_ctx))
		_longjmp(outside, 1);
#endif
}

static void co_done(struct co *c)
{
	c->co_gen++;
	c->co_state = CO_DONE;
	sim_wake(&c->co_ended);
}

static void trampoline(void)
{
	struct co *c = running;

	c->co_ret = c->co_fn(c->co_arg);
	co_done(c);
	leave(c);
	abort();
}

static void run(void *arg, uint64_t gen)
{
	struct co *c = arg;

	if (c->co_gen != gen || c->co_state != CO_READY)
		return;
	if (c->co_proc->p_paused) {
		c->co_next = c->co_proc->p_held;
		c->co_proc->p_held = c;
		return;
	}
	load(c->co_proc);
	c->co_state = CO_RUNNING;
	running = c;
#ifdef SIM_SWAPCONTEXT
	c->co_begun = true;
	swapcontext(&outside_ctx, &c->co_first);
#else
	if (!_setjmp(outside)) {
		if (c->co_begun)
			_longjmp(c->co_ctx, 1);
		c->co_begun = true;
		setcontext(&c->co_first);
	}
#endif
	running = NULL;
}

static void ready(struct co *c, uint64_t delay)
{
	c->co_state = CO_READY;
	sim_at(sim_now + delay, run, c, c->co_gen);
}

/* Most often a thread runs at once; on a busy machine it has to wait. */
static uint64_t latency(void)
{
	uint64_t r = sim_rand();

	if ((r >> 32) % 512 == 0)
		return SIM_MS(r % 30);
	return 500 + r % 8000;
}

static struct co *co_new(void)
{
	struct co *c = pool;

	if (c) {
		pool = c->co_all;
	} else {
		c = calloc(1, sizeof(*c));
		if (!c)
			abort();
		c->co_stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (c->co_stack == MAP_FAILED || mprotect(c->co_stack, GUARD, PROT_NONE))
			abort();
	}
	c->co_all = all;
	all = c;
	return c;
}

/* getcontext() returns twice, for the compiler. */
__attribute__((noinline)) static void make_context(struct co *c)
{
	getcontext(&c->co_first);
	c->co_first.uc_stack.ss_sp = c->co_stack + GUARD;
	c->co_first.uc_stack.ss_size = STACK - GUARD;
	c->co_first.uc_link = NULL;
	makecontext(&c->co_first, trampoline, 0);
}

struct co *sim_spawn(struct sim_proc *p, void *(*fn)(void *arg), void *arg)
{
	struct co *c = co_new();

	c->co_proc = p;
	c->co_fn = fn;
	c->co_arg = arg;
	c->co_gen++;
	c->co_begun = false;
	c->co_q = NULL;
	c->co_ended = (struct waitq){0};
	make_context(c);
	ready(c, latency());
	return c;
}

static void unqueue(struct co *c)
{
	struct co *before_it = NULL;

	if (!c->co_q)
		return;
	for (struct co *i = c->co_q->wq_first; i; before_it = i, i = i->co_next)
		if (i == c) {
			if (before_it)
				before_it->co_next = c->co_next;
			else
				c->co_q->wq_first = c->co_next;
			if (c->co_q->wq_last == c)
				c->co_q->wq_last = before_it;
			break;
		}
	c->co_q = NULL;
}

static void time_over(void *arg, uint64_t gen)
{
	struct co *c = arg;

	if (c->co_gen != gen || c->co_state != CO_WAITS)
		return;
	unqueue(c);
	c->co_gen++;
	c->co_woken = false;
	ready(c, latency());
}

bool sim_wait(struct waitq *q, uint64_t ns)
{
	struct co *c = running;

	c->co_state = CO_WAITS;
	c->co_gen++;
	c->co_next = NULL;
	c->co_q = q;
	if (q) {
		if (q->wq_last)
			q->wq_last->co_next = c;
		else
			q->wq_first = c;
		q->wq_last = c;
	}
	if (ns != UINT64_MAX)
		sim_at(sim_now + ns, time_over, c, c->co_gen);
	leave(c);
	return c->co_woken;
}

bool sim_wake_one(struct waitq *q)
{
	struct co *c = q->wq_first;

	if (!c)
		return false;
	unqueue(c);
	c->co_gen++;
	c->co_woken = true;
	ready(c, latency());
	return true;
}

void sim_wake(struct waitq *q)
{
	while (sim_wake_one(q))
		;
}

void sim_sleep(uint64_t ns)
{
	sim_wait(NULL, ns);
}

struct co *sim_running(void)
{
	return running;
}

/* ---- processes ---- */

struct sim_proc *sim_self(void)
{
	return running ? running->co_proc : NULL;
}

static void *main_of(void *arg)
{
	struct sim_proc *p = arg;

	p->p_main(p->p_arg);
	sim_proc_kill(p, 0);
	return NULL;
}

void sim_proc_start(struct sim_proc *p)
{
	p->p_alive = true;
	p->p_paused = false;
	p->p_held = NULL;
	p->p_trap = 0;
	p->p_run++;
	p->p_image = sim_copy(pristine, image_n);
	if (loaded == p)
		loaded = NULL;
	sim_log("%s starts", p->p_name);
	sim_spawn(p, main_of, p);
}

static void drop(struct sim_proc *p)
{
	for (struct co *c = all; c; c = c->co_all)
		if (c->co_proc == p && c->co_state != CO_FREE) {
			unqueue(c);
			c->co_gen++;
			c->co_state = CO_FREE;
		}
	p->p_held = NULL;
}

void sim_proc_kill(struct sim_proc *p, int status)
{
	bool own = running && running->co_proc == p;
	struct co *c = running;

	if (!p->p_alive)
		return;
	sim_log("%s ends: %d", p->p_name, status);
	p->p_alive = false;
	p->p_status = status;
	drop(p);
	sim_mem_drop(p);
	if (loaded == p)
		loaded = NULL;
	if (p->p_died)
		p->p_died(p);
	if (own) {
		leave(c);
		abort();
	}
}

static void resume(void *arg, uint64_t run_no)
{
	struct sim_proc *p = arg;
	struct co *c, *next;

	if (!p->p_alive || p->p_run != run_no || !p->p_paused)
		return;
	p->p_paused = false;
	sim_log("%s wakes", p->p_name);
	c = p->p_held;
	p->p_held = NULL;
	for (; c; c = next) {
		next = c->co_next;
		ready(c, latency());
	}
}

void sim_proc_pause(struct sim_proc *p, uint64_t ns)
{
	if (!p->p_alive || p->p_paused)
		return;
	sim_log("%s stands still for %.0f ms", p->p_name, (double)ns / 1e6);
	p->p_paused = true;
	sim_at(sim_now + ns, resume, p, p->p_run);
	/* The running one stops here, in the middle of what it does. */
	if (running && running->co_proc == p) {
		running->co_gen++;
		running->co_state = CO_READY;
		running->co_next = p->p_held;
		p->p_held = running;
		leave(running);
	}
}

void sim_point(void)
{
	struct sim_proc *p = sim_self();

	if (!p || !p->p_trap || --p->p_trap)
		return;
	if (p->p_on_trap)
		p->p_on_trap(p);
	if (p->p_trap_ns)
		sim_proc_pause(p, p->p_trap_ns);
	else
		sim_proc_kill(p, 137);
}

/* ---- a schedule ---- */

void sim_begin(uint64_t s)
{
	seed(s);
	sim_now = SIM_MS(1000);
	heap_n = 0;
	heap_seq = 0;
	sim_failed = false;
	loaded = NULL;
	running = NULL;
	for (unsigned i = 0; i < SIM_NODES; i++) {
		sim_nodes[i] = (struct sim_node){.n_name = "node"};
		sim_nodes[i].n_boot = (int64_t)(sim_rand() % (1ull << 50));
		sim_nodes[i].n_ppm = (int64_t)sim_below(2001) - 1000;
	}
}

void sim_end(void)
{
	struct co *c;

	sim_mem_drop(NULL);
	sim_fd_reset();
	loaded = NULL;
	while ((c = all)) {
		all = c->co_all;
		c->co_gen++;
		c->co_state = CO_FREE;
		c->co_proc = NULL;
		c->co_all = pool;
		pool = c;
	}
	arena_free();
	for (unsigned i = 0; i < nglobals; i++)
		memcpy(globals[i].g_p, pristine + globals[i].g_at, globals[i].g_n);
}

uint64_t sim_boot(unsigned node)
{
	const struct sim_node *n = &sim_nodes[node];

	return (uint64_t)((int64_t)sim_now + n->n_boot + (int64_t)(sim_now / 1000000) * n->n_ppm);
}
