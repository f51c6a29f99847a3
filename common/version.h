/* SPDX-License-Identifier: Apache-2.0 */
/* version.h - the version of weft, which configure.ac names. */
#ifndef COMMON_VERSION_H
#define COMMON_VERSION_H
/* For example "0.1.0". */
extern const char version_text[];
/* Answers --version: writes "PROGRAM VERSION" to stdout. Returns the exit status: 0, or 1 when
 * stdout takes no more. */
int version_print(const char *program);
/* The first line that a daemon logs. */
void version_log(void);
/* Makes the gauge weft_build_info, which is 1 and has the version as its label. */
void version_metric(void);
#endif
