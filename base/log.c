/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - see log.h. A line is built on the stack and written by one write(), so that lines of
 * threads never mix. */
#include "base/log.h"
#include "base/clock.h"
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_LINE    1024
#define LOG_REQUEST 40 /* of them for the request's id */
/* The bytes of "<6>": sd-daemon(3). */
#define LOG_PRIORITY 3

static _Atomic int log_level = LOG_L_INFO;
static char log_name[32] = PACKAGE_TARNAME;
static bool log_journal; /* journald reads stderr: lines begin with their priority */
_Thread_local uint64_t log_request;

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

bool log_set_level_name(const char *name)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], name) == 0) {
			log_set_level((enum log_level)i);
			return true;
		}
	}
	return false;
}

/* systemd names the device and the inode of the stream that it gave to the program. */
static bool to_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
	       !fstat(STDERR_FILENO, &st) && st.st_dev == dev && st.st_ino == ino;
}

void log_set_name(const char *program)
{
	snprintf(log_name, sizeof log_name, "%s", program);
	log_journal = to_journal();
}

static void log_write(const char *level, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));

/* level begins with its priority, "<6>INFO". */
static void log_write(const char *level, const char *fmt, va_list ap)
{
	char line[LOG_LINE];
	int at = snprintf(line, sizeof line - 1,
			  "%s %s: ", log_journal ? level : level + LOG_PRIORITY, log_name);
	int n = vsnprintf(line + at, sizeof line - 1 - LOG_REQUEST - (size_t)at, fmt, ap);
	size_t len = (size_t)at;

	if (n > 0)
		len += strlen(line + at);
	/* Texts may hold names from the network: a line stays one line. */
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	if (log_request)
		len += (size_t)snprintf(line + len, LOG_REQUEST,
					" [request " LOG_REQUEST_FORMAT "]",
					LOG_REQUEST_ARGS(log_request));
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		return; /* there is nowhere else to report it */
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = {"<3>ERROR", "<4>WARN", "<6>INFO", "<7>DEBUG"};
	va_list ap;

	if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	log_write(names[level], fmt, ap);
	va_end(ap);
}

bool log_due(_Atomic uint64_t *last)
{
	uint64_t now = clock_mono_ns() / 1000000000 + 1;

	return atomic_exchange(last, now) != now;
}

void log_fatal(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_write("<2>FATAL", fmt, ap);
	va_end(ap);
	abort();
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void log_faults(void)
{
}
#else
#define FAULT_FRAMES 48

/* Calls only what may be called in a signal handler. It returns to the instruction that failed, or
 * to abort(): these end the program now that the handler is gone. A signal from another process is
 * raised again. */
static void fault(int signo, siginfo_t *info, void *context)
{
	static const char *const names[] = {[SIGSEGV] = "SIGSEGV",
					    [SIGBUS] = "SIGBUS",
					    [SIGILL] = "SIGILL",
					    [SIGFPE] = "SIGFPE",
					    [SIGABRT] = "SIGABRT"};
	const char *const text[] = {
		log_journal ? "<2>FATAL " : "FATAL ", log_name, ": ended by ", names[signo],
		info->si_code > 0 ? ", its own fault, at:\n" : ", sent or raised, at:\n"};
	void *frames[FAULT_FRAMES];
	char line[128];
	size_t len = 0;

	(void)context;
	for (unsigned i = 0; i < sizeof(text) / sizeof(text[0]); i++)
		for (const char *p = text[i]; *p && len < sizeof(line); p++)
			line[len++] = *p;
	if (write(STDERR_FILENO, line, len) == (ssize_t)len)
		backtrace_symbols_fd(frames, backtrace(frames, FAULT_FRAMES), STDERR_FILENO);
	if (info->si_code <= 0)
		raise(signo);
}

void log_faults(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	struct sigaction how = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND};
	void *frame;

	backtrace(&frame, 1); /* The first call loads a library, which a handler must not do. */
	for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &how, NULL);
}
#endif
