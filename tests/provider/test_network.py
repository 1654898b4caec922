import json
import re
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nftsync.errors import NoConnection, ProxyFailed, SettingsError
from tests.kit.database import begun_once
from tests.kit.errors import everything_said
from tests.kit.faults import GOOD
from tests.kit.forward_proxy import HOST, ForwardProxy
from tests.kit.inbox import Inbox, body_of
from tests.kit.provider import Provider, balances, head, raw, reply, token, wallet, wallets_file
from tests.kit.worlds import Outcome

PASSWORD = "hu%3Ash"  # as an URL has it
CREDENTIALS = "me:hu:sh"


@pytest.fixture
def proxy() -> Iterator[ForwardProxy]:
    with ForwardProxy() as running:
        running.credentials = CREDENTIALS
        yield running


@pytest.fixture
def secure(certificates: Any) -> Iterator[Provider]:
    """The provider over TLS; only the proxy knows the name `provider.test`."""
    with Provider(certificate=certificates.server) as running:
        running.always(reply(GOOD))
        yield running


def named(provider: Provider) -> str:
    return provider.url.replace("127.0.0.1", HOST)


@pytest.fixture
def run(command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run a command with environment variables."""

    def run(*words: str, **environ: str) -> Outcome:
        with monkeypatch.context() as patch:
            for name, value in {"NFTSYNC_RETRIES": "1", **environ}.items():
                patch.setenv(name, value)
            return command(*words)

    return run


COMMANDS = [
    ("sync", wallet(1)),
    ("check", wallet(1)),
    ("replay",),
    ("webhook-config", "--enable", "--yes"),
]


@pytest.mark.parametrize(
    ("words", "where"),
    [(words, "NFTSYNC_PROXY") for words in COMMANDS]
    + [(COMMANDS[1], name) for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "file")],
)
def test_every_command_uses_the_proxy(proxy, provider, tmp_path, words, where, run):
    """Only the proxy can resolve its name."""
    provider.always(reply(GOOD))
    if words[0] == "replay":
        webhook = body_of(1, resourceType="Token", resourceId=token(1))
        Inbox(tmp_path / "data/nftsync.db").receive(webhook)
        provider.always(reply(b'{"metadata": {}}'))
    url = proxy.with_credentials(f"me:{PASSWORD}")
    in_file = f'proxy = "{url}"' if where == "file" else ""
    Path("nftsync.toml").write_text(f'base_url = "{named(provider)}"\n{in_file}')
    ran = run(*words, **{} if in_file else {where: url})
    assert ran.code == 0, ran.said
    assert len(proxy.asked) == 1 == len(provider.requests())
    assert f"{named(provider)}/" in proxy.asked[0]
    source = f"file {tmp_path}/nftsync.toml" if where == "file" else f"environment {where}"
    if words[0] == "check":
        assert f"through {proxy.address} (from {source})" in ran.said
    assert "hu%3Ash" not in ran.said
    assert "hu:sh" not in ran.said


@pytest.mark.parametrize("proxy_over_tls", [False, True])
def test_over_tls_the_proxy_sees_only_a_tunnel(secure, certificates, make_client, proxy_over_tls):
    with ForwardProxy(*[certificates.server] * proxy_over_tls) as proxy:
        proxy.credentials = CREDENTIALS
        url = proxy.with_credentials(f"me:{PASSWORD}")
        client = make_client(base_url=named(secure), proxy=url, ca_file=certificates.ca)
        for number in range(3):
            assert client.balances(number).entries
        assert proxy.asked == [f"CONNECT {HOST}:{secure.port}"]
    assert "proxy-authorization" not in secure.requests()[0].headers


def test_behind_a_proxy_each_read_refuses_an_untrusted_certificate(proxy, secure, make_client):
    """httpcore keeps a tunnel whose TLS failed, and would wait for it forever."""
    proxy.credentials = None
    client = make_client(base_url=named(secure), proxy=proxy.address, attempts=3)
    for _ in range(3):
        client.fails("certificate verify failed", NoConnection)
    assert len(proxy.asked) == 3


def test_the_reading_process_uses_the_proxy_and_the_ca_file(proxy, secure, certificates, run):
    secure.always(reply(balances()))
    url = proxy.with_credentials(f"me:{PASSWORD}")
    settings = {"NFTSYNC_PROXY": url, "NFTSYNC_BASE_URL": named(secure)}
    settings["NFTSYNC_CA_FILE"] = certificates.ca
    ran = run("sync", "--wallets-file", wallets_file(range(500)), "--json", **settings)
    assert json.loads(ran.out)["wallets"]["ok"] == 500
    assert set(proxy.asked) == {f"CONNECT {HOST}:{secure.port}"}


def test_no_proxy_is_used_if_none_applies(proxy, provider, run):
    provider.always(reply(GOOD))
    for environ in (
        {"HTTP_PROXY": proxy.address, "NO_PROXY": "example.com,127.0.0.1"},
        {"http_proxy": proxy.address, "no_proxy": "*"},
        {"HTTP_PROXY": proxy.address, "NFTSYNC_PROXY": ""},
        {"HTTPS_PROXY": proxy.address},
    ):
        ran = run("check", wallet(1), NFTSYNC_BASE_URL=provider.url, **environ)
        assert "was read" in ran.said
        assert "proxy: through" not in ran.said
    assert proxy.asked == []


@pytest.mark.parametrize(
    ("scheme", "status", "requests"), [("https:", 407, 1), ("http:", 407, 1), ("https:", 502, 2)]
)
def test_a_refusal_names_the_proxy_without_its_password(
    proxy, provider, make_client, scheme, status, requests
):
    url = named(provider).replace("http:", scheme)
    given = proxy.with_credentials("me:wrong")
    proxy.refuse_with = None if status == 407 else status
    client = make_client(base_url=url, proxy=given, proxy_source="file x", attempts=2)
    message = re.escape(f"the proxy {proxy.address} (from file x) refused: {status}")
    error = client.fails(f"^{message}", ProxyFailed)
    assert error.provider_down
    assert "wrong" not in everything_said(error)
    assert (len(proxy.asked), provider.requests()) == (requests, [])


def test_an_unreachable_proxy_is_named_and_retried(make_client, run):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = make_client(proxy=f"127.0.0.1:{port}", attempts=3, proxy_source="environment X")
    where = f"http://127.0.0.1:{port} (from environment X)"
    client.fails(re.escape(f"no connection to the proxy {where}: "), NoConnection)
    assert client.last == (3, 2)
    ran = run("check", wallet(1), NFTSYNC_BASE_URL="http://x.test", HTTP_PROXY=f"127.0.0.1:{port}")
    assert "no connection to the proxy" in ran.said
    assert "check base_url" not in ran.said


NO_PROXIES = ("ftp://me:hush@h:1", "http://me:hush@", "http://me:hush@h:x", "http://me/hush@h:1")


def test_an_unusable_proxy_is_an_error_of_the_settings(run):
    bad = dict.fromkeys((*NO_PROXIES, "http://me:hush@[h"), "is not a proxy URL")
    bad["socks5://me:hush@h:1"] = "needs a package for SOCKS: "
    for number, (value, problem) in enumerate(bad.items()):
        words = COMMANDS[number % len(COMMANDS)]
        ran = run(*words, NFTSYNC_BASE_URL="http://x.test", NFTSYNC_PROXY=value)
        assert ran.code == (1 if words[0] == "check" else 2), ran.said
        assert f"proxy (NFTSYNC_PROXY) {problem}" in ran.said
        assert "(from environment NFTSYNC_PROXY)" in ran.said
        assert "hush" not in ran.said


def test_an_untrusted_certificate_is_not_retried(secure, certificates, make_client):
    with Provider(certificate=certificates.client) as other:
        for provider, given, advice in (
            (secure, {}, "if your own CA issued it, set ca_file"),
            (other, {"ca_file": certificates.ca}, "check base_url"),
        ):
            message = rf"^no connection to {provider.url}: certificate verify failed: .*; {advice}"
            client = make_client(base_url=provider.url, **given)
            client.fails(message, NoConnection)
            assert client.last == (1, 0)
            assert provider.requests() == []


def certificate(folder: Path, name: str, *extensions: str, issuer: str = "") -> Path:
    """Make a certificate with a key, by default self-signed; return its file, in PEM form."""
    file = folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
    command += ["ec_paramgen_curve:prime256v1", "-days", "2", "-nodes", "-subj", f"/CN={name}"]
    command += ["-keyout", str(file), "-out", str(file.with_suffix(".crt"))]
    command += ["-CA", issuer, "-CAkey", issuer] if issuer else []
    for extension in extensions:
        command += ["-addext", extension]
    subprocess.run(command, check=True, capture_output=True)
    file.write_text(file.read_text() + file.with_suffix(".crt").read_text())
    return file


@pytest.fixture
def as_python_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make contexts as Python 3.13 and later do."""
    make = ssl.create_default_context

    def strict(*args: Any, **of: Any) -> ssl.SSLContext:
        context = make(*args, **of)
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


@pytest.mark.parametrize(
    ("extensions", "problem"),
    [
        ([], "CA cert does not include key usage extension"),
        (
            ["keyUsage=critical,keyCertSign", "basicConstraints=CA:TRUE"],
            "Basic Constraints of CA cert not marked critical",
        ),
    ],
)
def test_a_certificate_against_rfc_5280_is_refused_with_advice(
    tmp_path, make_client, as_python_3_13, certificates, extensions, problem
):
    ca = certificate(tmp_path, "ca", *extensions)
    names = ("subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:FALSE")
    server = certificate(tmp_path, "server", *names, issuer=str(ca))
    with Provider(certificate=str(server)) as provider:
        provider.always(reply(GOOD))
        client = make_client(base_url=provider.url, ca_file=str(ca))
        assert str(client.fails(kind=NoConnection)) == (
            f"no connection to {provider.url}: certificate verify failed: {problem}; Python 3.13 "
            "and later refuse this; ask the CA for certificates that follow RFC 5280, or set "
            "ca_file to the server's own certificate, without the CA's"
        )
        assert (client.last, provider.requests()) == ((1, 0), [])
        own = str(server.with_suffix(".crt"))
        assert make_client(base_url=provider.url, ca_file=own).balances().entries


def test_a_failed_handshake_is_retried_once_the_provider_has_answered(certificates, make_client):
    """Only one of several servers behind an address may be misconfigured."""
    contexts = []
    for file in (certificates.server, certificates.client, certificates.server):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        contexts.append(context)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.server)
    tls.sni_callback = lambda sock, *_: setattr(sock, "context", contexts.pop(0))
    answer = head(f"content-length: {len(GOOD)}") + GOOD
    with Provider(tls=tls) as provider:
        provider.always(raw(answer))  # and close, so that the next one opens a connection
        client = make_client(base_url=provider.url, ca_file=certificates.ca)
        for spent in ((1, 0), (2, 1)):
            assert client.balances().entries
            assert client.last == spent


