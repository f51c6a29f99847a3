/* SPDX-License-Identifier: Apache-2.0 */
/* meta_io.c - a row's bytes to members of a line and back, by one description; see meta.h. */
#include "mds/meta.h"
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- a line ---- */

static bool line_room(struct meta_line *l, size_t len)
{
	size_t room = l->ml_room ? l->ml_room : 4096;
	char *more;

	while (room - l->ml_len < len)
		room *= 2;
	if (room == l->ml_room)
		return true;
	more = realloc(l->ml_buf, room);
	if (!more) {
		l->ml_failed = true;
		return false;
	}
	l->ml_buf = more;
	l->ml_room = room;
	return true;
}

void meta_line_add(struct meta_line *l, const char *text, size_t len)
{
	if (!line_room(l, len))
		return;
	memcpy(l->ml_buf + l->ml_len, text, len);
	l->ml_len += len;
}

static void line_str(struct meta_line *l, const char *s)
{
	meta_line_add(l, s, strlen(s));
}

void meta_line_string(struct meta_line *l, const char *text, size_t len)
{
	char esc[8];

	line_str(l, "\"");
	for (size_t i = 0, from = 0; i <= len; i++) {
		if (i < len && (uint8_t)text[i] >= 0x20 && text[i] != '"' && text[i] != '\\')
			continue;
		meta_line_add(l, text + from, i - from);
		from = i + 1;
		if (i == len)
			break;
		if ((uint8_t)text[i] >= 0x20)
			snprintf(esc, sizeof(esc), "\\%c", text[i]);
		else
			snprintf(esc, sizeof(esc), "\\u%04x", (uint8_t)text[i]);
		line_str(l, esc);
	}
	line_str(l, "\"");
}

void meta_line_hex(struct meta_line *l, const uint8_t *p, size_t len)
{
	line_str(l, "\"");
	if (line_room(l, 2 * len + 1)) {
		sodium_bin2hex(l->ml_buf + l->ml_len, 2 * len + 1, p, len);
		l->ml_len += 2 * len;
	}
	line_str(l, "\"");
}

/* A comma and the name, before the member's value. */
static void line_name(struct meta_line *l, const char *name)
{
	if (l->ml_len && !strchr("{[", l->ml_buf[l->ml_len - 1]))
		line_str(l, ",");
	if (name) {
		line_str(l, "\"");
		line_str(l, name);
		line_str(l, "\":");
	}
}

static void line_number(struct meta_line *l, int64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, v);
	line_str(l, text);
}

