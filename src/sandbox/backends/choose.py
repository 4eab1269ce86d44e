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

    Imported here, because it needs the compiled core.
    Raises ``Unavailable`` where there is none, or where the core was not built.
    """
    if not sys.platform.startswith("linux"):
        raise Unavailable("confinement", f"there is no backend for {sys.platform}", "use Linux")
    try:
        from sandbox.backends.linux import LinuxBackend
    except ImportError as error:
        # Only the core may be missing: anything else is a bug of ours, not an installation.
        if error.name is not None and not error.name.startswith("_sandcore"):
            raise
        raise Unavailable("the compiled core", str(error), "pip install sandcore") from error
    return LinuxBackend()
