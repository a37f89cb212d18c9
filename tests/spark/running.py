"""Where the Spark of these tests runs."""

MASTER = "local[2]"
