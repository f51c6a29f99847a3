/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compound_words.h - what an input of fuzz_compound is made of: tokens, and the names and the whole
 * operations that some of them stand for. The inputs that are kept number them: new ones go to the
 * end.
 */
#ifndef TESTS_FUZZ_COMPOUND_WORDS_H
#define TESTS_FUZZ_COMPOUND_WORDS_H
#include "mds/namespace/ns.h"
#include "proto/nfs4.h"
#include <stdint.h>

/* Tokens. What is not listed is the number itself, as 4 bytes. */
enum {
	T_RAW4 = 0x60, /* 4 bytes as they are */
	T_RAW8,	       /* 8 bytes */
	T_RAW16,       /* 16 bytes */
	T_RAWN,	       /* n: 4 * n bytes */
	T_OPAQUE,      /* n: that many bytes as an opaque */
	T_LONG,	       /* n, b: an opaque of 64 * n bytes b */
	T_ZERO8,
	T_MAX8,	  /* 8 bytes of 0, of ff */
	T_U64,	  /* v: as 8 bytes */
	T_SHIFT8, /* v, s: v << s as 8 bytes */
	T_MAX4,	  /* ff ff ff ff */
	T_SHIFT4, /* v, s */
	T_NAME,	  /* k: of the names */
	T_OPEN,	  /* k: the k-th newest open stateid of the client */
	T_LAYOUT, /* k: layout stateid */
	T_SID_CURRENT,
	T_SID_ANON,
	T_SID_BYPASS,
	T_FH,	  /* k: handle of the k-th inode; from 8 on, of those made in this input */
	T_DEVICE, /* k: of a data server */
	T_CLIENTID,
	T_SESSION,
	T_BEGIN,
	T_END_OPAQUE,  /* an opaque around tokens */
	T_ATTRS,       /* k: a fattr4 of a few settable attributes */
	T_BITMAP,      /* n: of n words, 4 * n bytes */
	T_OP,	       /* n: the next operation */
	T_TEMPLATE,    /* k: of the templates */
	T_OPS_PLUS,    /* k: says that there are k operations more than there are */
	T_OPEN_SEQ,    /* k, n: as T_OPEN, with n added to the seqid */
	T_ZEROS,       /* n: words of 0 */
	T_DROP = 0xfe, /* sends, and closes the connection at once */
	T_END = 0xff,  /* sends */
};

static const char *const names[] = {"f",
				    "g",
				    "d",
				    "s",
				    "new",
				    "user.a",
				    "weft.policy",
				    "weft.layout",
				    "stripes=2,mirrors=1",
				    "mirrors=2",
				    "..",
				    "a/b",
				    "0",
				    "1000",
				    "",
				    "stripes=2,unit=2M,mirrors=1",
				    "EVERYONE@",
				    "GROUP@",
				    "mirrors=2,domain=rack",
				    "group=rack=r1"};

