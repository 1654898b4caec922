"""What the provider knows: who holds what, and the record of each token; world files.

A line of a world file is `{"walletId": …, "nftTokenBalances": […]}`, the list in the form that the
provider answers (provider's document, section NFT token balance). Other keys are ignored. Token
records are not taken apart: what their source has is what the sandbox serves.
"""

from __future__ import annotations

import gzip
import re
import uuid
import zlib
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from random import Random
from typing import BinaryIO, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import replace

from nftsync.errors import InputError
from nftsync.records import normalize_uuid
from nftsync.sandbox.state import State
from nftsync.text import visible

__all__ = ["MAX_AMOUNT", "Holding", "Metadata", "Record", "World", "decode"]

#: The greatest amount that a chain's uint256 holds.
MAX_AMOUNT = 2**256 - 1

#: A token record as JSON text; UNSET where the list does not carry the key at all.
Record: TypeAlias = msgspec.Raw | msgspec.UnsetType

#: A token's metadata: a mapping, or JSON text that is kept to the character.
Metadata: TypeAlias = Mapping[str, object] | msgspec.Raw

_Form = TypeVar("_Form")
_Listed: TypeAlias = "dict[str, Holding]"
_DIGITS = re.compile(r"[0-9]{1,100}", re.ASCII)
_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"


