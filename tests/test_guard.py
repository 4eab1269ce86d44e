"""Protected names under Landlock: what a command plants or changes there does not stay.

The command is played by a shell without any confinement: what matters is what it leaves.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from conftest import AsUser
from hypothesis import given, settings
from hypothesis import strategies as st

from _sandcore import Stamps
from sandbox.backends import guard as guard_module
from sandbox.backends import nofollow
from sandbox.backends.guard import Guard
from sandbox.backends.snapshot import Node
from sandbox.denial import Denial
from sandbox.entries import Access
from sandbox.policy import PROTECTED
from sandbox.presets import workspace_write
from sandbox.protected import protected_paths

SETTLED = 0.03  # seconds after which a change time tells what it should
HOOK = "#!/bin/sh\ntouch '{}'\n"


def host(where: Path, *command: str, check: bool = True) -> str:
    """Runs a program of the host, git above all, with nobody's configuration."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(where),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CEILING_DIRECTORIES": str(where.parent),
        **{
            f"GIT_{who}_{what}": "a@b.c"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    done = subprocess.run(
        command, cwd=where, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model() -> Iterator[Path]:
    """A repository to copy, which is faster than making one."""
    with tempfile.TemporaryDirectory() as where:
        path = Path(where).resolve() / "model"
        path.mkdir()
        make_repository(path)
        yield path


@pytest.fixture
def repo(model: Path, workspace: Path) -> Path:
    """A repository with one commit and a hook of the host's own."""
    shutil.copytree(model, workspace, symlinks=True, dirs_exist_ok=True)
    return workspace


def make_repository(where: Path) -> None:
    host(where, "git", "init", "-q", "-b", "main")
    for sample in sorted((where / ".git/hooks").glob("*.sample"))[1:]:
        sample.unlink()  # one is enough, and there are many copies
    (where / "file").write_text("1\n")
    (where / ".git/hooks/post-commit").write_text("#!/bin/sh\nexit 0\n")
    (where / ".git/hooks/post-commit").chmod(0o755)
    host(where, "git", "add", "file")
    host(where, "git", "commit", "-qm", "first")


def guard_of(*roots: Path) -> Guard:
    """A guard as the backend makes it."""
    granted = {str(root): Access.WRITE for root in roots}
    return Guard([str(root) for root in roots], protected_paths(PROTECTED, granted, ""), Stamps)


def during(guard: Guard, where: Path, script: str) -> tuple[Denial, ...]:
    """What the guard says of a command."""
    guard.before()
    subprocess.run(["bash", "-euc", script], cwd=where, check=True, stdout=subprocess.DEVNULL)
    return guard.after()


def kinds(denials: Sequence[Denial], where: Path) -> list[tuple[str, str]]:
    return [(denial.change, os.path.relpath(denial.what, where)) for denial in denials]


def asides(where: Path, word: str) -> list[str]:
    return sorted(name for name in os.listdir(where) if f".{word}-" in name)


def tree(where: Path) -> dict[str, object]:
    """Everything below a directory: kind and mode, content or target, and the change time."""
    found: dict[str, object] = {}
    for top, dirs, files in os.walk(where):
        for name in [*dirs, *files, "."]:
            path = os.path.join(top, name)
            state = os.lstat(path)
            data = os.fsencode(os.readlink(path)) if stat.S_ISLNK(state.st_mode) else None
            data = Path(path).read_bytes() if stat.S_ISREG(state.st_mode) else data
            found[path] = (state.st_mode, state.st_ctime_ns, data)
    return found


# Nothing happened


def test_a_command_that_touches_no_protected_name_is_left_alone(repo: Path) -> None:
    assert during(guard_of(repo), repo, "echo 2 > file; mkdir -p a/b; echo x > a/b/c") == ()
    assert (repo / "a/b/c").read_text() == "x\n"


def test_git_commands_that_commit_go_on_working_and_are_not_undone(repo: Path) -> None:
    guard = guard_of(repo)
    script = (
        "git -c user.name=a -c user.email=a@b.c commit -qam second; "
        "git branch topic; git checkout -q topic; git tag v1; git gc -q; git checkout -q --detach"
    )
    (repo / "file").write_text("2\n")
    assert during(guard, repo, script) == ()
    assert "second" in host(repo, "git", "log", "--oneline", "topic")
    assert during(guard, repo, "git checkout -q main") == ()
    assert asides(repo / ".git", "changed") == []


def test_the_usual_command_costs_two_looks_and_nothing_else(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bytes] = []

    class Counting:
        def __init__(self, paths: Sequence[bytes]) -> None:
            self.stamps = Stamps(paths)

        def take(self) -> bytes:
            looks.append(self.stamps.take())
            return looks[-1]

        def same(self, state: bytes) -> bool:
            return self.take() == state

        def settled(self, state: bytes) -> bool:
            return self.stamps.settled(state)

    time.sleep(SETTLED)
    paths = [f"{repo}/{name}" for name in PROTECTED]
    guard = Guard([str(repo)], paths, Counting)

    def refuse(*_: object) -> None:
        raise AssertionError("looked closer")

    monkeypatch.setattr(guard_module, "take_snapshot", refuse)
    monkeypatch.setattr(guard_module, "restore", refuse)
    guard.before()  # from the second command on
    assert guard.after() == ()
    looks.clear()
    guard.before()
    assert guard.after() == ()
    assert len(looks) == 2


def test_what_the_host_changes_between_commands_stays(repo: Path) -> None:
    guard = guard_of(repo)
    assert during(guard, repo, "true") == ()
    host(repo, "git", "config", "core.pager", "less")
    (repo / ".envrc").write_text("mine\n")
    (repo / ".git/hooks/pre-commit").write_text("mine\n")
    assert during(guard, repo, "echo 2 > file") == ()
    assert kinds(during(guard, repo, "echo evil > .envrc"), repo) == [("changed", ".envrc")]
    assert (repo / ".envrc").read_text() == "mine\n"
    assert host(repo, "git", "config", "core.pager") == "less\n"


def test_a_name_that_the_host_made_is_looked_at_from_then_on(repo: Path) -> None:
    """Its directory told that it came; it does not tell what becomes of it."""
    guard = guard_of(repo)
    assert during(guard, repo, "true") == ()
    (repo / ".envrc").write_text("mine\n")
    time.sleep(0.05)  # so that no look is doubted for being too early
    for _ in range(3):
        assert during(guard, repo, "true") == ()
    assert kinds(during(guard, repo, "echo evil > .envrc"), repo) == [("changed", ".envrc")]
    assert (repo / ".envrc").read_text() == "mine\n"


def test_what_the_host_changes_during_a_command_is_kept_aside_and_told(repo: Path) -> None:
    guard = guard_of(repo)
    guard.before()
    host(repo, "git", "config", "core.pager", "less")
    denials = guard.after()
    assert kinds(denials, repo) == [("changed", ".git/config")]
    subprocess.run(["bash", "-c", denials[0].undo], check=True)
    assert host(repo, "git", "config", "core.pager") == "less\n"


# Planted where nothing was

PLANTS = {
    "a file": "echo evil > '{}'",
    "a directory": "mkdir -p '{0}/inner'; echo evil > '{0}/inner/file'",
    "a directory without permissions": "mkdir '{0}'; echo x > '{0}/file'; chmod 000 '{0}'",
    "a link": "ln -s /etc '{}'",
    "a FIFO": "mkfifo '{}'",
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("name", PROTECTED)
def test_a_planted_name_is_moved_aside(workspace: Path, name: str, plant: str) -> None:
    guard = guard_of(workspace)
    denials = during(guard, workspace, PLANTS[plant].format(name))
    assert kinds(denials, workspace) == [("planted", name)]
    assert os.listdir(workspace) == asides(workspace, "planted") != []
    subprocess.run(["bash", "-c", denials[0].undo], check=True)
    assert os.listdir(workspace) == [name]


def test_case_30_a_planted_repository_does_not_hide_the_one_above_it(repo: Path) -> None:
    below = repo / "below"
    below.mkdir()
    denials = during(guard_of(below), below, "git init -q; git config core.fsmonitor 'touch PWNED'")
    assert kinds(denials, below) == [("planted", ".git")]
    assert host(below, "git", "-C", str(below), "rev-parse", "--git-dir", check=False) == ""
    assert Path(host(repo, "git", "-C", "below", "rev-parse", "--show-toplevel").strip()) == repo
    assert not (below / "PWNED").exists()


@pytest.mark.parametrize(
    "name", ["hooks/pre-commit", "config.worktree", "commondir", "info/attributes"]
)
def test_wsp12_a_planted_name_in_the_git_directory_is_moved_aside(repo: Path, name: str) -> None:
    denials = during(guard_of(repo), repo, f"echo evil > .git/{name}")
    assert kinds(denials, repo) == [("planted", f".git/{name}")]
    assert not (repo / ".git" / name).exists()
    assert (repo / ".git" / f"{name}.planted-{denials[0].undo.split('planted-')[1][:12]}").is_file()
    assert host(repo, "git", "status", "--porcelain") == ""


def test_a_name_too_long_for_a_suffix_is_cut(workspace: Path) -> None:
    (workspace / ".vscode").mkdir()
    long = "n" * 255
    denials = during(guard_of(workspace), workspace, f"echo x > .vscode/{long}")
    assert kinds(denials, workspace) == [("planted", f".vscode/{long}")]
    assert len(asides(workspace / ".vscode", "planted")[0]) == 255


@pytest.mark.parametrize("name", ["new\nline", "\x1b]0;title\x07", "it's", "-rf", "é", "\udcff"])
def test_a_strange_name_is_quoted_so_that_a_shell_reads_it_back(repo: Path, name: str) -> None:
    guard = guard_of(repo)
    guard.before()
    (repo / ".git/hooks" / name).write_text("evil")
    (denial,) = guard.after()
    assert denial.what == str(repo / ".git/hooks" / name)
    assert (denial.undo + denial.detail).isprintable()
    assert not (repo / ".git/hooks" / name).exists()
    subprocess.run(["bash", "-c", denial.undo], check=True)
    assert (repo / ".git/hooks" / name).read_text() == "evil"


def test_a_flood_of_hooks_is_moved_aside_as_one_directory(repo: Path) -> None:
    script = "(cd .git/hooks; seq 200 | xargs touch); echo evil > .git/hooks/update"
    denials = during(guard_of(repo), repo, script)
    assert ("planted", ".git/hooks") in kinds(denials, repo)
    assert len(denials) < 5
    assert os.listdir(repo / ".git/hooks") == ["post-commit"]
    assert stat.S_IMODE((repo / ".git/hooks/post-commit").stat().st_mode) == 0o755
    (aside,) = asides(repo / ".git", "planted")
    assert (repo / ".git" / aside / "update").read_text() == "evil\n"


def test_a_planted_directory_in_a_protected_one_cannot_be_loaded_under_its_new_name(
    workspace: Path,
) -> None:
    (workspace / ".claude/skills").mkdir(parents=True)
    guard = guard_of(workspace)
    script = "mkdir .claude/skills/evil; echo x > .claude/skills/evil/SKILL.md"
    denials = during(guard, workspace, script)
    assert kinds(denials, workspace) == [("planted", ".claude/skills/evil")]
    (aside,) = asides(workspace / ".claude/skills", "planted")
    put_away = workspace / ".claude/skills" / aside
    assert stat.S_IMODE(put_away.stat().st_mode) == 0
    again = during(guard, workspace, f"chmod 755 .claude/skills/{aside}")
    assert kinds(again, workspace) == [("changed", f".claude/skills/{aside}")]
    assert stat.S_IMODE(put_away.stat().st_mode) == 0
    subprocess.run(["bash", "-c", denials[0].undo], check=True)
    assert (workspace / ".claude/skills/evil/SKILL.md").read_text() == "x\n"


# Changed, replaced, removed

CHANGES = {
    "appended": "printf evil >> '{}'",
    "replaced": "echo evil > new; mv new '{}'",
    "same size": "tr a-z A-Z < '{0}' > new; cat new > '{0}'; rm new",
    "through a hard link": "ln '{}' other; echo evil >> other",
    "a link": "rm '{0}'; ln -s /etc/passwd '{0}'",
    "a FIFO": "rm '{0}'; mkfifo '{0}'",
    "a directory": "rm '{0}'; mkdir -p '{0}/inner'",
    "a directory without permissions": "rm '{0}'; mkdir -m 000 '{0}'",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [".git/config", ".git/hooks/post-commit", ".vscode/tasks.json"])
def test_a_changed_file_is_put_back_and_the_change_kept(repo: Path, name: str, change: str) -> None:
    (repo / ".vscode").mkdir()
    (repo / ".vscode/tasks.json").write_text("{tasks}")
    path = repo / name
    path.chmod(0o640)
    before = path.read_bytes()
    denials = during(guard_of(repo), repo, CHANGES[change].format(name))
    assert kinds(denials, repo) == [("changed", name)]
    assert path.read_bytes() == before
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    (aside,) = asides(path.parent, "changed")
    kept = os.lstat(path.parent / aside)
    subprocess.run(["bash", "-c", denials[0].undo], check=True)
    assert os.lstat(path).st_ino == kept.st_ino


@pytest.mark.parametrize("name", [".git/config", ".git/hooks/post-commit", ".git/HEAD", ".envrc"])
def test_a_removed_file_is_put_back(repo: Path, name: str) -> None:
    (repo / ".envrc").write_text("mine\n")
    before = (repo / name).read_bytes()
    denials = during(guard_of(repo), repo, f"rm {name}")
    assert kinds(denials, repo) == [("removed", name)]
    assert (repo / name).read_bytes() == before
    subprocess.run(["bash", "-c", denials[0].undo], check=True)
    assert not (repo / name).exists()


@pytest.mark.parametrize(("name", "mode"), [(".git/hooks/post-commit", 0o4755), (".git", 0o777)])
def test_changed_permissions_are_put_back(repo: Path, name: str, mode: int) -> None:
    before = (repo / name).stat().st_mode
    denials = during(guard_of(repo), repo, f"chmod {mode:o} {name}")
    assert kinds(denials, repo) == [("changed", name)]
    assert (repo / name).stat().st_mode == before
    subprocess.run(["bash", "-c", denials[0].undo], check=True)
    assert stat.S_IMODE((repo / name).stat().st_mode) == mode


def test_a_link_that_the_host_had_is_put_back(repo: Path) -> None:
    os.symlink("../../script", repo / ".git/hooks/pre-push")
    denials = during(guard_of(repo), repo, "ln -sf /bin/evil .git/hooks/pre-push")
    assert kinds(denials, repo) == [("changed", ".git/hooks/pre-push")]
    assert os.readlink(repo / ".git/hooks/pre-push") == "../../script"


def test_hooks_that_became_a_link_are_put_back_and_nothing_behind_the_link_is_touched(
    repo: Path, outside: Path
) -> None:
    (outside / "post-commit").write_text("theirs\n")
    (outside / "pre-commit").write_text("theirs\n")
    before = tree(outside)
    denials = during(guard_of(repo), repo, f"rm -r .git/hooks; ln -s '{outside}' .git/hooks")
    assert tree(outside) == before
    assert [kind for kind, _ in kinds(denials, repo)] == ["removed", "removed"]
    assert os.listdir(repo / ".git/hooks") == ["post-commit"]
    assert (repo / ".git/hooks/post-commit").read_text() == "#!/bin/sh\nexit 0\n"


@pytest.mark.parametrize("name", [".git", ".git/info", ".vscode", ".git/objects"])
def test_no_directory_that_became_a_link_is_followed(repo: Path, outside: Path, name: str) -> None:
    (repo / ".vscode").mkdir()
    shutil.copytree(repo / name, outside / "copy")
    (outside / "copy/config").write_text("theirs")
    (outside / "copy/attributes").write_text("theirs")
    guard = guard_of(repo)
    before = tree(outside)
    denials = during(guard, repo, f"rm -r {name}; ln -s '{outside}/copy' {name}")
    assert tree(outside) == before
    assert denials[0].what == str(repo / name)
    assert not (repo / name).is_symlink()


def test_a_directory_that_was_moved_is_brought_back_and_looked_into(repo: Path) -> None:
    script = "mv .git old; echo evil >> old/config; cp -r old .git; echo evil > .git/hooks/pre-push"
    before = (repo / ".git/config").read_bytes()
    inode = (repo / ".git").stat().st_ino
    denials = during(guard_of(repo), repo, script)
    assert kinds(denials, repo) == [("moved", ".git"), ("changed", ".git/config")]
    assert (repo / ".git").stat().st_ino == inode
    assert (repo / ".git/config").read_bytes() == before
    assert not (repo / "old").exists()
    assert len(asides(repo, "planted")) == 1
    assert host(repo, "git", "fsck") == ""


def test_a_repository_that_is_gone_is_reported_and_the_planted_one_moved_aside(repo: Path) -> None:
    script = "mkdir -p a/b; mv .git a/b/; git init -q; git config core.fsmonitor evil"
    denials = during(guard_of(repo), repo, script)
    assert kinds(denials, repo) == [("lost", ".git")]
    assert not (repo / ".git").exists()
    assert len(asides(repo, "planted")) == 1


def test_a_removed_directory_is_made_anew_with_what_was_watched_in_it(workspace: Path) -> None:
    (workspace / ".idea/runConfigurations").mkdir(parents=True, mode=0o750)
    (workspace / ".idea/runConfigurations/a.xml").write_text("mine")
    (workspace / ".idea/x").write_text("mine")
    (workspace / ".idea").chmod(0o751)
    denials = during(guard_of(workspace), workspace, "rm -r .idea")
    assert {kind for kind, _ in kinds(denials, workspace)} == {"removed"}
    assert (workspace / ".idea/runConfigurations/a.xml").read_text() == "mine"
    assert (workspace / ".idea/x").read_text() == "mine"
    assert stat.S_IMODE((workspace / ".idea").stat().st_mode) == 0o751
    assert stat.S_IMODE((workspace / ".idea/runConfigurations").stat().st_mode) == 0o750


def test_a_new_directory_with_the_number_of_a_removed_one_is_not_taken_for_it(
    workspace: Path,
) -> None:
    """File systems that number by what is free give the number of the last one removed."""
    (workspace / ".idea").mkdir()
    (workspace / ".idea/x").write_text("mine")
    script = "rm -r .idea; for i in $(seq 50); do mkdir build$i; touch build$i/made; done"
    denials = during(guard_of(workspace), workspace, script)
    assert {kind for kind, _ in kinds(denials, workspace)} == {"removed"}
    assert os.listdir(workspace / ".idea") == ["x"]
    assert len(list(workspace.glob("build*/made"))) == 50


def test_what_changes_within_one_tick_of_the_clock_is_seen(repo: Path) -> None:
    """Where change times are coarse, equal stamps soon after a change say nothing."""

    class Blind:
        def __init__(self, paths: Sequence[bytes]) -> None:
            self.paths = paths

        def take(self) -> bytes:
            return b"the same"

        def same(self, state: bytes) -> bool:
            return state == b"the same"

        def settled(self, state: bytes) -> bool:
            return False

    path = repo / ".envrc"
    path.write_text("mine")
    guard = Guard([str(repo)], [str(path)], Blind)
    guard.before()
    path.write_text("evil")
    assert kinds(guard.after(), repo) == [("changed", ".envrc")]
    assert path.read_text() == "mine"


@pytest.mark.parametrize("young", [True, False])
def test_only_a_state_that_is_old_enough_proves_that_nothing_changed(
    outside: Path, young: bool
) -> None:
    found = os.stat(outside / "file")
    node = Node(b"file", "file", "same", found, b"outside\n", young=young)
    assert node.is_still(found) is not young


def test_no_name_is_ever_followed(outside: Path) -> None:
    """Between a look and an act a name may become a link: the act itself must refuse."""
    os.symlink(outside, outside / "link")
    os.symlink("file", outside / "filelink")
    fd = os.open(outside, os.O_RDONLY)
    for act in (nofollow.open_directory, nofollow.unlock_directory):
        with pytest.raises(OSError) as raised:
            act(b"link", fd)
        assert raised.value.errno in (errno.ELOOP, errno.ENOTDIR)
    assert nofollow.read_file(fd, b"filelink", 100) is None
    assert nofollow.read_file(fd, b"file", 100) == b"outside\n"
    assert nofollow.read_file(fd, b"file", 7) is None
    os.close(fd)


# More than one command, root, repository


def test_a_change_under_two_commands_is_never_taken_for_the_hosts(repo: Path) -> None:
    guard = guard_of(repo)
    before = (repo / ".git/config").read_bytes()
    time.sleep(SETTLED)
    guard.before()
    with (repo / ".git/config").open("a") as config:
        config.write("[core]\n\tfsmonitor = evil\n")
    guard.before()  # a second command starts, and what the first one did is not the base
    assert kinds(guard.after(), repo) == [("changed", ".git/config")]
    (repo / ".git/config").write_text("evil again")
    (repo / ".envrc").write_text("evil")
    assert kinds(guard.after(), repo) == [("changed", ".git/config"), ("planted", ".envrc")]
    assert (repo / ".git/config").read_bytes() == before


def test_what_was_moved_aside_is_not_found_again_by_the_next_command_to_end(repo: Path) -> None:
    guard = guard_of(repo)
    guard.before()
    guard.before()
    (repo / ".git/hooks/pre-push").write_text("evil")
    assert kinds(guard.after(), repo) == [("planted", ".git/hooks/pre-push")]
    assert guard.after() == ()
    assert during(guard, repo, "true") == ()


def test_threads_may_share_a_guard(repo: Path) -> None:
    guard = guard_of(repo)
    before = (repo / ".git/config").read_bytes()
    found: list[Denial] = []

    def commands() -> None:
        for number in range(20):
            guard.before()
            if number % 3 == 0:
                (repo / ".git/config").write_text("evil")
                (repo / ".mcp.json").write_text("evil")
            found.extend(guard.after())

    threads = [threading.Thread(target=commands) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {denial.change for denial in found} == {"changed", "planted"}
    assert (repo / ".git/config").read_bytes() == before
    assert not (repo / ".mcp.json").exists()
    assert during(guard, repo, "true") == ()


def test_case_27_a_pointer_protects_itself_and_the_directory_that_it_names(repo: Path) -> None:
    work = repo.parent / "linked"
    host(repo, "git", "worktree", "add", "-q", str(work))
    guard = guard_of(work, repo)
    pointer = (work / ".git").read_text()
    script = (
        "echo 'gitdir: evil' > .git; echo evil > '{0}/config.worktree'; echo x > '{0}/commondir'"
    )
    denials = during(guard, work, script.format(repo / ".git/worktrees/linked"))
    assert sorted(kinds(denials, repo)) == [
        ("changed", "../linked/.git"),
        ("changed", ".git/worktrees/linked/commondir"),
        ("planted", ".git/worktrees/linked/config.worktree"),
    ]
    assert (work / ".git").read_text() == pointer
    assert host(work, "git", "status", "--porcelain", "-uno") == ""


def test_a_git_directory_of_another_name_is_watched_as_one(workspace: Path) -> None:
    host(workspace, "git", "init", "-q", "--separate-git-dir", str(workspace / "bare"))
    guard = guard_of(workspace)
    assert (
        during(guard, workspace, "git -c user.name=a -c user.email=b commit -q --allow-empty -m x")
        == ()
    )
    denials = during(guard, workspace, "git config core.fsmonitor evil; echo x > bare/hooks/update")
    assert kinds(denials, workspace) == [
        ("changed", "bare/config"),
        ("planted", "bare/hooks/update"),
    ]


def test_the_git_directory_of_a_submodule_is_watched(repo: Path) -> None:
    inner = repo.parent / "inner"
    inner.mkdir()
    make_repository(inner)
    allow = ("-c", "protocol.file.allow=always")
    host(repo, "git", *allow, "submodule", "add", "-q", str(inner), "deep/er/sub")
    script = (
        "git -C deep/er/sub config core.fsmonitor evil; "
        "echo x > .git/modules/deep/er/sub/hooks/update"
    )
    denials = during(guard_of(repo), repo, script)
    assert sorted(kinds(denials, repo)) == [
        ("changed", ".git/modules/deep/er/sub/config"),
        ("planted", ".git/modules/deep/er/sub/hooks/update"),
    ]


def test_case_32_a_renamed_parent_of_a_protected_path_is_moved_back(workspace: Path) -> None:
    inner = workspace / "sub/settings"
    inner.mkdir(parents=True)
    (inner / "tasks.json").write_text("mine")
    (workspace / ".vscode").symlink_to("sub/settings")
    script = "mv sub sub.bak; mkdir -p sub/settings; echo evil > sub/settings/tasks.json"
    denials = during(guard_of(workspace), workspace, script)
    assert kinds(denials, workspace) == [("moved", "sub")]
    assert (workspace / ".vscode/tasks.json").read_text() == "mine"


def test_a_dangling_link_cannot_be_given_a_target(workspace: Path) -> None:
    (workspace / ".vscode").symlink_to("sub/settings")
    guard = guard_of(workspace)
    denials = during(guard, workspace, "mkdir -p sub/settings; echo evil > sub/settings/x")
    assert kinds(denials, workspace) == [("planted", "sub/settings")]
    script = "mkdir -p evil/settings; rm -r sub; ln -s ../workspace/evil sub"
    assert kinds(during(guard, workspace, script), workspace) == [("lost", "sub")]
    assert os.readlink(workspace / ".vscode") == "sub/settings"
    assert not (workspace / ".vscode").exists()


def test_nothing_outside_the_writable_directories_is_watched(repo: Path, outside: Path) -> None:
    guard = Guard([str(repo)], [str(outside / "file"), str(repo / ".envrc")], Stamps)
    assert during(guard, repo, f"echo changed > '{outside}/file'") == ()
    assert (outside / "file").read_text() == "changed\n"


def test_of_twenty_writable_directories_sixteen_are_watched_and_that_is_said(place: Path) -> None:
    roots = [place / f"root{number:02}" for number in range(20)]
    for root in roots:
        root.mkdir()
    guard = guard_of(*roots)
    assert len(guard.weaker) == 4
    assert "root16" in guard.weaker[0].cause
    guard.before()
    for root in roots:
        (root / ".envrc").write_text("evil")
    assert len(guard.after()) == 16
    assert not (roots[15] / ".envrc").exists()
    assert (roots[16] / ".envrc").exists()


def test_a_directory_with_nothing_to_protect_does_not_count(place: Path) -> None:
    roots = [f"{place}/{number}" for number in range(20)]
    assert Guard(roots, [f"{roots[19]}/.envrc"], Stamps).weaker[0].cause.startswith("not watched")


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("head -c 2M /dev/zero > .vscode/large", "no copy is kept"),
        ("cd .vscode; seq 300 | xargs touch", "only 256 entries"),
        ("cd .vscode; seq 4100 | xargs touch", "more than 4096 names"),
        ("mkdir -p .vscode/a/b; echo > .vscode/a/b/c", "too deep"),
        ("for i in $(seq 10); do head -c 1M /dev/zero > .vscode/$i; done", "no copy is kept"),
    ],
)
def test_what_is_beyond_the_bounds_is_said(workspace: Path, script: str, cause: str) -> None:
    (workspace / ".vscode").mkdir()
    subprocess.run(["bash", "-euc", script], cwd=workspace, check=True)
    guard = guard_of(workspace)
    assert [cause in weaker.cause for weaker in guard.weaker] == [True]
    assert {weaker.part for weaker in guard.weaker} == {"protected"}
    assert during(guard, workspace, "true") == ()


def test_a_file_of_which_no_copy_was_kept_is_moved_aside_when_it_changes(workspace: Path) -> None:
    (workspace / ".envrc").write_bytes(b"x" * (1 << 20) + b"y")
    denials = during(guard_of(workspace), workspace, "echo evil >> .envrc")
    assert kinds(denials, workspace) == [("lost", ".envrc")]
    assert not (workspace / ".envrc").exists()


def test_an_error_is_told_and_hides_nothing(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    guard = guard_of(repo)
    guard.before()
    (repo / ".git/config").write_text("evil")
    (repo / ".envrc").write_text("evil")
    with monkeypatch.context() as patch:
        patch.setattr(nofollow.os, "rename", refuse)
        denials = guard.after()
    assert kinds(denials, repo) == [("unrestored", ".git/config"), ("unrestored", ".envrc")]
    assert all("Read-only file system" in denial.detail for denial in denials)


def test_an_error_with_one_planted_name_does_not_hide_what_else_was_done(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def refuse_some(source: bytes, target: bytes, **fds: int) -> None:
        if source == b"pre-push":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target, **fds)

    monkeypatch.setattr(nofollow.os, "rename", refuse_some)
    script = "for i in pre-push post-commit update; do echo evil > .git/hooks/$i; done"
    denials = during(guard_of(repo), repo, script)
    assert kinds(denials, repo) == [
        ("unrestored", ".git/hooks/pre-push"),
        ("planted", ".git/hooks/update"),
        ("changed", ".git/hooks/post-commit"),
    ]


def test_a_root_that_is_gone_is_told_and_watched_again_when_it_is_back(workspace: Path) -> None:
    (workspace / ".envrc").write_text("mine")
    guard = guard_of(workspace)
    guard.before()
    shutil.rmtree(workspace)
    assert [denial.change for denial in guard.after()] == ["unrestored"]
    workspace.mkdir()
    assert kinds(during(guard, workspace, "echo evil > .envrc"), workspace) == [
        ("planted", ".envrc")
    ]


SWAPPING = """
import os, sys
hooks, link, old = (sys.argv[1] + name for name in ("/.git/hooks", "/link", "/.git/old"))
os.symlink(sys.argv[2], link)
print(flush=True)
while True:
    for source, target in ((hooks, old), (link, hooks), (hooks, link), (old, hooks)):
        try:
            os.rename(source, target)
        except OSError:
            pass
        if not os.path.lexists(link):
            os.symlink(sys.argv[2], link)
"""


def test_a_link_that_comes_and_goes_while_things_are_put_back_leads_nowhere(
    repo: Path, outside: Path
) -> None:
    """The command that ended has a neighbour that still runs, and is hostile."""
    for name in ("pre-commit", "post-commit", "config"):
        (outside / name).write_text("theirs\n")
    before = tree(outside)
    guard = guard_of(repo)
    guard.before()
    swapping = [sys.executable, "-c", SWAPPING, str(repo), str(outside)]
    with subprocess.Popen(swapping, stdout=subprocess.PIPE) as neighbour:
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        found: list[Denial] = []
        end = time.monotonic() + 1
        while time.monotonic() < end:
            guard.before()
            found.extend(guard.after())
        neighbour.kill()
    guard.after()
    assert {"moved", "planted"} & {denial.change for denial in found}
    assert tree(outside) == before
    assert os.listdir(repo / ".git/hooks")
    assert not (repo / ".git/hooks").is_symlink()


LOCKED = """
import os, sys
from sandbox.backends.guard import Guard
from sandbox.backends.snapshot import Node
from _sandcore import Stamps
root = sys.argv[1]
os.makedirs(root + "/.vscode")
with open(root + "/.vscode/tasks.json", "w") as file:
    file.write("mine")
guard = Guard([root], [root + "/.vscode", root + "/.envrc"], Stamps)
guard.before()
with open(root + "/.envrc", "w") as file:
    file.write("evil")
os.chmod(root + "/.vscode/tasks.json", 0)
os.chmod(root + "/.vscode", 0o500)
os.chmod(root, 0)
for denial in guard.after():
    print(denial.change, denial.what[len(root):])
print(sorted(os.listdir(root))[-1], open(root + "/.vscode/tasks.json").read())
print(oct(os.stat(root).st_mode), oct(os.stat(root + "/.vscode").st_mode))
"""


def test_permissions_that_a_command_took_away_do_not_stop_an_ordinary_user(
    as_user: AsUser,
) -> None:
    done = as_user(LOCKED, str(as_user.home / "work"))
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "changed /.vscode/tasks.json",
        "changed /.vscode",
        "planted /.envrc",
        "changed ",
        ".vscode mine",
        "0o40755 0o40755",
    ]


# What it is for: a program of the host runs nothing that the command left

CANARY = "PWNED"
ATTACKS = {
    "core.fsmonitor": "git config core.fsmonitor 'touch ../PWNED; false'",
    "core.hooksPath": "mkdir h; cp hook h/pre-commit; git config core.hooksPath h",
    "a hook": "cp hook .git/hooks/pre-commit",
    "a changed hook": "cp hook .git/hooks/post-commit",
    "a hook made of a sample": "cp hook .git/hooks/applypatch-msg.sample; "
    "mv .git/hooks/applypatch-msg.sample .git/hooks/pre-commit",
    "hooks moved": "mv .git/hooks h; cp hook h/pre-commit; cp -r h .git/hooks",
    "a filter": "git config filter.x.clean 'touch ../PWNED; cat'; "
    "echo '* filter=x' > .git/info/attributes",
    "config.worktree": "git config extensions.worktreeConfig true; "
    "git config --worktree core.fsmonitor 'touch ../PWNED; false'",
    "commondir": "cp -r .git other; git -C other config core.fsmonitor 'touch ../PWNED; false'; "
    "echo ../other > .git/commondir",
    "another .git": "mv .git old; git clone -q old new; mv new/.git .; "
    "git config core.fsmonitor 'touch ../PWNED; false'",
    "a pointer": "mv .git old; git --git-dir old config core.fsmonitor 'touch ../PWNED; false'; "
    "echo 'gitdir: old' > .git",
}
BARE = (
    "mkdir objects refs; echo 'ref: refs/heads/m' > HEAD; "
    "printf '[core]\\nrepositoryformatversion=0\\nbare=false\\nworktree=%s\\n"
    'fsmonitor="touch ../PWNED; false"\\n\' "$PWD" > config; '
)
ATTACKS |= {
    f"case 37, a bare repository beside a broken one: {how}": BARE + how
    for how in (
        "rm .git/HEAD",
        "echo nonsense > .git/HEAD",
        "mv .git/HEAD .git/OLD; mkdir .git/HEAD",
        "rm -r .git/objects",
        "mv .git/refs refs.old",
        "rm -r .git/refs; touch .git/refs",
    )
}


def attack(where: Path, how: str) -> str:
    hook = where / "hook"
    hook.write_text(HOOK.format(where.parent / CANARY))
    hook.chmod(0o755)
    (where / "file").write_text("changed by the command\n")
    return ATTACKS[how]


def use(where: Path) -> None:
    """What a person does after the agent."""
    host(where, "git", "status", check=False)
    host(where, "git", "commit", "-qam", "second", check=False)


@pytest.mark.parametrize("how", ATTACKS)
def test_wsp14_git_of_the_host_runs_nothing_that_the_command_left(repo: Path, how: str) -> None:
    denials = during(guard_of(repo), repo, attack(repo, how))
    assert denials
    use(repo)
    assert not (repo.parent / CANARY).exists()


@pytest.mark.parametrize("how", ATTACKS)
def test_wsp14_without_the_guard_each_of_these_attacks_succeeds(repo: Path, how: str) -> None:
    subprocess.run(["bash", "-euc", attack(repo, how)], cwd=repo, check=True)
    use(repo)
    assert (repo.parent / CANARY).exists()


# Any sequence of acts

PLACES = (
    *(".git", ".git/config", ".git/hooks", ".git/hooks/post-commit", ".git/hooks/pre-push"),
    *(".git/HEAD", ".git/info", ".git/info/attributes", ".git/objects", ".git/commondir"),
    *(".vscode", ".vscode/tasks.json", ".vscode/deep/x", ".envrc", "old", "other", "old/x"),
)


def act(kind: str, one: Path, two: Path, outside: Path) -> None:
    """Something that a command does; what cannot be done is not."""
    acts: dict[str, Callable[[], object]] = {
        "write": lambda: None if one.is_fifo() else one.write_text("evil"),  # would wait
        "remove": lambda: shutil.rmtree(one) if one.is_dir() else one.unlink(),
        "rename": lambda: one.rename(two),
        "link": lambda: one.symlink_to(outside),
        "inner-link": lambda: one.symlink_to(two),
        "hard-link": lambda: two.hardlink_to(one),
        "mkdir": one.mkdir,
        "mkfifo": lambda: os.mkfifo(one),
        "chmod": lambda: one.chmod(0),
        "copy": lambda: shutil.copytree(one, two, symlinks=True),
    }
    try:
        if one.resolve().is_relative_to(outside) or two.resolve().is_relative_to(outside):
            return  # Landlock
        acts[kind]()
    except (OSError, shutil.Error, RuntimeError):
        pass


KINDS = ("write", "remove", "rename", "link", "inner-link", "hard-link", "mkdir", "mkfifo")
ACTS = st.tuples(
    st.sampled_from((*KINDS, "chmod", "copy")), st.sampled_from(PLACES), st.sampled_from(PLACES)
)


@settings(max_examples=60)
@given(
    acts=st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(PLACES), st.sampled_from(PLACES)),
        max_size=8,
    )
)
def test_whatever_a_command_does_watched_names_are_as_they_were(
    model: Path, acts: list[tuple[str, str, str]]
) -> None:
    with tempfile.TemporaryDirectory() as where:
        root, outside = Path(where).resolve() / "root", Path(where).resolve() / "outside"
        shutil.copytree(model, root, symlinks=True)
        (root / ".vscode/deep").mkdir(parents=True)
        (root / ".vscode/tasks.json").write_text("mine")
        (root / ".vscode/deep/x").write_text("mine")
        outside.mkdir()
        (outside / "config").write_text("theirs")
        guard = guard_of(root)
        before, theirs = watched(root), tree(outside)
        guard.before()
        for kind, one, two in acts:
            act(kind, root / one, root / two, outside)
        denials = guard.after()
        assert tree(outside) == theirs
        assert [denial for denial in denials if denial.change == "unrestored"] == []
        lost = {os.path.relpath(denial.what, root) for denial in denials if denial.change == "lost"}
        assert lost <= {".git"}
        after = watched(root)
        if lost:
            assert not (root / ".git").exists()
            before = {name: what for name, what in before.items() if not name.startswith(".git")}
            after = {name: what for name, what in after.items() if not name.startswith(".git")}
        assert after == before
        guard.before()
        assert guard.after() == ()


