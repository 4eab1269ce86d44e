"""The presets and modes by what they allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.entries import Access, Special
from sandbox.errors import InvalidArgument, InvalidPath
from sandbox.presets import MODES, full_access, preset, read_only, workspace_write

PLACES = {Special.WORKSPACE: "/w", Special.TMP: "/private"}


def test_read_only_reads_everything_and_writes_its_private_directory() -> None:
    assert read_only().access("/etc/passwd", PLACES) is Access.READ
    assert read_only().access("/w/f", PLACES) is Access.READ
    assert read_only().access("/private/f", PLACES) is Access.WRITE
    assert read_only().network == "none"


def test_workspace_write_writes_the_workspace_and_no_shared_temporary_directory() -> None:
    assert workspace_write().access("/w/f", PLACES) is Access.WRITE
    assert workspace_write().access("/private/f", PLACES) is Access.WRITE
    assert workspace_write().access("/tmp/f", PLACES) is Access.READ
    assert workspace_write().access("/etc/f", PLACES) is Access.READ
    assert workspace_write().network == "none"


def test_a_workspace_can_be_named_in_the_policy() -> None:
    policy = workspace_write(Path("/p"), write=["/more"], read=["/more/less"], deny=["/p2"])
    assert policy.access("/p/f") is Access.WRITE
    assert policy.access("/more/f") is Access.WRITE
    assert policy.access("/more/less/f") is Access.READ
    assert policy.access("/p2/f") is Access.DENY


def test_full_access_has_no_bounds_but_the_environment() -> None:
    policy = full_access()
    assert policy.access("/etc/shadow") is Access.WRITE
    assert policy.network == "full"
    assert policy.protected == ()
    assert policy.environment.inherit == "all"


def test_each_mode_is_its_preset() -> None:
    assert preset("read-only") == read_only()
    assert preset("auto") == workspace_write()
    assert preset("full-access") == full_access()
    assert list(MODES) == ["read-only", "auto", "full-access"]


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"'yolo'.*read-only, auto, full-access"):
        preset("yolo")


def test_a_bad_workspace_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="is empty"):
        workspace_write("")
    with pytest.raises(InvalidPath, match="relative"):
        workspace_write("project")
