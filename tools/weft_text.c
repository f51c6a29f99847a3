/* SPDX-License-Identifier: Apache-2.0 */
/* weft_text.c - sizes, times, and lines of words. See weft_tool.h. */
#include "tools/weft_tool.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *size_into(char out[SIZE_TEXT], long long bytes)
{
	static const char units[] = "BKMGTPE";
	double v = (double)bytes;
	unsigned u = 0;

	for (; v >= 1024 && u < sizeof(units) - 2; u++)
		v /= 1024;
	snprintf(out, SIZE_TEXT, u && v < 10 ? "%.1f%c" : "%.0f%c", v, units[u]);
	return out;
}

const char *time_into(char out[TIME_TEXT], double seconds)
{
	long s = (long)seconds;

	if (seconds < 60)
		snprintf(out, TIME_TEXT, "%lds", s);
	else if (s < 3600)
		snprintf(out, TIME_TEXT, "%ldm%02lds", s / 60, s % 60);
	else if (s < 172800)
		snprintf(out, TIME_TEXT, "%ldh%02ldm", s / 3600, s / 60 % 60);
	else
		snprintf(out, TIME_TEXT, "%ldd", s / 86400);
	return out;
}

const char *latency_into(char out[TIME_TEXT], long long us)
{
	double v = (double)us;

	if (us <= 0)
		snprintf(out, TIME_TEXT, "-");
	else if (us < 1000)
		snprintf(out, TIME_TEXT, "%lldus", us);
	else if (us < 1000000)
		snprintf(out, TIME_TEXT, us < 9950 ? "%.1fms" : "%.0fms", v / 1e3);
	else
		snprintf(out, TIME_TEXT, us < 9950000 ? "%.1fs" : "%.0fs", v / 1e6);
	return out;
}

void weft_wrap(FILE *f, int width, int column, int indent, const char *text)
{
	bool first = true; /* of this line */

	while (*text) {
		int n = (int)strcspn(text, " ");

		if (!first && column + 1 + n > width) {
			fputc('\n', f);
			column = 0;
			first = true;
		}
		if (first)
			column += fprintf(f, "%*s", column < indent ? indent - column : 0, "");
		else
			column += fprintf(f, " ");
		column += fprintf(f, "%.*s", n, text);
		first = false;
		text += n + (text[n] == ' ');
	}
	fputc('\n', f);
}

void weft_note(int indent, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (!text) {
		fputs("weft: out of memory\n", stderr);
		return;
	}
	/* The first line begins at the left. */
	if (strlen(text) <= (size_t)weft_width())
		puts(text);
	else
		weft_wrap(stdout, weft_width(), indent, indent, text);
	free(text);
}

void weft_wait_step(unsigned step, const char *what)
{
	struct timespec ts = {0, step < 10 ? 50000000 : 500000000};

	if (step && isatty(STDERR_FILENO)) {
		fprintf(stderr, "\r%s\033[K", what);
		fflush(stderr);
	}
	nanosleep(&ts, NULL);
}

void weft_wait_over(void)
{
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
}
