"""Packs whose weights are stored as bit planes: exponents, coded, and the other bits, packed. Imports no models."""
