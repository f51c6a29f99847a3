# SPDX-License-Identifier: Apache-2.0
"""What the kept store holds. make.py made it so, over the wire;
tests/wire/compat_test.py checks it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from nfs41 import *  # noqa: E402,F403

MB = 1 << 20
STORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "69a6aeb.tar.xz")
TOPS = ("mds", "ds1", "ds2")
OWNER, VERIFIER = b"the client of the kept store", b"kept one"
LOCK_OWNER = b"its process"
JOIN_NAME = "ds-of-protocol-4"
ACL = [(0, 0, 0x1, "2000"), (1, 0, 0x2, "2001"), (0, 0, 0x1601bf, "OWNER@"),
       (0, 0, 0x120089, "GROUP@"), (0, 0, 0x120080, "EVERYONE@")]
XATTR = "colour", "blue and \u00fcmlauts".encode()
TIME = (1234567890, 123456789)


def text(n, what):
    """n bytes that say where they are."""
    line = (lambda k: b"%-8s %8d of a file that an older program wrote.............\n"
            % (what.encode()[:8], k * 64))
    return b"".join(line(k)[-64:] for k in range((n + 63) // 64))[:n]


# Folder, its policy, the file's pieces (offset, bytes) and its size.
FILES = {
    "plain": ("stripes=1", [(0, text(10000, "plain"))], 10000),
    "striped": ("stripes=2,unit=1M", [(0, text(3 * MB + 5000, "striped"))], 3 * MB + 5000),
    "mirrored": ("mirrors=2", [(0, text(5000, "mirror")), (MB, text(70000, "mirror"))], MB + 70000),
    "sparse": ("stripes=2,unit=1M", [(2 * MB - 100, text(200, "sparse"))], 7 * MB),
    "empty": ("stripes=1", [], 0),
    "cut": ("mirrors=2", [(0, text(1234, "cut"))], 1234),  # it was longer; ds2 missed the cut
}
SPECIAL = {"fifo": FIFO, "socket": SOCK}
GONE = 2 * MB, "stripes=2,unit=1M"  # removed while ds2 was away


def whole(name):
    _, pieces, size = FILES[name]
    data = bytearray(size)
    for at, piece in pieces:
        data[at:at + len(piece)] = piece
    return bytes(data)
