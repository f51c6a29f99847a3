#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The units under a running systemd. It is process 1 of a container of namespaces; the container's
file system is this machine's, and what it writes stays in memory. Prints TAP. As root."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import check, eventually  # noqa: E402
from nfs41 import (ANON, BOTH, DIR, FILE_SYNC, NO_DELEG, Client, Closed, Conn,  # noqa: E402
                   create, err, getfh, lookup, open_, putfh, putrootfh, read, write)
import tap  # noqa: E402
from tap import BUILD, SRC  # noqa: E402

SYSTEMD = "/lib/systemd/systemd"
MDS = ("127.0.0.1", 2049)
# Runs with T, the folder, and CGROUP, the group, set. The machine's own units are not there: only
# the units named here start.
BOOT = r"""
set -e
R=$T/root
mount -t tmpfs -o mode=0755 tmpfs $T/mem
mkdir $T/mem/up $T/mem/work
mount -t overlay overlay -o lowerdir=/,upperdir=$T/mem/up,workdir=$T/mem/work $R
mount -t proc proc $R/proc
mount -t sysfs -o ro sys $R/sys
mount -t cgroup2 cgroup2 $R/sys/fs/cgroup
for d in run tmp var/lib dev; do mount -t tmpfs -o mode=0755 tmpfs $R/$d; done
chmod 1777 $R/tmp
for d in null zero full random urandom tty ptmx; do
	: >$R/dev/$d
	mount --bind /dev/$d $R/dev/$d
done
: >$R/dev/console
mount --bind $CONSOLE $R/dev/console
mkdir -p $R/dev/shm $R/dev/pts $R/dev/mqueue $R/dev/hugepages
mkdir -p $R/usr/local/sbin $R/usr/local/etc/weft
rm -rf $R/etc/systemd/system $R/usr/local/etc/weft/*
mkdir -p $R/etc/systemd/system
for t in sysinit basic shutdown network-online sockets lab; do
	printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' $t \
		>$R/etc/systemd/system/$t.target
done
cp $B/weft-mds $B/weft-ds $B/weft $R/usr/local/sbin/
rm -rf $R/etc/weft
ln -s /usr/local/etc/weft $R/etc/weft
cp $B/dist/systemd/weft-ds@.service $S/dist/systemd/weft.target $R/etc/systemd/system/
for n in mds ds; do
	cp $B/dist/systemd/weft-$n.service $S/dist/systemd/weft-$n.socket $R/etc/systemd/system/
	mkdir $R/etc/systemd/system/weft-$n.service.d
	printf '[Service]\nStandardOutput=append:/run/%s.log\nStandardError=append:/run/%s.log\n' \
		$n $n >$R/etc/systemd/system/weft-$n.service.d/log.conf
done
systemd-sysusers --root=$R $S/dist/systemd/weft.conf
cp $T/weft.conf $T/exports $R/usr/local/etc/weft/
head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >$R/usr/local/etc/weft/cluster.key
chroot $R chown weft: /usr/local/etc/weft/cluster.key
chmod 0400 $R/usr/local/etc/weft/cluster.key
cd $R
mount --move . /
# The kernel gives no user namespace to who is in a chroot, and this machine may be one.
chroot . unshare -U true || for n in mds ds ds@; do
	mkdir -p etc/systemd/system/weft-$n.service.d
	printf '[Service]\nPrivateUsers=no\n' >etc/systemd/system/weft-$n.service.d/users.conf
done
exec env -i container=lab PATH="$PATH" ASAN_OPTIONS=detect_leaks=0 \
	chroot . /lib/systemd/systemd --system --unit=lab.target --log-target=console \
	--show-status=false
"""
CONF = """
mds {
	listen = "0.0.0.0:2049, [::]:2049"
	store = /var/lib/weft/mds
	admin = "unix:/run/weft-mds/admin"
	cluster_key = /usr/local/etc/weft/cluster.key
	exports = /usr/local/etc/weft/exports
	lease = 5s
	grace = 5s
}
ds {
	listen = "0.0.0.0:2050, [::]:2050"
	advertise = "127.0.0.1:2050"
	store = /var/lib/weft/ds
	admin = "unix:/run/weft-ds/admin"
	cluster_key = /usr/local/etc/weft/cluster.key
	mds = "127.0.0.1:2049"
}
"""
EXPORTS = ('export "/" { squash = none privileged_port = false client "127.0.0.0/8" { access = '
           '%s } }\n')


