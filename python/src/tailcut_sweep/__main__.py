"""`python -m tailcut_sweep`."""

import sys

from tailcut_sweep import main

sys.exit(main())
