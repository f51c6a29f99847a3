/* SPDX-License-Identifier: Apache-2.0 */
/* weft_table.c - columns, times and waiting. See weft.h. */
#include "tools/weft.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void weft_table_add(struct table *t, char *cell)
{
	if (t->t_n == t->t_max) {
		unsigned max = t->t_max ? 2 * t->t_max : 64;
		char **more = realloc(t->t_cell, max * sizeof(*more));

		if (!more) {
			free(cell);
			t->t_failed = true;
			return;
		}
		t->t_cell = more;
		t->t_max = max;
	}
	t->t_failed |= !cell;
	t->t_cell[t->t_n++] = cell;
}

void table_cell(struct table *t, const char *fmt, ...)
{
	char *cell = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&cell, fmt, ap) < 0)
		cell = NULL;
	va_end(ap);
	weft_table_add(t, cell);
}

void table_heads(struct table *t, const char *heads)
{
	while (*heads) {
		size_t n = strcspn(heads, " ");

		weft_table_add(t, strndup(heads, n));
		heads += n + (heads[n] == ' ');
		t->t_columns++;
	}
}

/* How many columns a UTF-8 text takes; wide letters count as one. */
static size_t width(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

static void print_cell(const char *s, size_t wide, bool right, bool last)
{
	int pad = (int)(wide - width(s));

	if (right)
		printf("%*s%s", pad, "", s);
	else if (last)
		fputs(s, stdout);
	else
		printf("%s%*s", s, pad, "");
	fputs(last ? "\n" : "  ", stdout);
}

void table_end(struct table *t, const char *right)
{
	size_t wide[32] = {0};

	if (t->t_failed || t->t_columns > 32)
		fputs("weft: out of memory\n", stderr);
	for (unsigned i = 0; !t->t_failed && i < t->t_n; i++)
		if (width(t->t_cell[i]) > wide[i % t->t_columns])
			wide[i % t->t_columns] = width(t->t_cell[i]);
	for (unsigned i = 0; !t->t_failed && i < t->t_n; i++) {
		unsigned c = i % t->t_columns;

		print_cell(t->t_cell[i], wide[c], c < strlen(right) && right[c] == 'r',
			   c == t->t_columns - 1);
	}
	for (unsigned i = 0; i < t->t_n; i++)
		free(t->t_cell[i]);
	free(t->t_cell);
	*t = (struct table){0};
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
