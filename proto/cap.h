/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cap.h - the data server's file handle: a capability (docs/decisions/capabilities.md). 32 bytes on
 * the wire (docs/formats.md). The MDS mints it; the data server checks it without asking any other
 * server.
 */
#ifndef PROTO_CAP_H
#define PROTO_CAP_H
#include <stdbool.h>
#include <stdint.h>

#define CAP_LEN		    32
#define CAP_KEY_LEN	    16
#define CAP_CLUSTER_KEY_LEN 32
enum { CAP_READ = 1, CAP_WRITE = 2, CAP_MUST_EXIST = 4, CAP_STRIPED = 8 };

/* One object: one stripe of one mirror of one file. */
struct cap_object {
	uint64_t co_ino;
	uint16_t co_fs;		 /* file system number in the cluster */
	uint16_t co_incarnation; /* raised when a store is restored */
	uint8_t co_stripe, co_copy;
};
struct cap {
	struct cap_object cp_obj;
	uint8_t cp_version; /* 2; any other is minted as 1, which has neither unit nor stripes */
	uint8_t cp_rights;  /* CAP_* */
	uint8_t cp_key;	    /* key number */
	uint8_t cp_unit_log2, cp_stripes; /* of the file; 0 and 1 where it has no stripes */
	uint32_t cp_epoch;		  /* fence epoch: refused when lower than the object's */
	uint32_t cp_client;		  /* client number; 0: the MDS itself */
};
/* key: the data server's own, from cap_derive_key. */
void cap_mint(const struct cap *c, const uint8_t key[CAP_KEY_LEN], uint8_t out[CAP_LEN]);
/* False: wrong version or MAC (NFS3ERR_BADHANDLE). */
bool cap_open(const uint8_t in[CAP_LEN], const uint8_t key[CAP_KEY_LEN], struct cap *c);
/* True when bytes off to off + count belong to the object: they lie in one unit of its stripe.
 * False for a range that wraps. Version 1: always true. */
bool cap_has(const struct cap *c, uint64_t off, uint32_t count);
/* The file system number in the top 16 bits of an inode number. 0 there means a store from before
 * there were several file systems: returns 1. */
uint16_t cap_fs_of(uint64_t ino);
/* Read the key's number and the file system before the MAC can be checked. */
uint8_t cap_key_number(const uint8_t in[CAP_LEN]);
uint16_t cap_fs_number(const uint8_t in[CAP_LEN]);
/* The key that the MDS and this data server prove to each other over TLS (rpc_tls.h). */
#define CAP_TLS_KEY_LEN 32
void cap_derive_tls_key(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t ds_uuid[16],
			uint8_t out[CAP_TLS_KEY_LEN]);
void cap_derive_key(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t ds_uuid[16],
		    uint8_t key_number, uint8_t out[CAP_KEY_LEN]);
/* The cluster key of number 0 as one file system has it, from which come the keys of capabilities
 * and the control keys that its MDS gives out. File system 1 has the cluster key itself, as before
 * there were several. */
void cap_derive_fs(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], uint16_t fs,
		   uint8_t out[CAP_CLUSTER_KEY_LEN]);
#endif
