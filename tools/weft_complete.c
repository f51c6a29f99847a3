/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_complete.c - "weft complete -- WORD...": completes a command line for the shells
 * (dist/completion). The words are those behind "weft", the last one as far as it is typed. It
 * prints candidates from the table of commands, and asks the server for the names of data servers
 * and clients. It prints no error: a shell is in the middle of a line.
 */
#include "tools/weft_command.h"
#include "tools/http_get.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void candidate(const char *typed, const char *what, const char *text)
{
	if (!strncmp(typed, what, strlen(typed)))
		printf("%s\t%.*s\n", what, (int)strcspn(text, "\n;:.("), text);
}

static json_t *complete_ask(const char *target)
{
	struct http_answer ha = {0};
	json_t *j = NULL;

	if (!http_ask(weft_admin, "GET", target, NULL, &ha) && ha.ha_status == 200)
		j = json_loads(ha.ha_body, 0, NULL);
	free(ha.ha_body);
	return j;
}

/* A name that a shell would have to quote is left out. */
static bool is_plain(const char *s)
{
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._-:", *s))
			return false;
	return true;
}

static void complete_names(const char *typed, const char *target, const char *list)
{
	json_t *j = complete_ask(target);
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(j, list), i, e) if (is_plain(j_str(e, "name")))
		candidate(typed, j_str(e, "name"), j_str(e, "state"));
	json_decref(j);
}

/* Adds one more column behind those that are typed. */
static void complete_columns(const char *typed, const struct command *c)
{
	const char *last = strrchr(typed, ',');
	size_t n = last ? (size_t)(last - typed) + 1 : typed[0] == '+';
	char whole[300];

	for (unsigned i = 0; c->c_columns[i]; i++)
		for (const struct column *co = c->c_columns[i]; co->co_name; co++) {
			snprintf(whole, sizeof(whole), "%.*s%s", (int)n, typed, co->co_name);
			for (char *p = whole + n; *p; p++)
				*p = (char)tolower((unsigned char)*p);
			candidate(typed, whole, "column");
		}
}

static void complete_argument(const char *typed, const char *kind, const struct command *c)
{
	static const char *const policy[] = {
		"stripes=", "unit=", "mirrors=", "domain=", "group=", "threshold="};

	if (!strcmp(kind, "DS")) {
		complete_names(typed, "/v1/ds", "ds");
	} else if (!strcmp(kind, "CLIENT")) {
		complete_names(typed, "/v1/clients", "clients");
	} else if (!strcmp(kind, "COLUMNS")) {
		complete_columns(typed, c);
	} else if (!strcmp(kind, "POLICY")) {
		for (size_t i = 0; i < sizeof(policy) / sizeof(policy[0]); i++)
			candidate(typed, policy[i], "policy");
	} else if (!strcmp(kind, "FILE") || !strcmp(kind, "STORE") || !strcmp(kind, "FOLDER")) {
		puts(":files");
	}
}

/* The n-th word of c_args, without brackets and dots. */
static const char *argument_kind(const struct command *c, unsigned n, char out[64])
{
	const char *p = c->c_args;
	size_t len;

	for (; n; n--) {
		p += strcspn(p, " ");
		p += strspn(p, " ");
	}
	p += strspn(p, "[");
	len = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
	snprintf(out, 64, "%.*s", (int)len, p);
	return out;
}

static void complete_options(const char *typed, const struct command *c)
{
	char name[100];

	for (const struct weft_opt *o = c ? c->c_options : NULL; o && o->o_name; o++) {
		snprintf(name, sizeof(name), "--%s", o->o_name);
		candidate(typed, name, o->o_text);
	}
	if (c && c->c_columns[0])
		candidate(typed, "--columns", weft_columns_option.o_text);
	candidate(typed, "--json", "print JSON");
	candidate(typed, "--help", "show the arguments and options");
	if (!c) {
		candidate(typed, "--admin", "the address of the administration server");
		candidate(typed, "--token-file", "a file with a token");
		candidate(typed, "--cacert", "a file with the authority of https://");
		candidate(typed, "--cert", "a file with a certificate of your own");
		candidate(typed, "--key", "the file with its private key");
	}
	if (!c)
		candidate(typed, "--version", "print the version");
}

