"""Tokens: content merged from wallets' lists and from reads of the token itself.

`token_sources` has the fields of both sources once a token was read by its id. The newer value of a
field wins.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from nftsync.records import (
    CONTENT_COLUMNS,
    FIELD_PATHS,
    NAME,
    Applied,
    Content,
    Entry,
    TokenRead,
    WalletRead,
)
from nftsync.store.contracts import contract_key, name_contracts
from nftsync.store.database import over_keys, write_rows
from nftsync.store.faults import TokenFaults, faults_of
from nftsync.store.removals import has_metadata
from nftsync.store.spelling import differing

#: A source's JSON values by column name, `extra/NAME` or `metadata/NAME`.
RawFields: TypeAlias = dict[str, msgspec.Raw]

_Read = TypeVar("_Read", WalletRead, TokenRead)

_EXTRA = len(CONTENT_COLUMNS) - 1
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def fields_of(content: Content) -> RawFields:
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


def path_of(name: str) -> str:
    place, _, key = name.partition("/")
    return key if place == "extra" else FIELD_PATHS.get(name, f"metadata.{key}")


def compose(fields: Mapping[str, msgspec.Raw]) -> Content:
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


def _pack(fields: RawFields) -> str:
    return msgspec.json.encode(fields, order="sorted").decode()


def completed(content: Content | None, stored: RawFields) -> Content | None:
    if content is None or faults_of(content) is None:
        return content
    faults = _object.decode(str(content[-1]))
    if "token" in faults and stored:
        return compose(stored)
    fields = fields_of(content)
    replacements = {}
    for name, raw in stored.items():
        path = path_of(name)
        if path in faults or ("metadata" in faults and path.startswith("metadata.")):
            replacements[name] = raw
    if replacements:
        fields.pop("extra/metadata", None)
    return compose(fields | replacements)


def _entries_of(read: WalletRead | TokenRead) -> list[Entry]:
    return read.entries if isinstance(read, WalletRead) else [(read.token_id, "", read.content)]


_CONTENT = ", ".join(CONTENT_COLUMNS)
_EMPTY: Content = (None,) * len(CONTENT_COLUMNS)
#: The columns of the full-text index, and their positions in content.
_INDEXED = ("name", "description", "creator_name")
_INDEXED_AT = tuple(CONTENT_COLUMNS.index(name) for name in _INDEXED)
_ADDRESS = CONTENT_COLUMNS.index("contract_address")


class Token(msgspec.Struct):
    """A token's row; `stored` is its content before the batch."""

    no: int
    sequence: int
    changed_sequence: int
    detailed: bool
    content: Content
    stored: Content


class Sources(NamedTuple):
    """A token's fields from lists and from detail reads."""

    list_sequence: int
    list_fields: RawFields
    detail_sequence: int
    detail_fields: RawFields

    @classmethod
    def of(
        cls, list_sequence: int, list_fields: str, detail_sequence: int, detail_fields: str
    ) -> Sources:
        listed, detailed = _object.decode(list_fields), _object.decode(detail_fields)
        return cls(list_sequence, listed, detail_sequence, detailed)

    def content(self) -> Content:
        """Merge both sources; the newer value of a field wins."""
        if self.list_sequence > self.detail_sequence:
            return compose({**self.detail_fields, **self.list_fields})
        return compose({**self.list_fields, **self.detail_fields})

    def differ(self) -> bool:
        mine, other = self.list_fields, self.detail_fields
        return any(name in other and bytes(other[name]) != bytes(mine[name]) for name in mine)


def listed_fields(packed: str) -> RawFields:
    return _object.decode(packed)


_SELECT = (
    f"SELECT t.token_id, t.token_no, t.sequence, t.changed_sequence, t.detailed, {_CONTENT}"
    " FROM json_each(?) k JOIN tokens t ON t.token_id = k.value"
)
_INSERT = (
    f"INSERT INTO tokens (token_no, token_id, {_CONTENT}, first_seen_at, updated_at, sequence,"
    " changed_sequence, detailed)"
)
_UPDATE = (
    f"UPDATE tokens SET {', '.join(f'{column} = ?' for column in CONTENT_COLUMNS)},"
    " changed_sequence = ?, detailed = ? WHERE token_no = ?"
)
_INSERT_CHANGE = (
    "INSERT INTO token_change_rows (token_no, before, after, observed_at, run_id, webhook_id)"
)


