"""The C interface: an extension in C, one in Cython, and a client by cffi that links nothing."""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import cffi
import pytest
import require

import _sandcore
import sandbox

CAPI = Path(__file__).resolve().parent / "capi"
HEADER = Path(sandbox.get_include()) / "sandcore.h"


def extension(source: Path, place: Path, name: str) -> ModuleType:
    target = place / f"{name}.so"
    includes = [f"-I{sysconfig.get_path('include')}", f"-I{sandbox.get_include()}"]
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wno-unused-function"]
    subprocess.run(
        [*require.compiler(), *flags, *includes, source, "-o", target], check=True, timeout=300
    )
    spec = importlib.util.spec_from_file_location(name, target)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return extension(CAPI / "example.c", tmp_path_factory.mktemp("c"), "example")


def test_an_extension_in_c_runs_a_confined_command(
    in_c: ModuleType, workspace: Path, outside: Path
) -> None:
    script = f"echo in > {workspace}/new; echo out > {outside}/file || exit 7"
    assert os.waitstatus_to_exitcode(in_c.run(str(workspace), f"({script}) 2>/dev/null")) == 7
    assert (workspace / "new").read_text() == "in\n"
    assert (outside / "file").read_text() == "outside\n"
    subprocess.run(["sh", "-c", script], check=True)  # the control
    assert (outside / "file").read_text() == "out\n"


def test_an_extension_in_cython_runs_a_confined_command(
    tmp_path: Path, workspace: Path, outside: Path
) -> None:
    text = tmp_path / "example.c"
    words = [sys.executable, "-m", "cython", "-I", sandbox.get_include(), "-o", text]
    subprocess.run([*words, CAPI / "example.pyx"], check=True, timeout=300)
    module = extension(text, tmp_path, "example")
    script = f"echo in > {workspace}/new; echo out > {outside}/file || exit 7"
    status = module.run(bytes(workspace), f"({script}) 2>/dev/null".encode())
    assert os.waitstatus_to_exitcode(status) == 7
    assert (outside / "file").read_text() == "outside\n"


class Client:
    """The table by cffi, from the header's own text."""

    def __init__(self) -> None:
        text = re.sub(r"^\s*#.*$", "", HEADER.read_text(), flags=re.MULTILINE)
        self.ffi: Any = cffi.FFI()
        self.ffi.cdef(text)
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        address = get(_sandcore.C_API, b"_sandcore._core.C_API")
        self.api: Any = self.ffi.cast("struct sandcore_api *", address)

    def compile(self, *writable: Path, network: int = 0, size: int | None = None) -> Any:
        ffi = self.ffi
        paths = [ffi.new("char[]", bytes(path)) for path in writable]
        rules = ffi.new("struct sandcore_rule[]", [(path, 2, 0) for path in paths])
        options = ffi.new("struct sandcore_options *")
        options.size = ffi.sizeof(options[0]) if size is None else size
        options.rules, options.rule_count, options.network = rules, len(paths), network
        out = ffi.new("struct sandcore_policy **")
        error = self.api.policy_compile(options, out)
        return error if error else out[0]

    def spawn(self, policy: Any, *words: str, fds: tuple[int, int, int] = (0, 1, 2)) -> Any:
        ffi = self.ffi
        texts = [ffi.new("char[]", word.encode()) for word in words]
        argv, envp = ffi.new("char *[]", [*texts, ffi.NULL]), ffi.new("char *[]", [ffi.NULL])
        command = ffi.new("struct sandcore_command *")
        command.size, command.argv, command.envp = ffi.sizeof(command[0]), argv, envp
        command.fds = fds
        pid, pidfd = ffi.new("int32_t *"), ffi.new("int32_t *")
        failure = ffi.new("struct sandcore_failure *")
        error = self.api.spawn(policy, command, pid, pidfd, failure)
        stage = ffi.string(self.api.stage_name(failure.stage)).decode()
        return (error, stage, pid[0], pidfd[0])

    def wait(self, pidfd: int, timeout_ns: int = -1) -> tuple[int, int]:
        ended = self.ffi.new("struct sandcore_ended *")
        return self.api.wait(pidfd, timeout_ns, ended), ended.status


@pytest.fixture(scope="module")
def client() -> Client:
    return Client()


def test_the_table_says_its_version_and_size(client: Client) -> None:
    assert client.api.version == 1
    assert client.api.size == client.ffi.sizeof("struct sandcore_api")


def test_a_client_compiles_spawns_waits_and_kills(client: Client, workspace: Path) -> None:
    policy = client.compile(workspace)
    error, _, pid, pidfd = client.spawn(policy, "/bin/sleep", "1000")
    assert (error, pid > 0) == (0, True)
    assert client.wait(pidfd, 1000)[0] == 0
    assert client.api.kill(pid, pidfd) == 0
    assert client.wait(pidfd) == (1, signal.SIGKILL)
    os.close(pidfd)
    client.api.policy_close(policy)


def children() -> set[str]:
    """Of this process, zombies too: other tests may have sandboxes that they keep."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {pid for task in tasks for pid in task.read_text().split()}


def test_what_does_not_start_leaves_nothing_and_says_the_stage(
    client: Client, workspace: Path
) -> None:
    policy = client.compile(workspace)
    before = children()
    assert client.spawn(policy, "/no/such/program")[:2] == (-errno.ENOENT, "exec")
    assert client.spawn(policy, "/bin/true", fds=(0, 1, 4000))[:2] == (-errno.EBADF, "streams")
    assert children() == before
    client.api.policy_close(policy)


def test_a_policy_goes_through_its_bytes(client: Client, workspace: Path) -> None:
    policy = client.compile(workspace)
    size = client.ffi.new("size_t *")
    start = client.api.policy_blob(policy, size)
    blob = bytes(client.ffi.buffer(start, size[0]))
    assert _sandcore.Policy(blob).rules == [(bytes(workspace), _sandcore.ACCESS_WRITE, 0)]
    out = client.ffi.new("struct sandcore_policy **")
    assert client.api.policy_open(blob, len(blob), out) == 0
    client.api.policy_close(out[0])
    assert client.api.policy_open(blob, len(blob) - 1, out) == -errno.EINVAL
    client.api.policy_close(policy)
    spaces = _sandcore.compile_policy(mounts=[(b"/proc", _sandcore.MOUNT_PROC, 0, 0, 0)])
    assert client.api.policy_open(spaces.blob, len(spaces.blob), out) == -errno.EINVAL


def test_what_a_later_header_asks_for_is_refused_and_not_ignored(
    client: Client, workspace: Path
) -> None:
    ffi = client.ffi
    known = ffi.sizeof("struct sandcore_options")
    space = ffi.new("uint64_t[]", known // 8 + 2)
    options = ffi.cast("struct sandcore_options *", space)
    options.size = known + 16
    out = ffi.new("struct sandcore_policy **")
    assert client.api.policy_compile(options, out) == 0
    client.api.policy_close(out[0])
    space[known // 8 + 1] = 1
    assert client.api.policy_compile(options, out) == -errno.EINVAL
    options.size = known
    assert client.api.policy_compile(options, out) == 0
    client.api.policy_close(out[0])


def test_what_makes_no_sense_is_refused(client: Client, workspace: Path) -> None:
    assert client.compile(workspace, network=9) == -errno.EINVAL
    assert client.compile(workspace, size=8) == -errno.EINVAL
    assert client.compile(Path("relative")) == -errno.EINVAL
    assert client.compile(workspace / "missing") == -errno.ENOENT
