#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft-addr: service addresses, announcements, dropped SYNs, tickle ACKs. Nodes are networks on one
bridge. Prints TAP."""
import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import BUILD, check, eventually, Failed, stand_still  # noqa: E402
from load import Watch  # noqa: E402
from nodes import Addr, Holder, V4, V6, world  # noqa: E402

HOLD = f"HOLD 2049 {V4} {V6}"
TABLE = "table inet weft_addr"


def connect(node, ip, port, seconds):
    """A connection, the error, or None after so many seconds."""
    s = node.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET)
    s.settimeout(seconds)
    try:
        s.connect((ip, port))
        return s
    except TimeoutError:
        s.close()
        return None
    except OSError as e:
        s.close()
        return e.errno


def reached(node, ip):
    """The node has a neighbour entry for the address."""
    with node.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"", (ip, 9))
    eventually(lambda: node.neighbour(ip), what="a neighbour entry")
    return node.neighbour(ip)


@contextlib.contextmanager
def addrs(nodes, folder, *options):
    made = []
    try:
        for node in nodes:
            made.append(Addr(node, folder, *options))
        yield made
    finally:
        for a in made:
            a.end()


def test_an_address_is_there_while_it_is_held():
    with world(1) as ((n1,), folder), addrs([n1], folder) as (a,):
        h = a.holder()
        check(h.states(), {V4: "free", V6: "free"})
        check(n1.has(V4) or n1.has(V6), False)
        h.ask(HOLD)
        check((n1.has(V4), n1.has(V6)), (True, True))
        check(" tentative" in n1.run("ip", "-o", "addr", "show", "to", V6), False)
        check(h.states(), {V4: "quiet", V6: "quiet"})
        h.ask("LISTENING")
        check(h.states(), {V4: "open", V6: "open"})
        # Another holder gets neither of them, and takes nothing away.
        other = a.holder()
        other.ask(HOLD, f"ERROR {V4}: it is held")
        other.ask("LISTENING", "ERROR nothing is held")
        other.ask("RELEASE")
        check((n1.has(V4), n1.has(V6)), (True, True))
        # An administrator's mistake is mended.
        n1.run("ip", "addr", "del", f"{V4}/32", "dev", "eth0")
        eventually(lambda: n1.has(V4), what="the address again")
        h.ask("RELEASE")
        check((n1.has(V4), n1.has(V6)), (False, False))
        other.ask(HOLD)


def test_what_the_configuration_lacks_is_not_held():
    with world(1) as ((n1,), folder), addrs([n1], folder) as (a,):
        h = a.holder()
        h.ask(f"HOLD 2049 {V4} 10.9.0.101",
              "ERROR 10.9.0.101: the configuration does not allow it")
        check(n1.has(V4) or n1.has("10.9.0.101"), False)
        check(h.states(), {V4: "free", V6: "free"})
        check(TABLE in n1.run("nft", "list", "tables"), False)
        h.ask(f"TICKLE\n{V4} 2049 10.9.0.3 700", f"ERROR {V4}: not held")
        h.ask(HOLD)
        h.ask(f"TICKLE\n{V4} 22 10.9.0.3 700", f"ERROR {V4}: not a port of HOLD")
        h.ask(f"TICKLE\n10.9.0.1 2049 10.9.0.3 700", "ERROR 10.9.0.1: not held")
        # Its peer would connect again at once, to nobody.
        h.ask(f"TICKLE\n{V4} 2049 10.9.0.3 700", f"ERROR {V4}: LISTENING comes first")
        h.ask("LISTENING")
        h.ask(f"TICKLE\n{V4} 2049 10.9.0.3 700", "OK 1")


def checked(folder, text):
    """The exit status of weft-addr -n with that configuration, and what it says."""
    conf = os.path.join(folder, "checked.conf")
    with open(conf, "w", encoding="utf-8") as f:
        f.write(text)
    done = subprocess.run([os.path.join(BUILD, "weft-addr"), "-n", "-c", conf], text=True,
                          capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_only_host_addresses_that_can_move_are_configured():
    with tempfile.TemporaryDirectory() as folder:
        check(checked(folder, "10.9.0.100 eth0\nfd09::100/128 eth1\n10.9.0.101/32 eth0\n")[0], 0)
        for line in ("10.9.0.100/24", "10.9.0.100/0", "10.9.0.100/33", "fd09::100/64",
                     "10.9.0.100/", "127.0.0.1", "::1", "fe80::1", "169.254.1.1", "224.0.0.1",
                     "::ffff:10.9.0.100", "0.0.0.0", "::", "10.9.0"):
            status, said = checked(folder, f"# one\n{line} eth0\n")
            check((status, line in said, said.count("\n")), (2, True, 1), f"{line}: {said}")


def test_an_address_makes_no_second_route_to_its_network():
    with world(1) as ((n1,), folder), addrs([n1], folder) as (a,):
        def routes():
            return [sorted(n1.run("ip", family, "route", "show").splitlines())
                    for family in ("-4", "-6")]
        before = routes()
        a.holder().ask(HOLD)
        check(routes()[0], before[0])
        # The kernel shows a host's own address as a route of its family, and no network.
        check([r for r in routes()[1] if r not in before[1] and not r.startswith(V6 + " ")], [])


def test_an_interface_goes_and_comes_back():
    with world(1) as ((n1,), folder), addrs([n1], folder) as (a,):
        h = a.holder()
        h.ask(HOLD)
        h.ask("LISTENING")
        # The kernel takes IPv6 addresses from an interface that goes down.
        n1.run("ip", "link", "set", "eth0", "down")
        n1.run("ip", "link", "set", "eth0", "up")
        eventually(lambda: n1.has(V4) and n1.has(V6), what="both addresses")
        # One that has another name still has the addresses, and they go with it.
        n1.run("ip", "link", "set", "eth0", "down")
        n1.run("ip", "link", "set", "eth0", "name", "lan0")
        eventually(lambda: "cannot be put back" in a.said(), what="the missing interface")
        h.ask("RELEASE")
        check([ip for ip in (V4, V6) if f" {ip}/" in n1.run("ip", "-o", "addr")], [])
        h.ask(f"HOLD 2049 {V4}", f"ERROR {V4}: there is no such interface")
        n1.run("ip", "link", "set", "lan0", "name", "eth0")
        n1.run("ip", "link", "set", "eth0", "up")
        h.ask(HOLD)
        check((n1.has(V4), n1.has(V6)), (True, True))


def test_an_address_of_the_node_itself_stays():
    with world(1) as ((n1,), folder):
        n1.run("ip", "addr", "add", f"{V4}/32", "dev", "eth0")
        with addrs([n1], folder) as (a,):
            h = a.holder()
            h.ask(HOLD)
            h.ask("RELEASE")
            check((n1.has(V4), n1.has(V6)), (True, False))
            h.ask(HOLD)
        check((n1.has(V4), n1.has(V6)), (True, False))


def test_it_has_two_capabilities_and_answers_its_group():
    with world(1) as ((n1,), folder), addrs([n1], folder) as (a,):
        with open(f"/proc/{a.pid}/status", encoding="utf-8") as f:
            caps = [line.split()[1] for line in f
                    if line.startswith(("CapEff", "CapPrm", "CapBnd"))]
        check(caps, ["0000000000003000"] * 3)
        check(os.stat(a.path).st_mode & 0o777, 0o660)
        # Even where the mode lets it in, the daemon asks the kernel about its peer.
        os.chmod(a.path, 0o666)
        os.chmod(folder, 0o755)
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            try:
                with contextlib.suppress(OSError):
                    Holder(a.path).raw(b"STATUS") or os._exit(3)
                    os._exit(1)
                os._exit(3)
            finally:
                os._exit(2)
        check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 3)
        check("refused: not of the group" in a.said(), True)
        check(len(a.holder().states()), 2)


def test_what_is_no_message_is_refused():
    with world(1) as ((n1,), folder), addrs([n1], folder) as (a,):
        h = a.holder()
        for text in (b"HELLO", b"HOLD", b"HOLD 2049", b"HOLD 0 10.9.0.100", b"HOLD 65536 ::1",
                     b"HOLD 2049 10.9.0.100 10.9.0.100", b"HOLD 2049 10.9.0.100/24", b"LIVE",
                     b"LIVE 0", b"LIVE -1", b"LIVE 99999999999999999999", b"TICKLE",
                     b"TICKLE\n1 2 3", b"TICKLE\n10.9.0.100 1 fd09::1 1", b"STATUS now", b"\0",
                     b"HOLD 2049,2049 10.9.0.100", b"LIVE 500 KEPT",
                     b"LIVE 500 KEEP 1", b"LIVE KEEP",
                     b"TICKLE\n10.9.0.100 2049 224.0.0.1 1",
                     b"TICKLE\n10.9.0.100 2049 ::ffff:10.9.0.3 1", b"STATUS" + b" " * 65536,
                     b"HOLD " + b"1," * 9 + b" ::1", b"\xff" * 100, b"TICKLE\n" + b"a\n" * 20000):
            got = h.raw(text)
            check(got.startswith("ERROR ") and len(got) < 200, True, f"{text[:40]}: {got}")
            check(got.isascii() and "\n" not in got, True, got)
        check(h.states(), {V4: "free", V6: "free"})


def test_neighbours_follow_the_address_and_stay():
    with world(1, 2, 3) as ((n1, n2, c), folder), addrs([n1, n2], folder) as (a1, a2):
        h1, h2 = a1.holder(), a2.holder()
        h1.ask(HOLD)
        for ip in (V4, V6):
            check(reached(c, ip), n1.mac)
        # Node 1 is cut off; it still has the address when node 2 holds it.
        n1.cut()
        h2.ask(HOLD)
        for ip in (V4, V6):
            eventually(lambda ip=ip: c.neighbour(ip) == n2.mac, what=f"{ip} at node 2")
        # It comes back, with the address, and says so itself, before any process of it runs.
        a1.proc.send_signal(signal.SIGSTOP)
        n1.mend()
        check(n1.has(V4), True)
        steal(n1, c, V4)
        eventually(lambda: c.neighbour(V4) == n2.mac, what="the address back at node 2")
        # Nothing else brings it back: without the repeated announcements it stays stolen.
        a2.proc.send_signal(signal.SIGSTOP)
        steal(n1, c, V4)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            check(c.neighbour(V4), n1.mac)
            time.sleep(0.1)
        a2.proc.send_signal(signal.SIGCONT)
        eventually(lambda: c.neighbour(V4) == n2.mac, what="the address back at node 2")
        a1.proc.send_signal(signal.SIGCONT)
        # Each start of weft-addr there makes an end to what a former run left.
        a1.kill()
        check(n1.has(V4), True)
        a1.start()
        check((n1.has(V4), n1.has(V6)), (False, False))


def steal(node, c, ip):
    """The node's own gratuitous ARP, until the client believes it."""
    mac = bytes.fromhex(node.mac.replace(":", ""))
    with node.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        s.bind(("eth0", 0x0806))

        def done():
            s.send(b"\xff" * 6 + mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + mac
                   + socket.inet_aton(ip) + bytes(6) + socket.inet_aton(ip))
            end = time.monotonic() + 0.1
            while time.monotonic() < end:
                if c.neighbour(ip) == node.mac:
                    return True
            return False
        eventually(done, what="an address that is stolen")


