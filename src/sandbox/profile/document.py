"""What a profile's file may hold. The classes are the truth: decoder and JSON Schema come of them.

A key that is not there says nothing, so there are no defaults here: the layers below have them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from sandbox.environ import Inherit
from sandbox.parts import PARTS
from sandbox.policy import Isolation, Network
from sandbox.profile.values import ApprovalMode, Mode

__all__ = ["PART", "PATTERNS", "Document", "json_schema"]

_SCHEMA = "https://json-schema.org/draft/2020-12/schema"
_PLACE = r"^(/|~(/|$)|:(root|workspace|tmp|minimal)$)"
_BELOW = r"^[^/]"
_SIZE = r"^([0-9]+[KMGkmg]?|none)$"
PART = f"^({'|'.join(PARTS)})$"

# What is said to whoever wrote something that does not match.
PATTERNS = {
    _PLACE: "is no place: '/...', '~/...', ':root', ':workspace', ':tmp' or ':minimal'",
    _BELOW: "begins with '/': in a sub-table paths are below its own",
    _SIZE: "is no size: a number of bytes, one with K, M or G behind it, or 'none'",
    PART: "is no part of a policy that can be weaker (sandbox.parts)",
}

Word = Annotated[str, Meta(min_length=1)]
Words = tuple[Word, ...]
Access = Literal["read", "write", "deny"]
Place = Annotated[str, Meta(pattern=_PLACE)]
Below = Annotated[str, Meta(pattern=_BELOW)]
Count = Annotated[int, Meta(ge=0)] | Literal["none"]
Size = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=_SIZE)]
Seconds = Annotated[float, Meta(gt=0)] | Literal["none"]
Part = Annotated[str, Meta(pattern=PART)]


class NetworkTable(Struct, frozen=True, forbid_unknown_fields=True):
    """What is reached: the network, and Unix sockets of the host by path."""

    access: Network | UnsetType = UNSET
    unix_sockets: Words | UnsetType = UNSET


class EnvironmentTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Which variables are inherited, by name or pattern, and values of one's own."""

    inherit: Inherit | UnsetType = UNSET
    include: Words | UnsetType = UNSET
    exclude: Words | UnsetType = UNSET
    only: Words | UnsetType = UNSET
    allow: Words | UnsetType = UNSET
    set: dict[Word, str] | UnsetType = UNSET


class LimitsTable(Struct, frozen=True, forbid_unknown_fields=True):
    """What one command may use up; "none" is no limit."""

    wall: Seconds | UnsetType = UNSET
    cpu: Count | UnsetType = UNSET
    open_files: Count | UnsetType = UNSET
    processes: Count | UnsetType = UNSET
    file_size: Size | UnsetType = UNSET
    core: Size | UnsetType = UNSET
    memory: Size | UnsetType = UNSET
    tmp: Size | UnsetType = UNSET
    output: Size | UnsetType = UNSET


class IsolationTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The weakest isolation that is acceptable, and the parts that may be enforced less."""

    minimum: Isolation | UnsetType = UNSET
    accept: tuple[Part, ...] | UnsetType = UNSET


class ApprovalTable(Struct, frozen=True, forbid_unknown_fields=True):
    """When to ask, and whether a command may be retried with no sandbox after approval."""

    mode: ApprovalMode | UnsetType = UNSET
    unsandboxed: bool | UnsetType = UNSET


class RuleTable(Struct, frozen=True, forbid_unknown_fields=True):
    """What is done with commands that begin with these words; the strictest rule wins."""

    prefix: Annotated[Words, Meta(min_length=1)]
    decision: Literal["allow", "ask", "forbid"]
    justification: Word
    match: Words | UnsetType = UNSET
    not_match: Words | UnsetType = UNSET


class TrustTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Projects whose own sandbox.toml may allow more. Only in a user's file."""

    projects: Words | UnsetType = UNSET


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    """A profile: what it says comes on top of what it extends and of the layers below."""

    description: str | UnsetType = UNSET
    extends: Word | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET
    allow_secrets: Words | UnsetType = UNSET
    protected: Words | UnsetType = UNSET
    filesystem: dict[Place, Access | dict[Below, Access]] | UnsetType = UNSET
    network: NetworkTable | UnsetType = UNSET
    environment: EnvironmentTable | UnsetType = UNSET
    limits: LimitsTable | UnsetType = UNSET
    isolation: IsolationTable | UnsetType = UNSET
    approval: ApprovalTable | UnsetType = UNSET
    rules: tuple[RuleTable, ...] | UnsetType = UNSET
    trust: TrustTable | UnsetType = UNSET


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a profile, for editors and other tools."""
    return {"$schema": _SCHEMA, "title": "sandbox.toml", **msgspec.json.schema(Document)}
