"""What changed between two looks: no way of hiding it does, from a walk and from notices."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import AsUser
from hypothesis import given
from hypothesis import strategies as st

from sandbox import Sandbox, workspace_write
from sandbox.errors import InvalidArgument
from sandbox.session.changes import FileChanges, Watch

HEARS = sys.platform == "linux"


@pytest.fixture
def root(far: Path) -> Path:
    """A tree with a bit of everything."""
    path = far / "root"
    (path / "dir" / "sub").mkdir(parents=True)
    for name in ("a", "b", "dir/c", "dir/sub/d"):
        (path / name).write_text(f"{name}\n")
    (path / "link").symlink_to("a")
    os.mkfifo(path / "fifo")
    return path


def ready(kind: str, *roots: Path, **how: object) -> Watch:
    """A watch whose next two looks are walks, or are answered by what the kernel told."""
    watch = Watch([str(one) for one in roots], **how)  # type: ignore[arg-type]
    if kind == "told":
        for _ in range(3):
            watch.before()
            assert not watch.after()
        assert (watch._ear is not None) == HEARS
    else:
        watch._can_hear = False
    watch.before()
    return watch


def names(changes: FileChanges, root: Path) -> tuple[list[str], list[str], list[str]]:
    assert changes.complete and changes.why == "", changes
    created, changed, deleted = (
        [os.path.relpath(path, root) for path in paths]
        for paths in (changes.created, changes.changed, changes.deleted)
    )
    return created, changed, deleted


def put_back(path: Path, act: Callable[[Path], object]) -> None:
    """A change after which size and times are as they were, as far as that can be had."""
    info = path.stat()
    act(path)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (info.st_size, info.st_mtime_ns)


def mapped(path: Path) -> None:
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, 0) as memory:
        os.close(fd)
        memory[0:1] = b"M"


def by_link(path: Path) -> None:
    """Written to by another name that is there only meanwhile, in another directory."""
    other = path.parent.parent / "other"
    os.link(path, other)
    other.write_bytes(path.read_bytes().upper())
    other.unlink()


def filled(path: Path) -> None:
    """A new directory that is full before anybody can listen to it."""
    for depth in range(3):
        path = path / f"n{depth}"
        path.mkdir()
        (path / "x").write_text("x")


def renamed_over(path: Path) -> None:
    (path.parent / "new").write_bytes(path.read_bytes())
    (path.parent / "new").replace(path)


def unnamed(path: Path) -> None:
    fd = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY)
    os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=0, follow_symlinks=True)
    os.close(fd)


def socketed(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


# What is done, and what is created, changed and deleted by it.
ACTS: dict[str, tuple[Callable[[Path], object], list[str], list[str], list[str]]] = {
    "nothing": (lambda r: (r / "a").read_text(), [], [], []),
    "write": (lambda r: (r / "dir/c").write_text("x"), [], ["dir/c"], []),
    "put back": (
        lambda r: put_back(r / "a", lambda p: p.write_text("A\n")), [], ["a"], [],
    ),
    "written with the same": (lambda r: (r / "a").write_text("a\n"), [], ["a"], []),
    "mapped": (lambda r: put_back(r / "a", mapped), [], ["a"], []),
    "mode": (lambda r: (r / "a").chmod(0o600), [], ["a"], []),
    "mode and back": (lambda r: [(r / "a").chmod(m) for m in (0o600, 0o644)], [], ["a"], []),
    "mode of a directory": (lambda r: (r / "dir").chmod(0o700), [], ["dir"], []),
    "attribute": (lambda r: os.setxattr(r / "a", "user.x", b"y"), [], ["a"], []),
    "attribute of a directory": (lambda r: os.setxattr(r / "dir", "user.x", b"y"), [], ["dir"], []),
    "attribute of the root": (lambda r: os.setxattr(r, "user.x", b"y"), [], ["."], []),
    "time": (lambda r: os.utime(r / "a", (1, 1)), [], ["a"], []),
    "rename": (lambda r: (r / "a").rename(r / "dir/e"), ["dir/e"], [], ["a"]),
    "rename of a directory": (
        lambda r: (r / "dir").rename(r / "moved"),
        ["moved", "moved/c", "moved/sub", "moved/sub/d"],
        [],
        ["dir", "dir/c", "dir/sub", "dir/sub/d"],
    ),
    "replaced": (lambda r: renamed_over(r / "a"), [], ["a"], []),
    "swapped": (
        lambda r: [(r / x).rename(r / y) for x, y in (("a", "t"), ("b", "a"), ("t", "b"))],
        [], ["a", "b"], [],
    ),
    "directory for a file": (
        lambda r: [(r / "a").unlink(), (r / "a").mkdir(), (r / "a/x").touch()],
        ["a/x"], ["a"], [],
    ),
    "file for a directory": (
        lambda r: [shutil.rmtree(r / "dir"), (r / "dir").touch()],
        [], ["dir"], ["dir/c", "dir/sub", "dir/sub/d"],
    ),
    "another directory of that name": (
        lambda r: [
            (r / "dir/sub").rename(r / "old"), (r / "dir/sub").mkdir(),
            (r / "dir/sub/d").touch(), shutil.rmtree(r / "old"),
        ],
        [], [".", "dir/sub", "dir/sub/d"], [],
    ),
    "link": (lambda r: (r / "l2").symlink_to("/etc/passwd"), ["l2"], [], []),
    "link to a loop": (lambda r: (r / "dir/up").symlink_to(".."), ["dir/up"], [], []),
    "link elsewhere": (
        lambda r: [(r / "l2").symlink_to("b"), (r / "l2").replace(r / "link")], [], ["link"], [],
    ),
    "through a link": (lambda r: (r / "link").write_text("x"), [], ["a"], []),
    "fifo": (lambda r: os.mkfifo(r / "dir/fifo2"), ["dir/fifo2"], [], []),
    "socket": (lambda r: socketed(r / "s"), ["s"], [], []),
    "directories": (
        filled, ["n0", "n0/n1", "n0/n1/n2", "n0/n1/n2/x", "n0/n1/x", "n0/x"], [], [],
    ),
    "deletion": (lambda r: (r / "dir/sub/d").unlink(), [], [], ["dir/sub/d"]),
    "deletion of a tree": (
        lambda r: shutil.rmtree(r / "dir"), [], [], ["dir", "dir/c", "dir/sub", "dir/sub/d"],
    ),
    "hard link": (lambda r: os.link(r / "a", r / "dir/e"), ["dir/e"], ["a"], []),
    "by a link that is gone": (lambda r: put_back(r / "dir/c", by_link), [], [".", "dir/c"], []),
    "without a name at first": (lambda r: unnamed(r / "dir/e"), ["dir/e"], [], []),
    "come and gone": (lambda r: [(r / "t").touch(), (r / "t").unlink()], [], ["."], []),
    "truncated": (lambda r: os.truncate(r / "a", 0), [], ["a"], []),
    "the root": (lambda r: shutil.rmtree(r), [], [], [
        ".", "a", "b", "dir", "dir/c", "dir/sub", "dir/sub/d", "fifo", "link",
    ]),
    "another root": (
        lambda r: [r.rename(r.with_name("r2")), r.mkdir(), (r / "a").touch()],
        [], [".", "a"], ["b", "dir", "dir/c", "dir/sub", "dir/sub/d", "fifo", "link"],
    ),
    "odd names": (
        lambda r: [(r / os.fsdecode(n)).touch() for n in (b"\xff", b"new\nline", b" ")],
        ["\n".join(["new", "line"]), " ", "\udcff"], [], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["walked", "told"])
@pytest.mark.parametrize("what", ACTS)
def test_a_change_is_seen(what: str, kind: str, root: Path) -> None:
    act, *expected = ACTS[what]
    watch = ready(kind, root)
    try:
        act(root)
    except (OSError, AttributeError) as error:
        if getattr(error, "errno", errno.ENOTSUP) != errno.ENOTSUP:
            raise
        pytest.skip(f"needs a file system and a system that can do it: {error}")
    found = names(watch.after(), root)
    assert tuple(map(sorted, found)) == tuple(map(sorted, expected))
    watch.before()
    assert not watch.after()  # and only once


@pytest.mark.parametrize("kind", ["walked", "told"])
def test_many_calls_each_have_what_was_theirs(kind: str, root: Path) -> None:
    """What comes between two calls is nobody's."""
    watch = ready(kind, root)
    for number in range(5):
        (root / f"dir{number}").mkdir()
        assert names(watch.after(), root)[0] == [f"dir{number}"]
        (root / f"dir{number}" / "between").touch()
        watch.before()
        (root / f"dir{number}" / "in").touch()
        assert names(watch.after(), root)[0] == [f"dir{number}/in"]
        watch.before()


