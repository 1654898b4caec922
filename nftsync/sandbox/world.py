"""What the provider knows: who holds what, and the record of each token; world files.

A line of a world file is `{"walletId": …, "nftTokenBalances": […]}`, the list in the form that the
provider answers (provider's document, section NFT token balance). Other keys are ignored. Token
records are not taken apart: what their source has, messy or not, is what the sandbox serves.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import uuid
import zlib
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from random import Random
from typing import BinaryIO, TypeAlias, TypeVar, cast

import msgspec

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
_DIGITS = re.compile(r"[0-9]{1,100}", re.ASCII)
_NO_RECORD = hashlib.sha256(b"null").digest()
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


class _Line(msgspec.Struct, gc=False, rename="camel"):
    wallet_id: str
    nft_token_balances: list[Holding]


class World:
    """Wallets, tokens and holdings, safe to use from many threads.

    Ids match whatever their case and are answered as they were first written; amounts and token
    records are answered to the character. A bad argument of an edit raises InputError and leaves
    everything as it was.

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
        rows = self.state.run(
            "SELECT holdings.shown, amount, record FROM wallets LEFT JOIN holdings USING (wallet)"
            " LEFT JOIN records USING (digest) WHERE wallet = ? ORDER BY holdings.place",
            wallet_id.lower(),
        )
        held = [
            Holding(shown, amount, msgspec.UNSET if record is None else msgspec.Raw(record))
            for shown, amount, record in rows
            if shown is not None
        ]
        return msgspec.json.encode({"nftTokenBalances": held}) if rows else None

    def token_body(self, token_id: str) -> bytes | None:
        """What a read of a token is answered; None where the world has no record of it."""
        rows = self.state.run(
            "SELECT record FROM tokens JOIN records USING (digest) WHERE token = ? AND digest != ?",
            token_id.lower(),
            _NO_RECORD,
        )
        return rows[0][0] if rows else None

    def add_wallet(self, wallet_id: str | None = None, holdings: Iterable[Holding] = ()) -> str:
        """Open a wallet.

        Args:
            wallet_id: its id; None draws one.
            holdings: what it holds from the start, each token once.

        Returns:
            The id.

        Raises:
            InputError: an id is no UUID or comes twice, or a record is no object.
        """
        with self.state.transaction():
            shown = wallet_id if wallet_id is not None else self._unused_id("wallet")
            wallet = normalize_uuid(shown, "wallet id")
            if self._knows("wallet", wallet):
                raise InputError(f"there is a wallet {wallet} already")
            listed = [(normalize_uuid(each.token_id, "token id"), each) for each in holdings]
            self.state.run("INSERT INTO wallets (wallet, shown) VALUES (?, ?)", wallet, shown)
            rows = []
            for token, each in listed:
                digest = self._keep(token, each.token)
                rows.append((wallet, token, each.token_id, each.amount, digest))
            if len({row[1] for row in rows}) < len(rows):
                raise InputError(f"a token is listed twice in wallet {wallet}")
            self.state.run_many(
                "INSERT INTO holdings (wallet, token, shown, amount, digest)"
                " VALUES (?, ?, ?, ?, ?)",
                rows,
            )
            # A token's own record is the first that a wallet shows.
            self.state.run_many(
                "INSERT INTO tokens VALUES (?, ?) ON CONFLICT (token)"
                " DO UPDATE SET digest = excluded.digest WHERE tokens.digest IS NULL",
                ((row[1], None if row[4] == _NO_RECORD else row[4]) for row in rows),
            )
            return shown

    def add_token(self, token_id: str, record: msgspec.Raw) -> None:
        """Let there be a token that nobody holds yet."""
        with self.state.transaction():
            token = normalize_uuid(token_id, "token id")
            self.state.run(
                "INSERT OR REPLACE INTO tokens VALUES (?, ?)", token, self._keep(token, record)
            )

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
            giver, getter = self._wallet(from_wallet), self._wallet(to_wallet)
            token = self._token(token_id)
            had = self._held(giver, token)
            if had is None:
                raise InputError(f"wallet {giver} holds no token {token}")
            if moved > had:
                raise InputError(f"wallet {giver} holds {had} of token {token}, not {moved}")
            if giver == getter:
                return
            total = moved + (self._held(getter, token) or 0)
            if total > MAX_AMOUNT:
                raise InputError(f"wallet {getter} would hold more than 2**256-1 of token {token}")
            self.state.run(
                "INSERT INTO holdings (wallet, token, shown, amount, digest)"
                " SELECT ?, token, shown, ?, digest FROM holdings WHERE wallet = ? AND token = ?"
                " ON CONFLICT (wallet, token) DO UPDATE SET amount = excluded.amount",
                getter,
                str(total),
                giver,
                token,
            )
            if moved == had:
                self.remove(giver, token)
            else:
                self.set_amount(giver, token, str(had - moved))

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
            wallet = self._wallet(wallet_id)
            token = self._unused_id("token")
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

        Args:
            token_id: the token.
            metadata: a JSON object; fields that it lacks are gone.

        Raises:
            InputError: an unknown token, or metadata that is no object.
        """
        shown = _json_object(metadata)
        with self.state.transaction():
            token = self._token(token_id)
            before = self.token_body(token)
            fields: Mapping[str, object] = {"id": token}
            if before is not None:
                fields = msgspec.json.decode(before, type=dict[str, msgspec.Raw])
            record = msgspec.json.encode({**fields, "metadata": shown})
            self.add_token(token, msgspec.Raw(record))
            self.state.run(
                "UPDATE holdings SET digest = ? WHERE token = ? AND digest != ?",
                hashlib.sha256(record).digest(),
                token,
                _NO_RECORD,
            )

    def set_amount(self, wallet_id: str, token_id: str, amount_text: str) -> None:
        """Let a wallet list a token with this very text as its amount, a number or not.

        Raises:
            InputError: an unknown wallet or token.
        """
        with self.state.transaction():
            self.state.run(
                "INSERT INTO holdings (wallet, token, shown, amount, digest)"
                " SELECT ?, token, token, ?, digest FROM tokens WHERE token = ?"
                " ON CONFLICT (wallet, token) DO UPDATE SET amount = excluded.amount",
                self._wallet(wallet_id),
                amount_text,
                self._token(token_id),
            )

    def remove(self, wallet_id: str, token_id: str) -> None:
        """Take a token off a wallet's list.

        Raises:
            InputError: an unknown wallet or token, or the wallet does not list it.
        """
        with self.state.transaction():
            wallet, token = self._wallet(wallet_id), self._token(token_id)
            gone = "DELETE FROM holdings WHERE wallet = ? AND token = ? RETURNING 1"
            if not self.state.run(gone, wallet, token):
                raise InputError(f"wallet {wallet} holds no token {token}")

    def _keep(self, token: str, record: Record) -> bytes | None:
        """Keep a record; the digest that names it."""
        if not isinstance(record, msgspec.Raw):
            return None
        text = bytes(record)
        if not text.startswith((b"{", b"null")):
            raise InputError(f"the record of token {token} is no object")
        digest = hashlib.sha256(text).digest()
        self.state.run("INSERT OR IGNORE INTO records VALUES (?, ?)", digest, text)
        return digest

    def _held(self, wallet: str, token: str) -> int | None:
        rows = self.state.run(
            "SELECT amount FROM holdings WHERE wallet = ? AND token = ?", wallet, token
        )
        if not rows:
            return None
        if _DIGITS.fullmatch(amount := rows[0][0]) is None:
            raise InputError(
                f"wallet {wallet} holds {amount[:40]!r} of token {token}: no whole number"
            )
        return int(amount)

    def _wallet(self, wallet_id: str) -> str:
        key = normalize_uuid(wallet_id, "wallet id")
        if not self._knows("wallet", key):
            raise InputError(f"there is no wallet {key}")
        return key

    def _token(self, token_id: str) -> str:
        key = normalize_uuid(token_id, "token id")
        if not self._knows("token", key):
            raise InputError(f"there is no token {key}")
        return key

    def _knows(self, kind: str, key: str) -> bool:
        return bool(self.state.run(f"SELECT 1 FROM {kind}s WHERE {kind} = ?", key))  # noqa: S608

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _unused_id(self, kind: str) -> str:
        while self._knows(kind, drawn := self._new_id()):
            pass
        return drawn


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
