/* SPDX-License-Identifier: Apache-2.0 */
/* pin_row.c - the stored rows of pins; see pin_row.h. */
#include "mds/layout/pin_row.h"
#include "mds/layout/lo_int.h"
#include <errno.h>

#define PIN_VERSION 1

enum { PIN_RECURSIVE = 1, PIN_WARM = 2 };
struct pin_rec {
	uint8_t p_version, p_flags, p_state, p_zero[5];
	uint64_t p_ino, p_made, p_until, p_files, p_bytes, p_passed;
} __attribute__((packed)); /* the group follows */
_Static_assert(sizeof(struct pin_rec) == 56, "record of a pin, version 1");

/* The id of a row: the pin's number, and for a file's row its inode. */
struct pin_key {
	uint64_t pk_number, pk_ino;
};

static struct pin_key key_of(uint64_t number, uint64_t ino)
{
	return (struct pin_key){htobe64(number), htobe64(ino)};
}

static int pin_row_decode(struct kv_slice val, struct lo_pin *p)
{
	const struct pin_rec *r = val.s_data;
	size_t len = val.s_len - sizeof(*r);

	if (val.s_len <= sizeof(*r) || r->p_version != PIN_VERSION ||
	    r->p_flags > (PIN_RECURSIVE | PIN_WARM) || r->p_state >= LO_PIN_STATES || !r->p_ino ||
	    len >= sizeof(p->pi_group) || !lo_group_ok((const char *)(r + 1), len))
		return -EIO;
	p->pi_ino = le64toh(r->p_ino);
	p->pi_recursive = r->p_flags & PIN_RECURSIVE;
	p->pi_warm = r->p_flags & PIN_WARM;
	p->pi_state = r->p_state;
	p->pi_made_s = le64toh(r->p_made);
	p->pi_until_s = le64toh(r->p_until);
	p->pi_files = le64toh(r->p_files);
	p->pi_bytes = le64toh(r->p_bytes);
	p->pi_passed = le64toh(r->p_passed);
	memcpy(p->pi_group, r + 1, len);
	return 0;
}

int lo_pin_decode(struct kv_slice id, struct kv_slice val, struct lo_pin *p, uint64_t *ino)
{
	struct pin_key k = {0};

	*p = (struct lo_pin){0};
	if (id.s_len != sizeof(k) && id.s_len != sizeof(k.pk_number))
		return -EIO;
	memcpy(&k, id.s_data, id.s_len);
	p->pi_number = be64toh(k.pk_number);
	*ino = be64toh(k.pk_ino);
	if (!p->pi_number)
		return -EIO;
	if (id.s_len == sizeof(k.pk_number))
		return pin_row_decode(val, p);
	return *ino && val.s_len == 1 && *(const uint8_t *)val.s_data == PIN_VERSION ? 0 : -EIO;
}

/* ---- pins ---- */

int lo_pin_put(struct kv_txn *t, const struct lo_pin *p)
{
	struct pin_key k = key_of(p->pi_number, 0);
	uint8_t row[sizeof(struct pin_rec) + LO_PIN_GROUP_LEN];
	struct pin_rec r = {.p_version = PIN_VERSION,
			    .p_flags = (uint8_t)((p->pi_recursive ? PIN_RECURSIVE : 0) |
						 (p->pi_warm ? PIN_WARM : 0)),
			    .p_state = p->pi_state,
			    .p_ino = htole64(p->pi_ino),
			    .p_made = htole64(p->pi_made_s),
			    .p_until = htole64(p->pi_until_s),
			    .p_files = htole64(p->pi_files),
			    .p_bytes = htole64(p->pi_bytes),
			    .p_passed = htole64(p->pi_passed)};
	size_t len = strlen(p->pi_group);

	memcpy(row, &r, sizeof(r));
	memcpy(row + sizeof(r), p->pi_group, len);
	return ns_row_put(t, NS_T_PIN, &k, sizeof(k.pk_number), row, sizeof(r) + len);
}

int lo_pin_get(struct kv_txn *t, uint64_t number, struct lo_pin *p)
{
	struct pin_key k = key_of(number, 0);
	struct kv_slice val;
	uint64_t ino;
	int err = ns_row_get(t, NS_T_PIN, &k, sizeof(k.pk_number), &val);

	return err ? err : lo_pin_decode((struct kv_slice){&k, sizeof(k.pk_number)}, val, p, &ino);
}

