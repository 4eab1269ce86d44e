"""Section A: what a policy says about files, and ways around it."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import failing
from casekit import (
    NAMESPACES,
    NO_WRITE,
    NO_WRITE_TEXT,
    cc,
    confined,
    errno_of,
    mount,
    private_mounts,
    python,
    replaced_environ,
    says,
    weaker,
)

import _sandcore
import sandbox
from sandbox.backends.linux import LinuxBackend

_MOVES = """
os.makedirs("d", exist_ok=True)
for name in ("a", "b"):
    open(name, "w").close()
os.rename("a", "d/a")
os.link("b", "d/b")
os.rename("d/a", "here/a")
os.unlink("d/b")
os.unlink("here/a")
"""


def case_01_a_rename_between_directories_works_under_every_combination_of_features(
    w: Path, o: Path
) -> None:
    base = sandbox.workspace_write(w)
    allow_all = (0x06, 0, 0, 0x7FFF0000)
    filtered = sandbox.SandboxPolicy(
        entries=base.entries, extra_filter=_bpf([allow_all]), require="landlock"
    )
    policies = {
        "default": base,
        "network": base.with_network("full"),
        "deny": base.with_deny(o),
        "denied network and reads": base.with_deny(o).without_network(),
        "extra filter": filtered,
        "narrowed": base.narrow(sandbox.workspace_write(w, write=[o])),
        "granted": sandbox.read_only().with_write(w),
        "limits": base.with_limits(sandbox.Limits(wall=30, open_files=64)),
        "full access": sandbox.full_access(),
    }
    for name, policy in policies.items():
        with sandbox.Sandbox(policy) as box:
            (w / "here").mkdir()  # after the sandbox was started
            program = "import os\n" + _MOVES
            result = box.run([python(), "-c", program], cwd=w)
            assert result.ok, (name, result.text)
            (w / "here").rmdir()


def _bpf(code: list[tuple[int, int, int, int]]) -> bytes:
    return b"".join(struct.pack("HBBI", *one) for one in code)


def case_02_rename_and_link_work_inside_and_not_across(w: Path, o: Path) -> None:
    (w / "t").mkdir()
    moves = 'open("t/full", "w").close(); os.rename("t/full", "lib"); os.link("lib", "t/hl")'
    assert errno_of(moves, w) == ""
    assert errno_of("os.link(sys.argv[1], 'l')", w, o / "file") == "EXDEV"
    assert errno_of("os.rename('lib', sys.argv[1])", w, o / "lib") in ("EXDEV", "EACCES")
    os.link(o / "file", w / "twin")


def case_02_a_kernel_without_refer_is_refused_where_all_hangs_on_it(w: Path, o: Path) -> None:
    old = _sandcore.probe()._replace(landlock_abi=1)
    try:
        with sandbox.Sandbox(sandbox.workspace_write(w), backend=LinuxBackend(old)) as box:
            assert NAMESPACES, "started on ABI 1"
            assert "landlock" in weaker(box)
            assert box.run(f"mkdir d; touch d/f; mv d/f .; ! mv f {o}/f; ! touch {o}/f").ok
    except sandbox.Unenforceable as error:
        assert "ABI 1" in str(error) and not NAMESPACES


def case_03_modes_and_times_outside_are_kept_or_the_result_says_so(w: Path, o: Path) -> None:
    file = o / "file"
    before = file.stat()
    result = confined(f"chmod 777 {file}; touch -d 2001-01-01 {file}", w)
    after = file.stat()
    if (before.st_mode, before.st_mtime) != (after.st_mode, after.st_mtime):
        assert not NAMESPACES
        assert "metadata" in weaker(result)
        assert says("SECURITY.md", "chmod", "utime")
    assert errno_of("open(sys.argv[1], 'r+')", w, file) == NO_WRITE
    assert errno_of("open('mine', 'w').close(); os.chmod('mine', 0o600)", w) == ""


def case_03_who_needs_it_refused_can_require_it(w: Path, o: Path) -> None:
    policy = sandbox.SandboxPolicy(entries=sandbox.workspace_write(w).entries, require="namespaces")
    try:
        result = sandbox.run(f"chmod 777 {o}/file", policy)
    except sandbox.Unenforceable as error:
        assert "namespaces" in error.part and not NAMESPACES
    else:
        assert result.enforcement.isolation == "namespaces" and NO_WRITE_TEXT in result.err


def case_04_truncation_outside_is_denied(w: Path, o: Path) -> None:
    (w / "mine").write_text("text")
    assert errno_of("os.truncate(sys.argv[1], 0)", w, o / "file") == NO_WRITE
    assert errno_of("os.truncate('mine', 0)", w) == ""
    assert (o / "file").read_text() == "outside\n"
    assert (w / "mine").read_text() == ""


def case_04_a_kernel_that_cannot_deny_it_is_refused_where_all_hangs_on_it(w: Path, o: Path) -> None:
    old = _sandcore.probe()._replace(landlock_abi=2)
    try:
        with sandbox.Sandbox(sandbox.workspace_write(w), backend=LinuxBackend(old)) as box:
            assert NAMESPACES, "started on ABI 2"
            assert NO_WRITE_TEXT in box.run(f"truncate -s 0 {o}/file").err
    except sandbox.Unenforceable as error:
        assert "truncated" in error.cause and not NAMESPACES
    assert (o / "file").read_text() == "outside\n"


def case_06_without_the_feature_nothing_is_run(w: Path, o: Path) -> None:
    failing.fail("landlock_create_ruleset", 38)
    failing.fail("unshare", 1)
    try:
        sandbox.run(["touch", str(o / "pwn")], cwd=w)
    except sandbox.HostError as error:
        assert ("namespaces" if NAMESPACES else "Landlock") in str(error)
    else:
        raise AssertionError("ran unconfined")
    assert not (o / "pwn").exists()
    done = sandbox.run(["touch", str(o / "pwn")], sandbox.full_access())
    assert done.ok
    assert done.enforcement.isolation == "none"  # only on request, and visible


def case_06_a_step_that_fails_stops_the_command(w: Path, o: Path) -> None:
    sandbox.run(["true"], cwd=w)  # whatever is looked at once has been looked at
    for call in ("landlock_restrict_self", "landlock_add_rule", "seccomp"):
        pid = os.fork()
        if pid == 0:
            failing.fail(call, 1)
            try:
                sandbox.run(["touch", str(o / "pwn")], sandbox.workspace_write(w).with_deny(o))
            except (sandbox.HostError, sandbox.StartError):
                os._exit(0)
            except BaseException:
                os._exit(1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, call
    assert not (o / "pwn").exists()


def case_07_a_path_that_is_not_there_is_an_error_before_exec(w: Path, o: Path) -> None:
    missing = w / "does-not-exist-yet"
    try:
        confined(["mkdir", str(missing)], w, policy=sandbox.workspace_write(w, write=[missing]))
    except sandbox.InvalidPath as error:
        assert error.path == str(missing)
    else:
        raise AssertionError("ran")
    assert not missing.exists()
    assert confined(["mkdir", str(missing)], w).ok


def case_09_mounts_below_a_read_only_directory_are_read_only(w: Path, o: Path) -> None:
    private_mounts()
    places = [o / "sub", Path("/dev/shm"), Path("/run/user") / str(os.getuid()), Path("/boot")]
    (o / "sub").mkdir()
    mount(b"none", str(o / "sub").encode(), b"tmpfs")
    (o / "sub/twin").touch()
    tried = [place for place in places if place.is_dir() and os.access(place, os.W_OK)]
    assert o / "sub" in tried
    for place in tried:
        code = "open(sys.argv[1], 'x')"
        found = errno_of(code, w, place / "sandcore-x")
        # What is private is the sandbox's own, and what is hidden is not there.
        own = NAMESPACES and place not in (o / "sub", Path("/boot"))
        assert found == NO_WRITE or (own and found in ("", "ENOENT")), (place, found)
        assert not (place / "sandcore-x").exists()
    assert errno_of("open('x', 'x')", w) == ""


def case_10_a_read_only_run_needs_nothing_to_protect(w: Path, o: Path) -> None:
    policy = sandbox.SandboxPolicy(
        entries=sandbox.read_only().entries, protected=(".git", ".envrc")
    )
    assert confined(["true"], w, policy=policy).ok
    assert list(w.iterdir()) == []
    assert errno_of("os.mkdir('.git')", w, policy=policy) == NO_WRITE


def case_11_a_granted_file_is_written_in_place_only(w: Path, o: Path) -> None:
    (o / "conf.json").write_text("old")
    policy = sandbox.workspace_write(w, write=[o / "conf.json"])
    write = "open(sys.argv[1], 'w').write('new')"
    assert errno_of(write, w, o / "conf.json", policy=policy) == ""
    assert (o / "conf.json").read_text() == "new"
    assert errno_of("open(sys.argv[1], 'w')", w, o / "t", policy=policy) == NO_WRITE
    (w / "t").write_text("newer")
    code = "os.replace('t', sys.argv[1])"
    assert errno_of(code, w, o / "conf.json", policy=policy) in ("EXDEV", "EACCES", "EBUSY")
    assert (o / "conf.json").read_text() == "new"
    assert sorted(path.name for path in o.iterdir()) == ["conf.json", "file"]


def case_13_a_swapped_directory_does_not_move_the_boundary(w: Path, o: Path) -> None:
    (w / "pkg").mkdir()
    policy = sandbox.workspace_write(w)
    with sandbox.Sandbox(policy) as box:
        assert box.run(f"rmdir pkg && ln -s {o} pkg").ok
        assert box.run("echo in >f", cwd=w).ok
        for one in (box.run, lambda *args, **options: sandbox.run(*args, policy, **options)):
            result = one("echo escaped >e", cwd=w / "pkg")
            assert NO_WRITE_TEXT in result.err
    assert not (o / "e").exists()


def case_13_a_root_that_a_command_turned_into_a_link_is_refused(w: Path, o: Path) -> None:
    (w / "pkg").mkdir()
    policy = sandbox.workspace_write(w, write=[w / "pkg"])
    with sandbox.Sandbox(policy) as box:
        assert box.run("echo in >pkg/f", cwd=w).ok
        assert box.run(f"rm -r pkg && ln -s {o} pkg", cwd=w).ok
    try:
        with sandbox.Sandbox(policy) as box:
            result = box.run(f"echo escaped >{o}/e", cwd=w)
    except sandbox.InvalidPath as error:
        assert str(w / "pkg") in str(error)
    else:
        assert NO_WRITE_TEXT in result.err, "the new link was followed out of the workspace"
    assert not (o / "e").exists()


def case_13_a_root_behind_a_link_of_the_user_is_fine(w: Path, o: Path) -> None:
    (o / "link").symlink_to(w)
    policy = sandbox.workspace_write(o / "link")
    assert confined("echo in >f", w, policy=policy).ok
    assert confined(f"echo out >{o}/e", w, policy=policy).returncode != 0


def case_14_a_link_to_a_protected_name_is_no_way_round_it(w: Path, o: Path) -> None:
    (w / ".git").mkdir()
    (w / ".git/config").write_text("[core]\n")
    result = confined("ln -s .git lnk; echo x >lnk/config", w)
    assert (w / ".git/config").read_text() == "[core]\n"
    assert result.returncode != 0 or result.denials, "changed, put back, and not said"


def case_14_paths_are_compared_by_component_and_after_resolution(w: Path, o: Path) -> None:
    (w / "proj").mkdir()
    evil = w / "proj-evil"
    evil.mkdir()
    (evil / "g").touch()
    w = w / "proj"
    (w / "link").symlink_to(o)
    ways = [
        evil / "g",
        f"{w}/../proj-evil/g",
        f"{w}/link/file",
        f"{w}/../../{o.name}/file",
        f"/proc/self/root{o}/file",
        f"/proc/thread-self/root{o}/file",
        f"/proc/self/cwd/../../{o.name}/file",
    ]
    for way in ways:
        assert errno_of("open(sys.argv[1], 'r+').write('x')", w, way) == NO_WRITE, way
        assert os.path.exists(
            way.replace("/proc/self/cwd", str(w)) if isinstance(way, str) else way
        )
    for way in ("f", f"{evil}/../proj/f", f"/proc/self/root{w}/f", "/proc/self/cwd/f"):
        assert errno_of("open(sys.argv[1], 'w')", w, way) == "", way
    assert (o / "file").read_text() == "outside\n"
    assert (evil / "g").read_text() == ""


def case_15_a_hard_link_cannot_be_made_and_an_old_one_is_a_documented_limit(
    w: Path, o: Path
) -> None:
    assert errno_of("os.link(sys.argv[1], 'x')", w, o / "file") == "EXDEV"
    os.link(o / "file", w / "pre")
    if errno_of("open('pre', 'w').write('pwn')", w) == "":
        assert says("SECURITY.md", "hard links")


_RACE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char path[4096];
static char *volatile names[2];
static volatile int done;

static void *flip(void *unused) {
    for (unsigned i = 0; !done; i++)
        memcpy(path, names[i & 1], strlen(names[i & 1]) + 1);
    return unused;
}

int main(int argc, char **argv) {
    long opened = 0, denied = 0, secret = 0;
    pthread_t thread;
    names[0] = argv[1];
    names[1] = argv[2];
    strcpy(path, argv[1]);
    pthread_create(&thread, 0, flip, 0);
    for (int i = 0; i < 400000; i++) {
        struct open_how how = {.flags = O_RDONLY};
        int fd = i & 1 ? openat(AT_FDCWD, path, O_RDONLY)
                       : syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
        char byte = 0;
        if (fd < 0) {
            denied += errno == EACCES;
            continue;
        }
        opened++;
        secret += read(fd, &byte, 1) == 1 && byte == 'S';
        close(fd);
    }
    done = 1;
    pthread_join(thread, 0);
    printf("%d %d %ld\n", opened > 0, denied > 0, secret);
    return argc != 3;
}
"""


