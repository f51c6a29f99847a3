#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A client cannot guess another client's ids of clients, sessions and states (docs/security.md).
Prints TAP.

A client that has such an id is still not taken for its owner. Clients are loopback addresses.
"""
import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import ADDR, Cluster, check, eventually, first  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import Failed, err, opaque, op, u32  # noqa: E402

HOST_A, HOST_B, HOST_C = "127.0.0.2", "127.0.0.3", "127.0.0.4"
EXPORTS = """
export "/" {
	privileged_port = no
	access = rw
	client "127.0.0.3" { squash = root }
	client "127.0.0.0/8" { squash = none }
}
"""
ALICE, BOB, CAROL = auth_sys(1000, 1000), auth_sys(2000, 2000), auth_sys(3000, 3000)
NEAR = 16


def client(host=HOST_A, **how):
    return harness.client(source=(host, 0), **how)


def at(host):
    conn = Conn(ADDR, source=(host, 0))
    conn.drop = conn.close  # at the end of the test
    harness.CLIENTS.append(conn)
    return conn


def word(data, i, by):
    """The four bytes from i on as a number, and by more."""
    n = (int.from_bytes(data[i:i + 4], "big") + by) % 2**32
    return data[:i] + n.to_bytes(4, "big") + data[i + 4:]


def guesses_of_a_session(own):
    """The guesses of a client that counts up in any two words: what the server gave a little
    before, or after, the client's own session."""
    for i in (4, 8, 12):
        for j in (4, 8, 12):
            for a in range(-NEAR, NEAR + 1):
                for b in range(-NEAR, NEAR + 1) if i < j else (0,):
                    yield word(word(own, i, a), j, b)


def guesses_of_a_stateid(own):
    for i in (0, 4, 6, 8):
        for by in range(-NEAR, NEAR + 1):
            yield word(own, i, by)


def status(conn, *ops, cred=None):
    return err(conn.compound(*ops, cred=cred).status)


def shared(c, d, name, mode, *users):
    """A file of root's, or of users[0], which each user has opened. Returns the file and the users'
    stateids."""
    _, f = c.open(d, name, attrs={"mode": 0o666})
    sids = [c.ok(putfh(f), open_(claim_fh(), BOTH | NO_DELEG, owner=b"%d" % i), cred=user).stateid
            for i, user in enumerate(users)]
    c.ok(putfh(f), write(sids[0], 0, b"secret", FILE_SYNC), cred=users[0])
    c.ok(putfh(f), setattr_(mode=mode))
    return f, sids


# ---- guesses


def test_a_session_is_not_guessed_from_ones_own(w):
    victim, thief = client(HOST_A), client(HOST_B)
    hit = [g for g in set(guesses_of_a_session(thief.session.sessionid)) - {thief.session.sessionid}
           if status(thief.conn, sequence(g, 99, 0, 0)) != "BADSESSION"]
    check(hit, [], "sessions of others")
    victim.ok(putrootfh())


def test_a_client_is_not_guessed_from_ones_own(w):
    """The server keeps its answer to CREATE_SESSION, which has the session's id in it."""
    victim, thief = client(HOST_A), client(HOST_B)
    near = [thief.clientid + by for by in range(-NEAR, NEAR + 1) if by] + [thief.clientid ^ 1 << 32]
    for seq in (1, 2):
        hit = [g for g in near
               if status(thief.conn, create_session(g % 2**64, seq)) != "STALE_CLIENTID"]
        check(hit, [], f"clients of others, sequence {seq}")
    victim.ok(putrootfh())


def test_a_stateid_is_not_guessed_from_ones_own(w):
    victim, thief = client(HOST_A), client(HOST_B)
    d = victim.mkdir(victim.root(), "stateids", attrs={"mode": 0o777})
    sids = [victim.open(d, "f", owner=b"%d" % i, attrs={"mode": 0o666})[0] for i in range(4)]
    own, _ = thief.open(d, "f", owner=b"thief", cred=BOB)
    near = list(set(guesses_of_a_stateid(own[1])) - {own[1]})
    # The victim itself says which are its own.
    got = victim.ok(test_stateid(*[(0, g) for g in near])).statuses
    check({err(s) for s in got}, {"BAD_STATEID"})
    check({err(s) for s in victim.ok(test_stateid(*sids)).statuses}, {"OK"})


