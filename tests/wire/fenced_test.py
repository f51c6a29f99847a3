#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two clients write one file, and the server fences one of them in the middle. Prints TAP.

No byte of the fenced client arrives after what the other one wrote. WEFT_SOAK=1 runs 200 rounds.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import healing  # noqa: E402
from harness import *  # noqa: E402,F403


def test_a_write_that_comes_late_is_refused(w):
    healing.a_write_that_comes_late_is_refused(w)


def test_one_that_waited_in_a_server_that_stood_still_is_never_read(w):
    healing.one_that_waited_in_a_server_that_stood_still_is_never_read(w)


if __name__ == "__main__":
    run_apart(globals(), settings=healing.settings)
