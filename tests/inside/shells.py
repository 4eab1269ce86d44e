"""Shells, terminals, devices."""

from __future__ import annotations

from insidekit import Fails, Row, bash, script

import sandbox

_PTY = """
import os, pty, sys
out = b""
def read(fd):
    global out
    data = os.read(fd, 1024)
    out += data
    return data
status = pty.spawn(["sh", "-c", "tty; stty rows 33 cols 77; stty size; exit 3"], read)
assert os.waitstatus_to_exitcode(status) == 3, status
assert b"/dev/pts/" in out and b"33 77" in out, out
print("works")
"""

_DEVICES = """
import os, stat
for name, many in (("null", 0), ("zero", 4), ("full", 4), ("random", 4), ("urandom", 4)):
    path = f"/dev/{name}"
    assert stat.S_ISCHR(os.stat(path).st_mode), path
    with open(path, "rb", buffering=0) as file:
        assert len(file.read(4)) == many, path
for name in ("null", "zero", "random", "urandom"):
    with open(f"/dev/{name}", "wb", buffering=0) as file:
        file.write(b"x")
with open("/dev/null", "w+b", buffering=0) as file:  # as stdin and stdout of a daemon
    assert file.read() == b""
try:
    open("/dev/full", "wb", buffering=0).write(b"x")
    raise SystemExit("full took something")
except OSError as error:
    assert error.errno == 28, error
r, w = os.pipe()
os.write(w, b"x")
assert open(f"/dev/fd/{r}", "rb", buffering=0).read(1) == b"x"
open("/dev/stdout", "w").write("out ")
open("/dev/stderr", "w").write("err ")
assert open("/dev/stdin").read() == ""
print("works")
"""

_NO_TMP = "its directory is in /tmp whatever TMPDIR says, and that is the host's"
_NO_PTY = "there is no devpts of its own: /dev/ptmx would show other terminals"


def _here(shell: str) -> Row:
    """Here-documents go through pipes or files; each shell has its own idea when and where."""
    return Row(
        bash(_here_lines(shell)),
        needs={} if shell == "dash" else {shell: shell},
    )


def _here_lines(shell: str) -> str:
    return "\n".join(
        (
            "for size in 0 1 100 4096 65535 65536 65537 200000 3000000; do",
            "    head -c $size /dev/zero | tr '\\0' x >text",
            "    { echo 'cat <<END'; cat text; printf '\\nEND\\n'; } >here.sh",
            "    { cat text; echo; } >wanted",
            f"    {shell} here.sh >got",
            "    cmp wanted got",
            "done",
            f"{shell} -c 'cat <<A; cat <<B\none\nA\ntwo\nB\n' | tr -d '\\n' | grep -x onetwo",
        )
    )


def _preset(policy: object) -> Row:
    return Row(**script(_DEVICES), policy=policy)  # type: ignore[arg-type]


ROWS = {
    "here-documents-bash": _here("bash"),
    "here-documents-dash": _here("dash"),
    "here-documents-zsh": _here("zsh"),
    "here-strings-and-substitution": Row(
        bash(
            'test "$(cat <<<text)" = text',
            "diff <(seq 1000) <(seq 1000)",
            'seq 9 | tee >(wc -l >count) >/dev/null; sleep 0.2; test "$(cat count)" -eq 9',
            "zsh -fc 'cat =(echo x) <<<y' >/dev/null",
        ),
        needs={"zsh": "zsh"},
    ),
    "devices-read-only": _preset(sandbox.read_only),
    "devices-workspace-write": _preset(sandbox.workspace_write),
    "devices-full-access": Row(**script(_DEVICES), policy=sandbox.full_access, confined=False),
    "pty": Row(**script(_PTY), answers={"landlock": Fails("out of pty devices", _NO_PTY)}),
    "script-and-stty": Row(
        bash(
            "script -qec 'stty rows 44 cols 99; stty size; tty' out.txt </dev/null | tee seen",
            "grep -q '44 99' seen; grep -q /dev/pts/ out.txt",
        ),
        needs={"script": "bsdutils"},
        answers={"landlock": Fails("failed to create pseudo-terminal", _NO_PTY)},
    ),
    "tmux": Row(
        bash(
            "tmux -f /dev/null new-session -d -s s 'tty >tty.txt; echo in tmux; exec sleep 60'",
            "until test -s tty.txt; do sleep 0.05; done",
            "tmux send-keys -t s x Enter",
            "for i in {1..99}; do tmux capture-pane -pt s | grep 'in t' && break; sleep 0.1; done",
            "tmux capture-pane -pt s | grep -q 'in tmux'",
            "tmux kill-server",
        ),
        needs={"tmux": "tmux"},
        answers={"landlock": Fails(" /tmp/tmux-", _NO_TMP)},
    ),
}