def test_ids_have_nothing_in_common(w):
    """Two ids that the server gave in succession differ in about half of their bits, in each of a
    dozen pairs. Of 64 fair coins, eight or fewer fall heads once in 10^9 times."""
    some = [client(HOST_A) for _ in range(12)]
    d = some[0].mkdir(some[0].root(), "common")
    for name, ids in (("client", [c.clientid.to_bytes(8, "big") for c in some]),
                      ("session", [c.session.sessionid[8:] for c in some]),
                      ("stateid",
                       [some[0].open(d, "f", owner=b"%d" % i)[0][1] for i in range(12)])):
        few = min(sum(bin(x ^ y).count("1") for x, y in zip(a, b)) for a in ids for b in ids
                  if a is not b)
        check(few > 8, True, f"{name}s: two differ in {few} bits")


def test_a_lock_does_not_tell_whose_client_it_is(w):
    """LOCK's DENIED names the holder. The id in it would make a session in the holder's name."""
    holder, asks = client(HOST_A), client(HOST_B)
    d = holder.mkdir(holder.root(), "locks", attrs={"mode": 0o777})
    s, f = holder.open(d, "f", attrs={"mode": 0o666})
    s2, _ = asks.open(d, "f", cred=BOB)
    holder.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"me"))
    told = asks.no("DENIED", putfh(f), lock(s2, WRITE_LT, 0, 1, b"you"), cred=BOB)
    check(told.owner, b"me")
    check(told.clientid != holder.clientid, True, "the holder's client id is told")
    check(asks.no("DENIED", putfh(f), lockt(WRITE_LT, 0, 1, b"you"), cred=BOB).clientid,
          told.clientid, "of one holder the same")
    check(status(asks.conn, create_session(told.clientid, holder.cs_seq)), "STALE_CLIENTID")
    check(holder.no("DENIED", putfh(f), lockt(WRITE_LT, 0, 1, b"another of mine")).clientid,
          holder.clientid)


# ---- a client that has another's id


def test_sessions_are_made_by_the_clients_principal(w):
    c = client()
    for cred in (BOB, NOBODY):
        first(c.conn, "CLID_INUSE", create_session(c.clientid, c.cs_seq), cred=cred)
    far = at(HOST_C)  # the server believes a client with several addresses, or behind NAT
    made = first(far, "OK", create_session(c.clientid, c.cs_seq))
    first(far, "OK", sequence(made.sessionid, 1))
    c.ok(putrootfh())


def test_a_kept_answer_is_the_clients_own(w):
    c = client()
    own = first(c.conn, "OK", create_session(c.clientid, c.cs_seq - 1))
    check(own.sessionid, c.session.sessionid, "a retry")
    for conn, cred, want in ((c.conn, BOB, "CLID_INUSE"), (at(HOST_B), BOB, "CLID_INUSE"),
                             (at(HOST_B), None, "SEQ_MISORDERED")):
        first(conn, want, create_session(c.clientid, c.cs_seq - 1), cred=cred)
    far = at(HOST_C)
    made = first(far, "OK", create_session(c.clientid, c.cs_seq))
    check(first(at(HOST_C), "OK", create_session(c.clientid, c.cs_seq)).sessionid, made.sessionid,
          "from where it was asked")
    check(first(c.conn, "OK", create_session(c.clientid, c.cs_seq)).sessionid, made.sessionid,
          "from where the client is")


def test_callbacks_go_to_the_clients_principal(w):
    victim, far = client(), at(HOST_C)
    d = victim.mkdir(victim.root(), "callbacks", attrs={"mode": 0o777})
    s, f = victim.open(d, "f", attrs={"mode": 0o666})
    for way in (1, 2, 3, 7):
        first(far, "ACCESS", bind_conn(victim.session.sessionid, way), cred=BOB)
    victim.no("ACCESS", op("BACKCHANNEL_CTL", u32(0x40000001), u32(1), u32(AUTH_NONE)), cred=BOB)
    # The recall goes to the victim.
    victim.ok(putfh(f), layoutget(s))
    victim.callbacks.clear()
    other = client(HOST_B)
    s2, _ = other.open(d, "f", cred=BOB)
    started = other.begin(putfh(f), setattr_(s2, size=1), cred=BOB)
    got = victim.wait_callback("LAYOUTRECALL")
    victim.ok(putfh(f), layoutreturn(got.stateid))
    eventually(lambda: err(other.finish(started, 30).status) == "OK", 30)
    first(far, "OK", bind_conn(victim.session.sessionid, 7))  # its own, from another address
    victim.ok(op("BACKCHANNEL_CTL", u32(victim.cb_program), u32(1), u32(AUTH_NONE)))


