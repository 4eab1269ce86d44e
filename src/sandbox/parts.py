"""The parts of a policy that a host may enforce less than it says, by the names that results use.

What is not in this table is never weakened: writes, denied reads, the network, the environment,
descriptors, privileges. A policy may say which of these it accepts (``SandboxPolicy.accept``).
"""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.errors import InvalidArgument

__all__ = ["PARTS", "check_parts"]

PARTS: dict[str, str] = {
    "abstract-names": "names of abstract sockets that programs outside ask for",
    "devices": "ioctl on devices",
    "hard-links": "files outside that have a name where more is allowed",
    "landlock": "the second wall, behind the mounts",
    "locks": "locks on files that may be read",
    "loopback": "servers of the command's own",
    "masks": "denied files that the host replaces while commands run",
    "memory": "the limit of memory, to the byte",
    "metadata": "chmod, chown, utime and attributes outside of what may be written",
    "names": "names of files in denied directories",
    "namespaces": "the stronger isolation, which this host refuses",
    "nested-repositories": "the .git of repositories further down",
    "own-program": "the sandbox's own program, where commands may write it",
    "owners": "owners of files, as commands see them",
    "parent-death": "the end of a command whose caller is killed",
    "patterns": "files that come to match a denied pattern",
    "process-names": "names and arguments of the host's processes",
    "processes": "the limit of processes, for the command alone",
    "protected": "protected names in writable directories",
    "repositories": "hooks of new repositories",
    "restore": "what is planted under protected names is put back",
    "signals": "processes outside cannot be signalled",
    "terminal": "nothing is typed into a terminal that a command is given",
    "tmp": "a private /tmp",
    "tmp-kept": "a temporary directory for each command",
    "tmp-size": "the size of /tmp",
    "tree-kill": "the end of all that a command started",
    "unix-sockets": "sockets in directories that commands may write",
    "wall": "the limit of wall time, kept by the sandbox",
}


def check_parts(names: Iterable[str]) -> None:
    """Refuse names that no part has. Raises ``InvalidArgument``."""
    for name in names:
        if name not in PARTS:
            from difflib import get_close_matches  # only who mistyped pays for it

            near = get_close_matches(name, PARTS) or sorted(PARTS)
            raise InvalidArgument(
                "accept", name, "is no part of a policy that can be weaker", ", ".join(near)
            )
