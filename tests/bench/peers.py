# SPDX-License-Identifier: Apache-2.0
"""Servers to measure beside one another: weft clusters of this build, and nfs-ganesha of Debian.
Also weft-bench, which drives them all.

All run in the network and mount namespaces of the program that starts them (side-by-side makes
them), so that fixed ports meet no other program.
"""
import json
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.environ.get("top_srcdir") or os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("top_builddir") or os.environ.get("WEFT_BUILD") or os.getcwd()
LIMIT = 300  # seconds for one piece of work
GANESHA_PORT = 21049
GANESHA = """
NFS_CORE_PARAM { Protocols = 3, 4; NFS_Port = %(port)d; MNT_Port = %(mount)d; \
Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFSv4 { Graceless = true; Minor_Versions = 1, 2; RecoveryBackend = fs; \
Allow_Numeric_Owners = true; Only_Numeric_Owners = true; }
LOG { Default_Log_Level = EVENT; }
"""
EXPORT = """
EXPORT { Export_Id = %d; Path = "%s"; Pseudo = "/%s"; Protocols = 3, 4; \
Transports = TCP; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
	FSAL { Name = %s; } }
"""
PROGRAMS = {"ganesha.nfsd": "nfs-ganesha", "rpcbind": "rpcbind"}
MODULES = {"VFS": "nfs-ganesha-vfs", "MEM": "nfs-ganesha-mem"}


class Trouble(Exception):
    """A line for the user."""


def eventually(done, seconds, what):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise Trouble(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def own_namespaces():
    """No other process sees our mounts and ports."""
    outside, here = os.environ.get("SIDE_BY_SIDE_NET"), os.readlink("/proc/self/ns/net")
    if outside and outside != here:
        return
    if os.geteuid():
        raise Trouble("root is wanted")
    # The end of this process ends all that it has started.
    os.execvpe("unshare", ["unshare", "-nmpf", "--mount-proc", "--kill-child", "sh", "-c",
                           'ip link set lo up && "$@"', "sh", sys.executable, *sys.argv],
               {**os.environ, "SIDE_BY_SIDE_NET": here})


def missing():
    """Debian packages that the peer needs and this machine lacks."""
    packages = [p for program, p in PROGRAMS.items() if not shutil.which(program)]
    folders = [os.path.join(f, "ganesha") for f in ("/usr/lib/x86_64-linux-gnu",
                                                    f"/usr/lib/{os.uname().machine}-linux-gnu",
                                                    "/usr/lib64", "/usr/lib")]
    return (packages + [p for m, p in MODULES.items()
                        if not any(os.path.exists(os.path.join(f, f"libfsal{m.lower()}.so"))
                                   for f in folders)])


def cpu_ns(pid):
    """Of a process: all its threads, those that have ended too, in the kernel and outside
    (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def thread_ns(pid, name):
    """Of its threads of this name."""
    total = 0
    for t in os.listdir(f"/proc/{pid}/task"):
        where = f"/proc/{pid}/task/{t}"
        try:
            with open(where + "/comm", encoding="ascii") as f:
                if f.read().strip() != name:
                    continue
            with open(where + "/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended meanwhile
    return total


def resident(pid):
    """Bytes of memory that are its own."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f
                   if line.startswith(("Private_Dirty:", "Private_Clean:"))) * 1024


def drop(children):
    for p in children:
        p.terminate()
    for p in children:
        try:
            p.wait(20)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


class Target:
    """What weft-bench works on: a folder of a server."""

    def __init__(self, name, title, port, pids, folder=""):
        self.name, self.title, self.port, self.pids, self.folder = name, title, port, pids, folder

    def bench(self, what, *args, limit=LIMIT):
        """The figures of each phase, by name."""
        command = [os.path.join(BUILD, "weft-bench"), what, "--server", f"127.0.0.1:{self.port}",
                   "--dir", self.folder, "--pid", ",".join(map(str, self.pids)),
                   "--quiet", "--json", "-", *map(str, args)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit,
                                  check=False)
        except subprocess.TimeoutExpired:
            raise Trouble(f"{self.name}: weft-bench {what} within {limit} s") from None
        if done.returncode:
            raise Trouble(f"{self.name}: weft-bench {what} {' '.join(map(str, args))}: "
                          f"{done.stderr.strip()[-300:]}")
        return {p["phase"]: p for p in json.loads(done.stdout)["phases"]}


def exports_of(folder, tree):
    """A file for ds.exports: what a weft-ds serves by path."""
    path = os.path.join(folder, "exports")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'export "{tree}" {{\n\tclient "*" {{ access = rw  squash = none  privileged_port '
                f'= false }}\n}}\n')
    return path


