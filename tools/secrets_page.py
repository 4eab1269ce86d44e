"""Writes docs/secrets.md from the table in `sandbox.secrets`: `python tools/secrets_page.py`.

A test compares the two, so the page cannot fall behind.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.secrets import MACHINE, SECRETS, Secret

PAGE = Path(__file__).resolve().parent.parent / "docs" / "secrets.md"
HEAD = """# Places of secrets

What a command prints goes to a model, so these are not readable under `read_only` and
`workspace_write`. A person allows one by its name, `policy.allow_secret("npm")` or
`sandbox run --allow-secret npm`, or by a path in it; `"*"` allows all.

Written by `tools/secrets_page.py` from `sandbox.secrets`.
"""


def rows(table: tuple[Secret, ...], prefix: str) -> list[str]:
    """A table of places, one line each, in the order of their names."""
    lines = ["| name | place | why |", "|---|---|---|"]
    for row in sorted(table, key=lambda row: (row.name, row.path)):
        system = "" if row.system == "any" else f" ({row.system})"
        lines.append(f"| {row.name} | `{prefix}{row.path}`{system} | {row.reason} |")
    return lines


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## In HOME\n", *rows(SECRETS, "~/"), "\n## On the machine\n"]
    parts += [*rows(MACHINE, "/"), ""]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
