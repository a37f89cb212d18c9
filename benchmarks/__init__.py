"""Speed, as ratios against named peers measured in the same run: `make bench`."""
