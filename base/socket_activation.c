/* SPDX-License-Identifier: Apache-2.0 */
/* socket_activation.c - see socket_activation.h */
#include "base/socket_activation.h"
#include <fcntl.h>
#include <stdint.h>
#include <systemd/sd-daemon.h>

#define HELD_MAX 64

int activation_socket(const struct sockaddr *addr, socklen_t len)
{
	static uint64_t taken;
	int n = sd_listen_fds(0);

	for (int i = 0; i < n && i < HELD_MAX; i++) {
		int fd = SD_LISTEN_FDS_START + i;

		if (taken >> i & 1 || sd_is_socket_sockaddr(fd, SOCK_STREAM, addr, len, 1) <= 0)
			continue;
		/* The socket may be non-blocking. The ring's accept would not wait then. */
		if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK))
			continue;
		taken |= UINT64_C(1) << i;
		return fd;
	}
	return -1;
}
