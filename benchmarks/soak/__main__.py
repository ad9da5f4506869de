"""`python -m benchmarks.soak`: see soak.py."""

import sys

from benchmarks.soak.soak import main

sys.exit(main())
