"""Tables, figures and plots."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench.common import svg
from bench.common.report import Journal, si, table


@pytest.mark.parametrize(
    ("value", "text"), [(1_234_567, "1.23M"), (45_600, "45.6k"), (999, "999"), (0.1234, "0.123"), (0, "0")]
)
def test_three_figures(value: float, text: str) -> None:
    assert si(value) == text


def test_columns_are_aligned() -> None:
    lines = table(["cell", "rate"], [["publish", "7"], ["drain", "1.2k"]]).splitlines()
    assert lines == ["cell     rate", "-------  ----", "publish     7", "drain    1.2k"]


def test_every_line_of_a_journal_is_an_object(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.jsonl"
    with Journal(path) as journal:
        journal.write("run", rate=1.5)
        # Readable before the end: a run may be interrupted.
        assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["machine", "run"]


def test_bars_are_a_picture_with_every_label(tmp_path: Path) -> None:
    path = tmp_path / "bars.svg"
    svg.bars(path, "a < b", [svg.Bar("one & only", 3.0, mark=2.0), svg.Bar("none", 0.0)])
    texts = [element.text for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:2] == ["a < b", "one & only"]
    rectangles = [
        float(each.get("width", "0")) for each in ElementTree.parse(path).iter() if each.get("height") == "14"
    ]
    assert rectangles[0] > rectangles[1] == 0


def test_lines_survive_a_single_point(tmp_path: Path) -> None:
    path = tmp_path / "lines.svg"
    svg.lines(path, "rate", {"many queues": [(1.0, 5.0)], "many connections": [(1.0, 0.0)]})
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
