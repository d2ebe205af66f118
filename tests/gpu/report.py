"""What the GPU tests saw, in one file that can be attached to an issue."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any


class Seen:
    """Per test: how it ended, in which phase, and what it measured."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}

    def measured(self, test: str) -> dict[str, Any]:
        """Where a test puts its numbers."""
        numbers: dict[str, Any] = self.tests.setdefault(test, {"measured": {}})["measured"]
        return numbers

    def add(self, test: str, report: Any) -> None:
        """Take a phase's outcome: the call's, and that of a setup or teardown that went wrong.

        A model that cannot be loaded fails in a setup: that is what a report is wanted for.
        """
        if report.when != "call" and report.outcome == "passed":
            return
        entry = self.tests.setdefault(test, {"measured": {}})
        if entry.get("outcome") == "failed":
            return  # the first failure is the one to read
        entry["outcome"], entry["phase"] = report.outcome, report.when
        entry["seconds"] = round(report.duration, 2)
        if report.outcome == "skipped":
            entry["said"] = str(report.longrepr[-1]).removeprefix("Skipped: ")
        elif report.outcome == "failed":
            entry["said"] = str(report.longrepr)[-4000:]

    def sentence(self) -> str:
        """The verdict in words."""
        ends = Counter(entry.get("outcome", "not run") for entry in self.tests.values())
        if not ends["passed"] and not ends["failed"]:
            why = Counter(entry.get("said", "no test was run") for entry in self.tests.values())
            said = why.most_common(1)[0][0] if why else "no test was run"
            return f"Nothing was verified on a GPU: {said}."
        counted = ", ".join(f"{number} {end}" for end, number in sorted(ends.items()))
        return f"GPU tests: {counted}."

    def write(self, file: Path, machine: dict[str, Any]) -> None:
        """Write the report; parents are made."""
        file.parent.mkdir(parents=True, exist_ok=True)
        written = {"verdict": self.sentence(), "machine": machine, "tests": self.tests}
        file.write_text(json.dumps(written, indent=2, default=str) + "\n", encoding="utf-8")
