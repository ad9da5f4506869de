"""`python -m quire` is `quire`."""

from quire.cli.main import app

app(prog_name="quire")
