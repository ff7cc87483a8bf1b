"""Training objectives: tensors in, one scalar (or one advantage per caption) out. No model, no text, no config.

    xe.py       word-level cross-entropy
    policy.py   the surrogate loss every sequence-level objective ends in
    sll.py      sequence-level learning: expected score, which is generalized precision
    sll_me.py   the same with the entropy of the next word as a bonus
    sle.py      the same with the expected distance between captions: precision and recall
    beyond.py   marginal set rewards and max@k, through the same surrogate

Axes: images, samples (captions drawn per image), time, vocab.
"""
