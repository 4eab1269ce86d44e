"""Limits: what is no number is refused by name, defaults are as documented."""

from __future__ import annotations

import math
import pickle
import resource
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.rlimits import hard_limits, rlimits
from sandbox.errors import InvalidLimit
from sandbox.limits import Limits, check_seconds

WHOLE = ["cpu", "open_files", "file_size", "core", "processes", "memory", "tmp", "output"]
NUMBERS = st.none() | st.integers(4, 2**20)
LIMITS = st.builds(
    Limits,
    wall=st.none() | st.floats(0.001, 1e6),
    cpu=NUMBERS,
    open_files=NUMBERS,
    file_size=NUMBERS,
    core=NUMBERS,
    processes=NUMBERS,
    tmp=st.none() | st.integers(2**20, 2**40),
    memory=st.none() | st.integers(2**20, 2**40),
    output=st.integers(0, 2**20),
)
FIELDS = ["wall", *WHOLE]


def test_the_defaults_are_the_documented_ones() -> None:
    limits = Limits()
    assert limits.wall == 120.0
    assert (limits.output, limits.tmp) == (10 * 1024 * 1024, 2 * 1024**3)
    assert (limits.open_files, limits.core) == (4096, 0)
    assert (limits.cpu, limits.file_size, limits.processes, limits.memory) == (None,) * 4


@pytest.mark.parametrize(
    "value", [0, -1, 0.0, -0.5, math.inf, -math.inf, math.nan, 1e12, True, "5", [], 10**400]
)
def test_case_117_a_time_that_is_none_is_refused_and_named(value: Any) -> None:
    with pytest.raises(InvalidLimit) as caught:
        Limits(wall=value)
    assert caught.value.field == "wall"
    assert caught.value.value is value
    with pytest.raises(InvalidLimit, match="timeout="):
        check_seconds("timeout", value)


@pytest.mark.parametrize("value", [0.001, 1, 600, 366 * 24 * 3600])
def test_case_117_a_time_that_is_one_is_taken(value: float) -> None:
    assert Limits(wall=value).wall == value
    assert isinstance(Limits(wall=value).wall, float)


@pytest.mark.parametrize("field", WHOLE)
@pytest.mark.parametrize("value", [-1, 1.5, math.nan, math.inf, True, "7", 2**70])
def test_a_number_that_is_none_is_refused_and_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidLimit, match=field) as caught:
        Limits(**{field: value})
    assert (caught.value.field, caught.value.value) == (field, value) or value != value


@pytest.mark.parametrize("field", ["cpu", "open_files", "file_size", "processes", "memory", "tmp"])
def test_zero_is_not_no_limit(field: str) -> None:
    with pytest.raises(InvalidLimit, match=field):
        Limits(**{field: 0})
    none: dict[str, Any] = {field: None}
    assert getattr(Limits(**none), field) is None


def test_zero_means_none_where_it_can() -> None:
    assert Limits(core=0, output=0) == Limits(output=0)
    with pytest.raises(InvalidLimit, match="output"):
        Limits(output=None)  # type: ignore[arg-type]


@given(LIMITS, LIMITS)
def test_narrowing_takes_the_smaller_and_widening_the_larger(one: Limits, other: Limits) -> None:
    narrow, wide = one.narrow(other), one.widen(other)
    for field in FIELDS:
        each = [getattr(limits, field) for limits in (one, other)]
        each = [math.inf if value is None else value for value in each]
        small, large = getattr(narrow, field), getattr(wide, field)
        assert (math.inf if small is None else small) == min(each)
        assert (math.inf if large is None else large) == max(each)


def test_limits_are_values() -> None:
    limits = Limits(cpu=3)
    assert pickle.loads(pickle.dumps(limits)) == limits
    assert len({limits, Limits(cpu=3), Limits()}) == 2


def test_no_limit_is_above_the_hard_one_that_is_there_already() -> None:
    number, endless = resource.RLIMIT_NOFILE, resource.RLIM_INFINITY
    limits = Limits(open_files=4096, core=None)
    for hard, bound in ((64, 64), (8192, 4096), (endless, 4096)):
        assert rlimits(limits, {**hard_limits(), number: hard}) == ((number, bound, bound),)
    assert hard_limits()[number] == resource.getrlimit(number)[1]
