/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_table.c - tables, by libsmartcols. See weft_tool.h. Which columns a table has, and how wide
 * they may be, is decided here: the library would cut each column that may be cut to its head
 * before it shortens another one, and marks no cut.
 */
#include "tools/weft_tool.h"
#include <libsmartcols.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

static const char *mark = "~"; /* of a cut */

void weft_locale(void)
{
	setlocale(LC_CTYPE, "");
	if (MB_CUR_MAX > 1)
		mark = "\u2026";
	else /* names are UTF-8 all the same (RFC 8881, section 14) */
		setlocale(LC_CTYPE, "C.UTF-8");
}

/* A column is not cut to less than NARROW while another one may give more; LEAST is the end. */
enum { NARROW = 8, LEAST = 3, READABLE = 24 };

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

/* Copies a text; what could control a terminal, and what is no text, becomes \xNN. */
static char *plain(const char *s)
{
	char *out = malloc(4 * strlen(s) + 1), *p = out;
	mbstate_t state = {0};

	while (out && *s) {
		wchar_t w;
		size_t n = mbrtowc(&w, s, strlen(s), &state);

		if (n <= MB_CUR_MAX && iswprint((wint_t)w)) {
			memcpy(p, s, n);
			p += n;
			s += n;
			continue;
		}
		state = (mbstate_t){0};
		p += sprintf(p, "\\x%02x", (unsigned char)*s++);
	}
	if (out)
		*p = 0;
	return out;
}

void table_cell(struct table *t, const char *fmt, ...)
{
	char *cell = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&cell, fmt, ap) < 0)
		cell = NULL;
	va_end(ap);
	weft_table_add(t, cell ? plain(cell) : NULL);
	free(cell);
}

void table_words(struct table *t, const json_t *list)
{
	char *text = NULL;
	size_t i, len;
	json_t *w;
	FILE *f = open_memstream(&text, &len);

	if (!f) {
		t->t_failed = true;
		return;
	}
	json_array_foreach(list, i, w)
		fprintf(f, "%s%s", i ? "," : "", json_is_string(w) ? json_string_value(w) : "?");
	fclose(f);
	table_cell(t, "%s", text && *text ? text : "-");
	free(text);
}

void table_labels(struct table *t, const json_t *labels)
{
	const char *key, *sep = "";
	char *text = NULL;
	size_t len;
	json_t *v;
	FILE *f = open_memstream(&text, &len);

	if (!f) {
		t->t_failed = true;
		return;
	}
	json_object_foreach((json_t *)labels, key, v)
	{
		fprintf(f, "%s%s=%s", sep, key, json_is_string(v) ? json_string_value(v) : "?");
		sep = ",";
	}
	fclose(f);
	table_cell(t, "%s", text && *text ? text : "-");
	free(text);
}

void table_number(struct table *t, const json_t *o, const char *key)
{
	if (json_is_integer(json_object_get(o, key)))
		table_cell(t, "%lld", j_num(o, key));
	else
		table_cell(t, "-");
}

void table_path(struct table *t, const json_t *o)
{
	if (json_is_string(json_object_get(o, "path")))
		table_cell(t, "%s", j_str(o, "path"));
	else
		table_cell(t, "inode %lld", j_num(o, "inode"));
}

void table_begin(struct table *t, const struct column *columns)
{
	*t = (struct table){.t_columns = columns};
	while (t->t_ncolumns < COLUMNS_MAX && columns[t->t_ncolumns].co_name)
		t->t_ncolumns++;
}

/* ---- which columns, and how wide ---- */

struct shown {
	unsigned s_n, s_column[COLUMNS_MAX];
	int s_wide[COLUMNS_MAX]; /* of all columns */
};

/* How many columns of a terminal a text takes. */
static int width(const char *s)
{
	mbstate_t state = {0};
	int n = 0;

	while (*s) {
		wchar_t w;
		size_t len = mbrtowc(&w, s, strlen(s), &state);

		if (!len || len > MB_CUR_MAX)
			return n + (int)strlen(s);
		n += wcwidth(w) > 0 ? wcwidth(w) : 0;
		s += len;
	}
	return n;
}

