"""`quire chat`: the command (`commands.py`) and its display (`screens.py`)."""
