"""Runs the functions of a module whose names begin with test_, in their order, and prints TAP."""
import contextlib
import os
import re
import sys
import time
import traceback

SRC = os.environ.get("top_srcdir") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("top_builddir") or os.getcwd()


def say(text):
    for line in str(text).splitlines():
        print(f"# {line}", flush=True)


def skip(why):
    """Nothing of this file is run."""
    print(f"1..0 # SKIP {why}")


def built(*programs):
    return all(os.access(os.path.join(BUILD, p), os.X_OK) for p in programs or ("weft-mds", "weft-ds"))


def named(module, *prefixes):
    """The (name, test) pairs that the command line chooses, of those that the file itself has; by prefix, then in their order. test_ is no part of a name."""
    tests = [(n.removeprefix("test_"), f) for p in prefixes or ("test_",) for n, f in module.items()
             if n.startswith(p) and getattr(f, "__module__", None) == "__main__"]
    return [t for t in tests if not sys.argv[1:] or any(re.search(a.replace(" ", "_"), t[0]) for a in sys.argv[1:])]


def giving(*args):
    """Every test gets these."""
    @contextlib.contextmanager
    def around(name):
        yield args
    return around


def run(tests, around=giving()):
    """around(name) is entered before each test and left after it: it gives the test's arguments, and what fails in it is the test's failure.
    A test that returns a text was skipped for that reason."""
    if not built():
        skip("the daemons are not built")
        return
    print(f"1..{len(tests)}", flush=True)
    for i, (name, test) in enumerate(tests, 1):
        title, began = name.replace("_", " "), time.monotonic()
        try:
            with around(name) as args:
                why = test(*args)
            print(f"ok {i} - {title}{f' # SKIP {why}' if isinstance(why, str) else ''}", flush=True)
        except Exception as e:
            print(f"not ok {i} - {title}", flush=True)
            say(f"{type(e).__name__}: {e}")
            if os.environ.get("WEFT_TRACE"):
                traceback.print_exc()
        if time.monotonic() - began > 1:
            say(f"{time.monotonic() - began:.1f} s")


def main(module, before=None, after=None):
    """before() gives what a test gets as its argument; after(it) ends it, whatever the test did."""
    @contextlib.contextmanager
    def around(name):
        it = before() if before else None
        try:
            yield (it,)
        finally:
            if after and it is not None:
                after(it)
    run(named(module), around)
