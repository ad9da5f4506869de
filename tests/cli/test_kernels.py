"""`quire kernels` with the libraries of this checkout, and without any."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import quire.kernels.build as kernels_build
from command_line import app
from quire.kernels.loaded import load_kernels


def test_info_shows_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUIRE_KERNELS", raising=False)
    assert f"used: {load_kernels()}" in CliRunner().invoke(app, ["kernels", "info"]).output
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    assert "used: none, QUIRE_KERNELS=none" in CliRunner().invoke(app, ["kernels", "info"]).output


def test_build_says_in_one_line_why_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_build, "LIBRARIES", tmp_path)
    monkeypatch.setattr(kernels_build, "FAILURE", tmp_path / "failure.txt")
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = CliRunner().invoke(app, ["kernels", "build"])
    assert result.exit_code == 2
    assert "there is no C++ compiler (no-such-compiler)" in result.output
