"""Errors of Delta or of the object store as one line with a remedy.

The body of a store's answer is never repeated: it may have parts of the credentials in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from nftsync.errors import InputError, StoreError
from nftsync.text import without_controls

#: What Delta raises where a table or its store cannot be used.
STORE_ERRORS = (DeltaError, OSError, pa.ArrowInvalid)
#: What an address may be.
ADDRESSES = "a lake is a folder, or s3://, gs://, az:// or abfss:// with a bucket and a folder"
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_SCHEMES = {"s3a": "s3", "azure": "az", "adl": "az", "abfs": "az", "abfss": "az"}
#: What an error has in it, any of it, and what is said then; the first that fits counts.
_REASONS = (
    (  # where a machine's own credentials are asked for, last of all
        ("//169.254.", "latest/api/token", "computeMetadata", "Account must be specified"),
        "there are no credentials: set {credentials}, here and on every worker",
    ),
    (
        ("NoSuchBucket", "ContainerNotFound", "bucket does not exist"),
        "there is no such bucket: make it first, or correct the address",
    ),
    (
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"),
        "the store refuses the credentials{code}: correct {credentials}, here and on every worker",
    ),
    (
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "redirect without LOCATION"),
        "the bucket is in another region{code}: set AWS_REGION to it, here and on every worker",
    ),
    (
        ("401 Unauthorized", "403 Forbidden", "AccessDenied", "AuthenticationFailed"),
        "the credentials do not allow it{code}: they must list, read, write and delete there",
    ),
    (
        ("conditional put is disabled", "501 Not Implemented"),
        "commits need a store that knows conditional puts, and AWS_CONDITIONAL_PUT left away",
    ),
    (
        ("URL scheme is not allowed",),
        "its store is at http://, which is to be allowed: AWS_ALLOW_HTTP=true",
    ),
    (
        ("error sending request", "deadline has elapsed"),
        "nothing answers{host}: check AWS_ENDPOINT_URL, AWS_REGION and the network",
    ),
    (
        ("Json error", "Parquet error", "Invalid Checkpoint", "No table metadata or protocol"),
        "one of its files is damaged ({first}): restore it from a backup, or sync into a new lake",
    ),
)
#: Where Rust's backtrace begins, which says nothing to a user.
_BACKTRACE = re.compile(r"\n\s*0: .*|\n(stack )?backtrace:.*", re.DOTALL | re.IGNORECASE)
#: What is said of a file of rows that is not there.
_GONE = re.compile(r"Object at location \S+\.parquet not found")
#: Characters of an error that are shown.
_LONGEST = 500
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m|↳")
_BODY = re.compile(r"<(\?xml|Error|html).*|\{\"error.*", re.DOTALL)
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_HOST = re.compile(r"https?://(?:[^/@\s]*@)?([^/@\s?]+)")
_QUERY = re.compile(r"(https?://)(?:[^/@\s]*@)?([^\s?]*)\?\S*")


def checked_address(url: str) -> str:
    """The address of a lake, as it was given.

    Raises:
        InputError: it names no bucket, or has credentials in it.
    """
    if "://" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InputError(f"a lake's address cannot be read: {ADDRESSES}") from error
    if parts.password is not None or parts.query:
        raise InputError("a lake's address has no credentials in it: they are in the environment")
    if not parts.netloc and parts.scheme not in {"file", "memory"}:
        raise InputError(f"{url} names no bucket: {ADDRESSES}")
    return url


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn an error of Delta or of the store below into one line that names the lake."""
    try:
        yield
    except TableNotFoundError as error:
        raise StoreError(f"{url} is no lake; `nftsync lake sync` makes one") from error
    except STORE_ERRORS as error:
        if _GONE.search(str(error)):
            raise StoreError(
                f"{url}: files of this run are gone; `nftsync lake compact` may have let go of"
                " them: open the lake anew"
            ) from None
        # What the store said to us may have parts of the credentials in it.
        raise StoreError(f"cannot use the lake {url}: {reason_of(error, url)}") from None


def reason_of(error: Exception, url: str) -> str:
    """Why a lake cannot be used, and what to do.

    Args:
        error: what Delta raised.
        url: the lake's address.
    """
    text = _BACKTRACE.sub("", str(error))
    scheme = url.partition("://")[0]
    found = _CODE.search(text)
    host = _HOST.search(text)
    plain = without_controls(_QUERY.sub(r"\1\2", _BODY.sub("", _ESCAPES.sub(" ", text))))
    words = {
        "first": plain[:_LONGEST],
        "credentials": _CREDENTIALS.get(_SCHEMES.get(scheme, scheme), "the store's credentials"),
        "code": f" ({found[1]})" if found else "",
        "host": f" at {host[1]}" if host else "",
    }
    for fragments, said in _REASONS:
        if any(fragment in text for fragment in fragments):
            return said.format(**words)
    return plain[:_LONGEST] + words["code"]
