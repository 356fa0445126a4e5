"""Which addresses are asked, and which redirections followed."""

from __future__ import annotations

import urllib.parse

LOCAL = ("localhost", "127.0.0.1", "::1")


def is_allowed(address: str) -> bool:
    """Whether an address is https, or http on this machine."""
    try:
        parts = urllib.parse.urlsplit(address)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in LOCAL))


def may_follow(address: str, target: str) -> bool:
    """Whether a redirection leads to an allowed address, and not from https to http."""
    return is_allowed(target) and not (address.startswith("https:") and not target.startswith("https:"))