class Box:
    """The container. run() runs something in it."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="weft-units.")
        self.child, self.pid, self.said = None, 0, ""
        self.group = os.path.join(self.top, "cg", f"weft-units-{os.getpid()}")
        for d in ("root", "mem", "cg"):
            os.mkdir(os.path.join(self.top, d))
        for name, text in (("weft.conf", CONF), ("exports", EXPORTS % "rw"), ("boot", BOOT)):
            with open(os.path.join(self.top, name), "w", encoding="utf-8") as f:
                f.write(text)

    def boot(self):
        """None, or why it cannot boot."""
        if subprocess.run(["mount", "-t", "cgroup2", "cgroup2", os.path.join(self.top, "cg")],
                          check=False, stderr=subprocess.DEVNULL).returncode:
            return "cgroup2 cannot be mounted here"
        os.mkdir(self.group)
        group, (ours, its) = self.group, os.openpty()

        def enter():
            with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write(str(os.getpid()))
        self.child = subprocess.Popen(  # noqa: PLW1509
            ["unshare", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child",
             "--propagation", "private", "bash", os.path.join(self.top, "boot")],
            stdin=subprocess.DEVNULL, stdout=its, stderr=its, preexec_fn=enter,  # noqa: PLW1509
            env={**os.environ, "T": self.top, "B": BUILD, "S": SRC, "CONSOLE": os.ttyname(its)})
        threading.Thread(target=self.listen, args=(ours,), daemon=True).start()
        eventually(lambda: self.child.poll() is not None or self.up(), 60, "systemd")
        check(self.child.poll(), None, self.said[-1500:])
        return None

    def listen(self, console):
        with contextlib.suppress(OSError):
            while True:
                self.said += os.read(console, 4096).decode(errors="replace")

    def up(self):
        with open(f"/proc/{self.child.pid}/task/{self.child.pid}/children", encoding="ascii") as f:
            kids = f.read().split()
        if not kids or not os.readlink(f"/proc/{kids[0]}/exe").endswith("/systemd"):
            return False
        self.pid = int(kids[0])
        return self.run("systemctl", "is-active", "lab.target", want=None) == "active"

    def run(self, *args, want=0):
        done = subprocess.run(["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-p", "-C",
                               "-r", "-w", *args], capture_output=True, text=True, timeout=60,
                              check=False)
        if want is not None:
            check(done.returncode, want,
                  f"{' '.join(args)}: {done.stdout[-800:]}{done.stderr[-800:]}{self.logs()}")
        return done.stdout.strip()

    def show(self, unit, what):
        return self.run("systemctl", "show", "-P", what, unit)

    def path(self, *names):
        return f"/proc/{self.pid}/root/" + "/".join(names)

    def logs(self):
        text = self.said[-1500:]
        for n in ("mds", "ds"):
            with contextlib.suppress(OSError), open(self.path("run", n + ".log"), encoding="utf-8",
                                                    errors="replace") as f:
                text += f.read()[-4000:]
        return text

    def end(self):
        if self.child:
            self.child.kill()  # with it goes process 1, and with that all of them
            self.child.wait(20)
        for folder, _, _ in os.walk(self.group, topdown=False):
            for _ in range(100):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
                    break
                time.sleep(0.05)
        subprocess.run(["umount", os.path.join(self.top, "cg")], check=False,
                       stderr=subprocess.DEVNULL)
        shutil.rmtree(self.top)


def test_they_start_and_serve(box):
    box.run("systemctl", "start", "weft-mds.socket", "weft-ds.socket")
    box.run("systemctl", "start", "weft-mds", "weft-ds")
    check([box.run("systemctl", "is-active", f"weft-{n}.{k}") for n in ("mds", "ds")
           for k in ("service", "socket")], ["active"] * 4)
    eventually(lambda: re.search(r"data server 1 .*joined", box.logs()), 20, "a data server")
    c = Client(MDS)
    root = c.root()
    eventually(lambda: made(c, root), 10, "a file")
    c.close()


def test_nothing_that_they_do_is_forbidden(box):
    """Except to lock memory: in some containers systemd itself may not raise that limit."""
    bad = [line for line in box.logs().splitlines() if re.match("(WARN|ERROR|FATAL) ", line)
           and "RLIMIT_MEMLOCK" not in line
           # The example has one key for both daemons, and the log says so.
           and not re.search("the cluster key|its own keys", line)]
    check(bad, [])


def made(c, root):
    s, f = c.open(root, "f", attrs={"mode": 0o600})
    c.ok(putfh(f), write(s, 0, b"under systemd", FILE_SYNC))
    check(c.ok(putfh(f), read(s, 0, 99)).data, b"under systemd")
    return True


def status(box, section):
    pid = box.show(f"weft-{section}", "MainPID")
    text = box.run("cat", f"/proc/{pid}/status")
    user = box.run("id", "-u", "weft")
    return ({k: re.search(rf"^{k}:\s*(\S+)", text, re.M)[1]
             for k in ("Uid", "NoNewPrivs", "Seccomp", "CapEff", "CapBnd")}, user, pid)


def test_they_are_confined(box):
    for section in ("mds", "ds"):
        got, user, pid = status(box, section)
        check(got, {"Uid": user, "NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0" * 16,
                    "CapBnd": "0" * 16}, section)
        mounts = box.run("cat", f"/proc/{pid}/mountinfo")
        check(re.search(r" / / (ro|rw)", mounts)[1], "ro", f"{section}: its root")
        check(box.run("nsenter", "-t", pid, "-m", "test", "-w", "/home", want=None), "")
        check(box.run("nsenter", "-t", pid, "-m", "ls", "/home", want=None), "",
              f"{section}: what it sees of homes")
        check(box.run("stat", "-c", "%U %a", f"/run/weft-{section}"), "weft 750")
    check(box.run("stat", "-c", "%U %a", "/var/lib/weft"), "weft 700")


def test_a_reload_reads_the_exports(box):
    c = Client(MDS)
    c.root()
    with open(box.path("usr/local/etc/weft/exports"), "w", encoding="utf-8") as f:
        f.write(EXPORTS % "ro")
    box.run("systemctl", "reload", "weft-mds")
    eventually(lambda: "exports reloaded" in box.logs(), 10, "the reload")
    c.no("ROFS", putrootfh(), create(DIR, b"d", mode=0o700))
    with open(box.path("usr/local/etc/weft/exports"), "w", encoding="utf-8") as f:
        f.write(EXPORTS % "rw")
    box.run("systemctl", "reload", "weft-mds")
    eventually(lambda: box.logs().count("exports reloaded") == 2, 10, "the second reload")
    c.close()


def test_one_that_is_killed_is_started_again_and_its_clients_are_not_refused(box):
    before = box.show("weft-mds", "MainPID")
    c = Client(MDS)
    c.root()
    box.run("kill", "-9", before)
    began = time.monotonic()
    while True:
        conn = Conn(MDS)  # systemd holds the address: it is not refused
        try:
            check(conn.rpc(0), b"")
            break
        except (Closed, ConnectionResetError):  # the one that is dying had taken it
            conn.close()
            check(time.monotonic() - began < 20, True)
    tap.say(f"the first answer {time.monotonic() - began:.2f} s after kill -9")
    conn.close()
    try:
        c.ok(putrootfh())
        raise AssertionError("a session outlived the server")
    except (Closed, OSError):
        pass
    eventually(lambda: box.run("systemctl", "is-active", "weft-mds", want=None) == "active", 20,
               "the restart")
    check((box.show("weft-mds", "NRestarts"), box.show("weft-mds", "MainPID") != before),
          ("1", True))
    c = Client(MDS)
    d = c.root()
    c.until(lambda got: err(got.status) != "GRACE", putfh(d), open_("again", BOTH | NO_DELEG))
    check(c.ok(putfh(c.ok(putfh(d), lookup("f"), getfh()).fh), read(ANON, 0, 99)).data,
          b"under systemd")
    c.close()


def test_one_that_is_stopped_ends_well(box):
    for section in ("mds", "ds"):
        # A client that calls while systemd listens has it started.
        box.run("systemctl", "stop", f"weft-{section}.socket", f"weft-{section}")
        check((box.show(f"weft-{section}", "ActiveState"), box.show(f"weft-{section}", "Result"),
               box.show(f"weft-{section}", "ExecMainStatus")), ("inactive", "success", "0"),
              section)
    check("stopped" in box.logs(), True)


def test_the_figure_of_systemd(box):
    for section in ("mds", "ds"):
        text = box.run("systemd-analyze", "security", f"weft-{section}", want=None)
        m = re.search(r"exposure level for \S+: (\S+)", text)
        check(m is not None, True, text[-300:])
        tap.say(f"weft-{section}: {m[1]}")
        check(float(m[1]) <= 1.5, True, m[1])


# ---- a machine set up by the man pages alone
# ---- a machine set up by the man pages alone

def example(page, begins):
    """The block of a man page's EXAMPLES that begins with this."""
    with open(os.path.join(SRC, "docs", page), encoding="utf-8") as f:
        text = f.read().partition(".SH EXAMPLES\n")[2]
    blocks = [b.replace("\\", "") for b in re.findall(r"^\.nf\n(.*?)^\.fi", text, re.M | re.S)]
    return next(b for b in blocks if b.startswith(begins))


