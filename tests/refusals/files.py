"""Files that a command was refused: what the result says, and that its grant is what was missing.

Bodies that `test_denials.py` runs in both isolations, as root and as an ordinary user.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import casekit

import sandbox
from sandbox import Denial, SandboxPolicy

PYTHON = "/usr/bin/python3 -c"


def refused(w: Path, script: str, policy: SandboxPolicy | None = None) -> tuple[Denial, ...]:
    """The denials of a command that must fail."""
    with sandbox.Sandbox(policy or sandbox.workspace_write(w), workspace=w) as box:
        assert (box.isolation == "namespaces") == casekit.NAMESPACES
        result = box.run(script, cwd=w)
    assert not result.ok, result
    return result.denials


def round_trip(w: Path, script: str, what: Path, policy: SandboxPolicy | None = None) -> Denial:
    """The one denial, about `what`; with its grant the same command succeeds."""
    policy = policy or sandbox.workspace_write(w)
    (denial,) = refused(w, script, policy)
    assert denial.what == str(what), denial
    assert (denial.evidence, denial.certain) == ("message", False)
    assert denial.grant is not None, denial
    with sandbox.Sandbox(denial.grant.apply(policy), workspace=w) as box:
        result = box.run(script, cwd=w)
    assert result.ok and result.denials == (), (script, denial, result)
    return denial


def option(denial: Denial) -> str:
    assert denial.grant is not None
    return denial.grant.option


def a_new_file_needs_its_directory(w: Path, o: Path) -> None:
    for number, script in enumerate(
        (
            "touch {}",
            "echo x > {}",
            "mkdir {}",
            "cp /etc/hostname {} || cp /etc/passwd {}",
            PYTHON + ' \'open("{}", "w")\'',
            PYTHON + " 'import os; os.mkdir(\"{}\")'",
        )
    ):
        path = o / f"new{number}"
        denial = round_trip(w, script.format(path, path), path)
        assert (denial.kind, denial.rule, option(denial)) == ("write", "read: /", f"--write {o}")


def an_existing_file_is_granted_alone(w: Path, o: Path) -> None:
    (o / "other").touch()
    for script in (
        "echo x > file",
        "cp /etc/passwd file",
        "truncate -s 0 file",
        "tee file </etc/passwd",
    ):
        denial = round_trip(w, script.replace("file", str(o / "file")), o / "file")
        assert option(denial) == f"--write {o / 'file'}"
        granted = denial.grant.apply(sandbox.workspace_write(w)) if denial.grant else None
        assert refused(w, f"echo x > {o / 'other'}", granted), "wider than needed"


def removing_needs_the_directory(w: Path, o: Path) -> None:
    for script in ("rm -f", "unlink"):
        (o / "file").touch()
        denial = round_trip(w, f"{script} {o / 'file'}", o / "file")
        assert option(denial) == f"--write {o}"


def directories_that_are_missing_are_made_in_the_nearest(w: Path, o: Path) -> None:
    denial = round_trip(w, f"mkdir -p {o}/a/b/c", o / "a")
    assert option(denial) == f"--write {o}"


def names_may_be_anything(w: Path, o: Path) -> None:
    for name in (
        "it's",
        "a b",
        'say "x"',
        "a\nb",
        "ä",
        "permission denied",
        "\\n",
        "$x",
        "\x1b[2J",
    ):
        quoted = shlex.quote(str(o / name))
        assert round_trip(w, f"touch -- {quoted}", o / name).kind == "write"
        (o / name).unlink()
        code = shlex.quote(f"open({str(o / name)!r}, 'w')")
        assert [denial.what for denial in refused(w, f"{PYTHON} {code}")] == [str(o / name)]


def a_link_is_followed_to_where_it_leads(w: Path, o: Path) -> None:
    (w / "link").symlink_to(o)
    assert option(round_trip(w, "echo x > link/../outside/file", o / "file")).endswith("/file")
    assert option(round_trip(w, "touch link/new", o / "new")) == f"--write {o}"


def what_an_entry_denies_is_granted_by_the_file(w: Path, o: Path) -> None:
    (o / "other").touch()
    policy = sandbox.workspace_write(w).with_deny(o)
    denial = round_trip(w, f"cat {o / 'file'}", o / "file", policy)
    assert (denial.kind, denial.rule) == ("read", f"deny: {o}")
    assert option(denial) == f"--read {o / 'file'}"
    assert denial.grant is not None
    refused(w, f"cat {o / 'other'}", denial.grant.apply(policy))  # no wider than needed


def a_deny_of_the_file_itself_is_replaced(w: Path, o: Path) -> None:
    way = Path(os.environ["HOME"], "way")
    way.symlink_to(o)
    for path in (o / "file", way / "file"):
        policy = sandbox.workspace_write(w).with_deny(path)
        denial = round_trip(w, f"cat {o / 'file'}", o / "file", policy)
        assert denial.rule == f"deny: {o / 'file'}"


def a_secret_is_named_with_its_reason(w: Path, o: Path) -> None:
    home = Path(os.environ["HOME"])
    (home / ".npmrc").write_text("token\n")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("key\n")
    (home / ".ssh" / "other").write_text("key\n")
    denial = round_trip(w, "cat ~/.npmrc", home / ".npmrc")
    assert (denial.kind, denial.rule) == ("read", "secret: npm")
    assert (
        denial.detail == "a place of secrets: tokens that publish packages or open private indexes"
    )
    denial = round_trip(w, "cat ~/.ssh/id", home / ".ssh" / "id")
    assert option(denial) == f"--allow-secret {home}/.ssh/id"
    assert denial.grant is not None
    granted = denial.grant.apply(sandbox.workspace_write(w))
    refused(w, "cat ~/.ssh/other", granted)  # no wider than needed


def what_no_entry_allows_is_granted_for_reading(w: Path, o: Path) -> None:
    policy = SandboxPolicy(
        entries=(
            sandbox.Entry("", sandbox.Access.READ, sandbox.Special.MINIMAL),
            sandbox.Entry(str(w), sandbox.Access.WRITE, sandbox.Special.WORKSPACE),
        )
    )
    denial = round_trip(w, f"cat {o / 'file'}", o / "file", policy)
    assert (denial.kind, denial.rule) == ("read", "no entry allows it")


def git_names_the_repository_that_is_read_only(w: Path, o: Path) -> None:
    if shutil.which("git") is None:
        casekit.skip("needs git: apt-get install git")
    who = "git -c user.name=a -c user.email=b"
    subprocess.run(["git", "init", "-q"], cwd=w, check=True)
    (w / "file").touch()
    scripts = (
        "git add file",
        f"{who} commit -q --allow-empty -m x",
        f"{who} commit -q --allow-empty -m x && git branch new",
        "git config a.b c",
        "ln file .git/file",
        f'{PYTHON} \'import os; os.rename(".git/info", "there")\'',
    )
    for script in scripts:
        policy = sandbox.workspace_write(w)
        if not casekit.NAMESPACES:
            with sandbox.Sandbox(policy) as box:
                assert box.run(script, cwd=w).ok, "nothing is read-only there"
            continue
        (denial, *_) = refused(w, script, policy)
        assert (denial.kind, denial.rule) == ("protected", f"protected: {w}/.git")
        assert denial.grant is not None
        assert denial.grant.option == f"--write {w}/.git"
        with sandbox.Sandbox(denial.grant.apply(policy)) as box:
            assert box.run(script, cwd=w).ok, script


def a_linked_worktree_names_the_repository_that_it_belongs_to(w: Path, o: Path) -> None:
    if shutil.which("git") is None:
        casekit.skip("needs git: apt-get install git")
    who = "git -c user.name=a -c user.email=b"
    subprocess.run(["git", "init", "-q", "main"], cwd=w, check=True)
    main, tree = w / "main", w / "tree"
    subprocess.run(f"{who} commit -q --allow-empty -m x", shell=True, cwd=main, check=True)
    subprocess.run(["git", "worktree", "add", "-q", tree], cwd=main, check=True)
    commit = f"{who} commit -q --allow-empty -m x"
    if casekit.NAMESPACES:
        denial, *_ = refused(tree, commit)
        assert option(denial) == f"--write {main}/.git"
        assert denial.grant is not None
        policy = denial.grant.apply(sandbox.workspace_write(tree))
    else:  # there it is not in the workspace, and so not writable
        policy = sandbox.workspace_write(tree).with_write(main / ".git")
    with sandbox.Sandbox(policy) as box:
        result = box.run(commit, cwd=tree)
        assert result.ok, result


def a_mode_that_the_policy_allows_is_no_denial(w: Path, o: Path) -> None:
    (w / "000").touch()
    (o / "000").touch()
    for path in (w / "000", o / "000"):
        path.chmod(0)
    (w / "script").write_text("true\n")
    (o / "file").chmod(0o644)
    locked = o / "locked"
    locked.mkdir()
    (locked / "file").touch()
    locked.chmod(0)
    for script in (
        "cat 000",
        "ls -l > 000 && cat 000",
        "./script",
        f"cat {o}/000",
        f"{PYTHON} 'open(\"{o}/000\")'",
        f"cat {o}/locked/file",
        f"{PYTHON} 'open(\"{o}/locked/file\")'",
        f"{o}/file",
        "cat no/such",
    ):
        assert refused(w, script) == (), script
    locked.chmod(0o700)


def what_the_mode_refuses_too_has_no_grant(w: Path, o: Path) -> None:
    (o / "file").chmod(0o444)
    for denial in refused(w, f"touch {o / 'file'}; echo x > {o / 'file'}"):
        assert denial.grant is None
        assert "mode" in denial.detail


def a_command_that_prints_words_is_not_refused(w: Path, o: Path) -> None:
    for script in (
        "echo permission denied; exit 1",
        "echo sandbox: Operation not permitted >&2; exit 1",
        "echo 'Read-only file system' >&2; exit 1",
        f"echo 'cat: {w}/file: Permission denied' >&2; exit 1",
        "echo 'cat: /etc/passwd: Permission denied' >&2; exit 1",
        "echo 'cannot open /no/such/place/file: Read-only file system' >&2; exit 1",
        "grep nothing /etc/passwd",
        "kill -KILL $$",
    ):
        assert refused(w, script) == (), script


def what_is_printed_counts_only_after_a_failure(w: Path, o: Path) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        result = box.run(f"touch {o}/new; true", cwd=w)
    assert result.ok and result.err and result.denials == ()


def what_is_forged_is_marked_and_bounded(w: Path, o: Path) -> None:
    said = "EROFS" if casekit.NAMESPACES else "EACCES"
    line = f"Error: {said}: {casekit.NO_WRITE_TEXT.lower()}, open '{o}/new%d'"
    code = f"for n in range(20000): print({line!r} % n)\nraise SystemExit(1)"
    found = refused(w, f"{PYTHON} {shlex.quote(code)}")
    assert 0 < len(found) <= 16
    assert not any(denial.certain for denial in found)


def a_claim_tells_nothing_of_what_is_hidden(w: Path, o: Path) -> None:
    """The same answer whether a hidden file exists or not: a result goes to the model."""
    home = Path(os.environ["HOME"])
    (home / ".ssh").mkdir()
    (home / ".ssh" / "yes").touch()
    hidden = [home / ".ssh"]
    if casekit.NAMESPACES:
        place = Path(f"/tmp/sandcore-{os.getpid()}")
        place.mkdir()
        (place / "yes").touch()
        hidden.append(place)
    try:
        for directory in hidden:
            for text in ("Permission denied", "Read-only file system", "No such file or directory"):
                answers = [
                    refused(w, f"echo \"Error: open '{directory}/{name}': {text}\"; exit 1")
                    for name in ("yes", "no")
                ]
                texts = [repr(found).replace("/yes", "/no") for found in answers]
                assert texts[0] == texts[1]
    finally:
        if casekit.NAMESPACES:
            shutil.rmtree(place)


def what_is_read_by_the_caller_of_popen_counts_too(w: Path, o: Path) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        for text in (True, False):
            with box.popen(f"echo x > {o}/new", cwd=w, stderr=sandbox.PIPE, text=text) as process:
                process.communicate()
                (denial,) = process.wait().denials
            assert (denial.kind, denial.what) == ("write", f"{o}/new")
