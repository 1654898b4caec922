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
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_CALLS = (
    "openat,pwrite64,write,lseek,fsync,fdatasync,ftruncate,unlink,unlinkat,rename,link,linkat,mkdir,"
    "recvfrom,sendto"
)
_SECTOR = 512
_OK = '"' + "".join(f"\\x{byte:02x}" for byte in b"HTTP/1.1 200 ")
#: The unsynced writes that remain after a cut.
HOW = ("none", "all", "some", "torn")


def can_record() -> bool:
    if shutil.which("strace") is None:
        return False
    return os.spawnlp(os.P_WAIT, "strace", "strace", "-qqq", "-o", "/dev/null", "true") == 0


def recording(folder: Path) -> list[str]:
    """Copy the `data` of a folder; return the words before a command that is recorded."""
    shutil.copytree(folder / "data", folder / "before")
    shown = ("-y", "-xx", "-s", "2000000", "-e", "signal=none", "-e", f"trace={_CALLS}")
    return ["strace", "-f", "--seccomp-bpf", *shown, "-o", str(folder / "trace")]


class _Call(NamedTuple):
    begin: int
    end: int
    name: str
    given: list[str]
    result: str


class _Change(NamedTuple):
    """A change of a file's content; `None` bytes truncate."""

    begin: int
    end: int
    offset: int = 0
    data: bytes | None = None


@dataclass(eq=False)
class _File:
    first: bytes = b""
    changes: list[_Change] = field(default_factory=list)
    syncs: list[tuple[int, int]] = field(default_factory=list)

    def content(self, at: int, how: str, rng: random.Random) -> bytes:
        content = bytearray(self.first)
        synced = max((begin for begin, end in self.syncs if end < at), default=-1)
        for change in self.changes:
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
                content.extend(b"\0" * (offset - len(content)))
                content[offset : None if data is None else offset + len(data)] = data or b""
        return bytes(content)


_Names = dict[Path, _File | None]


class Cut(NamedTuple):
    """A power cut: its moment, the unsynced writes that remain, and a folder with the files."""

    at: int
    how: str
    left: Path


