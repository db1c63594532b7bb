"""Commands that only look something up must not wait for torch."""

import subprocess
import sys

import pytest

LIGHT = [
    "cotransport",
    "cotransport.errors",
    "cotransport.experiments.bundled",
    "cotransport.settings.libraries",
    "cotransport.settings.overrides",
    "cotransport.settings.safe_yaml",
    "cotransport.settings.sections",
    "cotransport.settings.validation",
    "cotransport.system.files",
    "cotransport.system.machine",
    "cotransport.system.signals",
]
HEAVY = ["torch", "numpy", "lightning_fabric", "sklearn", "joblib"]


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_module_imports_no_heavy_library(module: str) -> None:
    script = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
