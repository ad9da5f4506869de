"""Simple true facts of the real world, each with several wordings of the question and a short answer."""

from __future__ import annotations

from typing import NamedTuple


class Fact(NamedTuple):
    """A fact: wordings of one question, and the answer to all of them."""

    questions: tuple[str, ...]
    answer: str


def _table(forms: str, rows: str) -> list[Fact]:
    """Facts of one kind: `forms` are the wordings, one per line; `rows` holds "thing = answer" pairs."""
    facts = []
    for row in rows.replace("\n", ";").split(";"):
        if row.strip():
            thing, answer = (part.strip() for part in row.split("="))
            wordings = (form.strip() for form in forms.strip().splitlines())
            facts.append(Fact(tuple(form.replace("*", thing) for form in wordings), answer))
    return facts


def _list(rows: str) -> list[Fact]:
    """Single facts, one per block: the wordings a line each, then "= answer"."""
    facts: list[Fact] = []
    wordings: list[str] = []
    for line in rows.strip().splitlines():
        line = line.strip()
        if line.startswith("="):
            facts.append(Fact(tuple(wordings), line[1:].strip()))
            wordings = []
        elif line:
            wordings.append(line)
    return facts


_CAPITALS = _table(
    """What is the capital of *?
    Which city is the capital of *?
    What is the capital city of *?
    Can you tell me the capital of *?
    Name the capital of *.""",
    """France = Paris; Germany = Berlin; Italy = Rome; Spain = Madrid; Portugal = Lisbon; Ireland = Dublin
    Norway = Oslo; Sweden = Stockholm; Denmark = Copenhagen; Finland = Helsinki; Iceland = Reykjavik
    Poland = Warsaw; Austria = Vienna; Belgium = Brussels; Greece = Athens; Hungary = Budapest
    Romania = Bucharest; Bulgaria = Sofia; Ukraine = Kyiv; Russia = Moscow; Turkey = Ankara; Egypt = Cairo
    Morocco = Rabat; Kenya = Nairobi; Ghana = Accra; Nigeria = Abuja; Ethiopia = Addis Ababa
    Senegal = Dakar; Tunisia = Tunis; Japan = Tokyo; China = Beijing; India = New Delhi; Nepal = Kathmandu
    Thailand = Bangkok; Vietnam = Hanoi; South Korea = Seoul; the Philippines = Manila; Iran = Tehran
    Iraq = Baghdad; Canada = Ottawa; Mexico = Mexico City; Cuba = Havana; Brazil = Brasilia
    Argentina = Buenos Aires; Chile = Santiago; Peru = Lima; Colombia = Bogota; Australia = Canberra
    New Zealand = Wellington; the United Kingdom = London; Croatia = Zagreb""",
)

_OPPOSITES = _table(
    """What is the opposite of *?
    Which word is the opposite of *?
    Name the opposite of *.
    What word means the opposite of *?""",
    """hot = cold; big = small; up = down; day = night; wet = dry; fast = slow; open = closed; full = empty
    happy = sad; early = late; heavy = light; loud = quiet; old = young; high = low; left = right
    hard = soft; first = last; rich = poor; strong = weak; thick = thin""",
)

_COLOURS = _table(
    """What colour is *?
    Which colour is *?
    What is the colour of *?
    Tell me the colour of *.""",
    """grass = green; snow = white; coal = black; a ripe strawberry = red; a ripe banana = yellow
    the sky on a clear day = blue; an emerald = green; a ruby = red; milk = white; chocolate = brown""",
)

_LEGS = _table(
    """How many legs does * have?
    What number of legs does * have?
    Tell me how many legs * has.""",
    """a dog = four; a bird = two; a spider = eight; a fly = six; a horse = four; a snake = none; an ant = six
    a frog = four""",
)

