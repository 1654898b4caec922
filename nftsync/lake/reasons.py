"""One-line explanations of errors of Delta or the object store.

They never repeat the body of a store's answer, which may contain parts of the credentials.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from nftsync.errors import InputError, StoreError
from nftsync.text import without_controls

#: Errors of Delta when a table or its store cannot be used.
STORE_ERRORS = (DeltaError, OSError, pa.ArrowInvalid, sqlite3.IntegrityError)
#: Valid addresses, for messages.
ADDRESSES = "a lake is a folder, or s3://, gs://, az:// or abfss:// with a bucket and a folder"
#: What to do about damage.
REMEDY = "Restore it from a backup, or sync into a new lake"
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_SCHEMES = {"s3a": "s3", "azure": "az", "adl": "az", "abfs": "az", "abfss": "az"}
#: Fragments of an error, and the message for it. The first match counts.
_REASONS = (
    (  # Delta tries the machine's metadata service last
        ("//169.254.", "latest/api/token", "computeMetadata", "Account must be specified"),
        "credentials are missing. Set {credentials}, here and on every worker",
    ),
    (
        ("NoSuchBucket", "ContainerNotFound", "bucket does not exist"),
        "the bucket does not exist. Create it, or correct the address",
    ),
    (
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"),
        "the store refuses the credentials{code}. Correct {credentials}, here and on every worker",
    ),
    (
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "redirect without LOCATION"),
        "the bucket is in another region{code}. Set AWS_REGION to it, here and on every worker",
    ),
    (
        ("401 Unauthorized", "403 Forbidden", "AccessDenied", "AuthenticationFailed"),
        "the credentials do not allow this{code}. They must list, read, write and delete there",
    ),
    (
        ("conditional put is disabled", "501 Not Implemented"),
        "commits need a store with conditional puts. Unset AWS_CONDITIONAL_PUT",
    ),
    (
        ("URL scheme is not allowed",),
        "the store's address uses http://. Allow it: AWS_ALLOW_HTTP=true",
    ),
    (
        ("error sending request", "deadline has elapsed"),
        "nothing answers{host}: check AWS_ENDPOINT_URL, AWS_REGION and the network",
    ),
    (
        ("No space left on device",),
        "no room left on the disk. Free some space, and run the command again",
    ),
    (
        ("Json error", "Parquet error", "Invalid Checkpoint", "No table meta", "constraint failed"),
        f"a file is damaged ({{first}}). {REMEDY}",
    ),
)
#: Rust's backtrace, which does not help users.
_BACKTRACE = re.compile(r"\n\s*0: .*|\n(stack )?backtrace:.*", re.DOTALL | re.IGNORECASE)
#: Characters of an error to show.
_LONGEST = 500
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m|↳")
_BODY = re.compile(r"<(\?xml|Error|html).*|\{\"error.*", re.DOTALL)
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_HOST = re.compile(r"https?://(?:[^/@\s]*@)?([^/@\s?]+)")
_QUERY = re.compile(r"(https?://)(?:[^/@\s]*@)?([^\s?]*)\?\S*")


def checked_address(url: str) -> str:
    """Check a lake's address, and return it unchanged."""
    if "://" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InputError(f"the lake's address is invalid: {ADDRESSES}") from error
    if parts.password is not None or parts.query:
        raise InputError("the address must not contain credentials. Set them in the environment")
    if not parts.netloc and parts.scheme not in {"file", "memory"}:
        raise InputError(f"{url} names no bucket: {ADDRESSES}")
    return url


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Convert an error of Delta or its store into one line that names the lake."""
    try:
        yield
    except TableNotFoundError as error:
        raise StoreError(f"{url} is not a lake. Create one: `nftsync lake sync`") from error
    except STORE_ERRORS as error:
        # `from None`: the store's answer may contain parts of the credentials.
        raise StoreError(f"cannot use the lake {url}: {reason_of(error, url)}") from None


def reason_of(error: Exception, url: str) -> str:
    """Return why the lake at an address cannot be used, and the remedy."""
    text = _BACKTRACE.sub("", str(error))
    scheme = url.partition("://")[0]
    code = _CODE.search(text)
    host = _HOST.search(text)
    plain = without_controls(_QUERY.sub(r"\1\2", _BODY.sub("", _ESCAPES.sub(" ", text))))
    words = {
        "first": plain[:_LONGEST],
        "credentials": _CREDENTIALS.get(_SCHEMES.get(scheme, scheme), "the store's credentials"),
        "code": f" ({code[1]})" if code else "",
        "host": f" at {host[1]}" if host else "",
    }
    for fragments, message in _REASONS:
        if any(fragment in text for fragment in fragments):
            return message.format(**words)
    return plain[:_LONGEST] + words["code"]
