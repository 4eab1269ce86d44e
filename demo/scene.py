"""The scene: a project in a git repository, a HOME with things to lose, a listener, a secret."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import socket
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

ARCHIVE = Path(__file__).parent / "toolz-1.2.0.tar.gz"
SHA256 = "9667a038e9d6ecba37995e26cb2f59ec6420b6ad8dd9677de59db9b956b08490"
SECRET_NAME = "DEPLOY_TOKEN"


@dataclass(frozen=True)
class Scene:
    """Where everything is. `mark` occurs in every planted secret, and nowhere else."""

    base: Path
    project: Path
    home: Path
    mark: str

    def spare_home(self) -> Path:
        """A copy of HOME, for what is really done outside."""
        spare = self.base / "spare-home"
        shutil.rmtree(spare, ignore_errors=True)
        shutil.copytree(self.home, spare)
        return spare


def unpack(archive: Path, target: Path) -> Path:
    """Unpacks the archive after checking that it is the one; returns the project's directory."""
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise SystemExit(f"error: {archive.name} is not the file that the demo was made for")
    # Python 3.11.2 (Debian 12) has no filters yet; the archive is a known one anyway.
    options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as tar:
        tar.extractall(target, **options)  # type: ignore[arg-type]
    return target / archive.name.removesuffix(".tar.gz")


def plant(home: Path, mark: str) -> None:
    """A HOME as people have it; the secrets are made up."""
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (home / "notes").mkdir()
    for name, text in {
        ".ssh/id_ed25519": f"-----BEGIN MADE-UP KEY-----\n{mark}\n-----END MADE-UP KEY-----\n",
        ".netrc": f"machine example.org login me password {mark}\n",
        ".bashrc": "alias ll='ls -l'\n",
        "notes/thesis.txt": "three years of work\n",
    }.items():
        (home / name).write_text(text)
        (home / name).chmod(0o600)


def commit(project: Path, home: Path) -> None:
    """Makes the project a git repository with one commit, where there is git."""
    if shutil.which("git") is None:
        return
    who = ["-c", "user.name=Demo", "-c", "user.email=demo@example.org", "-c", "gc.auto=0"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "as published"]):
        environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
        subprocess.run(["git", *who, *command], cwd=project, env=environ, check=True)


def build(base: Path) -> Scene:
    """Sets the scene below an empty directory."""
    mark = secrets.token_hex(8)
    home = base / "home"
    plant(home, mark)
    project = unpack(ARCHIVE, base)
    commit(project, home)
    return Scene(base, project, home, mark)


class Listener:
    """A TCP server on the loopback that keeps what it is sent: the evidence of what got out."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]

    def close(self) -> list[bytes]:
        """What each connection sent, of all that were made before this call."""
        received = []
        # Connections that were made wait in the backlog, and with them what they sent.
        self.server.setblocking(False)
        with self.server, contextlib.suppress(BlockingIOError):
            while True:
                peer, _ = self.server.accept()
                with peer:
                    peer.settimeout(5)
                    received.append(peer.recv(4096))
        return received


def tree_files(root: Path) -> dict[str, str]:
    """Relative path -> digest, of all files below."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def processes_with(word: str) -> list[int]:
    """The processes whose command line has `word` as an argument of its own."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in arguments:
            found.append(int(entry.name))
    return found
