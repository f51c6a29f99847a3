# SPDX-License-Identifier: Apache-2.0
"""The MAC of a capability."""
import struct

MASK = (1 << 64) - 1


def siphash(key, data):
    """SipHash-2-4, as a capability's MAC is."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261,
         k1 ^ 0x7465646279746573]

    def turn(x, n):
        return (x << n | x >> 64 - n) & MASK

    def rounds(n):
        for _ in range(n):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1], v[3] = turn(v[1], 13) ^ v[0], turn(v[3], 16) ^ v[2]
            v[0] = (turn(v[0], 32) + v[3]) & MASK
            v[2] = (v[2] + v[1]) & MASK
            v[3], v[1] = turn(v[3], 21) ^ v[0], turn(v[1], 17) ^ v[2]
            v[2] = turn(v[2], 32)
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (m,) in struct.iter_unpack("<Q", padded):
        v[3] ^= m
        rounds(2)
        v[0] ^= m
    v[2] ^= 255
    rounds(4)
    return struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])