def put(box, name, text):
    os.makedirs(os.path.dirname(box.path(name)), exist_ok=True)
    with open(box.path(name), "w", encoding="utf-8") as f:
        f.write(text)


def boots(box):
    return int(re.search(r"boot epoch +(\d+)", box.run("weft", "status"))[1])


def test_the_examples_of_the_man_pages_are_all_it_takes(box):
    """The text of EXAMPLES, word for word: files, key, start, and the command without an address
    of the server."""
    for addr in ("192.0.2.1/32", "192.0.2.11/32", "198.51.100.11/32", "2001:db8::1/128"):
        done = subprocess.run(["ip", "addr", "add", addr, "dev", "lo",
                               *(["nodad"] if ":" in addr else [])], capture_output=True, text=True,
                              check=False)
        check((done.returncode, addr), (0, addr), done.stderr)
    shutil.rmtree(box.path("var/lib/weft/mds"))
    shutil.rmtree(box.path("var/lib/weft/ds"))
    os.unlink(box.path("usr/local/etc/weft/cluster.key"))
    put(box, "usr/local/etc/weft/weft.conf", example("weft-mds.8", "# /etc/weft/weft.conf")
        + example("weft-ds.8", "# /etc/weft/weft.conf"))
    put(box, "usr/local/etc/weft/exports", example("weft-exports.5", "# /etc/weft/exports"))
    box.run("sh", "-ec", example("weft-mds.8", "(umask"))
    check(box.run("stat", "-c", "%U %G %a", "/etc/weft/cluster.key"), "root weft 440")
    for section in ("mds", "ds"):
        box.run("systemctl", "reset-failed", f"weft-{section}.service", want=None)
        box.run("systemctl", "start", f"weft-{section}.service")
    eventually(lambda: re.search(r"data servers +1 known, 1 alive", box.run("weft", "status")), 20,
               "weft status")
    for section in ("mds", "ds"):
        check(box.run("stat", "-c", "%U %G %a", f"/run/weft-{section}/admin"), "weft weft 660")
    check("weft_ds_joined 1" in box.run("sh", "-c",
                                        example("weft-ds.8", "weft-ds").splitlines()[-1]), True,
          "the example of curl")


