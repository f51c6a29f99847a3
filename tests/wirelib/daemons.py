# SPDX-License-Identifier: Apache-2.0
"""Daemons as an administrator sees them: the programs and their environment, the admin API, the
metrics, and a cluster with all of it."""
import http.client
import json
import math
import os
import re
import shutil
import socket
import subprocess
import tempfile

import nfs41 as nfs
import tap
from tap import BUILD, SRC

PROCS = """NULL GETATTR SETATTR LOOKUP ACCESS READLINK READ WRITE CREATE MKDIR SYMLINK MKNOD \
REMOVE RMDIR RENAME LINK READDIR
    READDIRPLUS FSSTAT FSINFO PATHCONF COMMIT""".split()
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
PORT = 12049


def version_of_configure():
    """The version, from configure.ac, the one place that has it."""
    with open(os.path.join(SRC, "configure.ac"), encoding="utf-8") as f:
        return re.search(r"^AC_INIT\(\[weft\], \[([^]]+)\]\)$", f.read(), re.M)[1]


VERSION = version_of_configure()


# ---- running things


def program(name):
    return os.path.join(BUILD, name)


def environment(name, change=None):
    """The environment of a program. Daemons free no memory when they end, so AddressSanitizer must
    not look for leaks in them."""
    env = {**os.environ, **(change or {})}
    if os.path.basename(name) in ("weft-mds", "weft-ds"):
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    return {k: v for k, v in env.items() if v is not None}


def run(*args, rc=0, env=None):
    """stdout of a program, or stderr where it should fail."""
    done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False,
                          env=environment(args[0], env))
    assert done.returncode == rc, (f"{' '.join(args[1:])[:200]}: status {done.returncode}, want "
                                   f"{rc}: {done.stdout[-500:]} {done.stderr[-500:]}")
    assert rc or not done.stderr, f"{' '.join(args[1:])[:200]}: {done.stderr[-500:]}"
    return done.stdout if rc == 0 else done.stderr


