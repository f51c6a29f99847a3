# SPDX-License-Identifier: Apache-2.0
"""ACLs, and files that have one."""
from nfs41 import REG, close, create, getfh, putfh, setattr_

ALLOW, DENY, AUDIT, ALARM = range(4)
FI, DI, NP, IO, SUCCESS, FAILED, GRP, INHERITED = (1 << n for n in range(8))
R, W, A, RX, WX, X, DC, RATTR, WATTR = (1 << n for n in range(9))
D, RACL, WACL, WOWN, SYNC = (1 << n for n in range(16, 21))
RIGHTS = [R, W, A, RX, WX, X, DC, RATTR, WATTR, D, RACL, WACL, WOWN, SYNC]
OWNER, GROUP, ALL = "OWNER@", "GROUP@", "EVERYONE@"
FULL = R | W | A | RX | WX | X | DC | RATTR | WATTR | D | RACL | WACL | WOWN | SYNC


def ace(who, mask, kind=ALLOW, flags=0):
    if isinstance(who, int):
        who = str(who)
    return kind, flags, mask, who


def group(gid, mask, kind=ALLOW, flags=0):
    return kind, flags | GRP, mask, str(gid)


def make(c, d, name, acl=None, kind=REG, mode=0o644, owner=1000, gid=50):
    """A file or directory of 1000:50 with this ACL."""
    if kind == REG:
        sid, fh = c.open(d, name, attrs={"mode": mode})
        c.ok(putfh(fh), close(sid))
    else:
        fh = c.ok(putfh(d), create(kind, name, mode=mode), getfh()).fh
    c.ok(putfh(fh), setattr_(owner=str(owner), owner_group=str(gid)), setattr_(mode=mode))
    if acl is not None:
        c.ok(putfh(fh), setattr_(acl=acl))
    return fh
