"""Says in one line what this machine lacks; needs only the standard library.

`python tools/require.py build` looks for what compiling needs, `kernel` for what running needs.
Used by the Makefile before there is an environment, and by setup.py.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig

PYTHON = (3, 11)
LANDLOCK_ABI = 3
NR_LANDLOCK_CREATE_RULESET = 444
LANDLOCK_CREATE_RULESET_VERSION = 1

# Header, what it stands for, and the Debian package that brings it.
HEADERS = (
    ("stdint.h", "the C library's headers", "libc6-dev"),
    ("linux/seccomp.h", "the kernel's headers (linux/seccomp.h)", "linux-libc-dev"),
    ("linux/landlock.h", "the kernel's headers (linux/landlock.h, 5.13)", "linux-libc-dev"),
    ("Python.h", "the headers of Python {0}.{1}", "python{0}.{1}-dev"),
)


def compiler() -> list[str]:
    """The C compiler's command: $CC, else what Python was built with, else cc; empty if none."""
    for command in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "gcc", "cc"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    return []


def missing_python() -> str | None:
    """None, or the sentence that says how to get a Python that will do."""
    if sys.version_info < PYTHON:
        return "sandcore needs Python %d.%d or newer: apt-get install python3.11" % PYTHON
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        package = "python{0}.{1}-venv".format(*sys.version_info)
        return "sandcore needs Python's venv: apt-get install " + package
    return None


def missing_for_build() -> str | None:
    """None, or the sentence that names the first thing that compiling lacks."""
    if not sys.platform.startswith("linux"):
        if sys.platform == "darwin":
            return None
        return "sandcore runs on Linux and macOS, not on " + sys.platform
    command = compiler()
    if not command:
        return "sandcore needs a C compiler: apt-get install gcc libc6-dev"
    include = "-I" + sysconfig.get_path("include")
    for header, what, package in HEADERS:
        program = "#include <%s>\n" % header
        check = [*command, include, "-E", "-x", "c", "-", "-o", os.devnull]
        done = subprocess.run(check, input=program.encode(), stderr=subprocess.DEVNULL)
        if done.returncode != 0:
            text = "sandcore needs " + what + ": apt-get install " + package
            return text.format(*sys.version_info)
    return None


def landlock_abi() -> int:
    """The kernel's Landlock ABI, or a negative errno."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    abi: int = syscall(NR_LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION)
    return abi if abi >= 0 else -ctypes.get_errno()


def missing_in_kernel() -> str | None:
    """None, or the sentence that says why commands cannot be confined on this kernel."""
    if sys.platform == "darwin":
        return None
    abi = landlock_abi()
    if abi >= LANDLOCK_ABI:
        return None
    if abi < 0:
        reason = os.strerror(-abi)
        return (
            "sandcore needs Landlock, which this kernel (%s) refuses (%s): boot with "
            "lsm=landlock,... or allow landlock_create_ruleset in the container's seccomp profile"
        ) % (platform.release(), reason)
    return (
        "sandcore needs Landlock ABI %d (Linux 6.2), this kernel (%s) has ABI %d: boot a newer "
        "kernel (Debian 12: linux-image-amd64 from bookworm-backports)"
    ) % (LANDLOCK_ABI, platform.release(), abi)


CHECKS = {"build": (missing_python, missing_for_build), "kernel": (missing_in_kernel,)}


def main() -> int | str:
    for name in sys.argv[1:]:
        for check in CHECKS[name]:
            text = check()
            if text is not None:
                return "error: " + text
    return 0


if __name__ == "__main__":
    sys.exit(main())
