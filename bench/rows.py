"""The rows of DESIGN 8 out of one JSON of `all`: what was to be reached, what was measured, on each filesystem."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench import measure, missed

Results = dict[str, dict[str, dict[str, Any]]]   # variant -> metric -> its summary
Row = tuple[str, str, str, float, str, bool]     # what, filesystem, to reach, figure, its form, reached


def _value(results: Results, variant: str, metric: str) -> float:
    return abs(measure.median(results[variant][metric]["all"]))


def _ratio(results: Results, variant: str, metric: str, smaller: bool = False) -> float:
    native, ours = _value(results, "native", metric), _value(results, variant, metric)
    return (native / ours if smaller else ours / native) if native and ours else 0.0


def _bonnie(results: Results) -> Iterator[tuple[str, float, float]]:
    for variant, series in results.items():
        if variant == "native":
            continue
        least = 0.9 if "every" in variant else 1.0
        for metric in series:
            if metric in ("write", "rewrite", "read"):
                yield f"Bonnie++ {variant}: {metric}", _ratio(results, variant, metric), least
            elif "per char" in metric:
                yield f"Bonnie++ {variant}: {metric}", _ratio(results, variant, metric), 15.0
        if "CPU s" in series:
            yield f"Bonnie++ {variant}: CPU seconds", _ratio(results, variant, "CPU s", True), 1.0


def _kept(results: Results) -> Iterator[tuple[str, float, float]]:
    for variant in results:
        if variant not in ("native", "limit"):
            new, over = (f"written {way}: wall s" for way in ("new", "over"))
            yield f"kept file, written new, {variant}", _ratio(results, variant, new, True), 0.98
            limit, ours = (_value(results, each, over) for each in ("limit", variant))
            yield f"kept file, written over, {variant}, beside one durable copy more", limit / ours, 0.87


def _fio(results: Results) -> Iterator[tuple[str, float, float]]:
    for metric in results["native"]:
        if "CPU" in metric:
            yield f"fio, {metric}", _ratio(results, "metamori", metric, True), 1.0
        else:
            over_old = "random write" in metric and ("old" in metric or "sparse" in metric)
            yield f"fio, {metric}", _ratio(results, "metamori", metric), 2.0 if over_old else 1.0


def _programs(results: Results) -> Iterator[tuple[str, float, float]]:
    for metric in results["native"]:
        if metric.endswith(("wall s", "CPU s")):
            yield metric, _ratio(results, "metamori", metric, True), 0.95


RATIOS = {"bonnie": _bonnie, "kept": _kept, "fio": _fio, "programs": _programs}


def _limits(bench: str, results: Results) -> Iterator[tuple[str, float, float, str]]:
    """Figures that may not be larger than something: what, figure, bound, unit."""
    if bench == "exec":
        for metric in ("per exec, ms", "per exec, CPU ms"):
            yield f"exec of a small program: added {metric}", (_value(results, "metamori", metric)
                                                               - _value(results, "native", metric)), 0.3, "ms"
    elif bench == "checkpoint":
        for name in results:
            changed_mib = int(name.split(", ")[1].split()[0].replace(",", "")) / 1024
            yield f"checkpoint, {name}: pause", _value(results, name, "pause, ms"), 2.0, "ms"
            yield f"checkpoint, {name}: durable", _value(results, name, "call, ms"), 20.0, "ms"
            yield (f"checkpoint, {name}: bytes", _value(results, name, "bytes added, MiB"), 1.1 * max(changed_mib, 0.1),
                   "MiB")
    elif bench == "memory" and "1024 MiB, 1 %" in results:
        name = "1024 MiB, 1 %"
        yield f"memory, {name}: pause", _value(results, name, "pause, ms"), 10.0, "ms"
        yield f"memory, {name}: bytes", _value(results, name, "image, MiB"), 12.0, "MiB"
        yield f"memory, {name}: restart", _value(results, name, "restart, s"), 1.0, "s"
        if "overhead, %" in results[name]:
            yield f"memory, {name}: overhead, every 10 s", _value(results, name, "overhead, %"), 3.0, "%"
    elif bench == "growth":
        last = {tuple(series): name for name, series in results.items()}   # the largest of each kind
        for metric, name in [(metric, name) for metrics, name in last.items() for metric in metrics]:
            if metric.endswith("CPU s"):
                yield f"{name}: {metric.removesuffix(', CPU s')}", _value(results, name, metric), 1.0, "CPU s"
            elif metric.startswith("pause"):
                yield f"{name}: {metric.removesuffix(', ms')}", _value(results, name, metric), 20.0, "ms"


def rows(found: dict[str, Any]) -> Iterator[Row]:
    for each in found.get("benches", [found]):
        bench, where, results = each["bench"], each["machine"]["filesystem"], each["results"]
        for what, figure, least in RATIOS[bench](results) if bench in RATIOS else ():
            yield what, where, f"≥ ×{least:g}", figure, f"×{figure:.2f}", round(figure, 2) >= least
        for what, figure, most, unit in _limits(bench, results):
            yield what, where, f"≤ {most:.3g} {unit}", figure, f"{figure:.3g} {unit}", figure <= most


def _peers(found: dict[str, Any]) -> Iterator[str]:
    for each in found.get("benches", [found]):
        if each["bench"] == "peers":
            for name in each["results"]:
                took = _value(each["results"], name, "keep a state, ms")
                taken = _value(each["results"], name, "MiB per state")
                yield f"| {name} | {each['machine']['filesystem']} | {took:.3g} ms | {taken:.3g} MiB |"


def page(found: dict[str, Any]) -> str:
    """The page of the manual. Written by `python -m bench rows`, never by hand."""
    first = found.get("benches", [found])[0]
    where, rounds = first["machine"], first["options"]["rounds"]
    minutes = sum(each.get("seconds", 0) for each in found.get("benches", [found])) // 60
    every = list(rows(found))
    missed_rows = [row for row in every if not row[5]]
    lines = ["# Figures", "",
             "Written by `python -m bench rows FILE --into bench/FIGURES.md` from one run of",
             f"`make bench-all BENCH='--form {found.get('form', 'full')} --rounds {rounds}'` on {where['processor']},",
             f"{where['cores']} cores, {where['memory_gib']} GiB, Linux {where['kernel']}, commit {where['commit']},",
             f"{where['time']}, {minutes} minutes; medians of {rounds} alternating rounds.",
             "Ratios are speeds, native is ×1; Bonnie++'s phases of less than half a second are lower bounds.",
             "The letters of the rows that are not reached lead to what limits them and what was tried.", "",
             f"{len(every) - len(missed_rows)} of {len(every)} are reached.", ""]
    why = {row: missed.why(*row[:2]) for row in missed_rows}
    letters = {text: chr(ord("a") + number) for number, text in enumerate(dict.fromkeys(why.values()))}
    lines += ["## Not reached", "", "| what | filesystem | to reach | measured | why |", "|---|---|---|---|---|"]
    lines += [f"| {what} | {kind} | {reach} | {text} | {letters[why[row]]} |"
              for row in missed_rows for what, kind, reach, _, text, _ in [row]]
    for text, letter in letters.items():
        lines += ["", f"**{letter}** {text}"]
    lines += ["", "## Reached", "", "| what | filesystem | to reach | measured |", "|---|---|---|---|"]
    lines += [f"| {what} | {kind} | {reach} | {text} |" for what, kind, reach, _, text, reached in every if reached]
    lines += [""]
    peers = list(_peers(found))
    if peers:
        lines += ["## Others, ten states of a file with 1 MiB changed before each", "",
                  "| what | filesystem | until durable | taken |", "|---|---|---|---|", *peers, ""]
    return "\n".join(lines)
