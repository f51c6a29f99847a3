#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""libweft (client/weft.h) against a live cluster. Prints TAP.

tests/wirelib/weft_client does what a test's name says. This file does what happens to the server
meanwhile.
"""
import os
import random
import select
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import ADDR, Client, Cluster, Failed, check  # noqa: E402
from libweft import libweft  # noqa: E402
from nfs41 import lookup, putfh, putrootfh, setattr_, setxattr  # noqa: E402

THE = None


class Proxy:
    """A proxy between client and server. When cutting, it sometimes closes a connection instead of
    passing on a reply."""

    def __init__(self, seed=1):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.cutting, self.rng = False, random.Random(seed)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(near, socket.create_connection(ADDR)),
                             daemon=True).start()

    def carry(self, near, far):
        while True:
            for s in select.select([near, far], [], [])[0]:
                try:
                    got = s.recv(1 << 16)
                    if not got or (self.cutting and s is far and self.rng.random() < 0.1):
                        raise OSError
                    (far if s is near else near).sendall(got)
                except OSError:
                    near.close()
                    far.close()
                    return

    def close(self):
        self.listener.close()


def test_names_attributes_and_links():
    libweft("names", WEFT_MINOR="1")


def test_minor_version_2_is_spoken_where_there_is_one():
    said = libweft("many")
    if not said or not said[-1].endswith("minor 2"):
        raise Failed(f"{said}")


def test_a_path_longer_than_a_compound():
    libweft("paths")


def test_data_in_many_calls():
    libweft("data")


def test_null_calls():
    libweft("null")


def test_an_idle_client_keeps_its_lease():
    libweft("idle")


def test_replies_that_are_lost_are_given_again():
    proxy = Proxy()
    try:
        libweft("cut", {"begin": lambda: setattr(proxy, "cutting", True)}, proxy.address)
    finally:
        proxy.close()


def test_servers_that_start_again_give_files_back_and_get_what_they_lost():
    def restart():
        for name in ("mds", "ds1", "ds2", "ds3", "ds4"):
            THE.restart(name)
    libweft("restart", {"restart": restart})


def folder(name, policy):
    """Files that a program makes in it have this policy."""
    c = Client(ADDR)
    try:
        d = c.mkdir(c.root(), name)
        c.ok(putfh(d), setxattr("weft.policy", policy))
    finally:
        c.close()
    return name


def writes(said):
    return int(said[-1].split()[1])


def test_memory_that_is_registered_is_memory_without_rdma():
    libweft("registered", WEFT_TOP=folder("registered", "stripes=2,mirrors=2"))


def test_data_go_straight_to_striped_and_mirrored_data_servers():
    plain = writes(libweft("straight", WEFT_TOP=folder("plain", "stripes=1,mirrors=1")))
    libweft("content", WEFT_TOP="plain")
    for minor in ("1", "2"):
        top = folder("striped" + minor, "stripes=2,unit=1M,mirrors=2")
        many = writes(libweft("straight", WEFT_TOP=top, WEFT_MINOR=minor))
        check(plain >= 6 and many >= 2 * plain, True,
              f"{plain} writes to one server, {many} to four")
        libweft("content", WEFT_TOP=top)


def test_a_recall_is_answered_with_all_data_safe():
    top = folder("recalled", "mirrors=2")

    def recall():
        c = Client(ADDR)
        try:
            c.ok(putrootfh(), lookup(top), lookup("recall"), setattr_(mode=0o640))
        finally:
            c.close()
    libweft("recall", {"recall": recall}, WEFT_TOP=top)


def test_what_data_servers_lost_is_written_again():
    def restart():
        for name in ("ds1", "ds2", "ds3", "ds4"):
            THE.restart(name)
    libweft("lost", {"restart ds": restart}, WEFT_TOP=folder("lost", "mirrors=2"))


def test_what_is_written_again_comes_over_nothing_newer():
    def restart(*names):
        for name in names:
            THE.restart(name)
    servers = ("ds1", "ds2", "ds3", "ds4")
    for top, policy, names, env in (("older1", "mirrors=2", servers, {}),
                                    ("older2", "stripes=2,unit=1M,mirrors=2", servers, {}),
                                    ("older3", "mirrors=2", ("mds",) + servers, {}),
                                    ("older4", "mirrors=2", ("mds",) + servers,
                                     {"WEFT_NO_LAYOUTS": "1"})):
        libweft("older", {"restart": lambda names=names: restart(*names)},
                WEFT_TOP=folder(top, policy), **env)


def restarting(*names):
    return {"restart": lambda: [THE.restart(n) for n in names]}


def test_what_was_cut_off_does_not_come_back():
    servers = ("ds1", "ds2", "ds3", "ds4")
    libweft("shorter", restarting(*servers),
            WEFT_TOP=folder("shorter1", "stripes=2,unit=1M,mirrors=2"))
    libweft("shorter", restarting("mds", *servers), WEFT_TOP=folder("shorter2", "mirrors=2"),
            WEFT_NO_LAYOUTS="1")


def ops():
    return {name: THE.metric(r'weft_mds_op_total{op="%s"}' % name) for name in
            "SEQUENCE OPEN CLOSE GETATTR LAYOUTGET LAYOUTCOMMIT LAYOUTRETURN LAYOUTERROR "
            "GETDEVICEINFO READ WRITE".split()}


def test_nothing_is_asked_twice():
    top, was = folder("frugal", "stripes=1,mirrors=1"), ops()

    def count():
        now = ops()
        got = {k: int(now[k] - was[k]) for k in now}
        if not 1 <= got["GETDEVICEINFO"] <= 4:
            raise Failed(f"{got}")
        # 20 opens take three compounds each: OPEN with LAYOUTGET, LAYOUTCOMMIT, and LAYOUTRETURN
        # with CLOSE. 20 take two, without LAYOUTCOMMIT. Three more are RECLAIM_COMPLETE, the limits
        # and LOOKUP.
        want = {"OPEN": 40, "CLOSE": 40, "LAYOUTGET": 40, "LAYOUTRETURN": 40, "LAYOUTCOMMIT": 20,
                "LAYOUTERROR": 0, "READ": 0, "WRITE": 0, "GETATTR": 42,
                "SEQUENCE": 20 * 3 + 20 * 2 + 3 + got["GETDEVICEINFO"],
                "GETDEVICEINFO": got["GETDEVICEINFO"]}
        check(got, want)

    def count_names():
        now = ops()
        check({k: int(now[k] - was[k]) for k in ("OPEN", "CLOSE", "LAYOUTGET", "LAYOUTRETURN")},
              {"OPEN": 50, "CLOSE": 50, "LAYOUTGET": 40, "LAYOUTRETURN": 40})
    libweft("frugal", {"count": count, "count names": count_names}, WEFT_TOP=top)


def test_a_file_that_is_opened_twice_has_one_layout():
    libweft("twice", WEFT_TOP=folder("twice", "mirrors=2"))


def test_a_copy_that_cannot_be_read_is_told_and_the_layout_stays():
    servers = ("ds1", "ds2", "ds3", "ds4")
    reads, dead = {}, []

    def count():
        return {n: THE.metric(r'weft_ds_op_total{proc="READ"}', n) for n in servers}

    def kill():
        now = count()
        dead.append(max(servers, key=lambda n: now[n] - reads[n]))
        THE.dev("kill", THE.dir, dead[0], "-9")
    was = ops()
    try:
        said = libweft("report",
                       {"read": lambda: reads.update(count()), "kill what was read": kill},
                       WEFT_TOP=folder("report", "mirrors=2"))
    finally:
        for name in dead:
            THE.dev("start", THE.dir, name)
    check(said[-1], "reports 1")
    check(ops()["LAYOUTERROR"] - was["LAYOUTERROR"], 1)


def test_a_dead_data_server_stops_nobody():
    libweft("dead", {"kill ds": lambda: THE.dev("kill", THE.dir, "ds1", "-9")},
            WEFT_TOP=folder("dead", "stripes=2,mirrors=2"))
    THE.dev("start", THE.dir, "ds1")


def test_an_operation_ends_when_its_time_is_over():
    libweft("giveup", {"kill": lambda: THE.dev("kill", THE.dir, "mds", "-9")})
    libweft("refused")
    THE.dev("start", THE.dir, "mds")


def test_small_files_are_read_and_written_where_the_server_wants():
    global THE
    THE.down()
    THE = Cluster(ds=2, settings=["mds.threshold=64k"])
    libweft("steer")


def main():
    global THE
    if not tap.built("weft-mds", "weft-ds", "tests/wirelib/weft_client"):
        tap.skip("not built")
        return
    THE = Cluster(ds=4, settings=["mds.lease=4s"])
    try:
        tap.run(tap.named(globals()))
    finally:
        THE.down()


if __name__ == "__main__":
    main()
