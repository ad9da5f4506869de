"""`quire models`: embedded models, architectures and presets."""

from __future__ import annotations

EXAMPLE = "Example: quire models"


def models() -> None:
    """List the embedded models, the supported architectures and the presets."""
    from rich.console import Console
    from rich.table import Table

    from quire.loading import resolve_model
    from quire.loading.presets import preset_names
    from quire.loading.source import EMBEDDED_MODELS
    from quire.models.registry import ARCHITECTURES

    embedded = Table("embedded", "parameters", "use", box=None)
    for name, purpose in EMBEDDED_MODELS.items():
        embedded.add_row(name, f"{resolve_model(name).config.num_parameters / 1e6:,.1f} M", purpose)
    table = Table("architecture", "models", box=None)
    for architecture in ARCHITECTURES.values():
        table.add_row(architecture.name, architecture.families)
    console = Console()
    console.print(embedded)
    console.print()
    console.print(table)
    console.print("\nPresets (known shapes with random weights):", highlight=False)
    console.print(", ".join(preset_names()), highlight=False)