@pytest.mark.parametrize("kind", ["walked", "told"])
def test_hard_links_with_a_name_outside_are_looked_at_each_time(kind: str, root: Path) -> None:
    """No directory of the root tells of what is written by the name outside."""
    outside = root.with_name("outside")
    os.link(root / "dir" / "c", outside)
    watch = ready(kind, root)
    put_back(outside, lambda path: path.write_bytes(path.read_bytes().upper()))
    assert names(watch.after(), root)[1] == ["dir/c"]


def test_no_notices_where_a_second_name_may_be_made_unseen(root: Path) -> None:
    """A link in a place that is not watched: only a walk sees what is written by it."""
    private = root.with_name("private")
    private.mkdir()
    for how in ({"elsewhere": [str(private)]}, {"skip": [str(root / "dir")]}):
        watch = Watch([str(root)], **how)  # type: ignore[arg-type]
        for _ in range(4):
            watch.before()
            assert not watch.after()
        assert watch._ear is None
        watch.before()
        os.link(root / "a", private / "x")
        put_back(private / "x", lambda path: path.write_text("A\n"))
        (private / "x").unlink()
        assert names(watch.after(), root)[1] == ["a"]
    if HEARS:  # another file system is no such place
        watch = Watch([str(root)], elsewhere=["/dev/shm/missing"])
        for _ in range(3):
            watch.before()
            watch.after()
        assert watch._ear is not None


