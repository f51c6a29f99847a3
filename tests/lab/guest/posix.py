# SPDX-License-Identifier: Apache-2.0
"""posix.py WEFT LOCAL SEED STEPS: random calls by several users on both folders; ends with 1 at the
first difference."""
import errno
import json
import os
import random
import stat
import sys
import time

tops, seed, steps = sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
USERS = [(0, 0, []), (1000, 1000, [50]), (2000, 2000, [50, 60]), (3000, 3000, [])]
MODES = [0o777, 0o755, 0o700, 0o750, 0o770, 0o1777, 0o2777, 0o2755, 0o666, 0o644, 0o600, 0o640,
         0o000, 0o111, 0o4755, 0o6777, 0o2644,
         0o444, 0o555, 0o333, 0o070, 0o007, 0o3775]


def write(path, flags, data):
    fd = os.open(path, flags)
    try:
        return os.write(fd, data.encode()) if data else 0
    finally:
        os.close(fd)


def create(path, flags, mode, umask):
    old = os.umask(umask)
    try:
        os.close(os.open(path, os.O_CREAT | flags, mode))
    finally:
        os.umask(old)


def masked(make):
    def call(path, mode, umask):
        old = os.umask(umask)
        try:
            make(path, mode)
        finally:
            os.umask(old)
    return call


CALLS = {
    "create": create, "mkdir": masked(os.mkdir), "mkfifo": masked(os.mkfifo),
    "symlink": lambda p, target: os.symlink(target, p),
    "mknod": lambda p: os.mknod(p, 0o600 | stat.S_IFCHR, os.makedev(1, 3)), "write": write,
    "unlink": os.unlink, "rmdir": os.rmdir,
    "rename": os.rename, "link": lambda a, b: os.link(a, b, follow_symlinks=False),
    "chmod": os.chmod, "lchown": os.lchown,
    "truncate": os.truncate, "now": lambda p: os.utime(p),
    "utime": lambda p, t: os.utime(p, (t, t + 1)),
    "access": lambda p, how: os.access(p, how, effective_ids=True),
    "listdir": lambda p: sorted(os.listdir(p)),
    "read": lambda p: open(p, "rb").read().decode(), "readlink": os.readlink,
    "setxattr": lambda p, n, v: os.setxattr(p, n, v.encode()), "removexattr": os.removexattr,
    "getxattr": lambda p, n: os.getxattr(p, n).decode(),
}


class User:
    """A process of this user that makes calls."""

    def __init__(self, uid, gid, groups):
        down, up = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(down[1])
            os.close(up[0])
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            with os.fdopen(down[0]) as ask, os.fdopen(up[1], "w") as tell:
                for line in ask:
                    name, args = json.loads(line)
                    try:
                        out = ["ok", CALLS[name](*args)]
                    except OSError as e:
                        out = [errno.errorcode[e.errno], None]
                    print(json.dumps(out), file=tell, flush=True)
            os._exit(0)
        os.close(down[0])
        os.close(up[1])
        self.ask, self.tell = os.fdopen(down[1], "w"), os.fdopen(up[0])

    def call(self, name, args):
        print(json.dumps([name, args]), file=self.ask, flush=True)
        return json.loads(self.tell.readline())


def look(path):
    """(what must be equal, times) or None"""
    try:
        s = os.lstat(path)
    except OSError:
        return None
    kind = stat.S_IFMT(s.st_mode)
    return (oct(s.st_mode), s.st_uid, s.st_gid, s.st_nlink,
            None if kind == stat.S_IFDIR else s.st_size), (s.st_atime_ns, s.st_mtime_ns,
                                                           s.st_ctime_ns)


def differ(what, step, call, user, a, b):
    print("\n".join(line for line in history
                    if any(p and p in line for p in call.split("'")[1::2])))
    print(f"step {step}: uid {user[0]}: {call}: {what}: weft {a}, ext4 {b}")
    sys.exit(1)


rnd = random.Random(seed)
users = [User(*u) for u in USERS]
for top in tops:
    os.chmod(top, 0o777)
known = [""]  # paths, without the top
NAMES = [f"n{n}" for n in range(6)]


def some():
    return rnd.choice(known)


def fresh():
    at = rnd.choice([k for k in known if k.count("/") < 3])
    return f"{at}/{rnd.choice(NAMES)}"


