"""Why an object store refuses, in one sentence, and what to install or set; drivers differ in their words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeGuard

from planner.errors import Problem


@dataclass(frozen=True)
class Driver:
    """What reads one kind of storage."""

    package: str
    extra: str
    """Of this package; installs the driver."""
    rights: str
    """How it is told who asks."""
    place: str
    """How it is told where the storage is."""


S3 = Driver(
    "s3fs",
    "s3",
    "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a public bucket set FSSPEC_S3_ANON=true",
    "Check the network; a store that is not Amazon's needs AWS_ENDPOINT_URL",
)
GCS = Driver(
    "gcsfs",
    "gcs",
    "Run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS; "
    "for a public bucket set FSSPEC_GCS_TOKEN=anon",
    "Check the network, and STORAGE_EMULATOR_HOST if it is set",
)
AZURE = Driver(
    "adlfs",
    "azure",
    "Set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or "
    "AZURE_STORAGE_SAS_TOKEN",
    "Check the network and AZURE_STORAGE_ACCOUNT_NAME",
)
HTTP = Driver("aiohttp", "http", "Give an address that needs no log-in, such as a signed one", "Check the network")
MEMORY = Driver("fsspec", "", "", "")
DRIVERS = {
    "s3": S3, "s3a": S3, "gs": GCS, "gcs": GCS, "az": AZURE, "abfs": AZURE, "abfss": AZURE, "http": HTTP,
    "https": HTTP, "memory": MEMORY,
}  # fmt: skip
"""By protocol. Variables: botocore's, google-auth's and adlfs's own; ``FSSPEC_<PROTOCOL>_<OPTION>`` is fsspec's."""

RIGHTS = re.compile(r"permission|forbidden|access ?denied|unauthori|not authori|\b40[13]\b|signature|token", re.I)
NO_CREDENTIALS = re.compile(r"credential|log ?in|account_name|account url|connection_string", re.I)
ABSENT = re.compile(r"not ?found|no ?such|invalid bucket|does ?not ?exist|\b404\b", re.I)
UNREACHED = re.compile(r"connect|resolve|name or service|timed? ?out|timeout|unreachable|refused|dns", re.I)
HAS_CHANGED = re.compile(r"expired|overwritten|precondition|etag|\b412\b", re.I)
NO_RANGES = re.compile(r"range request|seek streaming|cannot seek|not seekable", re.I)
CHECK = "Check the address; upper and lower case differ"
CHANGED, WAIT = "changed while it was read", "Ingest a copy, or wait until nobody writes to it"
SHOWN_CHARS = 160


def refusal(where: str, address: str, error: BaseException) -> Problem:
    """The problem that an error of a driver stands for; keys and signatures that its words hold are left out."""
    driver = DRIVERS.get(address.partition("://")[0], MEMORY)
    if isinstance(error, FileNotFoundError) and _is_deeper(error.__cause__):
        error = error.__cause__
    kind = " ".join(cls.__name__ for cls in type(error).__mro__)
    words = f"{kind}: {error}"
    if isinstance(error, ImportError):
        return Problem(where, f"cannot be read without {driver.package}", f"Install it: {install(driver)}")
    if isinstance(error, FileNotFoundError):
        return Problem(where, "no such object or bucket", CHECK)
    if HAS_CHANGED.search(words) and not isinstance(error, PermissionError):
        return Problem(where, CHANGED, WAIT)
    if isinstance(error, PermissionError):
        return Problem(where, f"access is refused{_detail(address, error)}", driver.rights)
    for pattern, what, fix in (
        (NO_RANGES, "comes from a server that sends whole files only", "Download it, and give the file"),
        (NO_CREDENTIALS, "cannot be asked for: no credentials are set, or the account is not named", driver.rights),
        (UNREACHED, "cannot be reached", driver.place),
        (RIGHTS, "access is refused", driver.rights),
        (ABSENT, "no such object or bucket", CHECK),
    ):
        if pattern.search(words):
            return Problem(where, f"{what}{_detail(address, error)}", fix)
    return Problem(where, f"cannot be read: {type(error).__name__}{_detail(address, error)}", driver.place)


def _is_deeper(cause: BaseException | None) -> TypeGuard[BaseException]:
    """Whether a driver says that nothing is there where it could not ask, or was not let in."""
    words = f"{type(cause).__name__}: {cause}"
    return cause is not None and bool(UNREACHED.search(words) or RIGHTS.search(words))


def install(driver: Driver) -> str:
    """The command that installs a driver."""
    return f"pip install 'planner[{driver.extra}]'"


def _detail(address: str, error: BaseException) -> str:
    """The driver's words, less what follows a question mark or stands before an @."""
    first = " ".join(str(error).split()).replace(address, "it")
    clean = re.sub(r"//[^/\s@]+@", "//", re.sub(r"\?\S+", "", first)).strip()
    return f" ({clean[:SHOWN_CHARS]})" if clean else ""
