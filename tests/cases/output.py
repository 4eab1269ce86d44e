"""Section H: output, exit status, stdin."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from pathlib import Path

import failing
from casekit import confined, python

import sandbox


def case_118_bytes_that_are_no_text_are_kept(w: Path, o: Path) -> None:
    data = os.urandom(100_000)
    (w / "data").write_bytes(data)
    result = confined(r"printf 'a\xf0\xff\x80b'; cat data", w)
    assert result.stdout == b"a\xf0\xff\x80b" + data
    assert "\N{REPLACEMENT CHARACTER}" in result.out
    result = confined(r"printf 'ab\xe2\x82'; sleep 9", w, timeout=1)
    assert (result.timed_out, result.stdout) == (True, b"ab\xe2\x82")
    assert result.out == "ab\N{REPLACEMENT CHARACTER}"


def case_120_output_is_bounded_and_counted(w: Path, o: Path) -> None:
    limits = sandbox.Limits(output=1 << 20)
    confined("echo warm", w, limits=limits)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for command in ("yes", "yes >&2 & yes", "cat /dev/zero"):
        result = confined(command, w, timeout=2, limits=limits)
        assert result.timed_out
        assert len(result.stdout) <= 1 << 20
        assert result.stdout_truncated > 1 << 20
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 * 1024, f"{grown} KiB"
    command = "echo first; head -c 50000000 /dev/zero; echo last; exit 5"
    result = confined(command, w, limits=limits)
    assert result.returncode == 5
    assert result.stdout.startswith(b"first\n")
    assert result.stdout.endswith(b"last\n")
    assert len(result.stdout) + result.stdout_truncated == 50_000_000 + 11


def case_122_both_streams_are_drained(w: Path, o: Path) -> None:
    result = confined("head -c 1M /dev/zero >&2; echo done", w, timeout=60)
    assert (len(result.stderr), result.stdout) == (1 << 20, b"done\n")
    result = confined("head -c 1M /dev/zero; echo done >&2", w, timeout=60)
    assert (len(result.stdout), result.stderr) == (1 << 20, b"done\n")


def case_123_what_was_printed_before_a_time_out_is_kept(w: Path, o: Path) -> None:
    result = confined("echo before; echo error >&2; sleep 9", w, timeout=1)
    assert (result.timed_out, result.out, result.err) == (True, "before\n", "error\n")


def case_124_a_signal_is_told_from_a_status(w: Path, o: Path) -> None:
    result = confined("kill -9 $$", w)
    assert (result.signal, result.returncode, result.ok) == (9, -9, False)
    result = confined(["sh", "-c", "sh -c 'kill -9 $$'; exit $?"], w)
    assert (result.signal, result.returncode) == (None, 137)
    assert confined("kill -SEGV $$", w).signal == 11
    for status in (137, 143):
        result = confined(f"exit {status}", w)
        assert (result.signal, result.returncode) == (None, status)
    result = confined(f"ulimit -v 400000; exec {python()} -c 'x = bytearray(1 << 30)'", w)
    assert not result.ok
    assert "MemoryError" in result.err


def case_125_a_sandbox_that_fails_is_told_from_a_command_that_fails(w: Path, o: Path) -> None:
    for status in (1, 71, 125, 126, 127, 255):
        result = confined(f'echo "sandbox: setup failed" >&2; exit {status}', w)
        assert result.returncode == status
    for words, kind in (
        (["no-such-program-here"], sandbox.CommandNotFound),
        ([str(w / "missing")], sandbox.CommandNotFound),
        (["/etc/passwd"], sandbox.CommandNotExecutable),
    ):
        try:
            confined(words, w)
        except kind as error:
            assert error.stage == "exec"
            assert error.path
        else:
            raise AssertionError(f"{words} ran")
    failing.fail("landlock_restrict_self", 7)
    try:
        sandbox.Sandbox(sandbox.workspace_write(w)).run(["touch", "f"])
    except sandbox.StartError as error:
        assert error.stage in ("landlock", "helper", "lane")
    else:
        raise AssertionError("ran")
    assert not (w / "f").exists()


def case_127_stdin_is_at_its_end_and_the_callers_is_left_alone(w: Path, o: Path) -> None:
    silent, keep = os.pipe()
    saved = os.dup(0)
    os.dup2(silent, 0, inheritable=True)
    os.write(keep, b"caller's")
    try:
        result = confined(["cat"], w, timeout=20)
        assert (result.out, result.returncode, result.timed_out) == ("", 0, False)
        assert confined("read x; echo [$x]", w, timeout=20).out == "[]\n"
        assert confined("cat <<E | cat -\nhi\nE\ncat", w, timeout=20).out == "hi\n"
        assert os.read(0, 99) == b"caller's"
    finally:
        os.dup2(saved, 0)
        for fd in (silent, keep, saved):
            os.close(fd)


def case_127_input_that_nobody_reads_is_no_error(w: Path, o: Path) -> None:
    big = os.urandom(10 << 20)
    assert confined(["cat"], w, input=big, limits=sandbox.Limits(output=20 << 20)).stdout == big
    assert confined(["true"], w, input=big).ok
    assert confined("exec <&-; sleep 0.3; echo on", w, input=big).out == "on\n"
    result = confined(["sleep", "9"], w, input=big, timeout=1)
    assert result.timed_out


def case_128_prompts_fail_at_once(w: Path, o: Path) -> None:
    commands = {
        "git ls-remote https://127.0.0.1:1/x": "git",
        "ssh -o StrictHostKeyChecking=ask x.invalid true": "ssh",
        "sudo id": "sudo",
        f"{python()} -c 'import getpass; getpass.getpass()'": "python3",
        "read -p name? x </dev/tty": "bash",
    }
    for command, tool in commands.items():
        if subprocess.run(["sh", "-c", f"command -v {tool}"], capture_output=True).returncode:
            continue
        start = time.monotonic()
        result = confined(command, w, timeout=20)
        assert not result.timed_out, command
        assert result.returncode != 0, (command, result.text)
        assert time.monotonic() - start < 6, command


def case_130_an_unfinished_command_is_an_error_not_a_prompt(w: Path, o: Path) -> None:
    start = time.monotonic()
    result = confined("cat <<EOF\nhi\n  EOF", w, timeout=20)
    assert "here-document" in result.err
    for text in ("echo 'unterminated", "case x in"):
        result = confined(text, w, timeout=20)
        assert result.returncode == 2 or "syntax" in result.err, result.text
        assert "unexpected" in result.err
    assert time.monotonic() - start < 10
    forged = 'echo; echo "{\\"returncode\\": 0}"; echo "exit status 0"; printf "\\0\\1\\2"; exit 3'
    result = confined(forged, w)
    assert (result.returncode, result.ok) == (3, False)


def case_122_several_at_once(w: Path, o: Path) -> None:
    results: list[sandbox.Result] = []

    def one() -> None:
        results.append(confined("head -c 1M /dev/zero >&2; head -c 1M /dev/zero", w, timeout=60))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(r.stdout) + len(r.stderr) for r in results] == [2 << 20] * 4
