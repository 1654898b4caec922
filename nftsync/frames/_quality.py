"""Data quality: missing or broken metadata, and unusable amounts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.columnar.columns import INTEGER, TEXT, coded, flags, frame_of, text
from nftsync.columnar.filters import filters_of, one_of
from nftsync.columnar.hidden import hidden_rows, marked
from nftsync.columnar.source import Numbers, Store, positions, reading
from nftsync.columnar.tokens import MADE_COLUMNS, Tokens, read_tokens
from nftsync.exact_sum import NOT_EXACT
from nftsync.provider.images import Images, origin
from nftsync.records import CONTENT_COLUMNS, FIELD_PATHS, INTEGER_COLUMNS

_INTEGER = re.compile(rb"-?[0-9]+")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


#: Columns by the provider's field names.
_COLUMNS = {path: name for name, path in FIELD_PATHS.items()}
_TOKEN = {"id": "id", "token": "token"} | {x: y for x, y in _COLUMNS.items() if "." not in x}
_METADATA = {path.partition(".")[2]: name for path, name in _COLUMNS.items() if "." in path}
#: Matches every `extra` with a problem, and few others.
_SUSPICIOUS = rf'"(?:{"|".join([*_TOKEN, *_METADATA])})":|"metadata":[^{{]|\A[^{{]'


def _extra_problems(extra: pa.Array) -> Iterator[tuple[int, str, str, str]]:
    for row in np.flatnonzero(flags(pc.match_substring_regex(extra, _SUSPICIOUS))).tolist():
        for problem in _record_problems(extra[row].as_py()):
            yield row, *problem


def _record_problems(text: str) -> Iterator[tuple[str, str, str]]:
    try:
        fields = _object.decode(text)
    except msgspec.DecodeError:
        yield "extra", "not a JSON object", text
        return
    metadata = fields.get("metadata", msgspec.Raw(b"{}"))
    if bytes(metadata)[:1] != b"{":
        yield "metadata", "wrong type", bytes(metadata).decode()
        metadata = msgspec.Raw(b"{}")
    inner = _object.decode(metadata)
    for names, values in ((_TOKEN, fields), (_METADATA, inner)):
        for shown, name in names.items():
            if shown in values:
                raw = bytes(values[shown])
                yield name, _reason(name, raw), raw.decode()


def _reason(name: str, raw: bytes) -> str:
    if name in INTEGER_COLUMNS and _INTEGER.fullmatch(raw):
        return "too large"
    if name == "id" and raw[:1] == b'"':
        return "another token's id"
    return "wrong type"


#: Addresses of media, and links to pages.
_ADDRESSES: Final = ("image", "animation_url", "creator_image_url")
_PAGES: Final = ("external_url", "creator_external_page_url")

#: Most addresses have these forms, which are valid without a full check.
_PLAIN_URL = r"\Ahttps://(?:[a-z0-9-]{1,50}\.){1,3}[a-z]{2,50}(?:/[A-Za-z0-9._~/-]{0,1000})?\z"
_PLAIN_IPFS = (
    r"\Aipfs://(?:Qm[1-9A-HJ-NP-Za-km-z]{44}|b[a-z2-7]{58})"
    r"(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,250}){0,3}/?\z"
)
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}]"
_LINE_ENDS = r"[\t\n\r]"
_DIRECTION = r"[\x{202a}-\x{202e}\x{2066}-\x{2069}]"
_HTTP = re.compile("http:", re.IGNORECASE)
_HTTPS = re.compile("https?:", re.IGNORECASE)


def _problems(
    rows: Numbers, field: str, reason: str | Any, values: pa.Array | None = None
) -> pd.DataFrame:
    value = pa.nulls(len(rows), TEXT) if values is None else values.cast(TEXT)
    return pd.DataFrame({"row": rows, "field": field, "reason": reason, "value": text(value)})


def _text_problems(field: str, column: pa.Array, base_url: str | None) -> pd.DataFrame:
    codes, distinct = coded(column)
    matches = partial(pc.match_substring_regex, distinct)
    reasons = pc.case_when(
        pc.make_struct(
            pc.equal(pc.utf8_trim_whitespace(distinct), ""),
            matches(_CONTROL if field == "description" else f"{_CONTROL}|{_LINE_ENDS}"),
            matches(_DIRECTION),
        ),
        "blank",
        "control characters",
        "turns the direction of text",
    )
    if field in (*_ADDRESSES, *_PAGES):
        wrong = _address_problems(distinct, field, base_url)
        reasons = pc.if_else(
            pc.equal(reasons, "blank").fill_null(False), reasons, pc.coalesce(wrong, reasons)
        )
    broken = np.append(flags(reasons.is_valid()), False)
    rows = np.flatnonzero(broken[codes])
    which = pa.array(codes[rows])
    return _problems(rows, field, text(reasons.take(which)), distinct.take(which))


def _address_problems(distinct: pa.Array, field: str, base_url: str | None) -> pa.Array:
    plain = pc.match_substring_regex(distinct, _PLAIN_URL)
    if field in _ADDRESSES:
        plain = pc.or_(plain, pc.match_substring_regex(distinct, _PLAIN_IPFS))
    reasons: list[str | None] = [None] * len(distinct)
    for place in np.flatnonzero(~flags(plain)).tolist():
        value = distinct[place].as_py()
        if field in _ADDRESSES:
            reasons[place] = Images(provider=base_url).at(value.replace("{id}", "0")).problem
        else:
            reasons[place] = _page_problem(value)
    return pa.array(reasons, TEXT)


def _page_problem(value: str) -> str | None:
    """Return why an address is not a link; unlike images, links may use `http:`."""
    link = value.strip()
    if not _HTTPS.match(link):
        return "not an http: or https: address"
    return Images().at(_HTTP.sub("https:", link, count=1)).problem


_FIELDS = tuple(name for name in CONTENT_COLUMNS if name not in {"organization_id", "extra"})
#: Values of `field` besides the columns of tokens.
_WITHOUT_COLUMN = ("organization_id", "id", "metadata", "token", "extra", "amount")
_SHOWN = 200
#: The `+` keeps SQLite from reading the rows one by one in the order of an index.
_BAD_AMOUNTS = (
    f"SELECT token_no, substr(min(amount), 1, {_SHOWN + 1}) FROM balance_rows"
    f" WHERE {NOT_EXACT} GROUP BY +token_no"
)
_FAULTS = (
    "SELECT f.token_no, j.key, 'unreadable: ' || j.key || ': ' || j.value FROM token_faults f,"
    " json_each(f.faults) j ORDER BY f.token_no, j.key"
)
_NEW_FIELDS = (
    "SELECT token_no, field, type FROM new_fields JOIN tokens ON token_id = example_id"
    " WHERE documented_type IS NULL ORDER BY token_no"
)
_HELD = "SELECT DISTINCT token_no FROM balance_rows WHERE held_since IS NOT NULL"


def quality(
    db: Store = None,
    *,
    required: Iterable[str] = ("name", "image"),
    base_url: str | None = None,
    held_only: bool = False,
    contract: str | None = None,
    hidden: bool = False,
) -> pd.DataFrame:
    """Return missing and broken metadata: a row per token and field, in the order of tokens.

    Shared parameters: see `nftsync.frames`. `required` names the fields that every token should
    have. Images on the provider's address `base_url` are valid, even with `http:`. `held_only`
    selects tokens that a wallet holds.

    Returns:
        Columns: `frames.explain("quality")`. `field` is a column of `frames.tokens`; `id`,
        `metadata` or `token` for a broken record; `amount` for a balance. `value` is JSON text for
        a wrong type. `reason` is the first that applies:

        - `unreadable: FIELD: …` (repeated keys, broken text, nesting beyond 200 levels, numbers
          that JSON does not know): the known value stays. `field` is `metadata` or `extra` for
          fields without a column
        - `wrong type`, `too large` (an integer beyond 64 bits), `another token's id`: the value
          is kept in `extra`
        - `missing`, `blank` (only white space)
        - why the gallery does not show an image, animation or creator's image, or why a page
          address is not an `http:` or `https:` link
        - `control characters` (descriptions may contain line ends and tabs),
          `turns the direction of text`
        - `negative`, `edition beyond its total`
        - `not 1 to 100 digits`: an amount in a wallet; `value` is the first one
        - `new field`: the provider's document does not have it. Only the first token with the field
          has this row; `field` is the field's place and name, `value` its type
    """
    names = (required,) if isinstance(required, str) else required
    needed = {one_of(name, "required", _FIELDS) for name in names}
    if base_url is not None:
        origin(base_url)
    with reading(db) as source:
        tokens = read_tokens(source, (*_FIELDS, *MADE_COLUMNS, "extra"))
        numbers = tokens.numbers
        if held_only:
            (numbers,) = source.columns(_HELD, [INTEGER])
        chosen = filters_of(source, contract=contract).contract
        left_out = hidden_rows(source, tokens.numbers, include=hidden)
        listed, amounts = source.columns(_BAD_AMOUNTS, [INTEGER, TEXT])
        faulty, *faults = source.columns(_FAULTS, [INTEGER, TEXT, TEXT])
        first, fields, types = source.columns(_NEW_FIELDS, [INTEGER, TEXT, TEXT])
    rows = positions(tokens.numbers, listed.to_numpy())
    bad = _problems(rows, "amount", "not 1 to 100 digits", amounts)
    unreadable = _unreadable(positions(tokens.numbers, faulty.to_numpy()), *map(text, faults))
    rows = positions(tokens.numbers, first.to_numpy())
    new = _problems(rows, "extra", "new field", types).assign(field=text(fields))
    problems = pd.concat([unreadable, *_all_problems(tokens, needed, base_url), bad, new])
    # The first problem of a token and field is the one to report.
    selected = np.isin(tokens.numbers, numbers) & tokens.in_contract(chosen, tokens.numbers)
    problems = problems[selected[problems["row"]]].drop_duplicates(["row", "field"])
    is_hidden = left_out[problems["row"]]
    problems = problems[~is_hidden]
    in_order = [*_FIELDS, *_WITHOUT_COLUMN, *text(fields)]
    problems["field"] = pd.Categorical(problems["field"], in_order)
    problems = problems.sort_values(["row", "field"])
    value = problems["value"].str
    cut_off = pd.Series(np.where(value.len() > _SHOWN, "…", ""), problems.index, dtype="str")
    frame = frame_of(
        {
            **tokens.named(tokens.numbers[problems["row"]]),
            "field": problems["field"].astype("str").array,
            "reason": problems["reason"].array,
            "value": (value[:_SHOWN] + cut_off).array,
        }
    )
    return marked(frame, is_hidden)


def _unreadable(rows: Numbers, paths: Any, reasons: Any) -> pd.DataFrame:
    places = {"token": "token", "metadata": "metadata"}
    fields = [_COLUMNS.get(path, places.get(path.partition(".")[0], "extra")) for path in paths]
    return _problems(rows, "extra", reasons).assign(field=fields)


def _all_problems(tokens: Tokens, needed: set[str], base_url: str | None) -> Iterator[pd.DataFrame]:
    names = ("row", "field", "reason", "value")
    in_extra = pd.DataFrame(_extra_problems(tokens.content["extra"]), columns=names)
    yield in_extra.astype({"row": "int64", "field": "str", "reason": "str", "value": "str"})
    for name in _FIELDS:
        column = tokens.content[name]
        if name in needed:
            yield _problems(np.flatnonzero(flags(column.is_null())), name, "missing")
        if name in INTEGER_COLUMNS:
            negative = np.flatnonzero(flags(pc.less(column, 0)))
            yield _problems(negative, name, "negative", column.take(pa.array(negative)))
        else:
            yield _text_problems(name, column, base_url)
    edition, total = tokens.content["edition_id"], tokens.content["total_edition"]
    beyond = np.flatnonzero(flags(pc.greater(edition, total)))
    yield _problems(
        beyond, "edition_id", "edition beyond its total", edition.take(pa.array(beyond))
    )