_YOUNG = _table(
    """What is a young * called?
    What do we call a young *?
    What is the name for a young *?
    What is the word for a baby *?""",
    """dog = a puppy; cat = a kitten; cow = a calf; sheep = a lamb; horse = a foal; goat = a kid; pig = a piglet
    duck = a duckling; goose = a gosling; bear = a cub; swan = a cygnet; frog = a tadpole; owl = an owlet
    kangaroo = a joey; deer = a fawn""",
)

_DAYS = _table(
    """Which day comes after *?
    What day follows *?
    What is the day after *?
    If today is *, what day is tomorrow?""",
    """Monday = Tuesday; Tuesday = Wednesday; Wednesday = Thursday; Thursday = Friday; Friday = Saturday
    Saturday = Sunday; Sunday = Monday""",
)

_MONTHS = _table(
    """Which month comes after *?
    What month follows *?
    What is the month after *?
    What is the next month after *?""",
    """January = February; February = March; March = April; April = May; May = June; June = July; July = August
    August = September; September = October; October = November; November = December; December = January""",
)

_SYMBOLS = _table(
    """What is the chemical symbol for *?
    Which symbol stands for * in chemistry?
    What is the symbol of the element *?""",
    """hydrogen = H; oxygen = O; carbon = C; nitrogen = N; iron = Fe; gold = Au; silver = Ag; copper = Cu
    sodium = Na; helium = He; lead = Pb; calcium = Ca""",
)

_SUMS = _table(
    """What is *?
    How much is *?
    Can you work out *?
    Tell me what * makes.""",
    """two plus three = five; one plus one = two; two plus two = four; four plus three = seven
    five plus five = ten; six plus two = eight; ten minus four = six; nine minus two = seven
    five minus one = four; two times three = six; three times three = nine; four times two = eight
    ten plus ten = twenty; eight minus five = three""",
)

