# SPDX-License-Identifier: Apache-2.0
"""The blocks of a page, as book_test.py describes them, and what they are expected to print."""
import re

NOT_RUN = re.compile(r"(?:# )?Not run by the tests: (\S.*)")


class Block:
    def __init__(self, page, line, kind, text, before):
        self.where, self.kind, self.text = f"{page}:{line}", kind, text
        self.first = (before if kind == "json" else text).splitlines()[0] if text else ""
        self.expected = None

    def refused(self):
        """Why the block is not run, or None. A marker must say why."""
        m = NOT_RUN.fullmatch(self.first)
        assert m or "Not run" not in self.first, f"{self.where}: a marker without a reason"
        return m and m[1]


def blocks(page, text):
    """The blocks of a page. A text block belongs to the block before it."""
    found, lines, i = [], text.splitlines(), 0
    while i < len(lines):
        m = re.match(r"\s*(```+)(.*)$", lines[i])
        if m:
            begin, i, body = i, i + 1, []
            while i < len(lines) and lines[i].strip() != m[1]:
                body.append(lines[i])
                i += 1
            assert i < len(lines), f"{page}:{begin + 1}: a block without an end"
            before = next((x for x in reversed(lines[:begin]) if x.strip()), "")
            block = Block(page, begin + 1, m[2].strip(), "\n".join(body) + "\n", before)
            if block.kind == "text" and found and found[-1].kind == "sh":
                found[-1].expected = block.text
            else:
                found.append(block)
        i += 1
    return found


def pattern(expected):
    """What the output must match: numbers are any numbers, "..." is anything, and blanks are any
    blanks."""
    out = []
    for word in re.split(r"(\.\.\.|\s+|[0-9]+(?:[.,:-][0-9]+)*)", expected.strip()):
        if word == "...":
            out.append(r"[\s\S]*?")
        elif word.isspace():
            out.append(r"\s+")
        elif word[:1].isdigit():
            out.append(r"[0-9]+(?:[.,:-][0-9]+)*")
        else:
            out.append(re.escape(word))
    return re.compile(r"\s*" + "".join(out) + r"\s*")