def said_by(box, section):
    with open(box.path("run", section + ".log"), encoding="utf-8") as f:
        return f.read()


def fails(box, section, want):
    """The start ends with status 2, and systemd does not try again. The log says this."""
    unit = f"weft-{section}.service"
    box.run("systemctl", "reset-failed", unit, want=None)
    box.run("systemctl", "stop", unit)
    before = len(said_by(box, section))
    box.run("systemctl", "start", unit, want=1)
    eventually(lambda: box.show(unit, "ActiveState") == "failed", 20, "it has failed")
    said = said_by(box, section)[before:]
    check((box.show(unit, "ExecMainStatus"), box.show(unit, "NRestarts")), ("2", "0"), said)
    check(want in said, True, said)


def test_a_bad_configuration_is_tried_once_and_counts_no_boot(box):
    first, conf = boots(box), box.path("usr/local/etc/weft/weft.conf")
    with open(conf, encoding="utf-8") as f:
        good = f.read()
    box.run("chmod", "0400", "/etc/weft/cluster.key")
    fails(box, "mds", "/etc/weft/cluster.key: Permission denied: user weft (User= of the unit) "
          "must be able to read it")
    fails(box, "ds", "/etc/weft/cluster.key: Permission denied: user weft (User= of the unit) must "
          "be able to read it")
    box.run("chmod", "0440", "/etc/weft/cluster.key")
    box.run("mv", "/etc/weft/exports", "/etc/weft/away")
    fails(box, "mds", "/etc/weft/exports: No such file")
    box.run("mv", "/etc/weft/away", "/etc/weft/exports")
    put(box, "usr/local/etc/weft/weft.conf", good.replace("/var/lib/weft/ds", "/srv/elsewhere"))
    box.run("mkdir", "-p", "/srv/elsewhere")
    fails(box, "ds", "[Service] ReadWritePaths=/srv/elsewhere")
    box.run("mkdir", "-m", "0700", "/var/lib/weft/roots")
    put(box, "usr/local/etc/weft/weft.conf",
        good.replace("/var/lib/weft/ds", "/var/lib/weft/roots"))
    fails(box, "ds", "Permission denied: user weft (User= of the unit) must own it: "
                     "chown -R weft: /var/lib/weft/roots")
    put(box, "usr/local/etc/weft/weft.conf", good)
    box.run("systemctl", "start", "weft-mds.service")
    check(boots(box), first + 1)
    box.run("systemctl", "stop", "weft-mds.service")