int lo_pin_del(struct kv_txn *t, uint64_t number)
{
	struct pin_key k = key_of(number, 0);

	return ns_row_del(t, NS_T_PIN, &k, sizeof(k.pk_number));
}

struct scan {
	int (*sc_pin)(void *arg, const struct lo_pin *p);
	int (*sc_file)(void *arg, uint64_t ino);
	void *sc_arg;
	uint64_t sc_number; /* of files: of which pin */
	int sc_err;
	/* how far it came; the number of the pin whose files are passed over */
	uint64_t sc_after;
	bool sc_more;
};

static int pin_row_read(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct scan *s = arg;
	struct lo_pin p;
	uint64_t ino;

	s->sc_err = lo_pin_decode(id, val, &p, &ino);
	if (s->sc_err)
		return 1;
	if (ino) { /* go on behind the files of this pin */
		s->sc_after = p.pi_number;
		s->sc_more = true;
		return 1;
	}
	return s->sc_pin(s->sc_arg, &p);
}

/* There may be very many rows of files between two pins: they are not read. */
int lo_pins(struct kv_txn *t, int (*fn)(void *arg, const struct lo_pin *p), void *arg)
{
	struct scan s = {.sc_pin = fn, .sc_arg = arg};
	int err;

	do {
		uint64_t from = htobe64(s.sc_after + 1);

		s.sc_more = false;
		err = ns_rows(t, NS_T_PIN, &from, sizeof(from), pin_row_read, &s);
	} while (err >= 0 && !s.sc_err && s.sc_more);
	return s.sc_err ? s.sc_err : err < 0 ? err : 0;
}

/* ---- files ---- */

static const uint8_t file_version = PIN_VERSION;

int lo_pin_file_put(struct kv_txn *t, uint64_t number, uint64_t ino)
{
	struct pin_key k = key_of(number, ino);

	return ns_row_put(t, NS_T_PIN, &k, sizeof(k), &file_version, 1);
}

int lo_pin_file_del(struct kv_txn *t, uint64_t number, uint64_t ino)
{
	struct pin_key k = key_of(number, ino);

	return ns_row_del(t, NS_T_PIN, &k, sizeof(k));
}

bool lo_pin_file_is(struct kv_txn *t, uint64_t number, uint64_t ino)
{
	struct pin_key k = key_of(number, ino);
	struct kv_slice val;

	return !ns_row_get(t, NS_T_PIN, &k, sizeof(k), &val);
}

static int file_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct scan *s = arg;
	struct lo_pin p;
	uint64_t ino;

	s->sc_err = lo_pin_decode(id, val, &p, &ino);
	if (s->sc_err || p.pi_number != s->sc_number || !ino)
		return 1;
	return s->sc_file(s->sc_arg, ino);
}

int lo_pin_files(struct kv_txn *t, uint64_t number, uint64_t from,
		 int (*fn)(void *arg, uint64_t ino), void *arg)
{
	struct scan s = {.sc_file = fn, .sc_arg = arg, .sc_number = number};
	struct pin_key k = key_of(number, from ? from : 1);
	int err = ns_rows(t, NS_T_PIN, &k, sizeof(k), file_row, &s);

	return s.sc_err ? s.sc_err : err < 0 ? err : 0;
}

struct sharing {
	struct kv_txn *sh_txn;
	uint64_t sh_ino, sh_except;
	const char *sh_group;
	bool sh_found;
};

static int shares(void *arg, const struct lo_pin *p)
{
	struct sharing *s = arg;

	s->sh_found = p->pi_number != s->sh_except &&
		      (!s->sh_group || !strcmp(p->pi_group, s->sh_group)) &&
		      lo_pin_file_is(s->sh_txn, p->pi_number, s->sh_ino);
	return s->sh_found;
}

bool lo_pin_shares(struct kv_txn *t, uint64_t ino, uint64_t except, const char *group)
{
	struct sharing s = {t, ino, except, group, false};

	lo_pins(t, shares, &s);
	return s.sh_found;
}
