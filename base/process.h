/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - metrics of the process, under the names that every Prometheus client library uses. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H
/* Makes process_cpu_seconds_total, process_resident_memory_bytes, process_open_fds, process_max_fds
 * and process_start_time_seconds. Call it when the process begins: that is its start time. */
void process_metrics(void);
#endif
