/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot.c - the store's boots, and numbers that no other timeline has given (docs/recovery.md).
 *
 * Each boot has a number and a random identity, which the store keeps by the number. Data servers
 * keep number and identity of the last boot that they joined. A restored store reaches the same
 * numbers again, but with other identities.
 *
 * A timeline goes from one restoration to the next. Its number is in the high bits of the boots'
 * numbers and of all numbers that are given in it. So this timeline gives no number that another
 * one has given, however far the other has come.
 */
#include "mds/namespace/keys.h"
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

/* Bits below the timeline's number: in the number of a boot, an inode, an order and a client, and
 * in a fence epoch. */
#define IN_BOOT	  16
#define IN_INO	  32
#define IN_ORDER  40
#define IN_CLIENT 24
#define IN_EPOCH  23
#define LINES_MAX 254u /* an incarnation is one more than this, and has one byte */
_Static_assert(LINES_MAX + 1 < NS_PLACED_AGAIN, "an incarnation is the store's below that");

static void boot_key(uint64_t boot, uint8_t key[8])
{
	ns_put64(key, boot);
}

/* W */
static int boot_put(struct kv_txn *t, uint64_t boot, uint64_t id)
{
	struct ns_boot_rec r = {.b_version = NS_VERSION, .b_id = htole64(id)};
	uint8_t key[8];

	boot_key(boot, key);
	return ns_row_put(t, NS_T_BOOT, key, sizeof(key), &r, sizeof(r));
}

static uint64_t boot_new_id(void)
{
	uint64_t id;

	do
		randombytes_buf(&id, sizeof(id));
	while (!id);
	return id;
}

int ns_boot_begin(struct kv_txn *t, struct ns_super *su)
{
	uint8_t key[8];
	int err;

	su->su_boot_id = boot_new_id();
	err = boot_put(t, su->su_boot, su->su_boot_id);
	if (err || su->su_boot <= NS_BOOTS_KEPT)
		return err;
	boot_key(su->su_boot - NS_BOOTS_KEPT, key);
	return ns_row_del(t, NS_T_BOOT, key, sizeof(key));
}

int ns_boot_check(const struct ns *ns, struct kv_txn *t, uint64_t boot, uint64_t id)
{
	const struct ns_boot_rec *r;
	struct kv_slice val;
	uint8_t key[8];
	int err;

	if (boot > ns->n_super.su_boot)
		return -EOVERFLOW;
	if (!id)
		return 0;
	boot_key(boot, key);
	err = ns_row_get(t, NS_T_BOOT, key, sizeof(key), &val);
	/* The boot is from before a restoration, or too long ago. */
	if (err)
		return err == -ENOENT ? 0 : err;
	r = val.s_data;
	if (val.s_len != sizeof(*r) || r->b_version != NS_VERSION)
		return -EIO;
	return le64toh(r->b_id) == id ? 0 : -ESTALE;
}

bool ns_boot_here(const struct ns *ns, uint64_t boot)
{
	return boot >> IN_BOOT == ns->n_super.su_boot >> IN_BOOT;
}

int ns_order_check(struct kv_txn *t, uint64_t number)
{
	struct ns_super su;
	int err = ns_super_get(t, &su);

	if (err)
		return err == -ENOENT ? -EIO : err;
	return number < su.su_order_next ? 0 : -EOVERFLOW;
}

struct boots {
	uint64_t bs_boot[2 * NS_BOOTS_KEPT];
	unsigned bs_n;
};

static int boots_collect(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct boots *bs = arg;

	(void)val;
	if (id.s_len != 8)
		return -EIO;
	bs->bs_boot[bs->bs_n++] = ns_get64(id.s_data);
	return bs->bs_n == 2 * NS_BOOTS_KEPT;
}

/* W: deletes the boots of the timeline that was left. They prove nothing about boots that data
 * servers saw. */
static int boots_forget(struct kv_txn *t)
{
	struct boots *bs = calloc(1, sizeof(*bs));
	uint8_t key[8];
	int err;

	if (!bs)
		return -ENOMEM;
	do {
		bs->bs_n = 0;
		err = ns_rows(t, NS_T_BOOT, "", 0, boots_collect, bs);
		for (unsigned i = 0; !err && i < bs->bs_n; i++) {
			boot_key(bs->bs_boot[i], key);
			err = ns_row_del(t, NS_T_BOOT, key, sizeof(key));
		}
	} while (!err && bs->bs_n == 2 * NS_BOOTS_KEPT);
	free(bs);
	return err;
}

static uint64_t at_least(uint64_t was, uint64_t line, unsigned bits)
{
	uint64_t first = line << bits;

	return was > first ? was : first;
}

int ns_restore(struct ns *ns, struct kv_txn *t, uint64_t boot)
{
	struct ns_super su;
	uint64_t line, first;
	int err = ns_super_get(t, &su);

	if (err)
		return err == -ENOENT ? -EIO : err;
	line = ((boot > su.su_boot ? boot : su.su_boot) >> IN_BOOT) + 1;
	if (line > LINES_MAX)
		return -EMFILE;
	su.su_boot = line << IN_BOOT;
	su.su_incarnation = (uint16_t)(line + 1);
	first = ns_fs_ino(su.su_fs) + (line << IN_INO);
	if (su.su_ino_next < first)
		su.su_ino_next = first;
	su.su_order_next = at_least(su.su_order_next, line, IN_ORDER);
	su.su_client_next = (uint32_t)at_least(su.su_client_next, line, IN_CLIENT);
	err = boots_forget(t);
	if (!err)
		err = ns_boot_begin(t, &su);
	if (!err)
		err = ns_super_put(ns, t, &su);
	if (err)
		return err;
	/* The values in memory may be ahead of a transaction that was aborted. Then numbers are
	 * skipped. */
	ns->n_super = su;
	ns->n_ino_next = su.su_ino_next;
	ns->n_order_next = su.su_order_next;
	return 0;
}

uint32_t ns_timeline_epoch(const struct ns *ns)
{
	return (uint32_t)(ns->n_super.su_boot >> IN_BOOT << IN_EPOCH);
}

uint64_t ns_timeline_ino(const struct ns *ns)
{
	uint64_t line = ns->n_super.su_incarnation - 1u;

	return line ? ns_fs_ino(ns->n_super.su_fs) + (line << IN_INO) : 0;
}
