"""From a model and features to captions: greedy, sampling, beam search."""

from caplore.decoding.beam import beam
from caplore.decoding.captions import Captions
from caplore.decoding.sampling import greedy, sample

__all__ = ["Captions", "beam", "greedy", "sample"]
