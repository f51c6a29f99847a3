#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes ./configure from configure.ac and Makefile.am (packages autoconf, automake, pkg-config).
set -e
cd "$(dirname "$0")"
mkdir -p build-aux
exec autoreconf -i -f
