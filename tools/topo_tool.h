/* SPDX-License-Identifier: Apache-2.0 */
/* topo_tool.h - weft topo: the machine's drives, network cards and GPUs, and how far they are
 * apart. */
#ifndef TOOLS_TOPO_TOOL_H
#define TOOLS_TOPO_TOOL_H
#include <stdbool.h>

/* argv[0] is "topo"; json: --json stood before it. Returns the exit status. */
int topo_command(int argc, char **argv, bool json);
#endif
