"""What the columns of a frame mean."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError
from nftsync.frames._columns import TEXT, shown, text
from nftsync.frames._explanations import NOTES
from nftsync.frames._readable import Readable

__all__ = ["explain"]

_CONTENT = (
    "name description image animation_url external_url background_color edition_id total_edition"
    " creator_name creator_image_url creator_external_page_url"
)

#: The columns of each frame, in order.
FRAMES: Final[dict[str, str]] = {
    "holdings": "wallet_id wallet_label wallet_group token_id contract_address"
    f" blockchain_token_id amount amount_text amount_float {_CONTENT} held_since"
    " balance_updated_at token_updated_at wallet_synced_at wallet_status confirmed_before"
    " confirmed_after certainty",
    "wallets": "wallet_id label wallet_group tracked first_seen_at synced_at status error",
    "tokens": f"token_id organization_id contract_address blockchain_token_id {_CONTENT} extra"
    " first_seen_at updated_at",
    "changes": "change_id wallet_id token_id old_amount old_amount_text new_amount"
    " new_amount_text observed_at baseline run_id webhook_id",
    "token_changes": "change_id token_id before after observed_at run_id webhook_id",
    "wallet_states": "wallet_id first_read_at last_read_at reads body_sha256 run_id",
    "collections": "contract_address tokens held holders amount first_seen_at updated_at",
    "runs": "run_id kind status started_at finished_at wallets_total wallets_ok"
    " wallets_unchanged wallets_failed tokens_added tokens_changed balances_added"
    " balances_changed balances_removed requests retries seconds error",
    "webhooks": "webhook_id organization_id action resource_type resource_id created_at_utc"
    " changes received_at state attempts next_attempt_at last_error finished_at deliveries run_id",
    "diff": "wallet_id wallet_label token_id contract_address name before before_text after"
    " after_text kind counterparty_wallet_id changed_at",
    "concentration": "contract_address tokens holders amount top1_share top10_share hhi gini"
    " nakamoto unknown_amounts",
    "overlap": "contract_a contract_b wallets_a wallets_b both jaccard",
    "editions": "contract_address series numbered total held share lowest highest gaps gap_ranges"
    " beyond_total holders unknown_amounts",
    "holding_ages": "wallet_id wallet_label token_id contract_address name amount held_since age"
    " bucket censored",
    "quality": "token_id contract_address name field reason value",
    "freshness": "what count at age detail",
}


def explain(name: str | Callable[..., pd.DataFrame] | None = None) -> pd.DataFrame:
    """What each column of a frame means, its unit, and where it comes from.

    Args:
        name: a function of `nftsync.frames` that returns a frame, by name, such as `holdings`, or
            itself; None lists them all.

    Returns:
        A row per column of that frame, in its order: `column`, `type` (in pandas; `object` are
        exact Python integers), `unit`, `meaning`, `source` (section and field of the provider's
        document, or how nftsync came to it). Columns that only some calls return say so. Of
        `concentration`, the first column is the one that `by` names. Without a name, a row per
        frame: `name` and `columns` (how many).

    Raises:
        InputError: there is no such frame; near names are given. Or it is no name, but a frame.
    """
    if name is None:
        counts = [len(columns.split()) for columns in FRAMES.values()]
        return Readable.of({"name": text(pa.array(list(FRAMES), TEXT)), "columns": counts})
    name = _checked(name)
    columns = FRAMES[name].split()
    notes = [NOTES.get(f"{name}.{column}") or NOTES[column] for column in columns]
    told = {
        "column": columns,
        "type": [note.type for note in notes],
        "unit": [note.unit for note in notes],
        "meaning": [note.meaning for note in notes],
        "source": [note.source for note in notes],
    }
    return Readable.of({key: text(pa.array(values, TEXT)) for key, values in told.items()})


def _checked(name: object) -> str:
    if callable(name):
        name = getattr(name, "__name__", name)
    if not isinstance(name, str):
        raise InputError(
            f"{shown(name)} is not the name of a frame; give the name of the function that returns"
            " it, as in frames.explain('holdings')"
        )
    if name not in FRAMES:
        near = get_close_matches(name, FRAMES, n=2)
        instead = f"; near ones are {', '.join(map(repr, near))}" if near else ""
        raise InputError(
            f"there is no frame {shown(name)} to explain{instead}; frames.explain() lists all"
        )
    return name
