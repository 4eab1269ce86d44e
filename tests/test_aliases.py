"""Other names of a path through second mounts, from texts as the kernel writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.backends.aliases import Mount, aliases, parse_mounts

ROOT = "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"


def test_without_a_second_mount_there_is_no_other_name() -> None:
    assert aliases(["/home/u/.ssh"], ROOT + "22 21 0:5 / /proc rw - proc proc rw\n") == []
    assert aliases(["/home/u/.ssh"], "") == []


@pytest.mark.parametrize(
    ("mount", "path", "expected"),
    [
        ("8:1 /home /mnt/home", "/home/u/.ssh", ["/mnt/home/u/.ssh"]),
        ("8:1 / /mnt", "/home/u/.ssh", ["/mnt/home/u/.ssh"]),
        ("8:1 /home/u/.ssh /keys", "/home/u/.ssh", ["/keys"]),
        ("8:1 /home/u/.ssh/id /id", "/home/u/.ssh", ["/id"]),
        ("8:1 /home /mnt/home", "/mnt/home/u/.ssh", ["/home/u/.ssh"]),
        ("8:1 /home/u2 /mnt", "/home/u/.ssh", []),
        ("8:2 /home /mnt/home", "/home/u/.ssh", []),
        ("8:1 /home /mnt\\040disk", "/home/u/.ssh", ["/mnt disk/u/.ssh"]),
    ],
)
def test_a_bind_mount_shows_a_path_under_another_name(
    mount: str, path: str, expected: list[str]
) -> None:
    assert aliases([path], f"{ROOT}30 21 {mount} rw - ext4 /dev/sda1 rw\n") == expected


def test_parts_of_one_file_system_are_told_apart_by_their_root() -> None:
    """As btrfs has it: two subvolumes, one device."""
    text = "1 0 0:9 /@ / rw - btrfs x rw\n2 1 0:9 /@home /home rw - btrfs x rw\n"
    assert aliases(["/home/u/.ssh"], text) == []
    assert aliases(["/home/u"], text + "3 1 0:9 / /top rw - btrfs x rw\n") == ["/top/@home/u"]


def test_of_several_mounts_on_one_point_the_last_is_seen() -> None:
    text = ROOT + "2 1 8:2 / /home rw - ext4 x rw\n3 1 8:3 / /home rw - ext4 x rw\n"
    assert aliases(["/home/u"], text + "4 1 8:3 / /other rw - ext4 x rw\n") == ["/other/u"]
    assert aliases(["/home/u"], text + "4 1 8:2 / /other rw - ext4 x rw\n") == []


def test_the_mounts_of_this_machine_are_understood() -> None:
    found = parse_mounts(Path("/proc/self/mountinfo").read_text())
    assert any(mount.point == "/" for mount in found)
    assert all(os.path.isabs(mount.point) and mount.device.count(":") == 1 for mount in found)
    assert parse_mounts("\nnonsense\n") == []
    assert parse_mounts(ROOT) == [Mount("8:1", "/", "/")]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount")
def test_a_real_bind_mount_is_seen(place: Path) -> None:
    (place / "data").mkdir()
    (place / "again").mkdir()
    code = (
        "import subprocess, sys; sys.path[:] = sys.argv[2:];"
        "from sandbox.backends.aliases import aliases; base = sys.argv[1];"
        "subprocess.run(['mount', '--bind', f'{base}/data', f'{base}/again'], check=True);"
        "print(aliases([f'{base}/data/secret']))"
    )
    command = [sys.executable, "-c", code, str(place), *sys.path]
    done = subprocess.run(["unshare", "-m", *command], capture_output=True, text=True)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"needs a mount namespace: {done.stderr.strip()}")
    assert done.stdout.strip() == f"['{place}/again/secret']", done.stderr
