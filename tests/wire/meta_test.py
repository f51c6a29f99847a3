#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The metadata store as lines of JSON (docs/meta-export.md): out of a store with everything in it
and back, key by key; into an empty machine; and what is wrong is named with its line. Prints TAP.
"""
import contextlib
import json
import os
import re
import resource
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from acls import ALL, make  # noqa: E402
from backups import MINE, WEFT, graceless, put, run, some_files, start_restored, stop, store, \
    walk, writing  # noqa: E402
from foreign import Foreign  # noqa: E402
from jobs import api  # noqa: E402
from nfs41 import err  # noqa: E402
from pageblocks import Shell, changed, only  # noqa: E402
from steps import lay  # noqa: E402
from tool import fsck, rows as servers, weft  # noqa: E402

ODD = b"odd \xff\x01\"\\name"


def dump(path):
    """Every key of a store with its value. A backup has them as records of the redo log
    (docs/schema.md)."""
    raw = subprocess.run([WEFT, "backup", "--store", path, "-o", "-"], capture_output=True,
                         timeout=200, check=True).stdout
    at, out = raw.index(b"\n") + 1, {}
    while raw[at:at + 7] == b"WEFTREC":
        length, n = struct.unpack_from("<II", raw, at + 40)
        pos = at + 64
        for _ in range(n):
            klen, vlen = struct.unpack_from("<II", raw, pos)
            key = raw[pos + 8:pos + 8 + klen]
            out[key] = raw[pos + 8 + klen:pos + 8 + klen + vlen]
            pos += 8 + klen + vlen
        at += length
        if not n:
            break
    check(len(out) > 10, True, "rows are read")
    return out


def same(one, two):
    check((sorted(one.keys() - two.keys()), sorted(two.keys() - one.keys())), ([], []))
    check({k: (one[k], two[k]) for k in one if one[k] != two[k]}, {})


def export(w, name="meta.jsonl"):
    to = os.path.join(w.top, name)
    run("export-meta", "--store", store(w), to)
    check(os.stat(to).st_mode & 0o777, 0o600)
    with open(to, encoding="utf-8") as f:
        return to, [json.loads(line) for line in f]


def imported(w, frm, name="new"):
    to = os.path.join(w.top, name)
    check("--restored" in run("import-meta", "--store", to, frm), True)
    check(os.path.exists(os.path.join(to, "restored")), True)
    return to


def everything(w):
    """A tree, and rows of each kind that stays."""
    c = client()
    d = c.mkdir(c.root(), "d")
    sub = c.mkdir(d, ODD)
    for path, policy in (("/d", "mirrors=2,threshold=64K,trash=3d"),):
        weft(w, "policy", "set", path, policy)
    other = c.mkdir(c.root(), "other")
    weft(w, "policy", "set", "/other", "stripes=2,unit=1M,group=kind=weft")
    foreign = c.mkdir(c.root(), "foreign")
    weft(w, "policy", "set", "/foreign", "group=kind=nfs3")
    f = put(c, d, "file", b"data " * 3000)
    put(c, other, "wide", b"stripes")
    s, _ = c.open(foreign, "f")
    for kind, name, more in ((LNK, "link", {"link": b"/to\xfe\x80"}),
                             (LNK, "plain", {"link": b"to"}),
                             (FIFO, "pipe", {}), (CHR, "null", {"dev": (1, 3)}),
                             (BLK, "disk", {"dev": (8, 1 << 19)}), (SOCK, "sock", {})):
        c.ok(putfh(sub), create(kind, name, mode=0o640, **more))
    c.ok(putfh(f), savefh(), putfh(sub), link("hard"))
    for name, value in (("plain", b"text"), ("zero", b""), ("bytes", bytes(range(256))),
                        ("long", b"\x01" * 65000)):
        c.ok(putfh(f), setxattr(name, value))
    make(c, other, "acl", [(0, 0, 1, "1000"), (0, 0x40, 2, "50"), (0, 0, 1, ALL)])
    c.ok(putfh(f), setattr_(owner="4000000000", time_modify_set=(-5, 999999999)))
    for name in ("gone", "gone too"):
        put(c, d, name, b"x" * 100)
        c.ok(putfh(d), remove(name))
    c.mkdir(d, "dir")
    c.ok(putfh(d), remove("dir"))
    open_, _ = c.open(other, "orphan")
    c.ok(putfh(other), remove("orphan"))
    check(bool(open_ and s), True)
    weft(w, "token", "create", "--role", "operate", "--name", "t")
    weft(w, "ds", "weight", "ds1", "0.5")
    weft(w, "pin", "/d/file", "--group", "kind=weft", "--for", "12h")
    weft(w, "job", "tag", "train", "node17")
    api(w, "POST", "/v1/cluster/token?name=ds9")
    weft(w, "scrub")
    weft(w, "key", "rotate", "--yes")
    # What waits for a server that is away: orders, repairs, marks of layouts for writing.
    w.dev("kill", w.dir, "ds2", "-9")
    eventually(lambda: not servers(w)["ds2"]["alive"], 60, "ds2 is dead")
    c.ok(putfh(other), remove("wide"))
    s, f = c.open(d, "written")
    lay(c, f, s)
    return c


def kinds_of_rows():
    with open(os.path.join(SRC, "mds/meta_rows.c"), encoding="utf-8") as f:
        return set(re.findall(r'^\t\{"([a-z-]+)", NS_[KT]_', f.read(), re.M))


def rest(lines):
    """Rows that come and go within a step of the server: {kind: its line}. Each is as the server
    would put it for a file of the store."""
    f = next(x for x in lines if x.get("kind") == "inode" and "layout" in x)
    ino, top = f["ino"], "0000000000000001"
    one = {"version": 1}
    return {
        "trash-job": {"number": 77, **one, "job": "restore", "begun_at": 1795897491, "top": top,
                      "dir": ino, "before_at": 1 << 62, "at_dir": top,
                      "at_hash": "00ff00ff00ff00fe", "at_removed_ns": 5, "at_ino": ino,
                      "done": 6, "bytes": 7, "failed": 8, "name": "to"},
        "moved": {"ino": ino, **one, "moved_at": 1795897491},
        "restripe": {"ino": ino, **one, "number": 3, "incarnation": f["incarnation"] + 1,
                     "layout": f["layout"]},
        "scrub-finding": {"index": 4, **one, "finding": 2, "done": 1, "stripe": 0, "copy": 1,
                          "incarnation": 1, "ds": 2, "ino": ino, "size_bytes": 9, "want_bytes": 10},
        "scrub-seen": {"ds": 2, "ino": ino, "incarnation": 1, "stripe": 0, "copy": 1, **one,
                       "size_bytes": 11},
        "revocation": {"dir": top, **one, "boot": 1, "generation": 2},
    }


def each_kind(w, path, lines, kinds):
    """The same store, and one row more of each kind that it lacks: all of it comes back."""
    more, missing = rest(lines), kinds_of_rows() - set(kinds)
    check(missing - set(more), set(), "kinds without a row: everything() or rest() makes one")
    more = [{"kind": k, **more[k]} for k in sorted(missing)]
    with open(path, "rb") as f:
        text = f.read().split(b"\n")[:-1]
    n = len(text) - 2
    text[-1:] = [json.dumps(x).encode() for x in more] + [
        text[-1].replace(b'"rows":%d' % n, b'"rows":%d' % (n + len(more)))]
    full, again = (os.path.join(w.top, x) for x in ("full", "full again"))
    run("import-meta", "--store", full, "--edited", "-", input=b"\n".join(text) + b"\n")
    to = os.path.join(w.top, "full.jsonl")
    run("export-meta", "--store", full, to)
    with open(to, encoding="utf-8") as f:
        got = [json.loads(line) for line in f]
    check({x["kind"] for x in got[1:-1]}, kinds_of_rows())
    check([x for x in more if x not in got], [])
    run("import-meta", "--store", again, to)
    same(dump(full), dump(again))


def test_every_row_comes_back_as_it_was(w):
    everything(w)
    stop(w, "-9")
    was = dump(store(w))
    path, lines = export(w)
    kinds = {}
    for line in lines[1:-1]:
        kinds[line["kind"]] = kinds.get(line["kind"], 0) + 1
    check("raw" in kinds, False, str([x for x in lines if x.get("kind") == "raw"])[:500])
    check(sum(kinds.values()), len(was))
    check({x["type"] for x in lines if x.get("kind") == "inode"},
          {"file", "directory", "symlink", "fifo", "char-device", "block-device", "socket"})
    check([x["name_hex"] for x in lines if "name_hex" in x and x["kind"] == "name"], [ODD.hex()])
    new = imported(w, path)
    same(was, dump(new))
    each_kind(w, path, lines, kinds)
    # The same lines again, and through a pipe.
    out = subprocess.run([WEFT, "export-meta", "--store", new, "-"], capture_output=True,
                         timeout=200, check=True).stdout
    with open(path, "rb") as f:
        text = f.read()
    check(out.split(b"\n")[1:-2], text.split(b"\n")[1:-2])
    piped = os.path.join(w.top, "piped")
    run("import-meta", "--store", piped, "-", input=out)
    same(was, dump(piped))
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), piped], capture_output=True,
                          timeout=200, check=False)
    check(done.returncode, 0, done.stdout[-500:].decode())
    # The example of the page: which objects each path has.
    shown = subprocess.run([sys.executable, "-c", example(), path], capture_output=True, text=True,
                           timeout=200, check=True).stdout
    ino = next(x["ino"] for x in lines if x.get("kind") == "name" and x.get("name") == "written")
    check(all(f"/d/written {ino}.0001.00.{k:02x} on " in shown for k in (0, 1)), True, shown[:2000])


def example():
    with open(os.path.join(SRC, "docs/meta-export.md"), encoding="utf-8") as f:
        return f.read().split("```python\n")[1].split("```")[0]


def test_an_empty_machine_gets_every_file(w):
    c = client()
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o777})
    weft(w, "policy", "set", "/d", "mirrors=2")
    some_files(c, d, 0, 12)
    sub = c.mkdir(d, "sub")
    c.ok(putfh(c.ok(putfh(d), lookup("f1"), getfh()).fh), savefh(), putfh(sub), link("hard"))
    with writing(w):
        path, lines = export(w)  # beside the server, while it works
    check(len(lines) > 50, True)
    new = imported(w, path)
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), new], capture_output=True, timeout=200,
                          check=False)
    check(done.returncode, 0, done.stdout[-500:].decode())
    was = {p: v for p, v in walk(c, c.root()).items() if "busy" not in p}
    c.drop()
    stop(w, "-9")
    shutil.rmtree(store(w))
    with open(path, "rb") as f:
        run("import-meta", "--store", store(w), "-", stdin=f)
    try:
        w.dev("start", w.dir, "mds")
    except AssertionError as e:
        check("--restored" in str(e), True, str(e))
    else:
        raise Failed("it serves")
    start_restored(w)
    w.dev("start", w.dir, "mds")
    graceless(w)
    fsck(w)
    c = client()
    now = {p: v for p, v in walk(c, c.root()).items() if "busy" not in p}
    check(sorted(now), sorted(was))
    other = [p for p in now if now[p] != was[p]]
    check({p: now[p] for p in other}, {p: was[p] for p in other})
    check(len(now), 15)


def test_the_blocks_of_the_page_move_a_store(w):
    """systemctl, runuser and install are stand-ins, and the store is the test's."""
    out, into, _ = only("meta-export.md", "weft export-meta /srv", "systemctl stop weft-mds",
                        '{"kind":"name"')
    c = client()
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o777})
    some_files(c, d, 0, 3)
    was = walk(c, c.root())
    c.drop()
    dev = f"{SRC}/tools/weft-dev" if os.access(f"{SRC}/tools/weft-dev", os.X_OK) else \
        f"{BUILD}/tools/weft-dev"
    shell = Shell(w.top, {
        "weft": f'exec {WEFT} "$@" --store {store(w)}',
        "systemctl": f'case $1 in stop) {dev} kill {w.dir} mds;; *) {dev} start {w.dir} mds;; esac',
        "runuser": '[ "$1 $2 $3" = "-u weft --" ]; shift 3; exec "$@"',
        "install": 'a=(); while [ $# -gt 0 ]; do case $1 in -o | -g) shift;; *) a+=("$1");; esac; '
                   'shift; done; exec /usr/bin/install "${a[@]}"',
        "weft-mds": f'exec {BUILD}/weft-mds "$@"'}, WEFT_BUILD=BUILD)
    os.mkdir(os.path.join(w.top, "srv"))
    here = ("/srv/", f"{w.top}/srv/"), ("/var/lib/weft/mds", store(w)), \
        ("/run/weft-mds", f"{w.top}/run"), ("/etc/weft/weft.conf", f"{w.dir}/weft.conf")
    shell.run(changed(out, here[0]))
    check(os.stat(os.path.join(w.top, "meta.jsonl.zst")).st_size > 100, True)
    shell.run(changed(into, *here))
    graceless(w)
    check(os.path.isdir(store(w) + ".old"), True)
    c = client()
    check(sorted(walk(c, c.root())), sorted(was))


