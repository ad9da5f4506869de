"""The world's words: kinds of values, and how a value of each kind is drawn.

Names of persons, places, ships, books and the like are made from syllables and lists in such numbers that most are
new. `is_held_out` keeps one name in eight for evaluation: a training passage never holds one, an evaluation passage
holds no other, so that no name there, and no pairing of a name with anything, was ever trained on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

HELD_OUT_ONE_IN = 8


@dataclass(frozen=True)
class Value:
    """What fills a slot.

    Args:
        text: as it stands in a sentence, and as the answer to a question.
        gender: "f" or "m" for persons, else "".
    """

    text: str
    gender: str = ""


def is_held_out(name: str) -> bool:
    """Whether a name is kept for evaluation."""
    return zlib.crc32(name.encode()) % HELD_OUT_ONE_IN == 0


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.replace("\n", " ").split(",") if phrase.strip())


FIRST_F = words("""Ann Mary Clara Ruth Ella Nora Ada Ivy Rose Lucy Emma Alice Edith Helen Agnes Flora Hazel Iris Jane
Kate Laura Mabel Nancy Olive Pearl Rita Sarah Susan Tessa Ursula Vera Wendy Zoe Marta Greta Anna Lena Mina Nina Sofia
Elsa Freya Ingrid Karin Lotte Petra Sigrid Thea Yara Amina Leila Noor Salma Zara Priya Anika Mei Yuki Hana Rosa Lucia
Elena Carmen Ines Paula Marina Bianca Chiara Giulia Odette Colette Elise Margot Simone Brigid Maeve Fiona Isla Morag
Bronwen Carys Gwen Megan Dilys Joan Judith Miriam Naomi Rachel Rebecca Esther Hannah Leah Martha Phoebe Sylvia Violet
Winifred Beatrice Cecily Dorothy Eleanor Frances Grace Harriet Imogen Josephine Katherine Lydia Matilda Nell Ottilie
Penelope Rosalind Stella Theodora Una Viola Abigail Amelia Charlotte Daisy Eliza Florence Georgia Jasmine Molly Poppy
Sophie Barbara Carol Diana Janet Linda Patricia Sandra Teresa Emily Julia Maria Eva Ida Olga Tanya Vanessa Elizabeth""")
FIRST_M = words("""Tom Jack Henry George Peter Paul Simon David Daniel Samuel Adam Noah Oscar Felix Hugo Leo Max Otto
Karl Hans Erik Lars Nils Olaf Sven Anton Boris Ivan Marek Pavel Milan Tomas Omar Karim Hassan Yusuf Tariq Ravi Arjun
Sanjay Ken Hiro Jun Wei Chen Carlos Diego Luis Mateo Pablo Rafael Marco Luca Paolo Enzo Pierre Jean Louis Marcel Henri
Sean Liam Conor Declan Ewan Hamish Angus Callum Owen Rhys Dylan Evan Gareth Aaron Abel Caleb Eli Isaac Jacob Joel
Jonas Joseph Micah Nathan Saul Albert Arthur Bernard Cecil Charles Clement Edgar Edmund Edward Ernest Francis Frank
Frederick Gilbert Harold Herbert Hubert Hugh James John Julian Lawrence Leonard Martin Maurice Miles Neville Oliver
Patrick Philip Ralph Reginald Richard Robert Roger Roland Rupert Stanley Stephen Theodore Thomas Victor Vincent Walter
Wilfred William Alan Brian Colin Derek Eric Gordon Graham Ian Keith Kevin Neil Nigel Ronald Trevor Ben Sam Will Dan
Joe Alfred Duncan""")
SURNAMES = words("""Smith Baker Cooper Carter Mason Turner Walker Wright Potter Fisher Hunter Miller Taylor Weaver
Fletcher Sawyer Thatcher Barker Chandler Archer Parker Porter Gardner Shepherd Marsh Hill Wood Brook Field Lane Stone
Rivers Woods Ford Bridges Banks Moor Heath Dale Glen Hart Fox Wolfe Swan Finch Crane Drake Martin Nightingale
Partridge Brown White Green Black Gray Young Long Short Strong Bell Cross Church Abbott Bishop King Knight Page Day
Winter Frost Snow Summers May Harrison Robinson Johnson Jackson Wilson Dawson Lawson Mills Evans Hughes Morgan Lloyd
Price Powell Rees Griffiths Campbell Fraser Grant Murray Ross Stewart Sinclair Kerr Boyd Byrne Doyle Kelly Murphy
Nolan Quinn Ryan Walsh Keller Vogel Brandt Lindner Schmidt Weber Larsen Nygaard Holm Berg Dahl Strand Novak Kovac
Horvat Petrov Sokolov Rossi Conti Moretti Costa Silva Lopez Torres Vega Reyes Moreau Dubois Laurent Fournier Okafor
Mensah Diallo Haddad Rahman Khan Patel Sharma Singh Tanaka Sato Mori Chen Lin Wong Ashworth Blackwood Hargreaves
Holloway Kingsley Langford Merrick Pemberton Radcliffe Stanton Thornton Underwood Wainwright Yardley Bennett Collins
Edwards Foster Hayes Jenkins Lambert""")

TITLES = frozenset(words("Mrs Miss Mr Dr Professor Captain Sister Father"))

_ONSETS = words(
    "b br c ch cl cr d dr f fl fr g gl gr h j k l m n p pr qu r s sh sk sl st str t th tr v w wh y z b d l m r s t"
)
_VOWELS = words("a e i o u a e i o ai ea ee oa ou a e o")
_CODAS = words("b ck d dd ft g ld ll lm lt m mp n nd ng nk nt p rd rk rl rm rn rt s sk ss st t th x r l n")
_SUR_ENDS = words("er ley ton well man son wick field ford by ham worth more ett ow is ard in en ell ing ock")
_TOWN_ENDS = words("""ton ford ham by wick stead mouth bridge field worth burgh dale haven combe minster thorpe well
den bury port gate cliff ley ridge holm""")
_LAND_ENDS = words("land ia ania mark or ova ar esia and ora")
_TOWN_STARTS = words("""Ash Beck Black Brad Brook Clay Cold Crow Dun East Elm Fair Fen Glen Green Hart Hawk Hazel High
King Lang Lin Lock Mar Mill Moor New North Oak Old Raven Red Rock Salt Sand Shel South Stan Stone Swan Thorn Wal Wel
West Whit Win Wolf Wood Bar Cal Dor Ever Far Gal Hol Kel Lam Mel Nor Or Pen Quar Ros Sel Tam Ul Ver Wex Yar""")
TOWN_FIRST = words("Upper Lower Great Little New Old Saint Port Market North South East West")


def syllable(rng: Random) -> str:
    return rng.choice(_ONSETS) + rng.choice(_VOWELS) + (rng.choice(_CODAS) if rng.random() < 0.55 else "")


def coined(rng: Random, ends: tuple[str, ...] = ("",)) -> str:
    """A word that no list holds, such as "brandock"."""
    return "".join(syllable(rng) for _ in range(rng.choice((1, 1, 1, 2)))) + rng.choice(ends)


def surname(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(SURNAMES)
    if kind < 0.5:
        return rng.choice(_TOWN_STARTS) + rng.choice(_TOWN_ENDS)
    return coined(rng, _SUR_ENDS).capitalize()


def person(rng: Random) -> Value:
    gender = rng.choice("fm")
    name = surname(rng)
    if rng.random() < 0.08:
        if rng.random() < 0.5:
            gender, title = rng.choice((("f", "Mrs"), ("f", "Miss"), ("m", "Mr")))
        else:
            title = rng.choice(("Dr", "Professor", "Captain", "Sister" if gender == "f" else "Father"))
        return Value(f"{title} {name}", gender)
    if rng.random() < 0.12:
        ends = ("a", "ia", "ie", "ette", "ine") if gender == "f" else ("o", "us", "an", "ric", "")
        first = coined(rng, ends).capitalize()
    else:
        first = rng.choice(FIRST_F if gender == "f" else FIRST_M)
    return Value(f"{first} {name}", gender)


def place_word(rng: Random, ends: tuple[str, ...] = _TOWN_ENDS) -> str:
    if rng.random() < 0.45:
        return rng.choice(_TOWN_STARTS) + rng.choice(ends)
    return coined(rng, ends).capitalize()


def town(rng: Random) -> Value:
    name = place_word(rng)
    return Value(f"{rng.choice(TOWN_FIRST)} {name}" if rng.random() < 0.1 else name)


def named(*patterns: str) -> Callable[[Random], Value]:
    """Names after a pattern: `{p}` is a place word, `{s}` a surname, `{c}` a coined word, `{t}` a title word."""

    def draw(rng: Random) -> Value:
        pattern = rng.choice(patterns)
        return Value(
            pattern.format(
                p=place_word(rng),
                s=surname(rng),
                s2=surname(rng),
                c=coined(rng, _LAND_ENDS).capitalize(),
                o=coined(rng).capitalize(),
                t=rng.choice(_TITLE_ADJECTIVES),
                n=rng.choice(_TITLE_NOUNS),
                n2=rng.choice(_TITLE_NOUNS),
            )
        )

    return draw


_TITLE_ADJECTIVES = words("""Quiet Golden Silver Distant Hidden Broken Empty Winter Summer Northern Southern Crooked
Burning Frozen Gentle Grey White Red Blue Green Black Bright Lonely Merry Wandering Secret Last First Second Old Lost
Restless Silent Narrow Painted Sleeping Salt Iron Copper Glass Paper Wooden Ancient Endless Faithful Proud Swift
Brave""")
_TITLE_NOUNS = words("""Orchard Harbour Lantern River Mountain Garden Heron Falcon Gull Swallow Star Moon Tide Anchor
Bell Bridge Candle Castle Clock Crown Door Drum Feather Field Fire Forest Fountain Gate House Island Key Ladder Lake
Letter Mill Mirror Morning Night Ocean Path Promise Queen Road Rose Sailor Sea Shadow Song Storm Stranger Tower
Traveller Valley Voyage Window Wind Wolf Year Dream Daughter Brother Horizon Spirit Dolphin Otter Fox Sparrow Thistle
Willow Oak Pearl Compass""")

TRADES = phrases("""baker, butcher, carpenter, blacksmith, tailor, weaver, potter, miller, cooper, mason, glazier,
plumber, painter, doctor, nurse, midwife, dentist, chemist, teacher, lawyer, judge, clerk, librarian, printer,
bookbinder, journalist, editor, poet, novelist, actor, singer, dancer, violinist, pianist, organist, sculptor,
photographer, architect, engineer, surveyor, mechanic, electrician, driver, pilot, sailor, fisherman, captain,
lighthouse keeper, harbour master, postman, porter, guard, soldier, policeman, firefighter, gardener, farmer,
shepherd, beekeeper, forester, hunter, vet, groom, saddler, shoemaker, hatter, jeweller, watchmaker, clockmaker,
goldsmith, locksmith, toolmaker, brewer, winemaker, cook, waiter, innkeeper, grocer, florist, barber, banker,
accountant, merchant, bookseller, tanner, thatcher, roofer, bricklayer, stonecutter, miner, glassblower, ropemaker,
sailmaker, shipwright, boatbuilder, dyer, baker's apprentice, piano tuner, music teacher, schoolteacher, geologist,
botanist, astronomer, historian, chemist's assistant, translator, interpreter, tax collector, ferryman, toymaker,
basket maker, candle maker, cheesemaker, chimney sweep, tour guide, bus driver, train driver, cabinetmaker,
upholsterer, seamstress, dressmaker, milliner, cartographer, biologist, physicist""")
ANIMALS = phrases("""goat, sheep, cow, horse, donkey, mule, pig, dog, cat, rabbit, hen, duck, goose, turkey, pigeon,
parrot, canary, owl, falcon, eagle, raven, swan, heron, fox, wolf, bear, deer, hare, hedgehog, badger, otter, beaver,
squirrel, mouse, rat, bat, mole, frog, toad, lizard, snake, tortoise, turtle, seal, whale, dolphin, salmon, trout,
pike, eel, crab, lobster, bee, pony, lamb, calf, bull, ox, camel, monkey, puppy, kitten, sheepdog, greyhound, terrier,
spaniel, magpie""")
PETS = words("""Biscuit Pepper Ginger Shadow Patch Rusty Buttons Clover Daisy Smoky Bramble Nutmeg Toffee Pickle
Domino Misty Rex Bruno Sooty Snowy Bella Coco Luna Rocky Max Buster Dusty Hazel Jasper Juniper Mittens Nugget Oscar
Pebble Poppy Rolo Scout Sunny Tigger Whiskers Ziggy Barney Bandit Captain Duke Fern Felix Goldie Honey Jet Lucky
Marble Ollie Pippin Tilly Waffles""")
THINGS = phrases("""kettle, lantern, clock, mirror, chair, table, chest, box, basket, bowl, cup, jug, plate, spoon,
ladle, lamp, candlestick, vase, pot, pan, bell, ring, necklace, brooch, bracelet, watch, compass, telescope, map,
globe, diary, letter, notebook, painting, portrait, statue, carving, doll, puppet, kite, drum, whistle, flute, fiddle,
trunk, suitcase, umbrella, walking stick, bicycle, cart, wagon, sledge, boat, canoe, oar, anchor, net, fishing rod,
saddle, bridle, blanket, quilt, carpet, curtain, pillow, purse, wallet, coin, medal, key, padlock, chain, rope,
ladder, wheelbarrow, bucket, barrel, stove, desk, bookcase, bench, cradle, rocking chair, music box, snuff box,
inkwell, pen, stamp, photograph, camera, radio, sewing machine, typewriter, spinning wheel, chessboard, violin,
teapot, sugar bowl, bread knife, barometer, thermometer, magnifying glass""")
TOOLS = phrases("""hammer, chisel, saw, plane, file, drill, axe, hatchet, spade, shovel, fork, rake, hoe, scythe,
sickle, trowel, pickaxe, crowbar, wrench, screwdriver, pliers, anvil, bellows, needle, awl, shears, pruning knife,
paintbrush, roller, ladle, rolling pin, sieve, whisk, grindstone, mallet, spirit level, tape measure, loom, potter's
wheel, tongs""")
GARMENTS = phrases("""scarf, coat, cloak, jacket, waistcoat, shirt, blouse, dress, skirt, apron, hat, cap, bonnet,
shawl, jumper, cardigan, belt, tie, bow tie, raincoat, gown, uniform, nightgown, robe, sash, veil, straw hat, woollen
hat, wedding dress""")
MATERIALS = phrases("""oak, pine, ash, elm, beech, walnut, cherry wood, mahogany, birch, bamboo, copper, brass,
bronze, iron, steel, tin, silver, gold, pewter, glass, clay, porcelain, marble, granite, limestone, sandstone, slate,
brick, flint, leather, wool, linen, cotton, silk, velvet, canvas, felt, paper, straw, wicker, ivory, horn, bone,
amber, ebony, concrete, timber""")
COLOURS = phrases("""red, blue, green, yellow, white, black, brown, grey, orange, purple, pink, violet, crimson,
scarlet, navy blue, dark green, pale blue, light brown, silver, golden, cream, turquoise, bright red, dark blue, pale
yellow, maroon, olive green""")
FOODS = phrases("""barley soup, onion soup, apple pie, cherry pie, plum cake, honey cake, ginger biscuits, rye bread,
oat bread, fresh bread, goat's cheese, smoked fish, fried trout, roast lamb, roast chicken, beef stew, mutton stew,
lentil stew, fish stew, pancakes, dumplings, noodles, porridge, rice pudding, plum jam, strawberry jam, baked
potatoes, potato salad, mushroom pie, cabbage rolls, pickled herring, pea soup, tomato soup, carrot cake, almond cake,
cheese tart, sausages, omelettes, roast duck, leek pie, grilled salmon, bean soup, chestnut cake, walnut bread, poppy
seed cake, stuffed peppers, lemon tart""")
DRINKS = phrases("""mint tea, black tea, green tea, coffee, cocoa, hot chocolate, milk, cider, beer, red wine, white
wine, apple juice, pear juice, lemonade, ginger beer, elderflower syrup, mead, plum brandy, buttermilk, cold water,
camomile tea""")
CROPS = phrases("""barley, wheat, rye, oats, maize, hops, flax, potatoes, turnips, carrots, cabbages, onions, leeks,
beans, peas, lentils, pumpkins, apples, pears, plums, cherries, grapes, strawberries, walnuts, olives, lavender,
tobacco, sugar beet, hay, mustard, sunflowers, hemp, tomatoes, garlic, apricots, figs, chestnuts, cucumbers""")
FLOWERS = phrases("""rose, tulip, foxglove, lily, daffodil, snowdrop, crocus, bluebell, poppy, daisy, marigold,
sunflower, iris, peony, primrose, violet, buttercup, orchid, carnation, dahlia, hyacinth, honeysuckle, geranium,
lupin, cornflower""")
INSTRUMENTS = phrases("""cello, violin, viola, piano, harp, flute, oboe, clarinet, bassoon, trumpet, horn, trombone,
tuba, guitar, lute, mandolin, banjo, accordion, organ, drum, harmonica, recorder, fiddle, double bass, zither,
saxophone, concertina""")
GAMES = phrases("""chess, draughts, backgammon, dominoes, cards, darts, tennis, cricket, football, hockey, billiards,
bowls, golf, croquet, badminton, table tennis, rugby, polo, skittles, marbles, bridge, whist, handball, volleyball""")
SUBJECTS = phrases("""botany, history, law, medicine, chemistry, physics, geology, astronomy, music, painting,
philosophy, mathematics, geography, engineering, architecture, theology, economics, literature, biology, zoology,
drawing, navigation, archaeology, Latin, Greek, grammar, statistics, farming, anatomy, poetry, bookkeeping""")
ILLNESSES = phrases("""measles, a fever, pneumonia, influenza, scarlet fever, a broken leg, a broken arm, mumps,
bronchitis, malaria, a bad cough, a sprained ankle, chickenpox, typhoid, whooping cough, tonsillitis, asthma,
jaundice, a weak heart""")
WEATHERS = phrases("""heavy snow, thick fog, strong wind, heavy rain, a hailstorm, a thunderstorm, bright sunshine, a
hard frost, a drought, freezing rain, a warm breeze, drizzle, a gale, mild weather, a heatwave, light snow, dense
mist, clear skies""")
MONTHS = words("January February March April May June July August September October November December")
WEEKDAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
SEASONS = phrases("spring, summer, autumn, winter, late summer, early spring, midsummer, late autumn")
_TENS = words("twenty thirty forty fifty sixty seventy eighty ninety")
NUMBERS = (
    words("""two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen""")
    + _TENS
)
ORDINALS = words("""first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth""")
MEANS = phrases("""by ferry, by train, by boat, by bus, by bicycle, on foot, on horseback, by car, by cart, by canoe,
by sledge, by plane, by coach, by motorcycle, by taxi, by river barge, by tram, by balloon, by mule, on skis, by
steamer, by lorry""")
RELATIVES = phrases("""sister, brother, mother, father, aunt, uncle, grandmother, grandfather, cousin, nephew, niece,
daughter, son, wife, husband, twin brother, younger sister, elder brother, godmother, stepfather, mother-in-law,
granddaughter, great-aunt""")
ROOMS = phrases("""kitchen, cellar, attic, bedroom, parlour, hall, study, library, pantry, nursery, dining room,
workshop, bathroom, living room, guest room, storeroom, laundry, conservatory, drawing room, music room, scullery,
porch""")
FEELINGS = phrases("""proud, happy, sad, angry, tired, nervous, afraid, lonely, cheerful, calm, surprised, jealous,
hopeful, bored, grateful, ashamed, relieved, worried, excited, disappointed, homesick, confused, delighted, restless,
content""")
BUILDINGS = phrases("""chapel, church, water mill, windmill, town hall, school, library, museum, theatre, inn, tavern,
lighthouse, bakery, brewery, railway station, post office, hospital, market hall, castle, tower, bridge, barn, stable,
warehouse, factory, forge, bathhouse, courthouse, prison, monastery, cathedral, hotel, cinema, boathouse, observatory,
greenhouse, schoolhouse, cottage, farmhouse, manor house, concert hall, bank, pharmacy, bookshop, tannery, granary,
sawmill, shipyard""")
BUILDING_ADJECTIVES = words(
    "old new small large stone wooden abandoned brick northern southern village royal former tall"
)
THING_ADJECTIVES = words("""old new small large broken painted carved heavy tiny round square plain fine rusty
polished antique wooden copper brass silver iron glass clay leather golden green blue red white black""")
REASONS_SUBJECT = phrases("""the bridge, the road, the roof, the boiler, the ferry, the engine, the well, the harbour,
the railway line, the main hall, the stove, the dam, the chimney, the heating, the pump, the cellar, the organ, the
gate, the mill wheel, the old wall""")
REASONS_PREDICATE = phrases("""had been washed away, had broken down, was being repaired, was flooded, had caught
fire, was blocked by snow, had frozen, was too dangerous, had fallen in, was closed for the winter, had not been paid
for, was too small, leaked badly, had been damaged in a storm, had run dry, was covered in ice, had been stolen""")
REASONS_WHOLE = phrases("""nobody had bought tickets, the money had run out, the captain was ill, too few people came,
the river was too high, the snow was too deep, the teacher had a cold, the winter was too long, it rained all day, the
horses were tired, nobody could find the key, the harvest had failed, the council had said no, the train was two hours
late, the price was too high, the children were afraid of the dark, a tree had fallen across the road, the owner had
moved abroad, there was a strike, the judges could not agree, the guests had already left, the musicians were late,
the doctor advised it, the wind was too strong, the baby would not sleep, the letter came too late, the mayor had
resigned, the water was not clean""")


_MONEY = ("crowns", "pounds", "shillings", "dollars", "gold coins", "marks", "guineas", "pence", "francs")


def one_of(values: tuple[str, ...], coin: float = 0.0) -> Callable[[Random], Value]:
    """A word of a list or, with the probability `coin`, one that no list holds."""

    def draw(rng: Random) -> Value:
        return Value(coined(rng) if rng.random() < coin else rng.choice(values))

    return draw


_PLURALS = phrases("""spoons, knives, boots, gloves, candles, books, plates, glasses, keys, stamps, coins, letters,
nails, ribbons, buttons, shells, skates, slippers, pencils, brushes, playing cards, photographs, cushions, bells,
postcards, earrings""")
_CONTENTS = phrases("""apples, pears, eggs, flour, sugar, coal, grain, wool, honey, tea, coffee, nails, seeds,
walnuts, old letters, jam, salt, olive oil, tools, toys, firewood, feathers, sand, plums, onions, cherries, buttons,
milk, soap, candles""")
_CONTAINERS = words("basket box bag sack jar crate bottle barrel bucket tin chest bowl")
_MADE_FOR = words("""sewing fishing bread garden kitchen tool reading travelling money letter shopping hunting cooking
riding walking picnic pocket church school bird butter coffee fruit flower night summer winter""")
_NOUNS = words("""basket box bag knife lamp table chair book case chest stick stool tin cart coat mirror cabinet glass
cup bench bell clock pot rug ladder net tray desk screen drum kit""")


def thing(rng: Random) -> Value:
    kind = rng.random()
    if kind < 0.07:
        return Value(f"{rng.choice(('set', 'pair', 'box', 'bag', 'pair'))} of {rng.choice(_PLURALS)}")
    if kind < 0.14:
        return Value(f"{rng.choice(_CONTAINERS)} of {rng.choice(_CONTENTS)}")
    if kind < 0.26:
        return Value(f"{rng.choice(_MADE_FOR)} {rng.choice(_NOUNS)}")
    return described(THING_ADJECTIVES, THINGS, 0.55)(rng)


def described(adjectives: tuple[str, ...], nouns: tuple[str, ...], often: float) -> Callable[[Random], Value]:
    def draw(rng: Random) -> Value:
        noun = coined(rng) if rng.random() < 0.06 else rng.choice(nouns)
        return Value(f"{rng.choice(adjectives)} {noun}" if rng.random() < often else noun)

    return draw


def counted(*units: str, most: int = 90) -> Callable[[Random], Value]:
    def draw(rng: Random) -> Value:
        return Value(f"{small_number(rng, most)} {rng.choice(units)}")

    return draw


def small_number(rng: Random, most: int = 900) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(NUMBERS)
    if kind < 0.55:
        return f"{rng.choice(_TENS)}-{rng.choice(('one', *NUMBERS[:8]))}"
    if kind < 0.6:
        return f"{rng.choice(NUMBERS[:8])} {rng.choice(('hundred', 'thousand', 'dozen'))}"
    return str(rng.randrange(2, 60) if rng.random() < 0.7 else rng.randrange(2, most))


def year(rng: Random) -> Value:
    return Value(str(rng.randrange(1650, 2030)))


def date(rng: Random) -> Value:
    day, month = rng.randrange(1, 29), rng.choice(MONTHS)
    ordinal = f"{day}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10 if day // 10 != 1 else 0, 'th') }"
    word = rng.choice(ORDINALS)
    forms = (f"{day} {month}",) * 3 + (f"{month} {day}",) * 2
    forms += (f"the {ordinal} of {month}", f"the {word} of {month}", f"{month} the {word}", f"{ordinal} {month}")
    return Value(rng.choice(forms))


def clock(rng: Random) -> Value:
    hour = rng.choice(NUMBERS[:11])
    return Value(
        rng.choice(
            (
                f"half past {hour}",
                f"{hour} o'clock",
                hour,
                f"{hour} in the {rng.choice(('morning', 'evening', 'afternoon'))}",
                f"{rng.choice(('ten', 'twenty', 'five'))} {rng.choice(('to', 'past'))} {hour}",
                f"{rng.randrange(2, 13)} o'clock",
                f"a quarter to {hour}",
                f"a quarter past {hour}",
                f"{rng.randrange(6, 23)}:{rng.choice(('00', '15', '30', '45', '10', '20', '40', '50'))}",
                "noon",
                "midnight",
            )
        )
    )


def reason(rng: Random) -> Value:
    if rng.random() < 0.5:
        return Value(rng.choice(REASONS_WHOLE))
    return Value(f"{rng.choice(REASONS_SUBJECT)} {rng.choice(REASONS_PREDICATE)}")


NAMES: dict[str, Callable[[Random], Value]] = {
    "person": person,
    "town": town,
    "country": lambda rng: Value(coined(rng, _LAND_ENDS).capitalize()),
    "region": named("{c}", "the {p} Valley", "{p}shire", "{c} Coast", "the {p} Hills", "Westmark of {c}"),
    "river": lambda rng: Value(coined(rng, ("", "e", "er", "a", "en")).capitalize()),
    "mountain": named("Mount {p}", "{o} Peak", "Mount {o}", "{p} Hill", "the {o} Horn"),
    "lake": named("Lake {p}", "Lake {o}", "{p} Water", "{o} Lake"),
    "island": named("{o}", "{p} Island", "{c}", "the Isle of {o}"),
    "road": named("{p} Road", "{s} Street", "{n} Lane", "{p} Lane", "{t} {n} Street", "{s} Avenue", "{n} Street"),
    "school": named("{p} College", "{p} School", "the University of {p}", "{s} Academy", "{o} College"),
    "company": named("{s} & Sons", "{s} and {s2}", "{p} Mills", "{s} Brothers", "{o} Works", "the {p} Company"),
    "ship": named("{t} {n}", "{n} of {p}", "{n}", "{t} {n}", "{o}"),
    "book": named("The {t} {n}", "A {t} {n}", "The {n} of {p}", "The {n} and the {n2}", "{t} {n}s", "{n} at {p}"),
    "song": named("{t} {n}", "The {n} of {p}", "My {t} {n}", "{p} Morning", "The {t} {n}", "{n} and {n2}"),
    "festival": named("{n} Fair", "{p} Fair", "{n} Festival", "{t} {n} Festival", "{p} Games"),
    "prize": named("{t} {n}", "{s} Prize", "{p} Cup", "{t} {n} Award", "{o} Medal"),
    "team": named("{p} Rovers", "{p} United", "{p} Wanderers", "{p} {n}s", "{p} Town", "the {t} {n}s"),
    "language": lambda rng: Value(coined(rng, ("ish", "ese", "ian", "ic")).capitalize()),
    "family": lambda rng: Value(surname(rng)),
}
"""Proper names, of which some are held out."""

KINDS: dict[str, Callable[[Random], Value]] = {
    **NAMES,
    "building": described(BUILDING_ADJECTIVES, BUILDINGS, 0.5),
    "trade": one_of(TRADES, 0.05),
    "animal": one_of(ANIMALS, 0.05),
    "pet": lambda rng: Value(coined(rng, ("", "y", "o")).capitalize() if rng.random() < 0.25 else rng.choice(PETS)),
    "thing": thing,
    "tool": one_of(TOOLS, 0.05),
    "garment": described((*THING_ADJECTIVES[:2], *COLOURS[:12], "woollen", "linen", "silk"), GARMENTS, 0.5),
    "material": one_of(MATERIALS, 0.03),
    "colour": one_of(COLOURS),
    "food": one_of(FOODS, 0.03),
    "drink": one_of(DRINKS),
    "crop": one_of(CROPS, 0.04),
    "flower": one_of(FLOWERS, 0.05),
    "instrument": one_of(INSTRUMENTS, 0.03),
    "game": one_of(GAMES, 0.03),
    "subject": one_of(SUBJECTS, 0.03),
    "illness": one_of(ILLNESSES),
    "weather": one_of(WEATHERS),
    "year": year,
    "date": date,
    "month": one_of(MONTHS),
    "weekday": one_of(WEEKDAYS),
    "clock": clock,
    "season": one_of(SEASONS),
    "number": lambda rng: Value(small_number(rng)),
    "price": counted(*_MONEY, most=9000),
    "distance": counted("miles", "kilometres", "leagues", most=400),
    "length": counted("feet", "metres", "yards", most=4000),
    "weight": counted("pounds", "kilograms", "tons", "ounces", most=300),
    "duration": counted("days", "weeks", "months", "years", "hours", "minutes", most=60),
    "age": lambda rng: Value(str(rng.randrange(5, 99))),
    "means": one_of(MEANS),
    "reason": reason,
    "relative": one_of(RELATIVES),
    "room": one_of(ROOMS),
    "feeling": one_of(FEELINGS),
}


def draw(kind: str, rng: Random, *, held_out: bool) -> Value:
    """A value of a kind; a proper name is on the side of the split that `held_out` says.

    A person's name is held out as a whole; so is every other proper name.
    """
    while True:
        value = KINDS[kind](rng)
        if kind not in NAMES or is_held_out(value.text) == held_out:
            return value
