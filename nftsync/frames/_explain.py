"""What the columns of a frame mean."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, NamedTuple

import pandas as pd
import pyarrow as pa

from nftsync.errors import InputError
from nftsync.frames._columns import TEXT, shown, text
from nftsync.frames._holdings import Readable

__all__ = ["NOTES", "Note", "explain"]


_BALANCE = "provider's document, NFT token balance: "
_RECORD = "provider's document, Token: "
_METADATA = "provider's document, TokenMetadata: "
_WEBHOOK = "provider's document, Webhook: "
_MIRROR = "nftsync: "

_STR, _TIME, _EXACT = "str", "datetime64[us, UTC]", "object"
_INT, _COUNT, _REAL, _BOOL = "Int64", "int64", "float64", "bool"


class Note(NamedTuple):
    """What a column is.

    Attributes:
        type: its type in pandas.
        unit: what is counted or measured; blank for a name or text.
        meaning: what it says.
        source: the section and field of the provider's document, or how nftsync came to it.
    """

    type: str
    unit: str
    meaning: str
    source: str


def _text(meaning: str, source: str, unit: str = "") -> Note:
    return Note(_STR, unit, meaning, source)


def _id(meaning: str, source: str) -> Note:
    return Note(_STR, "UUID", meaning, source)


def _time(meaning: str, how: str) -> Note:
    return Note(_TIME, "UTC", meaning, _MIRROR + how)


def _count(unit: str, meaning: str, how: str) -> Note:
    return Note(_COUNT, unit, meaning, _MIRROR + how)


def _share(meaning: str, how: str) -> Note:
    return Note(_REAL, "0 to 1", meaning, _MIRROR + how)


_AS_SENT = "as the provider sent it"
_LOGGED = "when the read that found it was stored; never decreases"
_COUNTED = "counted in the frame or database that was given"
_LEDGER = "the run's own count"
_PERSON = "the wallets file, or `nftsync wallets label`"
_NOT_ITS_OWN = "the row of `wallets`, as it is today"

#: By column, or by `frame.column` where a frame means something else by it.
NOTES: Final[dict[str, Note]] = {
    "wallet_id": _id("the wallet", "provider's document, GET nft-balances: walletId"),
    "wallet_label": _text("a name of the wallet for people", _MIRROR + _PERSON),
    "label": _text("a name of the wallet for people", _MIRROR + _PERSON),
    "wallet_group": _text("a group of wallets for people", _MIRROR + "the wallets file"),
    "token_id": _id("the token", f"{_BALANCE}tokenId, {_RECORD}id"),
    "organization_id": _id("the organization that owns the token", f"{_RECORD}organizationId"),
    "contract_address": _text(
        "the token's contract; `0x` and 40 hex digits are one whatever their case",
        f"{_RECORD}contractAddress",
    ),
    "blockchain_token_id": _text(
        "the token's id on the chain; text, as it may be too long for a number",
        f"{_RECORD}blockchainTokenId",
    ),
    "amount": Note(
        _EXACT,
        "tokens",
        "how much is held, exact; None: not 1 to 100 ASCII digits",
        f"{_BALANCE}amount",
    ),
    "amount_text": _text(f"how much is held, {_AS_SENT}", f"{_BALANCE}amount", "tokens"),
    "amount_float": Note(
        _REAL, "tokens", "how much is held, about; for plots, never for sums", f"{_BALANCE}amount"
    ),
    "name": _text("the token's name", f"{_METADATA}name"),
    "description": _text("the token's description", f"{_METADATA}description"),
    "image": _text("address of its image", f"{_METADATA}image", "URL"),
    "animation_url": _text("address of a film, sound or page", f"{_METADATA}animationUrl", "URL"),
    "external_url": _text("address of a page about it", f"{_METADATA}externalUrl", "URL"),
    "background_color": _text(
        "a color; the document does not say how it is written", f"{_METADATA}backgroundColor"
    ),
    "edition_id": Note(
        _INT,
        "",
        "the token's number within its series; 0 is as good as any",
        f"{_METADATA}editionId",
    ),
    "total_edition": Note(
        _INT, "tokens", "how many the series has, as claimed", f"{_METADATA}totalEdition"
    ),
    "creator_name": _text("who made it, as claimed", f"{_METADATA}creatorName"),
    "creator_image_url": _text(
        "address of the maker's image", f"{_METADATA}creatorImageUrl", "URL"
    ),
    "creator_external_page_url": _text(
        "address of the maker's page", f"{_METADATA}creatorExternalPageUrl", "URL"
    ),
    "extra": _text(
        "every field without a column, and values of a wrong type, as a JSON object; metadata's "
        "under `metadata`",
        "provider's document, Token and TokenMetadata: fields beyond those shown",
        "JSON",
    ),
    "held_since": _time(
        "start of the present stretch of amounts above zero; NaT: none is held",
        "when the change that began it was stored",
    ),
    "balance_updated_at": _time("when the amount last changed", _LOGGED),
    "token_updated_at": _time("when the token's metadata last changed", _LOGGED),
    "wallet_synced_at": _time(
        "start of the wallet's last complete read; with `as_of`, as `confirmed_before`",
        "the clock when the request was sent",
    ),
    "wallet_status": _text(
        "how the last read went: never, ok, incomplete or failed", _MIRROR + _NOT_ITS_OWN
    ),
    "confirmed_before": _time(
        "only with `as_of`: the read before that time that shows this state", "wallet_states"
    ),
    "confirmed_after": _time(
        "only with `as_of`: the read after that time; NaT: none yet", "wallet_states"
    ),
    "certainty": _text(
        "only with `as_of`: bracketed (the same was read before and after), gap (it changed in "
        "between) or open (no read since)",
        _MIRROR + "wallet_states",
    ),
    "tracked": Note(_BOOL, "", "whether syncs read the wallet", _MIRROR + "`nftsync wallets`"),
    "first_seen_at": _time("when it became known", "when it was first stored"),
    "synced_at": _time("start of the last complete read", "the clock when the request was sent"),
    "status": _text(
        "how the last read went: never, ok, incomplete or failed", _MIRROR + "the last read"
    ),
    "error": _text("why it failed or is incomplete; missing: neither", _MIRROR + "the last read"),
    "updated_at": _time("when the metadata last changed", _LOGGED),
    "change_id": _count("", "number of the change; grows", "given when it was stored"),
    "old_amount": Note(
        _EXACT,
        "tokens",
        "how much was held before, exact; None: not listed, or no whole number",
        f"{_BALANCE}amount",
    ),
    "old_amount_text": _text(
        f"the same, {_AS_SENT}; missing: was not listed", f"{_BALANCE}amount", "tokens"
    ),
    "new_amount": Note(
        _EXACT,
        "tokens",
        "how much is held since, exact; None: not listed, or no whole number",
        f"{_BALANCE}amount",
    ),
    "new_amount_text": _text(
        f"the same, {_AS_SENT}; missing: no longer listed", f"{_BALANCE}amount", "tokens"
    ),
    "observed_at": _time("when the change was seen, at the latest", _LOGGED),
    "baseline": Note(
        _BOOL,
        "",
        "whether it comes of the wallet's first read, so is nothing that happened then",
        _MIRROR + "the first read of the wallet that was stored",
    ),
    "run_id": Note(_INT, "", "the run whose read found it", _MIRROR + "row of sync_runs"),
    "webhook_id": _id(
        "one of the webhooks that caused the read; missing: a sync did", f"{_WEBHOOK}id"
    ),
    "token_changes.before": _text(
        "the columns that changed, as they were", f"{_MIRROR}compared with the read before", "JSON"
    ),
    "token_changes.after": _text(
        "the columns that changed, as they became",
        f"{_MIRROR}compared with the read before",
        "JSON",
    ),
    "first_read_at": _time("first read that found this state", "the clock when it was sent"),
    "last_read_at": _time("last read that found the same", "the clock when it was sent"),
    "reads": _count("reads", "how many reads found this state", "counted as they were stored"),
    "body_sha256": _text(
        "digest of the first of those answers", _MIRROR + "SHA-256 of the body", "hex"
    ),
    "tokens": _count("tokens", "distinct tokens that are held", _COUNTED),
    "collections.tokens": _count("tokens", "tokens of the contract that are known", "table tokens"),
    "held": _count(
        "tokens", "of those, how many a wallet holds more than zero of", "table balances"
    ),
    "holders": _count("wallets", "wallets that hold more than zero of one", _COUNTED),
    "collections.amount": Note(
        _EXACT,
        "tokens",
        "all amounts together, exact; what is no whole number is left out",
        f"sum of {_BALANCE}amount",
    ),
    "collections.first_seen_at": _time("when its first token became known", "table tokens"),
    "collections.updated_at": _time("the latest change of a token's metadata", "table tokens"),
    "runs.run_id": _count("", "number of the run; grows", "given when it began"),
    "kind": _text("sync or replay", _MIRROR + "the command that ran"),
    "runs.status": _text(
        "running, ok, partial (some failed or were incomplete), failed or interrupted",
        _MIRROR + "how it ended; running may also mean that it was killed",
    ),
    "started_at": _time("when the run began", "the clock"),
    "finished_at": _time("when it ended; NaT: it has not", "the clock"),
    "wallets_total": _count("wallets", "how many the run was to read", _LEDGER),
    "wallets_ok": _count("wallets", "read wholly", _LEDGER),
    "wallets_unchanged": _count("wallets", "of those, with nothing new", _LEDGER),
    "wallets_failed": _count("wallets", "not read, or not wholly", _LEDGER),
    "tokens_added": _count("tokens", "seen for the first time", _LEDGER),
    "tokens_changed": _count("tokens", "whose metadata changed", _LEDGER),
    "balances_added": _count("balances", "newly listed", _LEDGER),
    "balances_changed": _count("balances", "listed with another amount", _LEDGER),
    "balances_removed": _count("balances", "no longer listed", _LEDGER),
    "requests": _count("requests", "HTTP requests, retries included", _LEDGER),
    "retries": _count("requests", "of those, repeats", _LEDGER),
    "seconds": Note(_REAL, "seconds", "how long it took", _MIRROR + "the clock"),
    "runs.error": _text("why the whole run ended early; missing: it did not", _MIRROR + _LEDGER),
    "webhooks.webhook_id": _id(
        "the webhook; of a quarantined one `q-` and a digest", f"{_WEBHOOK}id"
    ),
    "webhooks.organization_id": _id("the organization it was sent to", f"{_WEBHOOK}organizationId"),
    "action": _text("what happened to the object", f"{_WEBHOOK}action"),
    "resource_type": _text("the kind of the object", f"{_WEBHOOK}resourceType"),
    "resource_id": _id("the object", f"{_WEBHOOK}resourceId"),
    "created_at_utc": _text(f"when the provider made it, {_AS_SENT}", f"{_WEBHOOK}createdAtUtc"),
    "changes": _text(
        "what changed, if the provider says; a hint, never taken for a fact",
        f"{_WEBHOOK}changes",
        "JSON",
    ),
    "received_at": _time("when it first came", "the receiver's clock"),
    "state": _text(
        "pending, running, done, failed (tried again), dead (attempts used up), unrouted or "
        "quarantined",
        _MIRROR + "replay decides",
    ),
    "attempts": _count("attempts", "reads that failed because of its object", "counted by replay"),
    "next_attempt_at": _time("when it is due; NaT: not any more", "set by replay"),
    "last_error": _text(
        "why the last attempt failed, or why it is quarantined", _MIRROR + "replay, or the receiver"
    ),
    "webhooks.finished_at": _time("when it was settled", "the clock"),
    "deliveries": _count("deliveries", "how often it came", "counted by the receiver"),
    "webhooks.run_id": Note(_INT, "", "the run that settled it", _MIRROR + "row of sync_runs"),
    "diff.name": _text("the token's name at `end`", f"{_METADATA}name"),
    "diff.before": Note(
        _EXACT,
        "tokens",
        "held at `start`, exact; None: nothing, or no whole number",
        f"{_BALANCE}amount",
    ),
    "before_text": _text(
        f"listed at `start`, {_AS_SENT}; missing: not listed", f"{_BALANCE}amount", "tokens"
    ),
    "diff.after": Note(
        _EXACT,
        "tokens",
        "held at `end`, exact; None: nothing, or no whole number",
        f"{_BALANCE}amount",
    ),
    "after_text": _text(
        f"listed at `end`, {_AS_SENT}; missing: not listed", f"{_BALANCE}amount", "tokens"
    ),
    "diff.kind": _text(
        "arrived, first_seen (by the wallet's first read, so nobody knows since when), left or "
        "changed",
        _MIRROR + "the change log between the two times",
    ),
    "counterparty_wallet_id": _id(
        "the only other wallet whose amount of the token moved by just as much the other way",
        _MIRROR + "inferred; the provider's document names no transfers",
    ),
    "changed_at": _time("the last change until `end`", _LOGGED),
    "concentration.amount": Note(
        _EXACT, "tokens", "all that the holders have, exact", f"sum of {_BALANCE}amount"
    ),
    "top1_share": _share("what the greatest holder has of the amount", "integers, divided once"),
    "top10_share": _share("what the ten greatest have of the amount", "integers, divided once"),
    "hhi": _share(
        "Herfindahl-Hirschman index: sum of the squared shares", "integers, divided once"
    ),
    "gini": _share(
        "Gini coefficient of the n holders' amounts x, ascending: 2Σi·xᵢ/(nΣx) − (n+1)/n",
        "integers, divided once",
    ),
    "nakamoto": Note(
        _INT,
        "wallets",
        "Nakamoto coefficient: fewest holders with more than half",
        _MIRROR + _COUNTED,
    ),
    "unknown_amounts": _count("holdings", "holdings whose amount is no whole number", _COUNTED),
    "contract_a": _text("one contract, the lesser text", f"{_RECORD}contractAddress"),
    "contract_b": _text("the other", f"{_RECORD}contractAddress"),
    "wallets_a": _count("wallets", "holders of the one", _COUNTED),
    "wallets_b": _count("wallets", "holders of the other", _COUNTED),
    "both": _count("wallets", "holders of both", _COUNTED),
    "jaccard": _share("Jaccard index: `both` over the holders of at least one", "divided once"),
    "series": _text("the common name, without the token's own number", f"{_METADATA}name"),
    "numbered": Note(_BOOL, "", "whether its tokens have edition numbers", f"{_METADATA}editionId"),
    "total": Note(
        _INT, "tokens", "how many the series has, as claimed", f"{_METADATA}totalEdition"
    ),
    "editions.held": Note(
        _EXACT,
        "tokens",
        "distinct numbers held; where there are none, the exact sum of amounts",
        _MIRROR + _COUNTED,
    ),
    "share": Note(_REAL, "over 1 is possible", "`held` over `total`", _MIRROR + "divided once"),
    "lowest": Note(_INT, "", "the least number held", f"{_METADATA}editionId"),
    "highest": Note(_INT, "", "the greatest number held", f"{_METADATA}editionId"),
    "gaps": Note(_INT, "tokens", "numbers between those two that are not held", _MIRROR + _COUNTED),
    "gap_ranges": _text(
        "those numbers, as `3-5, 9`, cut off at 200 characters", _MIRROR + _COUNTED
    ),
    "beyond_total": Note(
        _INT, "tokens", "held numbers that the total cannot have", _MIRROR + _COUNTED
    ),
    "age": Note(
        "timedelta64[us]",
        "time",
        "from `held_since` until now, or until `at`",
        _MIRROR + "the difference",
    ),
    "bucket": Note(
        "category",
        "",
        "the age's group: under a day, a week, a month (30 days), 3 months (91), "
        "a year (365), or more; in this order",
        _MIRROR + "from `age`",
    ),
    "censored": Note(
        _BOOL,
        "",
        "held since before the wallet's first read: the age is a least one",
        _MIRROR + "the change that began the stretch was of the wallet's first read",
    ),
    "field": _text(
        "the field that is missing or broken", "provider's document, Token and TokenMetadata"
    ),
    "reason": _text("what is wrong with it", _MIRROR + "see the documentation of frames.quality"),
    "value": _text("what stands there, its first 200 characters", f"{_MIRROR}{_AS_SENT}"),
    "what": _text("what the line is about", _MIRROR + "see the documentation of frames.freshness"),
    "count": Note(_INT, "runs: wallets; else what is named", "how many", _MIRROR + _COUNTED),
    "at": _time(
        "when it ended, was last read, or came; of several the oldest", "see frames.freshness"
    ),
    "freshness.age": Note(
        "timedelta64[us]", "time", "from `at` until now, whole seconds", _MIRROR + "the difference"
    ),
    "detail": _text("run, wallets or errors, in short", _MIRROR + "see frames.freshness"),
}


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
