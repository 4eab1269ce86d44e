"""Landlock: the rights table by literal expectation, then what a real layer refuses and allows."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import json
import os
import shutil
import socket
import stat
import struct
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ccore import ffi, lib

READ, WRITE = lib.LANDLOCK_CLASS_READ, lib.LANDLOCK_CLASS_WRITE
DEVICE, NAMES = lib.LANDLOCK_CLASS_DEVICE, lib.LANDLOCK_CLASS_NAMES
H_READ, H_NAMES, H_WRITE = (
    lib.LANDLOCK_HANDLE_READ,
    lib.LANDLOCK_HANDLE_NAMES,
    lib.LANDLOCK_HANDLE_WRITE,
)
H_TCP, H_UDP = lib.LANDLOCK_HANDLE_TCP, lib.LANDLOCK_HANDLE_UDP
H_SCOPES, H_UNIX, H_REFER = (
    lib.LANDLOCK_HANDLE_SCOPES,
    lib.LANDLOCK_HANDLE_UNIX,
    lib.LANDLOCK_HANDLE_REFER,
)
H_MOUNTED = lib.LANDLOCK_HANDLE_MOUNTED
H_FILES = H_READ | H_NAMES | H_WRITE
H_ALL = H_FILES | H_TCP | H_UDP | H_SCOPES | H_UNIX

ABI = ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1)
USER = 1000
TIOCGPTN = 0x80045430

live = pytest.mark.skipif(ABI < 6, reason=f"the kernel's Landlock ABI is {ABI}, 6 is needed")


def handled(abi: int, handle: int) -> tuple[int, int, int]:
    out = ffi.new("struct landlock_rights *")
    assert lib.landlock_handled(abi, handle, out) == 0
    return out.fs, out.net, out.scoped


# The table, with an injected ABI. The numbers are written out from the kernel's header.


@pytest.mark.parametrize(
    ("abi", "expected"),
    [
        (1, (0x01FFF, 0x0, 0x0)),
        (2, (0x03FFF, 0x0, 0x0)),
        (3, (0x07FFF, 0x0, 0x0)),
        (4, (0x07FFF, 0x3, 0x0)),
        (5, (0x0FFFF, 0x3, 0x0)),
        (6, (0x0FFFF, 0x3, 0x3)),
        (7, (0x0FFFF, 0x3, 0x3)),
        (8, (0x0FFFF, 0x3, 0x3)),
        (9, (0x1FFFF, 0x3, 0x3)),
        (10, (0x1FFFF, 0xF, 0x3)),
        (11, (0x1FFFF, 0xF, 0x3)),
    ],
)
def test_each_abi_handles_just_the_rights_it_has(abi: int, expected: tuple[int, int, int]) -> None:
    assert handled(abi, H_ALL) == expected


@pytest.mark.parametrize(
    ("handle", "expected"),
    [
        (0, (0, 0, 0)),
        (H_READ, (0x2005, 0, 0)),
        (H_NAMES, (0x2008, 0, 0)),
        (H_WRITE, (0xFFF2, 0, 0)),
        (H_WRITE | H_MOUNTED, (0x3FF2, 0, 0)),
        (H_MOUNTED, (0, 0, 0)),
        (H_TCP, (0, 0x3, 0)),
        (H_UDP, (0, 0xC, 0)),
        (H_SCOPES, (0, 0, 0x3)),
        (H_SCOPES | H_REFER, (0x2000, 0, 0x3)),
        (H_UNIX, (0x12000, 0, 0)),
    ],
)
def test_what_is_not_to_be_restricted_is_not_handled(
    handle: int, expected: tuple[int, int, int]
) -> None:
    assert handled(10, handle) == expected


@pytest.mark.parametrize(("abi", "handle"), [(0, H_ALL), (-1, H_ALL), (7, 1 << 9), (7, 1 << 31)])
def test_a_nonsense_abi_or_flag_is_refused_and_grants_nothing(abi: int, handle: int) -> None:
    assert lib.landlock_handled(abi, handle, ffi.new("struct landlock_rights *")) == -errno.EINVAL
    assert lib.landlock_granted(abi, WRITE, 1, handle) == 0


# (class, is_dir): grants from ABI 1 up to the one named; the last holds for all newer ones.
GRANTS = {
    (READ, 1): [(10, 0x000D)],
    (READ, 0): [(10, 0x0005)],
    (WRITE, 1): [(1, 0x17BF), (2, 0x37BF), (10, 0x77BF)],
    (WRITE, 0): [(2, 0x0007), (10, 0x4007)],
    (DEVICE, 1): [(2, 0x000E), (4, 0x400E), (10, 0xC00E)],
    (DEVICE, 0): [(2, 0x0006), (4, 0x4006), (10, 0xC006)],
    (NAMES, 1): [(10, 0x0008)],
    (NAMES, 0): [(10, 0)],
}


@pytest.mark.parametrize("abi", range(1, 11))
@pytest.mark.parametrize(("cls", "is_dir"), GRANTS)
def test_each_class_grants_just_its_rights(cls: int, is_dir: int, abi: int) -> None:
    expected = next(mask for upto, mask in GRANTS[cls, is_dir] if abi <= upto)
    assert lib.landlock_granted(abi, cls, is_dir, H_ALL) == expected


@pytest.mark.parametrize("abi", range(1, 11))
def test_a_grant_is_never_wider_than_what_is_handled(abi: int) -> None:
    for handle, cls, is_dir in itertools.product(range(1 << 9), (READ, WRITE, DEVICE), (0, 1)):
        granted = lib.landlock_granted(abi, cls, is_dir, handle)
        assert granted & ~handled(abi, handle)[0] == 0, (handle, cls, is_dir)


def test_a_layer_that_leaves_writes_alone_grants_renames() -> None:
    assert lib.landlock_granted(7, READ, 1, H_READ) == 0x2005
    assert lib.landlock_granted(7, READ, 1, H_SCOPES | H_REFER) == 0x2000
    assert lib.landlock_granted(7, READ, 1, H_READ | H_WRITE) == 0x0005


def test_an_unknown_class_grants_nothing() -> None:
    for cls in (0, 5, 99):
        assert lib.landlock_granted(7, ffi.cast("enum landlock_class", cls), 1, H_ALL) == 0


@pytest.mark.parametrize(("abi", "flags"), [(1, 0), (6, 0), (7, 0b0111), (8, 0b1111), (10, 0b1111)])
def test_restrict_flags_come_with_abi_7_and_8(abi: int, flags: int) -> None:
    assert lib.landlock_restrict_flags(abi) == flags


def test_every_right_has_a_name_of_its_own() -> None:
    def names(name: Any, bits: int) -> list[str]:
        found = [name(1 << bit) for bit in range(bits)]
        assert ffi.NULL not in found
        assert name(1 << bits) == ffi.NULL
        return [ffi.string(item).decode() for item in found]

    fs = names(lib.landlock_right_name, 17)
    assert fs[:4] == ["execute", "write_file", "read_file", "read_dir"]
    assert fs[13:] == ["refer", "truncate", "ioctl_dev", "resolve_unix"]
    assert names(lib.landlock_net_name, 4)[2:] == ["bind_udp", "connect_send_udp"]
    assert names(lib.landlock_scope_name, 2) == ["abstract_unix_socket", "signal"]
    assert len(set(fs)) == len(fs)
    assert lib.landlock_right_name(3) == ffi.NULL


def test_an_empty_ruleset_is_refused_by_the_kernel() -> None:
    expected = -errno.ENOMSG if ABI >= 1 else -errno.ENOSYS
    assert lib.landlock_create(ffi.new("struct landlock_rights *")) in (
        expected,
        -errno.EOPNOTSUPP,
    )


# Live. A trial forks, drops to the user, takes its layers, and acts; it answers with an errno name.

Layer = tuple[int, list[tuple[str, int]]]


def make_ruleset(handle: int, rules: list[tuple[str, int]]) -> int:
    out = ffi.new("struct landlock_rights *")
    assert lib.landlock_handled(min(ABI, 10), handle, out) == 0
    ruleset: int = lib.landlock_create(out)
    assert ruleset >= 0, os.strerror(-ruleset)
    for path, cls in rules:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        is_dir = int(stat.S_ISDIR(os.fstat(fd).st_mode))
        access = lib.landlock_granted(min(ABI, 10), cls, is_dir, handle)
        assert lib.landlock_add_path(ruleset, fd, access) == 0
        os.close(fd)
    return ruleset


def confine(layers: list[Layer]) -> None:
    if layers:
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    for handle, rules in layers:
        ruleset = make_ruleset(handle, rules)
        assert fcntl.fcntl(ruleset, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        assert lib.landlock_restrict(ruleset, 0) == 0
        os.close(ruleset)


def answer(act: Callable[[], object]) -> str:
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


def trial(uid: int, layers: list[Layer], act: Callable[[], object]) -> str:
    """Runs `act` in a process of its own: "ok", an errno name, or the traceback of a bug."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if uid != os.geteuid():
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            confine(layers)
            said = answer(act)
        except BaseException:
            said = traceback.format_exc()
        os.write(writer, json.dumps(said).encode()[:60000])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        data = stream.read()
    os.waitpid(pid, 0)
    return str(json.loads(data))


