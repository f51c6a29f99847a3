#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Layouts of an export that demands krb5i or krb5p, for a client that has both Kerberos and TLS.
The way to the data is protected as well, or there is no layout. Prints TAP."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
try:
    import gssapi  # noqa: F401
except ImportError as e:
    print("1..0 # skip python3-gssapi is missing", e)
    sys.exit(0)
import gss  # noqa: E402
import tls_wire  # noqa: E402
from gss import Cred, GssClient, GssConn  # noqa: E402
from harness import ADDR, Cluster, check  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402
from tap import BUILD  # noqa: E402

EVERYBODY = 'client "*" { access = rw  squash = none  privileged_port = false  sec = '
TOP = REALM = W = KIND = None


class BothConn(GssConn):
    def __init__(self, addr, on_call=None, source=None):
        self.gss = {}
        tls_wire.TlsConn.__init__(self, addr, on_call, ctx=tls_wire.context())


class BothClient(GssClient):
    def connection(self):
        return BothConn(self.addr, self._on_call)


def cluster(ds_tls):
    """A cluster whose data servers have this TLS setting: the one that runs, or a new one."""
    global W, KIND
    if KIND == ds_tls:
        return W
    if W:
        W.down()
    W, KIND = None, ds_tls
    tls_wire.live()
    certs = tls_wire.CERTS
    settings = [f"mds.keytab={REALM.keytab('nfs/localhost')}", "mds.idmap_domain=weft.test",
                "mds.tls=optional", f"ds.tls={ds_tls}"]
    settings += [s for d in ("mds", "ds") for s in (f"{d}.tls_cert={certs['live']}",
                                                    f"{d}.tls_key={certs['live.key']}",
                                                    f"{d}.tls_ca={certs['trusted']}")]
    W = Cluster(1, settings)
    boss = GssClient(ADDR, cred=auth_sys(0, 0))
    boss.ok(putfh(boss.mkdir(boss.root(), "safe")), setattr_(mode=0o777))
    boss.drop()
    return W


def layouts(ds_tls, kind, layouts="", safe="krb5i, krb5p", service=2):
    """What LAYOUTGET and fs_layout_types say of an export with these flavours, where data servers
    have this TLS setting, for a client of this kind."""
    w = cluster(ds_tls)
    with open(w.dir + "/exports", "w", encoding="utf-8") as f:
        f.write('export "/" { %s{sys, krb5, krb5i, krb5p} } }\nexport "/safe" { %s{%s} '
                '%s } }\n' % (EVERYBODY, EVERYBODY, safe, layouts))
    subprocess.run([os.path.join(BUILD, "weft"), "--admin", f"unix:{w.dir}/run/mds.sock", "exports",
                    "reload"], check=True, capture_output=True)
    conn = GssConn(ADDR)
    c = kind(ADDR, cred=conn.init(Cred(REALM.login("games"), service)))
    try:
        inside = c.ok(putrootfh(), lookup("safe"), getfh()).fh
        s, f = c.open(inside, f"{ds_tls} {kind.__name__} {layouts} {safe} {service}")
        got = err(c.call(putfh(f), layoutget(s)).status)
        types = c.attrs(inside, "fs_layout_types").fs_layout_types
        # The server recalls its layout where there is one.
        check(err(c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                          write(s, 0, b"data", FILE_SYNC)).status), "OK")
        check(c.ok(putfh(f), read(s, 0, 9)).data, b"data")
    finally:
        c.drop()
        conn.close()
    return got, types


def test_none_where_data_servers_take_less():
    check(layouts("optional", BothClient), ("LAYOUTUNAVAILABLE", []))


def test_krb5_alone_demands_nothing_of_the_data():
    check(layouts("optional", GssClient, safe="krb5, krb5i", service=1), ("OK", [FLEX]))


def test_what_a_request_has_its_data_has_where_the_export_takes_less():
    every = "sys, krb5, krb5i, krb5p"
    for service, want in ((1, ("OK", [FLEX])), (2, ("LAYOUTUNAVAILABLE", [])),
                          (3, ("LAYOUTUNAVAILABLE", []))):
        check(layouts("optional", GssClient, safe=every, service=service), want,
              f"service {service}")
    for service in (1, 3):
        check(layouts("optional", BothClient, safe=every, service=service), ("OK", [FLEX]),
              f"over TLS, which it speaks to data servers as well, service {service}")
        check(layouts("off", BothClient, safe=every, service=service), ("LAYOUTUNAVAILABLE", []),
              f"over TLS, which they do not take, service {service}")
    check(layouts("optional", GssClient, "layouts = yes", every, 3), ("OK", [FLEX]),
          "the administrator vouches")


def test_over_tls_where_data_servers_demand_it():
    check(layouts("required", BothClient), ("OK", [FLEX]))
    check(layouts("required", BothClient, safe="sys, krb5, krb5i, krb5p", service=3),
          ("OK", [FLEX]))


def test_none_for_a_client_without_tls():
    check(layouts("required", GssClient), ("LAYOUTUNAVAILABLE", []))


def test_none_where_the_administrator_says_so():
    check(layouts("required", BothClient, "layouts = no"), ("LAYOUTUNAVAILABLE", []))


def main():
    global TOP, REALM
    for p in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "openssl"):
        if not shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            tap.skip(f"{p} is missing")
            return
    if not tap.built():
        tap.skip("the daemons are not built")
        return
    TOP = tempfile.mkdtemp(prefix="weft-tls-krb5.")
    try:
        tls_wire.CERTS = tls_wire.Certs()
        REALM = gss.Realm(TOP, "games", "nfs/localhost", skew=1)
        tap.run(tap.named(globals()))
    finally:
        tls_wire.down(TOP, W, REALM)


if __name__ == "__main__":
    main()
