"""Which profiles count, and what they come to.

Layers, the lowest first: built in; the user's `sandbox.toml`; a profile that the user names; the
project's `sandbox.toml`, in the workspace. A file that is named and lies in the workspace is the
project's too: a command may have written it. Everything is read once, here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from sandbox.errors import InvalidPath, InvalidProfile
from sandbox.paths import clean
from sandbox.presets import MODES
from sandbox.profile.compose import Composed, compose
from sandbox.profile.guarding import guarded
from sandbox.profile.reading import read_source
from sandbox.profile.settings import settings_of
from sandbox.profile.tighten import tightened
from sandbox.profile.values import LayerName, Mode, Profile, Setting, Source
from sandbox.profile.where import (
    check_user_directory,
    in_workspace,
    profile_names,
    project_file,
    user_file,
    user_profile,
)
from sandbox.profile.widths import basis_of, is_wider
from sandbox.profile.wrong import brief, invalid, near

__all__ = ["by_itself", "check_paths", "load"]

_DEPTH_MAX = 8  # of extends
_REFUSED = "it would allow more, and the project is not trusted"


def load(
    name: str | None = None,
    workspace: str | None = None,
    mode: Mode | None = None,
    *,
    user: bool = True,
    project: bool = True,
) -> Profile:
    """The profile that is in force in a workspace; see ``sandbox.load_profile``.

    ``user``, ``project``: whether the files that count without being named do.
    """
    reader = _Reader(workspace)
    work = reader.workspace
    if user and os.path.lexists(user_file()):
        check_user_directory(work)
        reader.read(user_file(), "user")
    if project and os.path.lexists(project_file(work)):
        reader.read(project_file(work), "project")
    if name is not None:
        reader.read_named(name)
    if mode is not None:
        reader.say_mode(mode)
    under = compose(reader.settings, work)
    trusted = _trusts(under, work)
    if trusted or not reader.project:
        return reader.profile(compose([*reader.settings, *reader.project], work), trusted)
    basis = basis_of(under.found, under.policy, work)
    refused = [replace(one, refused=_REFUSED) for one in reader.project if is_wider(one, basis)]
    return reader.profile(tightened(under, reader.project, work), trusted, refused)


def by_itself(name: str, workspace: str | None = None) -> Profile:
    """A profile without any layer but what is built in, as if its project were trusted."""
    reader = _Reader(workspace)
    reader.read_named(name)
    return reader.profile(compose([*reader.settings, *reader.project], reader.workspace), True)


def check_paths(profile: Profile) -> None:
    """Refuses what files grant and the disk has not: running would, without a line to mend.

    Raises ``InvalidProfile``.
    """
    for one in profile.settings:
        path = one.key[-1]
        granted = one.key[0] == "filesystem" and one.value != "deny" and path.startswith("/")
        if granted and one.source.text and not os.path.exists(path):
            cause = f"{path!r} does not exist, or leads nowhere"
            raise invalid(one.source, one.at, cause, "make it, or take the entry out")


class _Reader:
    """Reads files of one workspace, each with what it extends."""

    def __init__(self, workspace: str | None) -> None:
        self.workspace = clean(os.path.realpath(workspace if workspace is not None else _here()))
        self.settings: list[Setting] = []  # of the user's layers
        self.project: list[Setting] = []
        self.sources: list[Source] = []

    def say_mode(self, mode: str) -> None:
        """A mode that the user chose for this time."""
        self.settings.append(Setting(("mode",), mode, Source("command line")))

    def read_named(self, name: str) -> None:
        """A mode, a profile of the user's, or a file; one in the workspace is the project's."""
        if name in MODES:
            self.say_mode(name)
            return
        check_user_directory(self.workspace)
        file = file_of(name)
        theirs = in_workspace(file, self.workspace)
        before = [os.path.realpath(one.file) for one in self.sources]
        if theirs and os.path.realpath(file) in before:
            return
        self.read(file, "project" if theirs else "profile")

    def read(
        self, file: str, layer: LayerName, chain: tuple[str, ...] = (), by: Source | None = None
    ) -> None:
        """One file, ``by`` which one it is extended, after what it extends.

        Raises ``InvalidProfile``; of a file that cannot be read, for the line that names it.
        """
        try:
            source = read_source(file, layer)
        except InvalidProfile as error:
            if by is None or error.line:
                raise
            raise invalid(by, ("extends",), f"{file}: {error.cause}", error.mend) from None
        raw, own = settings_of(source, self.workspace)
        self.sources.append(source)
        wanted = raw.get("extends")
        if wanted in MODES:
            own.insert(0, Setting(("mode",), wanted, source, ("extends",)))
        elif wanted is not None:
            here = (*chain, os.path.realpath(file))
            target = self._extended(source, wanted)
            if os.path.realpath(target) in here or len(here) > _DEPTH_MAX:
                cause = f"{wanted!r} extends this one in turn, or there are more than {_DEPTH_MAX}"
                raise invalid(source, ("extends",), cause)
            self.read(target, layer, here, source)
        if layer == "project":
            for one in own:
                if one.key[0] == "trust":
                    cause = "a project cannot say whom to trust"
                    raise invalid(source, one.at, cause, f"say it in {user_file()}")
        (self.project if layer == "project" else self.settings).extend(own)

    def profile(self, made: Composed, trusted: bool, refused: Sequence[Setting] = ()) -> Profile:
        """What the settings came to, with where they are from."""
        trust = [one for one in self.settings if one.key[0] == "trust"]
        shown = dict(made.found)
        shown["mode",] = replace(shown["mode",], value=made.mode)
        return Profile(
            policy=guarded(made.policy, self.sources, trust, self.workspace),
            workspace=self.workspace,
            mode=made.mode,
            approval=made.approval,
            unsandboxed=made.unsandboxed,
            rules=made.rules,
            settings=(*shown.values(), *refused),
            sources=tuple(self.sources),
            trusted=trusted,
        )

    def _extended(self, source: Source, wanted: str) -> str:
        """The file that another one extends."""
        if "\0" in wanted:
            raise invalid(source, ("extends",), f"{brief(wanted)} contains a NUL character")
        directory = os.path.dirname(source.file)
        if source.layer == "project":
            beside = wanted.removeprefix("./")
            if "/" in beside or beside in ("..", ".") or not beside.endswith(".toml"):
                cause = f"a project extends a file beside its own or a mode, and not {wanted!r}"
                raise invalid(source, ("extends",), cause, f"{', '.join(MODES)}, or ./NAME.toml")
            return os.path.join(directory, beside)
        try:
            target = os.path.join(directory, file_of(wanted))
        except InvalidProfile as error:
            raise invalid(source, ("extends",), error.cause, error.mend) from None
        if in_workspace(target, self.workspace):
            cause = f"{target} lies in the workspace: a command may have written it"
            raise invalid(source, ("extends",), cause)
        return target


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise InvalidPath(".", "the working directory is gone", "cd to another") from None


def file_of(name: str) -> str:
    """The file of a profile, by its name or path. Raises ``InvalidProfile`` for no known name."""
    if "\0" in name:
        raise InvalidProfile(repr(name), 0, "", "contains a NUL character")
    if "/" in name or name.endswith(".toml"):
        return os.path.expanduser(name)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise InvalidProfile(name, 0, "", "is neither the name of a profile nor a path")
    file = user_profile(name)
    if not os.path.lexists(file):
        known = near(name, [*MODES, *profile_names()])
        raise InvalidProfile(
            name, 0, "", f"there is no such profile: no mode, and no {file}", known
        )
    return file


def _trusts(under: Composed, workspace: str) -> bool:
    """Whether the user's layers name the project in this workspace."""
    named = [key[2] for key in under.found if key[:2] == ("trust", "projects")]
    return os.path.realpath(workspace) in [os.path.realpath(path) for path in named]
