"""The notebooks that come with nftsync, copied to where they are worked on."""

from __future__ import annotations

from pathlib import Path

from nftsync.errors import NftsyncError

__all__ = ["copy_missing", "shipped"]


def shipped() -> list[Path]:
    """The notebooks that come with nftsync, in their order.

    Raises:
        NftsyncError: this installation has none.
    """
    installed = Path(__file__).parent / "notebooks"
    in_a_checkout = Path(__file__).parents[2] / "notebooks"
    for folder in (installed, in_a_checkout):
        if found := sorted(folder.glob("[0-9]-*.ipynb")):
            return found
    raise NftsyncError("this installation of nftsync has no notebooks; install it again")


def copy_missing(directory: Path) -> list[Path]:
    """Copy the notebooks that are not in a folder yet; those that are there stay as they are.

    Args:
        directory: the folder, made if need be.

    Returns:
        The copies that were made.

    Raises:
        NftsyncError: the folder cannot be written.
    """
    made = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for notebook in shipped():
            copy = directory / notebook.name
            try:
                with copy.open("xb") as file:
                    file.write(notebook.read_bytes())
            except FileExistsError:
                continue
            made.append(copy)
    except OSError as error:
        raise NftsyncError(
            f"cannot copy the notebooks to {directory}: {error.strerror or error}; "
            "name another folder: nftsync notebook DIRECTORY"
        ) from error
    return made
