"""What isolation `namespaces` promises, tried as root and as an ordinary user.

The bodies are functions in `tests/spaces/` whose names are the promises. Each runs in a process of
its own, with a workspace and a directory outside, neither of them in `/tmp` (which is private).
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import casekit
import pytest
from conftest import TESTS, AsUser, bodies
from spacekit import PYTHON
from test_cases import RUNNER, run_as_root

SPACE = {"SANDBOX_ISOLATION": "auto"}


@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize(
    ("module", "name"), tuple(bodies("spaces")), ids=lambda one: one.rpartition(".")[2]
)
def test_in_namespaces(module: str, name: str, who: str, far: Path) -> None:
    w, o = far / "work", far / "outside"
    for path in (w, o):
        path.mkdir()
    (o / "file").write_text("outside\n")
    words = [module, name, str(w), str(o)]
    home = far / "home"
    home.mkdir()
    if who == "root":
        done = run_as_root(words, home, SPACE)
    else:
        user = AsUser(home)
        user.give(home, w, o, o / "file")
        done = user(RUNNER, *words, timeout=120, env=SPACE)
    if done.returncode == casekit.SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.skipif(os.getuid() != 0, reason="takes a user of its own")
def test_too_few_processes_are_no_reason_for_a_weaker_isolation(far: Path) -> None:
    """A command can use them up, and would have the next one confined less."""
    program = """
        import errno, os, resource, subprocess, sys
        from sandbox import Sandbox, StartError, workspace_write
        from sandbox.backends.compiled import compile_file, launcher_path
        place, work = sys.argv[1:]
        compile_file(workspace_write(), f"{place}/policy.scx", work)
        words = [launcher_path(), "--policy", f"{place}/policy.scx", "sh", "-c", "echo $SANDBOX"]
        for most in (*range(2, 16), 1000):
            pid = os.fork()
            if pid == 0:
                resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
                try:
                    with Sandbox(workspace_write(work)) as box:
                        print("python", box.isolation, flush=True)
                except StartError as error:
                    print("python", errno.errorcode[error.errno], flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
            limited = ["/usr/bin/prlimit", f"--nproc={most}", *words]
            said = subprocess.run(limited, stdout=-1, stderr=-3, text=True, cwd=work).stdout
            print("launcher", said.strip() or "refused", flush=True)
    """
    work = far / "work"
    work.mkdir()
    for path in (far, work):
        os.chown(path, 4242, 4242)
    env = {
        **os.environ,
        **SPACE,
        "HOME": str(far / "home"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    words = [PYTHON, "-W", "ignore", "-c", textwrap.dedent(program), str(far), str(work)]
    done = subprocess.run(
        words, text=True, env=env, user=4242, group=4242, extra_groups=[], cwd="/", stdout=-1
    )
    said = {tuple(line.split()) for line in done.stdout.splitlines()}
    assert said == {
        ("python", "EAGAIN"),
        ("python", "namespaces"),
        ("launcher", "refused"),
        ("launcher", "namespaces"),
    }


def test_there_are_bodies() -> None:
    assert len(list(bodies("spaces"))) > 30 and os.path.isdir(TESTS / "spaces")