class Cluster:
    """One cluster for all tests: it takes a second to start."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="weft-admin-test.")
        self.dir = os.path.join(self.top, "c")
        self.dev("up", self.dir, "--ds", "4", "--set", "mds.lease=60s")
        rows = json.loads(self.dev("status", self.dir, "--json"))["daemons"]
        self.admin = {r["name"]: r["admin"] for r in rows}
        self.pid = {r["name"]: r["pid"] for r in rows}
        # Before any request to the daemons.
        self.first = {name: get_metrics(where) for name, where in self.admin.items()}
        self._nfs = None

    @staticmethod
    def dev(*args):
        return run(program("tools/weft-dev"), *args)

    def weft(self, *args, **how):
        return run(program("weft"), "--admin", self.admin["mds"], *args, **{"rc": 0, **how})

    def json(self, *args):
        return json.loads(self.weft("--json", *args))

    def nfs(self):
        if not self._nfs:
            self._nfs = nfs.Client(("127.0.0.1", PORT))
        return self._nfs

    def mkdir(self, path):
        c, fh = self.nfs(), self.nfs().root()
        for name in path.strip("/").split("/"):
            got = c.call(nfs.putfh(fh), nfs.lookup(name), nfs.getfh())
            fh = got.results[-1].fh if not got.status else c.mkdir(fh, name)
        return fh

    def down(self):
        if self._nfs:
            self._nfs.drop()
        if os.path.exists(os.path.join(self.dir, "cluster.json")):
            self.dev("down", self.dir)
        shutil.rmtree(self.top)


class Http(http.client.HTTPConnection):
    """To "unix:PATH" or "127.0.0.1:PORT"."""

    def __init__(self, admin):
        super().__init__("localhost", timeout=60)
        self.admin = admin

    def connect(self):
        self.sock = connect(self.admin)

    def request(self, method, url, body=None, headers=None, **how):
        """Over TCP it sends the token, where there is one."""
        headers = dict(headers or {})
        if not self.admin.startswith("unix:") and os.environ.get("WEFT_ADMIN_TOKEN"):
            with open(os.environ["WEFT_ADMIN_TOKEN"], encoding="ascii") as f:
                headers.setdefault("Authorization", "Bearer " + f.read().strip())
        super().request(method, url, body, headers, **how)


def connect(admin):
    if admin.startswith("unix:"):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(60)
        s.connect(admin[5:])
        return s
    host, port = admin.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 60)


def ask(admin, method, target, body=None, status=200):
    """The JSON of an answer with this status."""
    conn = Http(admin)
    conn.request(method, target, body)
    reply = conn.getresponse()
    text = reply.read()
    conn.close()
    assert reply.status == status, f"{method} {target}: {reply.status}, want {status}: {text[:200]}"
    assert reply.headers["Content-Type"] == "application/json", reply.headers
    got = json.loads(text)
    if status != 200:
        assert set(got) == {"error"} and got["error"], got
    return got


def get_metrics(admin):
    conn = Http(admin)
    conn.request("GET", "/metrics")
    reply = conn.getresponse()
    assert reply.status == 200, reply.status
    assert (reply.headers["Content-Type"]
            == "application/openmetrics-text; version=1.0.0; charset=utf-8"), reply.headers
    return open_metrics(reply.read().decode())


# ---- OpenMetrics 1.0, read strictly

# Families that may have no series: of data servers, clients, or what was not done yet.
SPARSE = {f"weft_mds_ds_{n}" for n in (
    "up", "state", "capacity_bytes", "free_bytes", "load", "latency_seconds", "weight", "draining",
    "oldest_order_seconds", "read_bytes_total", "written_bytes_total", "operations_total")} | {
    "weft_mds_client_operations_total", "weft_mds_client_bytes_total",
    "weft_mds_export_operations_total", "weft_mds_export_bytes_total",
    "weft_mds_tag_operations_total", "weft_mds_tag_bytes_total",
    "weft_mds_scrub_end_timestamp_seconds", "weft_mds_scrub_findings", "weft_mds_scrub_stopped",
    "weft_mds_certificate_end_timestamp_seconds", "weft_ds_certificate_end_timestamp_seconds"} | {
    f"weft_mds_{n}" for n in (  # of a log in PostgreSQL
        "standbys", "standby_lag_seconds", "standby_lag_batches", "standby_lag_bytes",
        "lease_age_seconds", "takeover_seconds")}
SUFFIXES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}


def open_metrics(text):
    """{(series, ((label, value), ...)): number}"""
    assert text.endswith("\n# EOF\n"), text[-80:]
    lines = text[:-len("# EOF\n")].splitlines()
    series, families, name, kind = {}, {}, None, None
    for line in lines:
        assert line and line == line.strip(), repr(line)
        if line.startswith("# TYPE "):
            name, kind = re.fullmatch(r"# TYPE ([a-z_]+) (counter|gauge|histogram)", line).groups()
            assert name not in families, f"{name} comes twice"
            families[name] = {"help": 0, "samples": 0}
            continue
        if line.startswith("#"):
            told = re.fullmatch(r"# HELP ([a-z_]+) (\S.*)", line)
            assert told and told[1] == name and not families[name]["samples"], line
            families[name]["help"] += 1
            continue
        sample = re.fullmatch(r'([a-z_]+)(?:\{((?:[a-z_]+="[^"\\]*",?)+)\})? (\S+)', line)
        assert sample, f"not a sample: {line}"
        assert sample[1] in [name + s for s in SUFFIXES[kind]], (
            f"{sample[1]} among the samples of {name}, a {kind}")
        labels = tuple(re.findall(r'([a-z_]+)="([^"]*)"', sample[2] or ""))
        assert (sample[1], labels) not in series, f"twice: {line}"
        value = float(sample[3])
        assert math.isfinite(value) and (kind == "gauge" or value >= 0), line
        assert kind != "counter" or re.fullmatch(r"\d+", sample[3]) or "_seconds" in name, line
        series[sample[1], labels] = value
        families[name]["samples"] += 1
    for name, f in families.items():
        assert f["help"] == 1 and (f["samples"] or {name, name + "_total"} & SPARSE), f"{name}: {f}"
        assert name.startswith(("weft_", "process_")), name
    histograms(series)
    return series


def histograms(series):
    buckets = {}
    for (name, labels), value in series.items():
        if name.endswith("_bucket"):
            rest = tuple(x for x in labels if x[0] != "le")
            buckets.setdefault((name[:-len("_bucket")], rest), []).append(
                (dict(labels)["le"], value))
    assert buckets
    for (name, labels), got in buckets.items():
        edges = [float(le) for le, _ in got]
        assert edges == sorted(set(edges)) and got[-1][0] == "+Inf", f"{name}: {edges}"
        counts = [n for _, n in got]
        assert counts == sorted(counts), f"{name}{labels} is not cumulative: {counts}"
        assert counts[-1] == series[name + "_count", labels], name
        assert (name + "_sum", labels) in series, name


def labelled(series, name):
    return {labels[0][1]: value for (n, labels), value in series.items() if n == name}


# ---- running tests


def main(module):
    """Runs the tests of a file on one cluster."""
    if not tap.built("weft", "weft-mds", "weft-ds", "weft-fsck"):
        tap.skip("the programs are not built")
        return
    os.environ.pop("WEFT_ADMIN", None)
    cluster = Cluster()
    try:
        tap.run(tap.named(module), tap.giving(cluster))
    finally:
        cluster.down()
