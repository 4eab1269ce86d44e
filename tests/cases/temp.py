"""Section C: temporary directories and devices."""

from __future__ import annotations

import contextlib
import os
import pty
import uuid
from multiprocessing import shared_memory
from pathlib import Path

from casekit import NAMESPACES, confined, errno_of, need, python, weaker

import sandbox

_DEVICES = (
    "echo x >/dev/null && head -c8 /dev/zero | wc -c && "
    "head -c8 /dev/urandom | wc -c && : </dev/full"
)


def case_41_devices_work_in_every_profile(w: Path, o: Path) -> None:
    for policy in (
        sandbox.workspace_write(),
        sandbox.read_only(),
        sandbox.workspace_write(write=["/"]).allow_secret("*"),
        sandbox.workspace_write(deny=[o]),
        sandbox.full_access(),
    ):
        result = confined(_DEVICES, w, policy=policy)
        assert result.ok, result.text
        assert result.out.split() == ["8", "8"]


_POOL = """
import multiprocessing as m
from concurrent.futures import ProcessPoolExecutor as P
if __name__ == "__main__":
    m.Lock()
    print(list(P(2).map(abs, [-1])))
"""


def case_43_semaphores_work(w: Path, o: Path) -> None:
    result = confined([python(), "-c", _POOL], w)
    if NAMESPACES:
        assert result.out == "[1]\n", result.text
    else:
        assert "PermissionError" in result.err and "tmp" in weaker(result)


def case_43_no_segment_is_seen_on_the_host(w: Path, o: Path) -> None:
    name = f"sandcore-{uuid.uuid4().hex}"
    code = "open('/dev/shm/' + sys.argv[1], 'x')"
    assert errno_of(code, w, name) in ("EACCES", "")
    assert not os.path.exists(f"/dev/shm/{name}")


def case_43_a_segment_of_the_host_is_closed_or_the_result_says_so(w: Path, o: Path) -> None:
    segment = shared_memory.SharedMemory(create=True, size=4096)
    try:
        segment.buf[:4] = b"HOST"
        path = f"/dev/shm/{segment.name.lstrip('/')}"
        assert errno_of("open(sys.argv[1], 'r+b')", w, path) in ("EACCES", "ENOENT")
        result = confined(["head", "-c4", path], w)
        if result.stdout == b"HOST":
            assert "tmp" in weaker(result)
        denied = confined(["head", "-c4", path], w, policy=sandbox.workspace_write(deny=[path]))
        assert "Permission denied" in denied.err or "No such file" in denied.err
    finally:
        segment.close()
        segment.unlink()


def case_45_here_documents_of_zsh(w: Path, o: Path) -> None:
    need("zsh", "zsh")
    result = confined(["zsh", "-c", "cat >body <<E\nhi\nE"], w)
    assert result.ok, result.text
    assert (w / "body").read_text() == "hi\n"


def case_47_a_program_may_open_a_terminal_of_its_own(w: Path, o: Path) -> None:
    result = confined([python(), "-c", "import os; os.openpty(); print('ok')"], w)
    if not NAMESPACES:
        assert "PermissionError" in result.err and "tmp" in weaker(result)
        return
    assert result.out == "ok\n", result.text
    need("script", "bsdutils")
    result = confined("script -qc tty /dev/null", w)
    assert "/dev/pts/" in result.out, result.text


def case_47_terminals_of_the_host_are_closed(w: Path, o: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        path = os.ttyname(theirs)
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            code = "os.open(sys.argv[1], int(sys.argv[2]) | os.O_NOCTTY)"
            assert errno_of(code, w, path, flags) in ("EACCES", "ENOENT", "EPERM"), flags
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY))
        result = confined(["sh", "-c", f"echo injected >{path}"], w)
        assert result.returncode != 0
        os.set_blocking(ours, False)
        with contextlib.suppress(BlockingIOError):
            assert os.read(ours, 99) == b""
        assert NAMESPACES or "tmp" in weaker(result)
    finally:
        os.close(ours)
        os.close(theirs)


def case_49_temporary_files_of_compilers_and_of_python(w: Path, o: Path) -> None:
    need("cc", "gcc libc6-dev")
    result = confined("cc -x c - -o a <<<'int main(){return 0;}' && ./a", w)
    assert result.ok, result.text
    assert sorted(path.name for path in w.iterdir()) == ["a"]
    result = confined([python(), "-m", "venv", "--without-pip", "v"], w)
    assert result.ok, result.text
    assert sorted(path.name for path in w.iterdir()) == ["a", "v"]
