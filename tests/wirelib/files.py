# SPDX-License-Identifier: Apache-2.0
"""What a file holds, read through the metadata server and in each copy, and its layout."""
import json

from harness import *  # noqa: F403
from nfs41 import err

MB = 1 << 20


def content(c, f, sid=ANON, offset=0, length=MAX64):
    """The file's bytes through the metadata server. It asks again where the server says DELAY."""
    out = b""
    while length:
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                      read(sid, offset + len(out), min(MB, length)), tries=200)
        check(err(got.status), "OK", "READ")
        r = got.results[-1]
        out += r.data
        length -= len(r.data)
        if r.eof:
            break
    return out


def layout_of(c, f):
    return json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)
