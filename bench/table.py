"""Plain text tables: first column to the left, numbers to the right."""
from __future__ import annotations

from bench import measure


def render(header: list[str], rows: list[list[str]]) -> str:
    """Columns as wide as their widest cell, two spaces between them."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(cells: list[str]) -> str:
        first, *rest = (cell.ljust(width) if column == 0 else cell.rjust(width)
                        for column, (cell, width) in enumerate(zip(cells, widths)))
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def number(value: float) -> str:
    """Three significant digits or whole numbers, as a person would write it."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratio(value: float, native: float) -> str:
    return f"x{value / native:.2f}" if native else "-"


def beside(results: dict[str, measure.Series], unit: str, smaller_is_better: bool = False) -> str:
    """A row per metric: every variant's median, how many times better than the first's, and the widest spread."""
    first, *_ = results
    rows = []
    for metric, values in results[first].items():
        native, cells = measure.median(values), [number(measure.median(values))]
        better_small = smaller_is_better or metric.endswith(("CPU s", "wall s", "MiB"))
        for name in list(results)[1:]:
            value = measure.median(results[name][metric])
            cells.append(f"{number(value)} {ratio(native, value) if better_small else ratio(value, native)}")
        spread = [max(series[metric]) / min(series[metric]) for series in results.values() if min(series[metric])]
        rows.append([metric, *cells, f"{max(spread, default=1.0):.2f}"])
    return render([unit, *results, "most/least"], rows)
