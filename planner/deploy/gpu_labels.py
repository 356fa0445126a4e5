"""Labels by which Kubernetes nodes tell their GPU: a fact of the catalogue, or a placeholder that matches no node."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from planner.catalog.csv_table import read_rows
from planner.catalog.gpu import Gpu
from planner.deploy.flags import Row

PLACEHOLDER = "CONFIRM"
"""Begins what must be replaced by hand; a pod that asks for it stays pending."""
KEYS = {"NVIDIA": "nvidia.com/gpu.product", "AMD": "amd.com/gpu.product-name"}
"""Written by NVIDIA's GPU feature discovery and by AMD's node labeller (ROCm/k8s-device-plugin)."""
RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
"""What the vendors' device plugins count."""


class LabelRow(Row):
    """The label that nodes with a GPU carry."""

    gpu_id: str = Field(min_length=1)
    label: str = Field(min_length=1)
    value: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    source: str = Field(min_length=1)
    as_of: dt.date


@dataclass(frozen=True)
class NodeLabel:
    """A node selector.

    Attributes
    ----------
    source
        Empty where the value is a placeholder.
    """

    key: str
    value: str
    source: str = ""


def load_labels(root: Path) -> Mapping[str, LabelRow]:
    """Rows of ``<root>/deploy/gpu_labels.csv`` by GPU.

    Raises
    ------
    InputError
        Listing every problem of the file.
    """
    return {row.gpu_id: row for row in read_rows(root / "deploy" / "gpu_labels.csv", LabelRow)}


def label_of(gpu: Gpu, rows: Mapping[str, LabelRow]) -> NodeLabel:
    """The label of nodes with a GPU."""
    row = rows.get(gpu.id)
    if row is None:
        return NodeLabel(KEYS.get(gpu.vendor, KEYS["NVIDIA"]), f"{PLACEHOLDER}-{gpu.id}")
    return NodeLabel(row.label, row.value, f"{row.source} ({row.as_of.isoformat()})")
