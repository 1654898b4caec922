"""The provider's state: who holds what, and the record of each token."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

import msgspec

from nftsync.errors import InputError
from nftsync.records import normalize_uuid
from nftsync.sandbox.answers import Answer, RecentAnswers
from nftsync.sandbox.inputs import (
    MAX_AMOUNT,
    Metadata,
    json_object,
    positive_amount,
    whole_amount,
)
from nftsync.sandbox.journal import Journal, NoJournal
from nftsync.sandbox.worldfile import Holding, Record, has_record, read_world_file

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["MAX_AMOUNT", "Metadata", "World", "WorldContents"]

_CACHE_BYTES = 64 * 1024 * 1024


class _Balances(msgspec.Struct, rename="camel"):
    nft_token_balances: list[Holding]


class WorldContents(msgspec.Struct, frozen=True):
    """All that a world is made of.

    Attributes:
        organization_id: see `World`.
        mint_contract: the contract address of minted tokens.
        minted: how many tokens were minted.
        wallets: each wallet's id as it is answered, by the id in lower case.
        holdings: each wallet's entries in the order of its list, by the token's id in lower case.
        records: each token's own record, by its id in lower case.
    """

    organization_id: str
    mint_contract: str
    minted: int
    wallets: dict[str, str]
    holdings: dict[str, dict[str, Holding]]
    records: dict[str, Record]


class World:
    """Wallets, tokens and holdings, safe to use from many threads.

    Ids match whatever their case and are answered as they were first written; amounts and token
    records are answered to the character. A bad argument of an edit raises InputError and leaves
    everything as it was.

    Attributes:
        organization_id: the organization that minted tokens and webhooks belong to.
    """

    def __init__(self, *, seed: int = 0, organization_id: str | None = None) -> None:
        self._random = Random(f"world {seed}")  # noqa: S311 - a simulation, to be repeatable
        self.organization_id = organization_id or self._new_id()
        self._mint_contract = f"0x{self._random.getrandbits(160):040x}"
        self._minted = 0
        self._lock = threading.RLock()
        self._wallets: dict[str, str] = {}
        self._holdings: dict[str, dict[str, Holding]] = {}
        self._records: dict[str, Record] = {}
        self._answers = RecentAnswers(_CACHE_BYTES)
        self._journal: Journal = NoJournal()

    @classmethod
    def load(cls, path: str | PathLike[str], *, seed: int = 0) -> World:
        """Read a world file: JSON lines, plain or gzip.

        Args:
            path: the file.
            seed: what the ids of later mints are drawn from.

        Raises:
            InputError: the file or a line of it is unusable; the text says where and why.
        """
        world = cls(seed=seed)
        for line in read_world_file(path):
            world.add_wallet(line.wallet_id, line.nft_token_balances)
        return world

    @classmethod
    def restore(cls, contents: WorldContents) -> World:
        """Make the world that `contents` was taken from; later ids are other ones."""
        # The number of mints keeps one restart from drawing what an earlier one drew.
        seed = f"{contents.organization_id} {contents.minted}"
        world = cls(organization_id=contents.organization_id)
        world._random = Random(f"restored {seed}")  # noqa: S311 - a simulation
        world._mint_contract = contents.mint_contract
        world._minted = contents.minted
        world._wallets = contents.wallets
        world._holdings = contents.holdings
        world._records = contents.records
        return world

    def contents(self) -> WorldContents:
        """What the world is made of: its own dictionaries, not copies."""
        return WorldContents(
            organization_id=self.organization_id,
            mint_contract=self._mint_contract,
            minted=self._minted,
            wallets=self._wallets,
            holdings=self._holdings,
            records=self._records,
        )

    def tell(self, journal: Journal) -> None:
        """Tell a journal of every change from now on."""
        with self._lock:
            self._journal = journal

    @contextmanager
    def editing(self) -> Iterator[None]:
        """Hold readers and other edits off; what is edited inside is kept by the journal as one."""
        with self._lock, self._journal.transaction():
            yield

    def wallets(self) -> list[str]:
        """The ids of all wallets, in the order they came."""
        with self._lock:
            return list(self._wallets.values())

    def balances(self, wallet_id: str) -> Answer | None:
        """What a read of a wallet's balances is answered; None for an unknown wallet."""
        key = wallet_id.lower()
        with self._lock:
            answer = self._answers.get(key)
            if answer is None and (held := self._holdings.get(key)) is not None:
                answer = Answer.of(msgspec.json.encode(_Balances(list(held.values()))))
                self._answers.put(key, answer)
            return answer

    def token(self, token_id: str) -> Answer | None:
        """What a read of a token is answered; None where the world has no record of it."""
        with self._lock:
            record = self._records.get(token_id.lower(), msgspec.UNSET)
        return Answer.of(bytes(record)) if isinstance(record, msgspec.Raw) else None

    def balances_body(self, wallet_id: str) -> bytes | None:
        """The body of `balances`."""
        answer = self.balances(wallet_id)
        return answer.body if answer else None

    def balances_etag(self, wallet_id: str) -> str | None:
        """The validator of `balances`."""
        answer = self.balances(wallet_id)
        return answer.etag if answer else None

    def token_body(self, token_id: str) -> bytes | None:
        """The body of `token`."""
        answer = self.token(token_id)
        return answer.body if answer else None

    def add_wallet(self, wallet_id: str | None = None, holdings: Iterable[Holding] = ()) -> str:
        """Open a wallet.

        Args:
            wallet_id: its id; None draws one.
            holdings: what it holds from the start, each token once.

        Returns:
            The id.

        Raises:
            InputError: an id is no UUID, or there is such a wallet.
        """
        with self.editing():
            shown = wallet_id if wallet_id is not None else self._unused_id(self._wallets)
            key = normalize_uuid(shown, "wallet id")
            if key in self._wallets:
                raise InputError(f"there is a wallet {shown} already")
            held = {normalize_uuid(each.token_id, "token id"): each for each in holdings}
            for token, holding in held.items():
                known = self._records.get(token, msgspec.UNSET)
                if known is msgspec.UNSET:
                    record = holding.token if has_record(holding.token) else msgspec.UNSET
                    self._keep_record(token, record)
            self._wallets[key] = shown
            self._holdings[key] = held
            self._journal.keep_wallet(key, shown)
            for token, holding in held.items():
                self._journal.keep_holding(key, token, holding)
            return shown

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
        moved = positive_amount(amount)
        with self.editing():
            giver, getter = self._wallet(from_wallet), self._wallet(to_wallet)
            token = self._token(token_id)
            given = self._holdings[giver].get(token)
            if given is None:
                raise InputError(f"wallet {giver} holds no token {token}")
            had = whole_amount(giver, given)
            if moved > had:
                raise InputError(f"wallet {giver} holds {had} of token {token}, not {moved}")
            if giver == getter:
                return
            got = self._holdings[getter].get(token)
            total = moved + (whole_amount(getter, got) if got is not None else 0)
            if total > MAX_AMOUNT:
                raise InputError(f"wallet {getter} would hold more than 2**256-1 of token {token}")
            self._put(getter, token, _with_amount(got or given, total))
            self._put(giver, token, _with_amount(given, had - moved) if had > moved else None)

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
        total = positive_amount(amount)
        shown = json_object(metadata, "metadata")
        with self.editing():
            wallet = self._wallet(wallet_id)
            token = self._unused_id(self._records)
            self._minted += 1
            self._journal.keep_minted(self._minted)
            record = {
                "id": token,
                "organizationId": self.organization_id,
                "contractAddress": self._mint_contract,
                "blockchainTokenId": str(self._minted),
                "metadata": shown,
            }
            raw = msgspec.Raw(msgspec.json.encode(record))
            self._keep_record(token, raw)
            self._put(wallet, token, Holding(token, str(total), raw))
            return token

    def edit_metadata(self, token_id: str, metadata: Metadata) -> None:
        """Replace a token's metadata, in its own record and in the list of every holder.

        Args:
            token_id: the token.
            metadata: a JSON object; fields that it lacks are gone.

        Raises:
            InputError: an unknown token, or metadata that is no object.
        """
        shown = json_object(metadata, "metadata")
        with self.editing():
            token = self._token(token_id)
            record = self._records[token]
            if isinstance(record, msgspec.Raw):
                fields = msgspec.json.decode(record, type=dict[str, msgspec.Raw])
            else:
                fields = {"id": msgspec.Raw(msgspec.json.encode(token))}
            fields["metadata"] = msgspec.Raw(msgspec.json.encode(shown))
            raw = msgspec.Raw(msgspec.json.encode(fields))
            self._keep_record(token, raw)
            for wallet, held in self._holdings.items():
                holding = held.get(token)
                if holding is not None and has_record(holding.token):
                    self._put(wallet, token, Holding(holding.token_id, holding.amount, raw))

    def set_amount(self, wallet_id: str, token_id: str, amount_text: str) -> None:
        """Let a wallet list a token with this very text as its amount, a number or not.

        Raises:
            InputError: an unknown wallet or token.
        """
        with self.editing():
            wallet, token = self._wallet(wallet_id), self._token(token_id)
            holding = self._holdings[wallet].get(token)
            if holding is None:
                holding = Holding(token, amount_text, self._records[token])
            self._put(wallet, token, Holding(holding.token_id, amount_text, holding.token))

    def remove(self, wallet_id: str, token_id: str) -> None:
        """Take a token off a wallet's list.

        Raises:
            InputError: an unknown wallet or token, or the wallet does not list it.
        """
        with self.editing():
            wallet, token = self._wallet(wallet_id), self._token(token_id)
            if token not in self._holdings[wallet]:
                raise InputError(f"wallet {wallet} holds no token {token}")
            self._put(wallet, token, None)

    def _put(self, wallet: str, token: str, holding: Holding | None) -> None:
        if holding is None:
            del self._holdings[wallet][token]
        else:
            self._holdings[wallet][token] = holding
        self._answers.drop(wallet)
        self._journal.keep_holding(wallet, token, holding)

    def _keep_record(self, token: str, record: Record) -> None:
        self._records[token] = record
        self._journal.keep_record(token, record)

    def _wallet(self, wallet_id: str) -> str:
        key = normalize_uuid(wallet_id, "wallet id")
        if key not in self._holdings:
            raise InputError(f"there is no wallet {key}")
        return key

    def _token(self, token_id: str) -> str:
        key = normalize_uuid(token_id, "token id")
        if key not in self._records:
            raise InputError(f"there is no token {key}")
        return key

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _unused_id(self, taken: Mapping[str, object]) -> str:
        drawn = self._new_id()
        while drawn in taken:
            drawn = self._new_id()
        return drawn


def _with_amount(holding: Holding, amount: int) -> Holding:
    return Holding(holding.token_id, str(amount), holding.token)