class TokenBatch:
    """The tokens in a batch of reads.

    Pairs of a sequence number and a token's number: `stale` changes make other wallets' digests
    outdated; `confirmed` reads of wallets confirm the content.
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
        self._faults = TokenFaults(connection, observed_at)

    def load(self, token_ids: Iterable[str]) -> None:
        rows = over_keys(self._connection, _SELECT, token_ids)
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
        self._faults.load([token.no for token in self._tokens.values()])

    def completed(self, read: _Read) -> _Read:
        entries = _entries_of(read)
        if {len(content) for _, _, content in entries if content} <= {len(CONTENT_COLUMNS)}:
            return read  # without a further value, all is readable
        self._faults.exist = True
        whole: list[Entry] = []
        for token_id, amount, content in entries:
            token = self._tokens.get(token_id)
            fields = {} if token is None else fields_of(token.content)
            whole.append((token_id, amount, completed(content, fields)))
        if isinstance(read, WalletRead):
            return msgspec.structs.replace(read, entries=whole)
        return msgspec.structs.replace(read, content=whole[0][2])

    def note_faults(self, read: WalletRead | TokenRead) -> None:
        for token_id, _, content in _entries_of(read) if self._faults.exist else ():
            self._faults.note(self._tokens[token_id].no, content, by_id=isinstance(read, TokenRead))

    def see(self, read: WalletRead) -> tuple[list[Token], bool]:
        """Apply a list; return its tokens, and whether the database now agrees with it."""
        tokens = self._tokens
        listed: list[Token] = []
        agreed = True
        for token_id, _, content in read.entries:
            token = tokens.get(token_id)
            if token is None:
                token = self._add(token_id, content or _EMPTY, read, detailed=False)
            elif content is not None and (token.detailed or content != token.content):
                agreed &= self._see_again(token, content, read)
            listed.append(token)
        return listed, agreed

    def number_of(self, token_id: str) -> int:
        """Return a token's number, or 0 for a new token."""
        token = self._tokens.get(token_id)
        return 0 if token is None else token.no

    def ids_of(self, numbers: Collection[int]) -> dict[int, str]:
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
        """Yield each token whose metadata the read empties (None), or whose name it replaces.

        A replaced name comes with the contract, the old and the new name.
        """
        for token_id, _, content in _entries_of(read):
            token = self._tokens.get(token_id)
            if token is None or content is None:
                continue
            if content[NAME] is not None and content[NAME] == token.content[NAME]:
                continue
            renamed, emptied = _removes(token.content, content, read.volatile)
            if not (renamed or emptied):
                continue
            earlier = _earlier_content(read, token, self._sources.get(token.no))
            if earlier is None:
                continue
            if renamed and earlier[NAME] != content[NAME]:
                address = token.content[_ADDRESS]
                contract = contract_key(address) if isinstance(address, str) else None
                yield token.no, (contract, str(token.content[NAME]), str(content[NAME]))
            elif emptied and has_metadata(earlier):
                yield token.no, None

    def apply(self, read: TokenRead) -> Applied:
        if read.outcome == "failed" or read.content is None:
            return Applied(read, "failed")
        fields = fields_of(read.content)
        token = self._tokens.get(read.token_id)
        if token is None:
            token = self._add(read.token_id, read.content, read, detailed=True)
            self._keep(token, Sources(0, {}, read.sequence, fields))
            return Applied(read, "ok", tokens_added=1)
        sources = self._sources.get(token.no)
        if sources is not None and read.sequence <= sources.detail_sequence:
            return Applied(read, "stale")
        in_list = fields_of(token.content) if sources is None else sources.list_fields
        source = Sources(0, in_list, read.sequence, fields)
        if source.differ():
            source = source._replace(list_sequence=_list_sequence(self._connection, token))
        self._keep(token, source)
        content = source.content()
        if content == token.content:
            return Applied(read, "ok")
        before, after = fields_of(token.content), fields_of(content)
        if any(before.get(name) != after.get(name) for name in in_list):
            self.stale.append((read.sequence, token.no))
        return Applied(read, "ok", tokens_changed=int(self._change(token, content, read)))

    def _add(
        self, token_id: str, content: Content, read: WalletRead | TokenRead, *, detailed: bool
    ) -> Token:
        no = self._next_no
        self._next_no += 1
        # A list without the token's content does not determine it.
        sequence = 0 if detailed or content is _EMPTY else read.sequence
        token = Token(no, sequence, read.sequence, detailed, content, content)
        self._tokens[token_id] = token
        self.new.append(
            (no, token_id, *content, self._at, self._at, sequence, read.sequence, detailed)
        )
        return token

    def _see_again(self, token: Token, content: Content, read: WalletRead) -> bool:
        """Return False if a later read wins."""
        sources = self._sources.get(token.no)
        if sources is None:
            if read.sequence < _list_sequence(self._connection, token):
                return False
            if not self._change(token, content, read):
                return True
        else:
            source = sources._replace(list_sequence=read.sequence, list_fields=fields_of(content))
            agreed = read.sequence > sources.detail_sequence or not source.differ()
            merged = source.content()
            if merged == token.content and _pack(source.list_fields) == _pack(sources.list_fields):
                return agreed
            if read.sequence < _list_sequence(self._connection, token):
                return False
            self._keep(token, source)
            if merged == token.content or not self._change(token, merged, read):
                self.stale.append((read.sequence, token.no))  # the next detail read may change it
                return agreed
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

    def _change(self, token: Token, content: Content, read: WalletRead | TokenRead) -> bool:
        """Return whether the content differs in more than spelling and volatile fields."""
        differ = differing(token.content, content, read.volatile)
        if differ:
            at = {name: CONTENT_COLUMNS.index(name) for name in differ}
            before, after = (
                msgspec.json.encode({name: row[i] for name, i in at.items()}).decode()
                for row in (token.content, content)
            )
            self.changes.append((token.no, before, after, self._at, self._run_id, read.webhook_id))
            token.changed_sequence = max(token.changed_sequence, read.sequence)
        token.content = content
        self._changed[token.no] = token
        return bool(differ)

    def write(self) -> None:
        changed = list(self._changed.values())
        rows: dict[str, Sequence[Sequence[Any]]] = {
            _INSERT: self.new,
            _UPDATE: [
                (*token.content, token.changed_sequence, token.detailed, token.no)
                for token in changed
            ],
            _INSERT_CHANGE: self.changes,
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
            **self._faults.rows(),
        }
        write_rows(self._connection, rows)
        if changed:
            _index(self._connection, changed)


