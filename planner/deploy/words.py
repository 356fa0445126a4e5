"""A command as words: for a shell script, and for a container, where the kubelet expands ``$(NAME)`` in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from planner.deploy.commands import HEAD, RANK, Argument, Command

CONTAINER_VARIABLES = {RANK: "$(LWS_WORKER_INDEX)", HEAD: "$(LWS_LEADER_ADDRESS)"}
"""What LeaderWorkerSet gives every container of a group (LWS, user guide on labels, annotations and variables)."""
NEEDED = {RANK: "rank of this node, 0 for the first", HEAD: "address of the first node"}
_NUMBER = re.compile(r"-\d+(\.\d+)?")


def container_words(command: Command) -> list[str]:
    """Words for ``command`` of a container."""
    words = [*command.program, command.model]
    variable = CONTAINER_VARIABLES.__getitem__
    found = [escaped(word) for word in words]
    return found + [word for a in command.arguments for word in _argument(a, escaped, variable)]


def container_arguments(arguments: tuple[Argument, ...]) -> list[str]:
    """Words of some arguments alone."""
    return [word for a in arguments for word in _argument(a, escaped, CONTAINER_VARIABLES.__getitem__)]


def escaped(word: str) -> str:
    """A word that comes out of the kubelet as it is: ``$$`` stands for ``$`` (Kubernetes API, Container.args)."""
    return word.replace("$", "$$")


def shell_script(command: Command, heading: list[str]) -> str:
    """A script of POSIX shell that runs the command, with the figure of the plan beside each argument."""
    lines = ["#!/bin/sh", *(f"# {comment(line)}" for line in heading), "set -eu"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in command.environment.items()]
    start = shlex.join([*command.program, command.model])
    texts = [(" ".join(_argument(a, shlex.quote, _shell_variable)), a.why) for a in command.arguments]
    width = max(len(text) for text, _ in texts)
    lines.append(f"set -- {start}")
    lines += [f'set -- "$@" {text.ljust(width)}  # {comment(why)}' for text, why in texts]
    return "\n".join([*lines, 'exec "$@"']) + "\n"


def comment(text: str) -> str:
    """A text that cannot end the line that it stands on."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _argument(argument: Argument, quote: Callable[[str], str], variable: Callable[[str], str]) -> list[str]:
    """One or two words; a value that looks like a flag is joined to its own, so that no parser takes it for one."""
    if argument.value is None:
        return [quote(argument.flag)]
    value = quote(argument.value) if argument.value or not argument.variable else ""
    if argument.variable:
        return [quote(argument.flag), variable(argument.variable) + value]
    if argument.value.startswith("-") and not _NUMBER.fullmatch(argument.value):
        return [quote(f"{argument.flag}={argument.value}")]
    return [quote(argument.flag), value]


def _shell_variable(name: str) -> str:
    return f'"${{{name}:?{NEEDED[name]}}}"'
