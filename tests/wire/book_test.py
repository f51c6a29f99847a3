#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The handbook does what it says: the blocks of docs/handbook run, in the order of mkdocs.yml, on
one cluster that they make and change. Prints TAP. As root.

A block begins with a comment that says what becomes of it:

- ```sh, "# On MACHINE:" - bash runs it there, with -e. A ```text block behind it is what it prints:
  a number there stands for any number, "..." for anything.
- ```sh, "# On MACHINE, refused:" - the same, and its status must not be 0.
- ```conf or ```yaml, "# FILE on MACHINE" - the test writes that file, as an administrator does.
- any of these and ```yaml, "# Not run by the tests: REASON" - it is parsed only. ```json has no
  comments, so a line "Not run by the tests: REASON" stands before it.

Any other block fails the test. What cannot run here is Kubernetes, Grafana, what needs a
package repository or hardware, and what needs the NFS client of a kernel.

A machine is a network, a mount and a host name space, with folders of its own in place of /etc,
/root, /run, /srv and /var/lib, and an address on a bridge that all have. No systemd runs: systemctl
and journalctl are tests/wirelib/systemctl.py, which starts what the units say, with shorter leases:
a killed server is forgotten after its lease, and the test shall not wait for half a minute.
"""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from handbook import blocks, pattern  # noqa: E402
from tap import BUILD, SRC  # noqa: E402

MACHINES = {"mds1": "192.0.2.1", "ds1": "192.0.2.2", "ds2": "192.0.2.3", "ds3": "192.0.2.4",
            "kdc1": "192.0.2.20", "client1": "192.0.2.101"}
BOOK = os.path.join(SRC, "docs/handbook")
USER = "weft:x:990:990::/var/lib/weft:/usr/sbin/nologin\n"
# What each machine has for itself.
OWN = {"etc": "/etc", "root": "/root", "run": "/run", "srv": "/srv", "lib": "/var/lib",
       "bin": "/usr/local/sbin"}


def pages():
    """The handbook's pages in the order of mkdocs.yml."""
    with open(os.path.join(SRC, "mkdocs.yml"), encoding="utf-8") as f:
        return re.findall(r":\s*handbook/(\S+\.md)\s*$", f.read(), re.M)


def ip(words):
    subprocess.run(["ip", *words.split()], check=True)


class Machine:
    """Processes run in it with nsenter."""

    def __init__(self, top, name):
        self.name, self.top = name, os.path.join(top, name)
        for own in OWN:
            os.makedirs(os.path.join(self.top, own))
        os.chmod(os.path.join(self.top, "root"), 0o700)
        etc = os.path.join(self.top, "etc")
        shutil.copytree("/etc", etc, symlinks=True, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("weft", "*.pid"))
        for file, text in (("passwd", USER), ("group", "weft:x:990:\n")):
            self.add(file, text)
        self.add("hosts", "".join(f"{a} {n} {n}.example.org\n" for n, a in MACHINES.items()))
        # What the packages' tmpfiles make.
        for folder, mode, owner in (("etc/weft", 0o750, 0), ("lib/weft", 0o700, 990)):
            os.mkdir(os.path.join(self.top, folder), mode)
            os.chown(os.path.join(self.top, folder), owner, 990)
        for program in ("weft-mds", "weft-ds", "weft", "weft-fsck", "weft-backup", "weft-bench"):
            os.symlink(os.path.join(BUILD, program), os.path.join(self.top, "bin", program))
        for program in ("systemctl", "journalctl"):
            os.symlink(os.path.join(SRC, "tests/wirelib/systemctl.py"),
                       os.path.join(self.top, "bin", program))
        binds = "".join(f"mount --bind {self.top}/{own} {at}\n" for own, at in OWN.items())
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--uts", "--net", "--propagation", "private", "sh", "-ec",
             f"{binds}hostname {name}\nip link set lo up\necho up\nexec sleep infinity"],
            stdout=subprocess.PIPE)
        assert self.holder.stdout.readline() == b"up\n", f"{name} cannot be made"
        ip(f"link add {name} type veth peer name eth0 netns {self.holder.pid}")
        ip(f"link set {name} master cables up")
        done = self.run(f"ip addr add {MACHINES[name]}/24 dev eth0 && ip link set eth0 up")
        assert not done.returncode, done.stdout

    def add(self, file, text):
        with open(os.path.join(self.top, "etc", file), "a", encoding="utf-8") as f:
            f.write(text)

    def run(self, script):
        env = {"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
               "LC_ALL": "C.UTF-8", "WEFT_BUILD": BUILD, "WEFT_SOURCE": SRC,
               "ASAN_OPTIONS": "detect_leaks=0", "TMPDIR": "/run"}
        return subprocess.run(["nsenter", "-t", str(self.holder.pid), "-m", "-u", "-n", "-w/root",
                               "bash", "-e", "-c", script], env=env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120, check=False)

    def write(self, path, text):
        """As an administrator's editor does: root's, readable by the daemons' group."""
        own = next((o for o, at in OWN.items() if path.startswith(at + "/")), None)
        assert own, f"{path} is not a file of {self.name}"
        real = os.path.join(self.top, own, os.path.relpath(path, OWN[own]))
        os.makedirs(os.path.dirname(real), exist_ok=True)
        with open(real, "w", encoding="utf-8") as f:
            f.write(text)

    def end(self):
        self.holder.kill()
        self.holder.wait()
        subprocess.run(["ip", "link", "del", self.name], check=False, stderr=subprocess.DEVNULL)


class World:
    """The machines, which are made when a block first names them."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="weft-book.")
        os.chmod(self.top, 0o755)
        self.there = {}
        ip("link add cables type bridge")
        ip("link set cables up")

    def __getitem__(self, name):
        assert name in MACHINES, f"no such machine: {name}"
        if name not in self.there:
            self.there[name] = Machine(self.top, name)
        return self.there[name]

    def copy(self, text):
        """What the handbook does by ssh becomes a copy, and what the packages have in
        /usr/share/weft comes from the source."""
        text = text.replace("/usr/share/weft/", os.path.join(SRC, "dist/"))
        def to(m):
            folder = os.path.join(self[m[2]].top, "etc", os.path.relpath(m[3], "/etc"))
            return f"cp {m[1]} {folder}"
        return re.sub(r"^scp -p (.+) (\w+):(/etc\S*)$", to, text, flags=re.M)

    def end(self):
        for machine in self.there.values():
            machine.end()
        for pid in daemons(self.top):
            os.kill(pid, signal.SIGKILL)
        ip("link del cables")
        shutil.rmtree(self.top, ignore_errors=True)


def daemons(top):
    """The processes whose /run is one of the machines'."""
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/mountinfo", encoding="utf-8") as f:
                if name.isdigit() and os.path.basename(top) in f.read():
                    yield int(name)
        except OSError:
            pass


def run(world, block):
    refused = re.match(r"# On (\w+)(, refused)?:$", block.first)
    assert refused, (f"{block.where}: a block of sh begins with \"# On MACHINE:\" or \"# Not "
                     f"run by the tests: REASON\", not with {block.first!r}")
    began = time.monotonic()
    done = world[refused[1]].run(world.copy(block.text))
    if time.monotonic() - began > 2:
        tap.say(f"{block.where}: {time.monotonic() - began:.1f} s")
    if os.environ.get("WEFT_TRACE"):
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        tap.say(f"{block.where} {cpu.ru_utime + cpu.ru_stime:.1f}\n{done.stdout}")
    text = f"{block.where}: status {done.returncode}, it printed\n{done.stdout[-3000:]}"
    assert (done.returncode != 0) == bool(refused[2]), text
    if block.expected is not None:
        assert pattern(block.expected).fullmatch(done.stdout), f"{text}\nand not\n{block.expected}"


def write(world, block):
    if block.kind == "yaml":
        parse(block)
    m = re.match(r"# (/\S+) on (\w+)$", block.first)
    assert m, (f"{block.where}: a block of {block.kind} begins with \"# FILE on MACHINE\", not "
               f"with {block.first!r}")
    world[m[2]].write(m[1], block.text)


def parse(block):
    """A block that is not run is at least well formed."""
    if block.kind == "sh":
        done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True,
                              check=False)
        assert done.returncode == 0, f"{block.where}: {done.stderr}"
    elif block.kind == "yaml":
        import yaml
        assert all(d for d in yaml.safe_load_all(block.text)), f"{block.where}: an empty document"
    elif block.kind == "json":
        json.loads(block.text)
    else:
        assert block.kind == "conf", f"{block.where}: what is a block of {block.kind!r}?"


def does(world, page):
    """Runs, writes or parses each block of a page. Returns how many of each."""
    with open(os.path.join(BOOK, page), encoding="utf-8") as f:
        all_of_it = blocks(page, f.read())
    count = {"run": 0, "written": 0, "parsed": 0}
    for block in all_of_it:
        if block.refused():
            parse(block)
            count["parsed"] += 1
        elif block.kind == "sh":
            run(world, block)
            count["run"] += 1
        elif block.kind in ("conf", "yaml"):
            write(world, block)
            count["written"] += 1
        else:
            assert block.kind in ("text", "promql"), (
                f"{block.where}: a block of {block.kind!r} is neither run nor marked")
    tap.say(", ".join(f"{n} {what}" for what, n in count.items() if n) or "nothing to run")


def fails(text):
    """A planted fault must be found."""
    try:
        for block in blocks("planted", text):
            if block.refused():
                parse(block)
            elif block.kind == "sh":
                run({}, block)
            else:
                write({}, block)
    except AssertionError as e:
        return str(e)
    return ""


def test_a_block_that_nothing_says_of_is_found():
    """A checker that finds nothing proves nothing."""
    for text, want in (("```sh\ntrue\n```", "begins with"),
                       ("```sh\n# Not run by the tests:\n```", "without a reason"),
                       ("```sh\n# Not run by the tests: no NFS\nif\n```", "syntax error"),
                       ("```yaml\na: b\n```", "begins with"),
                       ("```conf\nx\n```", "begins with"), ("```sh\ntrue\n", "without an end"),
                       ("Not run by the tests: so\n\n```toml\na\n```", "begins with")):
        assert want in fails(text), f"{text!r}: {fails(text)!r}"
    assert not fails("```sh\n# Not run by the tests: no NFS\ntrue\n```")
    for expected, got, want in (("a 1 b", "a  27  b\n", True), ("a 1 b", "a x b", False),
                                ("a\n...\nz", "a\nb\nc\nz", True), ("a 1.5K", "a 20K", True),
                                ("up 1", "up 1\nmore", False)):
        assert bool(pattern(expected).fullmatch(got)) == want, (expected, got)


def test_every_page_is_in_mkdocs_yml():
    found = sorted(n for n in os.listdir(BOOK) if n.endswith(".md"))
    assert sorted(pages()) == found, f"mkdocs.yml has {pages()}, and the folder {found}"
    assert len(found) > 5, found


def page_tests(world):
    """One test for each page. One that fails spoils those behind it, so these are not run."""
    broken = []

    def one(page):
        def it(*_):
            if broken:
                return f"{broken[0]} failed"
            try:
                return does(world, page)
            except BaseException:
                broken.append(page)
                raise
        return it
    return [(page, one(page)) for page in pages()]


def main():
    if os.geteuid() or not tap.built("weft-mds", "weft-ds", "weft", "weft-bench"):
        tap.skip("wants root, and the daemons built")
        return
    world = World()
    try:
        tap.run([*tap.named(globals()), *page_tests(world)], tap.giving())
    finally:
        world.end()


if __name__ == "__main__":
    main()
