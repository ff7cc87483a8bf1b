"""From a model and features to captions: greedy, sampling, beam search, and choosing among captions."""

from caplore.decoding.agreement import consensus, ranking
from caplore.decoding.beam import beam, diverse_beam
from caplore.decoding.captions import Captions, first_of_its_kind
from caplore.decoding.forbidding import Forbidding
from caplore.decoding.sampling import greedy, sample

__all__ = [
    "Captions",
    "Forbidding",
    "beam",
    "consensus",
    "diverse_beam",
    "first_of_its_kind",
    "greedy",
    "ranking",
    "sample",
]
