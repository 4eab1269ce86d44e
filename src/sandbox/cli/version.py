"""`sandbox --version`: the version, and what this host confines with."""

from __future__ import annotations

import platform
import sys

from sandbox import __version__

__all__ = ["version_line"]


def version_line() -> str:
    """One line: version, isolation, and what stands behind it."""
    return f"sandbox {__version__}, {_host()}"


def _host() -> str:
    if sys.platform == "darwin":
        return f"isolation seatbelt, macOS {platform.mac_ver()[0]}"
    try:
        from sandbox.backends.explain import host_isolation
    except ImportError:
        return "isolation none: the compiled core is missing, see `sandbox doctor`"
    isolation, abi, release = host_isolation()
    landlock = f"Landlock ABI {abi}" if abi > 0 else "no Landlock"
    return f"isolation {isolation}, {landlock}, kernel {release}"
