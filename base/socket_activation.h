/* SPDX-License-Identifier: Apache-2.0 */
/* socket_activation.h - listening sockets that the service manager holds for a daemon
 * (systemd.socket(5)). They outlive the daemon: while it restarts, clients that connect wait in
 * them instead of being refused. A Linux client that is refused tries again after 3 seconds. */
#ifndef BASE_SOCKET_ACTIVATION_H
#define BASE_SOCKET_ACTIVATION_H
#include <sys/socket.h>

/* The descriptor of the held TCP socket of this address, which the caller then owns; -1: none. Call
 * before there are threads. */
int activation_socket(const struct sockaddr *addr, socklen_t len);
#endif
