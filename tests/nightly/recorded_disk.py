"""Changes of files recorded by `strace`, and the files after a power cut.

A disk may lose unsynced data: any of a file's writes after its last fsync, completely or in some
sectors; and the last changes of names since the last fsync of their directory (a journal keeps
their order). Memory-mapped files (the `-shm` of SQLite) are not recorded: after a cut, they are
missing or have random content.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

_CALLS = (
    "openat,pwrite64,write,lseek,fsync,fdatasync,ftruncate,unlink,unlinkat,rename,link,linkat,mkdir,"
    "recvfrom,sendto"
)
_SECTOR = 512
_OK = '"' + "".join(f"\\x{byte:02x}" for byte in b"HTTP/1.1 200 ")

#: The unsynced writes that remain after a cut.
How: TypeAlias = Literal["none", "all", "some", "torn"]


def can_record() -> bool:
    """Return whether `strace` is installed and permitted."""
    if shutil.which("strace") is None:
        return False
    return os.spawnlp(os.P_WAIT, "strace", "strace", "-qqq", "-o", "/dev/null", "true") == 0


def recording(trace: Path) -> list[str]:
    """Return the words before a recorded command; signals must be sent to the command itself."""
    shown = ("-y", "-xx", "-s", "2000000", "-e", "signal=none", "-e", f"trace={_CALLS}")
    return ["strace", "-f", "--seccomp-bpf", *shown, "-o", str(trace)]


@dataclass(eq=False)
class _Change:
    """A change of a file's content, or of the names in directories; `None` bytes truncate."""

    begin: int
    end: int
    offset: int = 0
    data: bytes | None = None


@dataclass(eq=False)
class _File:
    """A file: its first content, its changes, and its syncs."""

    first: bytes = b""
    changes: list[_Change] = field(default_factory=list)
    syncs: list[tuple[int, int]] = field(default_factory=list)


@dataclass(eq=False)
class _Naming:
    """Names that were added (a file) or removed (None) at once."""

    begin: int
    end: int
    names: dict[Path, _File | None]


@dataclass(frozen=True)
class Reply:
    """A request that was answered 200.

    Attributes:
        at: the moment in which the reply was handed to the system.
        request: its bytes.
    """

    at: int
    request: bytes