def choose():
    """(name, paths, arguments after them)"""
    mode, umask = rnd.choice(MODES), rnd.choice((0, 0o022, 0o077))
    flags = rnd.choice((os.O_RDONLY, os.O_WRONLY, os.O_RDWR)) | rnd.choice((0, os.O_TRUNC))
    return rnd.choice([
        lambda: ("create", [fresh()],
                 [rnd.choice((os.O_EXCL | os.O_WRONLY, os.O_RDWR, os.O_WRONLY)), mode, umask]),
        lambda: ("mkdir", [fresh()], [mode, umask]), lambda: ("mkdir", [fresh()], [0o777, 0]),
        lambda: ("mkfifo", [fresh()], [mode, umask]),
        lambda: ("symlink", [fresh()], ["nowhere"]), lambda: ("mknod", [fresh()], []),
        lambda: ("write", [some()], [flags & ~os.O_TRUNC | os.O_NONBLOCK, ""]),
        lambda: ("write", [some()], [os.O_WRONLY | os.O_NONBLOCK, "some data"]),
        lambda: ("write", [some()], [os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK, "more"]),
        lambda: ("unlink", [some()], []), lambda: ("rmdir", [some()], []),
        lambda: ("rename", [some(), fresh()], []), lambda: ("rename", [some(), some()], []),
        lambda: ("link", [some(), fresh()], []), lambda: ("chmod", [some()], [mode]),
        lambda: ("chmod", [some()], [mode]),
        lambda: ("lchown", [some()],
                 [rnd.choice((-1, 1000, 2000)), rnd.choice((-1, 50, 60, 1000))]),
        lambda: ("lchown", [some()], [-1, rnd.choice((50, 60, 2000))]),
        lambda: ("truncate", [some()], [rnd.choice((1, 7, 5000))]), lambda: ("now", [some()], []),
        lambda: ("utime", [some()], [rnd.randrange(10**6)]),
        lambda: ("access", [some()], [rnd.randrange(8)]),
        lambda: ("access", [some()], [rnd.randrange(8)]), lambda: ("listdir", [some()], []),
        lambda: ("readlink", [some()], []),
        lambda: ("setxattr", [some()], ["user.a", str(rnd.random())]),
        lambda: ("removexattr", [some()], ["user.a"]),
        lambda: ("getxattr", [some()], ["user.a"])])()


def is_kind(path, *kinds):
    try:
        return stat.S_IFMT(os.lstat(tops[1] + path).st_mode) in kinds
    except OSError:
        return False


def leave_out(name, paths, args):
    """What differs for reasons outside of weft."""
    if "" in paths and name in ("rmdir", "rename", "unlink", "link"):  # the tops have other names
        return True
    # The client does not send a size that the file already has, so it clears no set-id bits.
    if (name == "truncate" and is_kind(paths[0], stat.S_IFREG)
        and os.stat(tops[1] + paths[0]).st_size == args[0]):
        return True
    # The client does not ask for the right to execute a file that is neither
    # regular nor a directory.
    if name == "access" and args[0] & 1 and not is_kind(paths[0], stat.S_IFREG, stat.S_IFDIR,
                                                        stat.S_IFLNK):
        return True
    # The client does not send a chown that changes nothing.
    return name == "lchown" and args == [-1, -1]


NAMING = ("unlink", "rmdir", "rename", "link", "mknod", "mkdir", "mkfifo", "symlink", "create")
done, history = {}, []
for step in range(steps):
    name, paths, args = choose()
    if leave_out(name, paths, args):
        continue
    who = rnd.randrange(len(users))
    watched = {w for p in paths for w in (p, os.path.dirname(p))}
    before = [{p: look(t + p) for p in watched} for t in tops]
    time.sleep(0.011)  # a tick of ext4's clock
    results = [users[who].call(name, [t + p for p in paths] + args) for t in tops]
    after = [{p: look(t + p) for p in watched} for t in tops]
    # The client leaves it to the server whether a directory may be written, and finds other
    # errors before it asks.
    if name in NAMING and results[1][0] == "EACCES" and results[0][0] not in ("ok", "ENOENT"):
        results[0] = results[1]
    for r in results:
        if r[0] == "ENOTEMPTY":  # RENAME says EXIST (RFC 8881, 18.26.3); POSIX allows both
            r[0] = "EEXIST"
    call = f"{name}{(*paths, *[oct(a) if name == 'chmod' else a for a in args])}"
    if results[0] != results[1]:
        differ("the result", step, call, USERS[who], *results)
    for p in watched:
        a, b = after[0][p], after[1][p]
        if (a and a[0]) != (b and b[0]):
            differ(p or "/", step, call, USERS[who], a and a[0], b and b[0])
        if not (a and before[0][p]):
            continue
        moved = [[n for n in range(3) if x[p][1][n] != y[p][1][n]] for x, y in zip(before, after)]
        if moved[0] != moved[1]:
            differ(f"which of atime, mtime, ctime of {p or '/'} moved", step, call, USERS[who],
                   *moved)
    key = name, results[0][0] == "ok"
    history.append(f"step {step}: uid {USERS[who][0]}: {call}: {results[0][0]}")
    done[key] = done.get(key, 0) + 1
    if results[0][0] == "ok" and name in ("create", "mkdir", "mkfifo", "symlink", "mknod", "rename",
                                          "link"):
        if name == "rename" and paths[0] != paths[1]:
            old, new = paths
            known = [new + k[len(old):] if k == old or k.startswith(old + "/") else k for k in known
                     if not (k == new or k.startswith(new + "/"))]
        known = sorted(set(known) | {paths[-1]})
    known = [k for k in known if os.path.lexists(tops[1] + k)] or [""]

worked = sum(n for (_, ok), n in done.items() if ok)
print(f"{sum(done.values())} calls, {worked} worked")
if worked < steps // 8:
    sys.exit("too few calls worked to tell anything")
