# SPDX-License-Identifier: Apache-2.0
"""engine.py - PostgreSQL as Debian has it on three nodes, e1 to e3: a primary and synchronous
standbys under Patroni (synchronous_mode_strict), which keeps its state in etcd. And what can happen
to it."""
import contextlib
import glob
import json
import os
import pwd
import shutil
import signal
import subprocess
import time
import urllib.request

from world import disk, kill, now, wait

USER = "postgres"
# The shortest that Patroni 3.0 supports.
TTL, LOOP, RETRY = 20, 5, 5


def missing():
    """What the engine needs and is not here; None where all is."""
    for program in ("etcd", "patroni", "setpriv", "psql"):
        if not shutil.which(program):
            return f"the program {program}"
    if not glob.glob("/usr/lib/postgresql/*/bin/postgres"):
        return "PostgreSQL"
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return f"the user {USER}"
    return None


class Engine:
    def __init__(self, w, disks=0):
        """disks: the size of each node's file system for its data, in MiB; 0: they share one."""
        self.w, self.disks, self.etcd = w, disks, {}
        self.bin = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        self.nodes = [w.node(f"e{i}") for i in (1, 2, 3)]
        for n in self.nodes:
            self.start_etcd(n, "new")
        for n in self.nodes:
            self.start_patroni(n)
        wait(self.ready, "primary with a synchronous standby", 120, 0.2)
        self.sql("create role weft login")

    def folder(self, node, what):
        path = os.path.join(self.w.work, f"{what}-{node.name}")
        if not os.path.exists(path):
            os.mkdir(path, 0o700)
            if what == "pg" and self.disks:
                disk(path, self.disks)
                os.chmod(path, 0o700)
            shutil.chown(path, USER)
        return path

    def start_etcd(self, n, state):
        peers = ",".join(f"{m.name}=http://{m.addr}:2380" for m in self.nodes)
        self.etcd[n.name] = n.run(
              "etcd", "--name", n.name, "--data-dir", self.folder(n, "etcd"),
              "--listen-client-urls", f"http://{n.addr}:2379",
              "--advertise-client-urls", f"http://{n.addr}:2379", "--listen-peer-urls",
              f"http://{n.addr}:2380", "--initial-advertise-peer-urls",
              f"http://{n.addr}:2380", "--initial-cluster", peers, "--initial-cluster-state", state,
              "--logger", "zap", "--log-level", "warn", log=f"etcd-{n.name}", user=USER)

    def start_patroni(self, n):
        conf = os.path.join(self.w.work, f"{n.name}.yml")
        with open(conf, "w", encoding="ascii") as f:
            json.dump({  # which is YAML
                "scope": "weft", "name": n.name,
                "restapi": {"listen": f"{n.addr}:8008", "connect_address": f"{n.addr}:8008"},
                "etcd3": {"hosts": [f"{m.addr}:2379" for m in self.nodes]},
                "bootstrap": {
                    "dcs": {"ttl": TTL, "loop_wait": LOOP, "retry_timeout": RETRY,
                            "synchronous_mode": True, "synchronous_mode_strict": True,
                            "postgresql": {"use_pg_rewind": True, "parameters": {
                                "shared_buffers": "32MB", "max_connections": 60,
                                "wal_keep_size": "256MB", "checkpoint_timeout": "30min"}}},
                    "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "no-sync"]},
                "postgresql": {
                    "listen": f"{n.addr}:5432", "connect_address": f"{n.addr}:5432",
                    "data_dir": os.path.join(self.folder(n, "pg"), "data"), "bin_dir": self.bin,
                    "pgpass": os.path.join(self.folder(n, "pg"), "pgpass"),
                    "authentication": {"superuser": {"username": USER},
                                       "replication": {"username": USER}},
                    "pg_hba": ["local all all trust", "host all all 10.77.0.0/16 trust",
                               "host replication all 10.77.0.0/16 trust"],
                    "parameters": {"unix_socket_directories": self.folder(n, "pg")}}}, f)
        n.run("patroni", conf, log=f"patroni-{n.name}", user=USER,
              env={"HOME": self.folder(n, "pg"), "PGPASSFILE": ""})

    def conninfo(self, user="weft", only=None):
        """Of all nodes, or of one."""
        hosts = ",".join(n.addr for n in ([only] if only else self.nodes))
        return f"host={hosts} port=5432 user={user} dbname=postgres"

    def reach(self, user):
        """What a server connects with. A look has little time for three hosts on a busy machine:
        where the primary stays, its address is enough."""
        return self.conninfo(user, only=self.primary())

    def ask(self, n, text, seconds=5):
        """Rows of psql on this node, or None where it does not answer."""
        try:
            done = subprocess.run(
                ["nsenter", f"--net={n.path}", "--", "psql", "-XqAt", "-c", text,
                 f"host={n.addr} user={USER} dbname=postgres connect_timeout=2"],
                capture_output=True, text=True, check=False, timeout=seconds + 5)
        except subprocess.TimeoutExpired:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    def primary(self):
        return next((n for n in self.nodes
                     if n.on and self.ask(n, "select pg_is_in_recovery()") == "f"), None)

    def ready(self):
        n = self.primary()
        return n and self.ask(n, "select count(*) from pg_stat_replication "
                              "where sync_state in ('sync', 'quorum')") not in (None, "0") and n

    def sql(self, text):
        n = wait(self.primary, "primary", 90, 0.2)
        got = self.ask(n, text)
        if got is None:
            raise RuntimeError(f"{n.name} refuses: {text}")
        return got

    def standby(self):
        """The node of the synchronous standby."""
        name = self.sql("select application_name from pg_stat_replication "
                        "where sync_state in ('sync', 'quorum') limit 1")
        return next(n for n in self.nodes if n.name == name)

    # ---- what can happen to it

    def stop_for(self, nodes, seconds):
        proof = [n.freeze() for n in nodes]
        time.sleep(seconds)
        for n in nodes:
            n.wake()
        return "; ".join(proof)

    def cancel(self, seconds):
        """The standby stands still, and an administrator cancels whoever waits for it."""
        standby, primary = self.standby(), self.primary()
        standby.freeze()
        end, hit = now() + seconds, 0
        while now() < end:
            hit += int(self.ask(primary, "select count(pg_cancel_backend(pid)) from "
                                "pg_stat_activity where wait_event = 'SyncRep'") or 0)
        standby.wake()
        return f"{hit} waits for {standby.name} were cancelled" if hit else ""

    def alone(self, seconds):
        """An administrator makes PostgreSQL commit alone, and takes it back."""
        n = self.primary()
        self.ask(n, "alter system set synchronous_standby_names = ''")
        self.ask(n, "select pg_reload_conf()")
        wait(lambda: self.ask(n, "show synchronous_standby_names") == "", "reload", 10)
        time.sleep(seconds)
        self.ask(n, "alter system reset synchronous_standby_names")
        self.ask(n, "select pg_reload_conf()")
        return f"synchronous_standby_names of {n.name} was empty"

    def leader(self):
        """The node of etcd's leader, or None."""
        for n in self.nodes:
            ask = urllib.request.Request(f"http://{n.addr}:2379/v3/maintenance/status", b"{}")
            with contextlib.suppress(OSError, KeyError, ValueError):
                with urllib.request.urlopen(ask, timeout=2) as got:
                    r = json.load(got)
                if r["leader"] == r["header"]["member_id"]:
                    return n
        return None

    def kill_leader(self):
        old = wait(self.leader, "leader of etcd")
        proof = kill(self.etcd[old.name])
        new = wait(self.leader, "other leader of etcd", 30)
        self.start_etcd(old, "existing")
        return f"etcd's {proof} on {old.name}; then {new.name} led"

    def other_primary(self, n):
        """Waits for a primary that is not this node, with a synchronous standby."""
        wait(lambda: self.ready() not in (None, False, n), "other primary", 150, 0.2)

    def other_standby(self, n):
        wait(lambda: self.ready() and self.standby() is not n, "other standby", 150, 0.2)

    def boot(self, n):
        n.power_on()
        self.start_etcd(n, "existing")
        self.start_patroni(n)

    def kill_postgres(self, n):
        """Kills PostgreSQL's first process, as the kernel does when memory is short."""
        with open(os.path.join(self.folder(n, "pg"), "data/postmaster.pid"), encoding="ascii") as f:
            pid = int(f.readline())
        os.kill(pid, signal.SIGKILL)
        return f"postgres {pid} of {n.name} was killed"