def watched(root: Path) -> dict[str, object]:
    """What matters in a repository, but for what was moved aside and what git may change."""
    free = (".git/objects/", ".git/refs/", ".git/logs/", ".git/x/", ".git/info/x/", ".sample")
    found: dict[str, object] = {}
    for name in (".git", ".vscode", ".envrc"):
        for path in [root / name, *(root / name).rglob("*")]:
            short = os.path.relpath(path, root)
            if not os.path.lexists(path) or ".planted-" in short or ".changed-" in short:
                continue
            if any(part in f"{short}/" for part in free) or short in FREE:
                continue
            mode = path.lstat().st_mode
            data = path.read_bytes() if stat.S_ISREG(mode) else b""
            found[short] = (mode, data)
    return found


FREE = {".git/index", ".git/info", ".git/info/exclude", ".git/description", ".git/COMMIT_EDITMSG"}
FREE |= {".git/logs", ".git/branches"}


@pytest.mark.skipif(os.getuid() != 0, reason="the whole file already runs as an ordinary user")
def test_all_of_this_holds_for_an_ordinary_user(as_user: AsUser) -> None:
    """Root passes directories without permissions; a user must get through all the same."""
    select = "not bounds and not without_the_guard and not flood"
    arguments = [__file__, "-q", "-p", "no:cacheprovider", "-k", select]
    program = f"import pytest, sys; sys.exit(pytest.main({arguments!r}))"
    done = as_user(program, env={"HYPOTHESIS_STORAGE_DIRECTORY": str(as_user.home)}, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


# What would allow it


def test_a_denial_names_the_protected_path_and_the_entry_that_lifts_it(repo: Path) -> None:
    (denial,) = during(guard_of(repo), repo, "echo evil > .git/hooks/update")
    assert (denial.kind, denial.evidence, denial.certain) == ("protected", "sweep", True)
    assert denial.rule == f"protected: {repo / '.git'}"
    assert denial.grant is not None
    assert denial.grant.call == f".with_write({str(repo / '.git')!r})"
    granted = denial.grant.apply(workspace_write(repo))
    assert granted.access(repo / ".git/hooks/update") is Access.WRITE
    lifted = {str(repo): Access.WRITE, str(repo / ".git"): Access.WRITE}
    assert str(repo / ".git") not in protected_paths(PROTECTED, lifted, "")


def test_a_denial_on_the_way_to_a_protected_path_names_that(workspace: Path) -> None:
    (workspace / "sub/settings").mkdir(parents=True)
    (workspace / "sub/settings/file").write_text("mine")
    (workspace / ".vscode").symlink_to("sub/settings")
    (denial,) = during(guard_of(workspace), workspace, "mv sub sub.bak")
    assert denial.rule == f"protected: {workspace / 'sub/settings'}"
