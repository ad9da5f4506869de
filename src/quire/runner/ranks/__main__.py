"""The process of a rank: `python -m quire.runner.ranks DESCRIPTOR`, which `RankProcess` starts."""

import sys

from quire.runner.ranks.process import serve_rank

if __name__ == "__main__":
    serve_rank(int(sys.argv[1]))
