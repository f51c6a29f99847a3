# SPDX-License-Identifier: Apache-2.0
"""XDR (RFC 4506): functions that pack make bytes; Reader takes them apart, and raises Malformed."""
import struct
from types import SimpleNamespace as Obj

MAX64 = 2**64 - 1


class Malformed(Exception):
    """A reply that the protocol does not allow."""


def u32(n):
    return struct.pack(">I", n & 0xffffffff)


def u64(n):
    return struct.pack(">Q", n & MAX64)


def boolean(b):
    return u32(1 if b else 0)


def opaque(b):
    if isinstance(b, str):
        b = b.encode()
    return u32(len(b)) + b + bytes(-len(b) % 4)


def array(items):
    return u32(len(items)) + b"".join(items)


def stateid(s):
    return u32(s[0]) + s[1]


def nfstime(t):
    return struct.pack(">qI", *t)


def bitmap(bits):
    words = [0] * (max(bits) // 32 + 1 if bits else 0)
    for b in bits:
        words[b // 32] |= 1 << b % 32
    return array([u32(w) for w in words])


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def fixed(self, n):
        b = self.data[self.at:self.at + n]
        if len(b) != n:
            raise Malformed(f"ends at {len(self.data)}, {n} bytes wanted at {self.at}")
        self.at += n
        return b

    def u32(self):
        return struct.unpack(">I", self.fixed(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.fixed(8))[0]

    def boolean(self):
        n = self.u32()
        if n > 1:
            raise Malformed(f"boolean {n}")
        return n == 1

    def opaque(self, limit=None):
        n = self.u32()
        if limit is not None and n > limit:
            raise Malformed(f"{n} bytes where {limit} are allowed")
        b = self.fixed(n)
        if any(self.fixed(-n % 4)):
            raise Malformed("padding is not zero")
        return b

    def text(self):
        return self.opaque().decode()

    def array(self, item):
        return [item() for _ in range(self.u32())]

    def bitmap(self):
        words = self.array(self.u32)
        return {32 * i + b for i, w in enumerate(words) for b in range(32) if w >> b & 1}

    def stateid(self):
        return self.u32(), self.fixed(12)

    def nfstime(self):
        t = struct.unpack(">qI", self.fixed(12))
        if t[1] > 999999999:
            raise Malformed(f"nanoseconds {t[1]}")
        return t

    def cinfo(self):
        return Obj(atomic=self.boolean(), before=self.u64(), after=self.u64())

    def end(self):
        if self.at != len(self.data):
            raise Malformed(f"{len(self.data) - self.at} bytes too many")
