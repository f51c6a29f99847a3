/* SPDX-License-Identifier: Apache-2.0 */
/* weft_help.c - what "weft help" prints, from the table of commands. */
#include "tools/weft_command.h"
#include <string.h>

enum { TEXT_COLUMN = 14, OPTION_COLUMN = 26 };

static const struct {
	const char *w_word, *w_text;
} words[] = {
	{"PATH", "absolute, from the root of the exports"},
	{"DS", "a data server's name, number or id"},
	{"CLIENT", "a client's number, name, address or clientid"},
	{"POLICY", "a list of stripes=N,unit=SIZE,mirrors=N,domain=KEY,group=LABELS,"
		   "group0=LABELS..., in any order"},
	{"LABELS", "KEY=VALUE, with / between values and + between keys"},
	{"MIRROR", "its number, counted from 0"},
	{"SIZE", "bytes; K, M, G and T are powers of 1024"},
};

/* Help is as wide as the terminal, but no wider than what is easy to read. */
static int help_width(void)
{
	int n = weft_width();

	return n < 40 ? 40 : n > WIDTH_DEFAULT ? WIDTH_DEFAULT : n;
}

static void help_put(FILE *f, const char *left, int indent, const char *text)
{
	int column = fprintf(f, "  %s", left);

	if (column >= indent) {
		fputc('\n', f);
		column = 0;
	}
	weft_wrap(f, help_width(), column, indent, text);
}

/* The first clause of what a command does. */
static void put_noun(FILE *f, const struct command *first)
{
	char text[400];
	size_t n = 0;

	snprintf(text, sizeof(text), "%.*s", (int)strcspn(first->c_what, ";:.("), first->c_what);
	if (first->c_verb) {
		text[0] = 0;
		for (const struct command *c = first;
		     c < weft_commands + weft_ncommands && !strcmp(c->c_noun, first->c_noun); c++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n ? ", " : "",
					      c->c_verb ? c->c_verb : "(none)");
	}
	help_put(f, first->c_noun, TEXT_COLUMN, text);
}

void help_summary(FILE *f)
{
	static const char *const heads[GROUPS] = {[GROUP_CLUSTER] = "The cluster",
						  [GROUP_SERVERS] = "Data servers",
						  [GROUP_FILES] = "Files and directories",
						  [GROUP_CLIENTS] = "Clients",
						  [GROUP_MACHINE] = "This machine"};

	fputs("usage: weft [--admin ADDR] [--json] COMMAND [ARGUMENT]...\n"
	      "       weft help COMMAND | --version\n",
	      f);
	for (unsigned g = 1; g < GROUPS; g++) {
		fprintf(f, "%s:\n", heads[g]);
		for (size_t i = 0; i < weft_ncommands; i++)
			if (weft_commands[i].c_group == g &&
			    (!i || strcmp(weft_commands[i].c_noun, weft_commands[i - 1].c_noun)))
				put_noun(f, &weft_commands[i]);
	}
	fputs("ADDR is unix:/path, 127.0.0.1:port or https://HOST:port (weft(1)); default:\n"
	      "WEFT_ADMIN, else unix:/run/weft-mds/admin. --json prints JSON.\n",
	      f);
}

static void put_usage(FILE *f, const struct command *c)
{
	char name[64], line[400];
	size_t n = (size_t)snprintf(line, sizeof(line), "%s", command_name(c, name));

	for (const struct weft_opt *o = c->c_options; o && o->o_name && n < 300; o++)
		n += o->o_short ? (size_t)snprintf(line + n, sizeof(line) - n, " [-%c%s%s]",
						   o->o_short, o->o_arg ? " " : "",
						   o->o_arg ? o->o_arg : "")
				: (size_t)snprintf(line + n, sizeof(line) - n, " [--%s%s%s]",
						   o->o_name, o->o_arg ? " " : "",
						   o->o_arg ? o->o_arg : "");
	if (c->c_columns[0])
		n += (size_t)snprintf(line + n, sizeof(line) - n, " [-o COLUMNS]");
	snprintf(line + n, sizeof(line) - n, "%s%s", *c->c_args ? " " : "", c->c_args);
	weft_wrap(f, help_width(), fprintf(f, "usage: weft"), 12, line);
}

static void put_option(FILE *f, const struct weft_opt *o, const char *text)
{
	char left[64], shorter[8] = "    ";

	if (o->o_short)
		snprintf(shorter, sizeof(shorter), "-%c, ", o->o_short);
	snprintf(left, sizeof(left), "%s--%s%s%s", shorter, o->o_name, o->o_arg ? " " : "",
		 o->o_arg ? o->o_arg : "");
	help_put(f, left, OPTION_COLUMN, text);
}

/* True when the text has the word, whole. */
static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p += n)
		if ((p == text || strchr(" [", p[-1])) && (!p[n] || strchr(" ]", p[n])))
			return true;
	return false;
}

static bool uses_word(const struct command *c, const char *word)
{
	for (const struct weft_opt *o = c->c_options; o && o->o_name; o++)
		if (o->o_arg && has_word(o->o_arg, word))
			return true;
	return has_word(c->c_args, word);
}

void help_command(FILE *f, const struct command *c)
{
	char columns[400], text[700];

	put_usage(f, c);
	weft_wrap(f, help_width(), 0, 2, c->c_what);
	if (c->c_options || c->c_columns[0])
		fputs("options:\n", f);
	for (const struct weft_opt *o = c->c_options; o && o->o_name; o++)
		put_option(f, o, o->o_text);
	if (c->c_columns[0]) {
		command_columns(c, ", ", columns, sizeof(columns));
		snprintf(text, sizeof(text), "%s: %s; +NAME,... adds to the usual ones",
			 weft_columns_option.o_text, columns);
		put_option(f, &weft_columns_option, text);
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (uses_word(c, words[i].w_word)) {
			snprintf(text, sizeof(text), "%s is %s.", words[i].w_word, words[i].w_text);
			weft_wrap(f, help_width(), 0, 0, text);
		}
	fprintf(f, "example:\n  %s\n", c->c_example);
}

void help_noun(FILE *f, const char *noun)
{
	char left[64];

	fprintf(f, "usage: weft %s COMMAND [ARGUMENT]...\n", noun);
	for (size_t i = 0; i < weft_ncommands; i++) {
		const struct command *c = &weft_commands[i];

		if (strcmp(c->c_noun, noun))
			continue;
		snprintf(left, sizeof(left), "%s%s%s", c->c_verb ? c->c_verb : "(none)",
			 *c->c_args ? " " : "", c->c_args);
		help_put(f, left, OPTION_COLUMN, c->c_what);
	}
	fprintf(f, "\"weft help %s COMMAND\" shows the options of one.\n", noun);
}