class Disk:
    """The recorded files of a folder.

    Args:
        folder: the recorded folder.
        before: a copy of it at the start.
        trace: the output of `strace`.

    Attributes:
        end: the moment after all; moments are counted from 0.
        replies: of the program, if it is a server.
        printed: texts on standard output, each with the moment before.
        syncs: the moments after each sync.
    """

    def __init__(self, folder: Path, before: Path, trace: Path) -> None:
        self._folder = folder
        self._now: dict[Path, _File] = {}
        self._directories: dict[Path, list[tuple[int, int]]] = {folder: []}
        for path in before.rglob("*"):
            if path.is_file():
                self._now[folder / path.relative_to(before)] = _File(path.read_bytes())
            else:
                self._directories[folder / path.relative_to(before)] = []
        self._first = dict(self._now)
        self._namings: list[_Naming] = []
        self._places: dict[str, int] = {}
        self._requests: dict[str, bytes] = {}
        self.replies: list[Reply] = []
        self.printed: list[tuple[int, bytes]] = []
        self.syncs: list[int] = []
        self.end = 0
        for begin, end, name, given, result in _calls(trace):
            self.end = max(self.end, end + 1)
            method = getattr(self, f"_on_{name}", None)
            if method is not None and not result.startswith("-1"):
                method(begin, end, given, result)

    # Recorded calls ----------------------------------------------------------------------------

    def _on_openat(self, begin: int, end: int, given: list[str], result: str) -> None:
        path = _path_of(result)
        if path is None or self._folder not in path.parents or path.name.endswith("-shm"):
            return
        self._places[result] = 0
        if path in self._now:
            if "O_TRUNC" in given[2]:
                self._now[path].changes.append(_Change(begin, end))
        elif "O_CREAT" in given[2]:
            self._name(begin, end, {path: _File()})

    def _on_pwrite64(self, begin: int, end: int, given: list[str], _: str) -> None:
        self._write(begin, end, given[0], given[1], int(given[3]))

    def _on_write(self, begin: int, end: int, given: list[str], result: str) -> None:
        if given[0].startswith("1<"):
            self.printed.append((begin, _bytes_of(given[1])))
        place = self._places.get(given[0])
        if place is not None:
            self._write(begin, end, given[0], given[1], place)
            self._places[given[0]] = place + int(result)

    def _on_lseek(self, _: int, __: int, given: list[str], result: str) -> None:
        if given[0] in self._places:
            self._places[given[0]] = int(result)

    def _write(self, begin: int, end: int, which: str, data: str, offset: int) -> None:
        file = self._now.get(_path_of(which) or Path())
        if file is not None:
            file.changes.append(_Change(begin, end, offset, _bytes_of(data)))

    def _on_ftruncate(self, begin: int, end: int, given: list[str], _: str) -> None:
        file = self._now.get(_path_of(given[0]) or Path())
        if file is not None:
            file.changes.append(_Change(begin, end, int(given[1])))

    def _on_fsync(self, begin: int, end: int, given: list[str], _: str) -> None:
        path = _path_of(given[0]) or Path()
        if path in self._directories:
            self._directories[path].append((begin, end))
        elif path in self._now:
            self._now[path].syncs.append((begin, end))
        else:
            return
        self.syncs.append(end + 1)

    _on_fdatasync = _on_fsync

    def _on_mkdir(self, _: int, __: int, given: list[str], ___: str) -> None:
        self._directories.setdefault(Path(os.fsdecode(_bytes_of(given[0]))), [])

    def _on_unlink(self, begin: int, end: int, given: list[str], _: str) -> None:
        self._name(begin, end, {Path(os.fsdecode(_bytes_of(given[0]))): None})

    def _on_unlinkat(self, begin: int, end: int, given: list[str], _: str) -> None:
        self._name(begin, end, {_joined(given[0], given[1]): None})

    def _on_rename(self, begin: int, end: int, given: list[str], _: str) -> None:
        old, new = (Path(os.fsdecode(_bytes_of(each))) for each in given)
        names: dict[Path, _File | None] = {}
        if old in self._directories:
            self._directories[new] = self._directories.pop(old)
            for path in [each for each in self._now if old in each.parents]:
                names |= {path: None, new / path.relative_to(old): self._now[path]}
        elif old in self._now:
            names = {old: None, new: self._now[old]}
        self._name(begin, end, names)

    def _on_linkat(self, begin: int, end: int, given: list[str], _: str) -> None:
        old, new = _joined(given[0], given[1]), _joined(given[2], given[3])
        if old in self._now:
            self._name(begin, end, {new: self._now[old]})

    def _on_link(self, begin: int, end: int, given: list[str], _: str) -> None:
        old, new = (Path(os.fsdecode(_bytes_of(each))) for each in given)
        if old in self._now:
            self._name(begin, end, {new: self._now[old]})

    def _name(self, begin: int, end: int, names: dict[Path, _File | None]) -> None:
        names = {
            path: file
            for path, file in names.items()
            if self._folder in path.parents and (file is not None or path in self._now)
        }
        if not names:
            return
        self._namings.append(_Naming(begin, end, names))
        _apply(names, self._now)

    def _on_recvfrom(self, _: int, __: int, given: list[str], ___: str) -> None:
        data = _bytes_of(given[1])
        self._requests[given[0]] = (
            data if data.startswith(b"POST ") else self._requests.get(given[0], b"") + data
        )

    def _on_sendto(self, begin: int, _: int, given: list[str], __: str) -> None:
        if given[1].startswith(_OK):
            self.replies.append(Reply(begin, self._requests.get(given[0], b"")))

    # Power cuts --------------------------------------------------------------------------------

    def cut(self, at: int, how: How, rng: random.Random) -> dict[Path, bytes]:
        """Return the files after a power cut, by path below the folder.

        Args:
            at: the moment; calls that began earlier may have an effect.
            how: the unsynced writes to keep.
            rng: chooses them.
        """
        names = dict(self._first)
        begun = [each for each in self._namings if each.begin < at]
        safe = [
            any(
                each.end < begin and end < at
                for path in each.names
                for begin, end in self._directories.get(path.parent, ())
            )
            for each in begun
        ]
        last = max((n for n, is_safe in enumerate(safe) if is_safe), default=-1)
        # A journal that keeps a later name keeps the earlier ones.
        kept = {"none": last + 1, "all": len(begun)}.get(how, rng.randint(last + 1, len(begun)))
        for each in begun[:kept]:
            _apply(each.names, names)
        return {
            path.relative_to(self._folder): _content(file, at, how, rng)
            for path, file in names.items()
        }


