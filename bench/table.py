"""Plain text tables: first column to the left, numbers to the right."""
from __future__ import annotations


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
