/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_tree.c - see topo_tree.h: the tree in memory, and its text form.
 */
#include "topo/topo_tree.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADER "weft-topo 1"
#define CHUNK  65536

struct topo_chunk {
	struct topo_chunk *ch_next;
	size_t ch_used, ch_room;
	char ch_text[];
};

const char *topo_tree_dup(struct topo_tree *t, const char *s, size_t len)
{
	struct topo_chunk *c = t->tt_chunks;
	char *out;

	if (!c || c->ch_room - c->ch_used <= len) {
		size_t room = len < CHUNK ? CHUNK : len + 1;

		c = malloc(sizeof(*c) + room);
		if (!c)
			return NULL;
		c->ch_next = t->tt_chunks;
		c->ch_used = 0;
		c->ch_room = room;
		t->tt_chunks = c;
	}
	out = c->ch_text + c->ch_used;
	memcpy(out, s, len);
	out[len] = 0;
	c->ch_used += len + 1;
	return out;
}

void topo_tree_free(struct topo_tree *t)
{
	for (struct topo_chunk *c = t->tt_chunks, *next; c; c = next) {
		next = c->ch_next;
		free(c);
	}
	free(t->tt_e);
	memset(t, 0, sizeof(*t));
}

/* ---- filling ---- */

static bool topo_tree_printable(const char *s)
{
	for (; *s; s++)
		if (*s < 0x20 || *s > 0x7e)
			return false;
	return true;
}

/* True if the text form can hold the name: no = and no arrow. */
static bool name_good(const char *name)
{
	size_t n = strlen(name);

	return n && n < 256 && topo_tree_printable(name) && !strpbrk(name, "/=") &&
	       !strstr(name, " -> ") && strcmp(name, ".") && strcmp(name, "..");
}

/* True for an absolute and plain path: no empty, . or .. part. */
static bool dir_good(const char *dir)
{
	char name[256];

	if (*dir != '/' || strlen(dir) >= TOPO_PATH_MAX)
		return false;
	while (*dir == '/') {
		size_t n = strcspn(++dir, "/");

		if (n >= sizeof(name))
			return false;
		memcpy(name, dir, n);
		name[n] = 0;
		if (!name_good(name))
			return false;
		dir += n;
	}
	return true;
}

static const char *topo_tree_clean(struct topo_tree *t, const char *value)
{
	char text[TOPO_TEXT_MAX + 1];
	size_t n = 0;

	for (; *value && n < TOPO_TEXT_MAX; value++)
		text[n++] = (*value < 0x20 || *value > 0x7e) && *value != '\n' && *value != '\t'
				    ? '?'
				    : *value;
	while (n && text[n - 1] == '\n')
		n--;
	return topo_tree_dup(t, text, n);
}

int topo_tree_add(struct topo_tree *t, const char *dir, const char *name, const char *value,
		  bool link)
{
	struct topo_entry *e;

	/* Entries of one folder come in a row: one copy of its path serves them all. */
	if (t->tt_n && !strcmp(t->tt_e[t->tt_n - 1].e_dir, dir))
		dir = t->tt_e[t->tt_n - 1].e_dir;
	else if (!dir_good(dir))
		return -EINVAL;
	else
		dir = topo_tree_dup(t, dir, strlen(dir));
	if (!name_good(name) ||
	    (link && (!*value || strlen(value) >= TOPO_PATH_MAX || !topo_tree_printable(value))))
		return -EINVAL;
	if (t->tt_n == TOPO_ENTRIES_MAX)
		return -E2BIG;
	if (t->tt_n == t->tt_room) {
		size_t room = t->tt_room ? t->tt_room * 2 : 256;

		e = realloc(t->tt_e, room * sizeof(*e));
		if (!e)
			return -ENOMEM;
		t->tt_e = e;
		t->tt_room = room;
	}
	e = &t->tt_e[t->tt_n];
	e->e_dir = dir;
	e->e_name = topo_tree_dup(t, name, strlen(name));
	e->e_value = topo_tree_clean(t, value);
	e->e_link = link;
	if (!dir || !e->e_name || !e->e_value)
		return -ENOMEM;
	t->tt_n++;
	return 0;
}

/* Like strcmp, but / comes before everything: a folder's subfolders follow it at once. */
static int path_cmp(const char *a, const char *b)
{
	if (a == b)
		return 0;
	while (*a && *a == *b) {
		a++;
		b++;
	}
	if (*a == '/' || *b == '/')
		return (*a == '/' ? (unsigned char)1 : (unsigned char)*a) -
		       (*b == '/' ? (unsigned char)1 : (unsigned char)*b);
	return (unsigned char)*a - (unsigned char)*b;
}

