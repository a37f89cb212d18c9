"""Training in two halves, a phone and an edge server: the documents' way, and one that protects a record.

`documented` is the documents' split, which protects no record. `noised` is ours: one noisy vector for each
record, drawn once and paid for, so that whatever the edge does with it is post-processing. `edge` is the
server, `line` the phone's end of it.
"""

__all__: list[str] = []
