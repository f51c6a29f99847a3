/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_tree.h - the part of sysfs that topo needs, in memory: files and links by folder and name.
 * Only topo*.c use it.
 *
 * Paths start at the root of sysfs and begin with /. A lookup follows no links: topo_tree_target()
 * turns a link into the path that it means, as text, and looking there finds files or nothing. So
 * there are no loops to guard against.
 */
#ifndef TOPO_TOPO_TREE_H
#define TOPO_TOPO_TREE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
	TOPO_PATH_MAX = 1024, /* with its NUL */
	TOPO_TEXT_MAX = 4096, /* of a file's content */
	TOPO_ENTRIES_MAX = 1 << 18,
	TOPO_FILE_MAX = 16 << 20, /* a recording */
};
struct topo_entry {
	const char *e_dir, *e_name;
	const char *e_value; /* content without the newline at its end; of a link: the target */
	bool e_link;
};
struct topo_tree {
	struct topo_entry *tt_e; /* sorted by folder and name */
	size_t tt_n, tt_room;
	struct topo_chunk *tt_chunks; /* the strings */
};

int topo_tree_scan(struct topo_tree *t, const char *root, char *err, size_t errlen);
int topo_tree_parse(struct topo_tree *t, const char *text, size_t len, const char *name, char *err,
		    size_t errlen);
int topo_tree_write(const struct topo_tree *t, FILE *f);
void topo_tree_free(struct topo_tree *t);

/* For functions that fill a tree. Copies the strings; bytes of a content that are not printable
 * become '?'. Returns 0, -ENOMEM, -E2BIG (too many), or -EINVAL: a name or path that cannot be in a
 * tree. */
int topo_tree_add(struct topo_tree *t, const char *dir, const char *name, const char *value,
		  bool link);
/* A copy that lives as long as the tree; NULL: no memory. */
const char *topo_tree_dup(struct topo_tree *t, const char *s, size_t len);
/* After the last topo_tree_add. -EEXIST: a name stands twice, and *twice says which. twice NULL:
 * one of the two is dropped. */
int topo_tree_sort(struct topo_tree *t, const struct topo_entry **twice);

/* "" when it is missing or a link. */
const char *topo_tree_file(const struct topo_tree *t, const char *dir, const char *name);
/* The path that a link means. False: there is no such link, or it leaves the tree. */
bool topo_tree_target(const struct topo_entry *e, char out[TOPO_PATH_MAX]);
const struct topo_entry *topo_tree_find(const struct topo_tree *t, const char *dir,
					const char *name);
/* The entries of a folder. */
const struct topo_entry *topo_tree_list(const struct topo_tree *t, const char *dir, size_t *n);
/* The next subfolder of a folder: begin with *at 0, until false. */
bool topo_tree_subdir(const struct topo_tree *t, const char *dir, size_t *at, char name[256]);
#endif