@pytest.fixture(params=["as_caller", "as_user"])
def uid(request: pytest.FixtureRequest) -> int:
    if request.param == "as_caller":
        return os.geteuid()
    if os.geteuid() != 0:
        pytest.skip("only root can become another user for the test")
    return USER


@pytest.fixture
def tree(uid: int) -> Iterator[Path]:
    """A directory of `uid` with in/{a,b,f} and out/{f,d,sub}; not below pytest's own 0700 one."""
    base = Path(tempfile.mkdtemp(prefix="landlock-"))
    try:
        for name in ("in/a", "in/b", "out/d", "out/sub"):
            (base / name).mkdir(parents=True)
        for name in ("in/f", "in/a/x", "out/f", "out/sub/x"):
            (base / name).write_text("content")
        for path in (base, *base.rglob("*")):
            os.chown(path, uid, uid)
        yield base
    finally:
        shutil.rmtree(base)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


def writes(base: Path) -> dict[str, Callable[[], object]]:
    """Every kind of change, below `base`; each works on a fresh tree, and only once."""
    return {
        "write": lambda: os.open(base / "f", os.O_WRONLY),
        "truncate": lambda: os.truncate(base / "f", 0),
        "open_truncate": lambda: os.open(base / "f", os.O_RDONLY | os.O_TRUNC),
        "create": lambda: os.open(base / "new", os.O_CREAT | os.O_WRONLY),
        "mkdir": lambda: os.mkdir(base / "new"),
        "symlink": lambda: os.symlink("f", base / "new"),
        "fifo": lambda: os.mkfifo(base / "new"),
        "socket": lambda: unix_socket(base / "new"),
        "link": lambda: os.link(base / "f", base / "new"),
        "rename": lambda: os.rename(base / "f", base / "new"),
        "remove": lambda: os.unlink(base / "f"),
        "rmdir": lambda: os.rmdir(base / "empty"),
    }


