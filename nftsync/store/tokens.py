"""Merge a token's content from wallets' responses and from reads of the token itself.

For most tokens only lists speak, and the token's row is what they say. Once a token has been read
by its id, both sources are kept beside the row (`token_sources`) as fields with a value each, and
the row is their sum: a field that only one source shows is that source's; where both show it, the
newer wins.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from nftsync.records import CONTENT_COLUMNS, NAME, Applied, Content, TokenRead, WalletRead
from nftsync.store.contracts import contract_key, count_names
from nftsync.store.database import over_keys, write_rows
from nftsync.store.removals import has_metadata

#: A source's fields: a column's name, or `extra/NAME` and `metadata/NAME`, with the JSON value.
Fields: TypeAlias = dict[str, msgspec.Raw]

_EXTRA = len(CONTENT_COLUMNS) - 1
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def fields_of(content: Content) -> Fields:
    """Take content apart into the fields it shows."""
    fields = {
        column: msgspec.Raw(msgspec.json.encode(value))
        for column, value in zip(CONTENT_COLUMNS[:_EXTRA], content, strict=False)
        if value is not None
    }
    extra = content[_EXTRA]
    if isinstance(extra, str):
        for name, raw in _object.decode(extra).items():
            if name == "metadata" and bytes(raw)[:1] == b"{":
                inner = _object.decode(bytes(raw))
                fields |= {f"metadata/{key}": value for key, value in inner.items()}
            else:
                fields[f"extra/{name}"] = raw
    return fields


def compose(fields: Mapping[str, msgspec.Raw]) -> Content:
    """Put fields together again."""
    extra: dict[str, Any] = {}
    metadata: dict[str, msgspec.Raw] = {}
    for name, raw in fields.items():
        place, _, key = name.partition("/")
        if place == "extra":
            extra[key] = raw
        elif place == "metadata":
            metadata[key] = raw
    if metadata:
        extra["metadata"] = metadata
    columns = [
        msgspec.json.decode(fields[column]) if column in fields else None
        for column in CONTENT_COLUMNS[:_EXTRA]
    ]
    text = msgspec.json.encode(extra, order="sorted").decode() if extra else None
    return (*columns, text)


def _pack(fields: Fields) -> str:
    """Write fields as JSON, the same text for the same fields."""
    return msgspec.json.encode(fields, order="sorted").decode()


def _changed_columns(before: Content, after: Content) -> tuple[str, str]:
    """Two JSON objects of just the columns that differ: as they were, and as they are."""
    differ = [place for place, value in enumerate(before) if value != after[place]]

    def shown(content: Content) -> str:
        return msgspec.json.encode({CONTENT_COLUMNS[i]: content[i] for i in differ}).decode()

    return shown(before), shown(after)


_CONTENT = ", ".join(CONTENT_COLUMNS)
_EMPTY: Content = (None,) * len(CONTENT_COLUMNS)
#: The columns of the full-text index, and where they stand in content.
_INDEXED = ("name", "description", "creator_name")
_INDEXED_AT = tuple(CONTENT_COLUMNS.index(name) for name in _INDEXED)
_ADDRESS = CONTENT_COLUMNS.index("contract_address")
_NAMED_AT = tuple(CONTENT_COLUMNS.index(name) for name in ("contract_address", "name"))


class Token(msgspec.Struct):
    """A token's row, as far as applying a read needs it.

    `stored` keeps the content that the full-text index knows.
    """

    no: int
    sequence: int
    changed_sequence: int
    detailed: bool
    content: Content
    stored: Content


class Sources(NamedTuple):
    """What lists and detail reads say of one token, each with the sequence number that said it."""

    list_sequence: int
    list_fields: Fields
    detail_sequence: int
    detail_fields: Fields

    @classmethod
    def of(
        cls, list_sequence: int, list_fields: str, detail_sequence: int, detail_fields: str
    ) -> Sources:
        """Read a row of `token_sources`."""
        listed, detailed = _object.decode(list_fields), _object.decode(detail_fields)
        return cls(list_sequence, listed, detail_sequence, detailed)

    def content(self) -> Content:
        """The sum of both: where both show a field, the one read later wins."""
        if self.list_sequence > self.detail_sequence:
            return compose({**self.detail_fields, **self.list_fields})
        return compose({**self.list_fields, **self.detail_fields})

    def differ(self) -> bool:
        """Both sources show a field, with different values."""
        mine, other = self.list_fields, self.detail_fields
        return any(name in other and bytes(other[name]) != bytes(mine[name]) for name in mine)


def listed_fields(packed: str) -> Fields:
    """What lists have said of a token, as a row of `token_sources` has it."""
    return _object.decode(packed)


class TokenBatch:
    """The tokens that a batch of reads touches.

    Attributes:
        new: the rows of tokens seen for the first time so far.
        changes: the rows of the changes of content found so far.
        stale: sequence and token number where other wallets' digests do not know of the change.
        confirmed: sequence and token number where a wallet's read vouches for the token's content.
    """

    def __init__(
        self, connection: sqlite3.Connection, observed_at: str, run_id: int | None
    ) -> None:
        self._connection = connection
        self._at = observed_at
        self._run_id = run_id
        self._tokens: dict[str, Token] = {}
        self._sources: dict[int, Sources] = {}
        (greatest,) = connection.execute("SELECT coalesce(max(token_no), 0) FROM tokens").fetchone()
        self._next_no: int = greatest + 1
        self.stale: list[tuple[int, int]] = []
        # Rows to write, in the order of the columns of the statement that takes them.
        self.new: list[tuple[Any, ...]] = []
        self.changes: list[tuple[Any, ...]] = []
        self.confirmed: list[tuple[int, int]] = []
        self._changed: dict[int, Token] = {}
        self._changed_sources: dict[int, Sources] = {}

    def load(self, token_ids: Iterable[str]) -> None:
        """Look up the rows of tokens, and both sources of those that have been read by their id."""
        rows = over_keys(
            self._connection,
            f"SELECT t.token_id, t.token_no, t.sequence, t.changed_sequence, t.detailed, {_CONTENT}"
            " FROM json_each(?) k JOIN tokens t ON t.token_id = k.value",
            token_ids,
        )
        for token_id, no, sequence, changed_sequence, detailed, *columns in rows:
            content = tuple(columns)
            token = Token(no, sequence, changed_sequence, bool(detailed), content, content)
            self._tokens[token_id] = token
        rows = over_keys(
            self._connection,
            "SELECT s.* FROM json_each(?) k JOIN token_sources s ON s.token_no = k.value",
            [token.no for token in self._tokens.values() if token.detailed],
        )
        self._sources |= {no: Sources.of(*source) for no, *source in rows}

    def see(self, read: WalletRead) -> tuple[list[Token], bool]:
        """Take in what a wallet's list shows of tokens.

        Returns:
            The tokens in the list's order, and whether the mirror now says what the list says.
        """
        tokens = self._tokens
        seen: list[Token] = []
        agreed = True
        for token_id, _, content in read.entries:
            token = tokens.get(token_id)
            if token is None:
                token = self._add(token_id, content or _EMPTY, read, detailed=False)
            elif content is not None and (token.detailed or content != token.content):
                agreed &= self._see_again(token, content, read)
            seen.append(token)
        return seen, agreed

    def number_of(self, token_id: str) -> int:
        """A token's number; 0: it is not known so far."""
        token = self._tokens.get(token_id)
        return 0 if token is None else token.no

    def ids_of(self, numbers: Collection[int]) -> dict[int, str]:
        """The ids of tokens by their numbers: of stored ones, and of new ones of this batch."""
        if not numbers:
            return {}
        rows = over_keys(
            self._connection,
            "SELECT token_no, token_id FROM json_each(?) JOIN tokens ON token_no = value",
            numbers,
        )
        ids: dict[int, str] = dict(rows)
        if len(ids) < len(numbers):
            ids |= {no: token_id for no, token_id, *_ in self.new}
        return ids

    def removed_by(
        self, read: WalletRead | TokenRead
    ) -> Iterator[tuple[int, tuple[str | None, str, str] | None]]:
        """Find the tokens whose metadata the read empties, or whose name it replaces.

        Yields:
            The token's number, and its contract, the name before and the name after; None: the
            metadata is emptied.
        """
        entries = (
            read.entries if isinstance(read, WalletRead) else [(read.token_id, "", read.content)]
        )
        for token_id, _, content in entries:
            token = self._tokens.get(token_id)
            if token is None or content is None:
                continue
            before, after = token.content[NAME], content[NAME]
            if before == after and after is not None:
                continue
            renamed = isinstance(before, str) and isinstance(after, str) and before != after
            emptied = after is None and has_metadata(token.content) and not has_metadata(content)
            if not (renamed or emptied):
                continue
            said = self._said_by_source_of(read, token)
            if said is None:
                continue
            if renamed and said[NAME] != after:
                address = token.content[_ADDRESS]
                contract = contract_key(address) if isinstance(address, str) else None
                yield token.no, (contract, str(before), str(after))
            elif emptied and has_metadata(said):
                yield token.no, None

    def _said_by_source_of(self, read: WalletRead | TokenRead, token: Token) -> Content | None:
        """What such reads have said of a token so far; None: this one is stale."""
        by_id, source = isinstance(read, TokenRead), self._sources.get(token.no)
        if source is None:
            return _EMPTY if by_id else token.content
        if by_id and read.sequence <= source.detail_sequence:
            return None
        return compose(source.detail_fields if by_id else source.list_fields)

    def apply(self, read: TokenRead) -> Applied:
        """Take in the read of a single token."""
        if read.outcome == "failed" or read.content is None:
            return Applied(read, "failed")
        fields = fields_of(read.content)
        token = self._tokens.get(read.token_id)
        if token is None:
            token = self._add(read.token_id, read.content, read, detailed=True)
            self._keep(token, Sources(0, {}, read.sequence, fields))
            return Applied(read, "ok", tokens_added=1)
        known = self._sources.get(token.no)
        if known is not None and read.sequence <= known.detail_sequence:
            return Applied(read, "stale")
        in_list = fields_of(token.content) if known is None else known.list_fields
        source = Sources(0, in_list, read.sequence, fields)
        if source.differ():
            source = source._replace(list_sequence=self._list_sequence(token))
        self._keep(token, source)
        content = source.content()
        if content == token.content:
            return Applied(read, "ok")
        before, after = fields_of(token.content), fields_of(content)
        if any(before.get(name) != after.get(name) for name in in_list):
            self.stale.append((read.sequence, token.no))
        self._change(token, content, read)
        return Applied(read, "ok", tokens_changed=1)

    def _add(
        self, token_id: str, content: Content, read: WalletRead | TokenRead, *, detailed: bool
    ) -> Token:
        no = self._next_no
        self._next_no += 1
        # A list that shows no record of the token has no say in its content.
        sequence = 0 if detailed or content is _EMPTY else read.sequence
        token = Token(no, sequence, read.sequence, detailed, content, content)
        self._tokens[token_id] = token
        self.new.append(
            (no, token_id, *content, self._at, self._at, sequence, read.sequence, detailed)
        )
        return token

    def _list_sequence(self, token: Token) -> int:
        """The greatest sequence number of a wallet's read that confirmed or changed this token."""
        row = self._connection.execute(
            "SELECT max(w.sequence) FROM balance_rows b JOIN wallets w USING (wallet_no)"
            " WHERE b.token_no = ?",
            (token.no,),
        ).fetchone()
        return max(token.sequence, row[0] or 0)

    def _see_again(self, token: Token, content: Content, read: WalletRead) -> bool:
        """Take in a list's content of a known token; False where a later read has the say."""
        known = self._sources.get(token.no)
        if known is None:
            if read.sequence < self._list_sequence(token):
                return False
            self._change(token, content, read)
        else:
            source = known._replace(list_sequence=read.sequence, list_fields=fields_of(content))
            agreed = read.sequence > known.detail_sequence or not source.differ()
            merged = source.content()
            if merged == token.content and _pack(source.list_fields) == _pack(known.list_fields):
                return agreed
            if read.sequence < self._list_sequence(token):
                return False
            self._keep(token, source)
            if merged == token.content:  # but it may not be once the token is read by its id
                self.stale.append((read.sequence, token.no))
                return agreed
            self._change(token, merged, read)
            if not agreed:
                self.stale.append((read.sequence, token.no))
                return False
        token.sequence = read.sequence
        self.confirmed.append((read.sequence, token.no))
        self.stale.append((read.sequence, token.no))
        return True

    def _keep(self, token: Token, source: Sources) -> None:
        self._sources[token.no] = self._changed_sources[token.no] = source
        if not token.detailed:
            token.detailed = True
            self._changed[token.no] = token

    def _change(self, token: Token, content: Content, read: WalletRead | TokenRead) -> None:
        before, after = _changed_columns(token.content, content)
        self.changes.append((token.no, before, after, self._at, self._run_id, read.webhook_id))
        token.content = content
        token.changed_sequence = max(token.changed_sequence, read.sequence)
        self._changed[token.no] = token

    def write(self) -> None:
        """Write what was taken in."""
        changed = list(self._changed.values())
        if changed:
            self._index(changed)
        assignments = ", ".join(f"{column} = ?" for column in CONTENT_COLUMNS)
        rows: dict[str, Sequence[Sequence[Any]]] = {
            f"INSERT INTO tokens (token_no, token_id, {_CONTENT}, first_seen_at, updated_at,"
            " sequence, changed_sequence, detailed)": self.new,
            f"UPDATE tokens SET {assignments}, changed_sequence = ?, detailed = ?"
            " WHERE token_no = ?": [
                (*token.content, token.changed_sequence, token.detailed, token.no)
                for token in changed
            ],
            "INSERT INTO token_change_rows (token_no, before, after, observed_at, run_id,"
            " webhook_id)": self.changes,
            "UPDATE tokens SET updated_at = ? WHERE token_no = ?": [
                (self._at, change[0]) for change in self.changes
            ],
            "UPDATE tokens SET sequence = max(sequence, ?) WHERE token_no = ?": self.confirmed,
            "INSERT OR REPLACE INTO token_sources": [
                (no, list_sequence, _pack(in_list), detail_sequence, _pack(in_detail))
                for no, (list_sequence, in_list, detail_sequence, in_detail) in (
                    self._changed_sources.items()
                )
            ],
        }
        write_rows(self._connection, rows)

    def _index(self, changed: list[Token]) -> None:
        """Bring the full-text index and what contracts are called along, for tokens taken in."""
        (done,) = self._connection.execute("SELECT indexed_token_no FROM mirror_state").fetchone()
        columns = ", ".join(_INDEXED)
        gone, come = [], []
        renamed: list[tuple[Any, Any]] = []
        for token in changed:
            if token.no > done:
                continue
            old, new = ([x[i] for i in _INDEXED_AT] for x in (token.stored, token.content))
            if old != new:
                gone.append(("delete", token.no, *old))
                come.append((token.no, *new))
            old, new = ([x[i] for i in _NAMED_AT] for x in (token.stored, token.content))
            if old != new:
                renamed.append((new, old))
        rows: dict[str, Sequence[Sequence[Any]]] = {
            f"INSERT INTO tokens_fts (tokens_fts, rowid, {columns})": gone,
            f"INSERT INTO tokens_fts (rowid, {columns})": come,
        }
        write_rows(self._connection, rows)
        if renamed:
            count_names(self._connection, *zip(*renamed, strict=True))
