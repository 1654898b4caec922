"""Contracts and what to call them: one spelling of an address, and what tokens' names share."""

from __future__ import annotations

import re

import msgspec

from nftsync.text import without_controls

__all__ = [
    "BETWEEN",
    "HEX_ADDRESS",
    "NUMBER",
    "NamesSeen",
    "contract_key",
    "is_hex_address",
    "series_of",
    "short_address",
]


HEX_ADDRESS = "0[xX][0-9a-fA-F]{40}"
_HEX_ADDRESS = re.compile(HEX_ADDRESS)
_LONGEST_WHOLE = 20


def is_hex_address(address: str) -> bool:
    """Whether it is `0x` and 40 hex digits, whose case only carries a checksum."""
    return _HEX_ADDRESS.fullmatch(address) is not None


def contract_key(address: str) -> str:
    """The text that all spellings of one contract's address have in common."""
    return address.lower() if is_hex_address(address) else address


def short_address(contract: str) -> str:
    """A contract by its two ends, `0x8f4f…8e63`; whole where it is no longer than 20 characters."""
    if len(contract) <= _LONGEST_WHOLE:
        return contract
    return f"{contract[:6]}…{contract[-4:]}"


# For RE2 and for `re`: each begins only where a run of digits or separators does, so that its time
# grows with no more than the length of the text. Names are the provider's.
#: A number that ends a name: `12`, `12/100`, `12 of 100)`.
NUMBER = (
    r"(?i)(?P<before>^|[^0-9])0*(?P<number>0|[1-9][0-9]{0,18})(?:\s*(?:/|of)\s*[0-9]+)?[\s)\]]*$"
)
#: What stands between it and the name of the series: ` #`, ` (`, ` No. `, ` - Edition `; or nothing
#: if the number is all there is.
BETWEEN = (
    r"(?is)^(?P<series>(?:.*?[^\s(\[#№,:;|_–—-])??)(?:^|[\s(\[#№,:;|_–—-]+)"
    r"(?:(?:no|nr|number|edition|ed)(?:\.|\s)[\s#]*)?$"
)
_NUMBER, _BETWEEN = re.compile(NUMBER, re.ASCII), re.compile(BETWEEN, re.ASCII)


def series_of(name: str) -> str | None:
    """A token's name without the number at its end; None where no number ends it."""
    number = _NUMBER.search(name)
    between = number and _BETWEEN.match(name[: number.end("before")])
    return between["series"] if between else None


#: Tokens of a contract that are looked at: the first, and of the others one of so many. That is
#: enough to guess from, little work, and not only what the first wallet holds.
_SAMPLE, _ONE_OF = 200, 16
#: Names that are remembered of a contract; what nearly all tokens share is never forgotten.
_REMEMBERED = 8
#: A name is no guess from fewer tokens, nor from a smaller share of the contract's tokens.
_FEWEST, _SHARE = 5, 0.8
_LONGEST_NAME = 100


class _Series(msgspec.Struct, array_like=True):
    """Tokens whose names are the same without their numbers; `whole` is the name that all have."""

    count: int
    whole: str | None


class NamesSeen(msgspec.Struct):
    """What is remembered of the names of a contract's tokens, to guess the collection's from them.

    The most frequent series are counted in little room (Misra and Gries, 1982): a count falls short
    of the truth by at most an eighth of the tokens of other series.

    Attributes:
        came: how many tokens came.
        looked_at: the sample of them that stands, those without a name included.
        series: the most frequent series.
    """

    came: int = 0
    looked_at: int = 0
    series: dict[str, _Series] = {}

    def add(self, name: str | None) -> None:
        """Take in a token, by its name."""
        self.came += 1
        if self.came > _SAMPLE and self.came % _ONE_OF:
            return
        self.looked_at += 1
        whole, series = _parts(name)
        if not series:
            return
        known = self.series.get(series)
        if known is not None:
            known.count += 1
            if known.whole != whole:
                known.whole = None
        elif len(self.series) < _REMEMBERED:
            self.series[series] = _Series(1, whole)
        else:
            for each in list(self.series):
                self._forget_one(each)

    def remove(self, name: str | None) -> None:
        """Let go of a token that has this name no longer, as far as it is remembered."""
        _, series = _parts(name)
        if series in self.series:
            self._forget_one(series)
            self.looked_at -= 1
        elif not series:
            remembered = sum(known.count for known in self.series.values())
            self.looked_at = max(self.looked_at - 1, remembered)

    def _forget_one(self, series: str) -> None:
        known = self.series[series]
        known.count -= 1
        if not known.count:
            del self.series[series]

    def guess(self) -> str | None:
        """What the collection may be called: the series of nearly all tokens, if there is one."""
        for series, known in self.series.items():
            if known.count >= max(_FEWEST, _SHARE * self.looked_at):
                return known.whole or series
        return None


def _parts(name: str | None) -> tuple[str, str]:
    """A name as one line, and its series; blank where it is none, or too long to be one."""
    whole = "" if name is None or len(name) > _LONGEST_NAME else without_controls(name)
    series = series_of(whole)
    return whole, whole if series is None else series
