"""Section F: the environment of a command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from casekit import NAMESPACES, confined, python, replaced_environ

import sandbox

_SECRETS = {
    "OPENAI_API_KEY": "k-value-1",
    "AWS_SESSION_TOKEN": "t-value-2",
    "MY_CREDS": "z-value-3",
    "DATABASE_URL": "u-value-4",
    "SSH_AUTH_SOCK": "/x-value-5",
    "DOCKER_HOST": "y-value-6",
}


def case_82_the_path_is_as_given(w: Path, o: Path) -> None:
    (o / "bin").mkdir()
    tool = o / "bin/sandcore-tool"
    tool.write_text("#!/bin/sh\necho tool\n")
    tool.chmod(0o755)
    with replaced_environ(PATH=f"{o}/bin:/usr/bin:/bin"):
        assert confined("command -v sandcore-tool; echo $PATH", w).out.split() == [
            str(tool),
            f"{o}/bin:/usr/bin:/bin",
        ]
        assert confined(["sandcore-tool"], w).out == "tool\n"
    try:
        confined(["sandcore-tool"], w)
    except sandbox.CommandNotFound:
        pass
    else:
        raise AssertionError("found without its directory in PATH")


def case_83_start_up_files_are_not_run(w: Path, o: Path) -> None:
    for name in (".bashrc", ".bash_profile", ".bash_login", ".zshenv", ".profile", ".env", "env"):
        (w / name).write_text(f"touch {w}/RAN-{name}\n")
    (w / "sitecustomize.py").write_text(f"open('{w}/RAN-site', 'w')\n")
    (w / "usercustomize.py").write_text(f"open('{w}/RAN-user', 'w')\n")
    (w / ".npmrc").write_text("script-shell=/bin/false\n")
    with replaced_environ(HOME=str(o), BASH_ENV=str(w / ".env"), ENV=str(w / ".env")):
        for command in ("true", ["sh", "-c", "true"], ["bash", "-c", "true"]):
            assert confined(command, w, env={"HOME": str(w)}).ok
        assert confined("echo $HOME", w).out == f"{o}\n"
    assert [path.name for path in w.glob("RAN-*")] == []
    env = {"HOME": str(w), "BASH_ENV": str(w / ".bashrc")}
    subprocess.run(["bash", "-c", "true"], env=os.environ | env, check=True)
    assert [path.name for path in w.glob("RAN-*")] == ["RAN-.bashrc"]


def case_84_no_secret_is_inherited(w: Path, o: Path) -> None:
    with replaced_environ(**_SECRETS):
        text = confined("env; set", w).out
        outside = subprocess.run(["env"], capture_output=True, text=True).stdout
    for name, value in _SECRETS.items():
        assert value in outside
        assert name not in text
        assert value not in text


def case_85_every_way_in_gives_the_same_environment(w: Path, o: Path) -> None:
    policy = sandbox.workspace_write(w)

    def names(text: str) -> set[str]:
        own = ("_", "SHLVL", "PWD", "OLDPWD")  # a shell's own
        return {line.partition("=")[0] for line in text.splitlines()} - set(own)

    with replaced_environ(**_SECRETS), sandbox.Sandbox(policy) as box:
        seen = [
            names(confined("env", w).out),
            names(confined(["env"], w).out),
            names(sandbox.run(["env"], policy).out),
            names(sandbox.run("env", policy).out),
            names(box.run("env").out),
            names(box.run(["env"]).out),
            names(confined(["env"], w, policy=sandbox.read_only()).out),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "sandbox", "run", "--", "env"],
            cwd=w,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        seen.append(names(done.stdout))
    assert all(one == seen[0] for one in seen), seen
    assert not seen[0] & set(_SECRETS)


def case_86_no_process_inside_shows_the_callers_environment(w: Path, o: Path) -> None:
    mark = "sandcore-mark-86"
    code = (
        "import os, sys\n"
        "for name in os.listdir('/proc'):\n"
        "    for kind in ('environ', 'cmdline', 'maps') if name.isdigit() else ():\n"
        "        try:\n"
        "            text = open(f'/proc/{name}/{kind}', 'rb').read()\n"
        "        except OSError as error:\n"
        "            continue\n"
        "        print(int(b'-'.join([b'sandcore', b'mark', b'86']) in text), name, kind)\n"
    )
    with replaced_environ(SECRET=mark):
        # A child of ours has it in its environment for certain, and is readable outside.
        child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
        try:
            result = confined([python(), "-c", code], w)
            outside = subprocess.run(
                [python(), "-c", code], capture_output=True, text=True, env={}
            ).stdout
        finally:
            child.kill()
            child.wait()
    seen = [line.split() for line in result.out.splitlines()]
    assert seen, result.text
    assert [line for line in seen if line[0] == "1"] == []
    assert f"1 {child.pid} environ" in outside


def case_88_variables_of_loaders_and_shells_are_not_inherited(w: Path, o: Path) -> None:
    names = (
        *("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "PYTHONSTARTUP"),
        *("NODE_OPTIONS", "PERL5OPT", "GIT_EXTERNAL_DIFF", "RUBYOPT", "JAVA_TOOL_OPTIONS"),
        "PYTHONPATH",
    )
    values = dict.fromkeys(names, str(o / "evil")) | {"BASH_FUNC_ls%%": f"() {{ touch {o}/RAN; }}"}
    with replaced_environ(**values):
        os.environ.pop("LD_PRELOAD")  # our own children would complain
        result = confined(["env"], w)
        assert confined("ls", w).ok
        assert confined(["sh", "-c", "true"], w).text == ""
    assert str(o / "evil") not in result.out
    assert "BASH_FUNC" not in result.out
    assert not (o / "RAN").exists()


def case_90_nothing_is_carried_to_the_next_command(w: Path, o: Path) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        # Without TMPDIR: a sandbox that was confined anew has another.
        look = 'env | sed "s|$TMPDIR|T|"; pwd; alias; umask; ulimit -n'
        first = box.run(look)
        assert "HOME=" in first.out
        box.run("export PAGER='sh -c id' X=1; alias ls=rm; cd /; umask 0; ulimit -n 9; set -e")
        box.run("touch $TMPDIR/left")
        assert box.run(look).out == first.out
        # In namespaces /tmp belongs to the sandbox: what one keeps, its commands share.
        assert box.run("ls -A $TMPDIR").out == ("left\n" if NAMESPACES else "")
    sandbox.run("touch $TMPDIR/left", cwd=w)
    assert sandbox.run("ls -A $TMPDIR", cwd=w).out == ""
