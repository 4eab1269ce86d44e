"""The rules of a policy in the kernel: what it refuses is what the policy refuses."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from ccore import ffi, lib
from conftest import AsUser
from rulesim import DENY, NOBODY, READ, WRITE, settle

from sandbox.backends.rules import Rule, Rules, compile_rules
from sandbox.entries import Entry, Special
from sandbox.policy import SandboxPolicy
from sandbox.presets import workspace_write
from sandbox.resolve import resolve

PR_SET_NO_NEW_PRIVS = 38
CLASSES = {
    "read": lib.LANDLOCK_CLASS_READ,
    "write": lib.LANDLOCK_CLASS_WRITE,
    "device": lib.LANDLOCK_CLASS_DEVICE,
    "names": lib.LANDLOCK_CLASS_NAMES,
}


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount")
def test_pol13_what_a_second_mount_shows_is_denied_too(place: Path) -> None:
    for name in ("data/secret", "data/open", "data/too", "again", "side"):
        (place / name).mkdir(parents=True)
    code = """
import json, subprocess, sys
base, sys.path[:] = sys.argv[1], sys.argv[2:]
from rulesim import READ, WRITE, DENY, may_read, settle
import sandbox.backends.rules
from sandbox.backends.aliases import aliases
from sandbox.backends.rules import compile_rules
from sandbox.errors import Unenforceable
subprocess.run(["mount", "--bind", f"{base}/data", f"{base}/again"], check=True)
subprocess.run(["mount", "--bind", f"{base}/data/secret", f"{base}/side"], check=True)
subprocess.run(["mount", "--bind", f"{base}/data/secret", f"{base}/data/too"], check=True)
rules = compile_rules(settle((base, READ), (f"{base}/data/secret", DENY)), 7)
names = ["data/secret", "data/open", "again/secret", "again/open", "side"]
found = [may_read(rules, f"{base}/{name}/f") for name in names]
sandbox.backends.rules.aliases = lambda paths: []
rules = compile_rules(settle((base, READ), (f"{base}/data/secret", DENY)), 7)
found.append(may_read(rules, f"{base}/data/too/f"))
sandbox.backends.rules.aliases = aliases
try:
    compile_rules(settle((base, READ), (f"{base}/again", WRITE), (f"{base}/data/secret", DENY)), 7)
except Unenforceable as error:
    found.append(str(error))
print(json.dumps(found))
"""
    command = ["unshare", "-m", sys.executable, "-c", code, str(place), *sys.path]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"needs a mount namespace: {done.stderr.strip()}")
    *found, blind, refused = json.loads(done.stdout)
    assert found == [False, True, False, True, False]
    assert blind is False, "a sibling that is the denied directory itself needs no mount table"
    assert "again/secret out of" in refused


# In the kernel


def enforce(rules: Rules, abi: int) -> None:
    """Confines this process by the rules, with the core's own rights table."""
    handle = lib.LANDLOCK_HANDLE_WRITE
    handle |= lib.LANDLOCK_HANDLE_READ if rules.handle_read else 0
    handle |= lib.LANDLOCK_HANDLE_NAMES if rules.handle_names else 0
    rights = ffi.new("struct landlock_rights *")
    assert lib.landlock_handled(abi, handle, rights) == 0
    ruleset = lib.landlock_create(rights)
    assert ruleset >= 0
    for rule in rules.rules:
        fd = opened(rule)
        if fd < 0:
            continue
        access = lib.landlock_granted(abi, CLASSES[rule.access], int(rule.is_dir), handle)
        assert lib.landlock_add_path(ruleset, fd, access) == 0, rule
        os.close(fd)
    assert ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert lib.landlock_restrict(ruleset, 0) == 0


def opened(rule: Rule) -> int:
    """An O_PATH descriptor of what the rule is about; -1 where a neighbour has gone meanwhile."""
    try:
        fd = os.open(rule.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        assert not rule.named
        return -1
    status = os.fstat(fd)
    if (status.st_dev, status.st_ino) != (rule.dev, rule.ino):
        assert not rule.named
        os.close(fd)
        return -1
    return fd


def attempt(path: str, flags: int) -> str:
    try:
        os.close(os.open(path, flags, 0o600))
    except OSError as error:
        return type(error).__name__
    return "ok"


def confined(rules: Rules, tries: list[tuple[str, int]]) -> list[str]:
    """What a process confined by the rules gets for each (path, open flags)."""
    abi = ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1)
    if abi < 3:
        pytest.skip(f"the kernel's Landlock ABI is {abi}, 3 is needed")
    out, end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            enforce(rules, abi)
            answer: Any = [attempt(path, flags) for path, flags in tries]
        except BaseException:
            answer = traceback.format_exc()
        os.write(end, json.dumps(answer).encode())
        os._exit(0)
    os.close(end)
    with os.fdopen(out, "rb") as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(child, 0)
    assert isinstance(answer, list), answer
    return answer


