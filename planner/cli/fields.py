"""Commands whose options are the fields of a dataclass: each option is declared once, with its help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar, get_type_hints

Options = TypeVar("Options")


def options_from(options: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """A decorator: the command takes the dataclass's fields as options and hands them over as one object.

    Parameters
    ----------
    options
        A dataclass whose fields are annotated as typer parameters are.
    """

    def decorate(function: Callable[[Options], None]) -> Callable[..., None]:
        def command(**typed: object) -> None:
            function(options(**typed))

        command.__doc__ = function.__doc__
        command.__annotations__ = get_type_hints(options, include_extras=True)
        command.__signature__ = inspect.signature(options, eval_str=True)  # type: ignore[attr-defined]
        return command

    return decorate