# ---- several data servers of a machine, the target, the journal

SEVERAL = """
ds {
	name = ds-%(name)s
	store = /srv/weft/%(name)s
	listen = "127.0.0.1:%(port)d"
	mds = "127.0.0.1:2049"
	admin = unix:/run/weft-ds-%(name)s/admin
	cluster_key = /etc/weft/cluster.key
}
"""
ALL = ["weft-mds.service", "weft-ds@a.service", "weft-ds@b.service"]


def states(box):
    return [box.run("systemctl", "is-active", u, want=None) for u in ALL]


def told(box, unit, pattern):
    eventually(lambda: re.fullmatch(pattern, box.show(unit, "StatusText")), 60,
               f"{unit}: {pattern}")


def test_the_target_starts_what_is_enabled_and_stops_it(box):
    box.run("systemctl", "start", "systemd-journald.socket", "systemd-journald.service")
    put(box, "usr/local/etc/weft/weft.conf", CONF)
    put(box, "usr/local/etc/weft/exports", EXPORTS % "rw")
    for n, port in (("a", 2051), ("b", 2052)):
        put(box, f"usr/local/etc/weft/ds-{n}.conf", SEVERAL % {"name": n, "port": port})
        box.run("install", "-d", "-o", "weft", "-g", "weft", "-m", "0700", f"/srv/weft/{n}")
    box.run("rm", "-rf", "/etc/systemd/system/weft-mds.service.d/log.conf", "/var/lib/weft/mds")
    box.run("systemctl", "reset-failed")
    box.run("systemctl", "enable", "weft-mds", "weft-ds@a", "weft-ds@b")
    box.run("systemctl", "start", "weft.target")
    eventually(lambda: states(box) == ["active"] * 3, 60, "all of them")
    check(box.run("systemctl", "is-active", "weft-ds", want=3), "inactive")  # not enabled
    eventually(lambda: re.search(r"data servers +2 known, 2 alive", box.run("weft", "status")), 60,
               "two data servers")
    for n in ("a", "b"):
        told(box, f"weft-ds@{n}", r"joined to the MDS at 127.0.0.1:2049 as data server \d")
        check(box.run("stat", "-c", "%U %G %a", f"/run/weft-ds-{n}/admin"), "weft weft 660")
    box.run("systemctl", "stop", "weft.target")
    check(states(box), ["inactive"] * 3)
    box.run("systemctl", "start", "weft-mds")
    check(states(box), ["active", "inactive", "inactive"])  # one is started alone
    box.run("systemctl", "stop", "weft.target")
    check(states(box), ["inactive"] * 3)


