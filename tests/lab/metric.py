#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""metric.py CLUSTER DAEMON[,DAEMON...] NAME [LABEL=VALUE]... - prints the sum of the daemons'
series that have these labels.

CLUSTER is weft-dev's folder. It fails when no series of a daemon matches: every series exists from
the start. It imports little, because tests call it often.
"""
import os
import re
import socket
import sys


def fetch(where):
    if where.startswith("unix:"):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(60)
        s.connect(where[len("unix:"):])
    else:
        host, port = where.split("/")[2].rsplit(":", 1)
        s = socket.create_connection((host.strip("[]"), int(port)), 60)
    with s:
        s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        data = b""
        while piece := s.recv(65536):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise SystemExit(f"metric.py: {where}/metrics answers {head[:80]!r}")
    return body.decode()


def place(cluster, daemon):
    usual = os.path.join(os.path.abspath(cluster), "run", daemon + ".sock")
    if os.path.exists(usual):
        return "unix:" + usual
    import json
    import subprocess
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/weft-dev")
    status = json.loads(subprocess.run([tool, "status", cluster, "--json"], capture_output=True,
                                       check=True).stdout)
    return next(d["metrics"] for d in status["daemons"] if d["name"] == daemon)


def main():
    cluster, daemons, name, *labels = sys.argv[1:]
    want = {tuple(label.split("=", 1)) for label in labels}
    total = 0.0
    for daemon in daemons.split(","):
        found = False
        for line in fetch(place(cluster, daemon)).splitlines():
            m = re.fullmatch(r"([A-Za-z_:][\w:]*)(?:\{(.*?)\})? (\S+)(?: .*)?", line)
            if m and m[1] == name and want <= set(re.findall(r'(\w+)="([^"]*)"', m[2] or "")):
                total += float(m[3])
                found = True
        if not found:
            raise SystemExit(f"metric.py: {daemon} has no series {name} with "
                             f"{' '.join(labels) or 'any labels'}")
    print(int(total) if total == int(total) else total)


if __name__ == "__main__":
    main()
