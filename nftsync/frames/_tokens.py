"""Tokens as they are, or as they were known at a time."""

from __future__ import annotations

import pandas as pd

from nftsync.columnar.source import Store
from nftsync.columnar.times import Moment
from nftsync.columnar.tokens import read_token_frame


def tokens(
    db: Store = None, as_of: Moment | None = None, *, contract: str | None = None
) -> pd.DataFrame:
    """Return the tokens that were ever seen, held or not, in the order they were first seen.

    Args:
        db: what to read, as `nftsync.frames` tells.
        as_of: only tokens that were known at this time, with the metadata known then;
            `updated_at` is the last change until then. Text, a date (its end) or a datetime.
        contract: only tokens of this contract.

    Returns:
        A row per token: `token_id`, `organization_id`, `contract_address` (as sent), `contract`
        (the same in one spelling, to group by), `collection` (what the contract is called today,
        else its short address), `blockchain_token_id`, `name` to `creator_external_page_url`,
        `extra` (JSON text), `first_seen_at`, `updated_at`. `edition_id` and `total_edition` are
        `Int64`.

    Raises:
        InputError: `as_of` is no time, there is no such contract, or `db` is neither a path nor a
            connection.
    """
    return read_token_frame(db, as_of, contract=contract)