def test_the_group_may_ask_and_others_may_not(box):
    box.run("systemctl", "start", "weft-mds", "weft-ds@a")
    as_who = ["setpriv", "--reuid=nobody", "--clear-groups"]
    box.run(*as_who, "--regid=weft", "weft", "status")
    box.run(*as_who, "--regid=nogroup", "weft", "status", want=3)


def test_the_status_says_what_a_daemon_waits_for(box):
    boot = boots(box)
    told(box, "weft-mds", f"serving, boot {boot}")
    told(box, "weft-ds@a", r"joined to the MDS at 127.0.0.1:2049 as data server \d")
    c = Client(MDS)
    eventually(lambda: c.root(), 20, "a client")
    eventually(lambda: made(c, c.root()), 60, "a file")
    box.run("systemctl", "stop", "weft-mds")
    c.close()
    told(box, "weft-ds@a", r"not joined to the MDS at 127.0.0.1:2049: no connection: .+")
    box.run("systemctl", "stop", "weft-ds@a")
    # No data server is there that could say whether the store is up to date.
    box.run("systemctl", "start", "weft-mds")
    told(box, "weft-mds", f"boot {boot + 1}: waiting for a data server to confirm that the store "
         "is up to date")
    box.run("systemctl", "start", "weft-ds@a")
    told(box, "weft-mds", f"serving, boot {boot + 1}: grace, 1 recorded clients may reclaim")
    told(box, "weft-mds", f"serving, boot {boot + 1}")


def journal(box, *args):
    box.run("journalctl", "--sync")
    return box.run("journalctl", "-q", "-o", "cat", *args).splitlines()


def test_the_journal_knows_how_bad_a_line_is(box):
    whole = journal(box, "-u", "weft-mds", "-u", "weft-ds@a")
    bad = journal(box, "-u", "weft-mds", "-u", "weft-ds@a", "-p", "warning")
    # What systemd says of a unit has no such beginning.
    ours = [line for line in whole if re.match("[A-Z]+ weft-(mds|ds): ", line)]
    check(any(line.startswith("INFO weft-ds: joined") for line in ours), True, str(whole[-20:]))
    check(any("lost the connection to the MDS" in line for line in bad), True, str(bad))
    check([line for line in bad if re.match("(INFO|DEBUG) ", line)], [])
    check([line for line in ours if re.match("(FATAL|ERROR|WARN) ", line) and line not in bad], [])
    # A start that cannot be: the reason is an error.
    box.run("systemctl", "stop", "weft-mds")
    box.run("mv", "/etc/weft/exports", "/etc/weft/away")
    box.run("systemctl", "start", "weft-mds", want=1)
    eventually(lambda: any("ERROR weft-mds: " in line and "exports" in line for line in
                           journal(box, "-u", "weft-mds", "-p", "err")), 20, "the error")
    box.run("mv", "/etc/weft/away", "/etc/weft/exports")


def lines_of(text):
    text = "\n".join(line.partition("#")[0] for line in text.splitlines())
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_the_example_files_are_those_of_the_man_pages(box):
    del box
    for name, page, begins in (("mds.conf", "weft-mds.8", "# /etc/weft/weft.conf"),
                               ("ds.conf", "weft-ds.8", "# /etc/weft/weft.conf"),
                               ("exports", "weft-exports.5", "# /etc/weft/exports")):
        with open(os.path.join(SRC, "dist/examples", name), encoding="utf-8") as f:
            ours = lines_of(f.read())
        theirs = lines_of(example(page, begins))
        check([line for line in ours if line not in theirs], [], name)
        check(len(ours) >= 4, True, name)


def main():
    if os.geteuid() or not tap.built():
        tap.skip("wants root, and the daemons built")
        return
    if not os.path.exists(SYSTEMD) or not shutil.which("systemctl"):
        tap.skip("systemd is not here")
        return
    with open(os.path.join(BUILD, "weft-mds"), "rb") as program:
        if b"__asan_init" in program.read():
            tap.skip("a build with sanitizers is judged by its leaks at the end, and is not what "
                     "the units start")
            return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    box = Box()
    try:
        why = box.boot()
        if why:
            tap.skip(why)
        else:
            tap.run(tap.named(globals()), tap.giving(box))
    finally:
        box.end()


if __name__ == "__main__":
    main()
