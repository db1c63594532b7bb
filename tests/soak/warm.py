"""Import once what every child needs: otherwise, most of a child's time would be imports."""

from __future__ import annotations

import gc
import importlib
import sys
from contextlib import suppress
from pathlib import Path

import lightning_fabric.strategies.ddp  # noqa: F401 (for two processes)
import torch
import torch.distributed

from tests.soak.actions import ACTIONS, copy_of, make_start
from tests.soak.children import in_child


def make_start_and_import(start: Path) -> None:
    """Make the folder that every case starts from. Then import the modules that any command imports.

    The commands themselves run in a child, so that no thread is started here.
    """
    torch.set_num_threads(1)
    names = start.with_name("modules.txt")

    def try_all() -> None:
        make_start(start)
        for action in ACTIONS:
            action.act(copy_of(start, start.with_name("tried")))
        names.write_text("\n".join(sys.modules))

    ended = in_child(try_all)
    if ended.how != "done":
        raise SystemExit(ended.text)
    for name in names.read_text().splitlines():
        if name not in sys.modules:
            with suppress(ImportError):  # a name that a package made for a part of another module
                importlib.import_module(name)
    gc.freeze()
