"""setup.py as a module."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


@cache
def setup_file() -> ModuleType:
    """setup.py; it sets nothing up when imported, and leaves the path as it was."""
    before = sys.path[:]
    spec = importlib.util.spec_from_file_location("sandcore_setup", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module
