"""Run the commands of docs/operate through a server's life; read its files."""

import configparser
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import pytest
import yaml

from nftsync.cli import nftsync
from nftsync.sandbox.server import SandboxServer
from tests.docs.pages import PAGES, ROOT, Block, blocks, read, tables
from tests.docs.runner import EXAMPLES, Runner, held
from tests.kit import provider as fake
from tests.kit.serve_process import free_port, wait_until_done

_FOLDER = ROOT / "docs" / "operate"
SERVER, WEBHOOKS, MONITOR, BACKUP, SECRETS, SYMPTOMS = (
    _FOLDER / f"{name}.md"
    for name in ("server", "webhooks", "monitor", "backup", "secrets", "troubleshooting")
)

#: Where a command ends in a line of a shell, a crontab or a unit.
_ENDS = re.compile(r"\)?\s(?:\||>|&&|;|#|2>)|$", re.M)


class ServerRunner(Runner):
    """Runs the pages as on a server: with its folders, and a `systemctl` that acts on `serve`.

    Attributes:
        receives: a receiver runs, and the provider sends to it.
    """

    receives = False

    def run(self, block: Block) -> object:
        done = super().run(block) if block.is_run else self._systemctl(block.text)
        self.receives |= "webhook-config --url" in block.text
        return done

    def _systemctl(self, text: str) -> None:
        for action in re.findall(r"^systemctl (stop|start|restart) nftsync$", text, re.M):
            if action != "start":
                self.close()
            if action != "stop":
                self.receive()
            self.receives = action != "stop"

    def _toml(self, text: str) -> None:
        (self.folder / "nftsync.toml").write_text(self.replaced(text))


@pytest.fixture
def server(tmp_path: Path, provider: SandboxServer) -> Iterator[ServerRunner]:
    server = ServerRunner(tmp_path)
    server.replace = {
        "9787": str(free_port()),
        "/etc/nftsync": str(tmp_path / "etc"),
        "https://api.example.com": provider.url,
        "https://hc-ping.com": provider.url,
    }
    (tmp_path / "wallets.csv").write_text("\n".join(EXAMPLES))
    (tmp_path / "etc").mkdir()
    yield server
    server.close()


def _life() -> Iterator[Block]:
    """The blocks in a reader's order: the secrets are created before the first sync."""
    created = read(SECRETS).partition("\n## Rotate")[0].count("\n")
    secrets = blocks(SECRETS)
    yield from (block for block in secrets if block.line <= created)
    for page in (SERVER, WEBHOOKS, MONITOR, BACKUP):
        yield from blocks(page)
    yield from (block for block in secrets if block.line > created)
    yield from blocks(SYMPTOMS)


def test_the_pages_lead_through_a_server_s_life(server, provider):
    """After each step webhooks arrive, and none is refused while the secret is rotated."""
    for block in _life():
        if block.language in {"sh", "toml"}:
            server.run(block)
            if server.receives:
                hand_over(provider, server.database)
    answers = [sent["attempts"][0]["status"] for sent in provider.sandbox.deliveries()]
    assert len(answers) > 20
    assert set(answers) == {200}


def hand_over(provider: SandboxServer, database: Path) -> None:
    """Transfer an NFT between two wallets, and wait until its webhooks are done."""
    world = provider.world
    others = [wallet for wallet in world.wallets() if wallet not in EXAMPLES]
    taker, giver = sorted(others[-2:], key=lambda wallet: len(held(world, wallet)))
    webhook_ids = provider.sandbox.transfer(giver, taker, next(iter(held(world, giver))), 1)
    assert webhook_ids
    wait_until_done(database, *webhook_ids)


NOT_RUN = [block for page in PAGES for block in blocks(page) if not block.is_run]


def _parse(words: list[str]) -> None:
    """Refuse commands and flags that there are none of, and values that flags do not take."""
    command: click.Command = nftsync
    with click.Context(nftsync, **nftsync.context_settings) as context:
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            inner = command.get_command(context, words[0])
            assert inner is not None, f"there is no command {words[0]!r}"
            command, words = inner, words[1:]
        command.make_context(command.name, [*words], parent=context)


@pytest.mark.parametrize("block", NOT_RUN, ids=lambda block: block.place)
def test_commands_in_what_is_not_run_have_their_flags(block):
    for call in re.finditer(r"(?<![\w/.-])(?:[\w./-]+/bin/)?nftsync (?=[a-z])", block.text):
        words, *_ = _ENDS.split(block.text[call.end() :], maxsplit=1)
        _parse(shlex.split(words))


def test_what_kubernetes_is_given_calls_what_there_is(tmp_path):
    page = ROOT / "docs" / "operate" / "kubernetes.md"
    cluster, job = (yaml.safe_load(x.text) for x in blocks(page) if x.language == "yaml")
    template = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,), (volume,) = template["containers"], template["volumes"]
    (mount,) = container["volumeMounts"]
    assert mount["name"] == volume["name"]
    program, *words = container["args"]
    (tmp_path / "wallets.csv").touch()  # as the volume has it
    _parse([word.replace(mount["mountPath"], str(tmp_path)) for word in words])
    scheduler = cluster["spec"]["scheduler"]
    ports = {x["name"]: x["containerPort"] for x in scheduler["spec"]["containers"][0]["ports"]}
    assert {x["targetPort"]: x["port"] for x in scheduler["service"]["ports"]} == ports
    # The operator's name for it.
    address = f"tcp://{cluster['metadata']['name']}-scheduler:{ports['comm']}"
    assert (program, words[words.index("--scheduler") + 1]) == ("nftsync", address)


