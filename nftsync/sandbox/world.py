"""The sandbox's wallets and tokens, and world files.

A line of a world file is `{"walletId": …, "nftTokenBalances": […]}`, with the list in the
provider's form (provider's document, section NFT token balance). Other keys are ignored.
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
from nftsync.text import DEEPEST_JSON, nests_too_deeply, visible

#: The greatest amount of a chain's uint256.
MAX_AMOUNT = 2**256 - 1

#: A token record as JSON text; UNSET if the list lacks the key.
Record: TypeAlias = msgspec.Raw | msgspec.UnsetType

_Form = TypeVar("_Form")
_DIGITS = re.compile(r"[0-9]{1,100}", re.ASCII)
_GZIP_MAGIC = b"\x1f\x8b"

#: The id as first written, the amount, and the record in the wallet's list, if it has one.
_Row: TypeAlias = tuple[str, str, str | None]


class Holding(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An entry of a wallet's list: id and amount as in the world file, and the record."""

    token_id: str
    amount: str
    token: Record = msgspec.UNSET


class _Line(msgspec.Struct, gc=False, rename="camel"):
    wallet_id: str
    nft_token_balances: list[Holding]


class World:
    """Wallets, tokens and holdings; safe for many threads.

    Ids match in any case. Responses keep the original text of ids, amounts and records. Edits raise
    InputError for an unknown or malformed id, and for an amount that is not a positive integer.

    In `state`, `wallets` has each id as first written, `tokens` each record or a blank text.
    `seed` decides the ids of later mints.
    """

    def __init__(
        self, *, seed: int = 0, organization_id: str | None = None, state: State | None = None
    ) -> None:
        self.state = state or State()
        facts = self.state["facts"]
        self.restored = bool(facts)
        # The number of mints gives each restart other ids.
        start = "restored {organization} {minted}".format(**facts) if facts else f"world {seed}"
        self._random = Random(start)  # noqa: S311 - a simulation, to be repeatable
        if not facts:
            facts = {
                "organization": organization_id or self._new_id(),
                "mint_contract": self._new_address(),
                "minted": 0,
            }
            self.state.put("facts", value=facts)
        self.organization_id: str = facts["organization"]

    @classmethod
    def load(cls, path: str | PathLike[str], *, seed: int = 0) -> World:
        """Read a world file, plain or gzip; InputError names an unusable line."""
        world = cls(seed=seed)
        number = 0
        try:
            with _open(Path(path)) as lines:
                for line in lines:
                    number += 1
                    if line.strip():
                        read = decode(line, _Line)
                        world.add_wallet(read.wallet_id, read.nft_token_balances)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
        except (OSError, EOFError, zlib.error) as error:
            after = f" after line {number}" if number else ""
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot read {path}{after}: {reason}") from error
        return world

    def wallets(self) -> list[str]:
        return list(self.state["wallets"].values())

    def amounts(self, wallet_id: str) -> dict[str, int]:
        wallet = wallet_id.lower()
        with self.state.lock:
            return {token: self._amount(wallet, token) for token in self.state["holdings"][wallet]}

    def balances_body(self, wallet_id: str) -> bytes | None:
        """Return the response to a read of balances, or None for an unknown wallet."""
        with self.state.lock:
            rows = self.state["holdings"].get(wallet_id.lower())
            if rows is None:
                return None
            holdings = [
                Holding(shown, amount, msgspec.UNSET if record is None else msgspec.Raw(record))
                for shown, amount, record in rows.values()
            ]
        return msgspec.json.encode({"nftTokenBalances": holdings})

    def token_body(self, token_id: str) -> bytes | None:
        """Return the response to a read of a token, or None without a record."""
        record: str = self.state["tokens"].get(token_id.lower(), "")
        return record.encode() or None

    def add_wallet(self, wallet_id: str | None = None, holdings: Iterable[Holding] = ()) -> str:
        with self.state.transaction():
            shown = self._new_id() if wallet_id is None else wallet_id
            wallet = normalize_uuid(shown, "wallet id")
            if wallet in self.state["wallets"]:
                raise InputError(f"wallet {wallet} already exists")
            rows: dict[str, _Row] = {}
            for listed in holdings:
                token = normalize_uuid(listed.token_id, "token id")
                if token in rows:
                    raise InputError(f"a token is listed twice in wallet {wallet}")
                record = _record(listed.token)
                rows[token] = (listed.token_id, listed.amount, record)
                # A token's record is the first in any wallet's list.
                if not self.state["tokens"].get(token):
                    self.state.put("tokens", token, value="" if record == "null" else record or "")
            self.state.put("wallets", wallet, value=shown)
            self.state.put("holdings", wallet, value=rows)
            return shown

    def add_token(self, token_id: str, record: msgspec.Raw) -> None:
        """Add a token that no wallet holds, or replace a token's own record."""
        self.state.put("tokens", normalize_uuid(token_id, "token id"), value=_record(record))

    def transfer(self, from_wallet: str, to_wallet: str, token_id: str, amount: int | str) -> None:
        """Transfer an amount within the balance; an empty balance leaves the list."""
        moved = _positive(amount)
        with self.state.transaction():
            source, target = self._find("wallet", from_wallet), self._find("wallet", to_wallet)
            token = self._find("token", token_id)
            balance = self._amount(source, token)
            if moved > balance:
                raise InputError(f"wallet {source} does not hold {moved} of token {token}")
            if source == target:
                return
            total = moved + self._amount(target, token)
            if total > MAX_AMOUNT:
                raise InputError(f"wallet {target} would hold more than 2**256-1 of token {token}")
            self.set_amount(target, token, str(total))
            if moved == balance:
                self.remove(source, token)
            else:
                self.set_amount(source, token, str(balance - moved))

    def mint(self, wallet_id: str, amount: int | str, metadata: Mapping[str, object]) -> str:
        total = _positive(amount)
        with self.state.transaction():
            wallet = self._find("wallet", wallet_id)
            token = self._new_id()
            facts = self.state["facts"]
            minted = facts["minted"] + 1
            content = {
                "id": token,
                "organizationId": self.organization_id,
                "contractAddress": facts["mint_contract"],
                "blockchainTokenId": str(minted),
                "metadata": metadata,
            }
            record = msgspec.json.encode(content).decode()
            self.state.put("facts", "minted", value=minted)
            self.state.put("tokens", token, value=record)
            self.state.put("holdings", wallet, token, value=(token, str(total), record))
            return token

    def begin_collection(self) -> None:
        """Mint all later tokens in a new contract."""
        self.state.put("facts", "mint_contract", value=self._new_address())

    def edit_metadata(self, token_id: str, metadata: Mapping[str, object]) -> None:
        with self.state.transaction():
            token = self._find("token", token_id)
            before = self.token_body(token) or msgspec.json.encode({"id": token})
            fields = msgspec.json.decode(before, type=dict[str, msgspec.Raw])
            record = msgspec.json.encode({**fields, "metadata": metadata}).decode()
            self.state.put("tokens", token, value=record)
            for wallet, rows in self.state["holdings"].items():
                shown, amount, listed = rows.get(token, (token, "", None))
                if listed not in {None, "null"}:
                    self.state.put("holdings", wallet, token, value=(shown, amount, record))

    def set_amount(self, wallet_id: str, token_id: str, amount_text: str) -> None:
        with self.state.transaction():
            wallet, token = self._find("wallet", wallet_id), self._find("token", token_id)
            unlisted = (token, "", self.state["tokens"][token] or None)
            shown, _, record = self.state["holdings"][wallet].get(token, unlisted)
            self.state.put("holdings", wallet, token, value=(shown, amount_text, record))

    def remove(self, wallet_id: str, token_id: str) -> None:
        with self.state.transaction():
            wallet, token = self._find("wallet", wallet_id), self._find("token", token_id)
            if token not in self.state["holdings"][wallet]:
                raise InputError(f"wallet {wallet} does not hold token {token}")
            self.state.put("holdings", wallet, token, value=None)

    def _find(self, kind: Literal["wallet", "token"], text: str) -> str:
        normalized = normalize_uuid(text, f"{kind} id")
        if normalized not in self.state[f"{kind}s"]:
            raise InputError(f"{kind} {normalized} does not exist")
        return normalized

    def _amount(self, wallet: str, token: str) -> int:
        _, amount, _ = self.state["holdings"][wallet].get(token, (token, "", None))
        return int(amount) if _DIGITS.fullmatch(amount) else 0

    def _new_address(self) -> str:
        return f"0x{self._random.getrandbits(160):040x}"

    def _new_id(self) -> str:
        drawn = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        is_taken = drawn in self.state["wallets"] or drawn in self.state["tokens"]
        return self._new_id() if is_taken else drawn


def _record(record: Record) -> str | None:
    if not isinstance(record, msgspec.Raw):
        return None
    if not bytes(record).startswith((b"{", b"null")):
        raise InputError("a token's record is not a JSON object")
    return bytes(record).decode()


def _open(place: Path) -> BinaryIO:
    with place.open("rb") as file:
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    return cast("BinaryIO", gzip.open(place, "rb")) if packed else place.open("rb")


def decode(text: bytes, form: type[_Form]) -> _Form:
    """Parse external JSON of a type; the one-line InputError quotes field names only."""
    if nests_too_deeply(text.decode(errors="replace")):
        raise InputError(f"nested more than {DEEPEST_JSON} levels deep")
    try:
        # msgspec does not check the UTF-8 of raw values.
        text.decode()
        return msgspec.json.decode(text, type=form)
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise InputError(visible(str(error))) from error


def _positive(amount: int | str) -> int:
    text = str(amount)
    if _DIGITS.fullmatch(text) is None or not 0 < int(text) <= MAX_AMOUNT:
        raise InputError("the amount is not a whole number from 1 to 2**256-1")
    return int(text)