KINDS = sorted(writes(Path()))
ONE_LAYER = H_WRITE | H_TCP | H_SCOPES


@live
@pytest.mark.parametrize("kind", KINDS)
def test_changes_pass_in_a_writable_root_and_nowhere_else(kind: str, tree: Path, uid: int) -> None:
    layers = [(ONE_LAYER, [(str(tree / "in"), WRITE)])]
    for name in ("in", "out"):
        (tree / name / "empty").mkdir()
        os.chown(tree / name / "empty", uid, uid)
    assert trial(uid, layers, writes(tree / "out")[kind]) == "EACCES"
    assert trial(uid, layers, writes(tree / "in")[kind]) == "ok"
    assert trial(uid, [], writes(tree / "out")[kind]) == "ok"


@live
def test_reads_are_free_where_the_policy_does_not_handle_them(tree: Path, uid: int) -> None:
    layers = [(ONE_LAYER, [(str(tree / "in"), WRITE)])]
    assert trial(uid, layers, lambda: os.open(tree / "out/f", os.O_RDONLY)) == "ok"
    assert trial(uid, layers, lambda: os.listdir(tree / "out")) == "ok"


@live
def test_reads_and_names_are_refused_outside_the_readable_roots(tree: Path, uid: int) -> None:
    layers = [(H_FILES, [(str(tree / "in"), READ)])]
    assert trial(uid, layers, lambda: os.open(tree / "in/f", os.O_RDONLY)) == "ok"
    assert trial(uid, layers, lambda: os.listdir(tree / "in")) == "ok"
    assert trial(uid, layers, lambda: os.open(tree / "in/f", os.O_WRONLY)) == "EACCES"
    assert trial(uid, layers, lambda: os.open(tree / "out/f", os.O_RDONLY)) == "EACCES"
    assert trial(uid, layers, lambda: os.listdir(tree / "out")) == "EACCES"


