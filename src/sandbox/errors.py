"""The exceptions of this package, split by who can mend what went wrong.

    SandboxException
    +-- PolicyError (ValueError)          the author of the policy or of the call
    |   +-- InvalidPath                   a path of the policy: relative, missing, a loop, ...
    |   +-- WorkspaceRefused              what must not be writable as a whole
    |   +-- InvalidLimit                  a limit or time-out that means nothing
    |   +-- InvalidArgument               any other argument
    |   +-- InvalidProfile                a line of a profile's file
    +-- HostError                         the administrator of this machine
    |   +-- Unenforceable                 one part of the policy cannot be enforced here
    |   +-- Unavailable                   the machinery itself is missing
    |   +-- RecordsLost                   a log of records cannot be written: the session stops
    +-- StartError (OSError)              the author of the command: it never ran
    |   +-- CommandNotFound (FileNotFoundError)
    |   +-- CommandNotExecutable (PermissionError)
    |   +-- WorkingDirectoryError
    |   +-- ArgumentsTooLong
    +-- CommandFailed                     the command: it ran and failed (only on ``check``)
    +-- SandboxLost                       the command: it attacked its own sandbox, which ended
    +-- StillRunning (TimeoutError)       nobody: it goes on, and can be waited for again
    +-- SandboxBug                        us

    SandboxWeakened (UserWarning)         it ran, with less than the policy asks for

A text names the part, the cause and the line that mends it. The same facts are attributes, so
that nobody has to parse a text. All of them can be pickled.
"""

from __future__ import annotations

import errno as _errno
import os
from typing import Any, ClassVar

__all__ = [
    "ArgumentsTooLong",
    "CommandFailed",
    "CommandNotExecutable",
    "CommandNotFound",
    "HostError",
    "InvalidArgument",
    "InvalidLimit",
    "InvalidPath",
    "InvalidProfile",
    "PolicyError",
    "RecordsLost",
    "SandboxBug",
    "SandboxException",
    "SandboxLost",
    "SandboxWeakened",
    "StartError",
    "StillRunning",
    "Unavailable",
    "Unenforceable",
    "WorkingDirectoryError",
    "WorkspaceRefused",
    "start_error",
]


_SHOWN_MAX = 100  # of a value: a policy's is a screenful


def _sentence(what: str, cause: str, mend: str) -> str:
    """One line: what, why, and how to mend it where that is known."""
    text = f"{what}: {cause}"
    return f"{text}; to mend it: {mend}" if mend else text


class SandboxException(Exception):
    """Base of all exceptions of this package.

    ``exit_status`` is what a command line answers with, as ``env`` and ``timeout`` do it: 125 when
    the sandbox could not start, 126 and 127 when the program cannot be executed or found.
    """

    exit_status: ClassVar[int] = 125
    _fields: ClassVar[tuple[str, ...]] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with the finished text, not with what __init__ takes.
        if not self._fields:
            return (type(self), self.args)
        return (type(self), tuple(getattr(self, name) for name in self._fields))


class PolicyError(SandboxException, ValueError):
    """The policy or the call contradicts itself or means nothing: its author can mend it."""


class InvalidPath(PolicyError):
    """A path of the policy cannot be used."""

    _fields = ("path", "cause", "mend")

    def __init__(self, path: str, cause: str, mend: str = "") -> None:
        self.path, self.cause, self.mend = path, cause, mend
        super().__init__(_sentence(f"path {path!r}", cause, mend))


class WorkspaceRefused(PolicyError):
    """A directory that must not become writable as a whole was named as the workspace."""

    _fields = ("path", "cause", "mend")

    def __init__(self, path: str, cause: str, mend: str = "") -> None:
        self.path, self.cause, self.mend = path, cause, mend
        super().__init__(_sentence(f"workspace {path!r} is refused", cause, mend))


class InvalidLimit(PolicyError):
    """A limit or time-out is not a usable number."""

    _fields = ("field", "value", "cause")

    def __init__(self, field: str, value: object, cause: str) -> None:
        self.field, self.value, self.cause = field, value, cause
        super().__init__(f"limit {field}={value!r}: {cause}")


class InvalidArgument(PolicyError):
    """An argument has a value that nothing can be done with."""

    _fields = ("name", "value", "cause", "mend")

    def __init__(self, name: str, value: object, cause: str, mend: str = "") -> None:
        self.name, self.value, self.cause, self.mend = name, value, cause, mend
        shown = repr(value)
        if len(shown) > _SHOWN_MAX:
            shown = f"{shown[:_SHOWN_MAX]}..."
        super().__init__(_sentence(f"{name}={shown}", cause, mend))


class InvalidProfile(PolicyError):
    """A profile cannot be read, or one of its keys means nothing.

    ``file`` as it was named, ``line`` from 1 (0: the file as a whole), ``key`` with dots, as in the
    file (empty: none).
    """

    _fields = ("file", "line", "key", "cause", "mend")

    def __init__(self, file: str, line: int, key: str, cause: str, mend: str = "") -> None:
        self.file, self.line, self.key, self.cause, self.mend = file, line, key, cause, mend
        where = f"{file}:{line}" if line else file
        super().__init__(_sentence(f"{where}: {key}" if key else where, cause, mend))


