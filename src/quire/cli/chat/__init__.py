"""`quire chat`: `commands.py` is the command, `screens.py` where its conversation is shown."""
