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

    Transfers are inferred. Beyond the pairs that `diff` tells, they are those of one wallet with
    several: what it lost of a token is what they gained in all, or the other way round, and no
    other of the rows is of that token. Where several lost and several gained, nobody can tell.

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
    rows = list(diff[[*_NEEDS, *_NEEDS_TOO]].itertuples(index=False))
    amounts = [_moved(row) for row in rows]
    shared, stood_for = _shared(rows, amounts)
    lines: dict[object, dict[str, Any]] = {}
    for place, (row, (amount, gained)) in enumerate(zip(rows, amounts, strict=True)):
        if place in stood_for:
            continue
        own = _called(row.wallet_label, row.wallet_id)
        other = _counterparty(row) or shared.get(place)
        ends = {"from": other, "to": own} if gained else {"from": own, "to": other}
        what = "transfer" if other is not None else row.kind.replace("_", " ")
        if what == "changed" and amount is not None:
            what = "arrived" if gained else "left"
        # Of the two rows of a transfer the later one stays.
        pair = frozenset((row.wallet_id, row.counterparty_wallet_id))
        key = place if place in shared or other is None else (row.token_id, pair, amount)
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
    return abs(int(after) - int(before)), bool(after > before)


def _shared(
    rows: list[Any], amounts: list[tuple[int | None, bool]]
) -> tuple[dict[int, str], set[int]]:
    """Find what one wallet gave to several, or several gave to one, of a token.

    What it lost is then the sum of what they gained (or the other way round), and nobody else lost
    or gained any: each of theirs is a transfer, and its own row says nothing beyond them.

    Returns:
        The one wallet, by the places of the rows of the several; and the places of its rows.
    """
    sides: dict[str, tuple[list[int], list[int]]] = {}
    for place, (row, (amount, gained)) in enumerate(zip(rows, amounts, strict=True)):
        if row.kind != "first_seen" and amount is not None and _counterparty(row) is None:
            sides.setdefault(row.token_id, ([], []))[gained].append(place)
    shared: dict[int, str] = {}
    stood_for: set[int] = set()
    for both in sides.values():
        few, several = sorted(both, key=len)
        if len(few) == 1 and amounts[few[0]][0] == sum(amounts[each][0] or 0 for each in several):
            one = rows[few[0]]
            shared |= dict.fromkeys(several, _called(one.wallet_label, one.wallet_id) or "")
            stood_for.add(few[0])
    return shared, stood_for


def _counterparty(row: Any) -> str | None:
    return _called(row.counterparty_label, row.counterparty_wallet_id)


def _called(label: Any, wallet_id: Any) -> str | None:
    """A wallet's label, else its id."""
    if isinstance(label, str) and label.strip():
        return label
    return wallet_id if isinstance(wallet_id, str) else None


def captions(moved: pd.DataFrame) -> list[list[str]]:
    """What to say of each line of `moves` below a picture: `from Auctions`, `to Treasury`."""
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
    return [list(filter(None, both)) for both in zip(*sides, strict=True)]
