"""How much of the references a set of captions covers. Axes: images, samples, refs.

With sim a sentence metric of one caption against one reference (CiderD.similarity, for example), Y the set, R the
references:

    recall    = mean over r in R of max over y in Y of sim(y, r)      what share of what people said is said
    precision = mean over y in Y of max over r in R of sim(y, r)      what share of what is said people said
    F1        = their harmonic mean

The paper behind caplore takes diversity as a stand-in for recall because the true set of captions is unknown; this
is recall of the part of it that is known. All are on the scale of sim, and serve as set rewards too.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from caplore.metrics import formulas


def recall(
    similarity: Float[Tensor, "images samples refs"],
    sampled: Bool[Tensor, "images samples"] | None = None,
    there: Bool[Tensor, "images refs"] | None = None,
) -> Float[Tensor, " images"]:
    """`sampled` marks captions, `there` references that there are; 0 where one of the two has none."""
    return _best(similarity.transpose(1, 2), there, sampled)


def precision(
    similarity: Float[Tensor, "images samples refs"],
    sampled: Bool[Tensor, "images samples"] | None = None,
    there: Bool[Tensor, "images refs"] | None = None,
) -> Float[Tensor, " images"]:
    return _best(similarity, sampled, there)


def f1(precision: Float[Tensor, "*any"], recall: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    return formulas.f1(precision, recall)


def _best(
    similarity: Float[Tensor, "images rows columns"],
    rows: Bool[Tensor, "images rows"] | None,
    columns: Bool[Tensor, "images columns"] | None,
) -> Float[Tensor, " images"]:
    """The mean over rows of the largest column."""
    if columns is not None:
        similarity = similarity * columns.unsqueeze(1)  # no similarity is below 0
    best = similarity.amax(-1)
    if rows is None:
        return best.mean(-1)
    return (best * rows).sum(-1) / rows.sum(-1).clamp(min=1)
