"""A Flower app whose clients send private reports and nothing else."""
