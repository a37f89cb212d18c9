"""`python -m reticent`: the command, wherever its script is not."""

from reticent.apps import main

if __name__ == "__main__":
    main()