def test_a_connect_is_never_refused():
    with world(1, 3) as ((n1, c), folder), addrs([n1], folder, "-w", "1.5") as (a,):
        h = a.holder()
        h.ask(HOLD)
        for ip in (V4, V6):
            reached(c, ip)
            check(connect(c, ip, 2049, 0.5), None, "a SYN while nobody listens")
            # The table is for the port of HOLD alone.
            check(connect(c, ip, 2050, 5), 111, "another port")
        # Who began to connect too early is served as soon as the daemon listens.
        early = c.socket(socket.AF_INET)
        early.setblocking(False)
        early.connect_ex((V4, 2049))
        servers = [n1.listen(ip, 2049) for ip in (V4, V6)]
        h.ask("LISTENING")
        check(TABLE in n1.run("nft", "list", "tables"), False)
        check(bool(select.select([], [early], [], 60)[1]), True)
        check(early.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)
        # The daemon dies: its clients wait, until it is back or the address goes.
        h.close()
        for s in servers:
            s.close()
        other = a.holder()
        eventually(lambda: other.states()[V4] == "waiting", what="an address that waits")
        check(connect(c, V4, 2049, 0.3), None)
        check(n1.has(V4), True)
        other.ask(HOLD)
        check(other.states()[V4], "quiet")
        other.close()
        third = a.holder()
        eventually(lambda: third.states()[V4] == "free", what="an address that is free")
        check((n1.has(V4), n1.has(V6)), (False, False))
        check(TABLE in n1.run("nft", "list", "tables"), False)


