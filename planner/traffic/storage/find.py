"""From an address such as ``s3://bucket/logs/*.parquet`` to the files that it stands for."""

from __future__ import annotations

import glob
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from fsspec.core import url_to_fs

from planner.errors import InputError, Problem
from planner.traffic.storage.files import RemoteFile, shown
from planner.traffic.storage.refusals import CHECK, DRIVERS, refusal

T = TypeVar("T")
CANONICAL = {"manifest.json", "lengths.parquet"}
CHATTY = ("aiohttp", "asyncio", "azure", "botocore", "fsspec", "gcsfs", "google", "s3fs")
"""Drivers that log what they also raise: people get one message."""


def is_address(given: str) -> bool:
    """Whether it is an address rather than a path."""
    return "://" in given


def remote_files(address: str, endings: tuple[str, ...], further_endings: tuple[str, ...]) -> tuple[RemoteFile, ...]:
    """The files of an object, a folder or a pattern, by address; the endings count in folders only.

    Raises
    ------
    InputError
        If the protocol is none that is read, its driver is missing, the storage refuses, or nothing is found.
    """
    protocol = address.partition("://")[0]
    if protocol not in DRIVERS or "::" in address:
        known = ", ".join(f"{name}://" for name in DRIVERS if name != "memory")
        raise InputError(Problem(shown(address), f"'{protocol}://' is not read", f"Use a path, or one of: {known}"))
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    filesystem, key = _asked(address, lambda: url_to_fs(address, skip_instance_cache=True))
    if not key.strip("/"):
        raise InputError(Problem(shown(address), "names no bucket", f"Give {protocol}://BUCKET/PATH"))
    if protocol in ("http", "https"):
        return (_one(address, filesystem, key),)
    kind = _asked(address, lambda: _kind(filesystem, key))
    if kind == "file":
        return (_one(address, filesystem, key),)
    if kind == "directory":
        return _in_folder(address, filesystem, key, endings, further_endings)
    if not glob.has_magic(key):
        raise InputError(refusal(shown(address), address, FileNotFoundError()))
    return _matching(address, filesystem, key)


def _asked(address: str, question: Callable[[], T]) -> T:
    try:
        return question()
    except Exception as error:  # each driver has its own kinds
        raise InputError(refusal(shown(address), address, error)) from None


def _kind(filesystem: Any, key: str) -> str:
    """``file`` or ``directory``; nothing where there is none of the name, which may be a pattern then."""
    try:
        return str(filesystem.info(key)["type"])
    except FileNotFoundError:
        return ""


def _one(address: str, filesystem: Any, key: str) -> RemoteFile:
    info = _asked(address, lambda: filesystem.info(key))
    return _file(address, filesystem, key, info)


def _file(address: str, filesystem: Any, key: str, info: dict[str, Any]) -> RemoteFile:
    size = info.get("size")
    if size is None or info.get("partial") is False:
        what = "comes from a server that does not say its size, or sends whole files only"
        raise InputError(Problem(shown(address), what, "Download it, and give the file"))
    return RemoteFile(address, key, filesystem, int(size))


def _listed(address: str, filesystem: Any, found: dict[str, dict[str, Any]]) -> tuple[RemoteFile, ...]:
    protocol = address.partition("://")[0]
    return tuple(
        _file(f"{protocol}://{key.lstrip('/')}", filesystem, key, info)
        for key, info in sorted(found.items())
        if info["type"] == "file"
    )


def _in_folder(
    address: str, filesystem: Any, key: str, endings: tuple[str, ...], further_endings: tuple[str, ...]
) -> tuple[RemoteFile, ...]:
    entries = _asked(address, lambda: filesystem.ls(key, detail=True))
    inside = {entry["name"]: entry for entry in entries}
    names = {name: name.rpartition("/")[2] for name in inside}
    if set(names.values()) >= CANONICAL:
        what = "is a canonical folder, which is read from a disk only"
        raise InputError(Problem(shown(address), what, "Copy it to this machine, and give the copy"))
    for ends in (endings, further_endings):
        chosen = {name: inside[name] for name in inside if ends and names[name].endswith(ends)}
        files = _listed(address, filesystem, {n: e for n, e in chosen.items() if not names[n].startswith(".")})
        if files:
            return files
    fix = f"Log files end in {', '.join((*endings, *further_endings))}"
    raise InputError(Problem(shown(address), "the folder holds no log file", fix))


def _matching(address: str, filesystem: Any, key: str) -> tuple[RemoteFile, ...]:
    found = _asked(address, lambda: filesystem.glob(key, detail=True))
    files = _listed(address, filesystem, found)
    bucket = key.lstrip("/").partition("/")[0]
    if not files and not glob.has_magic(bucket) and not _asked(address, lambda: _kind(filesystem, bucket)):
        raise InputError(Problem(shown(address), "no such bucket or folder", CHECK))
    if not files:
        fix = "* stands for any part of a name, ** for any folders; put the pattern in quotes"
        raise InputError(Problem(shown(address), "no file matches this pattern", fix))
    return files
