/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.h - counters, gauges and latency histograms, served as OpenMetrics text.
 *
 * A counter has a cell per thread, so adding writes no line that another thread writes. All metrics
 * are made at start, before other threads run, and live as long as the process. Every series is
 * rendered from the start, with 0.
 */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H
#include <stdint.h>
struct metric;
/* name: the full name of the series, with _total ("weft_ds_op_total"); labels: the text between the
 * braces (op="READ") or "" for none. Copies the strings. Never fails (ends the process without
 * memory). */
struct metric *metric_counter(const char *name, const char *help, const char *labels);
/* A histogram of microseconds, two buckets for each power of two (histo.h). The name is in the base
 * unit, seconds ("weft_mds_op_seconds"). */
struct metric *metric_histogram(const char *name, const char *help, const char *labels);
/* A gauge; fn(arg) reads it when it is rendered, on the HTTP thread. */
void metric_gauge(const char *name, const char *help, const char *labels, double (*fn)(void *arg),
		  void *arg);
/* Any thread, as the three below. */
void metric_add(struct metric *m, uint64_t n);
void metric_observe_us(struct metric *m, uint64_t us);
uint64_t metric_value(const struct metric *m);
/* The sum of a histogram's observations in microseconds. */
uint64_t metric_sum_us(const struct metric *m);
/* OpenMetrics text of all metrics, ending in "# EOF\n"; malloc'd, the caller frees it. */
char *metrics_render(void);
#endif
