"""What commands must not write because the next profile is made of it: kept out of a policy.

Files in a workspace are protected names, which every isolation knows: also in the workspaces that
the user trusts and that lie in what this policy makes writable. Others become read-only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sandbox.entries import Access
from sandbox.errors import InvalidProfile
from sandbox.paths import below, follow
from sandbox.policy import SandboxPolicy
from sandbox.profile.grants import Grants, grants_of
from sandbox.profile.reading import decode, read_source
from sandbox.profile.values import Profile, Setting, Source
from sandbox.profile.where import PROFILE, project_file, user_directory, user_file
from sandbox.profile.wrong import invalid

__all__ = ["guarded", "guarded_again"]

_MADE_OF_IT = "profiles are made of it, and it would be writable from inside"
_CHAIN_MAX = 8


def guarded(
    policy: SandboxPolicy, sources: Sequence[Source], trusted: Sequence[Setting], workspace: str
) -> SandboxPolicy:
    """The policy, under which no command writes a file that the next profile is made of.

    ``trusted``: what the user's layers say of whom to trust. Raises ``InvalidProfile`` for a policy
    that grants such a file by itself, and for what cannot be kept.
    """
    if policy.unconfined:
        return policy
    names, grants = [PROFILE], grants_of(policy, workspace)
    own = os.path.realpath(user_directory())
    files = [os.path.realpath(one.file) for one in sources]
    projects = {os.path.realpath(one.key[-1]): one for one in trusted}
    theirs = [project_file(path) for path in (workspace, *projects)]
    for granted, access in grants.granted.items():
        if access is Access.WRITE and (granted in (*files, *theirs) or below(granted, own)):
            raise InvalidProfile(granted, 0, "", _MADE_OF_IT, "take the entry for it out")
    for file in (user_file(), *(one.file for one in sources)):
        _check_way(file, own, grants)
    for path in (own, *files):
        if os.path.dirname(path) == workspace:
            names.append(os.path.basename(path))
        elif grants.access(path) is Access.WRITE:
            there = os.path.lexists(path)
            policy = policy.with_read(path) if there else policy.with_deny(path)
    for path, one in projects.items():
        if _is_open(path, one, grants, workspace):
            names.extend(_extended(path))
            # It says nothing new; but what is granted by itself has protected names of its own.
            policy = policy.with_write(path)
    return replace(policy, protected=tuple(dict.fromkeys([*policy.protected, *names])))


def guarded_again(policy: SandboxPolicy, profile: Profile) -> SandboxPolicy:
    """The policy of a profile, to which grants came since. Raises as ``guarded``."""
    trusted = [one for one in profile.settings if one.key[0] == "trust" and not one.refused]
    return guarded(policy, profile.sources, trusted, profile.workspace)


def _check_way(file: str, own: str, grants: Grants) -> None:
    """Refuses a file that is reached by a link which a command could lead elsewhere."""
    for link in follow(os.path.join(os.getcwd(), file))[1]:
        if not below(link, own) and grants.access(link) is Access.WRITE:
            cause = f"is reached by the link {link}, which would be writable from inside"
            raise InvalidProfile(file, 0, "", cause, "name where it leads")


def _is_open(path: str, one: Setting, grants: Grants, workspace: str) -> bool:
    """Whether commands could write in a trusted project, which is no workspace of theirs.

    Raises ``InvalidProfile``.
    """
    for link in follow(one.key[-1])[1]:
        if grants.access(link) is Access.WRITE:
            cause = f"the link {link} would be writable from inside, and lead to any project"
            raise invalid(one.source, one.at, cause, f"name where it leads: {path}")
    if path == workspace or grants.access(path) is not Access.WRITE:
        return False
    if grants.is_held(path):
        return False
    if not os.path.isdir(path):
        cause = f"there is no directory {path}, and a command could make one there"
        raise invalid(one.source, one.at, cause, "make it, or take it out")
    return True


def _extended(project: str) -> Iterator[str]:
    """The names of the files beside it that the profile of a project is made of.

    One that is broken is no profile, and no command can mend it.
    """
    name = PROFILE
    for _ in range(_CHAIN_MAX):
        file = os.path.join(project, name)
        if not os.path.lexists(file):
            return
        try:
            wanted = decode(read_source(file, "project")).get("extends", "")
        except InvalidProfile:
            return
        name = wanted.removeprefix("./")
        if "/" in name or "\0" in name or not name.endswith(".toml"):
            return
        yield name
