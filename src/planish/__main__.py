"""``python -m planish`` is the ``planish`` program."""

import sys

from planish.cli import main

if __name__ == "__main__":
    sys.exit(main())