def _apply(names: dict[Path, _File | None], to: dict[Path, _File]) -> None:
    for path, file in names.items():
        if file is None:
            to.pop(path, None)
        else:
            to[path] = file


def _content(file: _File, at: int, how: How, rng: random.Random) -> bytes:
    content = bytearray(file.first)
    synced = max((begin for begin, end in file.syncs if end < at), default=-1)
    for change in file.changes:
        if change.begin >= at:
            break
        pieces = [(change.offset, change.data)]
        if change.end >= synced:
            if how == "none" or (how == "some" and rng.random() < 0.5):
                continue
            if how == "torn" and change.data is not None:
                pieces = [
                    (change.offset + start, change.data[start : start + _SECTOR])
                    for start in range(0, len(change.data), _SECTOR)
                    if rng.random() < 0.6
                ]
        for offset, data in pieces:
            if data is None:
                content[offset:] = b"\0" * max(0, offset - len(content))
            else:
                content.extend(b"\0" * (offset - len(content)))
                content[offset : offset + len(data)] = data
    return bytes(content)


# The output of strace -----------------------------------------------------------------------------

_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)\n")
_RESULT = re.compile(r"\) += (.*?)(?: [A-Z]+ \(.*\))?$")


def _calls(trace: Path) -> Iterator[tuple[int, int, str, list[str], str]]:
    """Yield the start, end, name, arguments and result of each call."""
    begun: dict[str, tuple[int, str]] = {}
    done = []
    with trace.open(encoding="ascii") as lines:
        for moment, line in enumerate(lines):
            found = _LINE.fullmatch(line)
            if found is None:
                continue
            process, resumed, name, rest = found.groups()
            if rest.endswith(" <unfinished ...>"):
                begun[process] = moment, rest.removesuffix(" <unfinished ...>")
                continue
            begin, first = begun.pop(process) if resumed else (moment, "")
            result = _RESULT.search(rest)
            if result is not None:
                given = (first + rest[: result.start()]).split(", ")
                done.append((begin, moment, resumed or name, given, result.group(1)))
    # Approximately in the order of their effects.
    return iter(sorted(done, key=lambda call: call[1]))


def _bytes_of(text: str) -> bytes:
    return bytes.fromhex(text.strip('"').replace("\\x", ""))


def _path_of(descriptor: str) -> Path | None:
    """Return the path of `7<...>`, or None."""
    _, _, rest = descriptor.partition("<")
    if not rest.endswith(">") or not rest.startswith("\\x2f"):
        return None
    return Path(os.fsdecode(_bytes_of(rest[:-1])))


def _joined(directory: str, name: str) -> Path:
    folder = _path_of(directory)
    path = Path(os.fsdecode(_bytes_of(name)))
    return path if folder is None else folder / path
