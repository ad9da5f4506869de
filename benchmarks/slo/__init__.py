"""SLO routing over two models, simulated."""