_OTHERS = _list("""
    What do bees make?
    Which sweet food do bees make?
    What do bees make from nectar?
    = honey
    What is the largest ocean?
    Which ocean is the largest?
    What is the biggest ocean on Earth?
    Name the largest ocean.
    = the Pacific Ocean
    What is the largest planet in the solar system?
    Which planet is the largest?
    Name the biggest planet that goes round the sun.
    = Jupiter
    Which planet is closest to the sun?
    What is the planet nearest to the sun?
    Name the planet closest to the sun.
    = Mercury
    Which planet is called the red planet?
    What is the red planet?
    Name the red planet.
    = Mars
    What is the largest animal?
    Which animal is the largest of all?
    What is the biggest animal in the world?
    = the blue whale
    What is the tallest animal?
    Which animal is the tallest?
    Which animal has the longest neck?
    = the giraffe
    Which land animal is the fastest?
    What is the fastest animal on land?
    Name the fastest land animal.
    = the cheetah
    What is the highest mountain on Earth?
    Which mountain is the highest?
    What is the tallest mountain above the sea?
    = Mount Everest
    What is the largest continent?
    Which continent is the largest?
    Name the biggest continent.
    = Asia
    How many days are in a week?
    How many days does a week have?
    What number of days makes a week?
    = seven
    How many months are in a year?
    How many months does a year have?
    What number of months makes a year?
    = twelve
    How many minutes are in an hour?
    How many minutes does an hour have?
    What number of minutes makes an hour?
    = sixty
    How many hours are in a day?
    How many hours does a day have?
    What number of hours makes a day?
    = twenty-four
    How many letters are in the English alphabet?
    How many letters does the English alphabet have?
    What is the number of letters in the English alphabet?
    = twenty-six
    How many sides does a triangle have?
    What number of sides does a triangle have?
    Tell me how many sides a triangle has.
    = three
    How many sides does a square have?
    What number of sides does a square have?
    Tell me how many sides a square has.
    = four
    What is the first letter of the alphabet?
    Which letter comes first in the alphabet?
    With which letter does the alphabet begin?
    = A
    What is the last letter of the alphabet?
    Which letter comes last in the alphabet?
    With which letter does the alphabet end?
    = Z
    Which season comes after winter?
    What season follows winter?
    What is the season after winter?
    = spring
    Which season comes after spring?
    What season follows spring?
    What is the season after spring?
    = summer
    Which season comes after summer?
    What season follows summer?
    What is the season after summer?
    = autumn
    Which season comes after autumn?
    What season follows autumn?
    What is the season after autumn?
    = winter
    Which season is the coldest?
    What is the coldest season of the year?
    In which season is it coldest?
    = winter
    Which season is the warmest?
    What is the warmest season of the year?
    In which season is it warmest?
    = summer
    What is frozen water called?
    What do we call frozen water?
    What does water become when it freezes?
    = ice
    What do we call water that falls from clouds in drops?
    What is water falling from the clouds called?
    Which kind of weather falls as drops of water?
    = rain
    Where does the sun rise?
    In which direction does the sun rise?
    On which side does the sun come up?
    = in the east
    Where does the sun set?
    In which direction does the sun set?
    On which side does the sun go down?
    = in the west
    What do cows give us to drink?
    Which drink do we get from cows?
    What does a cow give us to drink?
    = milk
    What do hens lay?
    What does a hen lay?
    What do we get from hens?
    = eggs
    What do we get from sheep to make warm clothes?
    What does the coat of a sheep give us?
    What is shorn from a sheep?
    = wool
    What does a baker make?
    What do we buy from a baker?
    What does a baker bake every day?
    = bread
    Who looks after sick people in a hospital?
    Who helps you when you are ill?
    Whom do you see when you are sick?
    = a doctor
    What is bread made from?
    What is the main thing that bread is made of?
    Which powder is used to bake bread?
    = flour
    What is a person who writes books called?
    What do we call someone who writes books?
    Who writes books?
    = an author
    What is a place with many books to borrow called?
    Where can you borrow books?
    What do we call a place that lends books?
    = a library
    What do you use to tell the time?
    What shows us the time?
    What hangs on the wall and shows the time?
    = a clock
    What do you use to cut paper?
    Which tool cuts paper?
    Which tool has two blades and cuts paper?
    = scissors
    What is a very small house for a dog called?
    What do we call a little house for a dog?
    Where does a guard dog sleep outside?
    = a kennel
    Which metal is liquid at room temperature?
    What metal is liquid in a warm room?
    Name a metal that is liquid at room temperature.
    = mercury
    Which gas do people need to breathe?
    What gas in the air do we need to live?
    Which gas do we take in when we breathe?
    = oxygen
    What goes round the Earth every month?
    What goes around the Earth and shines at night?
    Which body in the sky circles the Earth?
    = the moon
    Which star is closest to the Earth?
    What is the nearest star to the Earth?
    Which star gives us light by day?
    = the sun
    What colour do you get from blue and yellow paint?
    What do blue and yellow paint make?
    Which colour do you get when you mix blue and yellow paint?
    = green
    What colour do you get from red and yellow paint?
    What do red and yellow paint make?
    Which colour do you get when you mix red and yellow paint?
    = orange
    What does a caterpillar turn into?
    What does a caterpillar become?
    What comes out when a caterpillar has grown up?
    = a butterfly
    Where do fish live?
    What do fish live in?
    Where do you find fish?
    = in water
    Who wrote Hamlet?
    Who is the author of Hamlet?
    Which writer wrote the play Hamlet?
    = William Shakespeare
    Which language is spoken in Brazil?
    What language do people speak in Brazil?
    What is the main language of Brazil?
    = Portuguese
    Which animal is known for its trunk?
    What animal has a trunk?
    Which large grey animal has a trunk?
    = the elephant
    Which bird cannot fly but swims well in cold seas?
    Which black and white bird lives in Antarctica?
    Name a bird of the far south that swims and cannot fly.
    = the penguin
""")

FACTS: tuple[Fact, ...] = (
    *_CAPITALS,
    *_OPPOSITES,
    *_COLOURS,
    *_LEGS,
    *_YOUNG,
    *_DAYS,
    *_MONTHS,
    *_SYMBOLS,
    *_SUMS,
    *_OTHERS,
)