@pytest.mark.parametrize(
    "block", [b for b in NOT_RUN if b.language == "ini"], ids=lambda block: block.place
)
def test_units_are_read_as_systemd_reads_them(block):
    unit = configparser.ConfigParser(interpolation=None, strict=False, delimiters="=")
    unit.optionxform = str
    unit.read_string(block.text)
    assert set(unit.sections()) <= {"Unit", "Service", "Timer", "Install"}
    loaded = set(re.findall(r"^LoadCredential=([\w-]+):/etc/nftsync/[\w-]+$", block.text, re.M))
    used = re.findall(r"^Environment=(NFTSYNC_\w+_FILE)=%d/([\w-]+)$", block.text, re.M)
    assert {name for _, name in used} == loaded
    page = read(SECRETS)
    assert all(f"export {variable}=/etc/nftsync/{name}\n" in page for variable, name in used)


SCHEDULED = [
    line
    for page in [*PAGES, ROOT / "docs" / "use" / "notebooks" / "README.md"]
    for block in blocks(page)
    if block.mark == "not run: a crontab"
    for line in block.text.splitlines()
]


def test_nothing_rare_is_scheduled_for_the_minute_of_a_sync():
    minutes = {line.split()[0] for line in SCHEDULED if line[0].isdigit() or line[0] == "*"}
    assert "*/15" in minutes
    assert [minute for minute in minutes - {"*", "*/15"} if int(minute) % 15 == 0] == []


def test_schedules_do_their_work_with_the_little_that_cron_hands_on(server):
    """A command per line, with the crontab's own variables only."""
    site = server.folder
    server.replace |= {"/srv/nftsync": str(site), r"\%": "%"}
    (site / ".venv" / "bin").mkdir(parents=True)
    (site / ".venv" / "bin" / "nftsync").symlink_to(Path(sys.executable).parent / "nftsync")
    (site / "etc" / "token").write_text("the-token")
    (site / "reports").mkdir()
    commands = {}
    cron = {"HOME": str(site), "LOGNAME": "nftsync", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
    for line in SCHEDULED:
        if variable := re.fullmatch(r"([A-Z_]+)=(\S+)", line):
            cron[variable[1]] = server.replaced(variable[2])
            continue
        found = re.fullmatch(r"(?:[\d*/]+ +){5}(cd /srv/nftsync && .*?bin/nftsync (\w+).*)", line)
        assert found, line
        commands[found[2]] = server.replaced(found[1])
    run = partial(subprocess.run, shell=True, cwd="/", env=cron, capture_output=True, text=True)
    with fake.Provider() as provider:
        for each in EXAMPLES:
            provider.holds(each, fake.entry(fake.token(1)))
        (settings,) = [block for block in blocks(SERVER) if "# /srv/nftsync/" in block.text]
        server.replace["https://api.example.com"] = provider.url
        server.run(settings)
        order = ["sync", "replay", "inbox", "status", "verify", "backup", "report", "lake"]
        for name in sorted(commands, key=order.index):
            if name == "lake":
                server.shell("nftsync lake import data/nftsync.db data/lake --buckets 2")
            ran = run(commands[name])
            logs = "".join(file.read_text() for file in site.glob("*.log"))
            assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", ""), logs
        tokens = {seen.headers["authorization"] for seen in provider.requests()}
    assert tokens == {"Bearer the-token"}
    assert len([*(site / "backups").glob("nftsync-*.db")]) == 1
    # Failures are printed, so that cron mails them.
    failed = run(commands["sync"])
    assert "Run 2: failed" in failed.stdout, failed
    assert failed.stdout == (site / "sync.log").read_text()
    (site / "data" / "nftsync.db").unlink()
    for name in ("status", "verify", "backup", "report"):
        ran = run(commands[name])
        assert "there is no database" in ran.stdout + ran.stderr


def test_the_pages_and_the_alert_rules_name_existing_metrics_and_each_alert_is_described():
    (table,) = tables(read(ROOT / "docs" / "reference" / "metrics.md"))
    names = {row[0].strip("`") for row in table[1:]}
    rules = read(ROOT / "docs" / "operate" / "alerts.yml")
    assert set(re.findall(r"\bnftsync_[a-z_]+", read(SECRETS) + read(MONITOR) + rules)) <= names
    assert rules.count("- alert: ") == rules.count("summary: ") > 10


def test_each_described_log_message_is_logged_somewhere():
    (table,) = [table for table in tables(read(MONITOR)) if table[0][0] == "message"]
    source = "".join(read(file) for file in (ROOT / "nftsync").rglob("*.py"))
    for row in table[1:]:
        for message in re.findall("`(.+?)`", row[0]):
            logged = rf'(?:_log\.\w+|_warn_once)\(\s*(?:level, )?f?"{re.escape(message)}'
            assert re.search(logged, source), message
