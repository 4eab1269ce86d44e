"""Every refusal is explained, and nothing else is: in both isolations, as root and as a user.

The bodies are functions in `tests/refusals/` whose names are the promises; each runs in a process
of its own, with a workspace and a directory outside, neither in `/tmp`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import casekit
import pytest
from conftest import AsUser, bodies
from seccomp_facts import DENIED
from test_cases import RUNNER, run_as_root

from sandbox.denial import Evidence
from sandbox.denials import _SYSCALLS, Asked, from_supervisor, guesses, untold
from sandbox.limits import Limits
from sandbox.messages import Claim
from sandbox.presets import workspace_write
from sandbox.refused import Judge
from sandbox.resolve import ResolvedPolicy, resolve


@pytest.mark.parametrize("isolation", ["auto", "landlock"])
@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize(
    ("module", "name"), tuple(bodies("refusals")), ids=lambda one: one.rpartition(".")[2]
)
def test_refusals(module: str, name: str, who: str, isolation: str, far: Path) -> None:
    w, o, home = far / "work", far / "outside", far / "home"
    for path in (w, o, home):
        path.mkdir()
    (o / "file").write_text("outside\n")
    words, more = [module, name, str(w), str(o)], {"SANDBOX_ISOLATION": isolation}
    if who == "root":
        done = run_as_root(words, home, more)
    else:
        user = AsUser(home)
        user.give(home, w, o, o / "file")
        done = user(RUNNER, *words, timeout=120, env=more)
    if done.returncode == casekit.SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def resolved(workspace: Path, home: Path) -> ResolvedPolicy:
    return resolve(workspace_write(workspace), str(workspace), str(home), "")


def asked(workspace: Path, home: Path) -> Asked:
    return Asked(resolved(workspace, home), str(workspace), Limits(), None)


def test_a_file_system_that_may_not_answer_is_not_looked_at(
    workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    real = os.lstat

    def lstat(path: str) -> os.stat_result:
        looked.append(path)
        return real(path)

    judge = Judge(resolved(workspace, outside), "landlock", str(workspace))
    claim = Claim("EACCES", "write", (str(outside / "file"),), "", "", "")
    monkeypatch.setattr("sandbox.refused.os.lstat", lstat)
    assert judge.denial(claim) is not None
    assert str(outside) in looked
    looked.clear()
    monkeypatch.setattr(judge, "_slow", (str(outside),))
    assert judge.denial(claim) is None
    assert str(outside.parent) in looked and str(outside) not in looked


def test_a_directory_as_wide_as_home_is_never_the_grant(workspace: Path, outside: Path) -> None:
    judge = Judge(resolved(workspace, outside), "landlock", str(workspace))
    for path in (outside / "new", outside.parent / "new"):
        denial = judge.denial(Claim("EACCES", "write", (str(path),), "", "", ""))
        assert denial is not None
        assert denial.grant is None
        assert "as a whole" in denial.detail


def test_what_the_supervisor_refused_is_certain(workspace: Path, outside: Path) -> None:
    refused = [("network", "192.0.2.1:80", 101), ("socket", "/run/docker.sock", 13)]
    network, socket = from_supervisor(refused, asked(workspace, outside))
    assert (network.kind, network.what, network.evidence) == ("network", "192.0.2.1:80", "filter")
    assert network.grant is not None and network.certain and socket.certain
    assert (socket.kind, socket.what) == ("socket", "/run/docker.sock")
    same, host, name, some = (
        replace(network, what=what, evidence=Evidence.MESSAGE)
        for what in ("192.0.2.1", "192.0.2.11", "example.com", "the network")
    )
    assert untold([same, host, name, some], [network, socket]) == (host, name)
    assert untold([same, host, name, some], [socket]) == (same, host, name, some)


def test_words_alone_give_a_guess_where_the_output_was_not_seen(
    workspace: Path, outside: Path
) -> None:
    (workspace / ".git").mkdir()
    (outside / ".npmrc").touch()
    given = asked(workspace, outside)
    (guess,) = guesses(["/usr/bin/git", "-q", "commit"], given, "namespaces")
    assert guess.grant is not None
    assert (guess.certain, guess.grant.option) == (False, f"--write {workspace}/.git")
    (guess,) = guesses(["cat", f"{outside}/.npmrc"], given, "landlock")
    assert guess.rule == "secret: npm"
    barred = workspace_write(workspace).with_deny(workspace / "a.txt")
    closed = resolve(barred, str(workspace), str(outside), "")
    named = ["cat", "-n", "b.txt", "a.txt"]
    (guess,) = guesses(named, given._replace(base=closed), "namespaces")
    assert (guess.what, guess.rule) == (f"{workspace}/a.txt", f"deny: {workspace}/a.txt")
    assert guesses(["git", "log"], given, "namespaces") == ()
    assert guesses(["git", "commit"], given, "landlock") == ()
    assert guesses(["grep", "x", "/etc/passwd"], given, "landlock") == ()


def test_the_system_calls_that_programs_are_told_by_are_refused() -> None:
    assert set(_SYSCALLS.values()) <= set(DENIED)
