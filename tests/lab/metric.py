#!/usr/bin/python3
"""metric.py CLUSTER DAEMON NAME [LABEL=VALUE]... - prints the sum of a daemon's series that have these labels.

CLUSTER is weft-dev's folder. Fails when no series matches: every series exists from the start.
"""
import http.client
import json
import os
import re
import socket
import subprocess
import sys


def fetch(where):
    if where.startswith("unix:"):
        conn = http.client.HTTPConnection("localhost", timeout=10)
        conn.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        conn.sock.connect(where[len("unix:"):])
    else:
        conn = http.client.HTTPConnection(where.split("/")[2], timeout=10)
    conn.request("GET", "/metrics")
    reply = conn.getresponse()
    if reply.status != 200:
        raise SystemExit(f"metric.py: {where}/metrics answers {reply.status}")
    return reply.read().decode()


def main():
    cluster, daemon, name, *labels = sys.argv[1:]
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/weft-dev")
    status = json.loads(subprocess.run([tool, "status", cluster, "--json"], capture_output=True, check=True).stdout)
    where = next(d["metrics"] for d in status["daemons"] if d["name"] == daemon)
    want = {tuple(label.split("=", 1)) for label in labels}
    total, found = 0.0, False
    for line in fetch(where).splitlines():
        m = re.fullmatch(r"([A-Za-z_:][\w:]*)(?:\{(.*?)\})? (\S+)(?: .*)?", line)
        if m and m[1] == name and want <= set(re.findall(r'(\w+)="([^"]*)"', m[2] or "")):
            total += float(m[3])
            found = True
    if not found:
        raise SystemExit(f"metric.py: {daemon} has no series {name} with {' '.join(labels) or 'any labels'}")
    print(int(total) if total == int(total) else total)


if __name__ == "__main__":
    main()
