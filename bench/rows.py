"""The page of figures out of one JSON of `all`: each row with what it is to reach, beside its limit.

The limit is what moving the same bytes costs at least, measured in the same run: the native program, and one durable
copy more of bytes that an index needs. Where no figure was set, a row is reached within 1.15 of its limit or at native.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from bench import disk, measure, missed

NEAR = 1.15
Results = dict[str, dict[str, dict[str, Any]]]   # variant -> metric -> its summary


class Speed(NamedTuple):
    """How many times native's speed: measured, at its limit, and where it is set, to be reached, where it can be."""

    what: str
    ours: float
    limit: float = 1.0
    set: float = 0.0

    def least(self) -> float:
        possible = self.limit / NEAR
        return min(self.set, possible) if self.set and self.limit < 1 else self.set or possible


class Bound(NamedTuple):
    """A figure that is not to be larger than something."""

    what: str
    figure: float
    most: float
    unit: str
    limit: float = 0.0                     # measured with it, where there is such a program


class Row(NamedTuple):
    what: str
    where: str                             # the filesystem
    limit: str
    to_reach: str
    measured: str
    reached: bool


def _value(results: Results, variant: str, metric: str) -> float:
    return abs(measure.median(results[variant][metric]["all"]))


def _ratio(results: Results, variant: str, metric: str, smaller: bool = False) -> float:
    native, ours = _value(results, "native", metric), _value(results, variant, metric)
    return (native / ours if smaller else ours / native) if native and ours else 0.0


def _bonnie(results: Results) -> Iterator[Speed]:
    """The four caches of `--isolate` are one row, of the slowest."""
    for kind in ("default", "--isolate", "default, checkpoint every 2 s"):
        variants = [each for each in results if each == kind or (kind == "--isolate" and each.startswith(kind))]
        set_for = {"rewrite": 0.6, "CPU s": 1 / 1.4} if "every" in kind else {}
        for metric in results[variants[0]] if variants else ():
            smaller, limit = metric == "CPU s", 1.0
            if smaller and kind != "default":          # each byte is written twice
                native = _value(results, "native", metric)
                limit = native / (native + _value(results, "native", "a copy, CPU s"))
            if metric == "rewrite" and set_for:        # indexes know the file: each of its blocks is copied once
                native = _value(results, "native", "MiB") / _value(results, "native", metric)
                limit = native / (native + _value(results, "native", "a copy, wall s"))
            if smaller or "read" in metric or "write" in metric:
                slowest = min(_ratio(results, each, metric, smaller) for each in variants)
                yield Speed(f"Bonnie++ {kind}: {metric}", slowest, limit, set_for.get(metric, 0.0))


def _kept(results: Results) -> Iterator[Speed]:
    for variant in results:
        for way in ("new", "over") if variant not in ("native", "limit") else ():
            metric = f"written {way}: wall s"
            limit = 1.0 if (way, variant) == ("new", "default") else _ratio(results, "limit", metric, True)
            yield Speed(f"kept file, written {way}, {variant}", _ratio(results, variant, metric, True), limit)


def _fio(results: Results) -> Iterator[Speed]:
    """The random writes are one row, of the slowest."""
    slowest: dict[str, Speed] = {}
    for metric in results["native"]:
        case, job = metric.split(": ")
        smaller = "CPU" in job
        what = f"fio, {case}: {'random writes' if job.startswith('random write') else job}"
        found = Speed(what, _ratio(results, "metamori", metric, smaller), _ratio(results, "limit", metric, smaller),
                      0.7 if job == disk.READ_AFTER and not case.startswith("new") else 0.0)
        slowest[what] = min(found, slowest.get(what, found), key=lambda each: each.ours / each.least())
    yield from slowest.values()


SET = {"sqlite3": 1 / 1.2, "tar": 1 / 1.2, "5,000 small files": 1 / 1.25}


def _programs(results: Results) -> Iterator[Speed]:
    for metric in results["native"]:
        if metric.endswith(("wall s", "CPU s")):
            to_reach = next((least for name, least in SET.items() if metric.startswith(name)), 0.0)
            yield Speed(metric, _ratio(results, "metamori", metric, True), set=to_reach)


def _names(results: Results) -> Iterator[Speed]:
    for metric in results["native"]:
        if metric.endswith("CPU us"):
            yield Speed(f"names, {metric}", _ratio(results, "metamori", metric, True), set=1 / 1.3)


def _static(results: Results) -> Iterator[Speed | Bound]:
    for metric in results["native"]:
        native = _value(results, "native", metric)
        added = _value(results, "metamori", metric) - native
        least = _value(results, "limit", metric) - native if metric in results.get("limit", {}) else 0.0
        if metric.startswith(("dd", "sha256sum")):
            yield Speed(f"static program: {metric}", _ratio(results, "metamori", metric, True))
        elif metric.startswith("exec"):
            yield Bound("static program: exec, added", added, 0.3, "ms", least)
        elif not metric.startswith(("round trip", "first")):
            yield Bound(f"static program: {metric.removesuffix(', us')}, added", added, 15.0, "us", least)


RATIOS: dict[str, Any] = {"bonnie": _bonnie, "kept": _kept, "fio": _fio, "programs": _programs, "names": _names,
                          "static": _static}


