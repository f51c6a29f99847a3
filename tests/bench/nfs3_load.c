/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3_load.c - READs or WRITEs of NFSv3 on one file, by its filehandle, with as little work of the
 * client as there can be.
 *
 *   nfs3_load ADDRESS PORT HANDLE read|write SIZE COUNT WINDOW RANGE UID
 *
 * HANDLE is hexadecimal. COUNT calls of SIZE bytes, WINDOW of them unanswered, one after the other
 * below RANGE, or with "randread" and "randwrite" at random places there. Writes are UNSTABLE; a
 * COMMIT ends them. Calls that block, one connection, AUTH_SYS with UID as user and group.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NFS3_READ   6u
#define NFS3_WRITE  7u
#define NFS3_COMMIT 21u
#define LAST	    0x80000000u
#define MOST	    (1u << 20)

static struct {
	int fd;
	uint8_t handle[64];
	uint32_t handle_len, size, uid, xid;
	uint8_t call[MOST + 512], reply[MOST + 4096];
} load;

static void die(const char *what)
{
	fprintf(stderr, "nfs3_load: %s%s%s\n", what, errno ? ": " : "",
		errno ? strerror(errno) : "");
	exit(1);
}

static uint8_t *u32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, 4);
	return p + 4;
}

static uint8_t *u64(uint8_t *p, uint64_t v)
{
	return u32(u32(p, (uint32_t)(v >> 32)), (uint32_t)v);
}

static void put(const uint8_t *p, size_t n)
{
	while (n) {
		ssize_t sent = send(load.fd, p, n, MSG_NOSIGNAL);

		if (sent <= 0)
			die("send");
		p += sent;
		n -= (size_t)sent;
	}
}

static void get(uint8_t *p, size_t n)
{
	while (n) {
		ssize_t got = recv(load.fd, p, n, MSG_WAITALL);

		if (got <= 0)
			die("the server has closed the connection");
		p += got;
		n -= (size_t)got;
	}
}

/* Payload is whatever the buffer holds. */
static void send_call(uint32_t proc, uint64_t off, uint32_t count)
{
	uint8_t *p = load.call + 4;

	p = u32(u32(u32(p, load.xid++), 0), 2);
	p = u32(u32(u32(p, 100003), 3), proc);
	p = u32(u32(u32(u32(p, 1), 20), 0), 0); /* AUTH_SYS: stamp, a name of no bytes */
	p = u32(u32(u32(p, load.uid), load.uid), 0);
	p = u32(u32(p, 0), 0);
	p = u32(p, load.handle_len);
	memset(p, 0, (load.handle_len + 3) & ~3u);
	memcpy(p, load.handle, load.handle_len);
	p += (load.handle_len + 3) & ~3u;
	p = u32(u64(p, off), count);
	if (proc == NFS3_WRITE)
		p = u32(u32(p, 0), count) + ((count + 3) & ~3u);
	u32(load.call, LAST | (uint32_t)(p - load.call - 4));
	put(load.call, (size_t)(p - load.call));
}

static uint32_t word(uint32_t at)
{
	uint32_t v;

	memcpy(&v, load.reply + at, 4);
	return be32toh(v);
}

/* One reply: accepted, and NFS3_OK. The bytes that a READ gave. */
static uint32_t take_reply(uint32_t proc)
{
	uint32_t len = 0, verf;
	bool last = false;

	while (!last) {
		uint8_t mark[4];
		uint32_t v, n;

		get(mark, 4);
		memcpy(&v, mark, 4);
		v = be32toh(v);
		last = v & LAST;
		n = v & ~LAST;
		if (n > sizeof(load.reply) - len)
			die("a reply is too long");
		get(load.reply + len, n);
		len += n;
	}
	verf = len >= 28 ? (word(16) + 3) & ~3u : 0;
	if (len < 28 || verf > 400 || len < 28 + verf || word(4) != 1 || word(8) || word(20 + verf))
		die("a call is refused");
	if (word(24 + verf)) {
		fprintf(stderr, "nfs3_load: NFS status %u\n", word(24 + verf));
		exit(1);
	}
	if (proc != NFS3_READ || len < 32 + verf)
		return load.size;
	return word(28 + verf) && len >= 120 + verf ? word(116 + verf) : word(32 + verf);
}

static void connect_to(const char *address, const char *port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htobe16((uint16_t)atoi(port))};
	int one = 1;

	load.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (inet_pton(AF_INET, address, &sin.sin_addr) != 1 || load.fd < 0 ||
	    connect(load.fd, (struct sockaddr *)&sin, sizeof(sin)) ||
	    setsockopt(load.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		die("connect");
}

static void handle_read(const char *hex)
{
	load.handle_len = (uint32_t)strlen(hex) / 2;
	if (!load.handle_len || load.handle_len > sizeof(load.handle))
		die("a handle has 1 to 64 bytes");
	for (uint32_t i = 0; i < load.handle_len; i++) {
		unsigned v;

		if (sscanf(hex + (size_t)i * 2, "%2x", &v) != 1)
			die("a handle is hexadecimal");
		load.handle[i] = (uint8_t)v;
	}
}

int main(int argc, char **argv)
{
	uint64_t count, window, range;
	uint32_t proc;
	bool random_;

	if (argc != 10) {
		fprintf(stderr, "usage: nfs3_load ADDRESS PORT HANDLE "
				"read|write|randread|randwrite SIZE COUNT WINDOW RANGE UID\n");
		return 2;
	}
	handle_read(argv[3]);
	random_ = !strncmp(argv[4], "rand", 4);
	proc = strstr(argv[4], "write") ? NFS3_WRITE : NFS3_READ;
	load.size = (uint32_t)strtoul(argv[5], NULL, 0);
	count = strtoull(argv[6], NULL, 0);
	window = strtoull(argv[7], NULL, 0);
	range = strtoull(argv[8], NULL, 0);
	load.uid = (uint32_t)strtoul(argv[9], NULL, 0);
	if (!load.size || load.size > MOST || range < load.size || !window)
		die("sizes");
	connect_to(argv[1], argv[2]);
	for (uint64_t sent = 0, got = 0; got < count; got++) {
		for (; sent < count && sent - got < window; sent++)
			send_call(proc,
				  (random_ ? (uint64_t)random() : sent) % (range / load.size) *
					  load.size,
				  load.size);
		if (take_reply(proc) != load.size)
			die("a short read");
	}
	if (proc == NFS3_WRITE) {
		send_call(NFS3_COMMIT, 0, 0);
		take_reply(NFS3_COMMIT);
	}
	close(load.fd);
	return 0;
}
