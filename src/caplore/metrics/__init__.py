"""Metrics: numbers from captions as rows of ids (the reward) and as words (the evaluation).

One n-gram engine (`ngrams`) under CIDEr, BLEU, pairwise distances and the set metrics.
"""