int weft_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize ws;
	int n = columns ? atoi(columns) : 0;

	if (n > 0)
		return n < LEAST ? LEAST : n;
	if (isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) && ws.ws_col)
		return ws.ws_col;
	return WIDTH_DEFAULT;
}

/* Returns 0 where a line may have any width. */
static int limit(void)
{
	if (weft_option("columns") && !isatty(STDOUT_FILENO) && !getenv("COLUMNS"))
		return 0;
	return weft_width();
}

static void measure(const struct table *t, struct shown *s, bool *filled)
{
	for (unsigned c = 0; c < t->t_ncolumns; c++)
		s->s_wide[c] = width(t->t_columns[c].co_name);
	for (unsigned i = 0; i < t->t_n; i++) {
		unsigned c = i % t->t_ncolumns;
		int n = width(t->t_cell[i]);

		filled[c] |= strcmp(t->t_cell[i], "-") != 0;
		if (n > s->s_wide[c])
			s->s_wide[c] = n;
	}
}

static void table_show(struct shown *s, unsigned column)
{
	for (unsigned i = 0; i < s->s_n; i++)
		if (s->s_column[i] == column)
			return;
	s->s_column[s->s_n++] = column;
}

/* Adds those that --columns names; a command may have several tables, and a name is one of some of
 * them. */
static void show_picked(const struct table *t, struct shown *s, const char *names)
{
	while (*names) {
		size_t n = strcspn(names, ",");

		for (unsigned c = 0; c < t->t_ncolumns; c++)
			if (strlen(t->t_columns[c].co_name) == n &&
			    !strncasecmp(t->t_columns[c].co_name, names, n))
				table_show(s, c);
		names += n + (names[n] == ',');
	}
}

static int total(const struct shown *s)
{
	int n = (int)s->s_n - 1;

	for (unsigned i = 0; i < s->s_n; i++)
		n += s->s_wide[s->s_column[i]];
	return n;
}

/* How wide it is at least where the columns that may be cut are still easy to read. */
static int readable(const struct table *t, const struct shown *s)
{
	int n = total(s);

	for (unsigned i = 0; i < s->s_n; i++) {
		unsigned c = s->s_column[i], flags = t->t_columns[c].co_flags;

		if (flags & COL_CUT && !(flags & COL_ROOM) && s->s_wide[c] > READABLE)
			n -= s->s_wide[c] - READABLE;
	}
	return n;
}

static void drop_for_room(const struct table *t, struct shown *s, int most)
{
	for (unsigned i = s->s_n; i-- > 0 && readable(t, s) > most;) {
		if (!(t->t_columns[s->s_column[i]].co_flags & COL_ROOM))
			continue;
		memmove(&s->s_column[i], &s->s_column[i + 1],
			(s->s_n - i - 1) * sizeof(s->s_column[0]));
		s->s_n--;
	}
}

/* The widest column gives first. */
static void narrow(const struct table *t, struct shown *s, int most)
{
	for (int least = NARROW; least >= LEAST; least -= NARROW - LEAST)
		for (int over = total(s) - most; over > 0; over--) {
			int *widest = NULL;

			for (unsigned i = 0; i < s->s_n; i++) {
				const struct column *c = &t->t_columns[s->s_column[i]];
				int *w = &s->s_wide[s->s_column[i]];

				if (c->co_flags & COL_CUT && *w > least && *w > width(c->co_name) &&
				    (!widest || *w > *widest))
					widest = w;
			}
			if (!widest)
				break;
			--*widest;
		}
}

static void choose(const struct table *t, struct shown *s)
{
	const char *names = weft_option("columns");
	bool filled[COLUMNS_MAX] = {false};
	int most = limit();

	measure(t, s, filled);
	for (unsigned c = 0; c < t->t_ncolumns && (!names || names[0] == '+'); c++)
		if (!(t->t_columns[c].co_flags & COL_MORE) &&
		    (filled[c] || !(t->t_columns[c].co_flags & COL_FILLED)))
			table_show(s, c);
	if (most)
		drop_for_room(t, s, most);
	if (names)
		show_picked(t, s, names + (names[0] == '+'));
	if (most)
		narrow(t, s, most);
}

