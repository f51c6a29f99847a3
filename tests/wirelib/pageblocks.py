# SPDX-License-Identifier: Apache-2.0
"""Blocks of pages that are no part of the handbook: a test runs them as they stand there. Such a
block is indented by four blanks. (book_test.py does the same for the handbook.)"""
import os
import re
import subprocess

from harness import BUILD, SRC, check

TIMES = 300  # seconds for a block


def blocks(page):
    """The text of each, in order."""
    with open(os.path.join(SRC, "docs", page), encoding="utf-8") as f:
        text = re.sub(r"^```.*?^```$", "", f.read(), flags=re.M | re.S)
    found, body, before = [], [], ""
    for line in text.splitlines() + ["end"]:
        if line.startswith("    ") and (body or not before.strip()):
            body.append(line[4:])
        elif body:
            found.append("\n".join(body) + "\n")
            body = []
        before = line
    return found


def only(page, *firsts):
    """The blocks of the page, each of which begins so: one that nothing runs is found."""
    got = blocks(page)
    check([b[:len(f)] for b, f in zip(got, firsts)], list(firsts), f"blocks of docs/{page}")
    check(len(got), len(firsts), f"blocks of docs/{page}")
    return got


def changed(text, *places):
    """The block with what is elsewhere here: pairs of what it has and what is in its place. Each
    must be there."""
    for old, new in places:
        check(old in text, True, f"the block has {old}")
        text = text.replace(old, new)
    return text


class Shell:
    """Runs blocks, with stand-ins for programs that want a whole machine: their names and the
    scripts."""

    def __init__(self, top, programs=None, **env):
        self.top, self.bin = top, os.path.join(top, "stand-ins")
        os.makedirs(self.bin, exist_ok=True)
        for name, script in (programs or {}).items():
            path = os.path.join(self.bin, name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(f"#!/bin/bash\nset -eu\n{script}\n")
            os.chmod(path, 0o755)
        self.env = {**os.environ, "PATH": f"{self.bin}:{BUILD}:{os.environ['PATH']}", **env}

    def run(self, text):
        """What it prints. Each command must succeed."""
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", text], env=self.env,
                              cwd=self.top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=TIMES, check=False)
        check(done.returncode, 0, f"{text}\n{done.stdout[-2000:]}")
        return done.stdout
