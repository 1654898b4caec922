"""A port that is taken: whose it is, and what to do."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.processes import start_process
from tests.kit.serve_process import command as command_line
from tests.kit.serve_process import environment
from tests.kit.worlds import Command

LISTEN = "import socket, time\ns = socket.create_server(('127.0.0.1', 0))\n"
LISTEN += "print(s.getsockname()[1], flush=True)\ntime.sleep(3600)"


@pytest.fixture
def refused(command: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Iterator[str]]:
    """Tells what each command says that needs this port."""
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", "a secret that is long enough")

    def run(port: int) -> Iterator[str]:
        for words in (
            *("sandbox --port", "serve --no-replay -d x.db --port", "notebook -d x.db --port"),
            "serve --no-replay -d x.db --port 0 --metrics-port",
        ):
            done = command(*words.split(), port).tells(f"port {port} on 127.0.0.1 is taken by ")
            assert done.err.endswith(f"; choose another with {words.split()[-1]}\n")
            yield done.err.splitlines()[-1]

    return run


def test_a_command_of_nftsync_is_named(
    refused: Callable[[int], Iterator[str]], tmp_path: Path
) -> None:
    process = start_process(
        command_line("sandbox", "--wallets", 1, "--port", 0),
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    [port] = re.findall(r":(\d+) ", process.stderr.readline())
    for line in refused(int(port)):
        assert f" is taken by nftsync sandbox (process {process.pid});" in line


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_another_program_is_named_if_it_is_known(
    refused: Callable[[int], Iterator[str]],
) -> None:
    process = start_process([sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    name = Path(f"/proc/{process.pid}/comm").read_text().strip()
    for line in refused(int(process.stdout.readline())):
        assert f" is taken by {name} (process {process.pid});" in line


def test_the_ports_of_documented_commands_differ(demo: Path, command: Command) -> None:
    """Of `serve`, `sandbox`, JupyterLab, and the demo's provider, if it finds its own free."""
    for name, port in (("serve", 8787), ("sandbox", 8788)):
        assert re.search(rf"--port .*?\[default:\s+{port}", command(name, "--help").out, re.DOTALL)
    url = demo.with_name("demo-provider.url").read_text()
    assert int(url.rpartition(":")[2]) not in {8787, 8788, 8888}