/* Nouns; or the verbs of a noun, of which there may be none. False: there is none. */
static bool complete_command_words(const char *typed, const char *noun)
{
	bool any = false;

	for (size_t i = 0; i < weft_ncommands; i++) {
		const struct command *c = &weft_commands[i];

		if (noun && (strcmp(c->c_noun, noun) || !c->c_verb))
			continue;
		any = true;
		if (noun)
			candidate(typed, c->c_verb, c->c_what);
		else if (!i || strcmp(c->c_noun, weft_commands[i - 1].c_noun))
			candidate(typed, c->c_noun, c->c_verb ? "..." : c->c_what);
	}
	return any;
}

/* Where the file of this option of credentials goes; NULL: it is none of them. */
static const char **option_creds(const char *word)
{
	if (!strcmp(word, "--token-file"))
		return &http_creds.hc_token_file;
	if (!strcmp(word, "--cacert"))
		return &http_creds.hc_cacert;
	if (!strcmp(word, "--cert"))
		return &http_creds.hc_cert;
	return !strcmp(word, "--key") ? &http_creds.hc_key : NULL;
}

/* What the argument of this option is; NULL: it has none. */
static const char *option_argument(const char *word, const struct command *c)
{
	if (!strcmp(word, "--admin"))
		return "ADDR";
	if (option_creds(word))
		return "FILE";
	if (c && c->c_columns[0] && (!strcmp(word, "--columns") || !strcmp(word, "-o")))
		return "COLUMNS";
	for (const struct weft_opt *o = c ? c->c_options : NULL; o && o->o_name; o++)
		if (o->o_arg && ((!strncmp(word, "--", 2) && !strcmp(word + 2, o->o_name)) ||
				 (word[0] == '-' && word[1] == o->o_short && !word[2])))
			return o->o_arg;
	return NULL;
}

static int complete_table(void)
{
	char name[64], columns[400];

	for (size_t i = 0; i < weft_ncommands; i++) {
		const struct command *c = &weft_commands[i];

		command_columns(c, ",", columns, sizeof(columns));
		printf("%s\t%s\t", command_name(c, name), c->c_args);
		for (const struct weft_opt *o = c->c_options; o && o->o_name; o++)
			printf("%s--%s%s%s", o == c->c_options ? "" : " ", o->o_name,
			       o->o_arg ? "=" : "", o->o_arg ? o->o_arg : "");
		printf("\t%s\n", columns);
	}
	return weft_flush();
}

int complete_command(int argc, char **argv)
{
	char *word[3] = {NULL}, kind[64];
	const struct command *c = NULL;
	const char *typed, *of = NULL, **creds = NULL;
	int n = 0;

	if (argc == 1 && !strcmp(argv[0], "--table"))
		return complete_table();
	if (argc < 2 || strcmp(argv[0], "--"))
		return EXIT_USAGE;
	typed = argv[argc - 1];
	for (int i = 1; i < argc - 1; i++) {
		if (of) {
			if (!strcmp(of, "ADDR"))
				weft_admin = argv[i];
			if (creds)
				*creds = argv[i];
			of = NULL;
		} else if (argv[i][0] == '-' && argv[i][1]) {
			of = option_argument(argv[i], c);
			creds = option_creds(argv[i]);
		} else {
			if (n < 2)
				word[n] = argv[i];
			n++;
			c = command_meant(n < 2 ? n : 2, word);
		}
	}
	if (of) {
		complete_argument(typed, of, c);
	} else if (typed[0] == '-') {
		complete_options(typed, c);
	} else if (!n) {
		complete_command_words(typed, NULL);
	} else if (!strcmp(word[0], "help")) {
		if (n < 3)
			complete_command_words(typed, n == 1 ? NULL : word[1]);
	} else if (n > 1 || !complete_command_words(typed, word[0])) {
		if (c)
			complete_argument(
				typed, argument_kind(c, (unsigned)(n - (c->c_verb ? 2 : 1)), kind),
				c);
	}
	return weft_flush();
}
