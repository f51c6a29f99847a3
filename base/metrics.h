/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - counters, gauges and latency histograms, served as text (OpenMetrics, or the text
 * format of Prometheus).
 *
 * A counter has a cell per thread, so adding writes no line that another thread writes. Metrics are
 * made at start and live as long as the process. Every series is rendered from the start, with 0,
 * except those of metric_family.
 *
 * Functions that read values when they are rendered run on the thread that renders, without a lock
 * of this file but the one that keeps renderings apart. They may take locks under which others
 * count.
 */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
struct metric;
/* name: the full name of the series, with _total ("x_op_total"); labels: the text between the
 * braces (op="READ") or "" for none. Copies the strings. Never fails (ends the process without
 * memory). */
struct metric *metric_counter(const char *name, const char *help, const char *labels);
/* A histogram of microseconds, two buckets for each power of two (histo.h). The name is in the base
 * unit, seconds ("x_op_seconds"). */
struct metric *metric_histogram(const char *name, const char *help, const char *labels);
/* The same, with a bucket for each power of four only, from 64 us to 67 s: for a name with many
 * series. */
struct metric *metric_histogram_coarse(const char *name, const char *help, const char *labels);
/* A gauge; fn(arg) reads it when it is rendered. */
void metric_gauge(const char *name, const char *help, const char *labels, double (*fn)(void *arg),
		  void *arg);
/* A counter that is kept elsewhere. */
void metric_counter_of(const char *name, const char *help, const char *labels,
		       double (*fn)(void *arg), void *arg);
/* A gauge, or with _total in its name a counter, whose series are not known before it is rendered:
 * fn puts each of them. */
struct metric_out;
void metric_family(const char *name, const char *help, void (*fn)(struct metric_out *o, void *arg),
		   void *arg);
void metric_put(struct metric_out *o, const char *labels, double value);
/* Writes name="value" into out, which other labels may follow; cuts a long value. Characters that
 * the format does not allow become '?'. Returns its length. */
size_t metric_label(char *out, size_t size, const char *name, const char *value);
/* fn is called before each rendering, so that what it looks up serves several families. */
void metric_before(void (*fn)(void *arg), void *arg);
/* Any thread, as the three below. */
void metric_add(struct metric *m, uint64_t n);
void metric_observe_us(struct metric *m, uint64_t us);
uint64_t metric_value(const struct metric *m);
/* The sum of a histogram's observations in microseconds. */
uint64_t metric_sum_us(const struct metric *m);
/* OpenMetrics text of all metrics, ending in "# EOF\n"; malloc'd, the caller frees it. */
char *metrics_render(void);
/* The same in version 0.0.4 of the text format of Prometheus. */
char *metrics_render_plain(void);
#endif