def case_17_a_path_that_is_swapped_during_the_call_never_opens_what_is_denied(
    w: Path, o: Path
) -> None:
    program = cc(_RACE, w / "race")
    (w / "ok").write_text("k")
    secret = o / "ok"  # as long as the other, so that a torn path is none of both
    secret.write_text("S")
    policy = sandbox.workspace_write(w).with_deny(o)
    # Padded to one length with slashes.
    length = max(len(str(w / "ok")), len(str(secret)))
    one, two = (
        str(path).replace("/ok", "/" * (length - len(str(path)) + 1) + "ok")
        for path in (w / "ok", secret)
    )
    result = confined([program, one, two], w, policy=policy)
    assert result.out.split() == ["1", "1", "0"], result.text
    outside = subprocess.run([program, one, two], capture_output=True, text=True).stdout.split()
    assert int(outside[2]) > 0, "the race never reached the secret: it proves nothing"


def case_19_a_denied_pattern_is_honoured_or_refused_not_ignored(w: Path, o: Path) -> None:
    (w / "a/b").mkdir(parents=True)
    (w / "a/b/x.pem").write_text("k")
    policy = sandbox.workspace_write(w, deny=[f"{w}/**/*.pem"])
    try:
        code = "os.close(os.open(sys.argv[1], os.O_RDONLY))"
        assert errno_of(code, w, "a/b/x.pem", policy=policy) == "EACCES"
        confined("echo k >new.pem; echo k >a/free", w, policy=policy)
        assert errno_of(code, w, "new.pem", policy=policy) == "EACCES"
        assert errno_of(code, w, "a/free", policy=policy) == ""
    except sandbox.Unenforceable as error:
        assert "*.pem" in str(error)


