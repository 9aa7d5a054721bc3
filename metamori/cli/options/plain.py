"""Options that are written out, each by its whole name, without argparse: importing it and making the parser of `run`
takes 8 ms. What is not that plain, or wrong, is left to argparse; the options are declared once, in the verb's module.
"""

from __future__ import annotations

from metamori.tables.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@record
class _Option:
    name: str
    action: str
    choices: tuple[str, ...]
    const: Any


class Options:
    """What argparse.Namespace is."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


class _Declared:
    """Stands for a parser: keeps what is declared."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.options: dict[str, _Option] = {}

    def add_argument(self, word: str, *, action: str = "store", choices: tuple[str, ...] = (), const: Any = True,
                     nargs: str = "", metavar: str = "", help: str = "") -> None:
        name = word.removeprefix("--").replace("-", "_")
        self.values[name] = False if action == "store_true" else None
        if word.startswith("--"):
            self.options[word] = _Option(name, action, choices, const)


def read(module: Any, words: list[str]) -> Options | None:
    """Of a verb that ends with a COMMAND; None when argparse must look at them."""
    declared = _Declared()
    module.add_arguments(declared)
    values, at = declared.values, 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        word, has_value, value = words[at].partition("=")
        option = declared.options.get(word)
        at += 1
        if option is None or (has_value and option.action in ("store_true", "store_const")):
            return None
        if option.action in ("store_true", "store_const"):
            values[option.name] = option.const
            continue
        if not has_value:
            value, at = words[at] if at < len(words) else "-", at + 1
            if value.startswith("-"):
                return None
        if option.choices and value not in option.choices:
            return None
        values[option.name] = [*(values[option.name] or ()), value] if option.action == "append" else value
    values["command"] = words[at:]
    return Options(values)
