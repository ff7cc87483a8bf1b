"""The made world: pictures and clips whose complete set of correct captions is known.

    make_scenes     draw a data set (`caplore data scenes`)
    load_truths     the truth of each input of such a data set
    Truth           its correct captions: all of them, how many, whether a caption is one
    vocabulary      every word a correct caption can have

docs/scenes.md says what is in it.
"""

from caplore.data.scenes.grammar import vocabulary
from caplore.data.scenes.make import make_scenes
from caplore.data.scenes.truth import Truth, load_truths

__all__ = ["Truth", "load_truths", "make_scenes", "vocabulary"]
