"""Writes the JSON Schema of profiles from the classes that decode them: package data, for editors.

`python tools/profile_schema.py`. A test compares the two, so the file cannot fall behind.
"""

from __future__ import annotations

import json
from pathlib import Path

from sandbox.profile.document import json_schema

FILE = Path(__file__).resolve().parent.parent / "src/sandbox/profiles/sandbox.schema.json"


def text() -> str:
    """The whole file."""
    return json.dumps(json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
