/* SPDX-License-Identifier: Apache-2.0 */
/* host_port.h - addresses as people write them: HOST:PORT, or [IPV6]:PORT. */
#ifndef BASE_HOST_PORT_H
#define BASE_HOST_PORT_H
#include <stdbool.h>

/* Has the text this form, with a port from 1 to 65535? A name is not looked up. */
bool host_port_ok(const char *text);
/* Is the host of HOST or HOST:PORT this machine, by its text alone? Nobody else hears what goes
 * there in the clear. Another name leads here only through a DNS that an attacker may answer. */
bool host_is_here(const char *host);
#endif
