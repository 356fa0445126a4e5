"""One cell cut at a prompt length: exact for requests that are known one by one, in proportion for the others."""

from __future__ import annotations

from planner.traffic.operations.cell import Cell, Row
from planner.traffic.operations.tail_rows import TailRows


def cut(cell: Cell, held: TailRows | None, limit: int) -> tuple[Cell | None, Cell | None]:
    """The requests of the cell with fewer than ``limit`` prompt tokens, and those with ``limit`` or more.

    All totals are kept exactly. Requests of the tail table go to their side. Of the others, as many go below as the
    limit's place in the cell says, corrected so that both sides can have the observed sum and maximum; outputs are
    taken as alike on both sides.
    """
    if cell.max_prompt < limit:
        return cell, None
    if cell.prompt_lo >= limit:
        return None, cell
    known = held.rows if held else ()
    low, high = [row for row in known if row[0] < limit], [row for row in known if row[0] >= limit]
    rest = cell.less(known)
    below, above = _cut_rest(rest, limit)
    cached = cell.sum_cached
    parts = [_part(half, rows) for half, rows in ((below, low), (above, high))]
    prompts = [0 if part is None else part.sum_prompt for part in parts]
    first = cached * prompts[0] // sum(prompts) if sum(prompts) else 0
    shares = (first, cached - first)
    below_part, above_part = (
        None if part is None else part.replaced(sum_cached=share) for part, share in zip(parts, shares, strict=True)
    )
    return below_part, above_part


def _part(half: Cell, rows: list[Row]) -> Cell | None:
    """One side with its known requests; None when nothing is in it."""
    part = half.more(rows)
    if not part.n:
        return None
    if half.n:
        return part
    return part.replaced(  # all of them are known one by one
        max_prompt=max(p for p, _, _ in rows),
        max_output=max(o for _, o, _ in rows),
        max_total=max(p + o for p, o, _ in rows),
    )


def _cut_rest(rest: Cell, limit: int) -> tuple[Cell, Cell]:
    """Both sides of the requests that only the sums of the cell know."""
    n = _count_below(rest, limit)
    p = _sum_below(rest, n, limit)
    o = _rounded(rest.sum_output * n, rest.n)
    weights = _squares(p, p, n), _squares(rest.sum_prompt - p, rest.sum_prompt - p, rest.n - n)
    crossed = _squares(p, o, n), _squares(rest.sum_prompt - p, rest.sum_output - o, rest.n - n)
    pp, po = _share(rest.sum_pp, *weights), _share(rest.sum_po, *crossed)
    oo = _rounded(rest.sum_oo * n, rest.n)
    below = rest.replaced(
        prompt_hi=limit, n=n, sum_prompt=p, sum_output=o, sum_cached=0, sum_pp=pp, sum_po=po, sum_oo=oo,
        max_prompt=limit - 1, max_total=min(rest.max_total, limit - 1 + rest.max_output),
    )  # fmt: skip
    above = rest.replaced(
        prompt_lo=limit, n=rest.n - n, sum_prompt=rest.sum_prompt - p, sum_output=rest.sum_output - o, sum_cached=0,
        sum_pp=rest.sum_pp - pp, sum_po=rest.sum_po - po, sum_oo=rest.sum_oo - oo,
    )  # fmt: skip
    return below, above


def _count_below(rest: Cell, limit: int) -> int:
    """Requests below the limit: their share of the width, within what sum and maximum allow."""
    n, total, lowest, longest = rest.n, rest.sum_prompt, rest.prompt_lo, rest.max_prompt
    wanted = _rounded(n * (limit - lowest), longest + 1 - lowest)
    least = -(-(n * limit - total) // (limit - lowest))
    most = (n * longest - total) // (longest - limit + 1)
    return max(min(wanted, most, n), least, 0)


def _sum_below(rest: Cell, n: int, limit: int) -> int:
    """Prompt tokens below the limit: as if evenly spread there, within what is left for the other side."""
    above = rest.n - n
    wanted = n * (rest.prompt_lo + limit - 1) // 2
    least = max(n * rest.prompt_lo, rest.sum_prompt - above * rest.max_prompt)
    most = min(n * (limit - 1), rest.sum_prompt - above * limit)
    return min(max(wanted, least), most)


def _squares(p: int, o: int, n: int) -> int:
    """Product of sums over requests: what a sum of products would be without any spread, times 1,000."""
    return 1000 * p * o // n if n else 0


def _share(total: int, first: int, second: int) -> int:
    return _rounded(total * first, first + second)


def _rounded(value: int, divisor: int) -> int:
    return (2 * value + divisor) // (2 * divisor) if divisor else 0
