"""The examples of the page about the server, run against a real one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cotransport.data.examples import write_digits
from tests.lessons.helpers import learn
from tests.server.helpers import TOKEN, served
from tests.test_docs import IMAGES_KEPT, SERVING, blocks

pytestmark = pytest.mark.slow
WRITTEN = "http://127.0.0.1:8000"


def test_the_examples_with_curl_and_python_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", TOKEN)
    write_digits(tmp_path / "digits")
    for path in (tmp_path / "digits").glob("*/*/*.png"):
        if int(path.stem) >= IMAGES_KEPT:
            path.unlink()
    learn(tmp_path / "model", tmp_path / "digits" / "first")
    shell, python = blocks(SERVING, "bash"), blocks(SERVING, "python")
    assert len(shell) == len(python) == 1
    with served(tmp_path / "model") as server:
        address = str(server.client.base_url).rstrip("/")
        exec(compile(python[0].replace(WRITTEN, address), str(SERVING), "exec"), {})
        printed = capsys.readouterr().out.splitlines()
        assert printed[0].startswith("done ")
        assert len(printed) == 1 + len(list((tmp_path / "digits" / "unseen").iterdir()))
        if shutil.which("bash") is None or shutil.which("curl") is None:
            pytest.skip("the examples with curl need bash and curl")
        output = run(shell[0].replace(WRITTEN, address))
        lessons = server.client.get("/api/lessons").json()
        assert [one["name"] for one in lessons[-1]["classes"]] == ["seven", "eight"]
        assert '"file":"six-1.png"' in output
        assert '{"before":5,"current":1}' in output
        assert "cotransport_version 1" in output


def run(script: str) -> str:
    """What a script prints. Any error fails."""
    done = subprocess.run(
        ["bash", "-euc", script], capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout
