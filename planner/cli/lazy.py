"""Commands whose modules are imported when they are asked for: what one command needs, the others do not wait for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group


class LazyCommands(Mapping[str, Any]):
    """Commands by name, in this order; each is built when it is looked up.

    Parameters
    ----------
    modules
        By name of the command, the module whose ``register`` adds it to an application.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            own = typer.Typer()
            importlib.import_module(self._modules[name]).register(own)
            self._built[name] = get_group(own).commands[name]
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def lazy_group(modules: Mapping[str, str]) -> type[TyperGroup]:
    """The class of a group with these commands; see `LazyCommands`."""

    class LazyGroup(TyperGroup):
        def __init__(self, **attrs: Any) -> None:
            super().__init__(**attrs)
            self.commands = LazyCommands(modules)  # type: ignore[assignment]  # commands are only looked up

    return LazyGroup
