#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a real cluster: each query of the dashboards (dist/grafana) returns
series, and the alert rules (dist/prometheus) are evaluated. Prints TAP."""
import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import one_server  # noqa: E402
from tap import SRC  # noqa: E402
from tool import weft  # noqa: E402

WEB = "127.0.0.1:9390"
SCRAPED = [*CALM, "mds.metrics=127.0.0.1:9300", "ds.metrics=127.0.0.1:9301"]
CONF = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: weft-mds
    static_configs: [{{targets: ['127.0.0.1:9300']}}]
  - job_name: weft-ds
    static_configs: [{{targets: ['127.0.0.1:9301', '127.0.0.1:9302']}}]
"""
# What Grafana fills in.
FILLED = {"$__rate_interval": "10s", "$ds": ".*", "$client": ".*"}


def ask(path, **args):
    url = f"http://{WEB}/api/v1/{path}?{urllib.parse.urlencode(args)}"
    with urllib.request.urlopen(url, timeout=60) as reply:
        got = json.load(reply)
    check(got["status"], "success", got)
    return got["data"]


def queries():
    """[(dashboard, panel, query)]"""
    found = []
    for path in sorted(glob.glob(os.path.join(SRC, "dist/grafana/*.json"))):
        with open(path, encoding="utf-8") as f:
            board = json.load(f)
        for panel in board["panels"]:
            for target in panel["targets"]:
                query = target["expr"]
                for name, what in FILLED.items():
                    query = query.replace(name, what)
                found.append((board["title"], panel["title"], query))
    return found


@contextlib.contextmanager
def prometheus(w):
    top = os.path.join(w.top, "prometheus")
    os.mkdir(top)
    with open(os.path.join(top, "conf.yml"), "w", encoding="utf-8") as f:
        f.write(CONF.format(rules=os.path.join(SRC, "dist/prometheus/alerts.yml")))
    with open(os.path.join(top, "log"), "w", encoding="utf-8") as log:
        child = subprocess.Popen(
            ["prometheus", f"--config.file={top}/conf.yml", f"--storage.tsdb.path={top}/data",
             f"--web.listen-address={WEB}", "--log.level=warn"], stdout=log, stderr=log)
    try:
        yield
    finally:
        child.terminate()
        child.wait(60)
        with open(os.path.join(top, "log"), encoding="utf-8") as f:
            for line in f.read().splitlines():
                print(f"# {line}", flush=True)


def all_up():
    with contextlib.suppress(OSError):
        return len(ask("query", query="up == 1")["result"]) == 3
    return False


def work(c, ds, s, f, fh):
    for _ in range(3):
        check(ds.write(fh, 0, bytes(1 << 18)).status, 0)
        check(ds.read(fh, 0, 4096).status, 0)
        c.ok(putfh(f), write(s, 0, b"w" * 4096, FILE_SYNC))
        c.ok(putfh(f), getattr_("size"))


def every_query_has_series(c, root):
    s, f, _, ds, fh = one_server(c, root, "drawn")
    left = list(queries())
    check(len(left) > 40, True, f"{len(left)} queries")

    def go_on():
        nonlocal left
        work(c, ds, s, f, fh)
        left = [q for q in left if not ask("query", query=q[2])["result"]]
        return not left
    try:
        eventually(go_on, 90, "series")
    except Failed as e:
        raise Failed(f"no series: {left}") from e
    finally:
        ds.close()


def alerts(state):
    return {a["labels"]["alertname"] for a in ask("alerts")["alerts"] if a["state"] == state}


def test_each_query_of_a_dashboard_returns_series_and_each_rule_is_evaluated(_):
    if not shutil.which("prometheus"):
        return "prometheus is missing"
    w = harness.THE = Cluster(ds=2, settings=SCRAPED)
    try:
        with prometheus(w), clients():
            eventually(all_up, 60, "Prometheus scrapes the three daemons")
            c = client()
            weft(w, "job", "tag", "drawn", "127.0.0.1")
            every_query_has_series(c, c.root())
            rules = [r for g in ask("rules")["groups"] for r in g["rules"]]
            check(len(rules) > 10 and {r["health"] for r in rules} == {"ok"}, True, rules)
            check("DsDead" in alerts("pending") | alerts("firing"), False)
            w.dev("kill", w.dir, "ds2", "-9")
            eventually(lambda: {"DsDead", "DsDown"} <= alerts("pending") | alerts("firing"), 60,
                       "the alert about a dead data server")
    finally:
        harness.down()
    return None


def test_a_dashboard_names_its_variables(_):
    for path in glob.glob(os.path.join(SRC, "dist/grafana/*.json")):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        board = json.loads(text)
        have = {v["name"] for v in board["templating"]["list"]} | {"__rate_interval", "__all"}
        used = set(re.findall(r"\$\{?(\w+)", text))
        check(used <= have, True, f"{path}: {used - have}")
        check(len({p["id"] for p in board["panels"]}), len(board["panels"]), path)


if __name__ == "__main__":
    tap.run(tap.named(globals()), lambda name: contextlib.nullcontext((None,)))