static int topo_tree_entry_cmp(const void *a, const void *b)
{
	const struct topo_entry *x = a, *y = b;
	int c = path_cmp(x->e_dir, y->e_dir);

	return c ? c : strcmp(x->e_name, y->e_name);
}

int topo_tree_sort(struct topo_tree *t, const struct topo_entry **twice)
{
	size_t n = 0;

	if (t->tt_n)
		qsort(t->tt_e, t->tt_n, sizeof(*t->tt_e), topo_tree_entry_cmp);
	for (size_t i = 0; i < t->tt_n; i++) {
		if (n && !topo_tree_entry_cmp(&t->tt_e[n - 1], &t->tt_e[i])) {
			if (!twice)
				continue;
			*twice = &t->tt_e[i];
			return -EEXIST;
		}
		t->tt_e[n++] = t->tt_e[i];
	}
	t->tt_n = n;
	return 0;
}

/* ---- looking ---- */

/* Returns the first entry that does not come before this one. */
static size_t lower(const struct topo_tree *t, const char *dir, const char *name)
{
	struct topo_entry key = {.e_dir = dir, .e_name = name};
	size_t a = 0, b = t->tt_n;

	while (a < b) {
		size_t m = a + (b - a) / 2;

		if (topo_tree_entry_cmp(&t->tt_e[m], &key) < 0)
			a = m + 1;
		else
			b = m;
	}
	return a;
}

const struct topo_entry *topo_tree_find(const struct topo_tree *t, const char *dir,
					const char *name)
{
	size_t i = lower(t, dir, name);

	if (i == t->tt_n || path_cmp(t->tt_e[i].e_dir, dir) || strcmp(t->tt_e[i].e_name, name))
		return NULL;
	return &t->tt_e[i];
}

const char *topo_tree_file(const struct topo_tree *t, const char *dir, const char *name)
{
	const struct topo_entry *e = topo_tree_find(t, dir, name);

	return e && !e->e_link ? e->e_value : "";
}

const struct topo_entry *topo_tree_list(const struct topo_tree *t, const char *dir, size_t *n)
{
	size_t i = lower(t, dir, ""), k = i;

	while (k < t->tt_n && !path_cmp(t->tt_e[k].e_dir, dir))
		k++;
	*n = k - i;
	return *n ? &t->tt_e[i] : NULL;
}

bool topo_tree_subdir(const struct topo_tree *t, const char *dir, size_t *at, char name[256])
{
	size_t len = strlen(dir), i = *at ? *at : lower(t, dir, "");
	char before[256] = "";

	if (*at)
		memcpy(before, name, sizeof(before));
	for (; i < t->tt_n && !strncmp(t->tt_e[i].e_dir, dir, len); i++) {
		const char *rest = t->tt_e[i].e_dir + len;
		size_t n;

		if (!*rest)
			continue; /* an entry of the folder itself */
		if (*rest != '/')
			break;
		n = strcspn(rest + 1, "/");
		if (strlen(before) == n && !memcmp(before, rest + 1, n))
			continue;
		memcpy(name, rest + 1, n);
		name[n] = 0;
		*at = i + 1;
		return true;
	}
	return false;
}

bool topo_tree_target(const struct topo_entry *e, char out[TOPO_PATH_MAX])
{
	const char *p = e->e_value;
	size_t len = 0;

	if (!e->e_link)
		return false;
	if (*p != '/') {
		len = strlen(e->e_dir);
		memcpy(out, e->e_dir, len);
	}
	while (*p) {
		size_t n = strcspn(p, "/");

		if (n == 2 && !memcmp(p, "..", 2)) {
			if (!len)
				return false;
			while (out[--len] != '/')
				;
		} else if (n && !(n == 1 && *p == '.')) {
			if (len + n + 2 > TOPO_PATH_MAX)
				return false;
			out[len++] = '/';
			memcpy(out + len, p, n);
			len += n;
		}
		p += n;
		p += *p == '/';
	}
	out[len] = 0;
	return len > 0;
}

/* ---- the text ---- */

static void put_content(const char *s, FILE *f)
{
	for (; *s; s++)
		switch (*s) {
		case '\n':
			fputs("\\n", f);
			break;
		case '\t':
			fputs("\\t", f);
			break;
		case '\\':
			fputs("\\\\", f);
			break;
		default:
			putc(*s, f);
		}
}

