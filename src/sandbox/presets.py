"""The policies that most callers want, and the modes by which a person knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sandbox.entries import Access, Entry, Special
from sandbox.environ import Environment
from sandbox.errors import InvalidArgument
from sandbox.policy import Network, SandboxPolicy
from sandbox.secrets import ALL

__all__ = ["MODES", "full_access", "preset", "read_only", "workspace_write"]

_READ_ALL = Entry("/", Access.READ)
_TMP = Entry("", Access.WRITE, Special.TMP)


def read_only() -> SandboxPolicy:
    """Everything but secrets may be read; nothing is written but a private temporary directory."""
    return SandboxPolicy(entries=(_READ_ALL, _TMP))


def workspace_write(
    workspace: Any = None,
    *,
    write: Iterable[Any] = (),
    read: Iterable[Any] = (),
    deny: Iterable[Any] = (),
    network: Network = "none",
    unix_sockets: Iterable[Any] = (),
) -> SandboxPolicy:
    """As ``read_only``, and the workspace may be written. This is the default policy.

    ``workspace`` is a directory, or None for the one in which the caller starts a command.
    ``write``, ``read`` and ``deny`` are further paths, ``unix_sockets`` those of sockets of the
    host that commands may connect to. Raises ``InvalidPath``.
    """
    home = Entry("" if workspace is None else workspace, Access.WRITE, Special.WORKSPACE)
    if workspace is not None and not home.path:
        raise InvalidArgument("workspace", workspace, "is empty", "None, or a directory")
    further = [
        Entry(path, access)
        for paths, access in ((read, Access.READ), (write, Access.WRITE), (deny, Access.DENY))
        for path in paths
    ]
    return SandboxPolicy(
        entries=(_READ_ALL, home, _TMP, *further),
        network=network,
        unix_sockets=tuple(unix_sockets),
    )


def full_access() -> SandboxPolicy:
    """No confinement: files, network and secrets as the caller has them.

    What is left is the rebuilt environment (all of the caller's variables but hooks and what looks
    like a secret), limits, and the end of the tree.
    """
    return SandboxPolicy(
        entries=(Entry("/", Access.WRITE),),
        network="full",
        environment=Environment(inherit="all"),
        protected=(),
        allow_secrets=(ALL,),
    )


MODES: dict[str, Callable[[], SandboxPolicy]] = {
    "read-only": read_only,
    "auto": workspace_write,
    "full-access": full_access,
}


def preset(mode: str) -> SandboxPolicy:
    """The policy of a mode: ``read-only``, ``auto`` or ``full-access``.

    Raises ``InvalidArgument`` for any other name.
    """
    if mode not in MODES:
        raise InvalidArgument("mode", mode, "is no mode", ", ".join(MODES))
    return MODES[mode]()
