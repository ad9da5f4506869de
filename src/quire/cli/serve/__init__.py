"""`quire serve`: the command, its arguments, and the options of other engines."""