@pytest.mark.parametrize("kind", ["walked", "told"])
def test_several_roots_nested_roots_files_and_what_is_missing(kind: str, root: Path) -> None:
    other, file, missing = (root.with_name(name) for name in ("other", "file", "missing"))
    other.mkdir()
    file.write_text("1\n")
    watch = ready(kind, root, root / "dir", other, file, missing, root)
    (root / "dir" / "new").touch()
    (other / "new").touch()
    put_back(file, lambda path: path.write_text("2\n"))
    missing.mkdir()
    (missing / "x").touch()
    created, changed, _ = names(watch.after(), root)
    assert created == ["../missing", "../missing/x", "../other/new", "dir/new"]
    assert changed == ["../file"]
    watch.before()
    (missing / "x").unlink()
    file.unlink()
    assert names(watch.after(), root)[2] == ["../file", "../missing/x"]


def test_what_is_skipped_is_said_and_a_root_in_it_is_looked_at(root: Path) -> None:
    watch = ready("walked", root, root / "dir" / "sub", skip=[str(root / "dir")])
    (root / "dir" / "c").write_text("x")
    (root / "dir" / "sub" / "d").write_text("x")
    (root / "a").write_text("x")
    changes = watch.after()
    assert names(changes, root)[1] == ["a", "dir/sub/d"]
    assert changes.skipped == (str(root / "dir"),)


@pytest.mark.parametrize("kind", ["walked", "told"])
def test_a_link_in_the_place_of_a_directory_is_not_followed(kind: str, root: Path) -> None:
    outside = root.with_name("outside")
    (outside / "sub").mkdir(parents=True)
    (outside / "secret").touch()
    watch = ready(kind, root)
    shutil.rmtree(root / "dir")
    (root / "dir").symlink_to(outside)
    assert names(watch.after(), root) == ([], ["dir"], ["dir/c", "dir/sub", "dir/sub/d"])


