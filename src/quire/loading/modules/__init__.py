"""A model on meta, and how it gets in place: which tensor fits where, and units that are filled and packed."""
