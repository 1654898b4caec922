"""Render the report notebook's output as one HTML file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nftsync import errors
from nftsync.columnar.source import named_databases
from nftsync.errors import InputError, NftsyncError
from nftsync.notebooks.database import demo_address
from nftsync.notebooks.gallery_cards import configured_images
from nftsync.notebooks.jupyter import notebook_environment, require_notebook_extra, shipped
from nftsync.notebooks.pages import markup, page, part, source
from nftsync.provider.images import image_sources
from nftsync.terminal import progress_bar
from nftsync.whole_files import whole_file

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def write_report(
    target: Path,
    databases: Sequence[Path],
    config: Path | None,
    parameters: Mapping[str, str | bool | None],
    tell: Callable[[str], object],
) -> None:
    """Run the report's notebook on each database and write a page, which only its owner can read.

    Titles name several databases. `parameters` are for the notebook's first cell, and `tell`
    receives each line that it prints.
    """
    require_notebook_extra()
    from plotly.offline import get_plotlyjs

    if target.suffix.lower() not in {".html", ".htm"}:
        raise InputError(f"{target} is not an HTML file; name it {target.with_suffix('.html')}")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist; create it first")
    title = str(parameters.get("title") or "NFT holdings")
    names = [*named_databases(databases)]
    bodies: list[str] = []
    sources: dict[str, None] = {}
    for name, database in zip(names, databases, strict=True):
        # Without embed, pictures load when the page is opened; a demo's provider has stopped then.
        embed = bool(parameters.get("embed")) or demo_address(database) is not None
        with notebook_environment(database, config, tell) as environment:
            values = {**parameters, "database": str(database), "embed": embed}
            values["title"] = f"{title}: {name}" if names[1:] else title
            bodies.append(_run(values, environment, tell))
        images = configured_images(config, database)
        sources |= dict.fromkeys(("data:" if embed else image_sources(images)).split())
    page_text = page(
        "report.html",
        source("theme.css", "report.css"),
        " ".join(sources),
        # In HTML, a control character is an error.
        _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", get_plotlyjs()),
        source("report.js"),
        inline=True,
        title=f"{title}: {', '.join(names)}" if names[1:] else title,
        body=markup("\n".join(bodies)),
    )
    with whole_file(target, replace=True) as partial:
        partial.write_text(page_text, encoding="utf-8", newline="\n")


def _run(
    values: dict[str, Any], environment: Mapping[str, str], tell: Callable[[str], object]
) -> str:
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    (path,) = (path for path in shipped() if path.stem == "5-report")
    notebook = parameterize_notebook(load_notebook_node(str(path)), values)
    with ExitStack() as stack:
        bar = stack.enter_context(progress_bar("Report", len(notebook.cells), unit="cells"))
        client = NotebookClient(
            notebook,
            timeout=None,
            kernel_name="python3",
            resources={"metadata": {"path": str(Path.cwd())}},
            extra_arguments=["--log-level=ERROR"],
            on_cell_executed=lambda **_: bar.update(),
        )
        try:
            client.execute(env=dict(environment))
        except CellExecutionError as error:
            kind = getattr(errors, error.ename, None)
            if isinstance(kind, type) and issubclass(kind, NftsyncError):
                raise kind(error.evalue) from None
            raise NftsyncError(f"the report failed with {error.ename}: {error.evalue}") from error
        except DeadKernelError as error:
            raise NftsyncError(
                "the report's Python process ended, perhaps for lack of memory; report on a group"
                " or a wallet instead"
            ) from error
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    printed = "".join(one.text for one in outputs if one.output_type == "stream")
    for line in dict.fromkeys(printed.splitlines()):
        tell(line)
    # Leaves out printed lines, and progress bars, which are widgets.
    return "\n".join(filter(None, (_html(output.get("data", {})) for output in outputs)))


def _html(data: Mapping[str, Any]) -> str:
    """Return an output as HTML without scripts; the page's script draws charts."""
    if (figure := data.get("application/vnd.plotly.v1+json")) is None:
        return str(data.get("text/html", ""))
    return part("chart", figure=figure, height=figure["layout"]["height"])
