#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft support: what is in its file, and what is not. Prints TAP."""
import json
import os
import sys
import tarfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from daemons import *  # noqa: E402,F403


def test_the_file_holds_what_the_daemons_say(c):
    out = f"{c.top}/bundle.tar.gz"
    told = c.weft("support", out)
    assert told.startswith(out + "\n") and "no key, token or data" in told, told
    assert os.stat(out).st_mode & 0o777 == 0o600, oct(os.stat(out).st_mode)
    with tarfile.open(out) as tar:
        names = {n.split("/", 1)[1] for n in tar.getnames() if "/" in n}
        top = tar.getnames()[0].split("/")[0]
        health = json.load(tar.extractfile(f"{top}/weft-mds/health.json"))
        events = json.load(tar.extractfile(f"{top}/weft-mds/events.json"))
        metrics = tar.extractfile(f"{top}/weft-mds/metrics.txt").read().decode()
        uname = tar.extractfile(f"{top}/uname.txt").read().decode()
    assert health["status"] == "ok", health
    assert "started" in {e["kind"] for e in events["events"]}, events
    assert "# EOF" in metrics and os.uname().release in uname, uname
    assert {"units.txt", "journal.txt", "weft-mds/config.json", "weft-mds/ds.json"} <= names, names
    left = [n for n in os.listdir("/var/tmp") if n.startswith("weft-support.")]
    assert not left, left


def test_no_secret_is_in_it(c):
    with open(f"{c.dir}/cluster.key", encoding="ascii") as f:
        secrets = [f.read().strip()]
    for name in ("admin.token",):
        if os.path.exists(f"{c.dir}/{name}"):
            with open(f"{c.dir}/{name}", encoding="ascii") as f:
                secrets.append(f.read().strip())
    assert all(len(s) >= 32 for s in secrets), "no secrets to look for"
    out = f"{c.top}/secrets.tar.gz"
    c.weft("support", out)
    with tarfile.open(out) as tar:
        for member in tar.getmembers():
            if not member.isfile():
                continue
            text = tar.extractfile(member).read().decode(errors="replace")
            for s in secrets:
                assert s not in text and s[:32] not in text, member.name


def test_a_file_that_is_there_is_kept_and_a_silent_server_is_no_end(c):
    out = f"{c.top}/kept"
    with open(out, "w", encoding="ascii") as f:
        f.write("mine")
    assert "is there already" in c.weft("support", out, rc=1)
    with open(out, encoding="ascii") as f:
        assert f.read() == "mine"
    silent = run(program("weft"), "--admin", f"unix:{c.top}/nobody", "support", f"{c.top}/s.tar.gz")
    assert silent.startswith(f"{c.top}/s.tar.gz"), silent
    with tarfile.open(f"{c.top}/s.tar.gz") as tar:
        top = tar.getnames()[0].split("/")[0]
        got = tar.extractfile(f"{top}/weft-mds/status.json").read()
    assert got == b"no answer, status 0\n", got


main(globals())
