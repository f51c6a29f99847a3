#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The ports for monitoring (mds.metrics, ds.metrics): what they serve and refuse, that the programs
of Prometheus read it, and that docs/metrics.md has each series. Prints TAP."""
import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from harness import metric  # noqa: E402
from steps import one_server  # noqa: E402
from tap import SRC  # noqa: E402

OPEN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
PORT = {"mds": 9300, "ds1": 9301, "ds2": 9302}
MONITORED = [*CALM, "mds.metrics=0.0.0.0:9300,[::1]:9300", "ds.metrics=0.0.0.0:9301"]


def ask(path="/metrics", method="GET", port=9300, host="127.0.0.1", accept=None, body=None):
    conn = http.client.HTTPConnection(host, port, timeout=60)
    conn.request(method, path, body, {"Accept": accept} if accept else {})
    reply = conn.getresponse()
    text = reply.read().decode()
    conn.close()
    return reply.status, reply.headers, text


def texts(accept=None):
    return {name: ask(port=port, accept=accept)[2] for name, port in PORT.items()}


def value(text, series):
    m = re.search(rf"^{re.escape(series)} (\S+)$", text, re.M)
    if not m:
        raise Failed(f"no series {series}")
    return float(m[1])


def test_it_serves_two_paths_and_changes_nothing(_):
    for host in ("127.0.0.1", "::1"):
        check(ask(host=host)[0], 200, host)
    for port in PORT.values():
        status, headers, text = ask("/v1/health", port=port)
        check((status, headers["Content-Type"]), (200, "application/json"))
        json.loads(text)
        check(ask("/metrics", "HEAD", port)[0], 200)
        for path in ("/", "/v1/status", "/v1/ds", "/v1/trace", "/counts", "/metrics/", "/v1/find?"):
            check((path, ask(path, port=port)[0]), (path, 404))
        for method in ("PUT", "POST", "DELETE", "PATCH", "OPTIONS"):
            for path in ("/metrics", "/v1/policy?path=/", "/v1/health"):
                status, headers, text = ask(path, method, port, body="stripes=1")
                check((method, status, headers["Allow"]), (method, 405, "GET, HEAD"))
                check(list(json.loads(text)), ["error"])


def test_the_format_is_that_of_the_accept_header(_):
    for accept, kind in ((None, "text/plain; version=0.0.4; charset=utf-8"),
                         ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
                         (OPEN, "application/openmetrics-text; version=1.0.0; charset=utf-8")):
        _, headers, text = ask(accept=accept)
        check(headers["Content-Type"], kind)
        check(text.endswith("# EOF\n"), accept == OPEN)
        check(("# TYPE weft_mds_op_total counter" in text, "# TYPE weft_mds_op counter" in text),
              (accept != OPEN, accept == OPEN))


def test_promtool_has_no_complaint(_):
    if not shutil.which("promtool"):
        return "promtool is missing"
    for name, text in texts().items():
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                              text=True, check=False)
        check((name, done.returncode, done.stdout + done.stderr), (name, 0, ""))
    return None


def test_the_openmetrics_parser_reads_every_family(_):
    try:
        from prometheus_client.openmetrics import parser
    except ImportError:
        return "python3-prometheus-client is missing"
    for name, text in texts(OPEN).items():
        families = {f.name: f for f in parser.text_string_to_metric_families(text)}
        check({"weft_build_info", "process_cpu_seconds", "process_open_fds",
               "process_start_time_seconds"} <= set(families), True, name)
        check(all(f.documentation for f in families.values()), True, name)
        own = {n for n in families if n.startswith("weft_mds_" if name == "mds" else "weft_ds_")}
        check(len(own) > 20, True, f"{name}: {own}")
    return None


def test_the_process_shows_what_it_uses(w):
    for name in PORT:
        text = ask(port=PORT[name])[2]
        pid = next(d["pid"] for d in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
                   if d["name"] == name)
        resident = value(text, "process_resident_memory_bytes")
        check(1 << 20 < resident < 1 << 32, True, f"{name}: {resident}")
        fds = len(os.listdir(f"/proc/{pid}/fd"))
        check(abs(value(text, "process_open_fds") - fds) < 16, True, f"{name}: {fds}")
        check(0 <= time.time() - value(text, "process_start_time_seconds") < 600, True, name)
        check(value(text, "process_cpu_seconds_total") > 0, True, name)


def test_it_counts_what_clients_have(w):
    c = client()
    s, f = c.open(c.root(), "held", BOTH)
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 100, b"lo")).stateid
    eventually(lambda: value(ask()[2], "weft_mds_locks") == 1, 60, "the lock")
    text = ask()[2]
    for series in ("clients", "sessions", "inodes", "store_used_bytes", "store_free_bytes"):
        check(value(text, f"weft_mds_{series}") >= 1, True, series)
    check(value(text, "weft_mds_opens"), 1)
    check(value(text, "weft_mds_serving"), 1)
    check(value(text, 'weft_mds_events_total{kind="started"}'), 1)
    c.ok(putfh(f), locku(k, 0, 100))
    c.ok(putfh(f), close(s))
    eventually(lambda: value(ask()[2], "weft_mds_opens") == 0, 60, "no open is left")
    check(w.metric("weft_mds_locks"), 0, "the administration server has the same series")


def total(text, name, **labels):
    """The sum of the series that have these labels."""
    want = {f'{k}="{v}"' for k, v in labels.items()}
    return sum(float(v) for got, v in re.findall(rf"^{name}(?:{{(.*?)}})? (\S+)$", text, re.M)
               if want <= set(re.findall(r'\w+="[^"]*"', got)))


def fresh(w):
    """From the administration server: the port for monitoring may answer what it rendered up to
    250 ms ago."""
    return metric.fetch(w.where["mds"])


def test_latency_is_by_what_a_compound_is_for(w):
    def times(op):
        return total(fresh(w), "weft_mds_compound_seconds_count", op=op)
    c = client()
    root = c.root()
    s, f = c.open(root, "timed", BOTH)
    was = {op: times(op) for op in ("GETATTR", "RENAME", "CLOSE", "OTHER")}
    for _ in range(3):
        c.ok(putfh(f), getattr_("size"))
    c.ok(putfh(f), close(s))
    c.ok(putfh(root), savefh(), putfh(root), rename("timed", "late"))
    want = {"GETATTR": 3, "RENAME": 1, "CLOSE": 1, "OTHER": 0}
    eventually(lambda: {op: times(op) - was[op] for op in was} == want, 60, "the counts")


def test_bytes_and_operations_are_by_client_and_export(w):
    def sums():
        text = fresh(w)
        return [total(text, f"weft_mds_{of}_{what}_total", **labels) for of in ("client", "export")
                for what, labels in (("operations", {}), ("bytes", {"dir": "read"}),
                                     ("bytes", {"dir": "write"}))]
    c = client(owner=b"Linux NFSv4.2 counted")
    s, f = c.open(c.root(), "counted", BOTH)
    was = sums()
    for _ in range(4):
        c.ok(putfh(f), write(s, 0, b"w" * (1 << 20), FILE_SYNC))
        c.ok(putfh(f), read(s, 0, 65536))
    eventually(lambda: [n - m for n, m in zip(sums(), was)][1:3] == [4 * 65536, 4 << 20], 60,
               "the bytes by client")
    more = [n - m for n, m in zip(sums(), was)]
    check((more[4:6], more[0] >= 24, more[3] >= 24), ([4 * 65536, 4 << 20], True, True))
    text = fresh(w)
    check(total(text, "weft_mds_client_bytes_total", client="counted", dir="write"), 4 << 20)
    check(total(text, "weft_mds_export_bytes_total", export="/", dir="write") >= 4 << 20, True)


def test_at_most_64_clients_have_series_and_none_is_counted_twice(w):
    def series():
        return re.findall(r'^weft_mds_client_operations_total{(.*)} (\S+)$', fresh(w), re.M)

    def others():
        return next(float(v) for k, v in series() if 'client="other"' in k)
    was, before = sum(float(v) for _, v in series()), others()
    for i in range(72):
        c = client(owner=b"Linux NFSv4.2 many%d" % i)
        c.ok(putfh(c.root()), getattr_("size"))
    eventually(lambda: others() > before, 60, "some are among the others")
    got = series()
    check((len(got) <= 65, len(got) == len({k for k, _ in got})), (True, True), f"{len(got)}")
    # A client does a handful of operations here, and so do the sessions that it makes.
    check(72 * 3 <= sum(float(v) for _, v in got) - was <= 72 * 12, True)


def test_top_and_metrics_show_what_data_servers_do_now(w):
    """The MDS knows it from their heartbeats, before any client reports."""
    def top():
        admin = w.where["mds"].removeprefix("unix:")
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(admin)
            s.sendall(b"GET /v1/top HTTP/1.0\r\n\r\n")
            data = b""
            while piece := s.recv(65536):
                data += piece
        return json.loads(data.partition(b"\r\n\r\n")[2])["servers"]
    eventually(lambda: not [r for r in top() if r["written"] > 1 << 20], 60, "nothing is written")
    c = client()
    s, f, _, ds, fh = one_server(c, c.root(), "live")
    before = total(ask()[2], "weft_mds_ds_written_bytes_total")
    began, seen = time.monotonic(), None
    while time.monotonic() < began + 60 and not seen:
        check(ds.write(fh, 0, bytes(1 << 20)).status, 0)
        rows = [r for r in top() if r["written"] > 1 << 20]
        seen = time.monotonic() - began if rows else None
    check(seen is not None, True, "top never showed the writes")
    print(f"# top shows writes after {seen:.1f} s", flush=True)
    eventually(lambda: total(ask()[2], "weft_mds_ds_written_bytes_total") > before, 60, "bytes")
    check(total(ask()[2], "weft_mds_ds_operations_total") > 0, True)
    ds.close()
    eventually(lambda: not [r for r in top() if r["written"] > 1 << 20], 60, "it is over")


def test_a_data_server_that_stops_is_down(w):
    ds2 = re.search(r'ds="ds2",id="\d+"', ask()[2])[0]  # it may have joined first
    eventually(lambda: value(ask()[2], f"weft_mds_ds_up{{{ds2}}}") == 1, 60, "ds2 is up")
    text = ask()[2]
    check(value(text, f'weft_mds_ds_state{{{ds2},state="alive"}}'), 1)
    check(value(text, f"weft_mds_ds_capacity_bytes{{{ds2}}}")
          >= value(text, f"weft_mds_ds_free_bytes{{{ds2}}}") > 0, True)
    check(value(text, f"weft_mds_ds_weight{{{ds2}}}"), 1)
    w.dev("kill", w.dir, "ds2", "-9")
    eventually(lambda: value(ask()[2], f'weft_mds_ds_state{{{ds2},state="dead"}}') == 1, 60,
               "ds2 is dead")
    check(value(ask()[2], f"weft_mds_ds_up{{{ds2}}}"), 0)
    w.dev("start", w.dir, "ds2")
    eventually(lambda: value(ask()[2], f"weft_mds_ds_up{{{ds2}}}") == 1, 60, "ds2 is back")


def serves():
    with contextlib.suppress(OSError, http.client.HTTPException):
        return ask()[0] == 200
    return False


def test_dead_scrapers_delay_nobody(w):
    """Connections that send nothing, half a request, or never read."""
    stuck = []
    for i in range(64):
        s = socket.create_connection(("127.0.0.1", PORT["mds"]), 60)
        stuck.append(s)
        if i % 2:
            with contextlib.suppress(ConnectionError):  # one too many
                s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
                          + (b"\r\n" if i % 4 == 1 else b""))
    c = client()
    c.ok(putfh(c.root()), getattr_("size"))
    check(w.metric("weft_mds_clients") >= 1, True, "the administration server answers")
    for s in stuck:
        s.close()
    eventually(serves, 60, "the port serves again")


def test_no_address_is_refused_but_one_without_a_port(w):
    conf = os.path.join(w.dir, "weft.conf")
    for key, program in (("mds.metrics", "weft-mds"), ("ds.metrics", "weft-ds")):
        for addr, rc in (("192.0.2.1:9300", 0), ("[2001:db8::1]:9300", 0), ("0.0.0.0", 2),
                         ("2001:db8::1:9300", 2), ("unix:/tmp/x", 2), ("127.0.0.1:", 2),
                         ("127.0.0.1:99999", 2), ("", 0)):
            done = subprocess.run(
                [os.path.join(tap.BUILD, program), "-c", conf, "-o", f"{key}={addr}", "-o",
                 f"ds.store={w.dir}/ds1", "-o", "ds.listen=127.0.0.1:20490", "--check"],
                capture_output=True, text=True, check=False)
            check((addr, done.returncode), (addr, rc), done.stderr)
            check(key in done.stderr, rc == 2, done.stderr)


# ---- documentation


def documented():
    """{name: unit} of docs/metrics.md"""
    with open(os.path.join(SRC, "docs/metrics.md"), encoding="utf-8") as f:
        rows = re.findall(r"^- `([a-z_]+)` \((\w[\w ]*),", f.read(), re.M)
    check(len(rows), len({name for name, _ in rows}), "no series is there twice")
    return dict(rows)


def served():
    return {m for text in texts().values() for m in re.findall(r"^# TYPE (\S+)", text, re.M)}


def unit_of(name):
    stem = name.removesuffix("_total")
    for unit in ("seconds", "bytes"):
        if stem.endswith("_" + unit):
            return unit
    return None


def test_the_page_has_every_series_and_no_other(_):
    told = documented()
    # RDMA, Kerberos and a log in PostgreSQL are off here.
    quiet = {n for n in told if n.startswith(("weft_rdma_", "weft_rpc_gss_", "weft_mds_standby",
                                              "weft_mds_takeover_", "weft_mds_lease_age_"))}
    check(sorted(served() - set(told)), [], "the page lacks")
    check(sorted(set(told) - quiet - served()), [], "only on the page")
    wrong = {n: u for n, u in told.items() if (unit_of(n) or u) != u}
    check(wrong, {}, "units")


if __name__ == "__main__":
    run_shared(globals(), ds=2, settings=MONITORED)
