"""`quire stages`: the command group."""

from __future__ import annotations

from quire.cli.command import App
from quire.cli.stages import heal, pack, plan

app = App(
    help="Cut a model into stages, so that a part of it serves while the rest loads: plan, heal, pack.",
    epilog="Example: quire stages plan --model quire-mini --generate 64 --start Context: --layers-out 4",
)
app.command(epilog=plan.EXAMPLE)(plan.plan)
app.command(epilog=heal.EXAMPLE)(heal.heal)
app.command(epilog=pack.PACK_EXAMPLE)(pack.pack)
app.command(epilog=pack.UNPACK_EXAMPLE)(pack.unpack)
app.command(epilog=pack.VERIFY_EXAMPLE)(pack.verify)
app.command(epilog=pack.SHOW_EXAMPLE)(pack.show)