def test_a_proxy_that_does_not_speak_tls_is_named(proxy, provider, make_client):
    url = proxy.address.replace("http:", "https:")
    client = make_client(proxy=url)
    assert str(client.fails(kind=ProxyFailed)) == (
        f"no connection to the proxy {url} (from the caller): the server does not speak TLS on this"
        " port; use http:// in the proxy's URL, or correct the port"
    )
    assert client.last == (1, 0)


def test_plain_http_gets_a_hint_if_the_server_may_expect_tls(secure, provider, make_client):
    hint = "base_url starts with http: does the server expect https?"
    provider.always(reply(status=400))
    for url in (secure.url.replace("https:", "http:"), provider.url):
        assert hint in str(make_client(base_url=url, attempts=2).fails())
    client = make_client(attempts=1)
    provider.always(reply(GOOD), raw(then="close"))
    client.balances()
    assert hint not in str(client.fails("^the connection broke: ", NoConnection))


def test_a_response_over_tls_may_drip_and_its_connection_is_kept(secure, certificates, make_client):
    whole = head(f"content-length: {len(GOOD)}") + GOOD
    parts = raw(whole[:30], whole[30:90], whole[90:], pause=0.05, then="keep")
    stalls = raw(whole[:30], then="hold")
    secure.always(parts, reply(GOOD), stalls)
    client = make_client(base_url=secure.url, ca_file=certificates.ca, timeout=1.0, attempts=1)
    for number in range(2):
        assert client.balances(number).entries
    assert secure.connections == 1
    client.fails(r"^no complete response within 1 s$", NoConnection)


