#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""acked.py - writes a file, and knows which bytes of it must be there.

acked.py write FILE LOG SHARED NAME [SECONDS]
    makes FILE at once and writes blocks of it. Notes in LOG what it began and what the server
    acknowledged, until SHARED has the flag NAME.stop. While there is NAME.pause it holds nothing
    open and shows that by NAME.paused. It notes an error and writes the block again. SECONDS bounds
    the wait for each block: a longer one ends it with a complaint.
acked.py verify FILE LOG...
    every page holds a version that was written, and that is not older than the last one that the
    server acknowledged.
acked.py mirrors CLUSTER DIR SHARED NAME...
    checks the same of each copy in the data servers' stores, and that the copies of a stripe are
    equal. DIR/NAME.layout is what weft --json file show prints, SHARED/NAME.log the log.
acked.py count LOG
    prints how many blocks were acknowledged, how many errors there were, and the longest wait for
    one block.

A block of 64 KiB is 16 pages. Each page names the log's number (from its name), block, page and
version, and is filled by them.
"""
import hashlib
import json
import mmap
import os
import random
import struct
import sys
import threading
import time
import zlib

PAGE, BLOCK, BLOCKS, WRITERS = 4096, 65536, 192, 3
HEAD = struct.Struct("<IIIQI")


def page(seed, block, n, version):
    head = HEAD.pack(seed, block, n, version, 0x77656674)
    return (head + hashlib.blake2b(head, digest_size=PAGE // 64 - 1).digest() * 64
            + bytes(PAGE - HEAD.size - (PAGE // 64 - 1) * 64))


def data_of(seed, block, version):
    return b"".join(page(seed, block, n, version) for n in range(BLOCK // PAGE))


def seed_of(log):
    return zlib.crc32(os.path.basename(log).encode())


class Log:
    """Lines: "i BLOCK VERSION TIME" before a write, "a ..." when the server acknowledged it, "e
    ERRNO TEXT TIME" after an error. The file is the host's, so it outlives the guest."""

    def __init__(self, path):
        self.f = open(path, "a", encoding="ascii", buffering=1)
        self.lock = threading.Lock()

    def say(self, *words):
        with self.lock:
            self.f.write(" ".join(str(w) for w in words) + f" {time.time():.3f}\n")


class Writer(threading.Thread):
    def __init__(self, path, log, shared, name, limit, number):
        super().__init__(daemon=True)
        self.path, self.log, self.flag = path, log, os.path.join(shared, name)
        self.seed, self.number = seed_of(log.f.name), number
        self.limit, self.began, self.paused = limit, None, False
        self.version = {b: 0 for b in range(number, BLOCKS, WRITERS)}
        self.rnd = random.Random(number)

    def blocks(self):
        """A few at a time, so that one fsync acknowledges several writes."""
        return self.rnd.sample(sorted(self.version), self.rnd.choice((1, 1, 2, 4)))

    def put(self, fd, blocks, direct):
        for b in blocks:
            self.log.say("i", b, self.version[b])
            data = data_of(self.seed, b, self.version[b])
            if direct:
                buf = mmap.mmap(-1, BLOCK)
                buf[:] = data
                data = buf
            done = 0
            while done < BLOCK:
                done += os.pwrite(fd, memoryview(data)[done:], b * BLOCK + done)
        if not direct:
            os.fsync(fd)

    def once(self):
        direct = self.rnd.random() < 0.3
        blocks = self.blocks()
        for b in blocks:
            self.version[b] += 1
        while True:
            self.began = time.time()
            try:
                fd = os.open(self.path, os.O_CREAT | os.O_WRONLY | (os.O_DIRECT if direct else 0),
                             0o666)
                try:
                    self.put(fd, blocks, direct)
                finally:
                    os.close(fd)
                break
            except OSError as e:
                self.log.say("e", e.errno, e.strerror.replace(" ", "-"))
                time.sleep(0.2)
        self.began = None
        for b in blocks:
            self.log.say("a", b, self.version[b])

    def run(self):
        while not os.path.exists(self.flag + ".stop"):
            self.paused = os.path.exists(self.flag + ".pause")
            if self.paused:
                time.sleep(0.02)
            else:
                self.once()


def cmd_write(path, log, shared, name, limit="60"):
    log = Log(log)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
    writers = [Writer(path, log, shared, name, float(limit), n) for n in range(WRITERS)]
    for w in writers:
        w.start()
    told = os.path.join(shared, name + ".paused")
    worst = 0
    while any(w.is_alive() for w in writers):
        time.sleep(0.02)
        if all(w.paused for w in writers) != os.path.exists(told):
            if os.path.exists(told):
                os.unlink(told)
            else:
                with open(told, "w", encoding="ascii"):
                    pass
        waits = [time.time() - b for b in (w.began for w in writers) if b]
        worst = max([worst] + waits)
        if worst > writers[0].limit:
            log.say("hangs", f"{worst:.1f}")
            with open("/proc/sysrq-trigger", "w", encoding="ascii") as f:
                f.write("w")
            sys.exit(f"a block is not written after {worst:.0f} s")
    return 0


