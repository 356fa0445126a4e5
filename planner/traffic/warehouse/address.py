"""Connection addresses as people may see them: without passwords and tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from planner.errors import InputError, Problem

SECRET_NAME = re.compile(r"pass|pwd|token|secret|credential|key", re.IGNORECASE)
USER_PART = re.compile(r"[^:/]*://[^:@/]*:(.*)@")
HIDDEN = "***"
MESSAGE_CHARS = 300


@contextmanager
def asked(where: str, url: str, what: str, fix: str) -> Iterator[None]:
    """Turn whatever a driver raises into one `InputError`: every driver has its own tree of errors.

    Raises
    ------
    InputError
        With the first line of the driver's message, without what is secret in ``url``.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(Problem(where, f"{what}: {_first_line(error, url)}", fix)) from None


def _first_line(error: Exception, url: str) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return hidden(text, url)[:MESSAGE_CHARS].rstrip(".")


def shown(url: str) -> str:
    """The address without what is secret in it."""
    return hidden(url, url)


def hidden(text: str, url: str) -> str:
    """The text without what is secret in the address."""
    for secret in sorted(secrets(url), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def secrets(url: str) -> set[str]:
    """Passwords and tokens of an address, as they are written and as they are meant."""
    parts = _split(url)
    if parts is None:
        return {url}
    pairs = [*parse_qsl(parts.query), *(tuple(pair.partition("=")[::2]) for pair in parts.query.split("&"))]
    found = {value for name, value in pairs if SECRET_NAME.search(name)}
    user_part = USER_PART.match(url)  # a password with an unescaped slash or @ ends a URL's host too early
    if user_part:
        found.add(user_part[1])
    if parts.password:
        found.add(parts.password)
    return {form for secret in found for form in (secret, unquote(secret)) if form}


def _split(url: str) -> SplitResult | None:
    """The parts of an address; none where it cannot be read, so that all of it counts as secret."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  reading it is what checks it
    except ValueError:
        return None
    return parts
