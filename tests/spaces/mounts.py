"""The file tree: read-only, with the policy's exceptions."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from casekit import git, mount, need, private_mounts, repository
from spacekit import all_of, inside, outside, program, space

import sandbox
from sandbox import workspace_write

READ_ONLY = 1
# On a directory A[0] with a file `f`, a directory `d` in it.
WRITES = {
    "open": "write(A[0] + '/f')",
    "append": "write(A[0] + '/f', os.O_APPEND)",
    "truncate": "os.truncate(A[0] + '/f', 0)",
    "create": "write(A[0] + '/new', os.O_CREAT)",
    "mkdir": "os.mkdir(A[0] + '/new-d')",
    "symlink": "os.symlink('x', A[0] + '/new-l')",
    "link": "os.link(A[0] + '/f', A[0] + '/new-h')",
    "fifo": "os.mkfifo(A[0] + '/new-p')",
    "rename": "os.rename(A[0] + '/f', A[0] + '/g'), os.rename(A[0] + '/g', A[0] + '/f')",
    "rmdir": "os.rmdir(A[0] + '/d')",
}
METADATA = {
    "mode": "os.chmod(A[0] + '/f', 0o640)",
    "mode of an open file": "os.fchmod(os.open(A[0] + '/f', os.O_RDONLY), 0o600)",
    "mode, new call": "call(452, -100, (A[0] + '/f').encode(), 0o644, 0)",
    "mode of the directory": "os.chmod(A[0], 0o755)",
    "owner": "os.chown(A[0] + '/f', os.getuid(), os.getgid())",
    "owner of an open file": "os.fchown(os.open(A[0] + '/f', os.O_RDONLY), os.getuid(), -1)",
    "times": "os.utime(A[0] + '/f', (1, 1))",
    "times of an open file": "os.utime(os.open(A[0] + '/f', os.O_RDONLY), (1, 1))",
    "attribute": "os.setxattr(A[0] + '/f', 'user.x', b'1')",
    "attribute, removed": "os.removexattr(A[0] + '/f', 'user.x')",
    "access list": "os.setxattr(A[0] + '/f', 'system.posix_acl_access', bytes.fromhex("
    "'0200000001000600ffffffff04000400ffffffff20000400ffffffff'))",
}
DELETE = {"unlink": "os.unlink(A[0] + '/f')"}


def _fill(place: Path) -> Path:
    place.mkdir(exist_ok=True)
    (place / "d").mkdir()
    (place / "f").write_text("before")
    return place


def nothing_outside_can_be_written_or_marked(w: Path, o: Path) -> None:
    acts = WRITES | METADATA | DELETE
    twin, there = _fill(w / "twin"), _fill(o / "there")
    assert outside(acts, _fill(o / "control")) == all_of(acts, "ok")
    before = (there / "f").stat()
    with space(w) as box:
        assert inside(box, acts, twin) == all_of(acts, "ok")
        found = inside(box, acts, there)
        # Landlock is asked first where both refuse.
        assert all(found[name] in ("EROFS", "EACCES", "EXDEV") for name in WRITES | DELETE), found
        assert {name: found[name] for name in METADATA} == all_of(METADATA, "EROFS")
    assert (there / "f").stat() == before and sorted(os.listdir(there)) == ["d", "f"]


def mounts_below_are_as_read_only_as_the_tree(w: Path, o: Path) -> None:
    """Sub-mounts of the host: a writable one outside, one in that, and one in the workspace."""
    private_mounts()
    below = o / "below"
    for place in (below, w / "own", w / "kept"):
        place.mkdir()
        mount(b"none", bytes(place), b"tmpfs")
    deep = below / "deep"
    deep.mkdir()
    mount(b"none", bytes(deep), b"tmpfs")
    for place in (below, deep, w / "own", w / "kept"):
        _fill(place)
    mount(b"none", bytes(w / "kept"), None, 32 | READ_ONLY)  # MS_REMOUNT
    assert outside({"write": "write(A[0] + '/f')"}, w / "kept") == {"write": "EROFS"}
    acts = {name: WRITES[name] for name in ("open", "create", "mkdir")}
    marks = {name: METADATA[name] for name in ("mode", "times", "mode of the directory")}
    assert outside(acts | marks, _fill(below / "control")) == all_of(acts | marks, "ok")
    with space(w) as box:
        assert inside(box, acts | marks, w / "own") == all_of(acts | marks, "ok")
        for place in (below, deep):
            assert set(inside(box, acts, place).values()) <= {"EROFS", "EACCES"}
            assert inside(box, marks, place) == all_of(marks, "EROFS")
        # What the host has read-only stays so, in the workspace too.
        assert inside(box, acts | marks, w / "kept") == all_of(acts | marks, "EROFS")


def what_the_host_mounts_later_does_not_come_in(w: Path, o: Path) -> None:
    private_mounts()
    mount(b"none", b"/", None, 0x4000 | 0x100000)  # MS_REC | MS_SHARED
    late = o / "late"
    late.mkdir()
    with space(w) as box:
        box.run("true").check()
        mount(b"none", bytes(late), b"tmpfs")
        (late / "f").write_text("late")
        assert box.run(f"cat {late}/f").returncode != 0
        assert box.run(f"touch {late}/g").returncode != 0
    assert os.listdir(late) == ["f"]
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    ours = [line for line in lines if "mode=000" in line or str(w) in line]
    assert not [line for line in ours if "sandcore" in line and str(w) in line], ours


def a_protected_name_is_read_only_and_stays_where_it_is(w: Path, o: Path) -> None:
    repository(w)
    (w / ".vscode").mkdir()
    (w / ".envrc").write_text("export A=1\n")
    config = (w / ".git/config").read_bytes()
    acts = {
        "config": "write(A[0] + '/.git/config', os.O_APPEND)",
        "hook": "write(A[0] + '/.git/hooks/pre-commit', os.O_CREAT)",
        "attributes": "os.mkdir(A[0] + '/.git/info/x')",
        "tasks": "write(A[0] + '/.vscode/tasks.json', os.O_CREAT)",
        "envrc": "write(A[0] + '/.envrc', os.O_APPEND)",
        "mode": "os.chmod(A[0] + '/.envrc', 0o777)",
        "times": "os.utime(A[0] + '/.git/config', (1, 1))",
    }
    moves = {
        "rename": "os.rename(A[0] + '/.git', A[0] + '/other')",
        "remove": "os.unlink(A[0] + '/.envrc')",
        "replace": "os.replace(A[0] + '/f', A[0] + '/.envrc')",
        "rmdir": "os.rmdir(A[0] + '/.vscode')",
        "exchange": "call(316, -100, (A[0] + '/f').encode(), -100, (A[0] + '/.envrc').encode(), 2)",
    }
    with space(w) as box:
        assert set(inside(box, acts, w).values()) <= {"EROFS", "EACCES"}, inside(box, acts, w)
        found = inside(box, moves, w)
        assert set(found.values()) <= {"EBUSY", "EROFS", "EXDEV"}, found
        link = {"link": "os.link(A[0] + '/.git/config', A[0] + '/cfg')"}
        assert inside(box, link, w) == {"link": "EXDEV"}
        result = box.run("git status --short; git log --oneline; touch free")
        assert result.ok and "first" in result.out, result.text
        assert result.denials == ()
    assert (w / ".git/config").read_bytes() == config and (w / "free").exists()
    assert not (w / ".git/hooks/pre-commit").exists()


def the_directory_that_a_git_file_names_is_protected_and_pinned(w: Path, o: Path) -> None:
    """A worktree inside the workspace: what leads to its directory cannot be moved away."""
    need("git", "git")
    store = w / "deep/er/store"
    store.parent.mkdir(parents=True)
    git(w, "init", "-q", f"--separate-git-dir={store}", ".")
    assert (w / ".git").is_file()
    acts = {
        "pointer": "write(A[0] + '/.git', os.O_TRUNC)",
        "config": "write(A[0] + '/deep/er/store/config', os.O_APPEND)",
        "rename": "os.rename(A[0] + '/deep', A[0] + '/other')",
        "rename below": "os.rename(A[0] + '/deep/er', A[0] + '/deep/other')",
    }
    with space(w) as box:
        found = inside(box, acts, w)
        assert found["rename"] == found["rename below"] == "EBUSY", found
        assert {found["pointer"], found["config"]} <= {"EROFS", "EACCES"}, found
        assert box.run("git status --short; touch deep/er/free").ok
    assert git(w, "status", "--short").startswith("?? deep")


def what_is_denied_is_masked_and_says_nothing(w: Path, o: Path) -> None:
    """Neither contents nor size, times, owner, attributes; by no way of spelling it."""
    secret, closet = o / "secret", o / "closet"
    secret.write_text("SECRET of 19 bytes.")
    closet.mkdir()
    (closet / "key").write_text("SECRET")
    os.utime(secret, (12345, 12345))
    secret.chmod(0o751)
    with contextlib.suppress(OSError):
        os.setxattr(secret, "user.note", b"SECRET")
    (w / "to-secret").symlink_to(secret)
    (w / "to-closet").symlink_to(closet)
    acts = {
        "read": "read(A[0])",
        "by a link": "read(A[2] + '/to-secret')",
        "by root": "read('/proc/self/root' + A[0])",
        "by a handle": "read(f'/proc/self/fd/{os.open(A[0], os.O_PATH)}')",
        "list": "os.listdir(A[1])",
        "list by a link": "os.listdir(A[2] + '/to-closet')",
        "in it": "read(A[1] + '/key')",
        "look in it": "os.stat(A[1] + '/key')",
        "enter": "os.chdir(A[1])",
        "run": "os.execv(A[0], ['x'])",
    }
    policy = workspace_write(w, deny=[secret, closet])
    assert outside({k: v for k, v in acts.items() if k != "run"}, secret, closet, w) == all_of(
        {k: v for k, v in acts.items() if k != "run"}, "ok"
    )
    facts = """
