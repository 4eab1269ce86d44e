"""The fuzz programs of tests/fuzz, in short: seeds and mutations under ASan and UBSan."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import TESTS

sys.path.insert(0, str(TESTS / "fuzz"))

import fuzzing
import seeds

# A check in what each of these programs calls, which must find that it is missing.
CHECKS = {
    "blob": ("core/policy.c", "path < view->header->string_bytes &&", ""),
    "request": ("core/wire.c", "cursor < end", "cursor <= end"),
    "reply": (
        "core/packet.c",
        "CMSG_LEN(sizeof(int32_t) * max)",
        "CMSG_SPACE(sizeof(int32_t) * max)",
    ),
    "file": ("launcher/file.c", "span->size <= header->size - span->at", "1"),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("seeds")
    seeds.write_all(out)
    return out


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("programs")
    fuzzing.build(fuzzing.PROGRAMS, out)
    return out


@pytest.mark.parametrize("program", fuzzing.PROGRAMS)
def test_no_mutation_of_what_is_said_makes_its_reader_err(
    program: str, built: Path, inputs: Path
) -> None:
    files = sorted((inputs / program).iterdir())
    assert files
    assert fuzzing.run(built / program, 5_000 // len(files), files) == ""


@pytest.mark.parametrize("program", CHECKS)
def test_a_check_that_is_left_out_is_missed(
    program: str, built: Path, tmp_path: Path, inputs: Path
) -> None:
    name, check, instead = CHECKS[program]
    text = (fuzzing.SOURCES / name).read_text()
    assert text.count(check) == 1
    changed = tmp_path / Path(name).name
    changed.write_text(text.replace(check, instead))
    fuzzing.link(program, tmp_path / program, built / fuzzing.LIBRARY, instead=[changed])
    files = sorted((inputs / program).iterdir())
    assert fuzzing.run(tmp_path / program, 5_000, files) != ""