#define OP(n)	T_OP, n
#define NAME(k) T_NAME, k
/* Whole operations with sensible arguments: the second byte of T_TEMPLATE. */
#define TEMPLATE(...)                                                                              \
	{                                                                                          \
		sizeof((const uint8_t[]){__VA_ARGS__}), (const uint8_t[])                          \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
static const struct {
	size_t len;
	const uint8_t *bytes;
} templates[] = {
	/* 0 .. 3: OPEN unchecked, guarded with mode, exclusive 4.1, existing */
	TEMPLATE(OP(OP_OPEN), 0, 3, 0, T_CLIENTID, T_OPAQUE, 2, 'o', '1', 1, UNCHECKED4, T_ATTRS, 0,
		 CLAIM_NULL, NAME(0)),
	TEMPLATE(OP(OP_OPEN), 0, 2, 0, T_CLIENTID, T_OPAQUE, 2, 'o', '1', 1, GUARDED4, T_ATTRS, 1,
		 CLAIM_NULL, NAME(4)),
	TEMPLATE(OP(OP_OPEN), 0, 3, 1, T_CLIENTID, T_OPAQUE, 2, 'o', '2', 1, EXCLUSIVE4_1, T_RAW8,
		 1, 2, 3, 4, 5, 6, 7, 8, T_ATTRS, 1, CLAIM_NULL, NAME(4)),
	TEMPLATE(OP(OP_OPEN), 0, 1, 0, T_CLIENTID, T_OPAQUE, 2, 'o', '3', 0, CLAIM_NULL, NAME(0)),
	/* 4, 5: by handle, reclaim */
	TEMPLATE(OP(OP_OPEN), 0, 3, 0, T_CLIENTID, T_OPAQUE, 2, 'o', '1', 0, CLAIM_FH),
	TEMPLATE(OP(OP_OPEN), 0, 3, 0, T_CLIENTID, T_OPAQUE, 2, 'o', '1', 0, CLAIM_PREVIOUS, 0),
	/* 6 .. 8: LAYOUTGET for writing, reading, from a layout stateid */
	TEMPLATE(OP(OP_LAYOUTGET), 0, 4, LAYOUTIOMODE4_RW, T_ZERO8, T_MAX8, T_ZERO8, T_SID_CURRENT,
		 T_SHIFT4, 1, 12),
	TEMPLATE(OP(OP_LAYOUTGET), 0, 4, LAYOUTIOMODE4_READ, T_ZERO8, T_MAX8, T_ZERO8, T_OPEN, 0,
		 T_SHIFT4, 1, 12),
	TEMPLATE(OP(OP_LAYOUTGET), 0, 4, LAYOUTIOMODE4_RW, T_ZERO8, T_MAX8, T_ZERO8, T_LAYOUT, 0,
		 T_SHIFT4, 1, 12),
	/* 9 .. 12: LAYOUTRETURN: empty body; an error and statistics; part; all */
	TEMPLATE(OP(OP_LAYOUTRETURN), 0, 4, 3, 1, T_ZERO8, T_MAX8, T_LAYOUT, 0, 0),
	TEMPLATE(OP(OP_LAYOUTRETURN), 0, 4, 3, 1, T_ZERO8, T_MAX8, T_LAYOUT, 0, T_BEGIN, 1, T_ZERO8,
		 T_MAX8, T_LAYOUT, 0, 1, T_DEVICE, 0, 5, OP_WRITE, 1, T_ZERO8, T_MAX8, T_LAYOUT, 0,
		 T_U64, 1, T_U64, 2, T_U64, 3, T_U64, 4, T_DEVICE, 0, T_OPAQUE, 3, 't', 'c', 'p',
		 T_OPAQUE, 9, '1', '.', '2', '.', '3', '.', '4', '.', '5', T_FH, 8, T_ZEROS, 16,
		 T_ZEROS, 16, T_U64, 9, 7, 1, T_END_OPAQUE),
	TEMPLATE(OP(OP_LAYOUTRETURN), 0, 4, 2, 1, T_U64, 1, T_SHIFT8, 1, 20, T_LAYOUT, 0, 0),
	TEMPLATE(OP(OP_LAYOUTRETURN), 0, 4, 3, 3),
	/* 13: LAYOUTCOMMIT */
	TEMPLATE(OP(OP_LAYOUTCOMMIT), T_ZERO8, T_MAX8, 0, T_LAYOUT, 0, 1, T_U64, 99, 1, T_U64, 50,
		 1, 4, 0),
	/* 14, 15: LAYOUTERROR, LAYOUTSTATS */
	TEMPLATE(OP(OP_LAYOUTERROR), T_ZERO8, T_MAX8, T_LAYOUT, 0, 1, T_DEVICE, 0, 28, OP_WRITE),
	TEMPLATE(OP(OP_LAYOUTSTATS), T_ZERO8, T_MAX8, T_LAYOUT, 0, T_U64, 1, T_U64, 2, T_U64, 3,
		 T_U64, 4, T_DEVICE, 0, 4, T_OPAQUE, 4, 1, 2, 3, 4),
	/* 16: GETDEVICEINFO */
	TEMPLATE(OP(OP_GETDEVICEINFO), T_DEVICE, 0, 4, T_SHIFT4, 1, 12, 1, 6),
	/* 17, 18: SETATTR size, mode and times */
	TEMPLATE(OP(OP_SETATTR), T_OPEN, 0, T_ATTRS, 2),
	TEMPLATE(OP(OP_SETATTR), T_SID_ANON, T_ATTRS, 4),
	/* 19 .. 21: READ, WRITE, COMMIT */
	TEMPLATE(OP(OP_READ), T_OPEN, 0, T_ZERO8, T_SHIFT4, 1, 12),
	TEMPLATE(OP(OP_WRITE), T_OPEN, 0, T_U64, 10, 2, T_OPAQUE, 5, 'h', 'e', 'l', 'l', 'o'),
	TEMPLATE(OP(OP_COMMIT), T_ZERO8, 0),
	/* 22, 23: READDIR, GETATTR of everything */
	TEMPLATE(OP(OP_READDIR), T_ZERO8, T_ZERO8, T_SHIFT4, 1, 10, T_SHIFT4, 1, 12, T_BITMAP, 3,
		 0xff, 0xff, 0xff, 0xff, 0xff, 0xbe, 0xff, 0xff, 0xff, 0xcd, 0xfb, 0xff),
	TEMPLATE(OP(OP_GETATTR), T_BITMAP, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbe, 0xff, 0xff, 0xff,
		 0xcd, 0xfb, 0xff),
	/* 24 .. 31: the small ones of the name space */
	TEMPLATE(OP(OP_LOOKUP), NAME(2)),
	TEMPLATE(OP(OP_CREATE), NS_DIR, NAME(4), T_ATTRS, 1),
	TEMPLATE(OP(OP_CREATE), NS_LNK, NAME(2), NAME(4), T_ATTRS, 0),
	TEMPLATE(OP(OP_CREATE), NS_CHR, 1, 3, NAME(4), T_ATTRS, 3),
	TEMPLATE(OP(OP_REMOVE), NAME(0)),
	TEMPLATE(OP(OP_SAVEFH), OP(OP_RENAME), NAME(0), NAME(4)),
	TEMPLATE(OP(OP_SAVEFH), OP(OP_PUTROOTFH), OP(OP_LINK), NAME(4)),
	TEMPLATE(OP(OP_ACCESS), T_SHIFT4, 63, 0),
	/* 32 .. 38: extended attributes, the virtual ones among them */
	TEMPLATE(OP(OP_SETXATTR), 0, NAME(5), T_OPAQUE, 3, 'a', 'b', 'c'),
	TEMPLATE(OP(OP_GETXATTR), NAME(5)),
	TEMPLATE(OP(OP_LISTXATTRS), T_ZERO8, T_SHIFT4, 1, 10),
	TEMPLATE(OP(OP_REMOVEXATTR), NAME(5)),
	TEMPLATE(OP(OP_SETXATTR), 0, NAME(6), NAME(8)),
	TEMPLATE(OP(OP_GETXATTR), NAME(6)),
	TEMPLATE(OP(OP_GETXATTR), NAME(7)),
	/* 39 .. 46: state */
	TEMPLATE(OP(OP_CLOSE), 0, T_OPEN, 0),
	TEMPLATE(OP(OP_OPEN_DOWNGRADE), T_OPEN, 0, 0, 1, 0),
	TEMPLATE(OP(OP_TEST_STATEID), 2, T_OPEN, 0, T_LAYOUT, 0),
	TEMPLATE(OP(OP_FREE_STATEID), T_OPEN, 0),
	TEMPLATE(OP(OP_EXCHANGE_ID), T_RAW8, 1, 2, 3, 4, 5, 6, 7, 8, T_OPAQUE, 1, 'A', 0, 0, 1,
		 NAME(0), NAME(0), T_U64, 1, 1),
	TEMPLATE(OP(OP_CREATE_SESSION), T_CLIENTID, 2, 2, 0, T_SHIFT4, 1, 20, T_SHIFT4, 1, 20,
		 T_SHIFT4, 1, 12, 16, 8, 0, 0, T_SHIFT4, 1, 12, T_SHIFT4, 1, 12, 0, 2, 1, 0,
		 T_SHIFT4, 1, 30, 1, 1, 0, T_OPAQUE, 1, 'm', 0, 0, 0),
	TEMPLATE(OP(OP_DESTROY_SESSION), T_SESSION),
	TEMPLATE(OP(OP_DESTROY_CLIENTID), T_CLIENTID),
	/* 47 .. 54 */
	TEMPLATE(OP(OP_BIND_CONN_TO_SESSION), T_SESSION, 3, 0),
	TEMPLATE(OP(OP_BACKCHANNEL_CTL), T_SHIFT4, 1, 30, 1, 1, 0, T_OPAQUE, 1, 'm', 0, 0, 1, 5),
	TEMPLATE(OP(OP_RECLAIM_COMPLETE), 0),
	TEMPLATE(OP(OP_SECINFO), NAME(2)),
	TEMPLATE(OP(OP_SECINFO_NO_NAME), 0),
	TEMPLATE(OP(OP_VERIFY), T_BITMAP, 1, 0, 0, 0, 2, T_BEGIN, 2, T_END_OPAQUE),
	TEMPLATE(OP(OP_NVERIFY), T_BITMAP, 1, 0, 0, 0, 0x10, T_BEGIN, T_U64, 5, T_END_OPAQUE),
	TEMPLATE(OP(OP_PUTFH), T_FH, 2, OP(OP_READLINK)),
	/* 55 .. 57: locks; the current stateid is the lock's */
	TEMPLATE(OP(OP_LOCK), 2, 0, T_U64, 5, T_U64, 10, 1, 0, T_OPEN, 0, 0, T_CLIENTID, T_OPAQUE,
		 1, 'l'),
	TEMPLATE(OP(OP_LOCKU), 2, 0, 1, T_ZEROS, 3, T_U64, 7, T_U64, 2),
	TEMPLATE(OP(OP_LOCKT), 1, T_U64, 5, T_MAX8, T_CLIENTID, T_OPAQUE, 1, 'm'),
	/* ACLs: set, and passed on; the mode that follows */
	TEMPLATE(OP(OP_SETATTR), T_SID_ANON, T_BITMAP, 1, 0, 0, 0x10, 0, T_BEGIN, 2, 1, 0, 4,
		 NAME(13), 0, 0x43, 7, NAME(13), T_END_OPAQUE),
	TEMPLATE(OP(OP_SETATTR), T_SID_ANON, T_BITMAP, 1, 0, 0, 0x10, 0, T_BEGIN, 2, 1, 0, 4,
		 NAME(13), 0, 0, 7, NAME(16), T_END_OPAQUE),
	TEMPLATE(OP(OP_CREATE), NS_DIR, NAME(4), T_BITMAP, 2, 0, 0, 0, 0, 0x04, 0, 0, 0, T_BEGIN, 1,
		 2, 0, 3, T_SHIFT4, 0x7f, 0, NAME(16), 0, 11, 1, NAME(17), T_END_OPAQUE),
	TEMPLATE(OP(OP_SETATTR), T_SID_ANON, T_BITMAP, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x04, 0,
		 T_BEGIN, 7, 7, T_END_OPAQUE),
	/* Data operations */
	TEMPLATE(OP(OP_SEEK), T_OPEN, 0, T_ZERO8, 1),
	TEMPLATE(OP(OP_ALLOCATE), T_OPEN, 0, T_U64, 10, T_SHIFT8, 1, 20),
	TEMPLATE(OP(OP_DEALLOCATE), T_OPEN, 0, T_U64, 10, T_SHIFT8, 1, 20),
	TEMPLATE(OP(OP_READ_PLUS), T_OPEN, 0, T_ZERO8, T_SHIFT4, 1, 17),
	TEMPLATE(OP(OP_IO_ADVISE), T_OPEN, 0, T_ZERO8, T_ZERO8, T_BITMAP, 1, 0, 0, 0, 0x12),
	TEMPLATE(T_TEMPLATE, 0, OP(OP_SAVEFH), OP(OP_PUTROOTFH), T_TEMPLATE, 1, OP(OP_COPY),
		 T_SID_ANON, T_SID_CURRENT, T_ZERO8, T_U64, 7, T_ZERO8, 1, 0, 0),
	TEMPLATE(T_TEMPLATE, 0, OP(OP_SAVEFH), OP(OP_PUTROOTFH), T_TEMPLATE, 1, OP(OP_CLONE),
		 T_SID_ANON, T_SID_CURRENT, T_ZERO8, T_ZERO8, T_ZERO8),
	TEMPLATE(OP(OP_OFFLOAD_STATUS), T_OPEN, 0, OP(OP_OFFLOAD_CANCEL), T_OPEN, 0),
	TEMPLATE(OP(OP_LAYOUT_WCC), T_LAYOUT, 0, 4, T_BEGIN, 1, 1, T_DEVICE, 0, T_ZEROS, 4, 1, T_FH,
		 8, T_BITMAP, 2, 0, 0, 0, 0x10, 0, 0x20, 0x80, 0, T_BEGIN, T_U64, 99, T_U64, 5, 7,
		 T_U64, 5, 7, T_END_OPAQUE, T_END_OPAQUE),
	/* Delegations; the newest open stateid may be one's */
	TEMPLATE(OP(OP_OPEN), 0, T_SHIFT4, 0x81, 8, 0, T_CLIENTID, T_OPAQUE, 2, 'o', '4', 0,
		 CLAIM_NULL, NAME(0)),
	TEMPLATE(OP(OP_OPEN), 0, T_RAW4, 0, 0x30, 2, 3, 0, T_CLIENTID, T_OPAQUE, 2, 'o', '5', 0,
		 CLAIM_FH),
	TEMPLATE(OP(OP_OPEN), 0, 3, 0, T_CLIENTID, T_OPAQUE, 2, 'o', '6', 0, CLAIM_DELEG_CUR_FH,
		 T_OPEN, 0),
	TEMPLATE(OP(OP_OPEN), 0, 1, 0, T_CLIENTID, T_OPAQUE, 2, 'o', '6', 0, CLAIM_DELEGATE_CUR,
		 T_OPEN, 0, NAME(0)),
	TEMPLATE(OP(OP_DELEGRETURN), T_OPEN, 0),
	TEMPLATE(OP(OP_WANT_DELEGATION), T_SHIFT4, 1, 8, CLAIM_FH),
	TEMPLATE(OP(OP_OPEN), 0, 3, 0, T_CLIENTID, T_OPAQUE, 2, 'o', '1', 0, CLAIM_PREVIOUS,
		 OPEN_DELEGATE_WRITE),
};
#define NTEMPLATES (sizeof(templates) / sizeof(templates[0]))
#endif
