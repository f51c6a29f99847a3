# SPDX-License-Identifier: Apache-2.0
"""A weft-mds without data servers, whose admin API listens in each way."""
import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time

from daemons import ask, environment, program, run

NOBODY, GROUP = 65534, "games"
TCP, TLS = "127.0.0.1:13021", "https://127.0.0.1:13022"
DEADLINE_S = 60


class Server:
    """A weft-mds without data servers."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="weft-api-test.")
        os.chmod(self.top, 0o711)
        self.path = f"{self.top}/sock"
        self.unix = f"unix:{self.path}"
        self.file("cluster.key", secrets.token_hex(32))
        self.file("file.token", "the-token-of-the-file")
        self.ca("ca")
        self.ca("other")
        self.cert("server", "ca", "serverAuth", "IP:127.0.0.1,DNS:localhost")
        self.process = None
        self.log = f"{self.top}/log"
        self.start()

    def file(self, name, text):
        with open(f"{self.top}/{name}", "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), 0o400)
            f.write(text + "\n")

    def openssl(self, *args):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", *args], check=True,
                       capture_output=True, timeout=DEADLINE_S)

    def ca(self, name):
        self.openssl("-keyout", f"{self.top}/{name}.key", "-out", f"{self.top}/{name}.pem",
                     "-subj", f"/CN={name}")

    def cert(self, name, ca, use, san="DNS:none.example", cn=None):
        self.openssl("-keyout", f"{self.top}/{name}.key", "-out", f"{self.top}/{name}.pem",
                     "-CA", f"{self.top}/{ca}.pem", "-CAkey", f"{self.top}/{ca}.key", "-subj",
                     f"/CN={cn or name}", "-addext", "basicConstraints=critical,CA:FALSE",
                     "-addext", f"extendedKeyUsage={use}", "-addext", f"subjectAltName={san}")

    def args(self, **change):
        keys = {"mds.store": f"{self.top}/store", "mds.cluster_key": f"{self.top}/cluster.key",
                "mds.listen": "127.0.0.1:13020",
                "mds.admin": f"{self.unix}, {TCP}, {TLS.replace('127.0.0.1', '0.0.0.0')}",
                "mds.admin_group": GROUP, "mds.admin_token": f"{self.top}/file.token",
                "mds.tls_cert": f"{self.top}/server.pem", "mds.tls_key": f"{self.top}/server.key",
                "mds.tls_ca": f"{self.top}/ca.pem",
                "mds.admin_certs": "read watcher, operate ops.example.org, admin boss", **change}
        return [program("weft-mds")] + [x for k, v in keys.items() for x in ("-o", f"{k}={v}")]

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.args(), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment("weft-mds"))
        deadline = time.monotonic() + DEADLINE_S
        while True:
            assert (self.process.poll() is None
                    and time.monotonic() < deadline), self.text()
            with contextlib.suppress(OSError, AssertionError):  # it waits, or is not there yet
                ask(self.unix, "GET", "/v1/health")
                break
            time.sleep(0.02)
        os.chmod(self.path, 0o666)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE_S) == 0, self.text()

    def text(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def down(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.top)

    def weft(self, *args, rc=0, admin=None, **env):
        clean = {"WEFT_ADMIN": None, "WEFT_ADMIN_TOKEN": None, "WEFT_TOKEN": None}
        return run(program("weft"), "--admin", admin or self.unix, *args, rc=rc,
                   env={**clean, **env})

    def token(self, role, name, *args):
        done = subprocess.run([program("weft"), "--admin", self.unix, "token", "create", "--role",
                               role, "--name", name, *args], capture_output=True, text=True,
                              timeout=DEADLINE_S, check=True, env=environment("weft"))
        assert name in done.stderr and re.fullmatch(r"weft_[\w-]{43}\n", done.stdout), done
        return done.stdout.strip()