class Disk:
    """The recorded files in the `data` of a folder.

    Attributes:
        end: the moment after all; moments are counted from 0.
        replies: the requests that a server answered 200, each with the moment of the answer.
        printed: texts on standard output, each with the moment before.
        syncs: the moments after each sync.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, before, self.end = folder / "data", folder / "before", 0
        paths = {self._folder / path.relative_to(before): path for path in before.rglob("*")}
        self._now = {x: _File(y.read_bytes()) for x, y in paths.items() if y.is_file()}
        self._directories: dict[Path, list[tuple[int, int]]] = {
            path: [] for path in (self._folder, *(paths.keys() - self._now.keys()))
        }
        self._first = dict(self._now)
        self._namings: list[tuple[int, int, _Names]] = []  # names that changed at once
        self._places: dict[str, int] = {}
        self._requests: dict[str, bytes] = {}
        self.replies: list[tuple[int, bytes]] = []
        self.printed: list[tuple[int, bytes]] = []
        self.syncs: list[int] = []
        for call in _calls(folder / "trace"):
            self.end = max(self.end, call.end + 1)
            if not call.result.startswith("-1"):
                self._replay(call)

    def _replay(self, call: _Call) -> None:
        which, path = call.given[0], _path_of(call.given[0])
        match call.name:
            case "openat":
                self._open(call, _path_of(call.result))
            case "pwrite64":
                self._change(call, int(call.given[3]), _bytes_of(call.given[1]))
            case "write":
                data = _bytes_of(call.given[1])
                if which.startswith("1<"):
                    self.printed.append((call.begin, data))
                if which in self._places:
                    self._change(call, self._places[which], data)
                    self._places[which] += int(call.result)
            case "lseek" if which in self._places:
                self._places[which] = int(call.result)
            case "ftruncate":
                self._change(call, int(call.given[1]))
            case "fsync" | "fdatasync":
                syncs = self._now[path].syncs if path in self._now else self._directories.get(path)
                if syncs is not None:
                    syncs.append((call.begin, call.end))
                    self.syncs.append(call.end + 1)
            case "mkdir":
                self._directories.setdefault(*_paths(call), [])
            case "unlink" | "unlinkat":
                self._name(call, dict.fromkeys(_paths(call)))
            case "rename":
                self._rename(call, *_paths(call))
            case "link" | "linkat":
                old, new = _paths(call)
                if old in self._now:
                    self._name(call, {new: self._now[old]})
            case "recvfrom":
                data, earlier = _bytes_of(call.given[1]), self._requests.get(which, b"")
                self._requests[which] = data if data.startswith(b"POST ") else earlier + data
            case "sendto" if call.given[1].startswith(_OK):
                self.replies.append((call.begin, self._requests.get(which, b"")))

    def _open(self, call: _Call, path: Path) -> None:
        if self._folder not in path.parents or path.name.endswith("-shm"):
            return
        self._places[call.result] = 0
        if path not in self._now and "O_CREAT" in call.given[2]:
            self._name(call, {path: _File()})
        elif path in self._now and "O_TRUNC" in call.given[2]:
            self._now[path].changes.append(_Change(call.begin, call.end))

    def _change(self, call: _Call, offset: int, data: bytes | None = None) -> None:
        if (file := self._now.get(_path_of(call.given[0]))) is not None:
            file.changes.append(_Change(call.begin, call.end, offset, data))

    def _rename(self, call: _Call, old: Path, new: Path) -> None:
        names: _Names = {}
        if old in self._directories:
            self._directories[new] = self._directories.pop(old)
            for path in [each for each in self._now if old in each.parents]:
                names |= {path: None, new / path.relative_to(old): self._now[path]}
        elif old in self._now:
            names = {old: None, new: self._now[old]}
        self._name(call, names)

    def _name(self, call: _Call, names: _Names) -> None:
        names = {
            path: file
            for path, file in names.items()
            if self._folder in path.parents and (file is not None or path in self._now)
        }
        if names:
            self._namings.append((call.begin, call.end, names))
            _apply(names, self._now)

    def check_cuts(
        self,
        check: Callable[[Cut], object],
        count: int,
        rng: random.Random,
        folder: Path,
        *after: int,
    ) -> Counter[str]:
        """Check the files after random cuts; return counts. AssertionError is a fault."""
        figures = Counter(syncs=len(self.syncs), cuts=count)
        for cut in self.cuts(count, rng, folder, *after):
            try:
                check(cut)
            except AssertionError as error:
                raise AssertionError(f"{cut} of {self.end}: {error}") from error
            figures[cut.how] += 1
        return figures

    def cuts(self, count: int, rng: random.Random, folder: Path, *after: int) -> Iterator[Cut]:
        """Yield random cuts, half of them after a sync or these moments, and one at the end."""
        moments = [*self.syncs, *after]
        for number in range(count + 1):
            at = rng.choice(moments) if number % 2 else rng.randrange(self.end + 1)
            at, how = (at, rng.choice(HOW)) if number < count else (self.end, "none")
            (left := folder / f"left-{number}").mkdir(parents=True)
            for path, content in self._cut(at, how, rng).items():
                (left / path).parent.mkdir(parents=True, exist_ok=True)
                (left / path).write_bytes(content)
            yield Cut(at, how, left)
            shutil.rmtree(left)

    def _cut(self, at: int, how: str, rng: random.Random) -> dict[Path, bytes]:
        """Return the files after a power cut; calls that began earlier may have an effect."""
        names = dict(self._first)
        begun = [each for each in self._namings if each[0] < at]
        safe = [
            number
            for number, (_, end, changed) in enumerate(begun, start=1)
            for path in changed
            for begin, synced in self._directories.get(path.parent, ())
            if end < begin and synced < at
        ]
        last = max(safe, default=0)
        # A journal that keeps a later name keeps the earlier ones.
        kept = {"none": last, "all": len(begun)}.get(how, rng.randint(last, len(begun)))
        for _, _, changed in begun[:kept]:
            _apply(changed, names)
        return {
            path.relative_to(self._folder): file.content(at, how, rng)
            for path, file in names.items()
        }


def _apply(names: _Names, to: dict[Path, _File]) -> None:
    for path, file in names.items():
        if file is None:
            to.pop(path, None)
        else:
            to[path] = file


_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)\n")
_RESULT = re.compile(r"\) += (.*?)(?: [A-Z]+ \(.*\))?$")


def _calls(trace: Path) -> list[_Call]:
    """Return the calls, approximately in the order of their effects."""
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
            if (result := _RESULT.search(rest)) is not None:
                given = (first + rest[: result.start()]).split(", ")
                done.append(_Call(begin, moment, resumed or name, given, result.group(1)))
    return done


def _bytes_of(text: str) -> bytes:
    return bytes.fromhex(text.strip('"').replace("\\x", ""))


def _path_of(descriptor: str) -> Path:
    _, _, rest = descriptor.partition("<")
    is_path = rest.startswith("\\x2f") and rest.endswith(">")
    return Path(os.fsdecode(_bytes_of(rest[:-1]))) if is_path else Path()


def _paths(call: _Call) -> list[Path]:
    """Return the paths that a call names, each perhaps after the descriptor of its directory."""
    found, folder = [], Path()
    for word in call.given:
        if word.startswith('"'):
            found.append(folder / os.fsdecode(_bytes_of(word)))
        folder = _path_of(word)
    return found
