"""What moved between two times, a transfer in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nftsync.frames._given import need_columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["captions", "moves"]

_NEEDS = ("wallet_id", "wallet_label", "token_id", "before", "after", "kind")
_NEEDS_TOO = ("counterparty_wallet_id", "counterparty_label", "changed_at")


def moves(diff: pd.DataFrame) -> pd.DataFrame:
    """What a comparison of two times says, for eyes: a transfer between two wallets is one line.

    Args:
        diff: as `frames.diff` returns it, all rows or some of them.

    Returns:
        The newest first: `changed_at`, the columns of `diff` that name the NFT, `amount` (how much
        moved, exact), `from` and `to` (label, else id; missing: no wallet that is known, or
        nobody can tell) and `what`: `transfer`, `arrived`, `left`, `changed` (amounts that are no
        numbers) or `first seen` (by the wallet's first read, so it is no arrival).

    Raises:
        InputError: a column is missing.
    """
    import pandas as pd

    need_columns(diff, (*_NEEDS, *_NEEDS_TOO), "frames.diff")
    lines: dict[object, dict[str, Any]] = {}
    for place, row in enumerate(diff[[*_NEEDS, *_NEEDS_TOO]].itertuples(index=False)):
        amount, gained = _moved(row)
        own = _called(row.wallet_label, row.wallet_id)
        other = _called(row.counterparty_label, row.counterparty_wallet_id)
        ends = {"from": other, "to": own} if gained else {"from": own, "to": other}
        what = "transfer" if other is not None else row.kind.replace("_", " ")
        if what == "changed" and amount is not None:
            what = "arrived" if gained else "left"
        # Of the two rows of a transfer the later one stays.
        pair = frozenset((row.wallet_id, row.counterparty_wallet_id))
        key = place if other is None else (row.token_id, pair, ends["to"], amount)
        lines[key] = {"place": place, "amount": amount, **ends, "what": what}
    table = pd.DataFrame(
        list(lines.values()), columns=["place", "amount", "from", "to", "what"], dtype=object
    )
    table = table.sort_values("place", ascending=False, ignore_index=True)
    named = [each for each in _NAMING if each in diff.columns]
    return pd.concat(
        [
            diff[["changed_at", *named]].iloc[table["place"].astype(int)].reset_index(drop=True),
            table.drop(columns="place"),
        ],
        axis="columns",
    )


#: What may say which NFT it is.
_NAMING = ("name", "token_id", "collection", "contract")


def _moved(row: Any) -> tuple[int | None, bool]:
    """How much moved, and whether the wallet gained it."""
    import pandas as pd

    before = 0 if row.kind in {"arrived", "first_seen"} else row.before
    after = 0 if row.kind == "left" else row.after
    if pd.isna(before) or pd.isna(after):
        return None, row.kind != "left"
    return abs(int(after) - int(before)), after > before


def _called(label: Any, wallet_id: Any) -> str | None:
    """A wallet's label, else its id."""
    if isinstance(label, str) and label.strip():
        return label
    return wallet_id if isinstance(wallet_id, str) else None


def captions(moved: pd.DataFrame) -> list[str]:
    """What to say of each line of `moves` below a picture: `from Auctions to Treasury`."""
    from nftsync.frames import brief

    shown, known = brief(moved[["from", "to"]]), moved[["from", "to"]].notna()
    sides = [
        [
            f"{side} {name}" if there else ""
            for name, there in zip(shown[side], known[side], strict=True)
        ]
        for side in ("from", "to")
        if side in shown.columns
    ]
    return [" ".join(filter(None, both)) for both in zip(*sides, strict=True)]
