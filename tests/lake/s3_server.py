"""An S3 that moto plays, as a process that prints its port: `python s3_server.py LOG`.

One request at a time: moto looks whether an object is there and then puts it, so that only then its
conditional put is what S3's is. In the bucket `forgetful` it passes over the condition. It logs
each request: method, path, `If-None-Match` and status.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import create_backend_app
from waitress.server import create_server

Environment = dict[str, Any]


def main(log: Path) -> None:
    moto = create_backend_app("s3")  # the dispatcher looks through all modules on each request
    with log.open("a", buffering=1) as seen:

        def app(environment: Environment, start: Callable[..., Any]) -> Iterable[bytes]:
            def begin(status: str, *more: Any) -> Any:
                seen.write(
                    f"{environment['REQUEST_METHOD']} {environment['PATH_INFO']}"
                    f" {environment.get('HTTP_IF_NONE_MATCH', '-')} {status.split()[0]}\n"
                )
                return start(status, *more)

            if environment["PATH_INFO"].startswith("/forgetful/"):
                environment.pop("HTTP_IF_NONE_MATCH", None)
            return moto(environment, begin)

        # Delta has connections of its own for each table that is open.
        server = create_server(app, host="127.0.0.1", port=0, threads=1, connection_limit=10_000)
        print(server.effective_port, flush=True)
        server.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
