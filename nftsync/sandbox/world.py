"""The sandbox's world: holders and tokens; world files.

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
from typing import BinaryIO, Literal, TypeAlias, TypeVar, cast

import msgspec

from nftsync.errors import InputError
from nftsync.records import normalize_uuid
from nftsync.sandbox.state import State
from nftsync.text import visible

#: The greatest amount that a chain's uint256 holds.
MAX_AMOUNT = 2**256 - 1

#: A token record as JSON text; UNSET where the list does not carry the key at all.
Record: TypeAlias = msgspec.Raw | msgspec.UnsetType

_Form = TypeVar("_Form")
_DIGITS = re.compile(r"[0-9]{1,100}", re.ASCII)
_GZIP_MAGIC = b"\x1f\x8b"

_KNOWN = {
    "wallet": "SELECT 1 FROM wallets WHERE wallet = ?",
    "token": "SELECT 1 FROM tokens WHERE token = ?",
}


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

    Ids match whatever their case and are answered as first written; amounts and token records are
    answered to the character. A bad argument of an edit raises InputError and changes nothing.

    Args:
        seed: what the ids of later mints are drawn from.
        organization_id: the organization that minted tokens and webhooks belong to; None draws it.
        kept: the state with the world to go on with; the others do not count then.

    Attributes:
        organization_id: that organization.
        state: where all of it is.
        restored: whether it is the world of a state that was there before.
    """

    def __init__(
        self, *, seed: int = 0, organization_id: str | None = None, kept: State | None = None
    ) -> None:
        self.state = kept or State()
        facts = self.state.facts
        self.restored = bool(facts)
        # The number of mints keeps one restart from drawing what an earlier one drew.
        begun = "restored {organization} {minted}".format(**facts) if facts else f"world {seed}"
        self._random = Random(begun)  # noqa: S311 - a simulation, to be repeatable
        if not facts:
            facts = {
                "organization": organization_id or self._new_id(),
                "mint_contract": f"0x{self._random.getrandbits(160):040x}",
                "minted": "0",
            }
            self.state.note(**facts)
        self.organization_id = facts["organization"]

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
                for line in lines:
                    number += 1
                    if line.strip():
                        read = decode(line, _Line)
                        world.add_wallet(read.wallet_id, read.nft_token_balances)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path} cannot be read after line {number}: {error}") from error
        return world

    def wallets(self) -> list[str]:
        """The ids of all wallets, in the order they came."""
        return [shown for (shown,) in self.state.run("SELECT shown FROM wallets ORDER BY place")]

    def balances_body(self, wallet_id: str) -> bytes | None:
        """What a read of a wallet's balances is answered; None for an unknown wallet."""
        rows = self.state.run(
            "SELECT h.shown, h.amount, h.record FROM wallets LEFT JOIN holdings AS h USING (wallet)"
            " WHERE wallet = ? ORDER BY h.place",
            wallet_id.lower(),
        )
        listed = [
            Holding(shown, amount, msgspec.UNSET if record is None else msgspec.Raw(record))
            for shown, amount, record in rows
            if shown is not None
        ]
        return msgspec.json.encode({"nftTokenBalances": listed}) if rows else None

    def token_body(self, token_id: str) -> bytes | None:
        """What a read of a token is answered; None where the world has no record of it."""
        known = "SELECT record FROM tokens WHERE token = ? AND record IS NOT NULL"
        rows = self.state.run(known, token_id.lower())
        return rows[0][0].encode() if rows else None

    def add_wallet(self, wallet_id: str | None = None, holdings: Iterable[Holding] = ()) -> str:
        """Open a wallet, and return its id, drawn where none is given.

        Args:
            wallet_id: its id.
            holdings: what it holds from the start, each token once.

        Raises:
            InputError: an id is no UUID or comes twice, or a record is no object.
        """
        with self.state.transaction():
            shown = self._new_id() if wallet_id is None else wallet_id
            wallet = normalize_uuid(shown, "wallet id")
            opened = "INSERT INTO wallets VALUES (NULL, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"
            if not self.state.run(opened, wallet, shown):
                raise InputError(f"there is a wallet {wallet} already")
            rows = [
                (wallet, normalize_uuid(token, "token id"), token, amount, _record(record))
                for token, amount, record in map(msgspec.structs.astuple, holdings)
            ]
            if len({row[1] for row in rows}) < len(rows):
                raise InputError(f"a token is listed twice in wallet {wallet}")
            self.state.run_many("INSERT INTO holdings VALUES (NULL, ?, ?, ?, ?, ?)", rows)
            # A token's own record is the first that a wallet shows.
            self.state.run_many(
                "INSERT INTO tokens VALUES (?, nullif(?, 'null')) ON CONFLICT (token)"
                " DO UPDATE SET record = excluded.record WHERE tokens.record IS NULL",
                [(row[1], row[4]) for row in rows],
            )
            return shown

    def add_token(self, token_id: str, record: msgspec.Raw) -> None:
        """Let there be a token that nobody holds yet, or let its own read show another record."""
        token = normalize_uuid(token_id, "token id")
        self.state.run("INSERT OR REPLACE INTO tokens VALUES (?, ?)", token, _record(record))

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
            giver, getter = self._known("wallet", from_wallet), self._known("wallet", to_wallet)
            token = self._known("token", token_id)
            had = self._held(giver, token)
            if moved > had:
                raise InputError(f"wallet {giver} does not hold {moved} of token {token}")
            if giver == getter:
                return
            total = moved + self._held(getter, token)
            if total > MAX_AMOUNT:
                raise InputError(f"wallet {getter} would hold more than 2**256-1 of token {token}")
            self.set_amount(getter, token, str(total))
            if moved == had:
                self.remove(giver, token)
            else:
                self.set_amount(giver, token, str(had - moved))

    def mint(self, wallet_id: str, amount: int | str, metadata: Mapping[str, object]) -> str:
        """Make a token and put it into a wallet.

        Args:
            wallet_id: who gets it.
            amount: how much of it there is, as an integer or its digits.
            metadata: a JSON object.

        Returns:
            The token's id.

        Raises:
            InputError: an unknown wallet, or no positive integer.
        """
        total = _positive(amount)
        with self.state.transaction():
            wallet = self._known("wallet", wallet_id)
            token = self._new_id()
            facts = self.state.facts
            minted = str(int(facts["minted"]) + 1)
            self.state.note(minted=minted)
            record = {
                "id": token,
                "organizationId": self.organization_id,
                "contractAddress": facts["mint_contract"],
                "blockchainTokenId": minted,
                "metadata": metadata,
            }
            self.add_token(token, msgspec.Raw(msgspec.json.encode(record)))
            self.set_amount(wallet, token, str(total))
            return token

    def edit_metadata(self, token_id: str, metadata: Mapping[str, object]) -> None:
        """Replace a token's metadata, in its own record and in the list of every holder.

        Fields that the new metadata lacks are gone.

        Raises:
            InputError: an unknown token.
        """
        with self.state.transaction():
            token = self._known("token", token_id)
            before = self.token_body(token) or msgspec.json.encode({"id": token})
            fields = msgspec.json.decode(before, type=dict[str, msgspec.Raw])
            record = msgspec.Raw(msgspec.json.encode({**fields, "metadata": metadata}))
            self.add_token(token, record)
            self.state.run(
                "UPDATE holdings SET record = ? WHERE token = ? AND record != 'null'",
                _record(record),
                token,
            )

    def set_amount(self, wallet_id: str, token_id: str, amount_text: str) -> None:
        """Let a wallet list a token with this very text as its amount, a number or not.

        Raises:
            InputError: an unknown wallet or token.
        """
        with self.state.transaction():
            wallet, token = self._known("wallet", wallet_id), self._known("token", token_id)
            self.state.run(
                "INSERT INTO holdings SELECT NULL, ?, token, token, ?, record FROM tokens"
                " WHERE token = ?"
                " ON CONFLICT (wallet, token) DO UPDATE SET amount = excluded.amount",
                wallet,
                amount_text,
                token,
            )

    def remove(self, wallet_id: str, token_id: str) -> None:
        """Take a token off a wallet's list.

        Raises:
            InputError: an unknown wallet or token, or the wallet does not list it.
        """
        with self.state.transaction():
            wallet, token = self._known("wallet", wallet_id), self._known("token", token_id)
            gone = "DELETE FROM holdings WHERE wallet = ? AND token = ? RETURNING 1"
            if not self.state.run(gone, wallet, token):
                raise InputError(f"wallet {wallet} holds no token {token}")

    def _known(self, kind: Literal["wallet", "token"], given: str) -> str:
        known = normalize_uuid(given, f"{kind} id")
        if not self.state.run(_KNOWN[kind], known):
            raise InputError(f"there is no {kind} {known}")
        return known

    def _held(self, wallet: str, token: str) -> int:
        """What a wallet has of a token; 0 where that is no whole number."""
        listed = "SELECT amount FROM holdings WHERE wallet = ? AND token = ?"
        [(amount,)] = self.state.run(listed, wallet, token) or [("",)]
        return int(amount) if _DIGITS.fullmatch(amount) else 0

    def _new_id(self) -> str:
        drawn = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        known = any(self.state.run(each, drawn) for each in _KNOWN.values())
        return self._new_id() if known else drawn


def _record(record: Record) -> str | None:
    """A record's text, `null` too; None where there is none."""
    if not isinstance(record, msgspec.Raw):
        return None
    if not bytes(record).startswith((b"{", b"null")):
        raise InputError("a token's record is no object")
    return bytes(record).decode()


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
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise InputError(visible(str(error))) from error
    except RecursionError as error:
        raise InputError("nested too deeply") from error


def _positive(amount: int | str) -> int:
    """Read an amount exactly; a bool or a float is none."""
    text = str(amount)
    if _DIGITS.fullmatch(text) is None or not 0 < int(text) <= MAX_AMOUNT:
        raise InputError("the amount is no whole number from 1 to 2**256-1")
    return int(text)