def _removes(before: Content, after: Content, volatile: list[str]) -> tuple[bool, bool]:
    old, new = before[NAME], after[NAME]
    both = isinstance(old, str) and isinstance(new, str)
    renamed = both and old != new and "metadata.name" not in volatile
    return renamed, new is None and has_metadata(before) and not has_metadata(after)


def _earlier_content(
    read: WalletRead | TokenRead, token: Token, source: Sources | None
) -> Content | None:
    """Return a token's content from reads of this kind; None if a later one was applied."""
    by_id = isinstance(read, TokenRead)
    if source is None:
        return _EMPTY if by_id else token.content
    if by_id and read.sequence <= source.detail_sequence:
        return None
    return compose(source.detail_fields if by_id else source.list_fields)


def _list_sequence(connection: sqlite3.Connection, token: Token) -> int:
    """Return the greatest sequence number of a list that confirms a token."""
    row = connection.execute(
        "SELECT max(w.sequence) FROM balance_rows b JOIN wallets w USING (wallet_no)"
        " WHERE b.token_no = ?",
        (token.no,),
    ).fetchone()
    return max(token.sequence, row[0] or 0)


def _index(connection: sqlite3.Connection, changed: list[Token]) -> None:
    (done,) = connection.execute("SELECT indexed_token_no FROM mirror_state").fetchone()
    columns = ", ".join(_INDEXED)
    gone, come = [], []
    renamed: list[tuple[int, Any]] = []
    for token in changed:
        if token.no > done:
            continue
        old, new = ([x[i] for i in _INDEXED_AT] for x in (token.stored, token.content))
        if old != new:
            gone.append(("delete", token.no, *old))
            come.append((token.no, *new))
        contents = (token.stored, token.content)
        if len({(content[_ADDRESS], content[NAME]) for content in contents}) > 1:
            renamed += [(token.no, content[_ADDRESS]) for content in contents]
    rows: dict[str, Sequence[Sequence[Any]]] = {
        f"INSERT INTO tokens_fts (tokens_fts, rowid, {columns})": gone,
        f"INSERT INTO tokens_fts (rowid, {columns})": come,
    }
    write_rows(connection, rows)
    name_contracts(connection, renamed)
