/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c - see trace.h: the rings.
 *
 * A ring outlives its thread, and the next new thread takes it over with its counter, so that ids
 * stay unique. An event's words are stored with release and loaded with acquire. So a reader that
 * got a word of a newer event also sees that the sequence number has changed.
 */
#include "common/trace.h"
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTER_BITS 48

enum { W_NS, W_REQUEST, W_INO, W_KIND, W_VALUE, WORDS = W_VALUE + 3 };

struct slot {
	/* 2n + 1 while the ring's event number n is stored, then 2n + 2 */
	_Atomic uint64_t sl_seq;
	_Atomic uint64_t sl_word[WORDS];
};
_Static_assert(sizeof(struct slot) == 64, "an event is a cache line");

struct ring {
	struct slot *r_slot;
	uint64_t r_n;	    /* events so far; its thread's own */
	uint64_t r_request; /* requests so far; likewise */
	uint64_t r_number;
	uint64_t r_cut; /* of trace_read, with the lock */
	struct ring *r_next;
	bool r_free;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list of rings */
static struct ring *rings;
static uint64_t nrings, mask; /* mask 0: nothing is traced */
static uint64_t run;
static _Thread_local struct ring *mine;
static pthread_key_t exit_key;

static void ring_leave(void *arg)
{
	struct ring *r = arg;

	mine = NULL;
	pthread_mutex_lock(&lock);
	r->r_free = true;
	pthread_mutex_unlock(&lock);
}

void trace_open(unsigned events)
{
	uint64_t size = 2;

	while (size < events)
		size *= 2;
	if (events && pthread_key_create(&exit_key, ring_leave))
		log_fatal("trace: no thread key");
	mask = events ? size - 1 : 0;
	run = clock_of(CLOCK_REALTIME);
}

uint64_t trace_run(void)
{
	return run;
}

/* Without the lock: to clear the memory takes time. */
static struct ring *ring_new(void)
{
	struct ring *r = calloc(1, sizeof(*r));
	struct slot *slots = aligned_alloc(sizeof(*slots), (mask + 1) * sizeof(*slots));

	if (!r || !slots)
		log_fatal("out of memory for traces");
	memset(slots, 0, (mask + 1) * sizeof(*slots));
	r->r_slot = slots;
	return r;
}

/* Takes a ring whose thread has ended, if there is one. */
static struct ring *ring_left(void)
{
	struct ring *r;

	pthread_mutex_lock(&lock);
	for (r = rings; r && !r->r_free; r = r->r_next)
		;
	if (r)
		r->r_free = false;
	pthread_mutex_unlock(&lock);
	return r;
}

static void ring_add(struct ring *r)
{
	pthread_mutex_lock(&lock);
	r->r_number = ++nrings;
	r->r_next = rings;
	rings = r;
	pthread_mutex_unlock(&lock);
}

static __attribute__((noinline, cold)) struct ring *ring_take(void)
{
	struct ring *r = ring_left();

	if (!r) {
		r = ring_new();
		ring_add(r);
	}
	pthread_setspecific(exit_key, r);
	return mine = r;
}

static void word_put(struct slot *s, unsigned w, uint64_t v)
{
	atomic_store_explicit(&s->sl_word[w], v, memory_order_release);
}

/* The first event of a thread. Apart, so that trace_put saves no registers. */
static __attribute__((noinline, cold)) void
put_first(enum trace_kind kind, uint64_t now_ns, uint64_t ino, uint64_t a, uint64_t b, uint64_t c)
{
	if (!mask)
		return;
	ring_take();
	trace_put(kind, now_ns, ino, a, b, c);
}

void trace_put(enum trace_kind kind, uint64_t now_ns, uint64_t ino, uint64_t a, uint64_t b,
	       uint64_t c)
{
	struct ring *r = mine;
	struct slot *s;
	uint64_t n;

	if (!r) {
		put_first(kind, now_ns, ino, a, b, c);
		return;
	}
	n = r->r_n++;
	s = &r->r_slot[n & mask];
	atomic_store_explicit(&s->sl_seq, 2 * n + 1, memory_order_relaxed);
	word_put(s, W_NS, now_ns);
	word_put(s, W_REQUEST, log_request);
	word_put(s, W_INO, ino);
	word_put(s, W_KIND, kind);
	word_put(s, W_VALUE, a);
	word_put(s, W_VALUE + 1, b);
	word_put(s, W_VALUE + 2, c);
	atomic_store_explicit(&s->sl_seq, 2 * n + 2, memory_order_release);
}

uint64_t trace_request(void)
{
	struct ring *r;

	if (!mask)
		return 0;
	r = mine ? mine : ring_take();
	return r->r_number << COUNTER_BITS | ++r->r_request;
}

uint16_t trace_address(const struct sockaddr_storage *ss, uint64_t out[2])
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
	const struct sockaddr_in *in = (const struct sockaddr_in *)ss;

