"""The compiled core: spawns and confines commands, without any opinion about policy.

The names here are the whole public surface; how they behave stands in `__init__.pyi`.
"""

from __future__ import annotations

try:
    from _sandcore._core import (
        ACCESS_DEVICE,
        ACCESS_NAMES,
        ACCESS_READ,
        ACCESS_WRITE,
        FILTER_ALLOW_PTRACE,
        FILTER_PRIVATE_IPC,
        FILTER_UNIX_SCOPED,
        HANDLE_NAMES,
        HANDLE_READ,
        HANDLE_SCOPES,
        HANDLE_TCP,
        HANDLE_UDP,
        HANDLE_UNIX,
        HANDLE_WRITE,
        HELPER_PATH,
        NATIVE_ARCH,
        NET_FULL,
        NET_NONE,
        Helper,
        Lane,
        LaneLost,
        Outcome,
        Plan,
        Policy,
        Probe,
        StageError,
        Stamps,
        Status,
        SyscallRow,
        compile_filter,
        compile_policy,
        kill,
        landlock_grants,
        landlock_rights,
        probe,
        spawn,
        syscall_rows,
        wait,
    )
except ModuleNotFoundError as error:
    if error.name != "_sandcore._core":
        raise
    raise ImportError(
        "_sandcore is not compiled (it exists on Linux only): "
        "run `make build` in the checkout, or `pip install .`"
    ) from None

__all__ = [
    "ACCESS_DEVICE",
    "ACCESS_NAMES",
    "ACCESS_READ",
    "ACCESS_WRITE",
    "FILTER_ALLOW_PTRACE",
    "FILTER_PRIVATE_IPC",
    "FILTER_UNIX_SCOPED",
    "HANDLE_NAMES",
    "HANDLE_READ",
    "HANDLE_SCOPES",
    "HANDLE_TCP",
    "HANDLE_UDP",
    "HANDLE_UNIX",
    "HANDLE_WRITE",
    "HELPER_PATH",
    "NATIVE_ARCH",
    "NET_FULL",
    "NET_NONE",
    "Helper",
    "Lane",
    "LaneLost",
    "Outcome",
    "Plan",
    "Policy",
    "Probe",
    "StageError",
    "Stamps",
    "Status",
    "SyscallRow",
    "compile_filter",
    "compile_policy",
    "kill",
    "landlock_grants",
    "landlock_rights",
    "probe",
    "spawn",
    "syscall_rows",
    "wait",
]
