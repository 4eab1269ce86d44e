"""Paths: what is refused as written, and where links lead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import InvalidPath
from sandbox.paths import ancestors, below, clean, depth, follow, real

NAMES = st.sampled_from(["a", "ab", "a.b", "b"])
PATHS = st.lists(NAMES, max_size=4).map(lambda parts: "/" + "/".join(parts))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "empty"),
        ("a/b", "relative"),
        ("./a", "relative"),
        ("/a/../b", "'..'"),
        ("/a\0b", "NUL"),
        ("/a\udc80", "surrogate"),
        (b"/a", "bytes"),
        (7, "not a path"),
        (None, "not a path"),
        ("~nobody/x", "another user"),
    ],
)
def test_a_path_that_means_nothing_is_refused_by_name(written: object, said: str) -> None:
    with pytest.raises(InvalidPath, match=said) as caught:
        clean(written)
    assert written in (caught.value.path, None, 7, b"/a")


@pytest.mark.parametrize(
    ("written", "normal"),
    [("/", "/"), ("//a//b/", "/a/b"), ("/a/./b/.", "/a/b"), (Path("/a"), "/a"), ("/a b", "/a b")],
)
def test_a_path_has_one_normal_form(written: object, normal: str) -> None:
    assert clean(written) == normal


def test_a_tilde_is_the_home_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    assert clean("~") == "/home/u"
    assert clean("~/.ssh/") == "/home/u/.ssh"
    monkeypatch.setenv("HOME", "u")
    with pytest.raises(InvalidPath, match="relative"):
        clean("~/.ssh")


@given(PATHS, PATHS)
def test_below_compares_components_and_not_characters(path: str, root: str) -> None:
    expected = path.split("/")[1:][: depth(root)] == (root.split("/")[1:] if root != "/" else [])
    assert below(path, root) is expected
    assert below(path, root) == (root in ancestors(path))


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidPath, match=r"write path does not exist") as caught:
        real(f"{tmp_path}/none", "write path")
    assert caught.value.path == f"{tmp_path}/none"


def test_a_loop_of_links_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InvalidPath, match="cannot be used"):
        real(f"{tmp_path}/a", "read path")
    assert len(follow(f"{tmp_path}/a")[1]) == 40


def test_following_gives_the_target_and_each_link_passed(tmp_path: Path) -> None:
    base = os.path.realpath(tmp_path)
    os.makedirs(f"{base}/data/real")
    os.symlink("data", f"{base}/one")
    os.symlink(f"{base}/one/real", f"{base}/two")
    assert follow(f"{base}/two/new/file") == (
        f"{base}/data/real/new/file",
        (f"{base}/two", f"{base}/one"),
    )


@given(st.data())
def test_following_agrees_with_the_standard_library(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    base = os.path.realpath(tmp_path_factory.mktemp("tree"))
    for name in "abc":
        target = data.draw(
            st.sampled_from(["", "a", "b/x", "../" + os.path.basename(base), "/etc"])
        )
        if target and target != name:
            os.symlink(target, f"{base}/{name}")
        else:
            os.mkdir(f"{base}/{name}")
    path = f"{base}/{data.draw(st.sampled_from(['a', 'b/c', 'c/a/b', 'none/a']))}"
    try:
        expected = os.path.realpath(path, strict=True)
    except FileNotFoundError:
        expected = os.path.realpath(path)
    except OSError:
        return  # a loop
    assert follow(path)[0] == expected