def read_log(path):
    """{block: [acknowledged, begun]} of one log."""
    known = {}
    with open(path, encoding="ascii") as f:
        for line in f:
            w = line.split()
            if w[0] in "ia" and line.endswith("\n"):
                have = known.setdefault(int(w[1]), [0, 0])
                have[w[0] == "i"] = max(have[w[0] == "i"], int(w[2]))
    return known


def look(data, logs):
    """What is wrong with these bytes of a file that the logs describe. Each block belongs to the
    one log that has it."""
    wrong, pages = [], 0
    for log in logs:
        seed = seed_of(log)
        for b, (acked, begun) in sorted(read_log(log).items()):
            for n in range(BLOCK // PAGE):
                off = b * BLOCK + n * PAGE
                got = data[off:off + PAGE].ljust(PAGE, b"\0")
                pages += 1
                version = HEAD.unpack_from(got)[3] if any(got) else 0
                if any(got) and got != page(seed, b, n, version):
                    wrong.append(f"block {b} page {n}: {got[:24].hex()} is nothing that was "
                                 "written there")
                elif not acked <= version <= begun:
                    wrong.append(f"block {b} page {n}: version {version}, acknowledged {acked}, "
                                 f"begun {begun}")
    return wrong, pages


def tell(wrong, what):
    for line in wrong[:8]:
        print(f"{what}: {line}")
    if wrong:
        sys.exit(f"{what}: {len(wrong)} are wrong")


def cmd_verify(path, *logs):
    with open(path, "rb") as f:
        wrong, pages = look(f.read(), logs)
    tell(wrong, path)
    if not pages:
        sys.exit("nothing was written")


def objects_on(lay, mirror, stripe):
    return lay["mirrors"][mirror]["objects"][stripe]["ds"]


def mirrors(cluster, layout, log):
    with open(layout, encoding="utf-8") as f:
        lay = json.load(f)
    stripes, unit = len(lay["mirrors"][0]["objects"]), lay["unit"]
    bad = [o["state"] for m in lay["mirrors"] for o in m["objects"] if o["state"] != "in-sync"]
    if bad:
        sys.exit(f"objects are {bad}")
    objects = []
    for m in lay["mirrors"]:
        row = []
        for o in m["objects"]:
            with open(os.path.join(cluster, o["ds"], o["object"]), "rb") as f:
                row.append(f.read())
        objects.append(row)
    for s in range(stripes):
        for m, row in enumerate(objects[1:], 1):
            a, b = objects[0][s], row[s]
            if stripes > 1 and "g" in {objects_on(lay, 0, s)[0], objects_on(lay, m, s)[0]}:
                # On any NFSv3 server an object of a striped file extends to the end of the file
                # that a client saw (docs/generic.md).
                a, b = (x.ljust(max(len(a), len(b)), b"\0") for x in (a, b))
            if a != b:
                at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                sys.exit(f"stripe {s}: mirror {m} ({len(b)} bytes, "
                         f"{lay['mirrors'][m]['objects'][s]['ds']}) differs from mirror 0 "
                         f"({len(a)} bytes, "
                         f"{lay['mirrors'][0]['objects'][s]['ds']}) at {at}: "
                         f"{b[at:at + 24].hex()} for {a[at:at + 24].hex()}")
    size = max(len(o) for o in objects[0])
    whole = bytearray(size)
    for off in range(0, size, unit):
        piece = objects[0][off // unit % stripes][off:off + unit]
        whole[off:off + len(piece)] = piece
    wrong, pages = look(bytes(whole), [log])
    tell(wrong, "the copies")
    if not pages:
        sys.exit("nothing was written")


def cmd_mirrors(cluster, folder, shared, *names):
    for name in names:
        mirrors(cluster, os.path.join(folder, name + ".layout"),
                os.path.join(shared, name + ".log"))


def acks(log):
    """(begun, acknowledged) times of each block."""
    begun, out = {}, []
    with open(log, encoding="ascii") as f:
        for line in f:
            w = line.split()
            if w[0] == "i":
                begun.setdefault((w[1], w[2]), float(w[3]))
            elif w[0] == "a":
                out.append((begun[w[1], w[2]], float(w[3])))
    return out


def cmd_count(log):
    with open(log, encoding="ascii") as f:
        errors = sum(line.startswith("e ") for line in f)
    done = acks(log)
    print(len(done), errors, f"{max([a - i for i, a in done] + [0]):.1f}")


sys.exit(globals()["cmd_" + sys.argv[1]](*sys.argv[2:]))
