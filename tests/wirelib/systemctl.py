#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the handbook's blocks call systemctl and journalctl where no systemd runs (book_test.py).

It reads the unit that the build made. It makes the unit's folders, starts its ExecStart as its
user, and waits until the daemon says READY=1. Leases are shorter and pools smaller than usual, so
that the test is quick (SHORT). Of the units that the handbook writes it runs the command of a
oneshot service; of a timer it only sees that its service and its time are good. It knows nothing of
the sandbox, of Restart=, of limits and of sockets: units_test.py has the same units under a real
systemd. WEFT_BUILD and WEFT_SOURCE name the trees.
"""
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import time

BUILD, SRC = os.environ["WEFT_BUILD"], os.environ["WEFT_SOURCE"]
SHORT = {"weft-mds": ["ds.lease=4s", "mds.grace=3s", "mds.repair_wait=1s"],
         "weft-ds": ["ds.lease=4s", "ds.heartbeat=500ms", "ds.pool=32M"]}
LEVELS = {"err": "FATAL|ERROR", "warning": "FATAL|ERROR|WARN", "info": "FATAL|ERROR|WARN|INFO"}


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def base(unit):
    return unit.removesuffix(".service")


def settings(unit):
    """The unit's keys and values; of a key that is there twice the last one."""
    name, at, instance = base(unit).partition("@")
    for path in (f"/etc/systemd/system/{name if name.endswith('.timer') else name + '.service'}",
                 f"{BUILD}/dist/systemd/{name}{at}.service",
                 f"{SRC}/dist/systemd/{name}{at}.service"):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                text = f.read().replace("%i", instance)
            return dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
    return fail(f"Unit {unit} could not be found.")


def pid_of(unit):
    try:
        with open(f"/run/{base(unit)}.pid", encoding="ascii") as f:
            pid = int(f.read())
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return 0 if f.read().rpartition(")")[2].split()[0] in "ZX" else pid
    except OSError:
        return 0


def log_of(unit):
    return f"/run/{base(unit)}.log"


def once(unit, says):
    program, *args = says["ExecStart"].split()
    with open(log_of(unit), "a", encoding="utf-8") as log:
        done = subprocess.run([os.path.join(BUILD, os.path.basename(program)), *args], check=False,
                              stdout=log, stderr=log)
    if done.returncode:
        fail(f"{says['ExecStart']}: status {done.returncode}")


def start(unit):
    if pid_of(unit):
        return
    unit_says, user = settings(unit), pwd.getpwnam("weft")
    if unit.endswith(".timer"):
        settings(unit.removesuffix(".timer"))
        subprocess.run(["systemd-analyze", "calendar", unit_says["OnCalendar"]], check=True,
                       stdout=subprocess.DEVNULL)
        return
    if unit_says.get("Type") == "oneshot":
        once(unit, unit_says)
        return
    for key, top in (("StateDirectory", "/var/lib"), ("RuntimeDirectory", "/run")):
        folder = os.path.join(top, unit_says[key])
        os.makedirs(folder, int(unit_says[key + "Mode"], 8), exist_ok=True)
        os.chown(folder, user.pw_uid, user.pw_gid)
    program, *args = unit_says["ExecStart"].split()
    args = [re.sub(r"^/.*/weft/", "/etc/weft/", a) for a in args]
    args += [a for o in SHORT[os.path.basename(program)] for a in ("-o", o)]
    said = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    where = f"/run/{base(unit)}.notify"
    if os.path.exists(where):
        os.unlink(where)
    said.bind(where)
    os.chmod(where, 0o666)
    with open(log_of(unit), "a", encoding="utf-8") as log:
        child = subprocess.Popen(  # noqa: PLW1509
            ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--init-groups",
             "--inh-caps=-all", "--bounding-set=-all",
             os.path.join(BUILD, os.path.basename(program)), *args],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "NOTIFY_SOCKET": where})
    with open(f"/run/{base(unit)}.pid", "w", encoding="ascii") as f:
        f.write(str(child.pid))
    said.settimeout(0.2)
    end = time.monotonic() + 100
    while child.poll() is None and time.monotonic() < end:
        try:
            if b"READY=1" in said.recv(4096):
                return
        except TimeoutError:
            pass
    fail(f"Job for {base(unit)}.service failed. See \"journalctl -u {base(unit)}\".")


def stop(unit):
    pid = pid_of(unit)
    if pid:
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 60
    while pid_of(unit):
        if time.monotonic() > end:
            fail(f"{unit} does not end")
        time.sleep(0.02)


def restart(unit):
    stop(unit)
    start(unit)


def reload_(unit):
    if not pid_of(unit):
        fail(f"{base(unit)}.service is not active, cannot reload.")
    os.kill(pid_of(unit), signal.SIGHUP)


def nothing(_):
    pass


def is_active(unit):
    print("active" if pid_of(unit) else "inactive")
    return 0 if pid_of(unit) else 3


VERBS = {"start": start, "stop": stop, "restart": restart, "reload": reload_, "enable": nothing,
         "disable": nothing, "is-active": is_active}


def systemctl(args):
    now, words = "--now" in args, [a for a in args if a != "--now"]
    if words == ["daemon-reload"]:
        return 0
    if not words or words[0] not in VERBS or not words[1:] or any(w[0] == "-" for w in words):
        return fail(f"this systemctl does not know: {' '.join(args)}")
    status = 0
    for unit in words[1:]:
        settings(unit)
        status = VERBS[words[0]](unit) or status
        if now:
            {"enable": start, "disable": stop}[words[0]](unit)
    return status


def journalctl(args):
    """-u UNIT, -p LEVEL and -n COUNT only."""
    options = dict(zip(args[::2], args[1::2]))
    if set(options) - {"-u", "-p", "-n"} or "-u" not in options:
        fail(f"this journalctl does not know: {' '.join(args)}")
    settings(options["-u"])
    try:
        with open(log_of(options["-u"]), encoding="utf-8", errors="replace") as f:
            lines = f.read().splitlines()
    except OSError:
        lines = []
    if "-p" in options:
        lines = [line for line in lines if re.match(rf"({LEVELS[options['-p']]}) ", line)]
    print("\n".join(lines[-int(options.get("-n", "0")):]))
    return 0


if __name__ == "__main__":
    sys.exit({"systemctl": systemctl, "journalctl": journalctl}[
        os.path.basename(sys.argv[0])](sys.argv[1:]))
