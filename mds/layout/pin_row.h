/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pin_row.h - the stored rows of pins (docs/pin.md), in the table NS_T_PIN. A pin has a row with
 * what was asked, and a row for each file that it has given a copy, or is about to. The file's map
 * says which mirror that copy is (lm_pin). mds/jobs/pin.c makes the copies and takes them away.
 */
#ifndef MDS_LO_PIN_H
#define MDS_LO_PIN_H
#include "mds/layout/lo.h"

#define LO_PINS_MAX 256 /* pins at a time */

/* These numbers are stored. */
enum lo_pin_state {
	LO_PIN_COUNT,	/* its files are being counted: nothing is made yet */
	LO_PIN_MAKE,	/* copies are being made */
	LO_PIN_HELD,	/* all are made */
	LO_PIN_RELEASE, /* they are being taken away */
	LO_PIN_STATES
};
struct lo_pin {
	uint64_t pi_number; /* never given twice */
	uint64_t pi_ino;    /* a file, or with pi_recursive a directory */
	bool pi_recursive;
	bool pi_warm;			 /* its copies may go when room is needed */
	uint8_t pi_state;		 /* enum lo_pin_state */
	uint64_t pi_made_s, pi_until_s;	 /* CLOCK_REALTIME; until 0: until it is unpinned */
	uint64_t pi_files, pi_bytes;	 /* that need a copy, as counted; then as made */
	uint64_t pi_passed;		 /* files that got none */
	char pi_group[LO_PIN_GROUP_LEN]; /* labels, as in a policy */
};
int lo_pin_put(struct kv_txn *t, const struct lo_pin *p); /* W */
/* -ENOENT, -EIO */
int lo_pin_get(struct kv_txn *t, uint64_t number, struct lo_pin *p);
int lo_pin_del(struct kv_txn *t, uint64_t number); /* W */
/* Calls fn for all pins; fn returns 0 to go on. */
int lo_pins(struct kv_txn *t, int (*fn)(void *arg, const struct lo_pin *p), void *arg);

int lo_pin_file_put(struct kv_txn *t, uint64_t number, uint64_t ino); /* W */
int lo_pin_file_del(struct kv_txn *t, uint64_t number, uint64_t ino); /* W */
bool lo_pin_file_is(struct kv_txn *t, uint64_t number, uint64_t ino);
/* Calls fn for the files of a pin from an inode on; fn returns 0 to go on. */
int lo_pin_files(struct kv_txn *t, uint64_t number, uint64_t from,
		 int (*fn)(void *arg, uint64_t ino), void *arg);
/* Has any pin but this one (0: any) the file, with copies on servers of these labels (NULL: on
 * any)? */
bool lo_pin_shares(struct kv_txn *t, uint64_t ino, uint64_t except, const char *group);

/* Decodes a row of either kind, for the checker. *ino: 0 for a pin's own row. 0 or -EIO. */
int lo_pin_decode(struct kv_slice id, struct kv_slice val, struct lo_pin *p, uint64_t *ino);
#endif
