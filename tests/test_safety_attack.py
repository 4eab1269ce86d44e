"""Commands that were once called safe, and live did what is not: each with its harmless twin."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from safetykit import assess, context, is_safe

from sandbox.command import Reason

GIT = shutil.which("git")
PLAIN = context(helpers_off=False)


def test_braces_in_each_other_are_several_words() -> None:
    for line in ("find . {{},-delete}", "sort {-oP{},in}", "echo {a{},b}", "echo {{}..3}",
                 "ls {a}{b,c}", "ls 'x'{{},y}", "sort {}{-oP,in}"):  # fmt: skip
        assert assess(line).reasons[0] is Reason.EXPANSION, line
    for line in ("find . -name {}", "git show HEAD@{1}", "echo '{a,b}'", r"echo \{a,b}"):
        assert is_safe(line), line


@pytest.mark.skipif(GIT is None, reason="no git")
def test_git_without_the_promise_looks_for_no_object_of_a_partial_clone(tmp_path: Path) -> None:
    """A missing object is fetched by what remote.*.uploadpack names, before git 2.44 always."""
    ran, helper = tmp_path / "ran", tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
    helper.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(line: str) -> bool:
        ran.unlink(missing_ok=True)
        subprocess.run([str(GIT), *line.split()], cwd=tmp_path, env=env, capture_output=True,
                       stdin=subprocess.DEVNULL)  # fmt: skip
        return ran.exists()

    git("init -q -b main")
    for key, value in (("core.repositoryFormatVersion", "1"), ("remote.origin.promisor", "true"),
                       ("extensions.partialClone", "origin"), ("remote.origin.url", str(tmp_path)),
                       ("remote.origin.uploadpack", str(helper))):  # fmt: skip
        git(f"config {key} {value}")
    (tmp_path / ".git/refs/heads/main").write_text("1" * 40 + "\n")
    for line in ("rev-parse HEAD^{tree}", "rev-parse HEAD~1"):
        assert git(line) and not is_safe(f"git {line}", PLAIN), line
    for line in ("rev-parse HEAD", "rev-parse --abbrev-ref HEAD", "branch --show-current",
                 "rev-parse --show-toplevel --git-dir --is-inside-work-tree",
                 "rev-parse --is-shallow-repository", "--no-pager remote -v",
                 "--no-pager worktree list", "--no-pager config --list"):  # fmt: skip
        assert not git(line) and is_safe(f"git {line}", PLAIN), line
    for line in ("rev-parse main", "rev-parse --short HEAD", "rev-parse -q --verify x"):
        assert assess(f"git {line}", PLAIN).reasons == (Reason.GIT_HELPERS,)
        assert is_safe(f"git {line}")


def test_what_env_takes_away_is_not_relied_on() -> None:
    """`env -i git status` has no HELPERS_OFF any more."""
    for options in ("-i", "-", "-u GIT_CONFIG_COUNT", "-uGIT_CONFIG_COUNT", "-vi", "-vu PATH",
                    "--ignore-environment", "--unset=GIT_PAGER", "--unset GIT_PAGER"):  # fmt: skip
        for line in (f"env {options} git status", f"timeout 5 env {options} git status"):
            found = assess(line)
            assert found.reasons[0] is Reason.WRAPPER and Reason.PROGRAM not in found.reasons, line
        assert Reason.REMOVAL in assess(f"env {options} rm -rf x").reasons
    assert is_safe("env git status") and is_safe("env -v LC_ALL=C git status")


def test_the_promise_about_git_is_of_the_directory_that_a_command_starts_in() -> None:
    for line in ("cd sub && git diff --stat", "cd ..; git status", "cd x\ngit log",
                 "command cd x; git log", "ls; cd x && ls | git grep y",
                 "sh -c 'cd x && git status'", "cd x; sh -c 'git status'"):  # fmt: skip
        assert Reason.GIT_HELPERS in assess(line).reasons, line
    for line in ("git status; cd sub", "cd sub && git rev-parse --show-toplevel", "cd sub; ls"):
        assert is_safe(line), line


def test_only_what_every_shell_has_in_itself_is_a_builtin() -> None:
    """Dash looks `time` up, and bash too where it is no keyword; zsh what `command` starts."""
    nowhere = context(path=["/opt/nothing"])
    for line in ("time echo x", "LC_ALL=C time echo x", "echo | time echo", "command echo x"):
        assert is_safe(line), line
        assert Reason.UNTRUSTED_PROGRAM in assess(line, nowhere).reasons, line
    assert is_safe("echo x; pwd; test -f f", nowhere)


def test_a_value_that_stands_apart_ends_no_cluster() -> None:
    """`tree -Po '*' P` writes P: what follows the P of a cluster is options again."""
    for line in ("tree -Po '*' P", "tree -LoP 1 P", "tree -IPo a b P", "tree -aLR 2", "tree -Po",
                 "tree -PoP x P y"):  # fmt: skip
        assert assess(line).reasons[0] is Reason.OPTION, line
    for line in ("tree -aP '*'", "tree -L 2 src", "tree -dfL 2"):
        assert is_safe(line), line


def test_no_environment_is_shown() -> None:
    for line in ("jq -n env", "jq -n env.X", "jq -n '$ENV'", "jq -n '$ENV.X'", "jq 'env|keys' f",
                 "jq -n '[env]'", "jq 'import \"x\" as x; x::y' f", "env", "set", "ps -auxe",
                 "ps auxe", "ps e", "ps -ex", "ps -e -x", "ps -e -u nobody", "ps -eu", "ps -ejf",
                 "ps -Ce -x", "ps -ef -oargs", "ps -oenviron", "ps --format=environ",
                 "ps -E", "ps -xE", "ps -ef x"):  # fmt: skip
        assert not is_safe(line), line
    for line in ("jq .a f", "jq -r '.a.b|keys' f", "jq input_filename f", "ps", "ps -A",
                 "ps -ef", "ps -e", "ps -efww --forest", "ps -aux", "ps -A -opid,user",
                 "ps -elf"):  # fmt: skip
        assert is_safe(line), line


def test_a_place_of_secrets_is_found_however_its_path_is_written() -> None:
    for line in ("cat /proc//self/environ", "cat /dev/fd/../environ", "cat /etc//shadow",
                 "cat /proc/self/task/1/environ", "cat /proc/./self/environ", "cat /etc/./shadow",
                 "cat /etc/x/../shadow", "cat ../../etc/shadow", "cat ../proc/self/environ",
                 "cat /proc/self/maps", "cat /proc/self/cwd/../x", "grep -ra . /proc/self",
                 "grep -r x --include=e -f/proc/self/maps", "rg -a x /proc", "diff -r /proc/1 d",
                 "grep --file=/proc/self/auxv x", "cat /dev/fd/3/../../environ", "ls /dev/fd",
                 "cat </etc/./shadow", "cat <../../proc/self/maps", "cat /root//.npmrc",
                 "cat //proc/self/environ", "cat a/../../proc/1/environ"):  # fmt: skip
        assert not is_safe(line), line
        assert not is_safe(["sh", "-c", line]), line
    for line in ("cd /proc/self && cat environ", "cd /proc; cat self/environ", "cd / && cat x",
                 "cd /; cat etc/shadow", "cd /etc && cat shadow", "cd /dev/fd; cat ../environ",
                 "cd -P /dev && cat fd/../environ", "cd && cat .npmrc", "cd /root; cat .npmrc",
                 "cd /; cd etc; cat shadow", "cd /home/u/.config && cat gh/hosts.yml",
                 "cd /x/../etc; cat shadow", "cd ../..; cat etc/shadow", "cd -; cat shadow",
                 "cd /..; cat f", "cd /../etc && cat f", "cd ../../root; cat f",
                 "cd ../.config; cat gh/hosts.yml",
                 "cd ../..; cat proc/self/environ", "cd ..; grep x proc/self/maps",
                 "cd ../..; grep -ra . proc", "cat /proc/kcore", "cat /run/secrets/x",
                 "cat /var/run/secrets/kubernetes.io/serviceaccount/token"):  # fmt: skip
        assert not is_safe(line), line
    for line in ("cat /proc/cpuinfo", "cat /proc/meminfo", "cat /proc/self/status", "ls src/proc",
                 "cat /proc/1/cgroup", "cat src/proc/maps.c", "cd src && cat proc.c", "cd ..; ls",
                 "cd /work/p && ls ../q", "cat dev/x", "cat /proc/sys/kernel/osrelease", "ls proc",
                 "cd /home/u/p && cat f", "cat a//b ./c ../d/./e", "grep process src"):  # fmt: skip
        assert is_safe(line), line


def test_what_asks_is_no_value_of_another_option() -> None:
    """`git branch --sort --list x` makes a branch x."""
    for line in ("git branch --sort --list x", "git tag --sort --list x"):
        assert not is_safe(line), line
    assert is_safe("git branch --sort=x --list x")
