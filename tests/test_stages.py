"""Every stage between clone and exec fails once, is named, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import _sandcore as core

TESTS = Path(__file__).resolve().parent

# stage, the call that is made to fail, its first argument (for prctl), the errno
INJECTED = [
    ("clone", "clone", None, errno.EAGAIN),
    ("signals", "rt_sigaction", None, errno.EINVAL),
    ("session", "setsid", None, errno.EPERM),
    ("parent-death", "prctl", 1, errno.EINVAL),
    ("streams", "dup3", None, errno.EMFILE),
    ("close", "close_range", None, errno.ENOSYS),
    ("capabilities", "capset", None, errno.EPERM),
    ("no-new-privs", "prctl", 38, errno.EINVAL),
    ("landlock", "landlock_restrict_self", None, errno.E2BIG),
    ("filter", "seccomp", None, errno.ENOMEM),
]

SPAWN = """
    import os, sys
    import _sandcore as core
    from failing import fail
    policy = core.compile_policy(
        [(b"/", core.ACCESS_WRITE, False)],
        abi=min(core.probe().landlock_abi, 10),
        handle=core.HANDLE_WRITE,
        network=core.NET_NONE,
    )
    plan = core.Plan([b"/bin/true"], [], policy=policy, inline=True, die_with_thread=True)
    before = sorted(os.listdir("/proc/self/fd"))
    pid, pidfd = core.spawn(plan)  # the allowed twin; makes the ruleset, which is kept
    assert core.wait(pidfd).status == 0
    os.close(pidfd)
    before = sorted(os.listdir("/proc/self/fd"))
    fail(*CALL)
    try:
        core.spawn(plan)
        print("started")
    except core.StageError as error:
        after = sorted(os.listdir("/proc/self/fd"))
        try:
            children = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            children = None
        print(error.stage, error.errno, after == before, children)
"""


def spawn_failing(call: tuple[object, ...]) -> str:
    """The spawn above, in a process of its own: what was made to fail stays failing."""
    script = f"CALL = {call!r}\n" + textwrap.dedent(SPAWN)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(("stage", "call", "argument", "code"), INJECTED)
def test_a_stage_that_fails_is_named_and_leaves_no_process_and_no_fd(
    stage: str, call: str, argument: int | None, code: int
) -> None:
    assert spawn_failing((call, code, argument)) == f"{stage} {code} True None"


def started(**changes: object) -> core.Status:
    plan = core.Plan([b"/bin/true"], [], **changes)  # type: ignore[arg-type]
    _, pidfd = core.spawn(plan)
    try:
        status = core.wait(pidfd, 10)
        assert status is not None
        return status
    finally:
        os.close(pidfd)


@pytest.mark.parametrize(
    ("stage", "code", "changes"),
    [
        ("streams", errno.EBADF, {"fds": (0, 1, 1000)}),
        ("cwd", errno.ENOENT, {"cwd": b"/no/such/place"}),
        ("cwd", errno.ENOTDIR, {"cwd": b"/etc/passwd"}),
        ("limits", errno.EINVAL, {"limits": [(99, 1, 1)]}),
        ("limits", errno.EINVAL, {"limits": [(7, 10, 5)]}),
        ("exec", errno.ENOENT, {"programs": [b"/no/such/program"]}),
        ("exec", errno.EACCES, {"programs": [b"/etc/passwd"]}),
    ],
)
def test_a_stage_that_is_asked_for_nonsense_says_so(
    stage: str, code: int, changes: dict[str, object]
) -> None:
    assert started().status == 0
    with pytest.raises(core.StageError) as caught:
        started(**changes)
    assert (caught.value.stage, caught.value.errno) == (stage, code)


def test_a_program_that_may_not_be_executed_is_told_from_one_that_is_missing() -> None:
    with pytest.raises(core.StageError) as caught:
        started(programs=[b"/no/such", b"/etc/passwd", b"/nor/this"])
    assert (caught.value.errno, caught.value.detail) == (errno.EACCES, 1)


def test_the_first_candidate_that_runs_is_run() -> None:
    assert started(programs=[b"/no/such", b"/etc/passwd", b"/bin/true"]).status == 0


def test_a_script_without_a_first_line_is_no_program(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    with pytest.raises(core.StageError) as caught:
        started(programs=[bytes(script)])
    assert caught.value.errno == errno.ENOEXEC


def test_arguments_that_the_kernel_does_not_take_are_refused_by_exec() -> None:
    with pytest.raises(core.StageError) as caught:
        core.spawn(core.Plan([b"/bin/true", *[b"x" * 100_000] * 64], []))
    assert (caught.value.stage, caught.value.errno) == ("exec", errno.E2BIG)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: core.Plan([], []),
        lambda: core.Plan([b"a\0b"], []),
        lambda: core.Plan([b"a"], [b"A=\0"]),
        lambda: core.Plan([b"a"], [], fds=(0, 1)),
        lambda: core.Plan([b"a"], [], fds=tuple(range(17))),
        lambda: core.Plan([b"a"], [], limits=[(7, 1, 1)] * 17),
    ],
)
def test_a_plan_that_cannot_be_is_refused_before_anything_happens(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        wrong()  # type: ignore[operator]
