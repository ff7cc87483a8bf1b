"""Results -> tables and one page. Reads the JSON of evaluation and the log of training, nothing else.

results.py      results/<split>.json as typed values; runs of one recipe grouped over their seeds
runs.py         a run folder: run.json, the result of one split, the log's curves
paper.py        the paper's own figures, as data
tables.py       groups -> tables -> Markdown, plain text for a terminal
claim.py        is exploration better on both sides at once? the differences, and a sentence
charts.py       data -> SVG text, pure functions
figures.py      groups and logs -> the page's charts, each with how to read it
captions.py     sets of captions: which words repeat, which captions are right
thumbnails.py   a picture or clip -> a small data URI
page.py         all of it -> one HTML page that asks the network for nothing
"""
