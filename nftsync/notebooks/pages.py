"""Pages and outputs from templates that show text literally."""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from nftsync.text import without_controls

if TYPE_CHECKING:
    from jinja2 import Environment


def page(
    template: str, style: str, images: str, *scripts: str, inline: bool = False, **values: Any
) -> str:
    """Return a page that loads only images, and runs only `scripts`.

    Files are beside this module. `images` are the sources of images; `inline` allows elements with
    styles of their own. `values` are for the template.
    """
    styles = "'unsafe-inline'" if inline else _hash(style)
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))};"
        f" style-src {styles}; img-src {images}; base-uri 'none'; form-action 'none'"
    )
    values |= {"policy": markup(policy), "style": markup(style), "scripts": [*map(markup, scripts)]}
    return _environment().get_template(template).render(values)


def part(name: str, **values: Any) -> str:
    """Return the output of a cell, from a macro of `parts.html`; texts are escaped."""
    return str(getattr(_environment().get_template("parts.html").module, name)(**values)).strip()


def markup(text: str) -> Any:
    """Mark code, which templates insert as it is."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - only our own code


@lru_cache
def source(*names: str) -> str:
    """Return the texts of files beside this module, joined."""
    return "".join(files(__package__).joinpath(name).read_text("utf-8") for name in names)


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@lru_cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader

    return Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: without_controls(value) if type(value) is str else value,
    )
