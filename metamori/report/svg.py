"""A small SVG writer: numbers short, text escaped, colours by class so that light and dark are one style sheet."""

from __future__ import annotations

from html import escape

STYLE = """
.bg{fill:#fff}.t{fill:#1f2328}.m{fill:#57606a}.d{fill:#0a5ea8}.s{stroke:#0a5ea8;fill:none}.h{fill:#0a5ea8}
.g{stroke:#d0d7de;fill:none}.e{stroke:#c4400a;fill:none}.r{stroke:#57606a;fill:none;stroke-dasharray:3 3}
.p{fill:#f6f8fa}.w{fill:#c4400a}
@media(prefers-color-scheme:dark){.bg{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#9da7b3}.d{fill:#6cb6ff}
.s{stroke:#6cb6ff}.h{fill:#6cb6ff}.g{stroke:#30363d}.e{stroke:#ff9b5e}.r{stroke:#9da7b3}.p{fill:#161b22}.w{fill:#ff9b5e}}
"""
FONT = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"


def short(text: str, room: float, size: float = 11) -> str:
    """Cut to about `room` user units."""
    fits = max(1, int(room / (size * 0.56)))
    return text if len(text) <= fits else text[:max(0, fits - 1)] + "…"


def short_path(text: str, room: float, size: float = 11) -> str:
    """Cut at its beginning: the end of a path says more."""
    fits = max(2, int(room / (size * 0.56)))
    return text if len(text) <= fits else "…" + text[1 - fits:]


def number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


class Drawing:
    """Elements in painting order. Units are CSS pixels at the picture's own size."""

    def __init__(self, width: float, title: str) -> None:
        self.width, self.height = width, 0.0
        self._title = title
        self._parts: list[str] = []

    def add(self, element: str) -> None:
        self._parts.append(element)

    def rect(self, x: float, y: float, width: float, height: float, kind: str, opacity: float = 1.0,
             tip: str = "") -> None:
        more = (f' fill-opacity="{number(round(opacity, 2)) if opacity in (0, 1) else f"{opacity:.2f}"}"'
                if opacity < 1 else "")
        self._closed(f'rect class="{kind}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
                     f'height="{number(height)}"{more}', "rect", tip)

    def circle(self, x: float, y: float, radius: float, kind: str, tip: str = "") -> None:
        self._closed(f'circle class="{kind}" cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"', "circle", tip)

    def path(self, data: str, kind: str, width: float = 1.0) -> None:
        self.add(f'<path class="{kind}" stroke-width="{number(width)}" d="{data}"/>')

    def text(self, x: float, y: float, words: str, kind: str = "t", size: float = 11, anchor: str = "start",
             tip: str = "") -> None:
        title = f"<title>{_safe(tip)}</title>" if tip else ""
        self.add(f'<text class="{kind}" x="{number(x)}" y="{number(y)}" font-size="{number(size)}" '
                 f'text-anchor="{anchor}">{_safe(words)}{title}</text>')

    def _closed(self, opening: str, name: str, tip: str) -> None:
        self.add(f"<{opening}><title>{_safe(tip)}</title></{name}>" if tip else f"<{opening}/>")

    def render(self, own_style: bool = True) -> str:
        """The SVG; without its style as a part of a page that has STYLE."""
        width, height = number(self.width), number(self.height)
        style = f"<style>{STYLE}</style>" if own_style else ""
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                f'height="{height}" role="img" font-family="{FONT}"><title>{_safe(self._title)}</title>{style}'
                f'<rect class="bg" width="{width}" height="{height}"/>\n' + "\n".join(self._parts) + "\n</svg>\n")


def _safe(text: str) -> str:
    """Names may hold anything; XML may not."""
    printable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return escape("".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}"
                          for char in printable))