/* ---- printing ---- */

/* Cuts a cell to so many columns, and marks where. May return the cell itself. */
static char *cut(char *cell, int wide, bool tail)
{
	wchar_t *w;
	size_t n, from = 0, to;
	int over = width(cell) - wide + 1; /* the mark takes a column */
	char *out = NULL;

	if (over <= 1 || !(w = calloc(strlen(cell) + 1, sizeof(*w))))
		return cell;
	n = to = mbstowcs(w, cell, strlen(cell) + 1);
	if (n == (size_t)-1) {
		free(w);
		return cell;
	}
	while (over > 0 && from < to) {
		wchar_t c = tail ? w[from++] : w[--to];

		over -= wcwidth(c) > 0 ? wcwidth(c) : 0;
	}
	w[to] = 0;
	if (asprintf(&out, "%s%ls%s", tail ? mark : "", w + from, tail ? "" : mark) < 0)
		out = NULL;
	free(w);
	if (!out)
		return cell;
	free(cell);
	return out;
}

/* NULL: as the rest. */
static const char *colour(const char *state)
{
	static const char *const bad[] = {"dead",  "lost",    "killed",
					  "stuck", "refused", "not served"},
				 *const soon[] = {"suspect",   "drain",	   "stale",
						  "waiting",   "absent",   "rebuilding",
						  "courteous", "evicting", "reclaiming",
						  "waits",     "leaves"};

	if (strstr(state, " left"))
		return "yellow";
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (!strncmp(state, bad[i], strlen(bad[i])))
			return "red";
	for (size_t i = 0; i < sizeof(soon) / sizeof(soon[0]); i++)
		if (!strncmp(state, soon[i], strlen(soon[i])))
			return "yellow";
	return NULL;
}

static bool colours(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}

static int fill(struct table *t, struct libscols_table *out, const struct shown *s)
{
	for (unsigned i = 0; i < s->s_n; i++) {
		const struct column *c = &t->t_columns[s->s_column[i]];

		if (!scols_table_new_column(out, c->co_name, 0,
					    c->co_flags & COL_RIGHT ? SCOLS_FL_RIGHT : 0))
			return -1;
	}
	for (unsigned row = 0; row + t->t_ncolumns <= t->t_n; row += t->t_ncolumns) {
		struct libscols_line *line = scols_table_new_line(out, NULL);

		for (unsigned i = 0; line && i < s->s_n; i++) {
			unsigned c = s->s_column[i], flags = t->t_columns[c].co_flags;
			char **cell = &t->t_cell[row + c];
			const char *in = flags & COL_STATE ? colour(*cell) : NULL;

			if (flags & COL_CUT)
				*cell = cut(*cell, s->s_wide[c], flags & COL_TAIL);
			if (scols_line_set_data(line, i, *cell) ||
			    (in && scols_cell_set_color(scols_line_get_cell(line, i), in)))
				return -1;
		}
		if (!line)
			return -1;
	}
	return 0;
}

void table_end(struct table *t)
{
	struct libscols_table *out = scols_new_table();
	struct shown s = {0};

	if (!t->t_failed && out) {
		choose(t, &s);
		scols_table_enable_noencoding(out, 1);
		scols_table_enable_colors(out, colours());
		/* It is as wide as it has to be already. */
		scols_table_set_termforce(out, SCOLS_TERMFORCE_NEVER);
	}
	if (t->t_failed || !out || (s.s_n && (fill(t, out, &s) || scols_print_table(out))))
		fputs("weft: out of memory\n", stderr);
	/* The library prints no heads without rows. */
	for (unsigned i = 0; !t->t_failed && !t->t_n && i < s.s_n; i++)
		printf("%s%c", t->t_columns[s.s_column[i]].co_name, i + 1 < s.s_n ? ' ' : '\n');
	scols_unref_table(out);
	for (unsigned i = 0; i < t->t_n; i++)
		free(t->t_cell[i]);
	free(t->t_cell);
	*t = (struct table){0};
}