class Holding(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of a wallet's list, as it is answered.

    Attributes:
        token_id: the id, in the case that the world file writes it.
        amount: the amount's text.
        token: the record, `null`, or UNSET.
    """

    token_id: str
    amount: str
    token: Record = msgspec.UNSET


class _Body(msgspec.Struct, gc=False, rename="camel"):
    nft_token_balances: list[Holding]


class _Line(_Body, gc=False, rename="camel", kw_only=True):
    wallet_id: str


class World:
    """Wallets, tokens and holdings, safe to use from many threads.

    Ids match whatever their case and are answered as first written; amounts and token records are
    answered to the character. A bad argument of an edit raises InputError and changes nothing.

    Args:
        seed: what the ids of later mints are drawn from.
        organization_id: the organization that minted tokens and webhooks belong to; None draws it.
        kept: the state with the world to go on with; the others do not count then.

    Attributes:
        organization_id: that organization.
        state: where all of it is.
    """

    def __init__(
        self, *, seed: int = 0, organization_id: str | None = None, kept: State | None = None
    ) -> None:
        self.state = kept or State()
        facts = self.state.facts
        if not facts:
            self._random = Random(f"world {seed}")  # noqa: S311 - a simulation, to be repeatable
            facts = {
                "organization": organization_id or self._new_id(),
                "mint_contract": f"0x{self._random.getrandbits(160):040x}",
                "minted": "0",
            }
            self.state.note(**facts)
        else:
            # The number of mints keeps one restart from drawing what an earlier one drew.
            drawn = f"restored {facts['organization']} {facts['minted']}"
            self._random = Random(drawn)  # noqa: S311
        self.organization_id = facts["organization"]
        self._mint_contract = facts["mint_contract"]

    @classmethod
    def load(cls, path: str | PathLike[str], *, seed: int = 0) -> World:
        """Read a world file: JSON lines, plain or gzip.

        Args:
            path: the file; whether it is gzip is told by its first bytes, not by its name.
            seed: see `World`.

        Raises:
            InputError: the file or a line of it is unusable; the text says where and why.
        """
        world = cls(seed=seed)
        number = 0
        try:
            with world.state.transaction(), _open(Path(path)) as lines:
                for number, line in enumerate(lines, start=1):
                    text = line.removeprefix(_UTF8_MARK) if number == 1 else line
                    if text.strip():
                        read = decode(text, _Line)
                        world.add_wallet(read.wallet_id, read.nft_token_balances)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{path}, after line {number}: damaged gzip data ({error})") from error
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
        return world

    def keep_in(self, state: State) -> None:
        """Go on in another state, in place of what that has."""
        self.state.copy_into(state)
        self.state = state

    def wallets(self) -> list[str]:
        """The ids of all wallets, in the order they came."""
        return [shown for (shown,) in self.state.run("SELECT shown FROM wallets ORDER BY place")]

    def balances_body(self, wallet_id: str) -> bytes | None:
        """What a read of a wallet's balances is answered; None for an unknown wallet."""
        rows = self.state.run("SELECT body FROM wallets WHERE wallet = ?", wallet_id.lower())
        return rows[0][0] if rows else None

    def token_body(self, token_id: str) -> bytes | None:
        """What a read of a token is answered; None where the world has no record of it."""
        rows = self.state.run("SELECT record FROM tokens WHERE token = ?", token_id.lower())
        return rows[0][0] if rows else None

    def add_wallet(self, wallet_id: str | None = None, holdings: Iterable[Holding] = ()) -> str:
        """Open a wallet, and return its id, drawn where none is given.

        Args:
            wallet_id: its id.
            holdings: what it holds from the start, each token once.

        Raises:
            InputError: an id is no UUID or comes twice, or a record is no object.
        """
        with self.state.transaction():
            shown = wallet_id if wallet_id is not None else self._unused_id()
            wallet = normalize_uuid(shown, "wallet id")
            if self.balances_body(wallet) is not None:
                raise InputError(f"there is a wallet {wallet} already")
            listed: _Listed = {}
            for each in holdings:
                token = normalize_uuid(each.token_id, "token id")
                if token in listed:
                    raise InputError(f"a token is listed twice in wallet {wallet}")
                listed[token] = each
                # A token's own record is the first that a wallet shows.
                self.state.run(
                    "INSERT INTO tokens VALUES (?, ?) ON CONFLICT (token)"
                    " DO UPDATE SET record = excluded.record WHERE tokens.record IS NULL",
                    token,
                    _object(token, each.token),
                )
            opened = "INSERT INTO wallets (wallet, shown, body) VALUES (?, ?, ?)"
            self.state.run(opened, wallet, shown, _body(listed))
            return shown

    def add_token(self, token_id: str, record: msgspec.Raw) -> None:
        """Let there be a token that nobody holds yet, or let its own read show another record."""
        token = normalize_uuid(token_id, "token id")
        shown = _object(token, record)
        self.state.run("INSERT OR REPLACE INTO tokens VALUES (?, ?)", token, shown)

    def transfer(self, from_wallet: str, to_wallet: str, token_id: str, amount: int | str) -> None:
        """Move an amount of a token; a wallet left with 0 no longer lists it.

        Args:
            from_wallet: who gives.
            to_wallet: who gets.
            token_id: what.
            amount: how much, as an integer or its digits.

        Raises:
            InputError: unknown ids, no positive integer, more than is held, or a sum that is
                above MAX_AMOUNT.
        """
        moved = _positive(amount)
        with self.state.transaction():
            (giver, given), (getter, got) = self._wallet(from_wallet), self._wallet(to_wallet)
            token, _ = self._token(token_id)
            had = _held(giver, token, given)
            if moved > had:
                raise InputError(f"wallet {giver} holds {had} of token {token}, not {moved}")
            if giver == getter:
                return
            total = moved + (_held(getter, token, got) if token in got else 0)
            if total > MAX_AMOUNT:
                raise InputError(f"wallet {getter} would hold more than 2**256-1 of token {token}")
            got[token] = replace(got.get(token, given[token]), amount=str(total))
            given[token] = replace(given[token], amount=str(had - moved))
            if moved == had:
                del given[token]
            self._write(giver, given)
            self._write(getter, got)

    def mint(self, wallet_id: str, amount: int | str, metadata: Metadata) -> str:
        """Make a token and put it into a wallet.

        Args:
            wallet_id: who gets it.
            amount: how much of it there is, as an integer or its digits.
            metadata: a JSON object.

        Returns:
            The token's id.

        Raises:
            InputError: an unknown wallet, no positive integer, or metadata that is no object.
        """
        total, shown = _positive(amount), _json_object(metadata)
        with self.state.transaction():
            wallet, _ = self._wallet(wallet_id)
            token = self._unused_id()
            minted = str(int(self.state.facts["minted"]) + 1)
            self.state.note(minted=minted)
            record = {
                "id": token,
                "organizationId": self.organization_id,
                "contractAddress": self._mint_contract,
                "blockchainTokenId": minted,
                "metadata": shown,
            }
            self.add_token(token, msgspec.Raw(msgspec.json.encode(record)))
            self.set_amount(wallet, token, str(total))
            return token

    def edit_metadata(self, token_id: str, metadata: Metadata) -> None:
        """Replace a token's metadata, in its own record and in the list of every holder.

        Fields that the new metadata, a JSON object, lacks are gone.

        Raises:
            InputError: an unknown token, or metadata that is no object.
        """
        shown = _json_object(metadata)
        with self.state.transaction():
            token, before = self._token(token_id)
            fields: Mapping[str, object] = {"id": token}
            if before is not None:
                fields = msgspec.json.decode(before, type=dict[str, msgspec.Raw])
            record = msgspec.Raw(msgspec.json.encode({**fields, "metadata": shown}))
            self.add_token(token, record)
            holders = "SELECT wallet FROM wallets WHERE instr(lower(body), ?)"
            for (holder,) in self.state.run(holders, token):
                wallet, listed = self._wallet(holder)
                if token in listed and _object(token, listed[token].token) is not None:
                    listed[token] = replace(listed[token], token=record)
                    self._write(wallet, listed)

    def set_amount(self, wallet_id: str, token_id: str, amount_text: str) -> None:
        """Let a wallet list a token with this very text as its amount, a number or not.

        Raises:
            InputError: an unknown wallet or token.
        """
        with self.state.transaction():
            wallet, listed = self._wallet(wallet_id)
            token, record = self._token(token_id)
            shown = msgspec.UNSET if record is None else msgspec.Raw(record)
            entry = listed.get(token, Holding(token, "", shown))
            self._write(wallet, listed | {token: replace(entry, amount=amount_text)})

    def remove(self, wallet_id: str, token_id: str) -> None:
        """Take a token off a wallet's list.

        Raises:
            InputError: an unknown wallet or token, or the wallet does not list it.
        """
        with self.state.transaction():
            wallet, listed = self._wallet(wallet_id)
            token, _ = self._token(token_id)
            if listed.pop(token, None) is None:
                raise InputError(f"wallet {wallet} holds no token {token}")
            self._write(wallet, listed)

    def _wallet(self, wallet_id: str) -> tuple[str, _Listed]:
        """A wallet's id in lower case, and what it lists by the tokens' such ids."""
        wallet = normalize_uuid(wallet_id, "wallet id")
        body = self.balances_body(wallet)
        if body is None:
            raise InputError(f"there is no wallet {wallet}")
        entries = msgspec.json.decode(body, type=_Body).nft_token_balances
        return wallet, {entry.token_id.lower(): entry for entry in entries}

    def _write(self, wallet: str, listed: _Listed) -> None:
        self.state.run("UPDATE wallets SET body = ? WHERE wallet = ?", _body(listed), wallet)

    def _token(self, token_id: str) -> tuple[str, bytes | None]:
        """A token's id in lower case, and its record."""
        token = normalize_uuid(token_id, "token id")
        if not self.state.run("SELECT 1 FROM tokens WHERE token = ?", token):
            raise InputError(f"there is no token {token}")
        return token, self.token_body(token)

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _unused_id(self) -> str:
        known = (
            "SELECT 1 FROM wallets WHERE wallet = ?1 UNION SELECT 1 FROM tokens WHERE token = ?1"
        )
        while self.state.run(known, drawn := self._new_id()):
            pass
        return drawn


def _body(listed: _Listed) -> bytes:
    return msgspec.json.encode(_Body(list(listed.values())))


def _held(wallet: str, token: str, listed: _Listed) -> int:
    if token not in listed:
        raise InputError(f"wallet {wallet} holds no token {token}")
    amount = listed[token].amount
    if _DIGITS.fullmatch(amount) is None:
        raise InputError(f"wallet {wallet} holds {amount[:40]!r} of token {token}: no whole number")
    return int(amount)


def _object(token: str, record: Record) -> bytes | None:
    """A record's text; None where it is absent or null."""
    text = bytes(record) if isinstance(record, msgspec.Raw) else b"null"
    if not text.startswith((b"{", b"null")):
        raise InputError(f"the record of token {token} is no object")
    return None if text == b"null" else text


def _open(place: Path) -> BinaryIO:
    with place.open("rb") as file:
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    return cast("BinaryIO", gzip.open(place, "rb")) if packed else place.open("rb")


def decode(text: bytes, form: type[_Form]) -> _Form:
    """Read JSON from outside.

    Args:
        text: JSON as UTF-8.
        form: the msgspec type that it must have.

    Raises:
        InputError: it is no such JSON; the text says in a line where and why, and quotes nothing
            of it but field names.
    """
    try:
        # msgspec skips over a raw value without checking its UTF-8.
        text.decode()
        return msgspec.json.decode(text, type=form)
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise InputError("nested too deeply") from error
    except msgspec.MsgspecError as error:
        raise InputError(visible(str(error))) from error


def _positive(amount: int | str) -> int:
    """Read an amount exactly; a bool or a float is none."""
    if isinstance(amount, str) and _DIGITS.fullmatch(amount):
        amount = int(amount)
    if not isinstance(amount, int) or isinstance(amount, bool) or amount < 1:
        raise InputError("the amount is not a positive integer")
    if amount > MAX_AMOUNT:
        raise InputError("the amount is above 2**256-1")
    return amount


def _json_object(metadata: Metadata) -> dict[str, msgspec.Raw]:
    """A JSON object whose own values stay JSON text."""
    try:
        return decode(msgspec.json.encode(metadata), dict[str, msgspec.Raw])
    except (InputError, msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the metadata is no JSON object: {visible(str(error))}") from error
