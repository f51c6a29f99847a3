# SPDX-License-Identifier: Apache-2.0
"""Runs the functions of a module whose names begin with test_, in their order, and prints TAP."""
import contextlib
import ctypes
import fcntl
import os
import re
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback

SRC = (os.environ.get("top_srcdir")
       or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.environ.get("top_builddir") or os.getcwd()

# Without this glibc gives a freed megabyte back to the kernel at once, and a WRITE of 1 MiB costs
# the client 9 ms of page faults: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD (mallopt(3)).
_libc = ctypes.CDLL(None)
_libc.mallopt(-1, 256 << 20)
_libc.mallopt(-3, 32 << 20)


def say(text):
    for line in str(text).splitlines():
        print(f"# {line}", flush=True)


def skip(why):
    """Runs nothing of this file."""
    print(f"1..0 # SKIP {why}")


def built(*programs):
    return all(os.access(os.path.join(BUILD, p), os.X_OK) for p in programs
               or ("weft-mds", "weft-ds"))


def named(module, *prefixes):
    """The (name, test) pairs that the command line chooses of the file's own tests, by prefix and
    then in their order. test_ is no part of a name."""
    tests = [(n.removeprefix("test_"), f) for p in prefixes or ("test_",) for n, f in module.items()
             if n.startswith(p) and getattr(f, "__module__", None) == "__main__"]
    return [t for t in tests if not sys.argv[1:]
            or any(re.search(a.replace(" ", "_"), t[0]) for a in sys.argv[1:])]


def giving(*args):
    """Every test gets these."""
    @contextlib.contextmanager
    def around(name):
        yield args
    return around


def one(i, name, test, around):
    title, began = name.replace("_", " "), time.monotonic()
    try:
        with around(name) as args:
            why = test(*args)
        print(f"ok {i} - {title}{f' # SKIP {why}' if isinstance(why, str) else ''}", flush=True)
    except Exception as e:
        print(f"not ok {i} - {title}", flush=True)
        say(f"{type(e).__name__}: {e}")
        if os.environ.get("WEFT_TRACE"):
            traceback.print_exc()
    if time.monotonic() - began > 1:
        say(f"{time.monotonic() - began:.1f} s")


def apart():
    """Gives the calling process a network of its own, where ports that other processes use are
    free. Returns False where the kernel forbids it."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):  # CLONE_NEWNET
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    return True


def may_be_apart():
    pid = os.fork()
    if pid == 0:
        os._exit(not apart())
    return os.waitpid(pid, 0)[1] == 0


def begin(unit, around, after):
    """Starts a process that runs these (number, name, test) in a network of its own. Returns its
    pid and the file with its output."""
    said = tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        status = 1
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        try:
            apart()
            for test in unit:
                print(f"\0{test[0]}", flush=True)
                one(*test, around)
            if after:
                after()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return pid, said


def parts(text, unit):
    """The output, by the test's number. A test without a result has failed: its process ended."""
    out = {i: "" for i, _, _ in unit}
    for i, said in re.findall(r"\0(\d+)\n([^\0]*)", text):
        out[int(i)] = said
    return {i: out[i] if re.search(r"^(not )?ok ", out[i], re.M) else f"{out[i]}\nnot ok {i} - "
            f"{name.replace('_', ' ')}\n# its process ended\n" for i, name, _ in unit}


def run_beside(units, around, beside, after):
    """Runs this many units at once, and prints their output in the order of the tests. False: one
    ended badly, whatever its tests said."""
    left, running, said, told, good = list(units), {}, {}, 1, True

    def take(unit, file):
        nonlocal told
        file.seek(0)
        said.update(parts(file.read().decode(errors="replace"), unit))
        while told in said:
            sys.stdout.write(said.pop(told))
            told += 1
        sys.stdout.flush()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    try:
        while left or running:
            while left and len(running) < beside:
                unit = left.pop(0)
                pid, file = begin(unit, around, after)
                running[pid] = unit, file
            pid, status = os.wait()
            if pid in running:
                good &= status == 0
                take(*running.pop(pid))
    finally:
        for unit, file in running.values():
            take(unit, file)
    return good


def run(tests, around=giving(), beside=1, together=lambda name: name, after=None):
    """The test runs within around(name), which gives the test's arguments. A failure in around is
    the test's failure. A test that returns a text was skipped for that reason.

    Tests may run beside one another, this many at a time, if they share nothing and wait more than
    they work. Those for which together() gives the same value share a process, in their order.
    after() runs at its end.
    """
    if not built():
        skip("the daemons are not built")
        return
    print(f"1..{len(tests)}", flush=True)
    units = {}
    for i, (name, test) in enumerate(tests, 1):
        units.setdefault(together(name), []).append((i, name, test))
    if beside > 1 and len(units) > 1 and may_be_apart():
        if not run_beside(units.values(), around, beside, after):
            sys.exit(1)
        return
    for i, (name, test) in enumerate(tests, 1):
        one(i, name, test, around)
    if after:
        after()


def main(module, before=None, after=None):
    """before() gives what a test gets as its argument; after(it) ends it, whatever the test did."""
    @contextlib.contextmanager
    def around(name):
        it = before() if before else None
        try:
            yield (it,)
        finally:
            if after and it is not None:
                after(it)
    run(named(module), around)
