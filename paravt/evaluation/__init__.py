"""
A policy asked questions and measured, with the loop that trains it: a record per question, with resume.

- `playing`: rows -> records
- `rates`: a policy's rates by number of overview frames
- `records`: records on disk, with resume
- `plugin`: the model of lmms-eval; imported by lmms-eval and `recipes/evaluate.py` alone
"""

from .playing import failed, play, play_safely
from .rates import measure, measure_trainer, stats_of
from .records import Records


__all__ = ["Records", "failed", "measure", "measure_trainer", "play", "play_safely", "stats_of"]
