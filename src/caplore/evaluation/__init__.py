"""From a model and a split, or from captions of any origin, to scores in one JSON; and two of those compared."""

from caplore.evaluation.scoring import METRICS, Result, SpiceSettings, score

__all__ = ["METRICS", "Result", "SpiceSettings", "score"]