import os, sys
found = os.stat(sys.argv[1])
try: names = os.listxattr(sys.argv[1])
except OSError: names = []
print(found.st_size, int(found.st_mtime), found.st_ino == int(sys.argv[2]), "user.note" in names)
"""
    with space(w, policy) as box:
        found = inside(box, acts, secret, closet, w)
        assert set(found.values()) <= {"EACCES"}, found
        size, mtime, same, names = (
            box.run(program(facts, secret, secret.stat().st_ino)).check().out.split()
        )
        assert (size, same, names) == ("0", "False", "False") and mtime != "12345"
        change = {
            "write": "write(A[0])",
            "remove": "os.unlink(A[0])",
            "move": "os.rename(A[1], A[1] + '-other')",
            "mode": "os.chmod(A[0], 0o777)",
        }
        assert "ok" not in inside(box, change, secret, closet).values()
    assert secret.read_text().startswith("SECRET") and secret.stat().st_mode & 0o777 == 0o751


def a_secret_in_the_workspace_stays_masked_wherever_it_is_moved(w: Path, o: Path) -> None:
    """Renaming what it lies in would show it to the next sandbox under another name."""
    deep = w / "private/deep"
    deep.mkdir(parents=True)
    (deep / ".env").write_text("SECRET")
    policy = workspace_write(w, deny=[deep / ".env"])
    acts = {
        "parent": "os.rename(A[0] + '/private', A[0] + '/public')",
        "near": "os.rename(A[0] + '/private/deep', A[0] + '/private/other')",
        "out": "os.rename(A[0] + '/private/deep', A[0] + '/other')",
        "itself": "os.rename(A[0] + '/private/deep/.env', A[0] + '/free')",
        "over": "os.rename(A[0] + '/f', A[0] + '/private/deep/.env')",
        "remove": "os.unlink(A[0] + '/private/deep/.env')",
        "link": "os.link(A[0] + '/private/deep/.env', A[0] + '/free')",
        "exchange": "call(316, -100, (A[0] + '/d').encode(), -100,"
        " (A[0] + '/private').encode(), 2)",
    }
    (w / "f").write_text("x")
    (w / "d").mkdir()
    with space(w, policy) as box:
        found = inside(box, acts, w)
        assert set(found.values()) <= {"EBUSY", "EXDEV"}, found
        assert box.run("cat private/deep/.env").out == ""
        assert box.run("touch private/deep/free && mkdir private/new").ok
    with space(w, policy) as box:
        assert "SECRET" not in box.run("cat $(find . -name .env) other/.env").out
    assert (deep / ".env").read_text() == "SECRET"


def a_part_of_what_is_denied_can_be_shown(w: Path, o: Path) -> None:
    shown = o / "closet/shown"
    shown.mkdir(parents=True)
    (shown / "f").write_text("shown")
    (o / "closet/key").write_text("SECRET")
    policy = workspace_write(w, deny=[o / "closet"], read=[shown])
    with space(w, policy) as box:
        assert box.run(f"cat {shown}/f").out == "shown"
        acts = {"key": "read(A[0] + '/key')", "write": "write(A[0] + '/shown/f')"}
        found = inside(box, acts, o / "closet")
        assert found["key"] in ("ENOENT", "EACCES") and found["write"] in ("EROFS", "EACCES")
        assert box.run(f"ls -A {o}/closet").out == "shown\n"


def where_reading_is_denied_only_what_is_named_is_read(w: Path, o: Path) -> None:
    entries = [sandbox.Entry("/", "deny"), sandbox.Entry(str(w), "write")]
    entries += [sandbox.Entry(p, "read") for p in ("/usr", "/bin", "/lib", "/lib64", "/etc/passwd")]
    policy = sandbox.SandboxPolicy(entries=tuple(e for e in entries if os.path.exists(e.path)))
    (w / "f").write_text("ours")
    with space(w, policy) as box:
        os.chdir(w)
        first = box.run("cat f /etc/passwd")
        assert first.ok and first.out.startswith("ours"), first.text
        acts = {
            "file": "read(A[0] + '/file')",
            "group": "read('/etc/group')",
            "home": "os.listdir('/')",
        }
        found = inside(box, acts, o)
        assert found["file"] == found["group"] == "EACCES", found


def a_read_only_policy_writes_nothing_but_tmp(w: Path, o: Path) -> None:
    twin = _fill(w / "twin")
    acts = WRITES | METADATA | DELETE
    with space(w, sandbox.read_only()) as box:
        os.chdir("/")
        found = inside(box, acts, twin)
        assert all(found[n] == "EROFS" or n not in METADATA for n in acts), found
        assert "ok" not in found.values()
        assert box.run("touch /tmp/f && mkdir /dev/shm/d").ok
    assert (twin / "f").read_text() == "before"


def nothing_can_be_mounted_or_unmounted(w: Path, o: Path) -> None:
    acts = {
        "tmpfs": "call(165, b'none', A[0].encode(), b'tmpfs', 0, None)",
        "bind": "call(165, A[1].encode(), A[0].encode(), None, 4096, None)",
        "remount": "call(165, b'none', b'/', None, 32 | 4096, None)",
        "unmount": "call(166, b'/proc', 2)",
        "unmount own": "call(166, b'/tmp', 2)",
        "attributes": "call(442, -100, b'/', 0x8000, struct.pack('QQQQ', 0, 1, 0, 0), 32)",
        "tree": "call(428, -100, b'/', 1)",
        "open": "call(430, b'tmpfs', 0)",
        "move": "call(429, -100, A[0].encode(), -100, A[1].encode(), 0)",
        "pivot": "call(155, b'/tmp', b'/tmp')",
        "chroot": "os.chroot(A[0])",
        "user": "call(272, 0x10000000)",
        "mounts": "call(272, 0x20000)",
        "clone": "call(56, 0x10000011, 0, 0, 0, 0)",
    }
    with space(w) as box:
        assert inside(box, acts, w, o) == all_of(acts, "EPERM")
    bare = outside({"user": acts["user"]})
    assert bare == {"user": "ok"}


def an_open_directory_leads_nowhere_else(w: Path, o: Path) -> None:
    """The working directory was opened by the caller; it is the one that is mounted."""
    acts = {
        "out": "write('../outside/file')",
        "root": "write('../../../../../../..' + A[0] + '/file')",
        "cwd": "write('/proc/self/cwd/../outside/file')",
    }
    os.chdir(w)
    assert outside(acts, o) == all_of(acts, "ok")
    with space(w) as box:
        found = inside(box, acts, o)
        assert set(found.values()) <= {"EROFS", "EACCES"}, found
        assert box.run("pwd").out.strip() == str(w)
        (w / "sub").mkdir()
        assert box.run("touch here", cwd=w / "sub").ok and (w / "sub/here").exists()


def _seconds_to_start(w: Path, roots: list[Path]) -> float:
    before = time.process_time()
    with sandbox.Sandbox(workspace_write(w, write=roots)) as box:
        taken = time.process_time() - before
        assert box.run(["touch", *(root / "here" for root in roots)]).ok
    assert all((root / "here").exists() for root in roots)
    return taken


def a_thousand_writable_directories_are_no_more_than_a_thousand_times_one(w: Path, o: Path) -> None:
    """Each has eight protected names that are missing, which count as no mounts."""
    many = [w / f"root-{index}" for index in range(1000)]
    for root in many:
        root.mkdir()
    few, all_of_them = _seconds_to_start(w, many[:250]), _seconds_to_start(w, many)
    assert all_of_them < 12 * few, f"{few:.2f} s for 250, {all_of_them:.2f} s for 1,000"