class HostError(SandboxException):
    """The machine lacks something: its administrator can mend it."""


class Unenforceable(HostError):
    """A part of the policy cannot be enforced here, so nothing was run."""

    _fields = ("part", "cause", "mend")

    def __init__(self, part: str, cause: str, mend: str = "") -> None:
        self.part, self.cause, self.mend = part, cause, mend
        super().__init__(_sentence(f"cannot enforce {part}", cause, mend))


class Unavailable(HostError):
    """What this package runs on is missing: the compiled core, a kernel interface, a file."""

    _fields = ("what", "cause", "mend")

    def __init__(self, what: str, cause: str, mend: str = "") -> None:
        self.what, self.cause, self.mend = what, cause, mend
        super().__init__(_sentence(f"{what} is not available", cause, mend))


class RecordsLost(HostError):
    """What happens can no longer be recorded in ``log``, a directory: nothing more must happen.

    What was recorded before is still there, and no half record behind it.
    """

    _fields = ("log", "cause", "mend")

    def __init__(self, log: str, cause: str, mend: str = "") -> None:
        self.log, self.cause, self.mend = log, cause, mend
        super().__init__(_sentence(f"cannot record in {log!r}", cause, mend))


class StartError(SandboxException, OSError):
    """The sandbox could not start the command: not one instruction of it ran.

    Attributes: ``stage`` (the step between clone and exec that failed), ``errno``, ``path`` (what
    it failed on, or empty) and ``hint`` (what to do, or empty).
    """

    _fields = ("stage", "errno", "path", "hint")

    def __init__(self, stage: str, errno: int, path: str = "", hint: str = "") -> None:
        super().__init__(errno, os.strerror(errno))
        self.stage, self.path, self.hint = stage, path, hint

    def __str__(self) -> str:
        where = f" {self.path!r}" if self.path else ""
        code = _errno.errorcode.get(self.errno or 0, str(self.errno))
        return _sentence(
            f"the command was not started: {self.stage}{where}",
            f"{self.strerror} ({code})",
            self.hint,
        )


class CommandNotFound(StartError, FileNotFoundError):
    """There is no such program, or its interpreter (the line after ``#!``) is missing."""

    exit_status = 127


class CommandNotExecutable(StartError, PermissionError):
    """The file is there and cannot be executed: no execute bit, a directory, no known format."""

    exit_status = 126


class WorkingDirectoryError(StartError):
    """The working directory is missing, is no directory, or may not be entered."""


class ArgumentsTooLong(StartError):
    """Arguments and environment together are more than the kernel takes."""

    exit_status = 126


_EXEC_ERRORS: dict[int, type[StartError]] = {
    _errno.ENOENT: CommandNotFound,
    _errno.EACCES: CommandNotExecutable,
    _errno.EPERM: CommandNotExecutable,
    _errno.ENOEXEC: CommandNotExecutable,
    _errno.EISDIR: CommandNotExecutable,
    _errno.ENOTDIR: CommandNotFound,
    _errno.E2BIG: ArgumentsTooLong,
}
_DIRECTORY_STAGES = frozenset({"chdir", "cwd"})


def start_error(stage: str, errno: int, path: str = "", hint: str = "") -> StartError:
    """The exception for a child that ended in ``stage`` with ``errno`` before it became a command.

    Parameters: ``stage`` a name of the core's list of stages, ``errno`` positive, ``path`` what
    the stage worked on, ``hint`` the line that mends it. Returns it; the caller raises.
    """
    kind: type[StartError] = StartError
    if stage == "exec":
        kind = _EXEC_ERRORS.get(errno, StartError)
    elif stage in _DIRECTORY_STAGES:
        kind = WorkingDirectoryError
    return kind(stage, errno, path, hint)


class CommandFailed(SandboxException):
    """The command ran and did not succeed; raised only where the caller asked for ``check``.

    ``result`` is the whole ``sandbox.Result``.
    """

    exit_status = 1
    _fields = ("result",)

    def __init__(self, result: Any) -> None:
        self.result = result
        super().__init__(result)

    def __str__(self) -> str:
        text = f"command {self.result.args!r} {self.result.outcome}"
        said = self.result.err.strip().rpartition("\n")[2]
        return f"{text}: {said}" if said else text


class SandboxLost(SandboxException):
    """The sandbox ended under a command, which is dead too; what it printed is not known.

    A command that kills or stops the process it runs under brings that about, and so does closing
    the sandbox. ``denials``: what was put back afterwards, as in a result.
    """

    _fields = ("cause", "denials")

    def __init__(self, cause: str, denials: tuple[Any, ...] = ()) -> None:
        self.cause, self.denials = cause, denials
        super().__init__(cause)


class StillRunning(SandboxException, TimeoutError):
    """A command was not over within the time that somebody wanted to wait. It goes on.

    ``command`` is what was run, ``seconds`` how long it was waited for.
    """

    _fields = ("command", "seconds")

    def __init__(self, command: Any, seconds: float) -> None:
        self.command, self.seconds = command, seconds
        super().__init__(f"command {command!r} still runs after {seconds:g} s")


class SandboxBug(SandboxException):
    """Something that cannot happen happened: please report it."""


class SandboxWeakened(UserWarning):
    """A command runs with a part of its policy not enforced (``Result.enforcement`` names it)."""