def died(s):
    """What an idle connection says: a reset, or nothing."""
    return bool(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) or \
        s.getsockopt(socket.SOL_TCP, 11, 1)[0] != 1  # TCP_INFO: ESTABLISHED


def test_tickled_connections_end_and_others_do_not():
    with world(1, 2, 3) as ((n1, n2, c), folder), addrs([n1, n2], folder) as (a1, a2):
        h1, h2 = a1.holder(), a2.holder()
        h1.ask(HOLD)
        servers = {ip: n1.listen(ip, 2049) for ip in (V4, V6)}
        h1.ask("LISTENING")
        mine, kept = {ip: connect(c, ip, 2049, 60) for ip in servers}, []
        for ip, s in mine.items():
            check(isinstance(s, socket.socket), True, f"{ip}: {s}")
            kept.append(servers[ip].accept()[0])
        # A power cut: nothing of node 1 leaves it any more.
        n1.cut()
        h2.ask(HOLD)
        h2.ask("LISTENING")
        # The control: an idle connection is not told by itself, in 5 s.
        end = time.monotonic() + 5
        while time.monotonic() < end:
            check([died(s) for s in mine.values()], [False, False])
            time.sleep(0.1)
        for ip, s in mine.items():
            began, watch = time.monotonic(), Watch(a2.pid)
            h2.ask(f"TICKLE\n{ip} 2049 {s.getsockname()[0]} {s.getsockname()[1]}\n", "OK 1")
            while not died(s):
                if time.monotonic() > began + 60:
                    raise Failed(f"{ip}: still established after 60 s")
                time.sleep(0.002)
            took = watch.took()
            tap.say(f"{ip}: reset after {took * 1e3:.0f} ms")
            # The four packets leave within a second.
            check(took < 1, True, f"{ip}: reset after {took:.2f} s")
        # Each is sent four times, and then forgotten.
        eventually(lambda: "tickles 0" in h2.raw(b"STATUS").splitlines()[0], what="the end")
        # A connection that lives is not hurt by it.
        server = n2.listen(V4, 2049)
        live = connect(c, V4, 2049, 60)
        other = server.accept()[0]
        h2.ask(f"TICKLE\n{V4} 2049 {live.getsockname()[0]} {live.getsockname()[1]}", "OK 1")
        eventually(lambda: "tickles 0" in h2.raw(b"STATUS").splitlines()[0], what="the end")
        live.send(b"x")
        check(other.recv(1), b"x")


