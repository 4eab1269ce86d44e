"""The compiled core: spawns and confines commands, without any opinion about policy.

The names here are the whole public surface; how they behave stands in `__init__.pyi`.
"""

from __future__ import annotations

try:
    import _sandcore._core as _core  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "_sandcore._core":
        raise
    raise ImportError(
        "_sandcore is not compiled (it exists on Linux only): "
        "run `make build` in the checkout, or `pip install .`"
    ) from None

__all__: list[str] = []
