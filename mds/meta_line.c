/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_line.c - a row as a line of JSON, and a line as a row (docs/meta-export.md).
 *
 * Nothing of a row is lost: each line that is made is read again, and must give the same key and
 * the same bytes. A row of which that is not true is damaged, or of a newer version than this
 * program; its line has its bytes as they are.
 */
#include "mds/meta.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct meta_kind *kind_of_key(struct kv_slice key)
{
	const uint8_t *k = key.s_data;

	for (size_t i = 0; i < meta_kinds_n; i++) {
		const struct meta_kind *mk = &meta_kinds[i];

		if (k[0] == mk->mk_table && (!mk->mk_key || key.s_len == mk->mk_key) &&
		    (mk->mk_sort < 0 || (key.s_len > 1 && k[1] == mk->mk_sort)))
			return mk;
	}
	return NULL;
}

static const struct meta_kind *kind_of_name(const char *name)
{
	for (size_t i = 0; i < meta_kinds_n; i++)
		if (!strcmp(meta_kinds[i].mk_name, name))
			return &meta_kinds[i];
	return NULL;
}

/* Bytes of the key that the kind itself says. */
static size_t kind_bytes(const struct meta_kind *mk)
{
	return mk->mk_sort < 0 ? 1 : 2;
}

static void line_begin(struct meta_line *l, const char *kind)
{
	l->ml_len = 0;
	meta_line_add(l, "{\"kind\":", 8);
	meta_line_string(l, kind, strlen(kind));
}

static void line_end(struct meta_line *l)
{
	meta_line_add(l, "}\n", 2);
}

/* False: the row is not one of its kind. */
static bool line_known(struct meta_line *l, struct kv_slice key, struct kv_slice val)
{
	const struct meta_kind *mk = kind_of_key(key);
	struct meta_io m = {.mi_out = l, .mi_big = true};

	if (!mk)
		return false;
	line_begin(l, mk->mk_name);
	m.mi_in = (const uint8_t *)key.s_data + kind_bytes(mk);
	m.mi_left = key.s_len - kind_bytes(mk);
	mk->mk_id(&m);
	m.mi_bad |= m.mi_left != 0;
	m.mi_big = false;
	m.mi_in = val.s_data;
	m.mi_left = val.s_len;
	mk->mk_row(&m);
	line_end(l);
	return !m.mi_bad && !m.mi_left;
}

static void line_raw(struct meta_line *l, struct kv_slice key, struct kv_slice val)
{
	line_begin(l, "raw");
	meta_line_add(l, ",\"key\":", 7);
	meta_line_hex(l, key.s_data, key.s_len);
	meta_line_add(l, ",\"value\":", 9);
	meta_line_hex(l, val.s_data, val.s_len);
	line_end(l);
}

int meta_line_of(struct meta_line *l, struct kv_slice key, struct kv_slice val, bool *raw)
{
	struct meta_row r = {.mr_val = malloc(val.s_len + 1)};
	char why[200];

	if (!r.mr_val)
		return -ENOMEM;
	*raw = !line_known(l, key, val) || l->ml_len > META_LINE_MAX ||
	       !meta_row_of(l->ml_buf, l->ml_len - 1, &r, why, sizeof(why), val.s_len) ||
	       r.mr_key_len != key.s_len || memcmp(r.mr_key, key.s_data, key.s_len) != 0 ||
	       r.mr_val_len != val.s_len ||
	       (val.s_len && memcmp(r.mr_val, val.s_data, val.s_len) != 0);
	free(r.mr_val);
	if (*raw)
		line_raw(l, key, val);
	return l->ml_failed ? -ENOMEM : 0;
}

/* ---- and back ---- */

