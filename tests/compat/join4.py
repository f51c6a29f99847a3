# SPDX-License-Identifier: Apache-2.0
"""Protocol 4 of the control protocol, both ends of its seal (proto/ctl_chan.c), as far as a test
needs it; by libsodium."""
import ctypes
import os
import socket
import struct

PROGRAM, HELLO, SEALED = 0x20077EFF, 1, 2
TO_MDS, TO_DS, CALL, REPLY = 1, 2, 1, 2
ORDERS = 16
SODIUM = None


def sodium():
    global SODIUM
    SODIUM = SODIUM or ctypes.CDLL("libsodium.so.23")
    return SODIUM


def keys(cluster, uuid, ds_nonce, mds_nonce):
    """(to the metadata server, to the data server)"""
    out, msg = ctypes.create_string_buffer(64), b"weft control v1\0" + uuid + ds_nonce + mds_nonce
    sodium().crypto_generichash(out, ctypes.c_size_t(64), msg, ctypes.c_ulonglong(len(msg)),
                                cluster, ctypes.c_size_t(32))
    return out.raw[:32], out.raw[32:]


def beside(direction, kind, answers):
    return bytes([direction, kind]) + bytes(6) + struct.pack(">Q", answers)


def seal(key, direction, kind, counter, answers, plain):
    out, n, ad = ctypes.create_string_buffer(len(plain) + 16), ctypes.c_ulonglong(), beside(
        direction, kind, answers)
    nonce = bytes(16) + struct.pack(">Q", counter)
    sodium().crypto_aead_xchacha20poly1305_ietf_encrypt(out, ctypes.byref(n), plain,
                                                        ctypes.c_ulonglong(len(plain)), ad,
                                                        ctypes.c_ulonglong(len(ad)), None, nonce,
                                                        key)
    body = struct.pack(">Q", counter) + out.raw
    return struct.pack(">I", len(body)) + body + bytes(-len(body) % 4)


def unseal(key, direction, kind, answers, args):
    """(counter, the bytes under the seal)"""
    n, = struct.unpack_from(">I", args)
    body = args[4:4 + n]
    counter, = struct.unpack_from(">Q", body)
    out, got, ad = ctypes.create_string_buffer(n), ctypes.c_ulonglong(), beside(
        direction, kind, answers)
    nonce = bytes(16) + struct.pack(">Q", counter)
    if sodium().crypto_aead_xchacha20poly1305_ietf_decrypt(out, ctypes.byref(got), None, body[8:],
                                                           ctypes.c_ulonglong(n - 8), ad,
                                                           ctypes.c_ulonglong(len(ad)), nonce, key):
        raise AssertionError("a message that does not open")
    return counter, out.raw[:got.value]


def take(s, n):
    out = b""
    while len(out) < n:
        more = s.recv(n - len(out))
        if not more:
            raise AssertionError("the connection ended")
        out += more
    return out


def record(s):
    out, last = b"", False
    while not last:
        n, = struct.unpack(">I", take(s, 4))
        last = n >> 31
        out += take(s, n & 0x7FFFFFFF)
    return out


def send(s, body):
    s.sendall(struct.pack(">I", 0x80000000 | len(body)) + body)


class DataServer:
    """The data server's end, on a socket of its own."""

    def __init__(self, addr, cluster, uuid):
        self.s, self.xid, self.counter = socket.create_connection(addr, timeout=20), 0, 0
        nonce = os.urandom(32)
        got = self.call(HELLO, struct.pack(">I", 4) + uuid + nonce)
        self.protocol, = struct.unpack_from(">I", got)
        self.tx, self.rx = keys(cluster, uuid, nonce, got[4:36])

    def call(self, proc, args):
        self.xid += 1
        send(self.s, struct.pack(">10I", self.xid, 0, 2, PROGRAM, 1, proc, 0, 0, 0, 0) + args)
        while True:
            got = record(self.s)
            xid, kind = struct.unpack_from(">2I", got)
            if (xid, kind) == (self.xid, 1):
                break
            if kind == 0:
                self.no_orders(xid, got[40:])
        stat = struct.unpack_from(">4I", got, 8)
        if stat != (0, 0, 0, 0):
            raise AssertionError(f"refused: {stat}")
        return got[24:]

    def no_orders(self, xid, args):
        """The metadata server sends an empty batch of orders: there is nothing to do."""
        counter, plain = unseal(self.rx, TO_DS, CALL, 0, args)
        op, _, orders = struct.unpack(">IQI", plain)
        if (op, orders) != (ORDERS, 0):
            raise AssertionError(f"asked for {op}")
        self.counter += 1
        send(self.s,
             struct.pack(">6I", xid, 1, 0, 0, 0, 0) + seal(self.tx, TO_MDS, REPLY, self.counter,
                                                           counter,
                                                           struct.pack(">3I", 0, ORDERS, 0)))

    def ask(self, plain):
        """The XDR of the ctl_response to this ctl_request."""
        self.counter += 1
        asked = self.counter
        got = self.call(SEALED, seal(self.tx, TO_MDS, CALL, asked, 0, plain))
        return unseal(self.rx, TO_DS, REPLY, asked, got)[1]


def heard(listener, cluster):
    """(uuid, the XDR of the first request) of the data server that connects to this socket. HELLO
    gets an answer, the request does not."""
    s = listener.accept()[0]
    with s:
        s.settimeout(20)
        call = record(s)
        xid, = struct.unpack_from(">I", call)
        protocol, = struct.unpack_from(">I", call, 40)
        uuid, nonce, mine = call[44:60], call[60:92], os.urandom(32)
        if protocol != 4:
            raise AssertionError(f"protocol {protocol}")
        send(s, struct.pack(">6I", xid, 1, 0, 0, 0, 0) + struct.pack(">I", 4) + mine)
        return uuid, unseal(keys(cluster, uuid, nonce, mine)[0], TO_MDS, CALL, 0, record(s)[40:])[1]
