/* SPDX-License-Identifier: Apache-2.0 */
/* globals.h - the variables that each process has for itself. */
#ifndef TESTS_SIM_GLOBALS_H
#define TESTS_SIM_GLOBALS_H
#include "tests/sim/sim.h"
void globals_of_mds_log(void);
void globals_of_pg_redo(void);
void globals_of_server(void);
void globals_of_place(void);
#endif
