"""The command of a pool's replica, argument by argument, each with the figure of the plan that it states.

The plan's launch command (`planner.report.launch`) holds all that was sized; the pool's own fields must agree with it
and fill in what it leaves out. Nothing of it reaches a shell or a manifest before every word is understood.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from planner.deploy.flags import FlagList
from planner.errors import InputError, Problem, Problems
from planner.plan import Pool

PORT = 8000
"""Of the HTTP server; the default of vLLM, and here of SGLang too."""
RANK, HEAD = "NODE_RANK", "HEAD_ADDRESS"
"""Variables that only a running node knows: its rank, and the address of the first node."""
PROGRAMS = {"vllm": ("vllm", "serve"), "sglang": ("python", "-m", "sglang.launch_server", "--model-path")}
STARTED_AS = {"python": "python3"}
"""Name of a program in the engines' images (https://docs.sglang.io/get_started/install.html, "Using Docker")."""
ENVIRONMENT = frozenset({"VLLM_ATTENTION_BACKEND"})
"""Variables that a launch command may set."""
AS_PLANNED = "Take plan.json as `planner plan` wrote it"
DATA_PARALLEL = ("--attn-dp-size", "--dp-size")


@dataclass(frozen=True)
class Argument:
    """A flag with its value.

    Attributes
    ----------
    value
        ``None``: the flag stands alone.
    why
        The figure of the plan.
    variable
        Environment variable whose value stands before ``value``.
    """

    flag: str
    value: str | None
    why: str
    variable: str = ""

    @property
    def valued(self) -> bool:
        """Whether a value follows the flag."""
        return self.value is not None


