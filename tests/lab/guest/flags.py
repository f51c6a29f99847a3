# SPDX-License-Identifier: Apache-2.0
"""Flags: files in the folder that guests and host share."""
import os
import time

SHARED = os.environ["WEFT_SHARED"]


def flag(name):
    with open(f"{SHARED}/{name}", "w"):
        pass


def wait(name):
    end = time.monotonic() + 100
    while not os.path.exists(f"{SHARED}/{name}"):
        assert time.monotonic() < end, f"flag {name}"
        time.sleep(0.05)
