"""A second opinion on the workbook: LibreOffice calculates it again. Its file is compared, never shipped.

LibreOffice drops table columns and freeze panes when it saves a workbook, and it may end with status 0 without having
written anything; so each call has its own profile, the target is deleted first, and only the target is believed.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from openpyxl import load_workbook

from planner.errors import PlannerError


def recalculate_with_libreoffice(path: Path, out_dir: Path, timeout_s: float = 120.0) -> Path:
    """Let LibreOffice load ``path``, calculate every formula, and save it under the same name in ``out_dir``.

    LibreOffice believes stored results, so it is given a copy without any.

    Raises
    ------
    PlannerError
        If LibreOffice is missing, fails, takes too long, or writes nothing.
    """
    if out_dir.resolve() == path.parent.resolve():
        raise PlannerError(f"{out_dir}: LibreOffice must not write over {path.name}; give another folder")
    with tempfile.TemporaryDirectory(prefix="formulas-") as folder:
        bare = Path(folder) / path.name
        load_workbook(path).save(bare)
        return convert_with_libreoffice(bare, out_dir, "xlsx", timeout_s)


def convert_with_libreoffice(path: Path, out_dir: Path, suffix: str, timeout_s: float) -> Path:
    """Convert ``path`` to ``suffix`` (``xlsx``, ``pdf``) in ``out_dir`` with a fresh LibreOffice profile.

    Raises
    ------
    PlannerError
        If LibreOffice is missing, fails, takes too long, or writes nothing.
    """
    program = shutil.which("soffice")
    if program is None:
        raise PlannerError("LibreOffice (soffice) is not installed")
    out_dir.mkdir(parents=True, exist_ok=True)
    target = out_dir / f"{path.stem}.{suffix}"
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="soffice-") as profile:
        command = [
            program,
            f"-env:UserInstallation={Path(profile).as_uri()}",
            "--headless",
            "--norestore",
            "--convert-to",
            suffix,
            "--outdir",
            str(out_dir),
            str(path),
        ]
        said = run_tool(command, timeout_s)
    if not target.is_file():
        raise PlannerError(f"LibreOffice wrote no {target.name}: {said or 'no message'}")
    return target


def run_tool(command: list[str], timeout_s: float) -> str:
    """Run a program and return what it printed.

    Raises
    ------
    PlannerError
        If it cannot be started, fails, or takes longer than ``timeout_s``.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise PlannerError(f"{Path(command[0]).name} took longer than {timeout_s:g} s") from None
    except OSError as error:
        raise PlannerError(f"{Path(command[0]).name} cannot be run: {error}") from None
    said = (done.stdout + done.stderr).strip()
    if done.returncode != 0:
        raise PlannerError(f"{Path(command[0]).name} failed with status {done.returncode}: {said}")
    return said
