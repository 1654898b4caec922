"""An S3 that moto plays, as a process that prints its port: `python s3_server.py LOG [FAULTS]`.

One request at a time: moto looks whether an object is there and then puts it, so that only then its
conditional put is what S3's is. In the lake `forgetful` it passes over the condition. In the
lake `unsure`, the first commit to each table, and each second one to `runs`, takes effect and is
answered 503. So is the share FAULTS of all requests below a lake, half of them without effect.
Below a folder such as `403-AccessDenied`, it answers this error. It logs each request: method,
path, `If-None-Match` and status.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import create_backend_app
from waitress.server import create_server

_UNCONFIRMED = re.compile(r".*/unsure/(?:.*/)?(0+1|runs/_delta_log/\d+[13579])\.json")
_ERROR = re.compile(r"[/=](\d{3})-(\w+?)(?:/|%2F)")
#: An error like S3's, with parts of the request in it.
_BODY = (
    '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{}</Code><Message>no</Message>'
    "<StringToSign>x-amz-security-token:hush</StringToSign></Error>"
)
Environment = dict[str, Any]


def main(log: Path, faults: float = 0.0) -> None:
    moto = create_backend_app("s3")  # the dispatcher looks through all modules on each request
    rng, unsure = random.Random(0), set[str]()
    with log.open("a", buffering=1) as seen:

        def app(environment: Environment, start: Callable[..., Any]) -> Iterable[bytes]:
            def begin(status: str, *more: Any) -> Any:
                seen.write(
                    f"{environment['REQUEST_METHOD']} {environment['PATH_INFO']}"
                    f" {environment.get('HTTP_IF_NONE_MATCH', '-')} {status.split()[0]}\n"
                )
                return start(status, *more)

            if "/forgetful/" in environment["PATH_INFO"]:
                environment.pop("HTTP_IF_NONE_MATCH", None)
            path = environment["PATH_INFO"]
            if error := _ERROR.search(f"{path}?{environment['QUERY_STRING']}"):
                begin(f"{error[1]} X", [("Content-Type", "application/xml")])
                return [_BODY.format(error[2]).encode()]
            is_put = environment["REQUEST_METHOD"] == "PUT"
            is_unsure = is_put and path not in unsure and _UNCONFIRMED.fullmatch(path)
            if is_unsure:
                unsure.add(path)
            if is_unsure or (path.count("/") > 1 and rng.random() < faults):
                if is_unsure or rng.random() < 0.5:
                    b"".join(moto(environment, lambda *_: lambda _: None))
                begin("503 Slow Down", [])
                return [b""]
            return moto(environment, begin)

        # Delta has connections of its own for each table that is open.
        server = create_server(app, host="127.0.0.1", port=0, threads=1, connection_limit=10_000)
        print(server.effective_port, flush=True)
        server.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(float, sys.argv[2:]))