int topo_tree_write(const struct topo_tree *t, FILE *f)
{
	const char *dir = "";

	fputs(HEADER "\n", f);
	for (size_t i = 0; i < t->tt_n; i++) {
		const struct topo_entry *e = &t->tt_e[i];

		if (strcmp(e->e_dir, dir))
			fprintf(f, "%s\n", dir = e->e_dir);
		fprintf(f, "\t%s%s", e->e_name, e->e_link ? " -> " : "=");
		put_content(e->e_value, f);
		putc('\n', f);
	}
	errno = 0;
	return fflush(f) || ferror(f) ? -(errno ? errno : EIO) : 0;
}

/* Decodes in place. Returns false for an unknown escape. */
static bool get_content(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (*s != '\\') {
			*out++ = *s;
			continue;
		}
		switch (*++s) {
		case 'n':
			*out++ = '\n';
			break;
		case 't':
			*out++ = '\t';
			break;
		case '\\':
			*out++ = '\\';
			break;
		default:
			return false;
		}
	}
	*out = 0;
	return true;
}

/* Parses one line of a folder: "name=content" or "name -> target". */
static int parse_entry(struct topo_tree *t, const char *dir, char *line)
{
	char *arrow = strstr(line, " -> "), *eq = strchr(line, '='), *value;
	bool link = arrow && (!eq || arrow < eq);

	if (!*dir || (!link && !eq))
		return -EINVAL;
	value = link ? arrow + 4 : eq + 1;
	*(link ? arrow : eq) = 0;
	if (!get_content(value) || strlen(value) > TOPO_TEXT_MAX)
		return -EINVAL;
	return topo_tree_add(t, dir, line, value, link);
}

/* Returns the next line, NUL-terminated and without its end, or NULL after the last. */
static char *next_line(char **at)
{
	char *line = *at, *end;

	if (!*line)
		return NULL;
	end = line + strcspn(line, "\n");
	*at = *end ? end + 1 : end;
	*end = 0;
	if (end > line && end[-1] == '\r')
		end[-1] = 0;
	return line;
}

static int parse_lines(struct topo_tree *t, char *at, unsigned *number)
{
	const char *dir = "";

	for (char *line = next_line(&at); line; line = next_line(&at)) {
		int rc = 0;

		++*number;
		if (*number == 1) {
			if (strcmp(line, HEADER))
				return -EPROTO;
			continue;
		}
		if (!*line || *line == '#')
			continue;
		if (*line == '\t')
			rc = parse_entry(t, dir, line + 1);
		else if (dir_good(line))
			dir = line;
		else
			rc = -EINVAL;
		if (rc)
			return rc;
	}
	return *number ? 0 : -EPROTO;
}

int topo_tree_parse(struct topo_tree *t, const char *text, size_t len, const char *name, char *err,
		    size_t errlen)
{
	const struct topo_entry *twice = NULL;
	char *copy;
	unsigned line = 0;
	int rc;

	memset(t, 0, sizeof(*t));
	if (len > TOPO_FILE_MAX) {
		snprintf(err, errlen, "%s: more than %d MiB", name, TOPO_FILE_MAX >> 20);
		return -E2BIG;
	}
	copy = malloc(len + 1);
	if (!copy) {
		snprintf(err, errlen, "%s: out of memory", name);
		return -ENOMEM;
	}
	memcpy(copy, text, len);
	copy[len] = 0;
	rc = memchr(text, 0, len) ? -EPROTO : parse_lines(t, copy, &line);
	free(copy);
	if (!rc)
		rc = topo_tree_sort(t, &twice);
	if (rc == -EPROTO)
		snprintf(err, errlen, "%s: not a recorded tree: its first line is not \"%s\"", name,
			 HEADER);
	else if (rc == -EINVAL)
		snprintf(err, errlen,
			 "%s: line %u: expected /FOLDER, or a tab and NAME=CONTENT or NAME -> "
			 "TARGET",
			 name, line);
	else if (rc == -E2BIG)
		snprintf(err, errlen, "%s: more than %d entries", name, TOPO_ENTRIES_MAX);
	else if (rc == -EEXIST)
		snprintf(err, errlen, "%s: %s/%s is given twice", name, twice->e_dir,
			 twice->e_name);
	else if (rc)
		snprintf(err, errlen, "%s: %s", name, strerror(-rc));
	if (rc)
		topo_tree_free(t);
	return rc;
}
