"""Which libraries a script imports, found out in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence


def imported(script: str, libraries: Sequence[str]) -> list[str]:
    """Those of some libraries that a script imports."""
    ending = f"import json, sys\nprint(json.dumps([name for name in {list(libraries)} if name in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", f"{script}\n{ending}"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found: list[str] = json.loads(run.stdout.splitlines()[-1])
    return found