@live
def test_names_stay_visible_where_only_reads_are_handled(tree: Path, uid: int) -> None:
    layers = [(H_READ | H_WRITE, [(str(tree / "in"), READ)])]
    assert trial(uid, layers, lambda: os.open(tree / "out/f", os.O_RDONLY)) == "EACCES"
    assert trial(uid, layers, lambda: os.listdir(tree / "out")) == "ok"


@live
def test_a_program_outside_the_readable_roots_does_not_run(tree: Path, uid: int) -> None:
    for name in ("in", "out"):
        shutil.copy("/bin/true", tree / name / "prog")
        os.chmod(tree / name / "prog", 0o755)
    layers = [(H_READ, [(str(tree / "in"), READ), ("/usr", READ), ("/lib", READ)])]
    inside, outside = str(tree / "in/prog"), str(tree / "out/prog")

    def run(path: str) -> Callable[[], object]:
        return lambda: os.waitpid(os.posix_spawn(path, [path], {}), 0)

    assert trial(uid, layers, run(inside)) == "ok"
    assert trial(uid, layers, run(outside)) == "EACCES"
    assert trial(uid, [], run(outside)) == "ok"


@live
def test_a_rule_on_a_file_takes_file_rights_and_grants_just_that_file(tree: Path, uid: int) -> None:
    layers = [(H_FILES, [(str(tree / "in/f"), WRITE)])]
    assert trial(uid, layers, lambda: os.open(tree / "in/f", os.O_RDWR | os.O_TRUNC)) == "ok"
    assert trial(uid, layers, lambda: os.open(tree / "in/a/x", os.O_RDONLY)) == "EACCES"
    assert trial(uid, layers, lambda: os.unlink(tree / "in/f")) == "EACCES"


@live
def test_the_kernel_refuses_directory_rights_on_a_file(tree: Path) -> None:
    ruleset = make_ruleset(H_FILES, [])
    with open(tree / "in/f") as stream:
        directory = lib.landlock_granted(ABI, WRITE, 1, H_FILES)
        only_file = lib.landlock_granted(ABI, WRITE, 0, H_FILES)
        assert lib.landlock_add_path(ruleset, stream.fileno(), directory) == -errno.EINVAL
        assert lib.landlock_add_path(ruleset, stream.fileno(), only_file) == 0
    os.close(ruleset)


@live
def test_a_rule_that_cannot_be_added_is_an_error(tree: Path) -> None:
    ruleset = make_ruleset(H_WRITE, [])
    fd = os.open(tree, os.O_RDONLY)
    assert lib.landlock_add_path(ruleset, 1 << 20, 0x2) == -errno.EBADF
    assert lib.landlock_add_path(ruleset, fd, 0x4) == -errno.EINVAL  # a right not handled
    assert lib.landlock_add_path(fd, fd, 0x2) == -errno.EBADFD
    assert lib.landlock_add_path(ruleset, fd, 0) == 0
    os.close(fd)
    os.close(ruleset)


@live
def test_restricting_needs_no_new_privs(uid: int) -> None:
    def act() -> None:
        result = lib.landlock_restrict(make_ruleset(H_SCOPES, []), 0)
        if result < 0:
            raise OSError(-result, "restrict")

    if uid == 0:
        pytest.skip("CAP_SYS_ADMIN does without no_new_privs")
    # A trial with layers sets no_new_privs, one without does not.
    assert trial(uid, [], act) == "EPERM"
    assert trial(uid, [(H_SCOPES, [])], act) == "ok"


@live
def test_device_nodes_are_never_made(tree: Path, uid: int) -> None:
    if uid != 0:
        pytest.skip("making a device node needs root anyway")
    layers = [(ONE_LAYER, [(str(tree / "in"), WRITE)])]
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        path = tree / "in/node"

        def make(kind: int = kind, path: Path = path) -> None:
            os.mknod(path, kind | 0o600, os.makedev(1, 3))

        assert trial(uid, layers, make) == "EACCES"
        assert trial(uid, [], make) == "ok"
        path.unlink()


# CASE-01 and CASE-02: renames between directories.


def move(tree: Path) -> Callable[[], object]:
    return lambda: os.rename(tree / "in/a/x", tree / "in/b/x")


@live
def test_case_02_a_file_moves_between_directories_of_a_writable_root(tree: Path, uid: int) -> None:
    layers = [(ONE_LAYER, [(str(tree / "in"), WRITE)])]
    link = lambda: os.link(tree / "in/a/x", tree / "in/b/y")  # noqa: E731
    assert trial(uid, layers, link) == "ok"
    assert trial(uid, layers, move(tree)) == "ok"
    steal = lambda: os.link(tree / "out/f", tree / "in/stolen")  # noqa: E731
    assert trial(uid, layers, steal) in ("EACCES", "EXDEV")
    assert trial(uid, [], steal) == "ok"