def _bounds(bench: str, results: Results) -> Iterator[tuple[str, float, float, str]]:
    """What, figure, bound, unit."""
    if bench == "exec":
        for what, metric, most in (("exec of a small program: added", "per exec, ms", 0.3),
                                   ("exec of a small program: added CPU time", "per exec, CPU ms", 0.3),
                                   ("start and end of a run: added CPU time", "start and end, CPU ms", 40.0)):
            yield what, _value(results, "metamori", metric) - _value(results, "native", metric), most, "ms"
    elif bench == "calls":
        for metric in (f"{operation} {size}" for operation in ("write-again", "read") for size in (1, 100)):
            yield f"redirected, {metric} byte{'s' * ('100' in metric)}", _value(results, "default", metric), 35.0, "ns"
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
        for name in results:
            if "processes" in name:
                idle = "idle" in name
                yield f"memory, {name}: pause", _value(results, name, "pause, ms"), 100.0 if idle else 15.0, "ms"
                if not idle:
                    yield f"memory, {name}: bytes", _value(results, name, "image, MiB"), 1.2 * 10.24, "MiB"
                    yield f"memory, {name}: restart", _value(results, name, "restart, s"), 1.5, "s"
    elif bench == "job":
        for name in results:
            if name.startswith("runs"):    # and two round trips
                yield f"job, {name}: pause", _value(results, name, "pause, ms"), 10.2, "ms"
    elif bench == "growth":
        last = {tuple(series): name for name, series in results.items()}   # the largest of each kind
        for metric, name in [(metric, name) for metrics, name in last.items() for metric in metrics]:
            if metric.endswith("CPU s"):
                yield f"{name}: {metric.removesuffix(', CPU s')}", _value(results, name, metric), 1.0, "CPU s"
            elif metric.startswith("pause"):
                yield f"{name}: {metric.removesuffix(', ms')}", _value(results, name, metric), 20.0, "ms"


def _figures(bench: str, results: Results) -> Iterator[Speed | Bound]:
    if bench in RATIOS:
        yield from RATIOS[bench](results)
    for bound in _bounds(bench, results):
        yield Bound(*bound)


def rows(found: dict[str, Any]) -> Iterator[Row]:
    for each in found.get("benches", [found]):
        where = each["machine"]["filesystem"]
        for row in _figures(each["bench"], each["results"]):
            if isinstance(row, Bound):
                limit = f"{row.limit:.3g} {row.unit}" if row.limit > 0 else ""
                yield Row(row.what, where, limit, f"≤ {row.most:.3g} {row.unit}", f"{row.figure:.3g} {row.unit}",
                          row.figure <= row.most)
            else:
                yield Row(row.what, where, f"×{row.limit:.2f}", f"≥ ×{row.least():.2f}", f"×{row.ours:.2f}",
                          round(row.ours, 2) >= round(min(row.least(), 1.0), 2))


def _peers(found: dict[str, Any]) -> Iterator[str]:
    for each in found.get("benches", [found]):
        if each["bench"] == "peers":
            for name in each["results"]:
                took = _value(each["results"], name, "keep a state, ms")
                taken = _value(each["results"], name, "MiB per state")
                yield f"| {name} | {each['machine']['filesystem']} | {took:.3g} ms | {taken:.3g} MiB |"


FIRST = ("start and end of a run", "exec of a small program: added", "make", "sqlite3", "5,000 small files",
         "Bonnie++ default: write", "Bonnie++ default, checkpoint every 2 s: rewrite",
         "kept file, written over, default", "fio, old, 1 thread: random writes",
         "checkpoint, 2,048 MiB, 1,024 KiB changed, 8 checkpoints: pause", "memory, 1024 MiB, 1 %: pause")


def _first(every: list[Row]) -> list[Row]:
    """What users ask for, once each."""
    return [next(row for row in every if row.what.startswith(name)) for name in FIRST
            if any(row.what.startswith(name) for row in every)]


def _table(found: list[Row], *more: list[str]) -> list[str]:
    """more: a column, its head first."""
    heads = ["what", "filesystem", "limit", "to reach", "measured", *(column[0] for column in more)]
    cells = [[*row[:5], *(column[number + 1] for column in more)] for number, row in enumerate(found)]
    return ["", *("| " + " | ".join(line) + " |" for line in [heads, ["---"] * len(heads), *cells])]


def page(found: dict[str, Any]) -> str:
    """The page of the manual. Written by `python -m bench rows`, never by hand."""
    first = found.get("benches", [found])[0]
    where, rounds = first["machine"], first["options"]["rounds"]
    minutes = sum(each.get("seconds", 0) for each in found.get("benches", [found])) // 60
    every = list(rows(found))
    reached, missing = ([row for row in every if row.reached == good] for good in (True, False))
    lines = ["# Figures", "",
             "Written by `python -m bench rows FILE --into bench/FIGURES.md` from one run of",
             f"`make bench-all BENCH='--form {found.get('form', 'full')} --rounds {rounds}'` on {where['processor']},",
             f"{where['cores']} cores, {where['memory_gib']} GiB, Linux {where['kernel']}, commit {where['commit']},",
             f"{where['time']}, {minutes} minutes; medians of {rounds} alternating rounds.",
             "Ratios are speeds, native is ×1; Bonnie++'s phases of less than half a second are lower bounds.",
             "The limit is the native program, with one durable copy more of bytes that an index needs, in this run.",
             "The letters of the rows that are not reached lead to what limits them and what was tried.", "",
             f"{len(reached)} of {len(every)} are reached.", "", "## What users ask for", *_table(_first(every))]
    why = [missed.why(row.what, row.where) for row in missing]
    letters = {text: chr(ord("a") + number) for number, text in enumerate(dict.fromkeys(why))}
    lines += ["", "## Not reached", *_table(missing, ["why", *(letters[text] for text in why)])]
    for text, letter in letters.items():
        lines += ["", f"**{letter}** {text}"]
    lines += ["", "## Reached", *_table(reached), ""]
    peers = list(_peers(found))
    if peers:
        lines += ["## Others, ten states of a file with 1 MiB changed before each", "",
                  "| what | filesystem | until durable | taken |", "|---|---|---|---|", *peers, ""]
    return "\n".join(lines)
