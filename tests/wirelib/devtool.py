# SPDX-License-Identifier: Apache-2.0
"""weft-dev in the process of the test, because the start of Python is most of a command's cost.

weft_dev.py tests the program.
"""
import builtins
import importlib.machinery
import importlib.util
import os
import sys
import threading

from tap import BUILD

SAID = threading.local()


def _load():
    os.environ.setdefault("WEFT_BUILD", BUILD)
    loader = importlib.machinery.SourceFileLoader("weft_dev_command",
                                                  os.path.join(BUILD, "tools/weft-dev"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    module.print = _print
    return module


def _print(*words, file=None):
    """What a command prints goes to its caller, whatever other threads do meanwhile."""
    if file is None:
        SAID.text += " ".join(map(str, words)) + "\n"
    else:
        builtins.print(*words, file=file)


def command(*args):
    """weft-dev ARGS: what it prints. A failure is an AssertionError with what it says."""
    global MODULE
    if not MODULE:
        MODULE = _load()
    SAID.text = ""
    try:
        parsed = MODULE.parser().parse_args(args)
        parsed.function(parsed)
    except (MODULE.Failure, OSError) as e:
        raise AssertionError(f"weft-dev {args[0]}: {e}") from None
    except SystemExit:
        raise AssertionError(f"weft-dev {' '.join(args)}: see above") from None
    return SAID.text


MODULE = None
sys.dont_write_bytecode = True
