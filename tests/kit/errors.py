"""What a printer of tracebacks could show of an error."""

import traceback


def everything_said(error: BaseException) -> str:
    """Return an error with its causes and contexts, and the fields of each."""
    said = traceback.format_exception(error)
    link: BaseException | None = error
    while link is not None:
        said += [str(link), repr(link.args), repr(vars(link))]
        link = link.__cause__ or link.__context__
    return "\n".join(said)
