"""The page of a study: one file, no network, the same bytes for the same study."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from pathlib import Path

from markupsafe import Markup

from planner.cli.files import replacing
from planner.plan import FleetPlan
from planner.report import facts
from planner.report.page import cards, fleet, futures, head, last, lists, replay, week
from planner.report.page.curves import Curves, curves_of
from planner.report.page.markup import join, short, without_controls
from planner.study import Study

NAMES = {
    "overview": "Overview", "warnings": "Warnings", "replay": "Replay", "futures": "Futures",
    "last": "Last quarter", "fleet": "Fleet", "week": "Week", "models": "Models", "routing": "Routing",
    "purchases": "Purchases", "limits": "Limits", "rejected": "Rejected", "assumptions": "Assumptions",
    "files": "Files",
}  # fmt: skip
"""Sections in reading order, as the bar at the top names them."""

MANY_MODELS = 24
"""Beyond so many, cards out of sight are laid out when they are scrolled to."""

PAGE = Markup("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the plan</a>
<div class="top"><nav aria-label="Sections"><ul>{links}</ul></nav>
<button type="button" id="theme" hidden>Dark theme</button></div>
<main id="main" tabindex="-1"{many}>
{body}</main>
<footer><p>{colophon}</p></footer>
<script>
{script}</script>
</body>
</html>
""")


def write_page(report: Study | FleetPlan, path: Path) -> None:
    """Write the page of a study, or of a plan alone, to ``path``.

    Decode-rate curves are predicted from the catalogue that is installed; a pool that it does not know has none, and
    the page says so. Equal studies and catalogues give equal bytes.

    Raises
    ------
    PlannerError
        If the plan contradicts itself or the file cannot be written; what was at ``path`` stays then.
    """
    plan = report.plan if isinstance(report, Study) else report
    page = render_page(report, curves_of(plan))
    with replacing(path) as file:
        file.write(page)


def render_page(report: Study | FleetPlan, curves: Curves | None = None) -> str:
    """The page as text.

    Parameters
    ----------
    report
        A study, or a plan alone.
    curves
        Decode-rate curves by pool, or why one is missing (`planner.report.page.curves.curves_of`); none are drawn
        without.
    """
    study = report if isinstance(report, Study) else Study(plan=report)
    plan = study.plan
    sections = {
        "overview": head.overview(plan),
        "warnings": head.warnings(plan),
        "replay": replay.replay(study),
        "futures": futures.futures(study),
        "last": last.last_quarter(study),
        "fleet": fleet.fleet(plan),
        "week": week.week(plan),
        "models": cards.models(plan, curves or {}),
        "routing": lists.routing(plan),
        "purchases": lists.purchases(plan),
        "limits": lists.limits(plan),
        "rejected": lists.rejected(plan),
        "assumptions": lists.assumptions(plan),
        "files": lists.files(plan),
    }
    links = join(
        Markup('<li><a href="#{}">{}</a></li>').format(anchor, NAMES[anchor])
        for anchor, made in sections.items()
        if made
    )
    script = _static("page.js")
    page = PAGE.format(
        policy=_policy(script),
        many=Markup(' class="many"') if len(facts.models(plan)) > MANY_MODELS else "",
        title=short(plan.title, 120),
        style=Markup(_static("page.css")),
        links=links,
        body=join([head.masthead(plan), *sections.values()]),
        colophon=_colophon(plan),
        script=Markup(script),
    )
    return without_controls(page)


@cache
def _static(name: str) -> str:
    return resources.files("planner.report.page").joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing is loaded from anywhere, and no script runs but the page's own (W3C, Content Security Policy 3)."""
    digest = base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"


def _colophon(plan: FleetPlan) -> str:
    return (
        f"Run {short(plan.run_id)}, made {facts.created_utc(plan):%Y-%m-%d %H:%M} UTC by planner "
        f"{short(plan.planner_version)}. Amounts in USD without tax; M tokens are millions of tokens."
    )
