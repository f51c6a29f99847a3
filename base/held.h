/* held.h - listening sockets that the service manager holds for a daemon (systemd.socket(5)): they
 * outlive it, so those who connect while it is started again wait in them instead of being refused.
 * A Linux client that is refused comes again after 3 seconds. */
#ifndef BASE_HELD_H
#define BASE_HELD_H
#include <sys/socket.h>

/* The descriptor of the one of this address, TCP, from now on the caller's; -1: there is none.
 * Before there are threads. */
int held_socket(const struct sockaddr *addr, socklen_t len);
#endif
