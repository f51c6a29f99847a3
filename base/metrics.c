/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.c - see metrics.h.
 *
 * A metric is a run of cell numbers. Each thread has a block of cells that only it writes. Reading
 * sums over all blocks. A block outlives its thread, so that its counts stay true, and the next new
 * thread takes it over.
 */
#include "base/metrics.h"
#include "base/histo.h"
#include "base/log.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK  1024u /* cells */
#define CHUNKS 256u
/* Two steps for each power of two: le 1 us, 2, 3, 4, 6, 8, 12 ... 2^26 us (67 s); then +Inf. */
#define STEP_BITS 1u
#define BUCKETS	  52u
/* Coarse: 2^6 us (64 us), 2^8 ... 2^26 us. */
#define COARSE_FIRST 6u
#define COARSE_STEP  2u

struct block {
	_Atomic(_Atomic uint64_t *) b_chunk[CHUNKS];
	struct block *b_next;
	bool b_free;
};

enum metric_type { M_COUNTER, M_HISTOGRAM, M_GAUGE };
static const char *const type_names[] = {"counter", "histogram", "gauge"};

struct metric {
	uint32_t
		m_cell; /* the first; histogram: BUCKETS + 1 counts, then the sum of microseconds */
	char *m_labels;
	double (*m_fn)(void *arg);
	void *m_arg;
	struct metric *m_next;
};

/* Series of one name stand together in the text. */
struct family {
	char *f_name, *f_help;
	enum metric_type f_type;
	bool f_coarse;
	void (*f_fn)(struct metric_out *o, void *arg); /* puts the series; NULL: f_first has them */
	void *f_arg;
	struct metric *f_first, **f_end;
	struct family *f_next;
};

struct before {
	void (*be_fn)(void *arg);
	void *be_arg;
	struct before *be_next;
};

struct metric_out {
	FILE *mo_file;
	const char *mo_name;
};

/* lock guards the lists and the blocks. No function of others is called under it, because they take
 * locks under which a thread may count for the first time. rendering: one rendering at a time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t rendering = PTHREAD_MUTEX_INITIALIZER;
static struct family *families, **families_end = &families;
static struct before *before_first;
static struct block *blocks;
static uint32_t ncells;
static _Thread_local struct block *mine;
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

static void *must(void *p)
{
	if (!p)
		log_fatal("metrics: out of memory");
	return p;
}

/* ---- cells ---- */

static void block_leave(void *arg)
{
	struct block *b = arg;

	pthread_mutex_lock(&lock);
	b->b_free = true;
	pthread_mutex_unlock(&lock);
}

static void exit_key_make(void)
{
	if (pthread_key_create(&exit_key, block_leave))
		log_fatal("metrics: no thread key");
}

static struct block *block_take(void)
{
	struct block *b;

	pthread_once(&exit_once, exit_key_make);
	pthread_mutex_lock(&lock);
	for (b = blocks; b && !b->b_free; b = b->b_next)
		;
	if (!b) {
		b = must(calloc(1, sizeof *b));
		b->b_next = blocks;
		blocks = b;
	}
	b->b_free = false;
	pthread_mutex_unlock(&lock);
	pthread_setspecific(exit_key, b);
	return mine = b;
}

