"""One byte string for equal records: what hashes and comparisons of specs are made of."""

from __future__ import annotations

import hashlib
import json


def canonical_json(record: object) -> bytes:
    """The one JSON text of a record; its SHA-256 is a study's `spec_hash`."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=True).encode()


def sha256(record: object) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(record)).hexdigest()
