"""Where the C header for other extensions is: asked when they are built."""

from __future__ import annotations

import os

from sandbox.errors import Unavailable

__all__ = ["get_include"]


def get_include() -> str:
    """The directory of ``sandcore.h`` and ``sandcore.pxd``, for a compiler's include path.

    Raises ``Unavailable`` where the core is not installed.
    """
    from importlib.util import find_spec  # not with every `import sandbox`

    found = find_spec("_sandcore")
    if found is None or found.origin is None:
        raise Unavailable("the compiled core", "it is not installed", "pip install sandcore")
    return os.path.join(os.path.dirname(found.origin), "include")
