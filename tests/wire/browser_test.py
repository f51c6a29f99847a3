#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The console in a Chromium without a screen, against a cluster. WEFT_PICTURES=FOLDER keeps
pictures of each page, light and dark, wide and narrow. Prints TAP."""
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import browser  # noqa: E402
import nfs41 as nfs  # noqa: E402
import tap  # noqa: E402
from browser import Browser, ConsoleCluster  # noqa: E402
from daemons import ask  # noqa: E402

HOSTILE = "<img src=x onerror=alert(1)>"
PAGES = ("health", "servers", "files/data", "files/data/model", "jobs", "events", "clients", "hot")
MAIN = "document.querySelector('main').innerText"


def token(c, role, name):
    return json.loads(c.weft("--json", "token", "create", "--role", role, "--name",
                             name))["token"]


def fill(c):
    """A directory with two files, and a token."""
    d = c.mkdir("/data")
    c.weft("policy", "set", "/data", "stripes=3,mirrors=2,unit=1M")
    n = c.nfs()
    for name in ("model", HOSTILE):
        sid, fh = n.open(d, name)
        for k in range(4):
            n.ok(nfs.putfh(fh), nfs.write(sid, k << 20, b"w" * (1 << 20), nfs.FILE_SYNC))


def heading(b, text):
    b.until(f"document.querySelector('main h1')?.textContent === {json.dumps(text)}")


def to(b, c, page, wait="true"):
    b.goto(f"{c.TLS}/console/#/{page}")
    b.until(f"location.hash === '#/{page}' && !{MAIN}.includes('Loading') && ({wait})")
    assert not b.js(f"/NaN|undefined/.test({MAIN})"), (page, b.js(MAIN)[:2000])


def quiet(b):
    """The browser complains of nothing but the page of a path that is not there."""
    got = [m for m in b.messages if "/v1/dir?path=/data/no-such" not in m]
    assert not got, got


def press(b, label):
    """Puts the focus on a button and presses it, as the keyboard does."""
    find = ("[...document.querySelectorAll('button')].find(x => (x.ariaLabel || "
            f"x.textContent).trim() === {json.dumps(label)})")
    b.until(find)
    b.js(f"{find}.focus()")
    b.key("Enter")


def test_a_browser_logs_in_with_a_token_and_the_keyboard(c, b):
    b.goto(f"{c.TLS}/console/")
    b.until("document.activeElement?.id === 'token'")
    b.type("weft_wrong")
    b.key("Enter")
    b.until("document.querySelector('[role=alert]').textContent.includes('unknown token')")
    b.js("document.querySelector('#token').select()")
    b.type(token(c, "operate", "op"))
    b.key("Tab")
    b.key("Enter")
    heading(b, "Health")
    assert b.js("document.cookie") == ""
    b.goto("about:blank")
    b.goto(f"{c.TLS}/console/")
    heading(b, "Health")
    b.until("document.querySelector('header').innerText.includes('token op (operate)')")
    # The wrong token is all that the browser complains of.
    assert [m for m in b.messages if "401" not in m] == [], b.messages


def test_the_pages_show_what_the_server_says(c, b):
    b.messages.clear()
    want = ask(c.admin["mds"], "GET", "/v1/file?path=/data/model")
    to(b, c, "servers", "document.querySelectorAll('tbody tr').length === 4")
    assert b.js("[...document.querySelectorAll('tbody th')].map(x => x.textContent).sort()") == [
        "ds1", "ds2", "ds3", "ds4"]
    to(b, c, "files/data/model", "document.querySelector('svg.layout')")
    said = b.js("document.querySelector('#layout-d').textContent")
    rows = b.js("[...document.querySelectorAll('tbody tr')].map(r => "
                "[...r.children].map(x => x.textContent))")
    got = [[str(m), str(n), o["ds"], o["state"]] for m, x in enumerate(want["mirrors"])
           for n, o in enumerate(x["objects"])]
    assert rows == got and len(got) == 6, (rows, got)
    for m, n, ds, state in got:
        assert f"stripe {n} on {ds}, {state}" in said.split(f"Mirror {m}:")[1], (m, n, said)
    assert b.js("document.querySelectorAll('svg.layout g > rect.unit').length") == 4 + 6
    for page, needle in (("clients", "4.2"), ("events", "started"), ("hot", "/data"),
                         ("jobs", "Nothing runs or waits"), ("health", "4 of 4")):
        to(b, c, page, f"{MAIN}.includes({json.dumps(needle)})")
    quiet(b)


def test_a_page_that_waits_for_its_answer_says_so(c, b):
    for page, path in (("files/data", "/v1/dir"), ("health", "/v1/status")):
        to(b, c, "jobs")
        b.js("((real, path) => { window.really = real; window.fetch = (at, ...more) => "
             "String(at).includes(path) ? new Promise(() => {}) : real(at, ...more); })"
             f"(window.fetch, {json.dumps(path)})")
        b.js(f"location.hash = '#/{page}'")
        b.until(f"location.hash === '#/{page}' && {MAIN}.includes('Loading')")
        b.js("window.fetch = window.really")
    to(b, c, "files/data/no-such", f"{MAIN}.includes('no-such')")


def test_a_hostile_name_is_text(c, b):
    to(b, c, "files/data", f"{MAIN}.includes({json.dumps(HOSTILE)})")
    assert b.js("document.querySelectorAll('img').length") == 0
    press_link = ("[...document.querySelectorAll('tbody a')].find(x => x.textContent === "
                  f"{json.dumps(HOSTILE)})")
    b.js(f"{press_link}.focus()")
    b.key("Enter")
    b.until("document.querySelector('svg.layout')")
    assert b.js("document.querySelector('#layout-t').textContent").endswith(HOSTILE)
    assert b.js("document.querySelectorAll('img').length") == 0
    quiet(b)


def test_the_keyboard_reaches_everything(c, b):
    to(b, c, "servers", "document.querySelectorAll('tbody tr').length === 4")
    b.goto("about:blank")
    to(b, c, "servers", "document.querySelectorAll('tbody tr').length === 4")
    b.key("Tab")
    got = b.js("document.activeElement.outerHTML.slice(0, 80)")
    assert 'class="skip"' in got, got
    b.key("Enter")
    got = b.js("[document.activeElement.id, location.hash]")
    assert got == ["main", "#/servers"], got
    names = b.js("[...document.querySelectorAll('a, button, select, input, [tabindex=\"0\"]')]"
                 ".filter(x => x.checkVisibility()).map(x => x.ariaLabel || "
                 "x.labels?.[0]?.textContent || x.textContent.trim())")
    assert len(names) > 12 and all(names), names
    # An outline shows where the focus is.
    b.js("document.querySelector('header nav a').focus()")
    b.key("Tab")
    got = b.js("getComputedStyle(document.activeElement).outline")
    assert "3px" in got, got


def test_a_drain_is_asked_for_and_becomes_a_job(c, b):
    to(b, c, "servers", "document.querySelectorAll('tbody tr').length === 4")
    press(b, "Drain ds4")
    b.until("document.querySelector('dialog').open")
    b.key("Escape")
    b.until("!document.querySelector('dialog').open")
    assert not ask(c.admin["mds"], "GET", "/v1/ds/one?ds=ds4").get("drain")
    assert b.js("document.activeElement.ariaLabel") == "Drain ds4"
    press(b, "Drain ds4")
    b.until("document.querySelector('dialog').open")
    press(b, "Drain")
    b.until(f"{MAIN}.includes('ds4 is being drained')")
    c.wait(lambda: ask(c.admin["mds"], "GET", "/v1/ds/one?ds=ds4")["drain"])
    to(b, c, "jobs", f"{MAIN}.includes('drain')")
    to(b, c, "events", f"{MAIN}.includes('token op')")
    quiet(b)


def test_colours_follow_the_system_and_the_switch(c, b):
    back = "getComputedStyle(document.body).backgroundColor"
    for dark, want in ((False, "rgb(255, 255, 255)"), (True, "rgb(18, 23, 28)")):
        b.look(1280, dark=dark)
        b.until(f"{back} === '{want}'")
    for theme, want in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 23, 28)")):
        b.js("(t => { t.value = '%s'; t.dispatchEvent(new Event('change', {bubbles: true})); })"
             "(document.querySelector('.theme select'))" % theme)
        b.until(f"{back} === '{want}'")
    b.js("(t => { t.value = 'system'; t.dispatchEvent(new Event('change', {bubbles: true})); })"
         "(document.querySelector('.theme select'))")


def test_no_page_is_wider_than_a_small_window(c, b):
    folder = os.environ.get("WEFT_PICTURES")
    for width in (360, 1280):
        for dark in (False, True):
            if dark and not folder:
                continue
            b.look(width, dark=dark)
            for page in PAGES:
                to(b, c, page)
                wide = b.js("document.documentElement.scrollWidth")
                assert wide <= width, (page, width, wide)
                if folder:
                    b.picture(f"{folder}/{page.replace('/', '-')}-{width}-"
                              f"{'dark' if dark else 'light'}.png")
    b.look(1280)


def test_nothing_is_asked_while_the_page_is_hidden(c, b):
    to(b, c, "jobs")
    asked = "performance.getEntriesByType('resource').length"
    b.js("performance.setResourceTimingBufferSize(100000)")
    b.js("Object.defineProperty(document, 'hidden', {value: true, configurable: true}), "
         "document.dispatchEvent(new Event('visibilitychange'))")
    before = b.js(f"new Promise(r => setTimeout(() => r({asked}), 500))")
    after = b.js(f"new Promise(r => setTimeout(() => r({asked}), 3000))")
    assert before == after, (before, after)
    b.js("delete document.hidden, document.dispatchEvent(new Event('visibilitychange'))")
    b.until(f"{asked} > {after}")


def test_the_role_read_may_only_look(c, b):
    press(b, "Log out")
    b.until("document.querySelector('#token')")
    b.js("document.querySelector('#token').focus()")
    b.type(token(c, "read", "reader"))
    b.key("Enter")
    to(b, c, "servers", "document.querySelectorAll('tbody tr').length === 4")
    assert b.js("[...document.querySelectorAll('main button')].length") == 0
    c.weft("token", "revoke", "reader")
    b.until("document.querySelector('#token')")


def test_the_page_says_when_the_server_is_gone(c, b):
    b.js("document.querySelector('#token').focus()")
    b.type(token(c, "read", "second"))
    b.key("Enter")
    to(b, c, "health", f"{MAIN}.includes('Nothing is wrong') || document.querySelector('.reasons')")
    c.stop()
    b.until(f"{MAIN}.includes('The server does not answer since')")
    b.until("document.querySelector('[aria-live]').textContent === 'The server does not answer'")
    c.start()
    # Its sessions are over.
    b.until("document.querySelector('#token')")


def main():
    if not tap.built("weft", "weft-mds", "weft-ds") or not browser.PROGRAM or os.geteuid():
        tap.skip("the programs are not built, chromium-headless-shell is not installed, or this "
                 "is not root")
        return
    os.environ.pop("WEFT_ADMIN", None)
    c = ConsoleCluster()
    b = None
    try:
        fill(c)
        b = Browser()
        b.look(1280)
        tap.run(tap.named(globals()), tap.giving(c, b))
    finally:
        if b:
            b.down()
        c.down()


if __name__ == "__main__":
    main()