def test_a_client_certificate_is_sent(certificates, make_client):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.server)
    tls.load_verify_locations(certificates.ca)
    tls.verify_mode = ssl.CERT_REQUIRED
    alone = (certificates.client_certificate_alone, certificates.client_key_alone)
    with Provider(tls=tls) as strict:
        strict.always(reply(GOOD))
        given = {"base_url": strict.url, "ca_file": certificates.ca, "attempts": 1}
        for certificate, key in (alone, (certificates.client, None)):
            client = make_client(**given, client_certificate=certificate, client_key=key)
            assert client.balances().entries
        make_client(**given).fails(kind=NoConnection)


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "NFTSYNC_CA_FILE", "NFTSYNC_CLIENT_CERTIFICATE"])
def test_an_unusable_certificate_is_an_error_that_names_setting_and_file(tmp_path, name, run):
    file = tmp_path / "x.pem"
    for words, code in ((COMMANDS[1], 1), (COMMANDS[-1], 2)):
        ran = run(*words, **{"NFTSYNC_BASE_URL": "https://x.test", name: str(file)})
        assert ran.code == code, ran.said
        assert name in ran.said
        assert str(file) in ran.said.replace("\n", "")
        assert "Traceback" not in ran.said
        assert "FAILED   database" not in ran.said
        file.write_text("no certificate")


def test_a_key_of_another_certificate_is_an_error(certificates, make_client):
    alone, key = certificates.client_certificate_alone, certificates.client_key_alone
    for file, its_key in (
        *((certificates.locked, None), (alone, None)),
        *((None, key), (certificates.client, certificates.ca)),
    ):
        with pytest.raises(SettingsError, match=r"^client_.*NFTSYNC_CLIENT_KEY"):
            make_client(base_url="https://x.test", client_certificate=file, client_key=its_key)


def test_few_descriptors_end_a_sync_without_a_traceback(provider):
    provider.always(reply(status=503))
    wallets_file(range(80))
    begun_once(Path("nftsync.db"))
    words = ["sync", "--base-url", provider.url, "--wallets-file", "wallets", "-d", "nftsync.db"]
    ran = subprocess.run(
        [sys.executable, "-m", "nftsync", *words, "--concurrency", "64", "--retries", "2"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ran.returncode == 1, ran.stdout
    assert "Traceback" not in ran.stdout
    assert "Too many open files" in ran.stdout
