"""The list of slow tests, ``slow_tests.txt``: what ``pytest -m "not slow"`` leaves out.

    pytest --junitxml=/tmp/all.xml && python tests/slow_tests.py /tmp/all.xml
    pytest -m "not slow" --junitxml=/tmp/rest.xml && python tests/slow_tests.py /tmp/all.xml /tmp/rest.xml

A test function is slow if its cases take longer than ``LIMIT`` on average in one of the reports. The second finds those
that share the fixture of a slow one and would pay for it alone.
"""

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

LIMIT = 0.045
"""Seconds of a case."""
LIST = Path(__file__).with_suffix(".txt")


def slow_functions(report: Path) -> set[str]:
    """Such as ``tests/train/test_killed.py::test_name``."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        seconds[f"{file}::{case.attrib['name'].partition('[')[0]}"].append(float(case.attrib["time"]))
    return {name for name, times in seconds.items() if sum(times) / len(times) > LIMIT}


def listed() -> set[str]:
    return set(LIST.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    found = set().union(*(slow_functions(Path(report)) for report in sys.argv[1:]))
    LIST.write_text("".join(f"{name}\n" for name in sorted(found)), encoding="utf-8")
