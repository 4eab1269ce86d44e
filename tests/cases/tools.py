"""Section E: tool chains, and sandboxes in sandboxes."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import failing
from casekit import NAMESPACES, confined, errno_of, git, need, python, repository, skip, weaker

import sandbox


def case_68_go_builds(w: Path, o: Path) -> None:
    need("go", "golang-go")
    (w / "go.mod").write_text("module example.org/m\n")
    (w / "m.go").write_text("package main\nfunc main() {}\n")
    result = confined("go build ./...", w)
    assert result.ok, result.text


def case_69_pip_and_uv_find_a_place_for_their_cache(w: Path, o: Path) -> None:
    result = confined("echo $XDG_CACHE_HOME && mkdir -p $XDG_CACHE_HOME/t && echo $TMPDIR", w)
    assert result.ok, result.text
    cache, tmp = result.out.split()
    assert cache.startswith(tmp)
    if subprocess.run([python(), "-m", "pip", "--version"], capture_output=True).returncode == 0:
        result = confined([python(), "-m", "pip", "--version"], w)
        assert result.ok, result.text


def case_69_uv_runs_offline(w: Path, o: Path) -> None:
    need("uv", "uv from PyPI")
    result = confined(f"uv run --offline --no-project --python {python()} python -c 1", w)
    assert result.ok, result.text


def case_70_a_linker_finds_a_place_for_its_files(w: Path, o: Path) -> None:
    need("cc", "gcc libc6-dev")
    (w / "m.c").write_text("int main(void) { return 0; }\n")
    result = confined("cc -flto -o m m.c && ./m", w)
    assert result.ok, result.text


def case_70_cargo_builds(w: Path, o: Path) -> None:
    if shutil.which("rustc") is None or shutil.which("cargo") is None:
        skip("needs cargo and rustc: apt-get install cargo")
    probe = subprocess.run(["cargo", "new", "-q", str(w / "c1")], capture_output=True, text=True)
    if probe.returncode != 0:
        skip(f"needs a cargo that works for this user: apt-get install cargo ({probe.stderr[:90]})")
    names = ("CARGO_HOME", "RUSTUP_HOME")
    env = {name: os.environ[name] for name in names if name in os.environ}
    result = confined("cargo build -q --offline", w / "c1", env=env)
    assert result.ok, result.text


def case_71_java_opens_a_datagram_socket_offline(w: Path, o: Path) -> None:
    code = "import socket\nsocket.socket(type=socket.SOCK_DGRAM).bind(('127.0.0.1', 0))"
    if not NAMESPACES:
        assert errno_of(code, w) == "EPERM" and "loopback" in weaker(confined("true", w))
        return
    assert errno_of(code, w) == ""
    if shutil.which("jshell"):
        text = "new java.net.DatagramSocket(0, java.net.InetAddress.getLoopbackAddress()).close()"
        result = confined(["jshell", "-s", "-"], w, input=text)
        assert "SocketException" not in result.text and "|  Exception" not in result.text


def case_74_a_signature_is_verified_or_the_refusal_is_clear(w: Path, o: Path) -> None:
    need("gpg", "gnupg")
    repository(w)
    home = Path(os.environ["HOME"])
    (home / ".gnupg").mkdir(mode=0o700)
    made = subprocess.run(
        ["gpg", "--batch", "--passphrase", "", "--quick-gen-key", "n <e@example.org>", "ed25519"],
        capture_output=True,
        text=True,
    )
    try:
        if made.returncode != 0:
            skip(f"needs a gpg that can make a key: {made.stderr[-200:]}")
        git(w, "commit", "-q", "--allow-empty", "-S", "-m", "signed")
        assert "Good signature" in git(w, "show", "--show-signature", "-s")
        result = confined("git show --show-signature -s; echo status $?", w)
        assert "status 0" in result.out, result.text
        assert "Good signature" in result.text or "denied" in result.text.lower(), result.text
        keys = home / ".gnupg/private-keys-v1.d"
        assert next(keys.iterdir())
        assert (
            errno_of("os.listdir(sys.argv[1]); open(sys.argv[2])", w, home, next(keys.iterdir()))
            == "EACCES"
        )
        sock = home / ".gnupg/S.gpg-agent"
        if sock.exists():
            code = "import socket\nsocket.socket(socket.AF_UNIX).connect(sys.argv[1])"
            assert errno_of(code, w, sock) in ("EACCES", "EPERM")
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], capture_output=True)


def case_75_ssh_reads_the_configuration_of_the_machine(w: Path, o: Path) -> None:
    need("ssh", "openssh-client")
    outside = subprocess.run(["ssh", "-G", "localhost"], capture_output=True, text=True)
    result = confined(["ssh", "-G", "localhost"], w)
    assert result.returncode == outside.returncode, result.text
    assert result.out.splitlines()[:3] == outside.stdout.splitlines()[:3]
    assert "Bad owner" not in result.err
    owner = confined("stat -c %u /etc/passwd", w)
    if owner.out != "0\n":  # what is included below /etc/ssh is refused then
        assert NAMESPACES and os.getuid() != 0 and "owners" in weaker(owner)


_INNER = """
import sys, warnings
warnings.simplefilter("ignore")
import sandbox
policy = sandbox.workspace_write(sys.argv[1], write=sys.argv[3:])
result = sandbox.run("touch in; touch " + sys.argv[2], policy, cwd=sys.argv[1])
print(result.returncode, result.enforcement.isolation, result.err)
"""


def case_77_the_library_works_inside_itself_and_policies_intersect(w: Path, o: Path) -> None:
    (w / "inner").mkdir()
    source = str(Path(sandbox.__file__).parent.parent)
    env = {"PYTHONPATH": source}
    policy = sandbox.workspace_write(w, read=[source])
    interpreter = sys.executable if os.getuid() == 0 else python()
    for target in (w / "between", o / "out"):  # the outer allows one of them, the inner both
        result = confined(
            [interpreter, "-c", _INNER, w / "inner", target, w, o],
            w,
            env=env,
            policy=policy,
            timeout=60,
        )
        assert result.ok, result.text
        code, isolation = result.out.split()[:2]
        assert isolation == "landlock"
        assert (w / "inner/in").exists()
        (w / "inner/in").unlink()
        assert target.exists() == (target.parent == w), result.out
        assert (code == "0") == (target.parent == w), result.out
    words = [interpreter, "-c", _INNER, w / "inner", w / "denied"]
    result = confined(words, w, env=env, policy=policy)
    assert "Permission denied" in result.out, result.text


def case_77_another_sandbox_inside_fails_at_once_and_says_so(w: Path, o: Path) -> None:
    need("unshare", "util-linux")
    result = confined(["unshare", "--user", "--map-root-user", "true"], w, timeout=10)
    assert result.returncode != 0
    assert "unshare" in result.err
    assert "not permitted" in result.err or "denied" in result.err, result.err


def _restrictions() -> set[tuple[str, str]]:
    found = set()
    for task in os.listdir("/proc/self/task"):
        for line in Path(f"/proc/self/task/{task}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("NoNewPrivs", "Seccomp", "Seccomp_filters", "CapEff", "SigBlk", "SigIgn"):
                found.add((name, value.strip()))
    return found


def case_79_the_caller_is_not_confined(w: Path, o: Path) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    before = _restrictions()
    assert confined("touch f", w).ok
    with sandbox.Sandbox(sandbox.read_only()) as box:
        box.run(["true"])
        assert _restrictions() == before
        (o / "x").touch()
        socket.socket().close()
        assert subprocess.run(["touch", o / "y"]).returncode == 0
    assert (o / "y").exists()
    stop.set()
    for thread in threads:
        thread.join()


def case_81_a_step_that_fails_is_named_before_anything_runs(w: Path, o: Path) -> None:
    for call, number in (
        ("landlock_create_ruleset", errno.EPERM),
        ("landlock_restrict_self", errno.E2BIG),
        ("seccomp", errno.EACCES),
        ("memfd_create", errno.ENOSYS),
        ("clone", errno.EAGAIN),
        ("socketpair", errno.EMFILE),
    ):
        pid = os.fork()
        if pid == 0:
            failing.fail(call, number)
            try:
                result = sandbox.run(["touch", str(o / "pwn")], cwd=w)
            except (sandbox.HostError, sandbox.StartError, OSError) as error:
                os._exit(0 if len(str(error)) > 20 else 3)
            except BaseException:
                os._exit(1)
            # What is not needed may fail; then the confinement is whole.
            os._exit(0 if result.returncode != 0 and not (o / "pwn").exists() else 2)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == 0, (call, status)
    assert not (o / "pwn").exists()


def case_81_what_a_container_forbids_is_not_needed(w: Path, o: Path) -> None:
    failing.fail("unshare", errno.EPERM)
    result = confined(f"touch in; touch {o}/out", w)
    assert result.enforcement.isolation == "landlock"
    assert "Permission denied" in result.err
    assert (w / "in").exists()