def states(node, port):
    """{state} of the node's TCP connections with that peer port, as /proc/net/tcp has them."""
    rows = node.run("cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines()
    return {int(r.split()[3], 16) for r in rows if r.split()[2].endswith(f":{port:04X}")}


def bound(node, ip, port):
    """A connection from that port of the node."""
    s = node.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", port))
    s.settimeout(60)
    s.connect((ip, 2049))
    return s


def away(s):
    """Ends a connection without a word to anybody but one RST."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def test_what_a_node_closed_before_does_not_answer_a_tickled_peer():
    """The peer has the same port again that it had when it last was at this node."""
    port, waits, fin = 901, 6, 4
    with world(1, 2, 3) as ((n1, n2, c), folder), addrs([n1, n2], folder) as (a1, a2):
        h1 = a1.holder()
        h1.ask(HOLD)
        servers = {ip: n1.listen(ip, 2049) for ip in (V4, V6)}
        h1.ask("LISTENING")
        # The daemon of IPv6 says its end to the peer, and that of IPv4 cannot.
        first = {ip: bound(c, ip, port) for ip in servers}
        kept = {ip: s.accept()[0] for ip, s in servers.items()}
        kept.pop(V6).close()
        first.pop(V6).close()
        eventually(lambda: states(n1, port) == {1, waits}, what="TIME_WAIT at node 1")
        h1.ask("RELEASE")
        kept.pop(V4).close()
        eventually(lambda: states(n1, port) == {fin, waits}, what="FIN_WAIT1 at node 1")
        away(first.pop(V4))
        # The peer is at node 2, which has a power cut then.
        h2 = a2.holder()
        h2.ask(HOLD)
        others = {ip: n2.listen(ip, 2049) for ip in (V4, V6)}
        h2.ask("LISTENING")
        for ip in others:
            eventually(lambda ip=ip: reached(c, ip) == n2.mac, what=f"{ip} at node 2")
        mine = {ip: bound(c, ip, port) for ip in others}
        kept = [s.accept()[0] for s in others.values()]
        n2.cut()
        h1.ask(HOLD)
        check(states(n1, port), set(), "none is left")
        h1.ask("LISTENING")
        for ip, s in mine.items():
            h1.ask(f"TICKLE\n{ip} 2049 {s.getsockname()[0]} {port}", "OK 1")
        for ip, s in mine.items():
            eventually(lambda s=s: died(s), what=f"a reset of {ip}")
        # What a program has goes on.
        live = bound(c, V4, 902)
        other = servers[V4].accept()[0]
        h1.close()
        h1 = a1.holder()
        eventually(lambda: h1.states()[V4] == "waiting", what="an address that waits")
        h1.ask(HOLD)
        live.send(b"x")
        check(other.recv(1), b"x")


def test_what_a_program_shut_down_stays():
    """The kernel has such a connection in a state of closed ones, and the program reads on."""
    with world(1, 3) as ((n1, c), folder), addrs([n1], folder) as (a,):
        # This kernel ends orphans, and weft-addr has seen it.
        check("this kernel does not end" in a.said(), False, a.said())
        h = a.holder()
        h.ask(HOLD)
        servers = {ip: n1.listen(ip, 2049) for ip in (V4, V6)}
        h.ask("LISTENING")
        mine = {ip: bound(c, ip, 903) for ip in servers}
        kept = {ip: s.accept()[0] for ip, s in servers.items()}
        for s in kept.values():
            s.shutdown(socket.SHUT_WR)
        eventually(lambda: states(n1, 903) == {5}, what="FIN_WAIT2 at node 1")
        h.close()
        h = a.holder()
        eventually(lambda: h.states()[V4] == "waiting", what="an address that waits")
        h.ask(HOLD)
        check(states(n1, 903), {5}, "half-closed connections")
        for ip, s in mine.items():
            s.send(b"x")
            check(kept[ip].recv(1), b"x", ip)


def test_many_rows_are_sent_at_a_rate():
    with world(1, 3) as ((n1, c), folder), addrs([n1], folder) as (a,):
        h = a.holder()
        h.ask(HOLD)
        h.ask("LISTENING")
        reached(c, V4)
        sniff = c.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
        sniff.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        sniff.bind(("eth0", 0x0800))
        for part in range(4):
            rows = "\n".join(f"{V4} 2049 10.9.0.3 {1000 + part * 700 + i}" for i in range(700))
            h.ask(f"TICKLE\n{rows}", "OK 700")
        seen, most, end = {}, [], time.monotonic() + 60
        while sum(seen.values()) < 4 * 2800 and time.monotonic() < end:
            if select.select([sniff], [], [], 0.5)[0]:
                packet, now = sniff.recv(200), time.monotonic()
                if packet[9] == 6 and packet[12:16] == socket.inet_aton(V4) \
                        and packet[33] == 0x10:
                    port = struct.unpack("!H", packet[22:24])[0]
                    seen[port] = seen.get(port, 0) + 1
                    most.append(now)
        check((len(seen), set(seen.values())), (2800, {4}))
        tap.say(f"{len(most)} packets in {most[-1] - most[0]:.2f} s")


def test_what_a_holder_said_before_its_end_counts():
    with world(1) as ((n1,), folder), addrs([n1], folder, "-w", "forever") as (a,):
        h = a.holder()
        check(h.states(), {V4: "free", V6: "free"})
        stand_still(a.pid)
        h.s.send(HOLD.encode())
        h.s.send(b"RELEASE")
        h.close()
        a.proc.send_signal(signal.SIGCONT)
        other = a.holder()
        eventually(lambda: other.states() == {V4: "free", V6: "free"}, what="free addresses")
        check((n1.has(V4), n1.has(V6)), (False, False))
        check("held" in a.said(), True, a.said())


def test_what_a_crash_left_is_removed():
    with world(1) as ((n1,), folder), addrs([n1], folder) as (a,):
        n1.run("ip", "addr", "add", "10.9.0.200/32", "dev", "eth0")
        h = a.holder()
        h.ask(HOLD)
        a.kill()
        check((n1.has(V4), n1.has(V6), TABLE in n1.run("nft", "list", "tables")), (True,) * 3)
        a.start()
        check((n1.has(V4), n1.has(V6), TABLE in n1.run("nft", "list", "tables")), (False,) * 3)
        check(n1.has("10.9.0.200"), True)
        # "forever" is also for what a former run left: no holder has to come in time.
        h = a.holder()
        h.ask(HOLD)
        a.kill()
        a.start("-k", "-w", "forever")
        end = time.monotonic() + 1
        while time.monotonic() < end:
            check(a.holder().states(), {V4: "waiting", V6: "waiting"})
            time.sleep(0.05)
        check((n1.has(V4), n1.has(V6)), (True, True))
        a.kill()
        a.start()
        check((n1.has(V4), n1.has(V6)), (False, False))
        # Told to keep them, it gives them to the next holder, and lets go when none comes.
        h = a.holder()
        h.ask(HOLD)
        h.ask("LISTENING")
        a.kill()
        a.start("-k", "-w", "1")
        check(a.holder().states(), {V4: "waiting", V6: "waiting"})
        h = a.holder()
        h.ask(HOLD)
        h.ask("LISTENING")
        a.end()
        check((n1.has(V4), n1.has(V6)), (True, True))
        a.start("-k", "-w", "1")
        h = a.holder()
        eventually(lambda: h.states() == {V4: "free", V6: "free"}, what="no holder")
        check((n1.has(V4), n1.has(V6)), (False, False))


def test_a_second_one_does_not_start():
    with world(1) as ((n1,), folder), addrs([n1], folder) as (a,):
        h = a.holder()
        h.ask(HOLD)
        # It is there, although it takes no connection any more.
        a.proc.send_signal(signal.SIGSTOP)
        waiting = []
        with contextlib.suppress(BlockingIOError):
            while len(waiting) < 1000:
                waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                waiting[-1].setblocking(False)
                waiting[-1].connect(a.path)
        check(len(waiting) < 1000, True)
        done = subprocess.run(["nsenter", "-t", str(n1.pid), "-n",
                               os.path.join(BUILD, "weft-addr"), "-c", a.conf, "-s", a.path, "-g",
                               "root"], text=True, capture_output=True, timeout=60, check=False)
        check((done.returncode, "another weft-addr" in done.stderr), (1, True), done.stderr)
        check((n1.has(V4), n1.has(V6)), (True, True))
        for s in waiting:
            s.close()
        a.proc.send_signal(signal.SIGCONT)
        h.ask("RELEASE")


def test_it_takes_only_times_that_make_sense():
    for text in ("nan", "inf", "-1", "1e300", "", "2s", "86401", "Forever"):
        done = subprocess.run([os.path.join(BUILD, "weft-addr"), "-n", "-c", "/dev/null", "-w",
                               text], text=True, capture_output=True, timeout=60, check=False)
        check((done.returncode, "-w wants seconds" in done.stderr), (2, True), text)
    for text in ("0", "0.0001", "86400", "forever"):
        subprocess.run([os.path.join(BUILD, "weft-addr"), "-n", "-c", "/dev/null", "-w", text],
                       capture_output=True, timeout=60, check=True)


def test_who_does_not_say_that_it_lives_loses_the_address():
    with world(1) as ((n1,), folder), addrs([n1], folder) as (a,):
        h = a.holder()
        h.ask("LIVE 500", "ERROR nothing is held")
        h.ask(HOLD)
        h.ask("LISTENING")
        began = time.monotonic()
        h.ask("LIVE 300")
        while n1.has(V4) or n1.has(V6):
            check(time.monotonic() < began + 60, True)
        check(time.monotonic() > began + 0.3, True)
        check(h.states(), {V4: "lapsed", V6: "lapsed"})
        h.ask(f"TICKLE\n{V4} 2049 10.9.0.3 700", f"ERROR {V4}: not held")
        h.ask("LIVE 60000")
        check((n1.has(V4), n1.has(V6)), (True, True))
        check(h.states(), {V4: "open", V6: "open"})


if __name__ == "__main__":
    if os.geteuid() or not all(shutil.which(p) for p in ("nsenter", "nft", "ip")):
        tap.skip("only root can make networks, with ip and nft")
    elif not tap.built("weft-addr"):
        tap.skip("weft-addr is not built")
    else:
        tap.run(tap.named(globals()), beside=4)