/* RFC 3629, without NUL. */
static bool utf8(const uint8_t *p, size_t len)
{
	for (size_t i = 0, more; i < len; i += 1 + more) {
		uint32_t c = p[i], least;

		more = c < 0x80 ? 0 : c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
		if (!c || (c >= 0x80 && c < 0xc2) || c > 0xf4 || len - i <= more)
			return false;
		c &= more ? 0x3fu >> more : 0x7fu;
		for (size_t k = 1; k <= more; k++) {
			if ((p[i + k] & 0xc0) != 0x80)
				return false;
			c = c << 6 | (p[i + k] & 0x3f);
		}
		least = more == 3 ? 0x10000 : more == 2 ? 0x800 : 0;
		if (c < least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
			return false;
	}
	return true;
}

/* ---- bytes ---- */

bool meta_wrong(const struct meta_io *m)
{
	return m->mi_bad || (m->mi_jr && m->mi_jr->jr_bad);
}

static const uint8_t *io_take(struct meta_io *m, size_t n)
{
	const uint8_t *p = m->mi_in;

	if (m->mi_bad || n > m->mi_left) {
		m->mi_bad = true;
		return NULL;
	}
	m->mi_in += n;
	m->mi_left -= n;
	return p;
}

static void io_put(struct meta_io *m, const void *data, size_t n)
{
	if (m->mi_max - m->mi_len < n) {
		json_read_fail(m->mi_jr, "", "the row is longer than rows may be");
		return;
	}
	if (n)
		memcpy(m->mi_to + m->mi_len, data, n);
	m->mi_len += n;
}

static uint64_t number_take(struct meta_io *m, unsigned n)
{
	const uint8_t *p = io_take(m, n);
	uint64_t v = 0;

	for (unsigned i = 0; p && i < n; i++)
		v |= (uint64_t)p[i] << 8 * (m->mi_big ? n - 1 - i : i);
	return v;
}

static void number_put(struct meta_io *m, uint64_t v, unsigned n)
{
	uint8_t b[8];

	for (unsigned i = 0; i < n; i++)
		b[i] = (uint8_t)(v >> 8 * (m->mi_big ? n - 1 - i : i));
	io_put(m, b, n);
}

uint8_t meta_raw(struct meta_io *m, uint8_t v)
{
	if (m->mi_out)
		return (uint8_t)number_take(m, 1);
	number_put(m, v, 1);
	return v;
}

void meta_zero(struct meta_io *m, size_t n)
{
	while (n--)
		m->mi_bad |= meta_raw(m, 0) != 0;
}

/* ---- numbers and words ---- */

/* A member that is not the next bytes as they are. */
uint64_t meta_value(struct meta_io *m, const char *name, uint64_t v, uint64_t most)
{
	if (!m->mi_out)
		return (uint64_t)json_read_int(m->mi_jr, name, 0, (int64_t)most);
	m->mi_bad |= v > most;
	line_name(m->mi_out, name);
	line_number(m->mi_out, (int64_t)v);
	return v;
}

uint64_t meta_uint(struct meta_io *m, const char *name, unsigned n)
{
	uint64_t most = n == 8 ? INT64_MAX : (UINT64_C(1) << 8 * n) - 1;
	uint64_t v = m->mi_out ? number_take(m, n) : 0;

	v = meta_value(m, name, v, most);
	if (!m->mi_out)
		number_put(m, v, n);
	return v;
}

int64_t meta_int(struct meta_io *m, const char *name)
{
	int64_t v;

	if (!m->mi_out) {
		v = json_read_int(m->mi_jr, name, INT64_MIN, INT64_MAX);
		number_put(m, (uint64_t)v, 8);
		return v;
	}
	v = (int64_t)number_take(m, 8);
	line_name(m->mi_out, name);
	line_number(m->mi_out, v);
	return v;
}

uint64_t meta_id(struct meta_io *m, const char *name)
{
	uint8_t b[8];
	uint64_t v;

	if (!m->mi_out) {
		v = json_read_id(m->mi_jr, name);
		number_put(m, v, 8);
		return v;
	}
	v = number_take(m, 8);
	ns_put64(b, v);
	line_name(m->mi_out, name);
	meta_line_hex(m->mi_out, b, sizeof(b));
	return v;
}

void meta_time(struct meta_io *m, const char *seconds, const char *nanoseconds)
{
	meta_int(m, seconds);
	meta_uint(m, nanoseconds, 4);
}

bool meta_bool(struct meta_io *m, const char *name)
{
	uint8_t v;

	if (!m->mi_out)
		return meta_raw(m, json_read_bool(m->mi_jr, name));
	v = meta_raw(m, 0);
	m->mi_bad |= v > 1;
	line_name(m->mi_out, name);
	line_str(m->mi_out, v ? "true" : "false");
	return v;
}

unsigned meta_word(struct meta_io *m, const char *name, const char *const *words)
{
	unsigned n = 0, v;

	if (!m->mi_out)
		return meta_raw(m, (uint8_t)json_read_word(m->mi_jr, name, words));
	while (words[n])
		n++;
	v = meta_raw(m, 0);
	m->mi_bad |= v >= n;
	line_name(m->mi_out, name);
	meta_line_string(m->mi_out, v < n ? words[v] : "", v < n ? strlen(words[v]) : 0);
	return v;
}

static unsigned flags_in(struct meta_io *m, const char *name, const char *const *words)
{
	json_t *a = json_read_array(m->mi_jr, name, 8), *w;
	unsigned v = 0;
	size_t i;

	json_array_foreach(a, i, w)
	{
		const char *s = json_string_value(w);
		unsigned k = 0;

		while (s && words[k] && strcmp(words[k], s) != 0)
			k++;
		if (!s || !words[k] || v & 1u << k)
			json_read_fail(m->mi_jr, name, "a word in it is not known, or is twice");
		else
			v |= 1u << k;
	}
	return meta_raw(m, (uint8_t)v);
}

unsigned meta_flags(struct meta_io *m, const char *name, const char *const *words)
{
	unsigned v, known = 0;

	if (!m->mi_out)
		return flags_in(m, name, words);
	v = meta_raw(m, 0);
	line_name(m->mi_out, name);
	line_str(m->mi_out, "[");
	for (; words[known]; known++)
		if (v & 1u << known) {
			line_name(m->mi_out, NULL);
			meta_line_string(m->mi_out, words[known], strlen(words[known]));
		}
	line_str(m->mi_out, "]");
	m->mi_bad |= v >> known != 0;
	return v;
}

/* ---- texts and bytes ---- */

void meta_hex_rest(struct meta_io *m, const char *name, size_t most)
{
	size_t n = m->mi_left;
	const uint8_t *p;
	uint8_t *b;

	if (m->mi_out) {
		p = n <= most ? io_take(m, n) : NULL;
		m->mi_bad |= !p;
		line_name(m->mi_out, name);
		meta_line_hex(m->mi_out, p, p ? n : 0);
		return;
	}
	b = malloc(most + 1);
	if (b)
		io_put(m, b, json_read_hex_any(m->mi_jr, name, b, most));
	else
		json_read_fail(m->mi_jr, name, "out of memory");
	free(b);
}

void meta_hex(struct meta_io *m, const char *name, size_t n)
{
	uint8_t b[128] = {0};
	const uint8_t *p;

	if (m->mi_out) {
		p = io_take(m, n);
		line_name(m->mi_out, name);
		meta_line_hex(m->mi_out, p, p ? n : 0);
		return;
	}
	json_read_hex(m->mi_jr, name, b, n);
	io_put(m, b, n);
}

static const uint8_t uuid_dash[] = {4, 6, 8, 10};

static void uuid_in(struct meta_io *m, const char *name)
{
	const char *s = json_read_text(m->mi_jr, name, 36);
	uint8_t b[16] = {0};
	bool ok = strlen(s) == 36;

	for (size_t i = 0, at = 0; ok && i < 16; i++, at += 2) {
		char two[3];

		if (memchr(uuid_dash, (int)i, sizeof(uuid_dash)))
			ok = s[at++] == '-';
		snprintf(two, sizeof(two), "%.2s", s + at);
		ok = ok && json_unhex(two, b + i, 1);
	}
	if (!ok)
		json_read_fail(m->mi_jr, name, "a uuid is expected");
	io_put(m, b, sizeof(b));
}

void meta_uuid(struct meta_io *m, const char *name)
{
	char text[40] = "\"";
	const uint8_t *p;
	size_t n = 1;

	if (!m->mi_out) {
		uuid_in(m, name);
		return;
	}
	p = io_take(m, 16);
	line_name(m->mi_out, name);
	for (size_t i = 0; p && i < 16; i++) {
		if (memchr(uuid_dash, (int)i, sizeof(uuid_dash)))
			text[n++] = '-';
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x", p[i]);
	}
	text[n++] = '"';
	meta_line_add(m->mi_out, text, n);
}

static void text_out(struct meta_io *m, const char *name, const char *hex, const uint8_t *p,
		     size_t n)
{
	bool plain = p && utf8(p, n);

	line_name(m->mi_out, plain ? name : hex);
	if (plain)
		meta_line_string(m->mi_out, (const char *)p, n);
	else
		meta_line_hex(m->mi_out, p, p ? n : 0);
}

/* Reads the text into b of max bytes. Returns its length. */
static size_t text_in(struct meta_io *m, const char *name, const char *hex, uint8_t *b, size_t max)
{
	const char *s;
	size_t n;

	if (json_read_has(m->mi_jr, hex))
		return json_read_hex_any(m->mi_jr, hex, b, max);
	s = json_read_text(m->mi_jr, name, max);
	n = strlen(s);
	memcpy(b, s, n);
	return n;
}

size_t meta_len(struct meta_io *m, const char *name, const char *hex, unsigned n)
{
	json_t *o = m->mi_out ? NULL : m->mi_jr->jr_object, *s;
	size_t len;

	if (m->mi_out)
		return number_take(m, n);
	s = json_object_get(o, hex);
	len = s ? json_string_length(s) / 2 : json_string_length(json_object_get(o, name));
	if (len >> 8 * n)
		json_read_fail(m->mi_jr, s ? hex : name, "is too long");
	number_put(m, len, n);
	return len;
}

void meta_text(struct meta_io *m, const char *name, const char *hex, size_t len)
{
	size_t most = len == META_REST ? 65536 : len;
	uint8_t *b;

	if (m->mi_out) {
		size_t n = len == META_REST ? m->mi_left : len;

		text_out(m, name, hex, io_take(m, n), m->mi_bad ? 0 : n);
		return;
	}
	b = malloc(most + 1);
	if (b)
		io_put(m, b, text_in(m, name, hex, b, most));
	else
		json_read_fail(m->mi_jr, name, "out of memory");
	free(b);
}

void meta_padded(struct meta_io *m, const char *name, const char *hex, size_t n)
{
	uint8_t b[128] = {0};
	const uint8_t *p;

	if (!m->mi_out) {
		text_in(m, name, hex, b, n);
		io_put(m, b, n);
		return;
	}
	p = io_take(m, n);
	while (p && n && !p[n - 1])
		n--;
	text_out(m, name, hex, p, p ? n : 0);
}

bool meta_ends(const struct meta_io *m, const char *next)
{
	return m->mi_out ? !m->mi_left : !json_read_has(m->mi_jr, next);
}

/* ---- objects and arrays ---- */

void meta_begin(struct meta_io *m, struct meta_sub *s, const char *name)
{
	*s = (struct meta_sub){.ms_name = name, .ms_was = m->mi_jr};
	if (m->mi_out) {
		line_name(m->mi_out, name);
		line_str(m->mi_out, "{");
		return;
	}
	json_read_object(&s->ms_read, json_read_any(m->mi_jr, name));
	m->mi_jr = &s->ms_read;
}

void meta_end(struct meta_io *m, struct meta_sub *s)
{
	if (m->mi_out) {
		line_str(m->mi_out, "}");
		return;
	}
	m->mi_jr = s->ms_was;
	if (!json_read_end(&s->ms_read))
		json_read_fail(m->mi_jr, s->ms_name, s->ms_read.jr_why);
}

size_t meta_count(struct meta_io *m, const char *name, unsigned n)
{
	size_t items;

	if (m->mi_out)
		return number_take(m, n);
	items = json_array_size(json_object_get(m->mi_jr->jr_object, name));
	if (items >> 8 * n)
		json_read_fail(m->mi_jr, name, "a shorter array is expected");
	number_put(m, items, n);
	return items;
}

void meta_list(struct meta_io *m, struct meta_sub *s, const char *name, size_t n)
{
	*s = (struct meta_sub){.ms_name = name, .ms_was = m->mi_jr};
	if (m->mi_out) {
		line_name(m->mi_out, name);
		line_str(m->mi_out, "[");
		return;
	}
	s->ms_array = json_read_array(m->mi_jr, name, n);
	if (s->ms_array && json_array_size(s->ms_array) != n)
		json_read_fail(m->mi_jr, name, "a longer array is expected");
}

void meta_item(struct meta_io *m, struct meta_sub *s, size_t i)
{
	if (m->mi_out) {
		line_name(m->mi_out, NULL);
		line_str(m->mi_out, "{");
		return;
	}
	json_read_object(&s->ms_read, json_array_get(s->ms_array, i));
	m->mi_jr = &s->ms_read;
}

void meta_item_end(struct meta_io *m, struct meta_sub *s)
{
	meta_end(m, s);
}

void meta_list_end(struct meta_io *m, struct meta_sub *s)
{
	(void)s;
	if (m->mi_out)
		line_str(m->mi_out, "]");
}

void meta_numbers(struct meta_io *m, const char *name, size_t n)
{
	struct meta_sub s;

	meta_list(m, &s, name, n);
	for (size_t i = 0; i < n && !meta_wrong(m); i++) {
		json_t *v = m->mi_out ? NULL : json_array_get(s.ms_array, i);

		if (m->mi_out) {
			uint64_t u = number_take(m, 8);

			m->mi_bad |= u > INT64_MAX;
			line_name(m->mi_out, NULL);
			line_number(m->mi_out, (int64_t)u);
		} else if (json_is_integer(v) && json_integer_value(v) >= 0) {
			number_put(m, (uint64_t)json_integer_value(v), 8);
		} else {
			json_read_fail(m->mi_jr, name, "numbers are expected in it");
		}
	}
	meta_list_end(m, &s);
}
