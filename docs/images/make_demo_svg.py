"""Run `nftsync demo` on a pseudo-terminal, and draw its output as demo.svg.

Run `python docs/images/make_demo_svg.py` when the demo's output has changed, with `nftsync` on the
path. The picture leaves out progress bars and the database's folder.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

_PICTURE = Path(__file__).with_name("demo.svg")
_COLUMNS = 127
_ROWS = 60

_BAR = re.compile(r"\w+: +[0-9]+%\|")
#: Rich measures text by characters, but a pictogram fills two columns, and right-to-left text moves
#: the text after it. A separate style keeps the rest of the line in its place.
_APART = re.compile(
    "[\u2600-\u27bf\U0001f000-\U0001faff]\ufe0f?|[\u0590-\u08ff]+(?: [\u0590-\u08ff]+)*"
)

#: Rich's SVG names a web font, but the picture must not fetch anything.
_FONT_RULES = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def capture(command: list[str], folder: str) -> str:
    """Run a command on a pseudo-terminal and return its output."""
    terminal, child_terminal = pty.openpty()
    fcntl.ioctl(child_terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(  # noqa: S603 - our own command
        command,
        cwd=folder,
        env=environment,
        stdin=child_terminal,
        stdout=child_terminal,
        stderr=child_terminal,
    ) as process:
        os.close(child_terminal)
        printed = b"".join(_chunks(terminal))
    os.close(terminal)
    if process.returncode:
        sys.exit(f"{command} ended with exit code {process.returncode}")
    return printed.decode()


def _chunks(terminal: int) -> list[bytes]:
    chunks = []
    while True:
        try:
            chunk = os.read(terminal, 65_536)
        except OSError:  # the command has ended
            return chunks
        if not chunk:
            return chunks
        chunks.append(chunk)


def shown(printed: str) -> str:
    """Return the final screen without progress bars."""
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in printed.split("\n")]
    return "\n".join(line for line in lines if not _BAR.match(line)).strip()


def draw(text: str) -> str:
    """Draw text with ANSI codes as an SVG that fetches nothing."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ nftsync demo", style="bold green"))
    output = Text.from_ansi(text)
    output.highlight_regex(_APART, style="bold")
    console.print(output)
    console.print()  # the last line would be cut
    svg = console.export_svg(title="nftsync demo", unique_id="demo")
    svg = _FONT_RULES.sub("", svg).replace("Fira Code, monospace", _FONTS)
    # Without a size, the picture would have no width in the README's table.
    svg = re.sub(
        r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', r'\g<0> width="\1" height="\2"', svg, count=1
    )
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        here = str(Path(folder).resolve())
        nftsync = str(Path(sys.executable).with_name("nftsync"))
        text = shown(capture([nftsync, "demo"], here)).replace(f"{here}/", "")
    _PICTURE.write_text(draw(text), encoding="utf-8")


if __name__ == "__main__":
    main()
