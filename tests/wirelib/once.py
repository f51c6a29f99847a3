# SPDX-License-Identifier: Apache-2.0
"""Requests that are sent again as they were, in this boot of the server or in the next."""
from harness import *  # noqa: F403
from nfs41 import err

RECLAIM_NEEDED = 0x100


class Once:
    """Requests on a session, each kept as it was sent."""

    def __init__(self, c, cache=True):
        self.c, self.cache, self.sent, self.slot = c, cache, [], 1  # 0 had RECLAIM_COMPLETE

    def send(self, *ops, cred=None, want="OK"):
        """Sends each on a slot of its own, so that every one is the last of its slot, and uses
        another session when the slots are used up."""
        if self.slot == len(self.c.slots):
            self.c, self.slot = client(), 1
        slot, self.slot = self.slot, self.slot + 1
        self.c.free.remove(slot)
        args = compound_args((sequence(self.c.session.sessionid, 1, slot, slot, self.cache), *ops))
        reply = self.c.conn.rpc(1, args, cred or self.c.cred)
        check(err(read_compound(reply).status), want)
        self.sent.append((args, cred or self.c.cred, reply))
        return read_compound(reply).results[-1]


def seq_flags(reply):
    """(the reply with SEQUENCE's flags set to 0, the flags); the tag is empty."""
    at = 4 + 4 + 4 + 8 + 16 + 16
    return reply[:at] + bytes(4) + reply[at + 4:], int.from_bytes(reply[at:at + 4], "big")


def same_again(conn, sent, flags=RECLAIM_NEEDED):
    for n, (args, cred, reply) in enumerate(sent):
        again, said = seq_flags(conn.rpc(1, args, cred))
        if again != seq_flags(reply)[0]:
            raise Failed(f"request {n}: {read_compound(again)}, at first {read_compound(reply)}")
        if flags is not None:
            check(said, flags)


def back_again(was):
    """The client with a session of this boot."""
    c = client(session=False)
    c.owner, c.verifier = was.owner, was.verifier
    c.exchange_id()
    c.create_session()
    return c
