# SPDX-License-Identifier: Apache-2.0
"""A Chromium without a screen, driven by its DevTools protocol over a pipe, and a cluster whose
metadata server serves the console by https://."""
import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from daemons import Cluster, ask, environment, program
from tap import SRC

PROGRAM = shutil.which("chromium-headless-shell")
DEADLINE_S = 60


class Refused(Exception):
    """The browser refused a command, or a script threw."""


class Browser:
    """One tab. Every message of the console and every exception of a page is in .messages."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="weft-browser.")
        to_read, self.to = os.pipe()
        self.come, from_write = os.pipe()
        # The protocol is on 3 and 4: the shell puts the pipes there.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec 3<&{to_read} 4>&{from_write}; exec "$@"', "-", PROGRAM,
             "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--ignore-certificate-errors", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "--mute-audio",
             f"--user-data-dir={self.top}/profile", "--hide-scrollbars", "about:blank"],
            pass_fds=(to_read, from_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.top})
        os.close(to_read)
        os.close(from_write)
        self.rest, self.number, self.messages, self.session = b"", 0, [], None
        page = next(t for t in self.do("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.do("Target.attachToTarget", targetId=page["targetId"],
                               flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.do(f"{domain}.enable")

    def down(self):
        os.close(self.to)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.come)
        shutil.rmtree(self.top, ignore_errors=True)

    def message(self, until):
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            assert left > 0 and select.select([self.come], [], [], left)[0], "the browser is silent"
            got = os.read(self.come, 1 << 20)
            assert got, "the browser ended"
            self.rest += got
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def do(self, method, **params):
        self.number += 1
        m = {"id": self.number, "method": method, "params": params}
        if self.session:
            m["sessionId"] = self.session
        os.write(self.to, json.dumps(m).encode() + b"\0")
        until = time.monotonic() + DEADLINE_S
        while True:
            got = self.message(until)
            if got.get("id") == self.number:
                if "error" in got:
                    raise Refused(f"{method}: {got['error']}")
                return got["result"]
            self.note(got)

    def note(self, got):
        p = got.get("params", {})
        if got.get("method") == "Log.entryAdded":
            self.messages.append(p["entry"]["text"] + " " + p["entry"].get("url", ""))
        elif got.get("method") == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.messages.append(d["text"] + " " + d.get("exception", {}).get("description", ""))
        elif got.get("method") == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning"):
            self.messages.append(str([a.get("value") for a in p["args"]]))

    def js(self, text):
        """The value of an expression; a promise is awaited."""
        got = self.do("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            d = got["exceptionDetails"]
            raise Refused(f"{text[:200]}: {d['text']} {d.get('exception', {}).get('description')}")
        return got["result"].get("value")

    def until(self, text, seconds=DEADLINE_S):
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(Refused):  # the page is being exchanged
                got = self.js(f"!!({text})")
                if got:
                    return got
            assert time.monotonic() < end, (f"not true: {text}", self.messages[-5:],
                                            self.js("document.body.innerText")[-2000:])
            time.sleep(0.05)

    def goto(self, url):
        self.do("Page.navigate", url=url)

    def key(self, key, text=None, modifiers=0):
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        p = {"key": key, "code": "Space" if key == " " else key, "modifiers": modifiers,
             "windowsVirtualKeyCode": codes.get(key, 0)}
        if key == "Enter":
            text = "\r"
        self.do("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown",
                **p, **({"text": text} if text else {}))
        self.do("Input.dispatchKeyEvent", type="keyUp", **p)

    def type(self, text):
        self.do("Input.insertText", text=text)

    def look(self, width, height=900, dark=False):
        """The size of the window and the colours that the system prefers."""
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height,
                deviceScaleFactor=1, mobile=False)
        self.do("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        got = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(path, "wb") as f:
            f.write(base64.b64decode(got["data"]))


class ConsoleCluster(Cluster):
    """A cluster of weft-dev, whose metadata server was exchanged for one with a port for
    browsers."""
    TCP, TLS = "127.0.0.1:13021", "https://localhost:13022"

    def __init__(self):
        super().__init__()
        self.dev("kill", self.dir, "mds")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout",
                        f"{self.top}/key.pem", "-out", f"{self.top}/cert.pem", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True,
                       capture_output=True, timeout=DEADLINE_S)
        self.mds = None
        self.start()

    def start(self):
        admin = self.admin["mds"]
        keys = {"mds.admin": f"{admin}, {self.TCP}, https://127.0.0.1:13022",
                "mds.console": os.path.join(SRC, "console"), "mds.repair_wait": "1s",
                "mds.tls_cert": f"{self.top}/cert.pem", "mds.tls_key": f"{self.top}/key.pem"}
        with open(f"{self.top}/mds.log", "a", encoding="utf-8") as log:
            self.mds = subprocess.Popen(
                [program("weft-mds"), "-c", f"{self.dir}/weft.conf",
                 *[x for k, v in keys.items() for x in ("-o", f"{k}={v}")]],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment("weft-mds"))
        self.wait(lambda: ask(admin, "GET", "/v1/health?ready"))
        self.wait(lambda: [d for d in ask(admin, "GET", "/v1/ds")["ds"] if d["alive"]][3])

    def wait(self, what):
        end = time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(OSError, AssertionError, IndexError):
                return what()
            assert self.mds.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.05)

    def log(self):
        with open(f"{self.top}/mds.log", encoding="utf-8") as f:
            return f.read()

    def stop(self):
        if self.mds and self.mds.poll() is None:
            self.mds.kill()
            self.mds.wait()

    def down(self):
        self.stop()
        super().down()
