/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - one line per event, to stderr: "LEVEL component: text". Where journald reads stderr, the
 * line begins with its priority, "<4>WARN component: text". */
#ifndef BASE_LOG_H
#define BASE_LOG_H
#include <stdbool.h>
#include <stdint.h>
enum log_level { LOG_L_ERROR, LOG_L_WARN, LOG_L_INFO, LOG_L_DEBUG };
/* Messages above level are not written. Default LOG_L_INFO. */
void log_set_level(enum log_level level);
/* name: error, warn, info or debug; false: none of these. */
bool log_set_level_name(const char *name);
/* Call it first: it also looks whether journald reads stderr. */
void log_set_name(const char *program);
void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_msg(LOG_L_ERROR, __VA_ARGS__)
#define log_warn(...)  log_msg(LOG_L_WARN, __VA_ARGS__)
#define log_info(...)  log_msg(LOG_L_INFO, __VA_ARGS__)
#define log_debug(...) log_msg(LOG_L_DEBUG, __VA_ARGS__)
/* The request for which the thread works at the moment, or 0: its lines end with it. The number of
 * the thread's ring of traces and a counter: "3.4711". */
extern _Thread_local uint64_t log_request;
#define LOG_REQUEST_FORMAT "%u.%llu"
#define LOG_REQUEST_ARGS(r)                                                                        \
	(unsigned)((r) >> 48), (unsigned long long)((r) & ((UINT64_C(1) << 48) - 1))
/* For lines that peers or a broken disk can cause as often as they like: true once a second for
 * each last, which starts as 0. Any thread. */
bool log_due(_Atomic uint64_t *last);
/* From now on the program logs a signal that ends it for a fault of its own (SIGSEGV, SIGBUS,
 * SIGILL, SIGFPE, SIGABRT), with the place: offsets into the program for addr2line(1). It does
 * nothing where a sanitizer does that, nor for a stack overflow. Call before there are threads. */
void log_faults(void);
/* Logs and ends the process (abort): only where going on would lose data. */
void log_fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
#endif
