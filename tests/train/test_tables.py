"""The tables' line format, and errors by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from train.world import FRAMES
from train.world.deeds import VERBS
from train.world.frame import frame_of
from train.world.meaning import MEANINGS
from train.world.nouns import ASKED_AS

from train import facts, tables

TABLE = """
# People and their homes.

home : who=person town=town
  {who} lives in {town},
    by the river.
  town? Where does {who} live?
    | In which town is {who} at home?
  town? What is the home of {who}?

pet :
  cat, guinea pig,
  dog
"""


def test_a_block_has_a_name_a_head_and_entries_that_may_go_on():
    home, pet = tables.parse(TABLE)
    assert (home.name, home.head.text) == ("home", "who=person town=town")
    assert [line.text for line in home.lines] == [
        "{who} lives in {town}, by the river.",
        "town? Where does {who} live? | In which town is {who} at home?",
        "town? What is the home of {who}?",
    ]
    assert home.lines[1].wordings == ("town? Where does {who} live?", "In which town is {who} at home?")
    assert [line.place for line in home.lines] == ["table:5", "table:7", "table:9"]
    assert (pet.name, pet.head.text, pet.words) == ("pet", "", ("cat", "guinea pig", "dog"))


def test_a_frame_is_read_with_its_slots_tellings_and_questions_in_order():
    home, _ = tables.parse(TABLE)
    frame = frame_of(home)
    assert frame.slots == {"who": "person", "town": "town"}
    assert frame.sentences == ("{who} lives in {town}, by the river.",)
    assert frame.questions == {
        "town": ("Where does {who} live?", "In which town is {who} at home?", "What is the home of {who}?")
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("  cat, dog", "pets.txt:1: a table begins with a block's name"),
        ("\n\npets\n  cat", 'pets.txt:3: .* expected "name : ..."'),
        ("pet :\n\nfood :\n  rice", "pets.txt:1: 'pet' has no entries"),
        ("pet :\n  cat\npet :\n  dog", "pets.txt:3: 'pet' is there already, at pets.txt:1"),
        ("pet :\n   cat", "pets.txt:2: it is indented by 3 blanks"),
        ("# pets\n    cat", "pets.txt:2: it is indented by 4 blanks; .* below a line"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_file_number_and_reason(text, error):
    with pytest.raises(ValueError, match=error):
        tables.parse(text, "pets.txt")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("home : who=person town\n  {who} lives.", "table:1: frame home: 'town' is no slot"),
        ("\nhome : who=person town=town\n  {who} lives in {twon}.", "table:2: frame home: .*no slot for"),
    ],
)
def test_a_frame_that_cannot_be_told_is_named_with_file_and_line(text, error):
    (block,) = tables.parse(text)
    with pytest.raises(ValueError, match=error):
        frame_of(block)


def test_every_table_can_be_read_and_something_reads_it():
    folder = Path(tables.__file__).with_name("tables")
    names = [str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.txt")]
    code = "".join(file.read_text() for file in folder.parent.rglob("*.py"))
    for name in names:
        assert tables.read(name)
        assert f'"{name}"' in code or f'"{name.split("/")[-1]}"' in code, f"nothing reads {name}"


def test_the_readme_counts_what_the_tables_hold():
    readme = Path(tables.__file__).with_name("README.md").read_text()
    asked = sum(len(questions) for frame in FRAMES for questions in frame.questions.values())
    assert f"{len(FRAMES)} frames" in readme
    assert f"{sum(len(frame.sentences) for frame in FRAMES):,} ways to tell them and {asked:,} questions" in readme
    phrases = sum(len(meaning.phrases) for meaning in MEANINGS)
    whole = sum(len(questions) for meaning in MEANINGS for questions in meaning.questions.values())
    assert f"{len(MEANINGS)} sorts of happenings in {phrases:,} phrases" in readme
    assert f"{whole:,} whole questions" in readme
    assert f"{len(ASKED_AS):,} things by kind" in readme
    assert f"{len(VERBS)} verbs" in readme
    assert f"{len(facts.FACTS)} facts of the real world" in readme
