"""Runs the functions of a module whose names begin with test_, in their order, and prints TAP."""
import os
import re
import sys
import time
import traceback


def say(text):
    for line in str(text).splitlines():
        print(f"# {line}", flush=True)


def main(module, before=None, after=None):
    """before() gives what a test gets as its argument; after(it) ends it, whatever the test did."""
    if not all(os.access(os.path.join(module["BUILD"], p), os.X_OK) for p in ("weft-mds", "weft-ds")):
        print("1..0 # SKIP the daemons are not built")
        return
    tests = [(n[5:].replace("_", " "), f) for n, f in module.items() if n.startswith("test_") and f.__module__ == "__main__"]
    tests = [t for t in tests if not sys.argv[1:] or any(re.search(a, t[0].replace(" ", "_")) for a in sys.argv[1:])]
    print(f"1..{len(tests)}", flush=True)
    for i, (name, test) in enumerate(tests, 1):
        began, it = time.monotonic(), None
        try:
            it = before() if before else None
            test(it)
            print(f"ok {i} - {name}", flush=True)
        except Exception as e:
            print(f"not ok {i} - {name}", flush=True)
            say(f"{type(e).__name__}: {e}")
            if os.environ.get("WEFT_TRACE"):
                traceback.print_exc()
        finally:
            if after and it is not None:
                after(it)
        say(f"{time.monotonic() - began:.1f} s")