def refused(w, lines, why, *more):
    new = os.path.join(w.top, "wrong")
    shutil.rmtree(new, ignore_errors=True)
    text = b"\n".join(lines) + (b"\n" if lines else b"")
    said = run("import-meta", "--store", new, *more, "-", rc=1, input=text)
    check(why in said, True, f"{why}: {said}")
    check(os.listdir(new), [], "no store is left")


def test_what_is_wrong_is_named_with_its_line(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    put(c, d, "file", b"data")
    path, _ = export(w)
    with open(path, "rb") as f:
        good = f.read().split(b"\n")[:-1]
    n = len(good)
    name = next(i for i, x in enumerate(good) if b'"kind":"name"' in x)
    inode = next(i for i, x in enumerate(good) if b'"type":"file"' in x and b'"inode"' in x)

    def changed(i, old, new):
        check(old in good[i], True, good[i])
        return good[:i] + [good[i].replace(old, new)] + good[i + 1:]
    for lines, why in (
            (good[:-1], f"ends behind line {n - 1}, without its last line"),
            ([], "ends behind line 0"),
            (good[1:], "line 1: this is no export"),
            (good[:3] + [good[3][:-9]] + good[4:], "line 4: no JSON"),
            (good[:3] + good[4:], f"line {n - 1}: rows: it says {n - 2}, and there are {n - 3}"),
            (good + [good[2]], f"line {n + 1}: there are lines behind the last one"),
            ([good[0]] + good[2:], "line 2: the second line must be of kind cluster"),
            (changed(0, b'"weft_meta":1', b'"weft_meta":2'), "line 1: weft_meta: a version"),
            (changed(name, b'"version":1,', b'"version":1,"more":0,'), f"line {name + 1}: more:"),
            (changed(name, b'"dir":', b'"dirs":'), f"line {name + 1}: dir: is missing"),
            (changed(name, b'"kind":"name"', b'"kind":"nome"'), f"line {name + 1}: kind: this"),
            (changed(name, b'"name":"', b'"name":"x'), f"line {name + 1}: slot: it is none of"),
            (changed(inode, b'"type":"file"', b'"type":"fifo"'), f"line {inode + 1}: "),
            (changed(inode, b'"mode":', b'"mode":9'), f"line {inode + 1}: "),
            (changed(inode, b'"state":"in-sync"', b'"state":"good"'),
             f"line {inode + 1}: layout: objects: state: this word is not known"),
            (changed(inode, b'"uid":0', b'"uid":-1'), f"line {inode + 1}: uid: an integer from 0"),
            (changed(inode, b'"uid":0', b'"uid":4294967296'), f"line {inode + 1}: uid: an integer"),
            (changed(inode, b'"uid":0', b'"uid":1'), f"line {n}: blake2b: ")):
        refused(w, lines, why)
    refused(w, [x for x in good if b'"ino":"0000000000000001"' not in x or b'"inode"' not in x][:-1]
            + [good[-1].replace(b'"rows":%d' % (n - 2), b'"rows":%d' % (n - 3))],
            "no line of the root directory", "--edited")
    refused(w, good[:3] + [good[2]] + good[3:-1] + [good[-1].replace(
        b'"rows":%d' % (n - 2), b'"rows":%d' % (n - 1))], "line 4: the row of an earlier line",
            "--edited")
    # Cut anywhere: named, and no store.
    text = b"\n".join(good) + b"\n"
    for at in (1, len(good[0]), len(text) // 3, len(text) // 2, len(text) - 1):
        new = os.path.join(w.top, "wrong")
        shutil.rmtree(new, ignore_errors=True)
        said = run("import-meta", "--store", new, "-", rc=1, input=text[:at])
        check("cut off" in said or "without its last line" in said, True, f"{at}: {said}")
        check(os.listdir(new), [])
    # A changed line with --edited; as a tool writes it.
    lines = [json.dumps(json.loads(x)).encode() for x in changed(inode, b'"uid":0', b'"uid":77')]
    new = os.path.join(w.top, "edited")
    run("import-meta", "--store", new, "--edited", "-", input=b"\n".join(lines) + b"\n")
    # Not the server's store: it pushes the sums of directories meanwhile.
    plain = os.path.join(w.top, "plain")
    run("import-meta", "--store", plain, "-", input=text)
    was, now = dump(plain), dump(new)
    ino = b"i" + bytes.fromhex(json.loads(good[inode])["ino"])
    check(now[ino][12:16], struct.pack("<I", 77))
    check([k for k in now if k in was and k[:1] in b"idx" and was[k] != now[k]], [ino])
    # A row that is damaged: its bytes come back, and it is said.
    check("not empty" in run("import-meta", "--store", new, path, rc=1), True)
    check("not empty" in run("import-meta", "--store", store(w), path, rc=1), True)
    raw = good[:-1] + [b'{"kind":"raw","key":"7a01","value":""}',
                       good[-1].replace(b'"rows":%d' % (n - 2), b'"rows":%d' % (n - 1))]
    new = os.path.join(w.top, "raw")
    done = subprocess.run([WEFT, "import-meta", "--store", new, "--edited", "-"], timeout=200,
                          input=b"\n".join(raw) + b"\n", capture_output=True, check=False)
    check((done.returncode, b"1 rows came as bytes" in done.stderr), (0, True), done.stderr)
    check(dump(new)[b"z\x01"], b"")
    done = subprocess.run([WEFT, "export-meta", "--json", "--store", new,
                           os.path.join(w.top, "again")], timeout=200, capture_output=True,
                          check=False)
    check((json.loads(done.stdout)["raw"], b"the row 7a01 is damaged" in done.stderr), (1, True))
    in_little_memory(w, good, inode)


def in_little_memory(w, good, inode):
    """More lines than the memory that both commands may have, by far."""
    ino = json.loads(good[inode])["ino"].encode()
    many = [good[inode].replace(ino, b"%016x" % (1 << 32 | i)) for i in range(40000)]
    text = b"\n".join(good[:-1] + many + [good[-1].replace(
        b'"rows":%d' % (len(good) - 2), b'"rows":%d' % (len(good) - 2 + len(many)))]) + b"\n"
    check(len(text) > 24 << 20, True, str(len(text)))

    def limits():
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 18, 1 << 18))  # of each thread
        resource.setrlimit(resource.RLIMIT_DATA, (18 << 20, 18 << 20))
    new = os.path.join(w.top, "many")
    run("import-meta", "--store", new, "--edited", "-", input=text, preexec_fn=limits)
    done = subprocess.run([WEFT, "export-meta", "--store", new, "-"], capture_output=True,
                          timeout=200, check=False, preexec_fn=limits)
    check((done.returncode, done.stdout.count(b"\n")), (0, len(good) + len(many)), done.stderr)


@contextlib.contextmanager
def around(name):
    w = harness.THE = Foreign(2, 1, MINE) if "every_row" in name else Cluster(2, MINE)
    try:
        with clients():
            yield (w,)
    finally:
        harness.THE = None
        w.down()


if __name__ == "__main__":
    tap.run(tap.named(globals()), around, 3)