def test_the_kernel_agrees_with_a_deny_deep_in_what_may_be_read(
    outside: Path, workspace: Path
) -> None:
    (outside / "d" / "secret").mkdir(parents=True)
    (outside / "d" / "secret" / "key").write_text("secret")
    (outside / "d" / "open").write_text("open")
    found = settle(("/", READ), (outside / "d" / "secret", DENY), (workspace, WRITE))
    tries = [
        (f"{outside}/d/secret/key", os.O_RDONLY),
        (f"{outside}/d/open", os.O_RDONLY),
        (f"{outside}/d/open", os.O_WRONLY),
        (f"{outside}/file", os.O_RDONLY),
        (f"{outside}/new", os.O_WRONLY | os.O_CREAT),
        (f"{workspace}/new", os.O_WRONLY | os.O_CREAT),
        (f"/proc/self/root{outside}/d/secret/key", os.O_RDONLY),
        ("/etc/passwd", os.O_RDONLY),
        ("/", os.O_RDONLY | os.O_DIRECTORY),
        ("/dev/null", os.O_RDWR),
        (sys.executable, os.O_RDONLY),
    ]
    no, ok = "PermissionError", "ok"
    assert confined(compile_rules(found, 7), tries) == [
        no, ok, no, ok, no, ok, no, ok, ok, ok, ok,
    ]  # fmt: skip


def test_the_kernel_agrees_with_a_home_that_has_secrets(place: Path, workspace: Path) -> None:
    home = place / "home"
    for name in (".ssh/id", ".aws/credentials", ".config/gh/hosts.yml", ".config/app/rc", ".netrc"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    (home / ".bashrc").write_text("x")
    (home / ".npmrc").symlink_to(place / "real-npmrc")
    (place / "real-npmrc").write_text("x")
    names = [".ssh/id", ".aws/credentials", ".config/gh/hosts.yml", ".netrc", ".npmrc"]
    names += [".config/app/rc", ".bashrc"]
    found = resolve(workspace_write().allow_secret("aws"), str(workspace), str(home), "")
    got = confined(compile_rules(found, 7), [(f"{home}/{name}", os.O_RDONLY) for name in names])
    no, ok = "PermissionError", "ok"
    assert got == [no, ok, no, no, no, ok, ok]


def test_the_kernel_agrees_with_a_policy_of_a_few_directories(
    outside: Path, workspace: Path
) -> None:
    policy = SandboxPolicy(
        entries=(Entry("", READ, Special.MINIMAL), Entry(str(workspace), WRITE)),
    )
    tries = [
        ("/usr/bin/env", os.O_RDONLY),
        ("/usr", os.O_RDONLY | os.O_DIRECTORY),
        (f"{outside}/file", os.O_RDONLY),
        (str(outside), os.O_RDONLY | os.O_DIRECTORY),
        (f"{workspace}/new", os.O_WRONLY | os.O_CREAT),
        ("/", os.O_RDONLY | os.O_DIRECTORY),
    ]
    no, ok = "PermissionError", "ok"
    found = resolve(policy, None, NOBODY, "")
    assert confined(compile_rules(found, 7), tries) == [ok, ok, no, no, ok, no]


def test_an_ordinary_user_can_open_every_rule_of_the_default_policy(
    as_user: AsUser, place: Path
) -> None:
    """Directories of others (of root, for one) are on the list and need no right to be named."""
    work = as_user.home / "work"
    (as_user.home / ".ssh").mkdir()
    work.mkdir()
    as_user.give(work, as_user.home / ".ssh")
    code = """
import os, sys
from sandbox.backends.rules import compile_rules
from sandbox.presets import workspace_write
from sandbox.resolve import resolve
rules = compile_rules(resolve(workspace_write(), sys.argv[1], os.environ["HOME"], ""), 7)
for rule in rules.rules:
    try:
        os.close(os.open(rule.path, os.O_PATH | os.O_NOFOLLOW))
    except FileNotFoundError:
        assert not rule.named, rule
print(sorted(os.fsdecode(rule.path) for rule in rules.rules if rule.access == "write"))
print(any(rule.path.endswith(b"/.ssh") for rule in rules.rules), len(rules.rules) > 10)
"""
    done = as_user(code, str(work))
    assert done.stdout == f"['{work}']\nFalse True\n", done.stderr
