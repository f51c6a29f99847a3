# SPDX-License-Identifier: Apache-2.0
"""Runs tests of weft_client, which uses libweft."""
import os
import subprocess

from harness import ADDR, BUILD, Failed

PROGRAM = os.path.join(BUILD, "tests/wirelib/weft_client")


def libweft(name, answers=None, address=ADDR, **env):
    """Runs a test of the program. answers maps a line that it prints to what is done then. Returns
    its other lines."""
    p = subprocess.Popen([PROGRAM, f"{address[0]}:{address[1]}", name], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env={**os.environ, **env})
    said = []
    try:
        for line in p.stdout:
            if answers and line.strip() in answers:
                answers[line.strip()]()
                p.stdin.write("\n")
                p.stdin.flush()
            else:
                said.append(line.strip())
        _, why = p.communicate(timeout=60)
    finally:
        p.kill()
    if p.returncode:
        raise Failed(f"{name}: status {p.returncode}: {why.strip()[-600:]}")
    return said