def test_a_session_is_believed_from_anywhere(w):
    """Trunking, nconnect, NAT: SP4_NONE has no more (RFC 8881 section 2.10.8.3)."""
    c, far = client(), at(HOST_C)
    d = c.mkdir(c.root(), "anywhere")
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"here", FILE_SYNC), conn=far)
    check(c.ok(putfh(f), read(s, 0, 10), conn=far).data, b"here")


# ---- whose stateid it is


def io(sid, other_file):
    """Each way to the data by its name: the operations after PUTFH, and whether they write. None:
    Linux sends them as the calling user, and not as the user that opened the file."""
    return {
        "READ": ([read(sid, 0, 10)], False), "READ_PLUS": ([read_plus(sid, 0, 10)], False),
        "SEEK": ([seek(sid, 0, 0)], None),
        "LAYOUTGET to read": ([layoutget(sid, IO_READ), ], False),
        "COPY from": ([savefh(), putfh(other_file[0]), copy(sid, other_file[1], count=6)], None),
        "WRITE": ([write(sid, 0, b"SECRET", FILE_SYNC)], True),
        "SETATTR": ([setattr_(sid, size=6)], True), "ALLOCATE": ([allocate(sid, 0, 6)], None),
        "LAYOUTGET to write": ([layoutget(sid)], True),
    }


def returns_layouts(c, f, got):
    for r in got.results:
        if r.op == "LAYOUTGET" and not r.status:
            c.ok(putfh(f), layoutreturn(r.stateid))


def may(c, f, sid, cred, other_file, what=""):
    """The statuses of reads, of writes, and of what any user with the stateid may do. Each kind has
    one status."""
    found = {False: set(), True: set(), None: set()}
    for name, (ops, writes) in io(sid, other_file).items():
        got = c.until(
            lambda got: err(got.status) not in ("DELAY", "RECALLCONFLICT", "LAYOUTTRYLATER"),
            putfh(f), *ops, cred=cred, tries=400)
        found[writes].add((err(got.status), "" if not got.status else name))
        returns_layouts(c, f, got)
    return tuple(sorted({s for s, _ in found[w]}) for w in found), found


def check_may(c, f, sid, cred, other_file, want, what):
    got, found = may(c, f, sid, cred, other_file)
    check(got, tuple([w] for w in (*want, "OK")), f"{what}: {found}")


def test_a_stateid_is_good_for_who_opened_the_file(w):
    c = client()
    d = c.mkdir(c.root(), "openers", attrs={"mode": 0o777})
    f, (alice,) = shared(c, d, "f", 0, ALICE)
    mine = {cred: (c.open(d, name, cred=cred)[::-1])
            for cred, name in ((ALICE, "a"), (BOB, "b"), (CAROL, "c"), (auth_sys(), "r"))}
    check_may(c, f, alice, ALICE, mine[ALICE], ("OK", "OK"),
              "who opened it, whatever its mode is now")
    check_may(c, f, alice, BOB, mine[BOB], ("ACCESS", "ACCESS"), "another user")
    check(c.ok(putfh(f), read(alice, 0, 10), cred=ALICE).data, b"SECRET"[:6])
    check_may(c, f, alice, auth_sys(), mine[auth_sys()], ("OK", "OK"), "the superuser")
    c.ok(putfh(f), setattr_(mode=0o604))
    check_may(c, f, alice, BOB, mine[BOB], ("OK", "ACCESS"), "who may read it by its mode")
    c.ok(putfh(f), setattr_(mode=0, owner="2000"))
    check_may(c, f, alice, BOB, mine[BOB], ("OK", "OK"), "its owner")
    # A user that has opened the file to read may read with any stateid of the client. The stateid
    # of a layout is one.
    c.ok(putfh(f), setattr_(mode=0o604))
    c.ok(putfh(f), open_(claim_fh(), READ | NO_DELEG, owner=b"carol"), cred=CAROL)
    c.ok(putfh(f), setattr_(mode=0))
    check_may(c, f, alice, CAROL, mine[CAROL], ("OK", "ACCESS"), "who opened it to read")
    layout = c.ok(putfh(f), layoutget(alice), cred=ALICE).stateid
    c.no("ACCESS", putfh(f), layoutget(layout), cred=CAROL)
    layout = c.ok(putfh(f), layoutget(layout, IO_READ), cred=CAROL).stateid
    c.ok(putfh(f), layoutreturn(layout))
    c.ok(putfh(f), setattr_(owner="0"))
    layout = c.ok(putfh(f), layoutget(alice, IO_READ), cred=CAROL).stateid
    c.no("ACCESS", putfh(f), layoutget(layout, IO_READ), cred=BOB)
    c.ok(putfh(f), layoutreturn(layout))


