"""The standard library's ``subprocess``, confined: the same names, and ``policy=``.

One step of ``subprocess.Popen`` is another: ``_execute_child``, in which the child is made. Pipes,
waiting, text, time-outs, and all that stands on a ``Popen`` (``run``, asyncio, anyio, trio) are the
standard library's own. What a confined child cannot have is refused, before anything runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import (
    DEVNULL,
    PIPE,
    STDOUT,
    CalledProcessError,
    CompletedProcess,
    SubprocessError,
    TimeoutExpired,
)
from typing import Any, AnyStr, NamedTuple, Self

from sandbox.backends.base import ConfinementLost, Order, StartFailed
from sandbox.children import Joiner, Spawner, Spawners
from sandbox.errors import InvalidArgument, SandboxLost, Unavailable, start_error
from sandbox.live import Sandbox, checked
from sandbox.policy import SandboxPolicy
from sandbox.presets import full_access, workspace_write
from sandbox.request import candidates, check_given
from sandbox.result import Enforcement

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "CalledProcessError",
    "CompletedProcess",
    "Popen",
    "SubprocessError",
    "TimeoutExpired",
    "call",
    "check_call",
    "check_output",
    "getoutput",
    "getstatusoutput",
    "installed",
    "run",
]


class _Call(NamedTuple):
    """What ``Popen`` hands to ``_execute_child``, in its order: -1 is a stream as it is."""

    args: Any
    executable: Any
    preexec_fn: Any
    close_fds: Any
    pass_fds: Any
    cwd: Any
    env: Any
    startupinfo: Any
    creationflags: Any
    shell: Any
    p2cread: int
    p2cwrite: int
    c2pread: int
    c2pwrite: int
    errread: int
    errwrite: int
    restore_signals: Any
    gid: int | None
    gids: Any
    uid: int | None
    umask: int
    start_new_session: Any
    process_group: int


_plain: Callable[..., None] = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_code = _plain.__code__
if _code.co_varnames[1 : _code.co_argcount] != _Call._fields:
    raise Unavailable("sandbox.subprocess", f"Popen of Python {sys.version} is another")
_spawners = Spawners()
_UNCHANGED = full_access()
_DEFAULT = workspace_write()
_PASSED_MAX = 13  # beside the streams
_STREAMS = ("stdin", "stdout", "stderr")
_block = threading.Lock()  # held while a policy is installed


class Popen(subprocess.Popen[AnyStr]):
    """``subprocess.Popen`` under a policy: the same arguments, and ``policy`` or ``sandbox``.

    The policy is ``workspace_write()`` unless given; where it does not name its workspace, ``cwd``
    (default: the caller's directory) is that. Under ``full_access()`` itself all is as in the
    standard library. Else ``env=None`` is the environment of the policy; in an ``env`` that is
    given, variables that the caller has with the same value pass only if the policy inherits them.
    The command is a child of this process and ends with it. ``enforcement`` says what is weaker
    than the policy: the end of the tree, above all.

    With ``sandbox``, a ``Sandbox`` in namespaces, it joins that: it sees the same files, network
    and ``/tmp`` as what runs there, and it and all that it has started ends when that is closed or
    lost. Then it counts in the namespace of what joined: its own number there is another one.

    Raises what ``subprocess.Popen`` does. ``InvalidArgument`` for ``preexec_fn``, ``user``,
    ``group``, ``extra_groups`` and ``restore_signals=False``, which cannot be had confined, and
    datagram sockets, which lead out;
    ``PolicyError`` and ``HostError`` and their kinds as ``Sandbox``, ``Unenforceable`` also for
    what takes namespaces; ``SandboxLost`` when other commands of the policy prevented the start.
    """

    enforcement = Enforcement("none")

    # Its streams are text or bytes by arguments that are handed on: Any, where mypy guesses str.
    def __init__(
        self: Popen[Any],
        args: Any,
        *more: Any,
        policy: SandboxPolicy | None = None,
        sandbox: Sandbox | None = None,
        **how: Any,
    ) -> None:
        self._policy, self._joiner = _chosen(policy, sandbox)
        super().__init__(args, *more, **how)

    def _execute_child(self, *given: Any) -> None:
        if self._joiner is None and self._policy == _UNCHANGED:
            _plain(self, *given)
            return
        call = _Call(*given)
        with _Handed(call) as handed:
            spawner = self._joiner or _spawners.get(self._policy, call.cwd)
            self.enforcement = _start(self, spawner, call, handed)


@contextmanager
def installed(
    policy: SandboxPolicy | None = None,
    *,
    workspace: Any = None,
    sandbox: Sandbox | None = None,
) -> Iterator[None]:
    """While the block runs, each ``subprocess.Popen`` is under the policy, or joins ``sandbox``.

    That is each of this process: also one that was imported before, that other modules use
    (``asyncio``, anyio, trio), or that other threads make; not what starts processes without it
    (``os.system``, ``os.posix_spawn``, ``os.fork``, ``multiprocessing``). A
    ``sandbox.subprocess.Popen`` keeps its own policy.
    ``workspace`` (default: the caller's directory) counts where the policy does not name one, for
    the whole block. Raises as ``Popen``, and ``InvalidArgument`` inside another such block.
    """
    chosen, joiner = _chosen(policy, sandbox)
    if joiner is not None:
        seam = _seam(joiner)
    else:
        seam = _plain if chosen == _UNCHANGED else _seam(_spawners.get(chosen, workspace))
    if not _block.acquire(blocking=False):
        raise InvalidArgument("policy", policy, "another one is installed", "one block at a time")
    try:
        subprocess.Popen._execute_child = seam  # type: ignore[attr-defined]
        yield
    finally:
        subprocess.Popen._execute_child = _plain  # type: ignore[attr-defined]
        _block.release()


def _chosen(policy: object, sandbox: object) -> tuple[SandboxPolicy, Joiner | None]:
    if sandbox is None:
        return _DEFAULT if policy is None else checked(policy), None
    if not isinstance(sandbox, Sandbox):
        raise InvalidArgument("sandbox", sandbox, "is no Sandbox", "Sandbox(policy)")
    if policy is not None:
        raise InvalidArgument("policy", policy, "goes not with sandbox=", "one of the two")
    return sandbox.policy, Joiner(sandbox)


def _seam(spawner: Spawner | Joiner) -> Callable[..., None]:
    def _execute_child(self: subprocess.Popen[Any], *given: Any) -> None:
        call = _Call(*given)
        with _Handed(call) as handed:
            _start(self, spawner, call, handed)

    return _execute_child


class _Handed:
    """The fds of a child: what becomes 0, 1 and 2, and what is passed under its own number.

    Looked at before anything of ours is opened: a number that is closed would become that. A stream
    that the caller has closed, or means for himself alone, is the null device.
    """

    __slots__ = ("_null", "fds", "passed")

    def __init__(self, call: _Call) -> None:
        self.passed = _passed(call)
        streams = (call.p2cread, call.c2pwrite, call.errwrite)
        self.fds = [fd if fd != -1 else _own(at) for at, fd in enumerate(streams)]
        for name, fd in zip(_STREAMS, self.fds, strict=True):
            check_given(name, fd)
        for fd in self.passed:
            check_given("pass_fds", fd)
        self._null = -1
        if -1 in self.fds:
            self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
            self.fds = [fd if fd != -1 else self._null for fd in self.fds]
        self.fds += self.passed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._null != -1:
            os.close(self._null)


def _own(fd: int) -> int:
    """A stream of the caller's own, or -1."""
    try:
        return fd if os.get_inheritable(fd) else -1
    except OSError:
        return -1


def _start(popen: Any, spawner: Spawner | Joiner, call: _Call, handed: _Handed) -> Enforcement:
    """What ``_execute_child`` is to do: ``pid`` is set, the child's ends of pipes are closed."""
    _check(call)
    args, executable = _words(call)
    sys.audit("subprocess.Popen", executable, args, call.cwd, call.env)
    ready = spawner.ready(call.env)
    program = os.fsencode(executable)
    order = Order(
        programs=candidates(program, ready.path),
        argv=[os.fsencode(word) for word in args],
        env=ready.env,
        cwd=None if call.cwd is None else os.path.join(os.getcwdb(), os.fsencode(call.cwd)),
        fds=handed.fds,
        targets=(0, 1, 2, *handed.passed) if handed.passed else (),
        new_session=bool(call.start_new_session),
        group=call.process_group if call.process_group >= 0 else None,
        umask=call.umask if call.umask >= 0 else None,
    )
    try:
        popen.pid = ready.direct.spawn(order)
    except StartFailed as failed:
        raise _explained(failed, call, executable) from None
    except ConfinementLost as lost:
        raise SandboxLost(str(lost)) from None
    popen._child_created = True
    # The temporary directory, or sandbox, is there while somebody asks for the child.
    popen._spawner = (spawner, ready.direct)
    popen._close_pipe_fds(*call[10:16])
    return ready.direct.enforcement


def _check(call: _Call) -> None:
    """Refuses what a confined child cannot have."""
    for name, value in (
        ("preexec_fn", call.preexec_fn),
        ("user", call.uid),
        ("group", call.gid),
        ("extra_groups", call.gids),
    ):
        if value is not None:
            raise InvalidArgument(name, value, "cannot be had confined", "policy=full_access()")
    if not call.restore_signals:
        raise InvalidArgument(
            "restore_signals", False, "a confined command ignores no signals", "leave it out"
        )


def _words(call: _Call) -> tuple[list[Any], Any]:
    """The words and the program, as ``subprocess`` makes them."""
    args = call.args
    if call.shell and isinstance(args, os.PathLike):
        raise TypeError("path-like args is not allowed when shell is true")
    words = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
    executable = call.executable
    if call.shell:
        words = ["/bin/sh", "-c", *words]
        if executable:
            words[0] = executable
    return words, words[0] if executable is None else executable


def _passed(call: _Call) -> list[int]:
    """What the child keeps beside its streams, under its own number. ``OSError``: it is closed."""
    if call.close_fds:
        passed = sorted({int(fd) for fd in call.pass_fds} - {0, 1, 2}) if call.pass_fds else []
    else:
        passed = sorted(_inheritable())
    if len(passed) > _PASSED_MAX:
        name = "pass_fds" if call.close_fds else "close_fds"
        raise InvalidArgument(name, passed, f"are more than {_PASSED_MAX} under a policy")
    for fd in passed:
        os.get_inheritable(fd)
    return passed


def _inheritable() -> Iterator[int]:
    for fd in map(int, os.listdir("/dev/fd")):
        try:
            if fd > 2 and os.get_inheritable(fd):
                yield fd
        except OSError:  # the one that the list was read from
            continue


def _explained(failed: StartFailed, call: _Call, executable: Any) -> OSError:
    """As ``subprocess`` says it where that has words for it."""
    if failed.stage not in ("cwd", "exec"):
        return start_error(failed.stage, failed.errno)
    path = call.cwd if failed.stage == "cwd" else executable
    return OSError(failed.errno, os.strerror(failed.errno), path)


def _confined(function: Callable[..., Any]) -> Callable[..., Any]:
    """The standard library's own code, with our names in the place of those that it calls."""
    made = types.FunctionType(
        function.__code__,
        _names,
        function.__name__,
        function.__defaults__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__doc__ = function.__doc__
    _names[function.__name__] = made
    return made


_names: dict[str, Any] = {**vars(subprocess), "Popen": Popen}
run: Callable[..., CompletedProcess[Any]] = _confined(subprocess.run)
call: Callable[..., int] = _confined(subprocess.call)
check_call: Callable[..., int] = _confined(subprocess.check_call)
check_output: Callable[..., Any] = _confined(subprocess.check_output)
getstatusoutput: Callable[..., tuple[int, str]] = _confined(subprocess.getstatusoutput)
getoutput: Callable[..., str] = _confined(subprocess.getoutput)