static void row_known(struct json_read *jr, const struct meta_kind *mk, struct meta_row *r,
		      size_t room)
{
	struct meta_io m = {.mi_jr = jr,
			    .mi_big = true,
			    .mi_to = r->mr_key,
			    .mi_len = kind_bytes(mk),
			    .mi_max = KV_KEY_MAX};

	r->mr_key[0] = mk->mk_table;
	r->mr_key[1] = (uint8_t)mk->mk_sort;
	mk->mk_id(&m);
	r->mr_key_len = m.mi_len;
	m.mi_big = false;
	m.mi_to = r->mr_val;
	m.mi_len = 0;
	m.mi_max = room;
	mk->mk_row(&m);
	r->mr_val_len = m.mi_len;
}

bool meta_row_of(const char *line, size_t len, struct meta_row *r, char *why, size_t max,
		 size_t room)
{
	const struct meta_kind *mk;
	struct json_read jr;
	const char *kind;

	json_read_line(&jr, line, len);
	kind = json_read_text(&jr, "kind", 32);
	mk = kind_of_name(kind);
	r->mr_raw = !strcmp(kind, "raw");
	if (mk) {
		row_known(&jr, mk, r, room);
	} else if (r->mr_raw) {
		r->mr_key_len = json_read_hex_any(&jr, "key", r->mr_key, KV_KEY_MAX);
		r->mr_val_len = json_read_hex_any(&jr, "value", r->mr_val, room);
		if (!r->mr_key_len || !r->mr_key[0])
			json_read_fail(&jr, "key", "no row has this key");
	} else {
		json_read_fail(&jr, "kind", "this kind is not known");
	}
	json_read_end(&jr);
	if (jr.jr_bad)
		snprintf(why, max, "%s", jr.jr_why);
	json_read_free(&jr);
	return !jr.jr_bad;
}

/* ---- the first line ---- */

int meta_head_text(const struct meta_head *h, char out[BACKUP_LINE_MAX])
{
	json_t *j = json_pack("{s:i, s:s, s:I, s:i, s:I, s:s}", "weft_meta", META_VERSION,
			      "cluster", h->mh_cluster, "boot", (json_int_t)h->mh_boot,
			      "incarnation", (int)h->mh_incarnation, "made_at",
			      (json_int_t)h->mh_made_at, "program", h->mh_program);
	size_t n;

	if (!j)
		return -ENOMEM;
	n = json_dumpb(j, out, BACKUP_LINE_MAX - 2, JSON_COMPACT);
	json_decref(j);
	if (!n || n > BACKUP_LINE_MAX - 2)
		return -EINVAL;
	out[n] = '\n';
	out[n + 1] = 0;
	return 0;
}

bool meta_head_parse(const char *line, size_t len, struct meta_head *h, char *why, size_t max)
{
	struct json_read jr;

	memset(h, 0, sizeof(*h));
	json_read_line(&jr, line, len);
	if (!jr.jr_bad && !json_read_has(&jr, "weft_meta"))
		json_read_fail(&jr, "", "this is no export of a metadata store");
	if (json_read_int(&jr, "weft_meta", 0, INT64_MAX) != META_VERSION)
		json_read_fail(&jr, "weft_meta",
			       "a version that this program does not know (it knows 1)");
	snprintf(h->mh_cluster, sizeof(h->mh_cluster), "%s",
		 json_read_text(&jr, "cluster", sizeof(h->mh_cluster) - 1));
	h->mh_boot = (uint64_t)json_read_int(&jr, "boot", 0, INT64_MAX);
	h->mh_incarnation = (unsigned)json_read_int(&jr, "incarnation", 0, 65535);
	h->mh_made_at = json_read_int(&jr, "made_at", 0, INT64_MAX);
	snprintf(h->mh_program, sizeof(h->mh_program), "%s",
		 json_read_text(&jr, "program", sizeof(h->mh_program) - 1));
	json_read_end(&jr);
	if (jr.jr_bad)
		snprintf(why, max, "%s", jr.jr_why);
	json_read_free(&jr);
	return !jr.jr_bad;
}
