"""A command as a person writes it, made ready for the kernel, and what came of it.

Everything that can be refused before a process exists is refused here, with the culprit's name.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from errno import ENOTDIR
from functools import lru_cache
from typing import Any, Final, TypedDict

from sandbox.backends.attempts import refused_connects
from sandbox.backends.base import Outcome, Request
from sandbox.denial import Denial
from sandbox.denials import Asked, denials_of, from_kernel, from_supervisor, untold
from sandbox.errors import InvalidArgument, WorkingDirectoryError
from sandbox.limits import Limits, check_seconds
from sandbox.result import Enforcement, Result, Usage

__all__ = [
    "POLICY_LIMIT",
    "Args",
    "PolicyLimit",
    "PopenOptions",
    "RunOptions",
    "candidates",
    "check_given",
    "check_names",
    "check_options",
    "check_popen",
    "encode_words",
    "existing_directory",
    "input_bytes",
    "result_of",
    "set_options",
    "working_directory",
]

Args = str | Sequence[Any]


class PolicyLimit:
    """The type of ``POLICY_LIMIT``."""

    def __repr__(self) -> str:
        return "POLICY_LIMIT"


POLICY_LIMIT: Final = PolicyLimit()  # "as the policy's limits say": None means no limit at all


class RunOptions(TypedDict, total=False):
    """What may be said about one command; ``Sandbox.run`` documents each."""

    cwd: Any
    env: Mapping[str, str] | None
    input: bytes | str | None
    timeout: float | PolicyLimit | None
    limits: Limits | None
    check: bool
    stdin: int | None
    stdout: int | None
    stderr: int | None
    terminal: bool


class PopenOptions(TypedDict, total=False):
    """What may be said about a command that goes on; ``Sandbox.popen`` documents each."""

    cwd: Any
    env: Mapping[str, str] | None
    timeout: float | PolicyLimit | None
    limits: Limits | None
    stdin: Any
    stdout: Any
    stderr: Any
    pty: bool | tuple[int, int] | None


_OPTIONS = frozenset(RunOptions.__annotations__)
_POPEN_OPTIONS = frozenset(PopenOptions.__annotations__)


def check_names(how: RunOptions) -> None:
    """Raises ``TypeError`` for an option of a command that is none."""
    unknown = how.keys() - _OPTIONS
    if unknown:
        raise TypeError(f"run() got an unexpected keyword argument {min(unknown)!r}")


def check_options(how: RunOptions) -> None:
    """Refuses what means nothing: unknown options, times that are no times, no fds.

    Raises ``InvalidArgument``, ``InvalidLimit``, and ``TypeError`` for an option that is none.
    """
    check_names(how)
    timeout, limits = how.get("timeout"), how.get("limits")
    if timeout is not None and not isinstance(timeout, PolicyLimit):
        check_seconds("timeout", timeout)
    if limits is not None and not isinstance(limits, Limits):
        raise InvalidArgument("limits", limits, "is no Limits")
    env = how.get("env")
    if env is not None and not isinstance(env, Mapping):
        raise InvalidArgument("env", env, "is no mapping of names to values")
    if how.get("input") is not None and how.get("stdin") is not None:
        raise InvalidArgument("input", "...", "goes with no stdin")
    for name, fd in (
        ("stdin", how.get("stdin")),
        ("stdout", how.get("stdout")),
        ("stderr", how.get("stderr")),
    ):
        if fd is not None and (isinstance(fd, bool) or not isinstance(fd, int) or fd < 0):
            raise InvalidArgument(name, fd, "is no fd", "a number, or None to capture")
        if fd is not None:
            check_given(name, fd)


def check_given(name: str, fd: int) -> None:
    """Refuses a socket of the caller's that sends to whatever address its holder says.

    It is of the host's network, and no filter sees the address of a ``sendmsg``.
    """
    try:
        found = os.fstat(fd).st_mode
    except OSError:
        return  # who hands it over says so
    if stat.S_ISSOCK(found):
        with socket.socket(fileno=os.dup(fd)) as one:
            if one.type not in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
                raise InvalidArgument(name, fd, "is a datagram socket", "a pipe or a stream")


def set_options(request: Request, how: RunOptions) -> None:
    """What was said about this command beside its limits and environment, once it is checked."""
    timeout = how.get("timeout", POLICY_LIMIT)
    if not isinstance(timeout, PolicyLimit):
        request.timeout = timeout
    fds = [how.get(name) for name in ("stdin", "stdout", "stderr")]
    request.stdin, request.stdout, request.stderr = [
        fd if isinstance(fd, int) else -1 for fd in fds
    ]
    request.input = input_bytes(how.get("input"))
    request.terminal = bool(how.get("terminal"))


def check_popen(how: PopenOptions) -> RunOptions:
    """Refuses what means nothing, as ``check_options``, but for the streams.

    Returns what it has in common with the options of ``run``.
    """
    unknown = how.keys() - _POPEN_OPTIONS
    if unknown:
        raise TypeError(f"popen() got an unexpected keyword argument {min(unknown)!r}")
    common: RunOptions = {"env": how.get("env"), "limits": how.get("limits")}
    if "timeout" in how:
        common["timeout"] = how["timeout"]
    check_options(common)
    return common


def input_bytes(given: Any) -> bytes | None:
    """What a command is to read, as bytes. Raises ``InvalidArgument`` for what is neither."""
    if given is None or isinstance(given, bytes):
        return given
    try:
        return given.encode() if isinstance(given, str) else bytes(memoryview(given))
    except UnicodeEncodeError:
        raise InvalidArgument("input", "...", "contains a surrogate: give bytes") from None
    except TypeError:
        raise InvalidArgument("input", type(given).__name__, "is neither bytes nor text") from None


# Agents write for bash. Never as a login shell: that rebuilds PATH and runs files of HOME.
_SHELLS = ("/bin/bash", "/bin/sh")
# These name whatever process looks at them: the helper, when it comes to executing.
_SELF = (b"/proc/self/", b"/proc/thread-self/")


def encode_words(args: Args) -> list[bytes]:
    """The words of a command as bytes; text is given to a shell with ``-c``.

    Raises ``InvalidArgument`` for an empty command, a word that is neither text, bytes nor a path,
    NUL, and surrogates that stand for no byte.
    """
    if isinstance(args, str):
        shell = next((path for path in _SHELLS if os.access(path, os.X_OK)), _SHELLS[-1])
        args = (shell, "-c", args)
    elif not isinstance(args, (list, tuple)) and (
        isinstance(args, bytes) or not isinstance(args, Iterable)
    ):
        kind = type(args).__name__
        raise InvalidArgument("args", args, f"is {kind}", "text for a shell, or a list of words")
    words = [
        word.encode()
        if type(word) is str and word.isascii() and "\0" not in word
        else _encode(index, word)
        for index, word in enumerate(args)
    ]
    if not words or not words[0]:
        raise InvalidArgument("args", args, "names no program")
    if words[0].startswith(_SELF):
        raise InvalidArgument("args[0]", args[0], "means another file for each process")
    return words


def _encode(index: int, word: Any) -> bytes:
    try:
        encoded = os.fsencode(word)
    except TypeError:
        kind = type(word).__name__
        raise InvalidArgument(
            f"args[{index}]", word, f"is {kind}, neither text nor a path"
        ) from None
    except UnicodeEncodeError:
        raise InvalidArgument(f"args[{index}]", word, "contains a surrogate") from None
    if b"\0" in encoded:
        raise InvalidArgument(f"args[{index}]", word, "contains a NUL character")
    return encoded


@lru_cache(maxsize=256)
def candidates(program: bytes, path: str) -> tuple[bytes, ...]:
    """What to try to execute, in order: the command's own PATH counts, not the caller's."""
    if b"/" in program:
        return (program,)
    # An empty entry of PATH means the working directory; a sandboxed one is written by strangers.
    found = tuple(place + b"/" + program for place in os.fsencode(path).split(b":") if place)
    return found or (program,)


def working_directory(cwd: Any) -> str:
    """``cwd`` as an absolute path (the caller's own for None), not resolved further.

    Raises ``WorkingDirectoryError`` when the caller's was deleted, ``InvalidArgument`` when it is
    no path.
    """
    if type(cwd) is str and cwd.startswith("/") and "\0" not in cwd:
        return cwd
    try:
        if cwd is None:
            return os.getcwd()
        text = os.fsdecode(cwd)
        if "\0" in text or not text:
            raise InvalidArgument("cwd", cwd, "is empty or contains a NUL character")
        return text if text.startswith("/") else os.path.join(os.getcwd(), text)
    except OSError as error:
        hint = "the caller's working directory was deleted"
        raise WorkingDirectoryError("cwd", error.errno or 0, ".", hint) from None
    except (TypeError, UnicodeError):
        raise InvalidArgument("cwd", cwd, "is no path") from None


def existing_directory(cwd: Any) -> str:
    """As ``working_directory``, of what is to be a workspace too: it must be there.

    Raises ``WorkingDirectoryError`` when it is not, or is no directory.
    """
    place = working_directory(cwd)
    try:
        found = os.stat(place)
    except OSError as error:
        raise WorkingDirectoryError("cwd", error.errno or 0, place, "create it") from None
    if not stat.S_ISDIR(found.st_mode):
        raise WorkingDirectoryError("cwd", ENOTDIR, place, "it is not a directory")
    return place


def result_of(
    args: Args,
    outcome: Outcome,
    denials: tuple[Denial, ...],
    enforcement: Enforcement,
    asked: Asked,
    output: Sequence[bytes] | None = None,
) -> Result:
    """The result of a command that started; ``output``: what it printed, if others read that."""
    if outcome.attempts:
        denials += from_supervisor(refused_connects(outcome), asked)
    if outcome.refusals:
        denials += from_kernel(outcome.refusals, asked, enforcement.isolation)
    if outcome.status or outcome.timed_out or outcome.over_memory:
        said = output if output is not None else (outcome.stderr, outcome.stdout)
        denials += untold(denials_of(outcome, asked, enforcement.isolation, said), denials)
    code = os.waitstatus_to_exitcode(outcome.status)
    usage = outcome.usage
    return Result(
        args=args,
        returncode=code,
        signal=-code if code < 0 else None,
        timed_out=outcome.timed_out,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        stdout_truncated=outcome.stdout_total - len(outcome.stdout),
        stderr_truncated=outcome.stderr_total - len(outcome.stderr),
        duration=outcome.duration,
        usage=Usage(usage[0], usage[1], usage[2] * 1024),
        enforcement=enforcement,
        denials=denials,
        stdout_cut=outcome.stdout_head,
        stderr_cut=outcome.stderr_head,
        swept=outcome.swept,
        memory_exceeded=outcome.over_memory,
    )
