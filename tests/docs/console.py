"""Run a page's console sessions in a terminal of 80 columns, and compare their output."""

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path

from tests.docs.pages import Block
from tests.docs.runner import Runner, evaluated
from tests.kit.terminals import open_terminal
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE

#: Stands for lines that a page leaves out.
OMITTED = "…"
_SERVERS = ("nftsync sandbox", "nftsync serve")
_URL = re.compile(r"http://[\d.]+:\d+(?=\D)")
#: Commands that act. The others show a state: they run until they show the one of the page.
_ACTS = re.compile(
    r"(nftsync (sync|webhook-config|report|watch send)|curl|export|mkdir|cd)\b", re.ASCII
)
#: What differs between two runs: days, times with their windows, durations and random ids.
_VARYING = (
    (r"\d{4}-\d\d-\d\d", "DAY"),
    (r"\d\d:\d\d(:\d\d)?(\.\d+)?(–(DAY )?\d\d(:\d\d)*(\.\d+)?)?", "TIME"),
    (r"\b[\d.]+ (s|min)\b", "N s"),
    (r'"webhooks":\[[^]]*\]', "WEBHOOKS"),
    (r"\bmsg_[0-9a-f]{4}…[0-9a-f]{4}\b", "MESSAGE"),
    (r"─+", "─"),
    (r"[ \t]+", " "),
)


def essence(text: str) -> list[str]:
    """Return the lines without what differs between two runs."""
    for pattern, name in _VARYING:
        text = re.sub(pattern, name, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def agrees(shown: str, printed: str) -> bool:
    """Compare the output on a page with a command's; a line `…` stands for any lines."""
    lines = ["(?:.*\n)*" if line == OMITTED else f"{re.escape(line)}\n" for line in essence(shown)]
    return re.fullmatch("".join(lines), "".join(f"{x}\n" for x in essence(printed))) is not None


def commands(session: str) -> list[tuple[str, str]]:
    """Return the commands of a session, each with the output that follows."""
    found: list[tuple[str, str]] = []
    for line in session.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> "):
            found[-1] = f"{found[-1][0]}\n{line[2:]}", ""
        else:
            found[-1] = found[-1][0], f"{found[-1][1]}{line}\n"
    return found


class Console(Runner):
    """Run a page as a reader does: in a folder, with files to save and servers in terminals.

    Attributes:
        value: the value of the last Python block; the text block after it shows it.
        printed: the commands with their output, from which a page can be written.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._environment |= {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "xterm"}
        self.value: object = None
        self.printed: list[tuple[str, str]] = []
        self._terminals: dict[str, tuple[subprocess.Popen[str], list[bytes]]] = {}

    def run(self, block: Block) -> object:
        name, _, more = block.mark.removeprefix("file: ").partition(", ")
        if name == block.mark:
            return super().run(block)
        with (self.folder / name).open("a" if more else "w") as file:
            file.write(self.replaced(block.text))
        return None

    def stop(self, command: str) -> None:
        """End a server as Ctrl-C does."""
        server, _ = self._terminals.pop(command)
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 0

    def start(self, command: str) -> None:
        """Start a server in a terminal of its own: at first on a free port."""
        at = "http://127.0.0.1:8788" if "sandbox" in command else "http://127.0.0.1:8787"
        port = self.replace.get(at, ":0").rpartition(":")[2]
        user, terminal = open_terminal()
        words = [*shlex.split(self.replaced(command)), "--port", port]
        server = self.begin(*words, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal)
        os.close(terminal)
        shown: list[bytes] = []
        threading.Thread(target=_read, args=(user, shown), daemon=True).start()
        self._terminals[command.split(" -")[0]] = server, shown
        wait_until(lambda: _URL.search(_text(shown)), lambda: shown)
        url = _URL.search(_text(shown))
        assert url is not None
        self.replace[at] = url[0]

    def close(self) -> None:
        for command in [*self._terminals]:
            self.stop(command)
        super().close()

    def _console(self, session: str) -> None:
        for command, shown in commands(session):
            if command.startswith(_SERVERS):
                self.start(command)
                self._wait_for(shown, self._terminals[command.split(" -")[0]][1])
                continue
            deadline = time.monotonic() + PATIENCE / 4
            while True:
                code, printed = self.terminal(command)
                if code == 0 and agrees(shown, printed):
                    break
                if _ACTS.match(command) or time.monotonic() > deadline:
                    raise AssertionError(f"$ {command}\n{printed}exit code {code}")
            self.printed.append((command, printed))

    def _wait_for(self, expected: str, shown: list[bytes]) -> None:
        wait_until(lambda: agrees(expected, self._page(_text(shown))), lambda: shown)

    def terminal(self, command: str) -> tuple[int, str]:
        """Run a command in a terminal; return its exit code and output, its messages last."""
        user, terminal = open_terminal()
        pipe = subprocess.PIPE
        kept = self.folder / ".environment"
        script = f"{self.replaced(command)}\nstatus=$?; env -0 > {kept}; exit $status"
        ran = self.begin(
            "bash", "-c", script, stdin=subprocess.DEVNULL, stdout=terminal, stderr=pipe
        )
        os.close(terminal)
        shown: list[bytes] = []
        reader = threading.Thread(target=_read, args=(user, shown))
        reader.start()
        assert ran.stderr is not None
        with ran.stderr:
            messages = ran.stderr.read()
        reader.join()
        code = ran.wait(PATIENCE)
        self.kept()
        printed = _text(shown)
        if printed and not printed.endswith("\n"):
            printed += "\n"
        return code, self._page(printed + messages)

    def shell(self, script: str) -> str:
        out = super().shell(script)
        self.kept()
        return out

    def kept(self) -> None:
        """Stay in the folder to which a command went."""
        pairs = (self.folder / ".environment").read_text().split("\0")[:-1]
        self._environment = dict(pair.split("=", 1) for pair in pairs)
        self.folder = Path(self._environment["PWD"])
        self.database = self.folder / "data" / "nftsync.db"

    def _page(self, printed: str) -> str:
        """Return output with the page's addresses."""
        for page, own in self.replace.items():
            if page.startswith("http"):
                printed = printed.replace(own, page)
        return printed

    def _python(self, text: str) -> object:
        self.value = evaluated(self.replaced(text), {"__name__": "snippet"})
        return self.value

    def _text(self, text: str) -> None:
        assert agrees(text, str(self.value)), self.value


def _text(shown: list[bytes]) -> str:
    return b"".join(shown).decode(errors="replace").replace("\r\n", "\n")


def _read(terminal: int, shown: list[bytes]) -> None:
    """Read a terminal until the command ends."""
    try:
        while read := os.read(terminal, 65_536):
            shown.append(read)
    except OSError:  # Linux reports the end of a terminal as an error
        pass
    os.close(terminal)
