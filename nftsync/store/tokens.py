"""A token's content out of two sources: the lists of wallets, and reads of the single token.

For most tokens only lists speak, and the token's row is what they say. Once a token has been read
by its id, both sources are kept beside the row (`token_sources`) as fields with a value each, and
the row is their sum: a field that only one source shows is that source's; where both show it, the
newer wins.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from nftsync.records import CONTENT_COLUMNS, Applied, Content, TokenRead, WalletRead
from nftsync.store.database import insert_rows, over_keys

__all__ = [
    "Fields",
    "Token",
    "TokenBatch",
    "changed_columns",
    "compose",
    "fields_of",
    "merge",
    "pack",
    "unpack",
]


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


def merge(in_list: Fields, list_ticket: int, in_detail: Fields, detail_ticket: int) -> Fields:
    """The sum of both sources: where both show a field, the one read later wins."""
    if list_ticket > detail_ticket:
        return {**in_detail, **in_list}
    return {**in_list, **in_detail}


def pack(fields: Fields) -> str:
    """Write fields as JSON, the same text for the same fields."""
    return msgspec.json.encode(fields, order="sorted").decode()


def unpack(text: str) -> Fields:
    """Read what `pack` wrote."""
    return _object.decode(text)


def changed_columns(before: Content, after: Content) -> tuple[str, str]:
    """Two JSON objects of just the columns that differ: as they were, and as they are."""
    names = [
        (column, old, new)
        for column, old, new in zip(CONTENT_COLUMNS, before, after, strict=True)
        if old != new
    ]
    return (
        msgspec.json.encode({column: old for column, old, _ in names}).decode(),
        msgspec.json.encode({column: new for column, _, new in names}).decode(),
    )


_CONTENT = ", ".join(CONTENT_COLUMNS)
_EMPTY: Content = (None,) * len(CONTENT_COLUMNS)
_INDEXED = tuple(CONTENT_COLUMNS.index(name) for name in ("name", "description", "creator_name"))


class Token:
    """A token's row, as far as applying a read needs it.

    `stored` keeps the content that the full-text index knows.
    """

    __slots__ = ("changed_ticket", "content", "detailed", "no", "stored", "ticket")

    def __init__(self, no: int, content: Content, ticket: int, changed: int, detailed: int) -> None:
        self.no = no
        self.content = self.stored = content
        self.ticket = ticket
        self.changed_ticket = changed
        self.detailed = bool(detailed)


class _Source:
    """What lists and detail reads say of one token, each with the ticket that said it."""

    __slots__ = ("detail_fields", "detail_ticket", "list_fields", "list_ticket")

    def __init__(
        self, list_fields: Fields, list_ticket: int, detail_fields: Fields, detail_ticket: int
    ) -> None:
        self.list_fields = list_fields
        self.list_ticket = list_ticket
        self.detail_fields = detail_fields
        self.detail_ticket = detail_ticket

    def content(self) -> Content:
        return compose(
            merge(self.list_fields, self.list_ticket, self.detail_fields, self.detail_ticket)
        )

    def differ(self) -> bool:
        """Both sources show a field, with different values."""
        mine, other = self.list_fields, self.detail_fields
        return any(name in other and bytes(other[name]) != bytes(mine[name]) for name in mine)

    def row(self) -> tuple[int, str, int, str]:
        return (
            self.list_ticket,
            pack(self.list_fields),
            self.detail_ticket,
            pack(self.detail_fields),
        )


class TokenBatch:
    """The tokens that a batch of reads touches.

    Attributes:
        stale: ticket and number of each token whose change other wallets' digests do not know.
    """

    def __init__(
        self, connection: sqlite3.Connection, observed_at: str, run_id: int | None
    ) -> None:
        self._connection = connection
        self._at = observed_at
        self._run_id = run_id
        self._tokens: dict[str, Token] = {}
        self._sources: dict[int, _Source] = {}
        (greatest,) = connection.execute("SELECT coalesce(max(token_no), 0) FROM tokens").fetchone()
        self._next_no: int = greatest + 1
        self.stale: list[tuple[int, int]] = []
        # Rows to write, in the order of the columns of the statement that takes them.
        self._new: list[tuple[Any, ...]] = []
        self._changed: dict[int, Token] = {}
        self._changes: list[tuple[Any, ...]] = []
        self._changed_sources: dict[int, _Source] = {}
        self._confirmed: list[tuple[int, int]] = []

    @property
    def added(self) -> int:
        """How many tokens were seen for the first time so far."""
        return len(self._new)

    @property
    def changed(self) -> int:
        """How many changes of content were found so far."""
        return len(self._changes)

    def load(self, token_ids: Iterable[str]) -> None:
        """Look up the rows of tokens, and both sources of those that have been read by their id."""
        rows = over_keys(
            self._connection,
            f"SELECT t.token_id, t.token_no, t.ticket, t.changed_ticket, t.detailed, {_CONTENT}"  # noqa: S608
            " FROM json_each(?) k JOIN tokens t ON t.token_id = k.value",
            token_ids,
        )
        detailed = []
        for token_id, no, ticket, changed, is_detailed, *content in rows:
            self._tokens[token_id] = Token(no, tuple(content), ticket, changed, is_detailed)
            if is_detailed:
                detailed.append(no)
        if detailed:
            rows = over_keys(
                self._connection,
                "SELECT token_no, list_fields, list_ticket, detail_fields, detail_ticket"
                " FROM json_each(?) k JOIN token_sources s ON s.token_no = k.value",
                detailed,
            )
            for no, in_list, list_ticket, in_detail, detail_ticket in rows:
                self._sources[no] = _Source(
                    unpack(in_list), list_ticket, unpack(in_detail), detail_ticket
                )

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

    def apply(self, read: TokenRead) -> Applied:
        """Take in the read of a single token."""
        if read.outcome == "failed" or read.content is None:
            return Applied(read, "failed")
        fields = fields_of(read.content)
        token = self._tokens.get(read.token_id)
        if token is None:
            token = self._add(read.token_id, read.content, read, detailed=True)
            self._keep(token, _Source({}, 0, fields, read.ticket))
            return Applied(read, "ok", tokens_added=1)
        known = self._sources.get(token.no)
        if known is not None and read.ticket <= known.detail_ticket:
            return Applied(read, "stale")
        in_list = fields_of(token.content) if known is None else known.list_fields
        source = _Source(in_list, 0, fields, read.ticket)
        if source.differ():
            source.list_ticket = self._list_ticket(token)
        self._keep(token, source)
        content = source.content()
        if content == token.content:
            return Applied(read, "ok")
        before, after = fields_of(token.content), fields_of(content)
        if any(before.get(name) != after.get(name) for name in in_list):
            self.stale.append((read.ticket, token.no))
        self._change(token, content, read)
        return Applied(read, "ok", tokens_changed=1)

    def confirm(self, token_no: int, ticket: int) -> None:
        """Note on a token what a wallet that no longer lists it had confirmed."""
        self._confirmed.append((ticket, token_no))

    def _add(
        self, token_id: str, content: Content, read: WalletRead | TokenRead, *, detailed: bool
    ) -> Token:
        no = self._next_no
        self._next_no += 1
        # A list that shows no record of the token has no say in its content.
        ticket = 0 if detailed or content is _EMPTY else read.ticket
        token = self._tokens[token_id] = Token(no, content, ticket, read.ticket, detailed)
        self._new.append(
            (no, token_id, *content, self._at, self._at, ticket, read.ticket, detailed)
        )
        return token

    def _list_ticket(self, token: Token) -> int:
        """The greatest ticket of a wallet's read that confirmed or changed this token."""
        row = self._connection.execute(
            "SELECT max(w.ticket) FROM balance_rows b JOIN wallets w USING (wallet_no)"
            " WHERE b.token_no = ?",
            (token.no,),
        ).fetchone()
        return max(token.ticket, row[0] or 0)

    def _see_again(self, token: Token, content: Content, read: WalletRead) -> bool:
        """Take in a list's content of a known token; False where a later read has the say."""
        known = self._sources.get(token.no)
        if known is None:
            if read.ticket < self._list_ticket(token):
                return False
            self._change(token, content, read)
        else:
            source = _Source(
                fields_of(content), read.ticket, known.detail_fields, known.detail_ticket
            )
            agreed = read.ticket > known.detail_ticket or not source.differ()
            merged = source.content()
            if merged == token.content and pack(source.list_fields) == pack(known.list_fields):
                return agreed
            if read.ticket < self._list_ticket(token):
                return False
            self._keep(token, source)
            if merged == token.content:
                return agreed
            self._change(token, merged, read)
            if not agreed:
                self.stale.append((read.ticket, token.no))
                return False
        token.ticket = read.ticket
        self._confirmed.append((read.ticket, token.no))
        self.stale.append((read.ticket, token.no))
        return True

    def _keep(self, token: Token, source: _Source) -> None:
        self._sources[token.no] = self._changed_sources[token.no] = source
        if not token.detailed:
            token.detailed = True
            self._changed[token.no] = token

    def _change(self, token: Token, content: Content, read: WalletRead | TokenRead) -> None:
        before, after = changed_columns(token.content, content)
        self._changes.append((token.no, before, after, self._at, self._run_id, read.webhook_id))
        token.content = content
        token.changed_ticket = max(token.changed_ticket, read.ticket)
        self._changed[token.no] = token

    def write(self) -> None:
        """Write what was taken in."""
        many = self._connection.executemany
        insert_rows(
            self._connection,
            f"INSERT INTO tokens (token_no, token_id, {_CONTENT}, first_seen_at, updated_at,"
            " ticket, changed_ticket, detailed)",
            self._new,
        )
        if self._changed:
            self._write_changed(list(self._changed.values()))
        many("UPDATE tokens SET ticket = max(ticket, ?) WHERE token_no = ?", self._confirmed)
        many(
            "REPLACE INTO token_sources (token_no, list_ticket, list_fields, detail_ticket,"
            " detail_fields) VALUES (?, ?, ?, ?, ?)",
            [(no, *source.row()) for no, source in self._changed_sources.items()],
        )

    def _write_changed(self, changed: list[Token]) -> None:
        many = self._connection.executemany
        self._index(changed)
        assignments = ", ".join(f"{column} = ?" for column in CONTENT_COLUMNS)
        many(
            f"UPDATE tokens SET {assignments}, changed_ticket = ?, detailed = ?"  # noqa: S608
            " WHERE token_no = ?",
            [(*t.content, t.changed_ticket, t.detailed, t.no) for t in changed],
        )
        many(
            "INSERT INTO token_change_rows (token_no, before, after, observed_at, run_id,"
            " webhook_id) VALUES (?, ?, ?, ?, ?, ?)",
            self._changes,
        )
        many(
            "UPDATE tokens SET updated_at = ? WHERE token_no = ?",
            [(self._at, change[0]) for change in self._changes],
        )

    def _index(self, changed: list[Token]) -> None:
        """Bring the full-text index along for tokens it has already taken in."""
        (done,) = self._connection.execute("SELECT indexed_token_no FROM mirror_state").fetchone()
        texts = [
            (token.no, [token.stored[i] for i in _INDEXED], [token.content[i] for i in _INDEXED])
            for token in changed
            if token.no <= done
        ]
        self._connection.executemany(
            "INSERT INTO tokens_fts (tokens_fts, rowid, name, description, creator_name)"
            " VALUES ('delete', ?, ?, ?, ?)",
            [(no, *old) for no, old, new in texts if old != new],
        )
        self._connection.executemany(
            "INSERT INTO tokens_fts (rowid, name, description, creator_name) VALUES (?, ?, ?, ?)",
            [(no, *new) for no, old, new in texts if old != new],
        )
