"""Which backend confines on this machine."""

from __future__ import annotations

import sys
from functools import lru_cache

from sandbox.backends.base import Backend
from sandbox.errors import Unavailable

__all__ = ["choose"]


@lru_cache(maxsize=1)
def choose() -> Backend:
    """The backend of this operating system, one for all sandboxes; the host is asked once.

    Imported here, because it needs the compiled core, or psutil.
    Raises ``Unavailable`` where there is none, or where what it needs is not installed.
    """
    if sys.platform == "darwin":
        return _macos()
    if not sys.platform.startswith("linux"):
        cause = f"there is no backend for {sys.platform}"
        raise Unavailable("confinement", cause, "use Linux or macOS")
    try:
        from sandbox.backends.linux import LinuxBackend
    except ImportError as error:
        # Only the core may be missing: anything else is a bug of ours, not an installation.
        if error.name is not None and not error.name.startswith("_sandcore"):
            raise
        raise Unavailable("the compiled core", str(error), "pip install sandcore") from error
    return LinuxBackend()


def _macos() -> Backend:
    try:
        from sandbox.backends.macos import MacBackend
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "psutil":
            raise
        raise Unavailable("psutil", str(error), "pip install psutil") from error
    return MacBackend()
