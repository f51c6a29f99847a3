# SPDX-License-Identifier: Apache-2.0
"""Three machines for the commands that make a cluster, as root. A machine is a folder with a root
of its own, in a network of its own, without systemd."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile

from harness import BUILD, check, eventually

UID = 990  # of the user weft
LONG = 60
HERE = "192.0.2.100"  # the test's own address on the machines' bridge
RAN = set()  # the commands that the tests ran, as the page has them
ENV = {"PATH": "/opt/weft:/usr/sbin:/usr/bin:/sbin:/bin", "ASAN_OPTIONS": "detect_leaks=0"}


def sh(*args):
    subprocess.run(args, check=True, capture_output=True)


class Machine:
    """One machine: a root, and a process that holds its network."""

    def __init__(self, top, name, address):
        self.root = os.path.join(top, name)
        for d in ("etc", "dev", "proc", "sys", "tmp", "run", "var/lib", "srv", "opt/weft"):
            os.makedirs(os.path.join(self.root, d))
        for d in ("usr", "bin", "sbin", "lib", "lib64"):
            if os.path.islink("/" + d):
                os.symlink(os.readlink("/" + d), os.path.join(self.root, d))
            elif os.path.isdir("/" + d):
                self.bind("/" + d, d)
        for d in ("/dev", "/proc", "/sys"):
            self.bind(d, d[1:])
        self.bind(BUILD, "opt/weft")
        self.write("etc/passwd", f"root:x:0:0::/:/bin/sh\nweft:x:{UID}:{UID}::/:/bin/false\n")
        self.write("etc/group", f"root:x:0:\nweft:x:{UID}:\n")
        self.write("etc/hosts", f"127.0.0.1 localhost\n{address} {os.uname().nodename}\n")
        # A store must not lie on the root's file system.
        os.makedirs(os.path.join(self.root, "srv/weft"))
        sh("mount", "-t", "tmpfs", "-o", "size=2G,mode=755", "srv",
           os.path.join(self.root, "srv/weft"))
        self.net = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        eventually(lambda: os.readlink(f"/proc/{self.net.pid}/ns/net")
                   != os.readlink("/proc/self/ns/net"), LONG, "a network of its own")
        sh("ip", "link", "add", "v" + name, "type", "veth", "peer", "name", "e0", "netns",
           str(self.net.pid))
        sh("ip", "link", "set", "v" + name, "master", "br0", "up")
        for args in (("addr", "add", address + "/24", "dev", "e0"), ("link", "set", "e0", "up"),
                     ("link", "set", "lo", "up")):
            sh("nsenter", "-t", str(self.net.pid), "-n", "ip", *args)
        self.started = []

    def bind(self, what, where):
        where = os.path.join(self.root, where)
        os.makedirs(where, exist_ok=True)
        sh("mount", "--rbind", what, where)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def write(self, path, text):
        with open(self.path(path), "w", encoding="utf-8") as f:
            f.write(text)

    def read(self, path):
        with open(self.path(path), encoding="utf-8") as f:
            return f.read()

    def inside(self, *args):
        return ["nsenter", "-t", str(self.net.pid), "-n", "chroot", self.root, *args]

    def weft(self, *args, rc=0, text=None, env=None, under=()):
        """What it prints: (standard output, standard error). under: the command that runs it."""
        RAN.add(re.sub("weft_join_[^ ]+", "TOKEN", " ".join(a for a in args if a != "--force")))
        done = subprocess.run(self.inside(*under, "weft", *args), env={**ENV, **(env or {})},
                              input=text, capture_output=True, text=True, timeout=LONG, check=False)
        check(done.returncode, rc, f"weft {' '.join(args)}: {done.stdout}{done.stderr}")
        if rc:
            own = done.stderr.replace("it says something\n", "")
            check((own.count("\n") <= 3, own.startswith("weft: ")), (True, True), done.stderr)
        return done.stdout, done.stderr

    def refused(self, why, *args, **how):
        _, said = self.weft(*args, rc=1, **how)
        check(re.search(why, said) is not None, True, f"{why} in {said}")

    def start(self, said):
        """Runs the commands that weft printed."""
        commands = re.findall(r"^to do +(.*)$", said, re.M)
        check(len(commands), 2, said)
        with open(self.path("tmp/log"), "ab") as log:
            for command in commands:
                # A daemon is in the background of its shell.
                child = subprocess.Popen(self.inside("sh", "-c", command + " wait" if command[-1]
                                                     == "&" else command), env=ENV, stdout=log,
                                         stderr=log, start_new_session=True)
                if command[-1] == "&":
                    self.started.append(child)
                else:
                    check(child.wait(LONG), 0, command)

    def stop(self):
        for child in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            child.wait(LONG)
        self.started = []

    def tree(self):
        """Each file below the root that the test did not mount there: kind, owner, mode, text."""
        found = {}
        for top in ("etc", "var", "srv", "run"):
            for at, folders, files in os.walk(self.path(top)):
                for n in folders + files:
                    path = os.path.join(at, n)
                    st = os.lstat(path)
                    text = None
                    if n in files and os.path.isfile(path) and st.st_size < 65536:
                        with open(path, "rb") as f:
                            text = f.read()
                    found[os.path.relpath(path, self.root)] = (st.st_mode, st.st_uid, st.st_gid,
                                                               st.st_mtime_ns, text)
        return found


@contextlib.contextmanager
def machines():
    top = tempfile.mkdtemp(prefix="weft-cluster.")
    os.chmod(top, 0o755)
    sh("ip", "link", "add", "br0", "type", "bridge")
    sh("ip", "link", "set", "br0", "up")
    sh("ip", "addr", "add", HERE + "/24", "dev", "br0")
    made = []
    try:
        for i, name in enumerate(("m1", "m2", "m3"), 1):
            made.append(Machine(top, name, f"192.0.2.{i}"))
        yield made
    finally:
        for m in made:
            m.stop()
            m.net.kill()
            m.net.wait()
            with open("/proc/self/mounts", encoding="utf-8") as f:
                below = [x.split()[1] for x in f if x.split()[1].startswith(m.root + "/")]
            for path in reversed(below):
                subprocess.run(["umount", "-l", path], check=False, capture_output=True)
        sh("ip", "link", "del", "br0")
        shutil.rmtree(top)


def owners(m, want):
    for path, (user, group, mode) in want.items():
        st = os.lstat(m.path(path))
        check((st.st_uid, st.st_gid, oct(st.st_mode & 0o7777)), (user, group, oct(mode)), path)