def test_an_owner_may_open_for_several_users(w):
    """Some clients have one open-owner for all of their users."""
    c = client()
    d = c.mkdir(c.root(), "several", attrs={"mode": 0o777})
    _, f = c.open(d, "f", attrs={"mode": 0o666}, owner=b"all", cred=ALICE)
    sid = c.ok(putfh(f), open_(claim_fh(), BOTH | NO_DELEG, owner=b"all"), cred=BOB).stateid
    c.ok(putfh(f), setattr_(mode=0))
    for cred, want in ((ALICE, "OK"), (BOB, "OK"), (CAROL, "ACCESS")):
        check(err(c.call(putfh(f), write(sid, 0, b"x", FILE_SYNC), cred=cred).status), want)
    c.ok(putfh(f), close(sid), cred=ALICE)


def test_a_delegation_is_good_for_its_clients_users(w):
    """A client opens files for its users by itself, as one user."""
    c = client(HOST_A)
    d = c.mkdir(c.root(), "delegated", attrs={"mode": 0o777})
    c.open(d, "f", attrs={"mode": 0o600}, cred=ALICE)
    f = c.ok(putfh(d), lookup("f"), getfh()).fh
    got = None
    for _ in range(40):  # the server decides when it gives a delegation
        o = c.ok(putfh(f), open_(claim_fh(), READ | WANT_READ, owner=b"d"), cred=ALICE)
        got = getattr(o, "deleg_stateid", None)
        if got:
            break
    if not got:
        return "no delegation is given"
    check(c.ok(putfh(f), read(got, 0, 10), cred=BOB).data, b"")
    c.ok(putfh(f), delegreturn(got))
    c.no("ACCESS", putfh(f), read(o.stateid, 0, 10), cred=BOB)
    return None


# ---- over a restart


def test_ids_of_before_a_restart_are_known_as_such(w):
    c = client()
    d = c.mkdir(c.root(), "restart")
    s, f = c.open(d, "f")
    w.restart()
    conn = at(HOST_A)
    eventually(lambda: status(conn, create_session(c.clientid, c.cs_seq)) == "STALE_CLIENTID", 30)
    first(conn, "BADSESSION", sequence(c.session.sessionid, c.slots[0] + 1))
    again = client(owner=c.owner, verifier=c.verifier, reclaim=False)
    check(again.clientid != c.clientid and again.session.sessionid != c.session.sessionid, True)
    again.no("BAD_STATEID", putfh(f), read(s, 0, 1))
    o = again.ok(putfh(f), open_(claim_previous(), BOTH | NO_DELEG))
    check(o.stateid[1] != s[1], True)
    again.ok(reclaim_complete())
    again.ok(putfh(f), write(o.stateid, 0, b"x", FILE_SYNC))


def main():
    top = tempfile.mkdtemp(prefix="weft-guess-test.")
    names = os.path.join(top, "exports")
    with open(names, "w", encoding="utf-8") as f:
        f.write(EXPORTS)
    try:
        harness.run_shared(globals(), closing=True, ds=1,
                            settings=[f"mds.exports={names}", "mds.lease=300s"])
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
