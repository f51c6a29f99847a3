#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons that root starts become a user for good and still work. Also what they report to systemd.
Prints TAP. As root."""
import contextlib
import glob
import http.client
import os
import pwd
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from nfs41 import FILE_SYNC, Client, Conn, err, putfh, read, setxattr, write  # noqa: E402
from harness import check, eventually  # noqa: E402
import tap  # noqa: E402
import tls_wire  # noqa: E402
from tap import BUILD  # noqa: E402

USER = pwd.getpwnam("nobody")
MDS_PORT, DS_PORT, HTTPS_PORT, HTTP_PORTS = 900, 901, 902, (903, 904)  # root's
EXPOSURE = 15  # tenths, of systemd-analyze security


class Daemon:
    """One daemon with a folder of its own that only root can write."""

    def __init__(self, top, section, settings, run_as=None, env=None):
        self.log = os.path.join(top, section + ".log")
        args = [os.path.join(BUILD, "weft-" + section)]
        for key, value in settings.items():
            args += ["-o", f"{key}={value}"]
        with open(self.log, "w", encoding="utf-8") as f:
            self.child = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                                          user=run_as,
                                          env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0",
                                               **(env or {})})

    def text(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def wait(self, want, seconds=10):
        eventually(lambda: want in self.text() or self.child.poll() is not None, seconds,
                   f"a line with {want!r}")
        check(want in self.text(), True, f"{want!r} in {self.text()}")

    def ended(self):
        """Its status and last words."""
        return self.child.wait(20), self.text()

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


@contextlib.contextmanager
def folder():
    top = tempfile.mkdtemp(prefix="weft-priv-test.")
    os.chmod(top, 0o755)
    with open(os.path.join(top, "key"), "w", encoding="ascii") as f:
        f.write("5a" * 32 + "\n")
    os.chmod(os.path.join(top, "key"), 0o400)
    with open(os.path.join(top, "exports"), "w", encoding="ascii") as f:
        f.write('export "/" { client "*" { access = rw squash = none privileged_port = no } }\n')
    daemons = []

    def start(section, run_as=None, env=None, **keys):
        """keys: configuration keys of its section."""
        other = {"ds": {"ds.mds": f"127.0.0.1:{MDS_PORT}", "ds.name": "one"},
                 "mds": {"mds.grace": "0s", "mds.exports": os.path.join(top, "exports")}}[section]
        port = MDS_PORT if section == "mds" else DS_PORT
        settings = {f"{section}.store": os.path.join(top, section),
                    f"{section}.cluster_key": os.path.join(top, "key"),
                    f"{section}.listen": f"127.0.0.1:{port}", **other,
                    **{f"{section}.{k}": v for k, v in keys.items()}}
        daemons.append(Daemon(top, section, settings, run_as, env))
        return daemons[-1]
    try:
        yield top, start
    finally:
        for d in daemons:
            d.stop()
        shutil.rmtree(top)


def by_https(port):
    context = ssl.create_default_context(cafile=tls_wire.CERTS["ca"])
    conn = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
    conn.request("GET", "/v1/health")
    with conn.getresponse() as reply:
        return reply.status


def by_http(port):
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    conn.request("GET", "/v1/health")
    with conn.getresponse() as reply:
        return reply.status


def status(pid):
    """Of every thread: what /proc says."""
    out = []
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as f:
            out.append(dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line))
    return out


def powerless(daemon):
    threads = status(daemon.child.pid)
    check(len(threads) > 1, True, "threads")
    for t in threads:
        for field in ("Uid", "Gid"):
            check(set(t[field].split()), {str(USER.pw_uid if field == "Uid" else USER.pw_gid)},
                  f"{t['Name']} {field}")
        for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            check(int(t[field], 16), 0, f"{t['Name']} {field}")
        check(t["NoNewPrivs"], "1", t["Name"])
        check(set(t["Groups"].split())
              <= {str(g) for g in os.getgrouplist(USER.pw_name, USER.pw_gid)}, True,
              "groups of root's are left")


def test_daemons_of_root_become_the_user_and_serve():
    with folder() as (top, start):
        certs = tls_wire.CERTS = tls_wire.Certs()
        for name in ("server", "server.key"):
            os.chmod(certs[name], 0o400)
        os.chmod(certs.dir, 0o755)
        tls = dict(tls="optional", tls_cert=certs["server"], tls_key=certs["server.key"])
        stores = {"mds": top + "/mds", "ds": top + "/ds," + top + "/ds.v2"}
        admin = {"mds": f"https://127.0.0.1:{HTTPS_PORT},127.0.0.1:{HTTP_PORTS[0]}",
                 "ds": f"127.0.0.1:{HTTP_PORTS[1]}"}
        mds, ds = (start(section, user=USER.pw_name, store=store, admin=admin[section], **tls)
                   for section, store in stores.items())
        mds.wait("joined for the first time")
        for d in (mds, ds):
            d.wait(f"running as {USER.pw_name}")
            powerless(d)
        c = Client(("127.0.0.1", MDS_PORT))
        d = c.mkdir(c.root(), "d")
        s, f = c.open(d, "f")
        # The data server has just joined.
        done = c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                       write(s, 0, b"by nobody", FILE_SYNC), tries=50)
        check(err(done.status), "OK")
        check(c.ok(putfh(f), read(s, 0, 100)).data, b"by nobody")
        c.ok(putfh(d), setxattr("user.a", b"b"))
        check(tls_wire.TlsConn(("127.0.0.1", MDS_PORT)).rpc(0), b"")
        # Root's ports, and a key that only root may read.
        check((by_https(HTTPS_PORT), [by_http(port) for port in HTTP_PORTS]), (200, [200, 200]))
        c.close()
        for store in ",".join(stores.values()).split(","):
            check(len(os.listdir(store)) > 1, True, store)
            for path, folders, files in os.walk(store):
                for name in [".", *folders, *files]:
                    st = os.lstat(os.path.join(path, name))
                    check((st.st_uid, st.st_gid), (USER.pw_uid, USER.pw_gid),
                          os.path.join(path, name))
                    check(stat.S_IMODE(st.st_mode) & 0o077, 0, os.path.join(path, name))
        for d in (mds, ds):
            powerless(d)
            os.kill(d.child.pid, signal.SIGHUP)
            d.wait(f"server.pem: Permission denied, as user {USER.pw_name}; the certificates "
                   "loaded before stay in use")
        check(tls_wire.TlsConn(("127.0.0.1", MDS_PORT)).rpc(0), b"")
        mds.wait("https: the old certificate stays")
        check(by_https(HTTPS_PORT), 200)
        for name in ("server", "server.key"):
            os.chown(certs[name], USER.pw_uid, -1)
        for d in (mds, ds):
            before = d.text().count("TLS 1.3 is optional")
            os.kill(d.child.pid, signal.SIGHUP)
            eventually(lambda: d.text().count("TLS 1.3 is optional") > before,  # noqa: B023
                       5, "certificates loaded anew")
        shutil.rmtree(certs.dir)


def test_without_a_user_the_daemon_stays_and_gains_nothing():
    with folder() as (_, start):
        mds = start("mds")
        mds.wait("serving")
        check({(t["Uid"].split()[0], t["NoNewPrivs"]) for t in status(mds.child.pid)}, {("0", "1")})


def test_a_daemon_that_is_the_user_already_serves():
    with folder() as (top, start):
        for name in ("mds", "key"):
            if name == "mds":
                os.mkdir(os.path.join(top, name), 0o700)
            os.chown(os.path.join(top, name), USER.pw_uid, USER.pw_gid)
        for keys in ({"user": USER.pw_name}, {}):
            mds = start("mds", run_as=USER.pw_uid, listen="127.0.0.1:12049", **keys)
            mds.wait("serving")
            check({(t["Uid"].split()[0], t["NoNewPrivs"], int(t["CapEff"], 16))
                   for t in status(mds.child.pid)}, {(str(USER.pw_uid), "1", 0)})
            mds.stop()


def test_errors_say_what_is_wrong():
    with folder() as (top, start):
        for section in ("mds", "ds"):
            for user, want in (("no-such-user", f"{section}.user: no-such-user: no such user"),
                               ("root", f"{section}.user: user root has the privileges of root")):
                rc, text = start(section, user=user).ended()
                check(rc != 0 and want in text, True, text)
        os.chown(os.path.join(top, "key"), USER.pw_uid, -1)
        for section in ("mds", "ds"):
            rc, text = start(section, run_as=USER.pw_uid, user="daemon",
                             listen="127.0.0.1:12049").ended()
            check(rc != 0 and f"{section}.user: daemon: only root can become another user" in text,
                  True, text)


def test_a_store_of_somebody_else_is_left_alone():
    with folder() as (top, start):
        for section in ("mds", "ds"):
            store = os.path.join(top, section)
            os.mkdir(store, 0o700)
            open(os.path.join(store, "something"), "w", encoding="ascii").close()
            rc, text = start(section, user=USER.pw_name).ended()
            check(rc != 0 and f"{store}" in text and "Permission denied" in text, True, text)
            check(os.stat(store).st_uid, 0)
            os.unlink(os.path.join(store, "something"))
            d = start(section, user=USER.pw_name)
            d.wait("serving" if section == "mds" else "NFSv3 over")
            check(os.stat(store).st_uid, USER.pw_uid, "an empty folder becomes the user's")


def test_systemd_is_told_when_the_daemon_serves_and_when_it_stops():
    with folder() as (top, start):
        path = os.path.join(top, "notify")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(path)
        os.chmod(path, 0o777)
        sock.settimeout(60)
        for section, port in (("mds", MDS_PORT), ("ds", DS_PORT)):
            d = start(section, user=USER.pw_name, env={"NOTIFY_SOCKET": path})
            # A STATUS of the daemon before may come first.
            while b"READY=1" not in sock.recv(1000).splitlines():
                pass
            check(Conn(("127.0.0.1", port)).rpc(0, vers=4 if section == "mds" else 3), b"")
            if section == "ds":
                d.child.terminate()
                while b"STOPPING=1" not in sock.recv(1000).splitlines():
                    pass
                check(d.ended()[0], 0)


def units(top):
    """The units as they are installed, with programs and users that are here."""
    out = []
    for section in ("mds", "ds"):
        with open(os.path.join(BUILD, f"dist/systemd/weft-{section}.service"),
                  encoding="utf-8") as f:
            text = f.read()
        text, n = re.subn(r"^ExecStart=\S+", f"ExecStart={os.path.join(BUILD, 'weft-' + section)}",
                          text, flags=re.M)
        check(n, 1)
        out.append(os.path.join(top, f"weft-{section}.service"))
        with open(out[-1], "w", encoding="utf-8") as f:
            f.write(text)
    return out


def analyze(*args):
    done = subprocess.run(["systemd-analyze", *args], capture_output=True, text=True, timeout=60,
                          check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_units_are_sound_and_confined():
    if not shutil.which("systemd-analyze"):
        return "systemd-analyze is not here"
    with tempfile.TemporaryDirectory() as top:
        for unit in units(top):
            rc, text = analyze("verify", "--man=no", unit)
            check((rc, text.strip()), (0, ""), os.path.basename(unit))
            rc, text = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", unit)
            check(rc, 0, text[-400:])
        with open(unit, "a", encoding="utf-8") as f:
            f.write("[Service]\nNoSuchKey=perhaps\n")
        check("NoSuchKey" in analyze("verify", "--man=no", unit)[1], True,
              "a wrong unit is not found")
    return None


def main():
    if os.geteuid() or not tap.built():
        tap.skip("wants root, and the daemons built")
    else:
        tap.run(tap.named(globals()))


if __name__ == "__main__":
    main()
