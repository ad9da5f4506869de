"""The complete command line, made once for all tests."""

from quire.cli.main import make_app

app = make_app()
