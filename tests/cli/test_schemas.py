"""What every verb says with --json is what docs/reference/schemas.json says, no less and no more."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typed

from metamori.cli import main

jsonschema = pytest.importorskip("jsonschema")
SCHEMAS = json.loads((typed.ROOT / "docs" / "reference" / "schemas.json").read_text())
pytestmark = pytest.mark.usefixtures("installed")


def closed(schema: Any) -> Any:
    """The same schema, in which fields that it does not name are wrong."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    return found | {"additionalProperties": False} if "properties" in schema else found


def said(folder: Path, *words: str | bytes, code: int = 0) -> Any:
    done = subprocess.run(["metamori", words[0], "--json", *words[1:]], cwd=folder, env=typed.environment(),
                          capture_output=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout.count(b"\n") == 1
    value = json.loads(done.stdout)
    jsonschema.validate(value, closed(SCHEMAS[words[0]]))
    done.stdout.decode("ascii")
    return value


def test_every_verb_has_a_schema() -> None:
    assert set(SCHEMAS) == set(main.VERBS) - {"run", "restart"}
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


SCRIPT = r"""
exec 5>> log 6<> data
echo appended >&5
printf 'over' >&6
metamori checkpoint --json -m 'said so' > checkpoint.json
printf x > "$(printf 'no\377text')"
ln -s data link; mkdir folder; mkfifo pipe
metamori status --json > status.json
metamori checkpoint > /dev/null
rm link; echo more >> log; chmod 600 data
"""


def test_what_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"d" * 10000)
    (tmp_path / "out").touch()
    with open(tmp_path / "out", "ab") as out:
        done = subprocess.run(["metamori", "run", "--", "sh", "-c", SCRIPT], cwd=tmp_path, env=typed.environment(),
                              stdout=out, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("checkpoint", "status"):
        value = json.loads((tmp_path / f"{name}.json").read_text())
        jsonschema.validate(value, closed(SCHEMAS[name]))
        assert name == "checkpoint" or value["alive"]
    assert [each["message"] for each in said(tmp_path, "log")["checkpoints"]][1] == "said so"
    kinds = {kind for index in "123" for record in said(tmp_path, "show", index)["records"]
             for kind in ("processes", "ranges", "seek_pointer", "was_deleted") if kind in record}
    assert len(kinds) >= 3, kinds
    assert {each["change"] for each in said(tmp_path, "diff", "2", "3")["changes"]} == {"D", "M"}
    assert said(tmp_path, "diff", "0", "1", "data")["diff"]
    assert "path_b64" in said(tmp_path, "cat", "2", b"no\xfftext")
    assert said(tmp_path, "restore", "1", "--dry-run")["changes"]
    said(tmp_path, "restore", "1", "--to", "copy")
    (tmp_path / "data").write_text("somebody else")
    assert said(tmp_path, "restore", "1", "--dry-run")["changed_outside"]
    assert said(tmp_path, "restore", "1", "--force", "--stdio")["recorded"]
    assert said(tmp_path, "restore", "3", "log", "--dry-run")["changes"]
    assert said(tmp_path, "restore", "3", "log")["paths"]
    assert said(tmp_path, "undo")["index"] == 1
    assert said(tmp_path, "undo")["index"] == 0 and said(tmp_path, "redo")["from"] == 0
    assert not said(tmp_path, "status")["alive"]
    assert said(tmp_path, "report", "heatmap")["svg"]
    assert said(tmp_path, "report", "page.html")["file"]
    assert said(tmp_path, "verify")["ok"]
    assert said(tmp_path, "prune", "--keep-last", "2", "--dry-run")["pruned"]
    said(tmp_path, "prune", "--keep-last", "2")
    said(tmp_path, "log")
    assert said(tmp_path, "doctor", "/bin/sh")["findings"]
    said(tmp_path, "config", "--cflags")


def test_of_memory(tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text("#include <metamori.h>\nint main(void) { return metamori_checkpoint() != 1; }\n")
    subprocess.run(["gcc", f"-I{typed.ROOT / 'shim_c' / 'include'}", "p.c", "-o", "p"], cwd=tmp_path, check=True)
    done = subprocess.run(["metamori", "run", "--memory", "--", "./p"], cwd=tmp_path, env=typed.environment(),
                          capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert said(tmp_path, "show", "1")["memory"] and said(tmp_path, "log")["checkpoints"][1]["memory"]


def test_a_failure_says_nothing_on_standard_output(tmp_path: Path) -> None:
    for words in (["log"], ["restore", "1"], ["cat", "1", "file"]):
        done = subprocess.run(["metamori", *words, "--json"], cwd=tmp_path, env=typed.environment(),
                              capture_output=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (10, b""), words
