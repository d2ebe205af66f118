"""Make the drafters that come with specviz, from nothing: corpora, training, measuring, cards.

    python data/drafters/build.py corpus general     # or code, prose: answers of the target
    python data/drafters/build.py train eagle        # any name in RUNS
    python data/drafters/build.py measure            # the evaluation prompts, all drafters
    python data/drafters/build.py ship               # weights and cards into data/drafters

Every step goes on where it was stopped, and takes one core (the first two for about half an hour
each time). Work files lie in ./out/drafters.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

import specviz as sv
from specviz.analysis.controls import compare_drafters
from specviz.training.corpus import build_corpus, default_taps, load_corpus
from specviz.training.loop import Schedule
from specviz.training.prompts import training_prompts
from specviz.training.run import train_drafter

HERE = Path(__file__).resolve().parent
WORK = Path("out/drafters")
K = 7

#: Prompts of each corpus: all types alike, and more of the two that the puzzle is about.
CORPORA = {
    "general": lambda: training_prompts(6144, seed=0)[:1536],
    "code": lambda: training_prompts(2304, seed=0, mix={"code": 1})[768:1536],
    "prose": lambda: training_prompts(2304, seed=0, mix={"prose": 1})[768:1536],
}
RUNS: dict[str, dict[str, Any]] = {}


def corpus(name: str) -> None:
    target = sv.load_target()
    build_corpus(
        target, CORPORA[name](), WORK / f"corpus-{name}", taps=default_taps(target), batch_size=96
    )