def test_a_directory_that_is_swapped_while_it_is_looked_for_is_not_entered(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its name was read and it is opened, the way to it leads elsewhere."""
    outside = root.with_name("outside")
    (outside / "sub").mkdir(parents=True)
    (outside / "sub" / "secret").touch()
    watch = ready("walked", root)
    opened = os.open

    def swapped(path: str, *how: int) -> int:
        if path == str(root / "dir" / "sub"):
            (root / "dir").rename(root.with_name("gone"))
            (root / "dir").symlink_to(outside)
        return opened(path, *how)

    monkeypatch.setattr(os, "open", swapped)
    changes = watch.after()
    assert not changes.complete and "another directory" in changes.why
    assert not [path for path in changes.created if "secret" in path]
    assert not changes.deleted  # what was not looked at is not said to be gone


def test_more_than_is_looked_at_is_said_and_costs_no_more(root: Path) -> None:
    for number in range(300):
        (root / "dir" / f"f{number}").touch()
    (root / "dir" / "deep").mkdir()
    (root / "dir" / "deep" / "x").touch()
    watch = Watch([str(root)], most=100)
    for _ in range(4):
        watch.before()
        (root / "a").write_text("x")
        changes = watch.after()
        assert not changes.complete and changes.why == "more than 100 entries"
        assert str(root / "a") in changes.changed
        # No name is said to have come or gone that was merely not looked at.
        assert not changes.created and not changes.deleted
        assert len(watch._last.entries) == 100  # type: ignore[union-attr]
    assert watch._ear is None
    watch.before()
    (root / "0new").touch()
    (root / "b").unlink()
    changes = watch.after()
    assert changes.created == (str(root / "0new"),) and changes.deleted == (str(root / "b"),)


def test_a_huge_directory_is_left_when_there_is_enough(far: Path) -> None:
    for number in range(3000):
        (far / f"f{number}").touch()
    watch = Watch([str(far)], most=50)
    begun = time.perf_counter()
    watch.before()
    assert time.perf_counter() - begun < 0.05
    assert not watch.after().complete


def test_what_cannot_be_read_is_said(root: Path, as_user: AsUser) -> None:
    as_user.give(root, *root.rglob("*"))
    code = (
        "import os, sys; from sandbox.session.changes import Watch\n"
        "root = sys.argv[1]; watch = Watch([root]); watch.before()\n"
        "os.chmod(f'{root}/dir', 0); found = watch.after(); os.chmod(f'{root}/dir', 0o755)\n"
        "print(found.complete, found.why, found.created, found.changed, found.deleted, sep='|')\n"
    )
    said = as_user(code, str(root)).stdout.strip()
    assert said == f"False|{root}/dir: Permission denied|()|('{root}/dir',)|()"


def test_a_tree_that_is_too_deep_for_a_path_is_said(root: Path) -> None:
    """Made by going down into it: no path is long enough for its end."""
    code = "import os\nfor _ in range(30): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
    watch = ready("walked", root)
    subprocess.run([sys.executable, "-c", code], cwd=root / "dir", check=True)
    changes = watch.after()
    assert not changes.complete and "too long" in changes.why
    assert len(changes.created) >= 15
    subprocess.run(["rm", "-rf", str(root / "dir")], check=True)


@pytest.mark.skipif(not HEARS, reason="needs inotify")
def test_lost_notices_and_no_room_for_them_mean_a_walk(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = ready("told", root)
    with open("/proc/sys/fs/inotify/max_queued_events") as file:
        most = int(file.read())
    for number in range(most + 10):  # different events, which are not put together
        os.utime(root / ("a" if number % 2 else "b"), (1, 1))
    (root / "dir" / "late").touch()
    assert "dir/late" in names(watch.after(), root)[0]

    import sandbox.backends.notices as notices

    class Full(notices.Contents):
        def listen(self, fd: int, key: tuple[int, ...]) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(notices, "Contents", Full)
    watch = Watch([str(root)])
    for number in range(4):
        watch.before()
        (root / f"x{number}").touch()
        assert names(watch.after(), root)[0] == [f"x{number}"]
    assert watch._ear is None


@pytest.mark.skipif(not HEARS, reason="needs inotify")
def test_a_forked_copy_and_its_parent_both_see_what_changes(root: Path) -> None:
    watch = ready("told", root)
    (root / "new").touch()
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            first = watch.after().created
            watch.before()
            (root / "dir" / "second").touch()
            status = 0 if len(first) == 1 and len(watch.after().created) == 1 else 2
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert names(watch.after(), root)[0] == ["dir/second", "new"]


@pytest.mark.skipif(not HEARS, reason="needs inotify")
def test_directories_that_are_gone_are_no_longer_listened_to(root: Path) -> None:
    watch = ready("told", root)
    ear = watch._ear
    assert ear is not None
    count = len(ear._numbers)
    for number in range(20):
        (root / f"d{number}").mkdir()
    (root / "dir" / "sub").rename(root.with_name("elsewhere"))
    watch.after()
    assert len(ear._numbers) == count + 19
    for number in range(20):
        (root / f"d{number}").rmdir()
        watch.before()
        watch.after()
    assert len(ear._numbers) == count - 1


STEPS: dict[str, Callable[[Path, Path], object]] = {
    "write": lambda one, other: one.write_text(str(other)),
    "mkdir": lambda one, other: one.mkdir(),
    "rm": lambda one, other: shutil.rmtree(one) if one.is_dir() else one.unlink(),
    "mv": lambda one, other: one.rename(other),
    "ln": lambda one, other: os.link(one, other),
    "chmod": lambda one, other: one.chmod(0o755),
}
PARTS = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a"])


@given(
    st.lists(
        st.tuples(st.sampled_from([*STEPS]), PARTS, PARTS),
        max_size=8,
    )
)
def test_a_walk_and_notices_say_the_same(steps: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        root = Path(name)
        (root / "d" / "e").mkdir(parents=True)
        (root / "d" / "a").touch()
        (root / "b").touch()
        watches = [ready(kind, root) for kind in ("walked", "told")]
        for act, one, other in steps:
            with suppress(OSError, shutil.Error):
                STEPS[act](root / one, root / other)
        walked, told = (watch.after() for watch in watches)
        assert walked == told
        for watch in watches:
            watch.close()


def test_a_command_is_seen_in_its_sandbox(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own namespaces as in none; what it left in its own /tmp is not of the root."""
    for isolation in ("namespaces", "landlock"):
        monkeypatch.setenv("SANDBOX_ISOLATION", isolation)
        with warnings.catch_warnings(action="ignore"), Sandbox(workspace_write(root)) as box:
            watch = ready("told", root)
            box.run("cat a > /dev/null; echo x > $TMPDIR/t", check=True)
            assert not watch.after()
            watch.before()
            box.run(
                "touch -r a keep; echo A > a; touch -r keep a; rm keep; "
                "mkdir -p n/m; echo y > n/m/f; mv dir/c dir/e; (sleep 0.05; echo z > b) & wait",
                check=True,
            )
            assert names(watch.after(), root) == (
                ["dir/e", "n", "n/m", "n/m/f"],
                ["a", "b"],
                ["dir/c"],
            )
            (root / "dir" / "e").rename(root / "dir" / "c")
            shutil.rmtree(root / "n")
            watch.close()


def test_what_means_nothing_is_refused(root: Path) -> None:
    for roots, how in (
        (["relative"], {}),
        ([str(root) + "/../root"], {}),
        ([3], {}),
        ([str(root)], {"most": 0}),
        ([str(root)], {"most": True}),
        ([str(root)], {"skip": ["x"]}),
    ):
        with pytest.raises(InvalidArgument):
            Watch(roots, **how)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no look before"):
        Watch([str(root)]).after()
    watch = Watch([])
    watch.before()
    assert watch.after() == FileChanges()


def test_a_change_of_nothing_costs_next_to_nothing(root: Path) -> None:
    """Not for each file: the notices of a thousand are read at once."""
    if not HEARS:
        pytest.skip("needs inotify")
    for number in range(1000):
        (root / "dir" / f"f{number}").touch()
    times = {}
    for kind in ("walked", "told"):
        watch = ready(kind, root)
        begun = time.perf_counter()
        for _ in range(5):
            watch.after()
            watch.before()
        times[kind] = time.perf_counter() - begun
        watch.close()
    assert times["told"] < times["walked"] / 20, times