static void cell_add(uint32_t cell, uint64_t n)
{
	struct block *b = mine ? mine : block_take();
	_Atomic uint64_t *c = atomic_load_explicit(&b->b_chunk[cell / CHUNK], memory_order_relaxed);

	if (!c) {
		c = must(calloc(CHUNK, sizeof *c));
		atomic_store_explicit(&b->b_chunk[cell / CHUNK], c, memory_order_release);
	}
	c += cell % CHUNK;
	/* One writer: no locked instruction. */
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static uint64_t cell_sum(uint32_t cell)
{
	uint64_t sum = 0;

	pthread_mutex_lock(&lock);
	for (struct block *b = blocks; b; b = b->b_next) {
		_Atomic uint64_t *c =
			atomic_load_explicit(&b->b_chunk[cell / CHUNK], memory_order_acquire);

		if (c)
			sum += atomic_load_explicit(c + cell % CHUNK, memory_order_relaxed);
	}
	pthread_mutex_unlock(&lock);
	return sum;
}

/* ---- making ---- */

static struct family *family_get(const char *name, const char *help, enum metric_type type)
{
	struct family *f;

	for (f = families; f; f = f->f_next)
		if (!strcmp(f->f_name, name)) {
			if (f->f_type != type)
				log_fatal("metrics: %s is defined twice with different types",
					  name);
			return f;
		}
	f = must(calloc(1, sizeof *f));
	f->f_name = must(strdup(name));
	f->f_help = must(strdup(help));
	f->f_type = type;
	f->f_end = &f->f_first;
	*families_end = f;
	families_end = &f->f_next;
	return f;
}

/* The same name and labels again give the same metric. */
static struct metric *metric_make(const char *name, const char *help, const char *labels,
				  enum metric_type type, uint32_t cells)
{
	struct metric *m;
	struct family *f;

	pthread_mutex_lock(&lock);
	f = family_get(name, help, type);
	for (m = f->f_first; m; m = m->m_next)
		if (!strcmp(m->m_labels, labels))
			goto out;
	m = must(calloc(1, sizeof *m));
	m->m_labels = must(strdup(labels));
	m->m_cell = ncells;
	ncells += cells;
	if (ncells > CHUNK * CHUNKS)
		log_fatal("metrics: too many series");
	*f->f_end = m;
	f->f_end = &m->m_next;
out:
	pthread_mutex_unlock(&lock);
	return m;
}

struct metric *metric_counter(const char *name, const char *help, const char *labels)
{
	return metric_make(name, help, labels, M_COUNTER, 1);
}

struct metric *metric_histogram(const char *name, const char *help, const char *labels)
{
	return metric_make(name, help, labels, M_HISTOGRAM, BUCKETS + 2);
}

struct metric *metric_histogram_coarse(const char *name, const char *help, const char *labels)
{
	struct metric *m = metric_histogram(name, help, labels);

	pthread_mutex_lock(&lock);
	family_get(name, help, M_HISTOGRAM)->f_coarse = true;
	pthread_mutex_unlock(&lock);
	return m;
}

static void metric_read(struct metric *m, double (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&lock);
	m->m_fn = fn;
	m->m_arg = arg;
	pthread_mutex_unlock(&lock);
}

void metric_gauge(const char *name, const char *help, const char *labels, double (*fn)(void *arg),
		  void *arg)
{
	metric_read(metric_make(name, help, labels, M_GAUGE, 0), fn, arg);
}

void metric_counter_of(const char *name, const char *help, const char *labels,
		       double (*fn)(void *arg), void *arg)
{
	metric_read(metric_make(name, help, labels, M_COUNTER, 1), fn, arg);
}

static size_t metrics_stem(const char *name)
{
	size_t len = strlen(name);

	return len > 6 && !strcmp(name + len - 6, "_total") ? len - 6 : len;
}

void metric_family(const char *name, const char *help, void (*fn)(struct metric_out *o, void *arg),
		   void *arg)
{
	struct family *f;

	pthread_mutex_lock(&lock);
	f = family_get(name, help, name[metrics_stem(name)] ? M_COUNTER : M_GAUGE);
	f->f_fn = fn;
	f->f_arg = arg;
	pthread_mutex_unlock(&lock);
}

void metric_before(void (*fn)(void *arg), void *arg)
{
	struct before *be = must(calloc(1, sizeof(*be)));

	be->be_fn = fn;
	be->be_arg = arg;
	pthread_mutex_lock(&lock);
	be->be_next = before_first;
	before_first = be;
	pthread_mutex_unlock(&lock);
}

/* ---- using ---- */

void metric_add(struct metric *m, uint64_t n)
{
	cell_add(m->m_cell, n);
}

void metric_observe_us(struct metric *m, uint64_t us)
{
	/* an upper bound belongs to its bucket */
	uint32_t b = histo_bucket(us ? us - 1 : 0, STEP_BITS);

	cell_add(m->m_cell + (b < BUCKETS ? b : BUCKETS), 1);
	cell_add(m->m_cell + BUCKETS + 1, us);
}

/* Returns a counter's value, or that of a histogram's first bucket. */
uint64_t metric_value(const struct metric *m)
{
	return cell_sum(m->m_cell);
}

uint64_t metric_sum_us(const struct metric *m)
{
	return cell_sum(m->m_cell + BUCKETS + 1);
}

/* ---- rendering (OpenMetrics 1.0, and the text format 0.0.4) ---- */

static void put_series(FILE *o, const char *name, const char *suffix, const char *labels)
{
	fprintf(o, "%s%s", name, suffix);
	if (*labels)
		fprintf(o, "{%s}", labels);
	putc(' ', o);
}

static void put_value(FILE *o, double v)
{
	if (v >= 0 && v < 9e15 && v == (double)(uint64_t)v)
		fprintf(o, "%llu\n", (unsigned long long)v);
	else
		fprintf(o, "%.15g\n", v);
}

void metric_put(struct metric_out *o, const char *labels, double value)
{
	put_series(o->mo_file, o->mo_name, "", labels);
	put_value(o->mo_file, value);
}

size_t metric_label(char *out, size_t size, const char *name, const char *value)
{
	size_t n = (size_t)snprintf(out, size, "%s=\"", name);

	for (; *value && n + 3 < size; value++)
		out[n++] = *value < ' ' || *value > '~' || strchr("\\\"", *value) ? '?' : *value;
	out[n++] = '"';
	out[n] = 0;
	return n;
}

static bool bucket_shown(const struct family *f, uint32_t i)
{
	uint64_t le = histo_upper(i, STEP_BITS) + 1;
	unsigned log2 = 63 - (unsigned)__builtin_clzll(le);

	if (!f->f_coarse || i == BUCKETS)
		return true;
	return !(le & (le - 1)) && log2 >= COARSE_FIRST && log2 % COARSE_STEP == 0;
}

static void render_histogram(FILE *o, const struct family *f, const struct metric *m)
{
	const char *comma = *m->m_labels ? "," : "", *name = f->f_name;
	uint64_t count = 0, sum = cell_sum(m->m_cell + BUCKETS + 1);

	for (uint32_t i = 0; i <= BUCKETS; i++) {
		count += cell_sum(m->m_cell + i);
		if (!bucket_shown(f, i))
			continue;
		fprintf(o, "%s_bucket{%s%sle=\"", name, m->m_labels, comma);
		if (i < BUCKETS)
			fprintf(o, "%.9g", (double)(histo_upper(i, STEP_BITS) + 1) / 1e6);
		else
			fputs("+Inf", o);
		fprintf(o, "\"} %llu\n", (unsigned long long)count);
	}
	put_series(o, name, "_count", m->m_labels);
	fprintf(o, "%llu\n", (unsigned long long)count);
	put_series(o, name, "_sum", m->m_labels);
	fprintf(o, "%llu.%06llu\n", (unsigned long long)(sum / 1000000),
		(unsigned long long)(sum % 1000000));
}

/* Only OpenMetrics escapes the quote. */
static void render_help(FILE *o, const char *name, size_t len, const char *help, bool plain)
{
	fprintf(o, "# HELP %.*s ", (int)len, name);
	for (; *help; help++) {
		if (*help == '\\' || (*help == '"' && !plain))
			putc('\\', o);
		if (*help == '\n')
			fputs("\\n", o);
		else
			putc(*help, o);
	}
	putc('\n', o);
}

static struct metric *metric_after(struct metric *const *next)
{
	struct metric *m;

	pthread_mutex_lock(&lock);
	m = *next;
	pthread_mutex_unlock(&lock);
	return m;
}

static struct family *family_after(struct family *const *next)
{
	struct family *f;

	pthread_mutex_lock(&lock);
	f = *next;
	pthread_mutex_unlock(&lock);
	return f;
}

static void render_family(FILE *o, const struct family *f, bool plain)
{
	struct metric_out out = {o, f->f_name};
	/* In OpenMetrics the metric is x, its sample x_total. */
	size_t len = f->f_type == M_COUNTER && !plain ? metrics_stem(f->f_name) : strlen(f->f_name);

	fprintf(o, "# TYPE %.*s %s\n", (int)len, f->f_name, type_names[f->f_type]);
	render_help(o, f->f_name, len, f->f_help, plain);
	if (f->f_fn)
		f->f_fn(&out, f->f_arg);
	for (const struct metric *m = metric_after(&f->f_first); m; m = metric_after(&m->m_next)) {
		if (f->f_type == M_HISTOGRAM)
			render_histogram(o, f, m);
		else if (m->m_fn)
			metric_put(&out, m->m_labels, m->m_fn(m->m_arg));
		else
			metric_put(&out, m->m_labels,
				   f->f_type == M_COUNTER ? (double)cell_sum(m->m_cell) : 0);
	}
}

static char *metrics_text(bool plain)
{
	char *text = NULL;
	size_t len;
	FILE *o = must(open_memstream(&text, &len));
	struct before *be;

	pthread_mutex_lock(&rendering);
	pthread_mutex_lock(&lock);
	be = before_first;
	pthread_mutex_unlock(&lock);
	for (; be; be = be->be_next)
		be->be_fn(be->be_arg);
	for (const struct family *f = family_after(&families); f; f = family_after(&f->f_next))
		render_family(o, f, plain);
	pthread_mutex_unlock(&rendering);
	if (!plain)
		fputs("# EOF\n", o);
	if (fclose(o))
		log_fatal("metrics: out of memory");
	return text;
}

char *metrics_render(void)
{
	return metrics_text(false);
}

char *metrics_render_plain(void)
{
	return metrics_text(true);
}
