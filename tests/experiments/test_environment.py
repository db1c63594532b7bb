"""What a result was computed with."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cotransport import __version__
from cotransport.experiments.environment import environment
from cotransport.settings.sections import Device
from cotransport.training.processes import Processes

PROCESSES = Processes(Device(accelerator="cpu"))


def test_releases_device_and_command_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/cotransport", "run", "digits"])
    found = environment(PROCESSES)
    assert found["cotransport"] == __version__
    assert found["command"] == "cotransport run digits"
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__
    assert (found["device"], found["processes"], found["precision"]) == ("cpu", 1, "32-true")


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="only Linux has this file")
def test_the_processor_is_the_one_that_the_system_names() -> None:
    assert str(environment(PROCESSES)["processor"]) in Path("/proc/cpuinfo").read_text(encoding="utf-8")


def test_a_system_that_names_no_processor_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", fail)
    monkeypatch.setattr(platform, "processor", lambda: "some processor")
    assert environment(PROCESSES)["processor"] == "some processor"


def test_the_threads_are_those_of_this_process() -> None:
    assert environment(PROCESSES)["threads"] == torch.get_num_threads()


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 5)])
def test_the_commit_is_unknown_outside_a_checkout(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(subprocess, "run", fail)
    assert environment(PROCESSES)["commit"] is None
