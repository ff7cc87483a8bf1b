"""Other people's data sets, and yours, as one caplore data set: read, checked, written, reported."""
