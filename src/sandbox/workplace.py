"""Which directory a policy's workspace is, and what is none."""

from __future__ import annotations

import os

from sandbox.entries import Special
from sandbox.errors import InvalidArgument, WorkspaceRefused
from sandbox.paths import below, real
from sandbox.policy import SandboxPolicy

__all__ = ["check_workspace", "workspace_of"]

_KERNEL = ("/dev", "/proc", "/sys")


def workspace_of(policy: SandboxPolicy, workspace: str | None) -> str:
    """The real path of the workspace, the policy's own or the caller's; empty when none is used.

    Raises ``InvalidPath``, ``WorkspaceRefused`` or ``InvalidArgument``, the author's fault.
    """
    entries = [e for layer in policy.layers for e in layer if e.special is Special.WORKSPACE]
    if not entries:
        return ""
    named = next((entry.path for entry in entries if entry.path), workspace)
    if named is None:
        raise InvalidArgument("workspace", None, "the policy has one and none was named", "cwd=...")
    if not named or "\0" in named:
        raise WorkspaceRefused(named, "it is empty or contains a NUL character")
    path = real(named, "workspace")
    if not os.path.isdir(path):
        raise WorkspaceRefused(named, "it is not a directory", "name the directory of the project")
    return path


def check_workspace(work: str, home: str) -> None:
    """Refuse to make HOME, or what contains it, writable as a whole.

    Raises ``WorkspaceRefused``.
    """
    mend = "name the directory of one project, or grant paths one by one"
    if work == home:
        raise WorkspaceRefused(work, "it is HOME itself: every program's settings are in it", mend)
    if below(home, work):
        raise WorkspaceRefused(work, f"it contains HOME ({home})", mend)
    if work == "/":
        raise WorkspaceRefused(work, "it is the whole machine", mend)
    if any(below(work, top) for top in _KERNEL):
        raise WorkspaceRefused(work, "what is there is the kernel's, and no files", mend)
