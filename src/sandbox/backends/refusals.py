"""Why a host refuses namespaces, in words that name the culprit and the mend.

Hosts refuse in many ways, and the errno of the call tells few of them apart; what stands in the
kernel's own files does. Looked at after the fact only: the kernel's answer decides.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["LANE_STAGES", "Refusal", "explain_refusal"]

LANE_STAGES = {"mounts": "proc"}  # what a lane mounts is its /proc
_SYS = "/proc/sys"
_KINDS = ("user", "mnt", "pid", "net", "ipc", "uts")
_NEEDED = {"CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SETFCAP": 31}  # for root's maps
_DOCTOR = "see `sandbox doctor`"


class Refusal(NamedTuple):
    """The cause, and what would mend it."""

    cause: str
    mend: str


def explain_refusal(stage: str, number: int) -> Refusal:
    """The refusal of a stage with an errno.

    ``namespaces``: making them; ``mounts``: what is in them; ``proc``: a lane's own /proc;
    ``lane``: a pid namespace; ``filter``: a filter that asks a supervisor.
    """
    for ask in _ASKED:
        found = ask(stage, number)
        if found is not None:
            return found
    what = "user namespaces are" if stage == "namespaces" else "mounting is"
    what = "a pid namespace is" if stage == "lane" else what
    text = f"{what} refused here ({os.strerror(number)})"
    return Refusal(text, f"{_DOCTOR}; an outer sandbox or a security module forbids it")


def _by_another_supervisor(stage: str, number: int) -> Refusal | None:
    """A process has one listener at most, and a sandbox in namespaces needs it for its connects."""
    if stage != "filter":
        return None
    cause = f"a supervisor of connects cannot be had here ({os.strerror(number)})"
    mend = "an outer sandbox has the one listener there may be, or its filter forbids another"
    return Refusal(cause, f"{mend}: {_DOCTOR}")


def _too_many(stage: str, number: int) -> Refusal | None:
    if number not in (errno.ENOSPC, errno.EUSERS):
        return None
    off = [kind for kind in _KINDS if _number(f"{_SYS}/user/max_{kind}_namespaces") == 0]
    if off:
        names = [f"user.max_{kind}_namespaces" for kind in off]
        cause = f"{' and '.join(off)} namespaces are off ({' and '.join(names)} = 0)"
        return Refusal(cause, "; ".join(f"sysctl {name}=15000" for name in names))
    cause = "there are too many namespaces, or they are nested too deeply"
    return Refusal(cause, "close sandboxes, or raise sysctl user.max_*_namespaces")


def _in_ours(stage: str, number: int) -> Refusal | None:
    if number != errno.EPERM or os.environ.get("SANDBOX") not in ("landlock", "namespaces"):
        return None
    cause = "this process is in a sandbox of this package already, which gives no namespaces"
    return Refusal(cause, "start it outside of the other sandbox")


def _for_root_only(stage: str, number: int) -> Refusal | None:
    if _number(f"{_SYS}/kernel/unprivileged_userns_clone") != 0 or os.geteuid() == 0:
        return None
    cause = "user namespaces are for root only here"
    return Refusal(cause, "sysctl kernel.unprivileged_userns_clone=1")


def _by_apparmor(stage: str, number: int) -> Refusal | None:
    """The namespace is given, and worth nothing: the mounts in it fail."""
    if _number(f"{_SYS}/kernel/apparmor_restrict_unprivileged_userns") != 1 or os.geteuid() == 0:
        return None
    cause = "AppArmor refuses user namespaces to programs without a profile"
    return Refusal(cause, f"install the profile that sandcore ships: {_DOCTOR}")


def _by_missing_capabilities(stage: str, number: int) -> Refusal | None:
    if stage != "namespaces" or os.geteuid() != 0:
        return None
    held = int(_status("CapEff") or "0", 16)
    missing = [name for name, bit in _NEEDED.items() if not held >> bit & 1]
    if not missing:
        return None
    cause = f"root is without {', '.join(missing)} here, and cannot map its users"
    return Refusal(cause, "give these capabilities, or start it as an ordinary user")


def _by_masked_proc(stage: str, number: int) -> Refusal | None:
    """The kernel gives no new /proc that would show what is hidden in the one that is there."""
    if stage != "proc" or number != errno.EPERM or not _proc_is_masked():
        return None
    cause = "parts of /proc are masked here (a container): the kernel gives no new one"
    return Refusal(cause, "docker run --security-opt systempaths=unconfined, or podman")


def _by_filter(stage: str, number: int) -> Refusal | None:
    if _status("Seccomp") != "2":
        return None
    cause = f"a seccomp filter around this process refuses namespaces ({os.strerror(number)})"
    return Refusal(cause, f"docker run --security-opt seccomp=PROFILE: {_DOCTOR}")


def _by_old_kernel(stage: str, number: int) -> Refusal | None:
    if number != errno.ENOSYS:
        return None
    cause = f"this kernel ({os.uname().release}) is older than what the mounts need"
    return Refusal(cause, "Linux 5.12 or newer")


_ASKED: tuple[Callable[[str, int], Refusal | None], ...] = (
    _by_another_supervisor,
    _too_many,
    _in_ours,
    _for_root_only,
    _by_apparmor,
    _by_missing_capabilities,
    _by_masked_proc,
    _by_filter,
    _by_old_kernel,
)


def _number(path: str) -> int | None:
    try:
        return int(_text(path))
    except ValueError:
        return None


def _status(field: str) -> str:
    rows = dict(line.partition(":\t")[::2] for line in _text("/proc/self/status").splitlines())
    return rows.get(field, "").strip()


def _text(path: str) -> str:
    # Imported here: it brings what only who was refused needs.
    from sandbox.host import read_text

    return read_text(path) or ""


def _proc_is_masked() -> bool:
    from sandbox.host import masks_proc

    return masks_proc(_text("/proc/self/mountinfo"))
