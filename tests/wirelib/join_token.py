# SPDX-License-Identifier: Apache-2.0
"""Join tokens on the wire: what a machine that has one asks (operation TOKEN2), and what one that
records it sees. docs/formats.md, "Keys"."""
import base64
import hashlib
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../compat"))
import join4  # noqa: E402

HELLO_OWN, HELLO_FS, PROTOCOL = 0x1000000, 0x100, 6
TOKEN, TOKEN2 = 6, 7
LOOK, TAKE, WHOSE = 0, 1, 2
OK, INVAL, NOTSUPP, USED = 0, 7, 9, 17


def blake(key, n, *parts):
    return hashlib.blake2b(b"".join(parts), key=key, digest_size=n).digest()


def parse(text):
    """(the id, the secret) of a token."""
    data = text.strip().removeprefix("weft_join_")
    data = base64.urlsafe_b64decode(data + "=" * (-len(data) % 4))
    return data[1:17], data[17:33]


def token_key(token_id, secret):
    return blake(secret, 32, b"weft join tk v1\0", token_id)


def channel(token_id, secret, hello, answer):
    """The keys (to the metadata server, from it) of a connection, of what HELLO said in the
    clear."""
    asked, uuid, nonce = hello[:4], hello[4:20], hello[20:52]
    fs, protocol = divmod(struct.unpack(">I", answer[:4])[0] & ~HELLO_OWN, HELLO_FS)
    both = blake(token_key(token_id, secret), 64, b"weft control v3\0", uuid, nonce, answer[4:36],
                 asked, struct.pack(">II", protocol, fs))
    return both[:32], both[32:]


class Asker(join4.DataServer):
    """A machine with a token."""

    def __init__(self, addr, token_id, secret):
        self.s, self.xid, self.counter = join4.socket.create_connection(addr, timeout=60), 0, 0
        hello = struct.pack(">I", PROTOCOL | HELLO_OWN) + token_id + os.urandom(32)
        answer = self.call(join4.HELLO, hello)
        self.tx, self.rx = channel(token_id, secret, hello, answer)

    def old(self):
        """What older programs ask."""
        return self.ask(struct.pack(">2I", TOKEN, 0) + bytes(16))

    def take(self, claim, step=TAKE):
        """(the status, the XDR of the result)"""
        got = self.ask(struct.pack(">2I", TOKEN2, step) + claim)
        return struct.unpack_from(">I", got)[0], got[4:]


def public(secret):
    """The claim of this secret."""
    out = join4.ctypes.create_string_buffer(32)
    join4.sodium().crypto_scalarmult_base(out, secret)
    return out.raw


def tail(result):
    """The two opaques at the end of a result: the public key of the answer, the sealed keys."""
    at = 4 + 16  # op, now, ends
    at += 4 + (struct.unpack_from(">I", result, at)[0] + 3) // 4 * 4 + 32
    found = []
    for _ in range(2):
        n, = struct.unpack_from(">I", result, at)
        found.append(result[at + 4:at + 4 + n])
        at += 4 + (n + 3) // 4 * 4
    return found


def opened(result, token_id, secret, own):
    """The keys in a result, by the secret of the claim; None: they do not open."""
    given, sealed = tail(result)
    shared = join4.ctypes.create_string_buffer(32)
    join4.sodium().crypto_scalarmult(shared, own, given)
    key = blake(token_key(token_id, secret), 32, b"weft join kx v1\0", shared.raw, public(own),
                given)
    out, n = join4.ctypes.create_string_buffer(len(sealed)), join4.ctypes.c_ulonglong()
    if join4.sodium().crypto_aead_xchacha20poly1305_ietf_decrypt(
            out, join4.ctypes.byref(n), None, sealed, join4.ctypes.c_ulonglong(len(sealed)), None,
            join4.ctypes.c_ulonglong(0), bytes(24), key):
        return None
    return out.raw[:n.value]