FILES_LAYER = H_WRITE | H_SCOPES


@live
@pytest.mark.parametrize("order", ["below", "above"])
def test_case_01_a_layer_of_scopes_that_grants_refer_leaves_renames_alone(
    tree: Path, uid: int, order: str
) -> None:
    def stacked(scopes: Layer) -> list[Layer]:
        files: Layer = (FILES_LAYER, [(str(tree / "in"), WRITE)])
        return [scopes, files] if order == "below" else [files, scopes]

    bare = trial(uid, stacked((H_SCOPES, [])), move(tree))
    assert bare == "EXDEV", "the kernel's trap is gone: HANDLE_REFER may be too"
    assert trial(uid, stacked((H_SCOPES | H_REFER, [("/", READ)])), move(tree)) == "ok"


@live
def test_a_layer_of_scopes_alone_leaves_renames_alone(tree: Path, uid: int) -> None:
    assert trial(uid, [(H_SCOPES, [])], move(tree)) == "ok"


@live
def test_a_layer_of_reads_alone_leaves_renames_alone(tree: Path, uid: int) -> None:
    assert trial(uid, [(H_READ, [("/", READ)])], move(tree)) == "ok"


# Devices, signals, sockets.


@live
@pytest.mark.parametrize("granted", ["device", "write", "nothing"])
def test_a_device_takes_ioctls_only_by_its_class(uid: int, granted: str) -> None:
    def act() -> None:
        fd = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(fd, TIOCGPTN, struct.pack("I", 0))

    rules = {"device": [("/dev", DEVICE)], "write": [("/dev", WRITE)], "nothing": []}[granted]
    expected = {"device": "ok", "write": "EACCES", "nothing": "EACCES"}[granted]
    assert trial(uid, [(H_WRITE, rules)], act) == expected


@live
def test_a_class_of_device_on_a_file_reads_and_writes_it(uid: int) -> None:
    layers = [(H_FILES, [("/dev/null", DEVICE)])]
    assert trial(uid, layers, lambda: os.open("/dev/null", os.O_RDWR | os.O_TRUNC)) == "ok"
    assert trial(uid, layers, lambda: os.open("/dev/zero", os.O_RDONLY)) == "EACCES"


@live
def test_a_signal_reaches_own_children_and_nothing_outside(uid: int) -> None:
    outside = os.fork()
    if outside == 0:
        if uid != os.geteuid():
            os.setresuid(uid, uid, uid)
        signal_wait()
    try:
        assert trial(uid, [(H_SCOPES, [])], lambda: os.kill(outside, 0)) == "EPERM"
        assert trial(uid, [], lambda: os.kill(outside, 0)) == "ok"
        assert trial(uid, [(H_SCOPES, [])], signal_own_child) == "ok"
    finally:
        os.kill(outside, 9)
        os.waitpid(outside, 0)


def signal_wait() -> None:
    while True:
        ctypes.CDLL(None).pause()


def signal_own_child() -> None:
    child = os.fork()
    if child == 0:
        signal_wait()
    os.kill(child, 9)
    os.waitpid(child, 0)


def reach(address: str) -> Callable[[], object]:
    def act() -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(address)

    return act


@live
def test_an_abstract_socket_of_the_host_is_out_of_reach(uid: int) -> None:
    def own() -> None:
        with socket.socket(socket.AF_UNIX) as inner:
            inner.bind(f"\0sandcore-inner-{os.getpid()}")
            inner.listen()
            reach(inner.getsockname().decode())()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0sandcore-outer-{os.getpid()}")
        server.listen()
        address = server.getsockname().decode()
        assert trial(uid, [(H_SCOPES, [])], reach(address)) == "EPERM"
        assert trial(uid, [], reach(address)) == "ok"
    assert trial(uid, [(H_SCOPES, [])], own) == "ok"


@live
def test_tcp_neither_binds_nor_connects(uid: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def connect() -> None:
            with socket.socket() as sock:
                sock.connect(address)

        def bind() -> None:
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", 0))

        for act in (connect, bind):
            assert trial(uid, [(H_TCP, [])], act) == "EACCES"
            assert trial(uid, [(H_SCOPES, [])], act) == "ok"
