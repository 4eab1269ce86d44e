"""The exceptions: who can mend what, what a text names, and that all survive a pickle."""

from __future__ import annotations

import errno
import inspect
import pickle

import pytest

from sandbox import errors
from sandbox.errors import (
    ArgumentsTooLong,
    CommandFailed,
    CommandNotExecutable,
    CommandNotFound,
    HostError,
    InvalidArgument,
    InvalidLimit,
    InvalidPath,
    InvalidProfile,
    PolicyError,
    RecordsLost,
    SandboxBug,
    SandboxException,
    SandboxLost,
    SandboxWeakened,
    StartError,
    StillRunning,
    Unavailable,
    Unenforceable,
    WorkingDirectoryError,
    WorkspaceRefused,
    start_error,
)
from sandbox.result import Enforcement, Result, Usage

FAILED = Result(["x"], 3, None, False, b"", b"", 0, 0, 0.1, Usage(), Enforcement("landlock"))
EXAMPLES = [
    SandboxException("something"),
    PolicyError("something"),
    InvalidPath("/a", "is missing", "create it"),
    WorkspaceRefused("/root", "it is HOME itself", "name a project"),
    InvalidLimit("wall", 0, "must be more"),
    InvalidArgument("network", "lan", "is none", "none"),
    InvalidProfile("sandbox.toml", 3, "network.acess", "there is no such key", "access"),
    HostError("something"),
    Unenforceable("writes", "no Landlock", "a newer kernel"),
    Unavailable("the core", "not built", "make build"),
    RecordsLost("/log", "No space left on device", "make room for it"),
    StartError("landlock", errno.EINVAL, "/x", "hint"),
    CommandNotFound("exec", errno.ENOENT, "/x"),
    CommandNotExecutable("exec", errno.EACCES, "/x", "chmod +x /x"),
    WorkingDirectoryError("chdir", errno.ENOTDIR, "/x"),
    ArgumentsTooLong("exec", errno.E2BIG),
    CommandFailed(FAILED),
    SandboxLost("it killed its lane"),
    StillRunning(["sleep", "9"], 0.5),
    SandboxBug("impossible"),
]
CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, SandboxException)
]


def test_each_class_has_an_example_here() -> None:
    assert {type(example) for example in EXAMPLES} == set(CLASSES)


def test_the_drawing_shows_every_class() -> None:
    drawing = errors.__doc__ or ""
    assert [
        cls.__name__ for cls in [*CLASSES, SandboxWeakened] if cls.__name__ not in drawing
    ] == []
    assert set(errors.__all__) == {cls.__name__ for cls in [*CLASSES, SandboxWeakened]} | {
        "start_error"
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: type(e).__name__)
def test_a_pickled_exception_comes_back_with_all_its_facts(example: SandboxException) -> None:
    back = pickle.loads(pickle.dumps(example))
    assert type(back) is type(example)
    assert str(back) == str(example)
    assert vars(back) == vars(example)
    assert getattr(back, "errno", None) == getattr(example, "errno", None)


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (InvalidPath("/a/b", "is missing", "create it"), ["'/a/b'", "is missing", "create it"]),
        (WorkspaceRefused("/root", "it is HOME", "narrow"), ["'/root'", "it is HOME", "narrow"]),
        (InvalidLimit("cpu", -1, "must be from 1"), ["cpu=-1", "must be from 1"]),
        (Unenforceable("writes", "ABI 2", "Linux 6.2"), ["writes", "ABI 2", "Linux 6.2"]),
        (CommandNotFound("exec", 2, "/x/y", "hint"), ["exec", "'/x/y'", "ENOENT", "hint"]),
    ],
)
def test_a_text_names_the_part_the_cause_and_the_mend(
    error: SandboxException, named: list[str]
) -> None:
    assert [part for part in named if part not in str(error)] == []


@pytest.mark.parametrize(
    ("stage", "number", "kind", "status"),
    [
        ("exec", errno.ENOENT, CommandNotFound, 127),
        ("exec", errno.ENOTDIR, CommandNotFound, 127),
        ("exec", errno.EACCES, CommandNotExecutable, 126),
        ("exec", errno.ENOEXEC, CommandNotExecutable, 126),
        ("exec", errno.E2BIG, ArgumentsTooLong, 126),
        ("exec", errno.EIO, StartError, 125),
        ("chdir", errno.ENOENT, WorkingDirectoryError, 125),
        ("landlock", errno.EACCES, StartError, 125),
    ],
)
def test_a_failed_stage_has_its_class_and_exit_status(
    stage: str, number: int, kind: type[StartError], status: int
) -> None:
    error = start_error(stage, number, "/x", "do this")
    assert type(error) is kind
    assert (error.stage, error.errno, error.path, error.hint) == (stage, number, "/x", "do this")
    assert error.exit_status == status


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (InvalidLimit("wall", 0, "x"), ValueError),
        (CommandNotFound("exec", errno.ENOENT), FileNotFoundError),
        (CommandNotExecutable("exec", errno.EACCES), PermissionError),
        (StartError("clone", errno.EAGAIN), OSError),
    ],
)
def test_who_expects_the_builtin_exception_catches_it(
    error: SandboxException, builtin: type[Exception]
) -> None:
    with pytest.raises(builtin):
        raise error


def test_a_failed_command_is_told_from_one_that_did_not_start() -> None:
    assert not issubclass(CommandFailed, StartError)
    assert not issubclass(StartError, CommandFailed)
    assert "exited with status 3" in str(CommandFailed(FAILED))


def test_a_long_value_does_not_bury_the_cause() -> None:
    error = errors.InvalidArgument("policy", "x" * 5000, "is wrong", "another")
    assert str(error) == f"policy='{'x' * 99}...: is wrong; to mend it: another"
    assert error.value == "x" * 5000