class Weft:
    def __init__(self, name, title, folder, port, settings=(), ds=1):
        self.dir = os.path.join(folder, name)
        self.name = name
        sets = [a for s in settings for a in ("--set", s)]
        self.dev("up", self.dir, "--ds", str(ds), "--port", str(port), *sets)
        self.port = port
        self.daemons = {d["name"]: d
                        for d in json.loads(self.dev("status", self.dir, "--json"))["daemons"]}
        self.target = Target(name, title, port, [d["pid"] for d in self.daemons.values()])

    def pid(self, name="mds"):
        return self.daemons[name]["pid"]

    def metric(self, name, daemon="mds"):
        """The sum over its labels."""
        sys.path.insert(0, os.path.join(SRC, "tests/lab"))
        from metric import fetch
        text = fetch(self.daemons[daemon]["metrics"])
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith((name + " ", name + "{")))

    @staticmethod
    def dev(*args):
        done = subprocess.run([os.path.join(BUILD, "tools/weft-dev"), *args], capture_output=True,
                              text=True, timeout=120, check=False)
        if done.returncode:
            raise Trouble(f"weft-dev {args[0]}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def down(self):
        self.dev("down", self.dir)
        shutil.rmtree(self.dir, ignore_errors=True)


class Ganesha:
    """One daemon with an export for each: a folder of the disk (VFS), and its own memory (MEM).
    With synced, also a folder of a file system that writes every change through to that disk at
    once, because no option of the daemon does that. Its files, rpcbind's socket among them, are in
    memory of this mount namespace's own."""

    def __init__(self, folder, tree, synced=False):
        """tree: what it exports of the disk."""
        self.dir, self.vfs = os.path.join(folder, "ganesha"), tree
        self.sync = os.path.join(self.dir, "sync")
        os.makedirs(self.sync)
        for where in ("/run", "/var/lib/nfs"):
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", where], check=True)
        for where in ("/run/ganesha", "/var/lib/nfs/ganesha"):
            os.makedirs(where)
        self.synced = synced and self.mount_synced()
        conf = os.path.join(self.dir, "conf")
        with open(conf, "w", encoding="utf-8") as f:
            f.write(GANESHA % {"port": GANESHA_PORT, "mount": GANESHA_PORT + 1})
            f.write(EXPORT % (1, self.vfs, "vfs", "VFS") + EXPORT % (2, "/mem", "mem", "MEM"))
            if self.synced:
                f.write(EXPORT % (3, self.sync, "sync", "VFS"))
        self.log = os.path.join(self.dir, "log")
        self.started = [subprocess.Popen(["rpcbind", "-f"])]
        try:
            eventually(lambda: os.path.exists("/run/rpcbind.sock"), 5, "rpcbind's socket")
            daemon = subprocess.Popen(["ganesha.nfsd", "-F", "-f", conf, "-p", "/run/ganesha.pid",
                                       "-L", self.log], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
            self.started.append(daemon)
            self.pid = daemon.pid
            self.targets = [Target("ganesha-vfs", "nfs-ganesha on the same disk, which syncs no "
                                   "create", GANESHA_PORT, [self.pid], "vfs"),
                            Target("ganesha-mem", "nfs-ganesha in its memory", GANESHA_PORT,
                                   [self.pid], "mem")]
            if self.synced:
                self.targets.append(Target("ganesha-sync", "nfs-ganesha on the same disk, every "
                                           "change synced by its file system", GANESHA_PORT,
                                           [self.pid], "sync"))
            eventually(self.serves, 20, "nfs-ganesha's service")
        except BaseException:
            self.down()
            raise

    def mount_synced(self):
        image = self.sync + ".img"
        with open(image, "wb") as f:
            f.truncate(1 << 30)
        env = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/sbin:/usr/sbin"}
        for command in (["mkfs.ext4", "-q", "-E", "lazy_itable_init=1", image],
                        ["mount", "-o", "loop,sync,dirsync", image, self.sync]):
            if subprocess.run(command, env=env, capture_output=True, check=False).returncode:
                return False
        return True

    def serves(self):
        if self.started[-1].poll() is not None:
            with open(self.log, encoding="utf-8", errors="replace") as f:
                raise Trouble(f"nfs-ganesha has ended: {f.read()[-500:]}")
        try:
            for t in self.targets:
                t.bench("md", "--count", "1", "--phases", "mkdir,rmdir")
            return True
        except Trouble:
            return False

    def down(self):
        drop(self.started[::-1])
        if self.synced:
            subprocess.run(["umount", self.sync], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