@dataclass(frozen=True)
class Command:
    """What starts a replica, or its part on one node.

    Attributes
    ----------
    program
        Words before the model.
    model
        Checkpoint to load: an id or a folder.
    """

    program: tuple[str, ...]
    model: str
    arguments: tuple[Argument, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def value(self, *flags: str) -> str | None:
        """Value of the first of some flags that is given."""
        given = {argument.flag: argument.value for argument in self.arguments}
        return next((given[flag] for flag in flags if flag in given), None)

    def has(self, flag: str) -> bool:
        """Whether a flag is given."""
        return any(argument.flag == flag for argument in self.arguments)


@dataclass(frozen=True)
class Checkpoint:
    """Where the weights of a pool are: what the plan leaves open."""

    model: str
    revision: str = ""


def command_of(pool: Pool, flags: FlagList, checkpoint: Checkpoint | None = None) -> Command:
    """The command of a pool's replica: what the plan decided, the name that clients send, and where it listens.

    Raises
    ------
    InputError
        Listing what contradicts the plan, what the engine's version does not have, and a checkpoint that is missing.
    """
    where = f"pool {pool.name}"
    planned = _read(pool, where)
    problems = Problems()
    command = _completed(planned, pool, where, problems)
    command = _with_checkpoint(command, checkpoint, where, problems)
    served = Argument("--served-model-name", pool.model, "model: the name that clients send")
    listens = (Argument("--host", "0.0.0.0", "not of the plan"), Argument("--port", str(PORT), "not of the plan"))
    command = replace(command, arguments=(*command.arguments, served, *listens))
    given = ((argument.flag, argument.valued) for argument in command.arguments)
    problems.found += flags.check(given, pool.engine_version, where)
    problems.found += _unwritable(command, where)
    problems.raise_if_any()
    return command


def _read(pool: Pool, where: str) -> Command:
    """The plan's launch command, word by word."""
    try:
        words = shlex.split(pool.launch_command)
    except ValueError as error:
        raise InputError(_edited(where, f"the launch command cannot be read: {error}")) from None
    environment: dict[str, str] = {}
    if words[:1] == ["env"]:
        words = words[1:]
        while words and words[0].partition("=")[0] in ENVIRONMENT and "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
    program = PROGRAMS.get(pool.engine, ())
    rest = words[len(program) :]
    if tuple(words[: len(program)]) != program or not rest or rest[0].startswith("-"):
        raise InputError(
            _edited(where, f"the launch command does not start {pool.engine} as {' '.join(program)} MODEL")
        )
    program = tuple(STARTED_AS.get(word, word) for word in program)
    return Command(program, rest[0], tuple(_arguments(rest[1:], pool, where)), MappingProxyType(environment))


def _arguments(words: list[str], pool: Pool, where: str) -> list[Argument]:
    found: list[Argument] = []
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            found.append(Argument(flag, value if equals else None, _why(flag)))
        elif not found or found[-1].valued:
            raise InputError(_edited(where, f"the launch command holds {word!r:.60}, which belongs to no flag"))
        else:
            found.append(replace(found[-1], value=word))
            del found[-2]
    return [_on_node(argument) for argument in found]


def _on_node(argument: Argument) -> Argument:
    """The plan writes what only a node knows in angle brackets."""
    if argument.flag == "--node-rank":
        return replace(argument, value="", variable=RANK)
    if argument.flag == "--dist-init-addr" and argument.value:
        return replace(argument, value=f":{argument.value.rpartition(':')[2]}", variable=HEAD)
    return argument


def _completed(command: Command, pool: Pool, where: str, problems: Problems) -> Command:
    """With the arguments of the pool's fields; those that are given must say the same."""
    added = []
    for flags, field_name, expected in _fields(pool, _workers(command)):
        given = command.value(*flags)
        if given is None and not command.has(flags[0]):
            added.append(Argument(flags[0], expected, _why(flags[0])))
        elif given is None or not _same(given, expected, flags[0]):
            what = f"the launch command says {flags[0]} {given}, the pool's {field_name} is {expected}"
            problems.add(where, what, AS_PLANNED, field=field_name)
    return replace(command, arguments=(*added, *command.arguments))


def _workers(command: Command) -> int:
    """Workers of data-parallel attention in a replica of SGLang; 1 without."""
    given = command.value(*DATA_PARALLEL) or ""
    return int(given) if given.isascii() and given.isdigit() else 1


def _fields(pool: Pool, workers: int) -> list[tuple[tuple[str, ...], str, str]]:
    """Flags that a pool's fields decide: spellings, field, value."""
    share = f"{pool.gpu_memory_utilization:g}"
    cache = [("--kv-cache-dtype",)] if pool.kv_dtype == "fp8" else []
    if pool.engine == "sglang":
        rows = [
            (("--tp-size", "--tensor-parallel-size"), "tp", str(pool.tp)),
            (("--context-length",), "max_model_len", str(pool.max_model_len)),
            (("--mem-fraction-static",), "gpu_memory_utilization", share),
            (("--max-running-requests",), "max_num_seqs", str(pool.max_num_seqs * workers)),
            (("--chunked-prefill-size",), "max_num_batched_tokens", str(pool.max_num_batched_tokens * workers)),
        ]
        return [*rows, *((flags, "kv_dtype", "fp8_e4m3") for flags in cache)]
    rows = [
        (("--tensor-parallel-size",), "tp", str(pool.tp)),
        (("--max-model-len",), "max_model_len", str(pool.max_model_len)),
        (("--gpu-memory-utilization",), "gpu_memory_utilization", share),
        (("--max-num-seqs",), "max_num_seqs", str(pool.max_num_seqs)),
        (("--max-num-batched-tokens",), "max_num_batched_tokens", str(pool.max_num_batched_tokens)),
    ]
    return [*rows, *((flags, "kv_dtype", "fp8") for flags in cache)]


def _same(given: str, expected: str, flag: str) -> bool:
    if flag == "--kv-cache-dtype":
        return given.startswith("fp8")
    # A chunk of -1 is SGLang's word for prompts that are not cut.
    return given == expected or (flag == "--chunked-prefill-size" and given == "-1")


def _with_checkpoint(command: Command, checkpoint: Checkpoint | None, where: str, problems: Problems) -> Command:
    """The checkpoint that is named; the plan names none where its format must be found first."""
    if checkpoint is not None:
        revision = [Argument("--revision", checkpoint.revision, "--checkpoint")] if checkpoint.revision else []
        command = replace(command, model=checkpoint.model, arguments=(*command.arguments, *revision))
    if command.model.startswith("<"):
        name = where.removeprefix("pool ")
        given = [shlex.quote(f"{name}=org/name{revision}") for revision in ("", "@revision")]
        fix = f"Name it: --checkpoint {given[0]}, or {given[1]} for one revision"
        problems.add(where, f"the plan leaves open which checkpoint to load: {command.model}", fix)
    for argument in command.arguments:
        if "<" in (argument.value or ""):
            what = f"the plan leaves open a part of {argument.flag}: {argument.value}"
            problems.add(where, what, "Start this replica by hand, from the launch command of the plan")
    return command


def _unwritable(command: Command, where: str) -> list[Problem]:
    """Words that no argument can carry."""
    words = (command.model, *command.environment.values(), *(a.value or "" for a in command.arguments))
    bad = [word for word in words if "\x00" in word or any("\ud800" <= c <= "\udfff" for c in word)]
    return [Problem(where, f"{word!r:.60} cannot be an argument of a command", AS_PLANNED) for word in bad]


def _edited(where: str, what: str) -> Problem:
    return Problem(where, what, AS_PLANNED, field="launch_command")


def _why(flag: str) -> str:
    return FIGURES.get(flag, "launch_command")


FIGURES: Mapping[str, str] = {
    "--tensor-parallel-size": "tp: GPUs that hold one layer together",
    "--tp-size": "tp: GPUs that hold one layer together",
    "--max-model-len": "max_model_len: the longest request that the pool accepts",
    "--context-length": "max_model_len: the longest request that the pool accepts",
    "--gpu-memory-utilization": "gpu_memory_utilization: share of the GPU memory",
    "--mem-fraction-static": "gpu_memory_utilization: share of memory for weights and cache",
    "--max-num-seqs": "max_num_seqs: requests in one step",
    "--max-running-requests": "max_num_seqs: requests in one step, over all workers",
    "--max-num-batched-tokens": "max_num_batched_tokens: tokens in one step",
    "--chunked-prefill-size": "max_num_batched_tokens: tokens of one chunk of a prompt, over all workers",
    "--quantization": "weight_dtype: weights are converted while they load",
    "--kv-cache-dtype": "kv_dtype: format of the KV cache",
    "--pipeline-parallel-size": "pipeline stages, as sized",
    "--pp-size": "pipeline stages, as sized",
    "--distributed-executor-backend": "the replica spans nodes",
    "--nnodes": "nodes of one replica",
    "--node-rank": "of this node",
    "--dist-init-addr": "address of node 0",
}
