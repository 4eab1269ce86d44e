"""Why a host refuses namespaces, in words that name the culprit and the mend.

Hosts refuse in many ways, and the errno of the call tells few of them apart; what stands in the
kernel's own files does. Looked at after the fact only: the kernel's answer decides.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

__all__ = ["Refusal", "explain_refusal"]

_SYS = "/proc/sys"


class Refusal(NamedTuple):
    """The cause, and what would mend it."""

    cause: str
    mend: str


def explain_refusal(stage: str, number: int) -> Refusal:
    """The refusal of a stage (``namespaces``, ``mounts``, ``lane``) with an errno."""
    if stage == "namespaces":
        return _no_user_namespaces(number)
    if _is_inside_landlock(number):
        cause = "this process is in a sandbox of Landlock's already, which refuses all mounts"
        return Refusal(cause, "start it outside of the other sandbox")
    if stage == "mounts" and _proc_is_masked():
        cause = "parts of /proc are masked here (a container): the kernel gives no new one"
        return Refusal(cause, "docker run --security-opt systempaths=unconfined, or podman")
    text = f"mounting is refused here ({os.strerror(number)})"
    return Refusal(text, "see `sandbox doctor`; an outer sandbox or a security module forbids it")


def _no_user_namespaces(number: int) -> Refusal:
    if _number(f"{_SYS}/user/max_user_namespaces") == 0:
        return Refusal("user namespaces are off", "sysctl user.max_user_namespaces=15000")
    if _number(f"{_SYS}/kernel/unprivileged_userns_clone") == 0 and os.geteuid() != 0:
        cause = "user namespaces are for root only here"
        return Refusal(cause, "sysctl kernel.unprivileged_userns_clone=1")
    if _number(f"{_SYS}/kernel/apparmor_restrict_unprivileged_userns") == 1:
        cause = "AppArmor refuses user namespaces to programs without a profile"
        return Refusal(cause, "install the profile that sandcore ships: see `sandbox doctor`")
    if number == errno.ENOSPC:
        cause = "there are too many namespaces, or they are nested too deeply"
        return Refusal(cause, "sysctl user.max_user_namespaces, user.max_net_namespaces, ...")
    if _has_filter():
        cause = f"a seccomp filter around this process refuses ({os.strerror(number)})"
        return Refusal(cause, "docker run --security-opt seccomp=PROFILE: see `sandbox doctor`")
    return Refusal(f"user namespaces are refused ({os.strerror(number)})", "see `sandbox doctor`")


def _is_inside_landlock(number: int) -> bool:
    return number == errno.EPERM and os.environ.get("SANDBOX", "") == "landlock"


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _has_filter() -> bool:
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
            return "Seccomp:\t2" in file.read()
    except OSError:
        return False


def _proc_is_masked() -> bool:
    """Whether something but an empty directory lies over a part of /proc."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            points = [line.split()[4] for line in file]
    except (OSError, IndexError):
        return False
    return any(p.startswith("/proc/") and p != "/proc/sys/fs/binfmt_misc" for p in points)
