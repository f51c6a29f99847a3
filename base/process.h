/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - metrics of the process, under the names that every Prometheus client library uses;
 * and its limit of open files. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H
/* Makes process_cpu_seconds_total, process_resident_memory_bytes, process_open_fds, process_max_fds
 * and process_start_time_seconds. Call it when the process begins: that is its start time. */
void process_metrics(void);
/* Each client has a connection or more: asks for as many files as the system allows. */
void process_files(void);
#endif
