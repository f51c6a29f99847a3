/* SPDX-License-Identifier: Apache-2.0 */
/* weft_command.h - the table of commands (weft.c), and what is made from it: the help, and the
 * completion of a command line. */
#ifndef TOOLS_WEFT_COMMAND_H
#define TOOLS_WEFT_COMMAND_H
#include "tools/weft_tool.h"

/* The parts of the summary. A noun is in the part that its first row names. */
enum command_group {
	GROUP_AS_NOUN,
	GROUP_CLUSTER,
	GROUP_SERVERS,
	GROUP_FILES,
	GROUP_CLIENTS,
	GROUP_MACHINE,
	GROUPS
};

struct command {
	const char *c_noun, *c_verb; /* verb NULL: none */
	int c_min, c_max;	     /* arguments */
	bool c_path;		     /* the first, where there is one, is a PATH */
	weft_cmd *c_fn;		     /* NULL: main() has it */
	const struct weft_opt *c_options;
	const char *c_args, *c_what, *c_example;
	enum command_group c_group;
	const struct column *c_columns[6]; /* of its tables; ends with NULL */
};
extern const struct command weft_commands[];
extern const size_t weft_ncommands;
extern const struct weft_opt weft_columns_option; /* of each command that has tables */

/* "ds list" */
const char *command_name(const struct command *c, char out[64]);
/* The first row that these words name, wherever the verb is among them; NULL: none. */
const struct command *command_meant(int argc, char **argv);
bool command_noun(const char *noun); /* Is there one? */
/* Puts the names of a command's columns with that between them. */
void command_columns(const struct command *c, const char *between, char *out, size_t len);

/* weft_help.c: prints the summary; a noun's commands; one command. */
void help_summary(FILE *f);
void help_noun(FILE *f, const char *noun);
void help_command(FILE *f, const struct command *c);

/* weft_complete.c: prints what may stand in the place of the last word, one candidate a line, each
 * with a tab and what it means; ":files" stands for the names of files. With --table alone it
 * prints the table of commands, for tests. */
int complete_command(int argc, char **argv);
#endif