def case_20_a_thousand_denied_paths_start_quickly(w: Path, o: Path) -> None:
    # Not in /tmp: other tests change it all the time.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as quiet:
        _start_with_many_denied(w, Path(quiet))


def _start_with_many_denied(w: Path, modules: Path) -> None:
    denied = []
    for index in range(1500):
        (modules / f"m{index}").mkdir()
        (modules / f"m{index}/key").touch()
        denied.append(modules / f"m{index}/key")

    def seconds(count: int) -> float:
        policy = sandbox.workspace_write(w, deny=denied[:count])
        best = 60.0
        for _ in range(3):
            start = time.monotonic()
            with sandbox.Sandbox(policy) as box:
                assert box.run(["true"]).ok
            best = min(best, time.monotonic() - start)
        return best

    few, many = seconds(150), seconds(1500)
    assert many < 2, f"{many:.2f} s"
    # Ten times as many; quadratic would be a hundred times. 50 ms are the noise of a busy machine.
    assert many < 25 * few + 0.05, f"{few:.3f} s, {many:.3f} s"
    policy = sandbox.workspace_write(w, deny=denied)
    assert errno_of("open(sys.argv[1])", w, denied[-1], policy=policy) == "EACCES"


def case_23_the_temporary_directory_has_no_name_that_can_be_guessed(w: Path, o: Path) -> None:
    known = o / "tmp"
    known.mkdir()
    for name in ("sandbox", "sandcore", "sandbox-", "sandbox-0"):
        (known / name).symlink_to(o)
    with replaced_environ(TMPDIR=str(known)):
        tempfile.tempdir = None
        seen: set[object] = set()
        for _ in range(3):
            with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
                place = Path(box.run("echo $TMPDIR").out.strip())
                if NAMESPACES:  # its own /tmp, in which nobody can have waited
                    assert place == Path("/tmp") and box.run("ls -A /tmp").out == ""
                    seen.add(len(seen))
                    continue
                assert place.is_relative_to(known)
                state = place.lstat()
                assert stat.S_ISDIR(state.st_mode)
                assert (stat.S_IMODE(state.st_mode), state.st_uid) == (0o700, os.getuid())
                assert stat.S_IMODE(place.parent.stat().st_mode) in (0o700, 0o755)
                seen.add(place)
        tempfile.tempdir = None
    assert len(seen) == 3
    assert sorted(path.name for path in o.iterdir()) == ["file", "tmp"]
    assert len(list(known.iterdir())) == 4, "something was left"


def case_25_tmpdir_is_there_and_writable_whatever_the_caller_has(w: Path, o: Path) -> None:
    home = Path(os.environ["HOME"])
    (home / "scratch").mkdir()
    for value in (str(home / "scratch"), str(home / "missing"), '"$TMPDIR"', "relative", str(w)):
        with replaced_environ(TMPDIR=value):
            tempfile.tempdir = None
            with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
                result = box.run('test -d "$TMPDIR" && mktemp -d && mktemp && echo x >$TMPDIR/f')
                assert result.ok, (value, result.text)
        tempfile.tempdir = None
