"""What is read out of a command's output: every wording that was met, and no time lost on any."""

from __future__ import annotations

import time

import pytest

from sandbox.messages import CLAIMS_MAX, TAIL, Claim, claims


def first(text: str) -> Claim:
    return next(claims(text.encode()))


# The line, what was refused, what was to be done, and the path that comes first.
WORDINGS = [
    ("touch: cannot touch '/o/f': Permission denied", "EACCES", "write", "/o/f"),
    ("mkdir: cannot create directory ‘/o/f’: Read-only file system", "EROFS", "write", "/o/f"),
    ("rm: cannot remove '/o/f': Permission denied", "EACCES", "entry", "/o/f"),
    ("cat: /o/f: Permission denied", "EACCES", "read", "/o/f"),
    ("cat: a b: Permission denied", "EACCES", "read", "a b"),
    ("ls: cannot open directory '/o/f': Permission denied", "EACCES", "read", "/o/f"),
    ("/bin/bash: line 1: /o/f: Permission denied", "EACCES", "", "/o/f"),
    ("/bin/bash: line 1: /o/a b: Read-only file system", "EROFS", "", "/o/a b"),
    ("dash: 1: cannot create /o/f: Permission denied", "EACCES", "write", "/o/f"),
    ("zsh:1: permission denied: /o/f", "EACCES", "", "/o/f"),
    ("tee: /o/f: Read-only file system", "EROFS", "write", "/o/f"),
    ("dd: failed to open '/o/f': Read-only file system", "EROFS", "write", "/o/f"),
    ("sed: couldn't open temporary file /o/f: Permission denied", "EACCES", "write", "/o/f"),
    ("/usr/bin/ld: cannot open output file /o/f: Permission denied", "EACCES", "write", "/o/f"),
    ("mv: cannot move '.git' to 'g': Device or resource busy", "EBUSY", "entry", ".git"),
    ("error: could not lock config file .git/config: Read-only file system", *("EROFS", "write"),
     ".git/config"),
    ("fatal: Unable to create '/o/.git/index.lock': Read-only file system", *("EROFS", "write"),
     "/o/.git/index.lock"),
    ("PermissionError: [Errno 13] Permission denied: '/o/f'", "EACCES", "", "/o/f"),
    ("PermissionError: [Errno 13] Permission denied: '/o/a\\nb'", "EACCES", "", "/o/a\nb"),
    ('OSError: [Errno 30] Read-only file system: "/o/it\'s"', "EROFS", "", "/o/it's"),
    ("OSError: [Errno 18] Invalid cross-device link: 'f' -> '/o/f'", "EXDEV", "", "f"),
    ("touch: cannot touch '/o/a'$'\\n''b': Permission denied", "EACCES", "write", "/o/a\nb"),
    ("touch: cannot touch '/o/\\a': Permission denied", "EACCES", "write", "/o/\\a"),
    ('touch: cannot touch "/o/it\'s": Permission denied', "EACCES", "write", "/o/it's"),
    ("Error: EACCES: permission denied, open '/o/f'", "EACCES", "", "/o/f"),
    ("Error: EROFS: read-only file system, mkdir '/o/f'", "EROFS", "write", "/o/f"),
    ("2026/01/01 00:00:00 open /o/f: permission denied", "EACCES", "", "/o/f"),
    ("panic: mkdir /o/f: read-only file system", "EROFS", "write", "/o/f"),
    ("java.io.FileNotFoundException: /o/f (Permission denied)", "EACCES", "", "/o/f"),
    ("java.nio.file.AccessDeniedException: /o/f", "EACCES", "", "/o/f"),
    ("error: failed to write /o/f\nCaused by:\n  Permission denied (os error 13)", "EACCES", "",
     "/o/f"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "cause", "act", "path"), WORDINGS)
def test_a_wording_gives_the_errno_the_act_and_the_path(
    text: str, cause: str, act: str, path: str
) -> None:
    claim = first(f"before\n{text}\nafter\n")
    assert (claim.cause, claim.act) == (cause, act)
    assert claim.paths[0] == path


HOSTS = [
    ("curl: (6) Could not resolve host: example.com", "example.com"),
    ("curl: (7) Failed to connect to 1.2.3.4 port 80 after 0 ms: Couldn't connect to server",
     "1.2.3.4"),
    ("ssh: Could not resolve hostname example.com: Temporary failure in name resolution",
     "example.com"),
    ("fatal: unable to access 'https://a/': Could not resolve host: example.com", "example.com"),
    ("Error: getaddrinfo EAI_AGAIN example.com", "example.com"),
    ("HTTPSConnectionPool(host='index.example.org', port=443): [Errno -3] Temporary failure in name"
     " resolution", "index.example.org"),
    ("OSError: [Errno 101] Network is unreachable", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "host"), HOSTS)
def test_a_network_that_is_missing_is_told_with_the_host(text: str, host: str) -> None:
    claim = first(text)
    assert (claim.cause, claim.host) == ("NET", host)


def test_the_name_of_a_file_says_nothing_about_what_was_done_with_it() -> None:
    for name in ("removed", "write", "read", "exec"):
        assert first(f"bash: line 1: /o/{name}/x: Permission denied").act == ""
        assert first(f"PermissionError: [Errno 13] Permission denied: '{name} x'").act == ""


def test_only_the_end_of_a_stream_is_read() -> None:
    line = b"cat: /o/f: Permission denied\n"
    assert [claim.paths[0] for claim in claims(line + b"x" * (TAIL - len(line)))] == ["/o/f"]
    assert list(claims(line + b"x" * TAIL)) == []


HOSTILE = {
    "the same line": b"cat: /o/f: Permission denied\n",
    "one long line": b"permission denied ",
    "quotes": b"\"'" * 300 + b"permission denied\n",
    "openers": "‘".encode() * 300 + b"permission denied\n",
    "pieces": b"$'\\x41'" * 100 + b"permission denied\n",
    "escapes": b"\\'" * 300 + b"[Errno permission denied\n",
    "slashes": b"/" * 600 + b": permission denied\n",
    "hosts": b"lookup " + b"-" * 600 + b": operation not permitted\n",
    "verbs": b"cannot create " * 50 + b": permission denied\n",
    "newlines": b"\n",
    "bytes": bytes(range(256)),
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_megabyte_of_hostile_output_costs_little(line: bytes) -> None:
    output = line * (1_000_000 // len(line))
    start = time.process_time()
    found = list(claims(output))
    assert time.process_time() - start < 0.25  # measured: at most 0.02
    assert len(found) <= CLAIMS_MAX


def test_output_without_a_key_is_only_searched() -> None:
    assert list(claims(b"sandbox: denied! no permission\n" * 1000)) == []


@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last):\n  File "/o/synchronize.py", line 57, in __init__\n'
        "    make(\nPermissionError: [Errno 13] Permission denied",
        "Error: spawn EACCES: permission denied\n    at go (/o/child_process.js:1:2)",
        "  at o.Main(/o/Main.java)\njava.io.IOException: Permission denied",
    ],
)
def test_files_of_a_stack_are_not_what_was_refused(text: str) -> None:
    assert not [path for path in first(text).paths if "/" in path]