	out[0] = out[1] = 0;
	if (ss->ss_family == AF_INET) {
		out[1] = UINT64_C(0xffff) << 32 | ntohl(in->sin_addr.s_addr);
		return ntohs(in->sin_port);
	}
	if (ss->ss_family != AF_INET6)
		return 0;
	memcpy(out, &in6->sin6_addr, 16);
	out[0] = be64toh(out[0]);
	out[1] = be64toh(out[1]);
	return ntohs(in6->sin6_port);
}

/* ---- reading ---- */

/* The newest event that is stored. All before it are stored too, as the ring has one writer. */
static uint64_t ring_newest(const struct ring *r)
{
	uint64_t newest = 0;

	for (uint64_t i = 0; i <= mask; i++) {
		uint64_t seq = atomic_load_explicit(&r->r_slot[i].sl_seq, memory_order_acquire);

		if (!(seq & 1) && seq > newest)
			newest = seq;
	}
	return newest;
}

/*
 * Events are read from all rings after the cuts of all rings. What a thread stored before it passed
 * a request on was therefore stored when its ring is read, if the request_end of the other thread
 * is before the cut. Of a request_end after the cut that does not hold: it is left to the next
 * reader, who sees that it is behind the cut.
 */
static bool slot_read(const struct ring *r, uint64_t i, struct trace_event *e)
{
	struct slot *s = &r->r_slot[i];
	uint64_t seq = atomic_load_explicit(&s->sl_seq, memory_order_acquire), w[WORDS];

	if (!seq || seq & 1)
		return false;
	for (unsigned k = 0; k < WORDS; k++)
		w[k] = atomic_load_explicit(&s->sl_word[k], memory_order_acquire);
	if (atomic_load_explicit(&s->sl_seq, memory_order_relaxed) != seq)
		return false;
	if (seq > r->r_cut && w[W_KIND] == TRACE_request_end)
		return false;
	*e = (struct trace_event){
		.te_ns = w[W_NS],
		.te_request = w[W_REQUEST],
		.te_ino = w[W_INO],
		.te_v = {w[W_VALUE], w[W_VALUE + 1], w[W_VALUE + 2]},
		.te_seq = seq,
		.te_kind = (uint32_t)w[W_KIND],
		.te_thread = (uint32_t)r->r_number,
		.te_late = seq > r->r_cut,
	};
	return true;
}

/* A request's start goes first, whatever its time: that is the one of the loop's turn. */
static int order_of(const struct trace_event *a, const struct trace_event *b)
{
	bool sa = a->te_kind == TRACE_request_start, sb = b->te_kind == TRACE_request_start;

	if (a->te_request != b->te_request)
		return a->te_request < b->te_request ? -1 : 1;
	if (sa != sb)
		return sa ? -1 : 1;
	if (a->te_ns != b->te_ns)
		return a->te_ns < b->te_ns ? -1 : 1;
	if (a->te_thread != b->te_thread)
		return a->te_thread < b->te_thread ? -1 : 1;
	return a->te_seq < b->te_seq ? -1 : a->te_seq > b->te_seq;
}

static int by_order(const void *a, const void *b)
{
	return order_of(a, b);
}

int trace_read(struct trace_event **out, size_t *n)
{
	struct trace_event *e;

	*n = 0;
	pthread_mutex_lock(&lock);
	*out = e = malloc((nrings * (mask + 1) + 1) * sizeof(*e));
	for (struct ring *r = rings; e && r; r = r->r_next)
		r->r_cut = ring_newest(r);
	for (struct ring *r = rings; e && r; r = r->r_next)
		for (uint64_t i = 0; i <= mask; i++)
			*n += slot_read(r, i, &e[*n]);
	pthread_mutex_unlock(&lock);
	if (!e)
		return -ENOMEM;
	qsort(e, *n, sizeof(*e), by_order);
	return 0;
}

/* ---- names ---- */

const char *trace_kind_name(enum trace_kind kind)
{
#define TRACE_NAME(kind) #kind,
	static const char *const names[] = {"none", TRACE_KINDS(TRACE_NAME)};

	return kind < TRACE_KINDS_END ? names[kind] : names[0];
}

const char *trace_id_text(char out[TRACE_ID_TEXT], uint64_t request)
{
	snprintf(out, TRACE_ID_TEXT, LOG_REQUEST_FORMAT, LOG_REQUEST_ARGS(request));
	return out;
}

uint64_t trace_id_parse(const char *text)
{
	unsigned long long n;
	unsigned ring;
	char end;

	if (sscanf(text, "%5u.%15llu%c", &ring, &n, &end) != 2 || !ring || ring > UINT16_MAX ||
	    !n || n >> COUNTER_BITS)
		return 0;
	return (uint64_t)ring << COUNTER_BITS | n;
}
