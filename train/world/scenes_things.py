"""Frames about scenes of places, things and amounts: several values of a kind, each in its own role."""

from __future__ import annotations

from train.world.frame import Frame

FRAMES = (
    Frame(
        "item_towns_compared",
        {
            "one": "town",
            "two": "town",
            "mills": "number",
            "inns": "number",
            "building": "building",
            "other": "building",
        },
        (
            "{one} counts {mills} mills along its stream, but {two}, on the far side of the hill, has only {inns} to "
            "show. "
            "The visitor who wants to see {building:a} must go to {one}; in {two} there is {other:a} instead.",
            "The two neighbours have never liked each other. {two} looks down on {one} because it can boast "
            "{other:a}, and "
            "{one} answers by pointing to its {building}. As for mills, {two} has {inns} and {one} {mills}.",
            "Although both places live from flour, there are {mills} mills in {one} and {inns} in {two}. What the "
            "children of {two} envy is not the mills but the {building} of {one}; their own town has just {other:a}.",
        ),
        {
            "mills": (
                "How many mills are there in {one}?",
                "How many mills does {one} have?",
                "What is the number of mills at {one}?",
            ),
            "inns": (
                "How many mills are there in {two}?",
                "How many mills can be found in {two}?",
                "{two} has how many mills?",
            ),
            "building": (
                "What building does {one} have that {two} lacks?",
                "What is the building that stands in {one}?",
                "Which building can be seen in {one}?",
            ),
            "other": (
                "Which building can be seen in {two}?",
                "What sort of building stands in {two}?",
                "What building does {two} have that {one} has not?",
            ),
            "one": (
                "Which town has {mills} mills?",
                "Which of the towns has the {building}?",
                "Where would you go to see the {building}?",
            ),
            "two": (
                "Which town has {inns} mills?",
                "In which of the towns does the {other} stand?",
                "Where would you go to see the {other}?",
            ),
        },
    ),
    Frame(
        "item_house_uses",
        {"road": "road", "first": "trade", "second": "trade", "third": "trade", "year": "year", "who": "person"},
        (
            "The narrow house at the corner of {road} was built for {first:a}, whose sign still hangs over the door. "
            "Later "
            "it passed to {second:a}, and since {year} it has belonged to {who}, {third:a} with three small children.",
            "Today {who}, {third:a}, lives and works in the narrow house in {road}. Before {year}, when {who} bought "
            "it, "
            "{second:a} had the shop, and the very first owner, so the old people say, was {first:a}.",
            "In {year} {who} bought the narrow house in {road} from {second:a} who wanted to move to the coast. It "
            "had been "
            "put up long ago for {first:a}, but the workshop at the back now serves {who}, who is {third:a}.",
            "Nobody in {road} remembers the {first} for whom the narrow house was built, only the {second} who came "
            "after. "
            "Now the sign at the door tells of {third:a}: {who}, the owner since {year}.",
        ),
        {
            "first": (
                "For what kind of tradesman was the narrow house in {road} built?",
                "What was the trade of the first owner of the narrow house in {road}?",
                "What did the earliest owner of the narrow house in {road} do for a living?",
            ),
            "second": (
                "What was the trade of the person who had the house in {road} just before {who}?",
                "What did the owner of the house in {road} before {who} do?",
                "{who} followed a person of which trade in the house in {road}?",
            ),
            "third": (
                "What is {who:s} trade?",
                "What does {who} do for a living?",
                "What is the trade of today's owner of the narrow house in {road}?",
            ),
            "year": (
                "Since when has {who} owned the house in {road}?",
                "In what year did the narrow house in {road} become the property of {who}?",
                "When did {who} become the owner of the narrow house?",
            ),
            "who": (
                "Who owns the narrow house in {road} now?",
                "To whom does the narrow house in {road} belong?",
                "Who became the owner of a house in {road} in {year}?",
            ),
        },
    ),
    Frame(
        "item_house_parts",
        {
            "who": "person",
            "walls": "material",
            "roof": "material",
            "floor": "material",
            "door": "colour",
            "shutters": "colour",
        },
        (
            "{who} built the walls of the summer house of {walls} and laid the roof with {roof}; for the floor "
            "{who:they} chose {floor}. The door was painted {door}, the shutters {shutters}.",
            "Guests know {who:s} summer house by its {door} door, which does not go at all with the {shutters} "
            "shutters. "
            "The roof is of {roof}, the walls are of {walls}, and the floor inside is of {floor}.",
            "For the summer house of {who} two carts of {walls} were brought for the walls, and one of {floor} for "
            "the floor. "
            "The roof was made of {roof}. A cousin painted the shutters {shutters}, but the door, at {who:s} wish, "
            "{door}.",
            "{who} wanted a roof of {roof} on the summer house, not one of {walls}, for of that {who:they} had "
            "already made "
            "the walls. Last of all came the floor, which is of {floor}, and two pots of paint: "
            "{shutters} for the shutters and {door} for the door.",
        ),
        {
            "walls": (
                "What are the walls of {who:s} summer house made of?",
                "Of what material are the walls of the summer house of {who}?",
                "Which material was used for {who:s} walls?",
            ),
            "roof": (
                "What is the roof of {who:s} summer house made of?",
                "Which material covers the summer house of {who}?",
                "What did {who} use for the roof?",
            ),
            "floor": (
                "What is the floor of {who:s} summer house made of?",
                "Which material was used for the floor of {who:s} summer house?",
                "On what material do people walk inside the summer house of {who}?",
            ),
            "door": (
                "What colour is the door of {who:s} summer house?",
                "Which colour was the door painted at {who:s} summer house?",
                "In what colour is the entrance of {who:s} summer house painted?",
            ),
            "shutters": (
                "What colour are the shutters of {who:s} summer house?",
                "In which colour were {who:s} shutters painted?",
                "What is the colour of the shutters at the summer house of {who}?",
            ),
        },
    ),
    Frame(
        "item_rooms",
        {"who": "person", "one": "room", "two": "room", "three": "room", "a": "thing", "b": "thing", "c": "thing"},
        (
            "When {who} moved, the {a} went into the {one} and the {b} into the {two}. The {c} was too good for "
            "either, "
            "so it found its place in the {three}, where the light is best.",
            "In the {one} of {who:s} house stands {a:a}; in the {two}, next to a row of empty bottles, {b:a}. "
            "Whoever opens the door to the {three} sees nothing at first but {c:a}.",
            "{who} keeps the {b} in the {two}, where nobody goes, and the {c} in the {three}. Visitors "
            "are shown only the {one}, so that they can admire the {a} there.",
            "The list that {who} made for the insurance is short: {c:a} in the {three}, {a:a} in the {one}, "
            "and in the {two}, behind the old coats, {b:a}.",
        ),
        {
            "one": (
                "In which room of {who:s} house is the {a}?",
                "Where does {who} keep the {a}?",
                "What room of {who:s} house would you enter to find the {a}?",
            ),
            "two": (
                "In which room does {who} have the {b}?",
                "Where in {who:s} house is the {b}?",
                "Which room of {who:s} holds the {b}?",
            ),
            "three": (
                "In what room has {who} put the {c}?",
                "Where is {who:s} {c}?",
                "Which room of {who:s} house contains the {c}?",
            ),
            "a": (
                "What is in {who:s} {one}?",
                "What does {who} have in the {one}?",
                "Which thing stands in the {one} of {who:s} house?",
            ),
            "b": (
                "What is kept in {who:s} {two}?",
                "What can be found in the {two} of {who:s} house?",
                "Which thing has {who} put into the {two}?",
            ),
            "c": (
                "What is to be seen in {who:s} {three}?",
                "What does {who} keep in the {three}?",
                "Which of {who:s} things is in the {three}?",
            ),
        },
    ),
    Frame(
        "item_farm",
        {"who": "person", "sheep": "number", "hens": "number", "upper": "crop", "lower": "crop", "guard": "animal"},
        (
            "On {who:s} farm there are {sheep} sheep and {hens} hens, all watched by {guard:a} that bites strangers. "
            "The upper "
            "field is given to {upper}, the lower one to {lower}.",
            "{who} grows {lower} on the lower field, where the ground is wet, and {upper} on the upper one. Besides "
            "{hens} hens {who:they} keeps {sheep} sheep, and {guard:a} guards the yard at night.",
            "This spring the upper field of {who} was sown with {upper} instead of {lower}, which now stands on the "
            "lower field. "
            "The flock has grown to {sheep} sheep; of the hens, after the fox had called, {hens} are left.",
            "A stranger who walks past {who:s} hen house with its {hens} birds had better look out for the {guard} "
            "that guards "
            "the yard. Beyond it lie the lower field, green with {lower}, and the meadow of the {sheep} sheep.",
        ),
        {
            "sheep": (
                "How many sheep does {who} have?",
                "How many sheep are there on {who:s} farm?",
                "What is the size of {who:s} flock of sheep?",
            ),
            "hens": (
                "How many hens does {who} have?",
                "How many hens live on the farm of {who}?",
                "What number of hens does {who} own?",
            ),
            "upper": (
                "What grows on {who:s} upper field?",
                "What crop does {who} have on the upper field?",
                "Which crop was planted on the upper of {who:s} two fields?",
            ),
            "lower": (
                "What grows on {who:s} lower field?",
                "Which crop stands on the lower field of {who}?",
                "What does {who} grow on the lower field?",
            ),
            "guard": (
                "What animal guards {who:s} farm?",
                "Which animal keeps strangers away from {who:s} yard?",
                "What kind of animal watches over {who:s} yard?",
            ),
        },
    ),
    Frame(
        "item_menu",
        {
            "who": "person",
            "town": "town",
            "first": "food",
            "main": "food",
            "sweet": "food",
            "drink": "drink",
            "price": "price",
        },
        (
            "At the supper in {town} {who} served {first} to begin with, then {main}, and at the end {sweet}. With "
            "the meal "
            "went {drink}, and each guest paid {price}.",
            "{price} bought a full supper at {who:s} table in {town}: {main} as the main dish, {first} before it, and "
            "{sweet} to finish. Nobody went thirsty, for there was plenty of {drink}.",
            "The guests in {town} would have been content with the {first} that opened the supper, but {who} followed "
            "it with "
            "{main} as the main dish. When the jugs of {drink} were empty and all had paid their {price}, "
            "{sweet} ended the evening.",
            "For the supper in {town} {who} had planned to finish with {first}; instead {who:they} began with that. "
            "The meal "
            "ended with {sweet}, the main dish was {main}, and {drink} stood on every table.",
        ),
        {
            "first": (
                "What was served first at the supper in {town}?",
                "With what dish did {who:s} supper begin?",
                "What did {who} serve before the {main}?",
            ),
            "main": (
                "What was the main dish at {who:s} supper?",
                "Which main dish did the guests in {town} eat?",
                "What came between the {first} and the {sweet}?",
            ),
            "sweet": (
                "What was served last at the supper in {town}?",
                "With what dish did {who:s} supper end?",
                "What did the guests in {town} eat after the {main}?",
            ),
            "drink": (
                "What was there to drink at {who:s} supper?",
                "What did the guests at the supper in {town} drink?",
                "Which drink went with {who:s} supper?",
            ),
            "price": (
                "What did the supper in {town} cost?",
                "How much did each guest of {who} pay?",
                "What was the price of {who:s} supper?",
            ),
            "who": (
                "Who gave the supper in {town}?",
                "Who served the guests in {town}?",
                "Whose supper in {town} ended with {sweet}?",
            ),
        },
    ),
    Frame(
        "item_market_prices",
        {"who": "person", "seller": "person", "a": "thing", "b": "thing", "pa": "price", "pb": "price", "town": "town"},
        (
            "On the market in {town} {seller} wanted {pa} for the {a} and {pb} for the {b}. After counting the coins "
            "in the "
            "purse, {who} took the {a} and left the {b} where it was.",
            "{who} came home from {town} with {a:a}, bought from {seller} for {pa}. The {b}, at {pb}, had been too "
            "dear, "
            "although it lay on the same table.",
            "Two things on the table of {seller}, at the market of {town}, pleased {who}: {b:a} for {pb} and {a:a} "
            "for {pa}. It was not the first but the second that went home in the basket.",
            "What {who} had wished for was the {b} in {seller:s} window in {town}, but with {pb} on its label it "
            "stayed there. "
            "For {pa} {seller} sold {who:them} the {a} instead.",
        ),
        {
            "pa": (
                "What did the {a} cost?",
                "How much did {who} pay {seller} for the {a}?",
                "What was the price of the {a} that {seller} sold?",
            ),
            "pb": (
                "What did {seller} ask for the {b}?",
                "What would {who} have had to pay for the {b}?",
                "What was the price of the {b}?",
            ),
            "a": (
                "What did {who} buy in {town}?",
                "What did {seller} sell to {who}?",
                "Which thing did {who} take home from {town}?",
            ),
            "b": (
                "What did {who} see in {town} but not buy?",
                "Which thing was {seller} left with when {who} had gone?",
                "What did {seller} offer for {pb}?",
            ),
            "seller": (
                "Who sold the {a}?",
                "From whom did {who} buy something in {town}?",
                "Who asked {pb} for the {b}?",
            ),
            "who": (
                "Who bought the {a}?",
                "To whom did {seller} sell the {a}?",
                "Who was the buyer of the {a}?",
            ),
        },
    ),
    Frame(
        "item_museum_hours",
        {"town": "town", "day": "weekday", "late": "weekday", "closed": "weekday", "open": "clock", "shut": "clock"},
        (
            "The museum of {town} is closed on {closed}. On {late} its doors do not open before {open}, because the "
            "school classes come first, and on {day} they are shut as early as {shut}.",
            "Whoever wants to see the museum of {town} should not come on {closed}, when nobody is there at all. On "
            "{day} it "
            "closes at {shut}, and on {late} the keeper unlocks the door at {open}.",
            "At {open} the museum of {town} opens on {late}. The card by the bell adds that visitors must be out "
            "by {shut} on {day}, closing time, and that {closed} is the keeper's free day, when the house stays shut.",
        ),
        {
            "closed": (
                "On which day is the museum of {town} closed?",
                "On what day of the week can nobody visit the museum in {town}?",
                "Which day does the keeper of the museum in {town} have free?",
            ),
            "open": (
                "At what time does the museum of {town} open on {late}?",
                "When can visitors first enter the museum of {town} on {late}?",
                "What is the opening time on {late} at {town:s} museum?",
            ),
            "shut": (
                "At what time does the museum of {town} close on {day}?",
                "When must visitors leave the museum of {town} on {day}?",
                "What is the closing time on {day} at {town:s} museum?",
            ),
            "late": (
                "On which day does the museum of {town} open at {open}?",
                "Which day has {open} as the opening time at the museum in {town}?",
                "On what day do the doors of {town:s} museum open at {open}?",
            ),
            "day": (
                "On which day does the museum of {town} close at {shut}?",
                "Which day has {shut} as the closing time at the museum in {town}?",
                "On what day is {town:s} museum shut at {shut}?",
            ),
        },
    ),
    Frame(
        "item_sold_by_day",
        {"who": "person", "one": "weekday", "two": "weekday", "n1": "number", "n2": "number", "garment": "garment"},
        (
            "{who} sold {n1} hats on {one}, when the sun was out, and {n2} on {two}. In the evening of that second day "
            "{who:they} also got rid of {garment:a} that had hung in the window for years.",
            "It rained on {two}, and still {n2} hats went over {who:s} counter. On {one} the number had been {n1}. "
            "The only other thing to leave the shop was {garment:a}, sold to a sailor.",
            "According to the shop book, {who:s} customers carried off {n1} hats on {one}, but {n2} on {two}. "
            "Between the two lines, in red ink, {garment:a} is noted as sold too.",
        ),
        {
            "n1": (
                "How many hats did {who} sell on {one}?",
                "How many of {who:s} hats were sold on {one}?",
                "What was the number of hats sold on {one} by {who}?",
            ),
            "n2": (
                "How many hats did {who} sell on {two}?",
                "How many hats left {who:s} shop on {two}?",
                "What number of hats did customers of {who} buy on {two}?",
            ),
            "one": (
                "On which day did {who} sell {n1} hats?",
                "On what day of the week were {n1} hats sold in {who:s} shop?",
                "When did {n1} of {who:s} hats find a buyer?",
            ),
            "two": (
                "On which day did {who} sell {n2} hats?",
                "On what day of the week were {n2} hats bought from {who}?",
                "When did {n2} of {who:s} hats find a buyer?",
            ),
            "garment": (
                "What did {who} sell apart from the hats?",
                "What other thing was sold in {who:s} shop?",
                "Which piece of clothing, besides hats, was bought from {who}?",
            ),
        },
    ),
    Frame(
        "item_eggs",
        {"who": "person", "other": "person", "w1": "number", "w2": "number", "m1": "month", "m2": "month"},
        (
            "In {m1} {who:s} hens laid {w1} eggs, while those of {other}, next door, managed {w2}. Only in {m2}, when "
            "the "
            "days were warm, did {other} have any eggs to give away.",
            "{other} gave eggs to the poor in {m2}. That would not have been possible in {m1}, a poor month, for then "
            "{other:s} hens had laid just {w2} eggs, and {who:s}, on the other side of the fence, {w1}.",
            "Both neighbours counted the eggs their hens laid in {m1}: {who} came to {w1}, {other} to {w2}. Not until "
            "{m2}, "
            "however, did {other} carry a basket of them to the church as a gift.",
        ),
        {
            "w1": (
                "How many eggs did {who:s} hens lay in {m1}?",
                "How many eggs did {who} get in {m1}?",
                "What was the number of eggs laid for {who}?",
            ),
            "w2": (
                "How many eggs did {other:s} hens lay in {m1}?",
                "How many eggs did {other} have from the hens in {m1}?",
                "{other:s} hens laid how many eggs?",
            ),
            "m1": (
                "In which month did {who:s} hens lay {w1} eggs?",
                "When did {other} get {w2} eggs?",
                "What month was it when {who} counted {w1} eggs?",
            ),
            "m2": (
                "In which month did {other} give eggs away?",
                "When did {other} make a gift of eggs?",
                "What was the month in which {other} had eggs for others?",
            ),
            "who": (
                "Whose hens laid {w1} eggs?",
                "Who got {w1} eggs in {m1}?",
                "Who is the neighbour of {other}?",
            ),
            "other": (
                "Whose hens laid {w2} eggs?",
                "Who gave eggs away in {m2}?",
                "Who lives next to {who}?",
            ),
        },
    ),
    Frame(
        "item_tools",
        {"who": "person", "a": "tool", "b": "tool", "c": "tool", "material": "material", "lender": "person"},
        (
            "To open the crate {who} used the {a}; the {b} served to clean the bottom of the boat. When the lid had "
            "to be "
            "fixed again, nothing would do but the {c}, which {lender} lent {who:them}.",
            "The {c} with its handle of {material} is not {who:s} own: {lender} lent it for fixing the lid. With the "
            "{a}, "
            "which hangs next to it, {who} opened the crate, and with the {b} {who:they} cleaned the boat.",
            "Everything in {who:s} shed has its purpose. The boat is cleaned with the {b}, a crate is opened with the "
            "{a}, and "
            "for fixing a lid there is the {c} with its handle of {material}, lent by {lender} and never given back.",
        ),
        {
            "a": (
                "With what tool does {who} open a crate?",
                "What did {who} use for the opening of a crate?",
                "Which of the tools in {who:s} hands was good for opening crates?",
            ),
            "b": (
                "With what tool does {who} clean the boat?",
                "Which tool of {who:s} was used on the boat?",
                "What does {who} use for cleaning the boat?",
            ),
            "c": (
                "What did {lender} lend to {who}?",
                "Which tool did {who} have for fixing a lid?",
                "Which of the tools belongs to {lender}?",
            ),
            "material": (
                "What is the handle of the {c} made of?",
                "Of what material is the handle of the tool that {lender} lent?",
                "Which material was used for the handle of {lender:s} {c}?",
            ),
            "lender": (
                "Who lent a tool to {who}?",
                "Whose is the {c} really?",
                "From whom did {who} get the {c}?",
            ),
        },
    ),
    Frame(
        "item_pets",
        {"who": "person", "two": "person", "three": "person", "a": "animal", "b": "animal", "pa": "pet", "pb": "pet"},
        (
            "{who} has {a:a} called {pa}, {two} {b:a} called {pb}. As for {three}, who sneezes when fur comes near, "
            "there is "
            "no animal in that house at all.",
            "The {b} that sleeps on {two:s} doorstep is {pb}; the {a} on the wall answers to {pa} and belongs to "
            "{who}. "
            "Their neighbour {three}, the only one without a pet, feeds both in secret.",
            "When {who} and {two} travel, {three}, who has no animals, must look after {pa} as well as {pb}. The "
            "former is "
            "{a:a} and belongs to {who}, the latter is {two:s} {b}.",
            "Of the three friends {three} alone has no pet. {pb}, {b:a}, follows {two} to work every day, while {who} "
            "cannot "
            "leave home without {pa}, {who:their} {a}, running behind.",
        ),
        {
            "a": (
                "What kind of animal does {who} have?",
                "What kind of animal is {pa}?",
                "Which animal belongs to {who}?",
            ),
            "b": (
                "What kind of animal does {two} have?",
                "{pb} is what kind of animal?",
                "Which animal is the pet of {two}?",
            ),
            "pa": (
                "What is the name of {who:s} {a}?",
                "What is {who:s} pet called?",
                "What name was given to the {a}?",
            ),
            "pb": (
                "What is the name of {two:s} {b}?",
                "What is {two:s} pet called?",
                "What is the {b} called?",
            ),
            "who": (
                "To whom does {pa} belong?",
                "Whose pet is the {a}?",
                "Who is the owner of {pa}?",
            ),
            "two": (
                "To whom does {pb} belong?",
                "Whose pet is the {b}?",
                "Who owns {pb}?",
            ),
            "three": (
                "Who has no pet, unlike {who} and {two}?",
                "Which person has no animal, although {who} has one?",
                "Who lives without a pet, while {two} owns one?",
            ),
        },
    ),
    Frame(
        "item_garden",
        {"who": "person", "gate": "flower", "wall": "flower", "gone": "flower", "c1": "colour", "c2": "colour"},
        (
            "By the gate of {who:s} garden grows {gate:a} with {c1} blossoms, and along the wall {wall:a} whose "
            "blossoms are "
            "{c2}. The {gone} that once stood by the well died in the last hard winter.",
            "{who} lost the {gone} by the well to the frost. Spared were the {wall} along the wall, which bears {c2} "
            "blossoms, "
            "and the {gate} by the gate with its {c1} ones.",
            "Where the {gone} used to bloom, before the cold killed it, {who} has put a bench by the well. From it "
            "one sees the "
            "{c1} blossoms of the {gate} at the gate and, on the other side, the {wall} at the wall, which blooms "
            "{c2}.",
        ),
        {
            "gate": (
                "Which flower grows by the gate of {who:s} garden?",
                "What blooms at {who:s} gate?",
                "Which plant in {who:s} garden has {c1} blossoms?",
            ),
            "wall": (
                "Which flower grows by the wall of {who:s} garden?",
                "What blooms at {who:s} garden wall?",
                "Which plant in {who:s} garden bears {c2} blossoms?",
            ),
            "gone": (
                "Which flower did {who} lose to the cold?",
                "What used to grow by the well in {who:s} garden?",
                "Which plant in {who:s} garden died?",
            ),
            "c1": (
                "What colour are the blossoms of the {gate}?",
                "In what colour does the plant at {who:s} gate bloom?",
                "Which colour has {who:s} {gate}?",
            ),
            "c2": (
                "What colour are the blossoms of the {wall}?",
                "In what colour does the plant at {who:s} wall bloom?",
                "Which colour has {who:s} {wall}?",
            ),
        },
    ),
    Frame(
        "item_book_makers",
        {"book": "book", "who": "person", "artist": "person", "lang": "person", "language": "language", "year": "year"},
        (
            "{book} was written by {who} and illustrated by {artist}, who had never drawn for a book before. In "
            "{year} {lang} "
            "translated it into {language}, leaving out two chapters.",
            "Readers who know {book} in {language} owe it to {lang}, whose translation appeared in {year}. The story "
            "itself is {who:s} work, while the pictures are from the pen of {artist}.",
            "It is often said that {artist} wrote {book}, but {artist} only made the pictures; every word is by "
            "{who}. The "
            "{language} translation of {year} was the work of {lang}, a retired schoolteacher.",
            "{who}, the author of {book}, could not draw, and so the pictures were left to {artist}. The translator, "
            "{lang}, "
            "needed four winters to turn the book into {language}.",
        ),
        {
            "who": (
                "Who wrote {book}?",
                "Who is the author of {book}?",
                "By whom was {book} written?",
                "Whose words did {artist} illustrate?",
            ),
            "artist": (
                "Who illustrated {book}?",
                "Who drew the pictures in {book}?",
                "Whose pictures are in the book by {who}?",
            ),
            "lang": (
                "Who translated {book}?",
                "Who was the translator of {book}?",
                "By whom was {who:s} book put into {language}?",
            ),
            "language": (
                "Into which language was {book} translated?",
                "Into what language did {lang} translate {book}?",
                "What is the language of {lang:s} translation?",
            ),
            "year": (
                "In what year was {book} translated?",
                "When did {lang:s} translation of {book} come out?",
                "What is the year of the {language} translation of {book}?",
            ),
        },
    ),
    Frame(
        "item_two_books",
        {"who": "person", "other": "person", "one": "book", "two": "book", "three": "book", "year": "year"},
        (
            "{who} is remembered for {one}, {other} for {two}. Few know that the two also wrote a book together: "
            "{three}, which came out in {year} and was read by hardly anyone.",
            "Together {who} and {other} wrote {three}, printed in {year} and soon forgotten. Each did better alone, "
            "{other} with {two} and {who} with {one}.",
            "Before they quarrelled, {who} and {other} were joint authors of a novel, {three}, that reached the "
            "bookshops in {year}. {one}, by contrast, is by {who} alone, and {two} by {other} alone.",
        ),
        {
            "one": (
                "Which book did {who} write alone?",
                "For which book of {who:s} own was {other} not needed?",
                "What is the title of the book that is by {who} only?",
            ),
            "two": (
                "Which book did {other} write alone?",
                "What is the title of the book that is by {other} only?",
                "Which book was written by {other} without {who}?",
            ),
            "three": (
                "Which book did {who} and {other} write together?",
                "What is the title of the book by both {who} and {other}?",
                "Which book came out in {year}?",
            ),
            "year": (
                "In what year did {three} come out?",
                "When was the joint book of {who} and {other} published?",
                "What was the year in which {three} was first sold?",
            ),
            "who": (
                "Who is the author of {one}?",
                "Who wrote {one}?",
                "With whom did {other} write {three}?",
            ),
            "other": (
                "Who is the author of {two}?",
                "Who wrote {two}?",
                "Together with whom did {who} write {three}?",
            ),
        },
    ),
    Frame(
        "item_song_makers",
        {
            "song": "song",
            "who": "person",
            "poet": "person",
            "singer": "person",
            "town": "town",
            "instrument": "instrument",
        },
        (
            "The tune of {song} is by {who}, who made it up on the {instrument}; the words were written by {poet}. It "
            "was "
            "{singer} who first sang it, one rainy evening in {town}.",
            "When {singer} stood up in {town} and sang {song} for the first time, {poet}, who had written the words, "
            "was "
            "sitting in the front row. {who}, the composer, stayed at home with {who:their} {instrument}.",
            "{poet} brought the words, {who} set them to music at the {instrument}, and so {song} was born. Its first "
            "singer was neither of them but {singer}, before a small audience in {town}.",
        ),
        {
            "who": (
                "Who composed {song}?",
                "Who wrote the music of {song}?",
                "Whose tune has words by {poet}?",
            ),
            "poet": (
                "Who wrote the words of {song}?",
                "Whose words did {who} set to music?",
                "By whom are the words of {song}?",
            ),
            "singer": (
                "Who first sang {song}?",
                "Who was the first singer of {song}?",
                "Who sang {song} in {town}?",
            ),
            "town": (
                "Where was {song} first sung?",
                "In which town did {singer} sing {song}?",
                "In what town did people hear {song} for the first time?",
            ),
            "instrument": (
                "What was {who:s} instrument?",
                "What instrument did the composer of {song} play?",
                "On which instrument did {who} play?",
            ),
        },
    ),
    Frame(
        "item_distances",
        {"a": "town", "b": "town", "c": "town", "ab": "distance", "bc": "distance", "means": "means", "how": "means"},
        (
            "From {a} to {b} it is {ab}, and people make the journey {means}. The next part of the road, from {b} to "
            "{c}, is "
            "{bc}, and there most travellers go {how}.",
            "{b} lies between {a} and {c}: it is {ab} from the one and {bc} from the other. The usual way of getting "
            "from {a} "
            "to {b} is {means}, but between {b} and {c} everyone travels {how}.",
            "Most travellers reach {c} from {b} {how}, a journey of {bc}. Those who come to {b} from {a}, {ab} away, "
            "arrive {means}, with the mail and the milk.",
        ),
        {
            "ab": (
                "How far is it from {a} to {b}?",
                "What is the distance between {a} and {b}?",
                "How far away from {b} is {a}?",
            ),
            "bc": (
                "How far is it from {b} to {c}?",
                "What is the distance between {b} and {c}?",
                "How long is the way from {b} to {c}?",
            ),
            "means": (
                "How do people travel from {a} to {b}?",
                "By what means do travellers get from {a} to {b}?",
                "How does one usually go to {b} when coming from {a}?",
            ),
            "how": (
                "How do people travel from {b} to {c}?",
                "By what means is the way between {b} and {c} covered?",
                "How does one usually go to {c} when coming from {b}?",
            ),
            "b": (
                "Which town lies {ab} from {a}?",
                "Which town is {bc} from {c}?",
                "Through which town does the way from {a} to {c} lead?",
            ),
        },
    ),
    Frame(
        "item_bridge_years",
        {"river": "river", "town": "town", "begun": "year", "done": "year", "material": "material", "old": "material"},
        (
            "Work on the new bridge over the {river} at {town} began in {begun}, but the last stone was not laid "
            "until {done}. "
            "It is built of {material}, unlike the old one, a bridge of {old} that shook under every cart.",
            "In {done} the people of {town} walked over their new bridge of {material} for the first time, for now it "
            "was "
            "finished. The first pile had been driven into the bed of the {river} in {begun}, when the old bridge, "
            "made of {old}, was still in use.",
            "The old bridge at {town} was of {old}, and every flood of the {river} carried off a piece. A new one of "
            "{material} was started in {begun}; the town band played at its opening in {done}, when all the work was "
            "over.",
            "Finished in {done} after many delays, the new bridge at {town} crosses the {river} on five arches. Its "
            "building "
            "had been started in {begun} by a man who did not live to see the end.",
        ),
        {
            "begun": (
                "In what year was the new bridge at {town} begun?",
                "When did the work on the new bridge over the {river} begin?",
                "In which year did they start building the new bridge at {town}?",
            ),
            "done": (
                "In what year was the new bridge at {town} finished?",
                "When was the new bridge over the {river} ready?",
                "In which year did the building of the new bridge at {town} end?",
            ),
            "material": (
                "What is the new bridge at {town} made of?",
                "Of what material is the new bridge over the {river}?",
                "Which material was used for {town:s} new bridge?",
            ),
            "old": (
                "What was the old bridge at {town} made of?",
                "Of what material was the earlier bridge over the {river}?",
                "Which material was {town:s} former bridge made of?",
            ),
            "river": (
                "Which river does the new bridge at {town} cross?",
                "What is the name of the river at {town}?",
                "Over which river did {town} build a bridge?",
            ),
        },
    ),
    Frame(
        "item_two_bridges",
        {"river": "river", "a": "town", "b": "town", "la": "length", "lb": "length", "who": "person", "by": "person"},
        (
            "Two bridges span the {river}. The one at {a}, designed by {who}, is {la} long; the one at {b}, {lb} from "
            "end to end, was drawn by {by} on the back of an envelope.",
            "{who} designed the bridge at {a} and had hoped to do the one at {b} too, but there the task went to "
            "{by}. So the "
            "{river} is crossed by {la} of {who:s} work and by {lb} of {by:s}.",
            "With its {lb}, the bridge at {b} is {by:s} only design. Down the {river}, at {a}, stands the bridge that "
            "{who} "
            "designed, which measures {la} and carries the railway.",
        ),
        {
            "la": (
                "How long is the bridge at {a}?",
                "What is the length of the bridge by {who}?",
                "What does the bridge at {a} measure?",
            ),
            "lb": (
                "How long is the bridge at {b}?",
                "What is the length of the bridge by {by}?",
                "What does the bridge at {b} measure?",
            ),
            "who": (
                "Who designed the bridge at {a}?",
                "By whom was the bridge that stands at {a} planned?",
                "Whose work is the bridge at {a}?",
            ),
            "by": (
                "Who designed the bridge at {b}?",
                "By whom was the bridge that stands at {b} planned?",
                "Whose work is the bridge at {b}?",
            ),
            "a": (
                "Where is {who:s} bridge over the {river}?",
                "In which town is the bridge designed by {who}?",
                "At which town did {who} bridge the {river}?",
            ),
            "b": (
                "Where is {by:s} bridge over the {river}?",
                "In which town is the bridge designed by {by}?",
                "At which town did {by} bridge the {river}?",
            ),
        },
    ),
    Frame(
        "item_companies",
        {"one": "company", "two": "company", "a": "thing", "b": "thing", "town": "town", "far": "town", "year": "year"},
        (
            "{one} of {town} became known for a single product, {a:a}; its rival {two}, in {far}, made {b:a} that went "
            "into every household. The rivalry ended in {year}, when {two} was bought by {one}.",
            "In {year} {one} bought {two} and, with it, the works in {far} where {b:a} of great fame was made. Until "
            "then "
            "the firm had made only {a:a}, in its own factory in {town}.",
            "Anyone who wanted {b:a} wrote to {two} in {far}; for {a:a} the address was {one} in {town}. "
            "Both were later sold from one shop, since {two} was taken over by {one} in {year}.",
        ),
        {
            "a": (
                "What did {one} make?",
                "What was the product of the company in {town}?",
                "For what product was {one} known?",
            ),
            "b": (
                "What did {two} make?",
                "What was the product of the company in {far}?",
                "What was made by {two} in {far}?",
            ),
            "one": (
                "Which company bought {two}?",
                "Which company was at home in {town}?",
                "Which firm made the {a}?",
            ),
            "two": (
                "Which company did {one} buy?",
                "Which company was at home in {far}?",
                "Which firm made the {b}?",
            ),
            "town": (
                "In which town was {one}?",
                "Where was the {a} made?",
                "What was the home town of the buyer of {two}?",
            ),
            "far": (
                "In which town did {two} have its works?",
                "Where was the {b} made?",
                "Where was the company that {one} bought?",
            ),
            "year": (
                "In what year was {two} bought?",
                "When did {one} take over {two}?",
                "In which year did {two} lose its independence?",
            ),
        },
    ),
    Frame(
        "item_river_course",
        {"river": "river", "other": "river", "mountain": "mountain", "lake": "lake", "a": "town", "b": "town"},
        (
            "The {river} rises on {mountain}, runs through {a} and ends in {lake}. At {b}, a day's walk below the "
            "spring, it "
            "is joined by the {other}, whose water is brown from the moor.",
            "At {b} the brown water of the {other} flows into the {river}, which has come down from its spring on "
            "{mountain}. "
            "The market place of {a} lies right on the {river}; after that come only meadows and, at the mouth, "
            "{lake}.",
            "Whoever follows the {river} upwards from {lake}, its end, comes first to {a}, which it divides in two, "
            "and then to "
            "{b}, where the {other} flows into it. The spring is under a rock high on {mountain}.",
        ),
        {
            "mountain": (
                "Where does the {river} rise?",
                "On which mountain is the spring of the {river}?",
                "From what mountain does the {river} come?",
            ),
            "lake": (
                "Where does the {river} end?",
                "Into which lake does the {river} flow?",
                "What is the lake at the mouth of the {river}?",
            ),
            "other": (
                "Which river flows into the {river}?",
                "Which river joins the {river} at {b}?",
                "What is the name of the river that meets the {river}?",
            ),
            "b": (
                "Where does the {other} flow into the {river}?",
                "At which town do the {river} and the {other} meet?",
                "In what town does the {other} end?",
            ),
            "river": (
                "Which river rises on {mountain}?",
                "Which river runs through {a}?",
                "Into which river does the {other} flow?",
            ),
        },
    ),
    Frame(
        "item_collection",
        {"who": "person", "coins": "number", "maps": "number", "first": "thing", "last": "thing", "heir": "person"},
        (
            "{who:s} collection began with {first:a} found in the street. When it ended, with {last:a}, there were "
            "{coins} "
            "coins and {maps} maps in the cupboards, all of which went to {heir}.",
            "{heir}, who inherited {who:s} collection, needed a week to count the {maps} maps and {coins} coins. On "
            "the label "
            "of the {first} was written FIRST, on that of the {last} LAST.",
            "The last piece that {who} bought for the collection was {last:a}; the first, many years earlier, had been "
            "{first:a}. In between came {coins} coins and {maps} maps. Today the heir, {heir}, shows them to schools.",
        ),
        {
            "coins": (
                "How many coins were in {who:s} collection?",
                "How many coins did {who} leave?",
                "What number of coins passed to {heir}?",
            ),
            "maps": (
                "How many maps were in {who:s} collection?",
                "How many maps did {who} leave?",
                "What number of maps passed to {heir}?",
            ),
            "first": (
                "What was the first piece of {who:s} collection?",
                "With what did {who} begin collecting?",
                "Which thing had {who} owned longest in the collection?",
            ),
            "last": (
                "What was the last piece of {who:s} collection?",
                "What did {who} add at the very end?",
                "With which thing did {who:s} collecting end?",
            ),
            "heir": (
                "Who inherited {who:s} collection?",
                "To whom did the collection of {who} pass?",
                "Who got the coins and maps of {who}?",
            ),
            "who": (
                "Whose collection did {heir} inherit?",
                "Who collected coins and maps, the first piece being the {first}?",
                "From whom did {heir} inherit?",
            ),
        },
    ),
    Frame(
        "item_auction",
        {"who": "person", "owner": "person", "loser": "person", "thing": "thing", "asked": "price", "paid": "price"},
        (
            "{owner} had asked {asked} for the {thing}, but the room stayed silent. In the end it went to {who}, who "
            "paid {paid}, "
            "while {loser}, who had also wanted it, left without a word.",
            "The {thing} now stands in the house of {who}, who bought it for {paid}. The asking price of {owner}, the "
            "seller, "
            "had been {asked}, and {loser}, the other bidder, had gone away empty-handed.",
            "For {paid} {who} took home the {thing} that {owner} had first offered at {asked}. It would have gone to "
            "{loser} "
            "if the telephone had not rung just as the hammer was about to fall.",
            "{thing:A} was sold by {owner} last week. The card said {asked}, yet the sum that {who}, the buyer, "
            "counted out on the "
            "table was {paid}; {loser}, who had come for the same piece, was too late.",
        ),
        {
            "who": (
                "Who bought the {thing}?",
                "To whom did {owner} sell the {thing}?",
                "Who got the {thing} that {loser} had hoped for?",
            ),
            "owner": (
                "Who sold the {thing}?",
                "From whom did {who} buy the {thing}?",
                "Who had asked {asked} for the {thing}?",
            ),
            "loser": (
                "Who had hoped in vain for the {thing}?",
                "Besides {who}, who might have bought the {thing}?",
                "Who lost the {thing} to {who}?",
            ),
            "asked": (
                "What had {owner} asked for the {thing}?",
                "What was the first price of the {thing}?",
                "How much did {owner} want at first?",
            ),
            "paid": (
                "What did {who} pay for the {thing}?",
                "How much did {owner} get for the {thing}?",
                "For how much was the {thing} sold in the end?",
            ),
            "thing": (
                "What did {who} buy from {owner}?",
                "What did {owner} sell?",
                "Which thing did {loser} fail to get?",
            ),
        },
    ),
    Frame(
        "item_vegetable_show",
        {
            "who": "person",
            "two": "person",
            "w1": "weight",
            "w2": "weight",
            "town": "town",
            "gift": "thing",
            "small": "thing",
        },
        (
            "At the pumpkin show in {town} the first prize, {gift:a}, went to {who} for a pumpkin of {w1}. "
            "The second, {small:a}, was given to {two}, whose pumpkin was put down at {w2}.",
            "{two} took second place at the pumpkin show in {town} with {w2} and carried home {small:a}. The judges "
            "gave the first prize, which was {gift:a}, to {who}, although the {w1} of {who:their} pumpkin were "
            "disputed.",
            "First came {who}, then {two}: so the judges of the pumpkin show in {town} decided, after weighing {w1} "
            "for the "
            "winner and {w2} for the second. The winner got {gift:a}, and the runner-up had to be content with "
            "{small:a}.",
        ),
        {
            "who": (
                "Who won the pumpkin show in {town}?",
                "Who was given the {gift}?",
                "Whose pumpkin was put before that of {two}?",
            ),
            "two": (
                "Who came second at the pumpkin show in {town}?",
                "Who was given the {small}?",
                "Who was beaten only by {who}?",
            ),
            "w1": (
                "How heavy was {who:s} pumpkin?",
                "What did the winning pumpkin in {town} weigh?",
                "What was the weight of the pumpkin that {who} showed?",
            ),
            "w2": (
                "How heavy was {two:s} pumpkin?",
                "What did the pumpkin in second place in {town} weigh?",
                "What was the weight of the pumpkin that {two} showed?",
            ),
            "gift": (
                "What was the first prize at the pumpkin show in {town}?",
                "What did {who} win?",
                "What did {who} get for the pumpkin?",
            ),
            "small": (
                "What was the second prize at the pumpkin show in {town}?",
                "What did {two} win?",
                "What did {two} get for the pumpkin?",
            ),
        },
    ),
    Frame(
        "item_ferry_times",
        {"island": "island", "town": "town", "summer": "clock", "winter": "clock", "fare": "price", "bike": "price"},
        (
            "In summer the ferry from {town} to {island} leaves at {summer}, in winter at {winter}. A passenger "
            "pays {fare}, and {bike} more are asked for a bicycle.",
            "The ferry from {town} takes bicycles to {island} for {bike} and people for {fare}. Its hour of departure "
            "is "
            "{winter} in the winter months; only when summer comes is it changed to {summer}.",
            "Summer guests bound for {island} must be on the pier of {town} at {summer}, when the ferry leaves; the "
            "winter ferry, "
            "which carries mostly coal, sails at {winter}. The fare is {fare}, but a bicycle costs {bike}.",
        ),
        {
            "summer": (
                "At what time does the ferry to {island} leave in summer?",
                "When does the ferry leave {town} in the summer?",
                "What is the summer hour of departure for {island}?",
            ),
            "winter": (
                "At what time does the ferry to {island} leave in winter?",
                "When does the ferry leave {town} in the winter?",
                "What is the winter hour of departure for {island}?",
            ),
            "fare": (
                "How much does a passenger pay for the ferry to {island}?",
                "What is the fare for a person from {town} to {island}?",
                "What does it cost to go to {island} without a bicycle?",
            ),
            "bike": (
                "What does it cost to take a bicycle to {island}?",
                "How much is asked for a bicycle on the ferry from {town}?",
                "What is the price for a bicycle on the way to {island}?",
            ),
            "town": (
                "From which town does the ferry to {island} leave?",
                "Where does the ferry to {island} start?",
                "In which town does one board the ferry to {island}?",
            ),
            "island": (
                "To which island does the ferry from {town} go?",
                "Which island can be reached by ferry from {town}?",
                "Where does the ferry that leaves {town} go?",
            ),
        },
    ),
    Frame(
        "item_moved_market",
        {
            "town": "town",
            "old": "weekday",
            "new": "weekday",
            "from_": "road",
            "to": "road",
            "year": "year",
            "who": "person",
        },
        (
            "Until {year} the market of {town} was held on {old}, in {from_}. Then {who}, the new mayor, moved it to "
            "{to}, and because the butchers wished it, to {new} as well.",
            "The stalls of {town:s} market stand in {to} every {new}. It was {who} who moved them there, in {year}; "
            "before, people had gone to {from_} for their vegetables, and the day had been {old}.",
            "It is no longer {old} but {new} on which the market of {town} takes place, and no longer {from_} but "
            "{to}. "
            "The change of {year} was ordered by {who}, to the anger of the fishwives.",
        ),
        {
            "old": (
                "On which day was the market of {town} held before it was moved?",
                "What was the former market day of {town}?",
                "On what day of the week did {town} use to have its market?",
            ),
            "new": (
                "On which day has the market of {town} been held since {year}?",
                "To which day was the market of {town} moved?",
                "What is the present market day of {town}?",
            ),
            "from_": (
                "In which street was the market of {town} before it was moved?",
                "Where did {town} have its market in earlier days?",
                "From which street did {who} move the market?",
            ),
            "to": (
                "In which street is the market of {town} now?",
                "Where is {town:s} market held today?",
                "To which street did {who} move the market?",
            ),
            "year": (
                "In what year was the market of {town} moved?",
                "When did {who} change the market of {town}?",
                "In which year did the market come to {to}?",
            ),
            "who": (
                "Who moved the market of {town}?",
                "Who changed the market day in {town}?",
                "By whom was the market brought to {to}?",
            ),
        },
    ),
    Frame(
        "item_hall_clock",
        {
            "who": "person",
            "helper": "person",
            "before": "person",
            "town": "town",
            "part": "material",
            "time": "duration",
        },
        (
            "{who} mended the clock in the hall at {town}, while {helper} only held the lamp. The work took {time} "
            "and a new wheel of "
            "{part}; the last time the clock had stopped, {before} had put it right.",
            "The clock in the hall at {town} goes again. The earlier repair had been {before:s}, but this time it was "
            "{who} who cut the new wheel out of {part} and, with {helper} to pass the tools, finished after {time}.",
            "After {time} the clock in the hall at {town} struck once more. {helper} had helped by holding the ladder "
            "and {before} had "
            "done such a repair long ago, but the one who mended it now, with a new wheel of {part}, was {who}.",
        ),
        {
            "who": (
                "Who mended the clock in the hall at {town}?",
                "Who got the clock at {town} going with the help of {helper}?",
                "Whom did {helper} help at {town}?",
            ),
            "helper": (
                "Who helped {who} with the clock?",
                "Who was there to help when the clock at {town} was mended?",
                "Whose help did {who} have?",
            ),
            "before": (
                "Who had mended the clock at {town} on the earlier occasion?",
                "Who had repaired the clock before {who}?",
                "By whom had the clock at {town} once been repaired before?",
            ),
            "part": (
                "What was the new wheel of the clock at {town} made of?",
                "Which material did {who} use for the wheel?",
                "Of what was the part that {who} put into the clock?",
            ),
            "time": (
                "How long did the repair of the clock at {town} take?",
                "How long did {who} work on the clock?",
                "How much time was needed to mend the clock at {town}?",
            ),
        },
    ),
    Frame(
        "item_inheritance",
        {
            "who": "person",
            "a": "person",
            "b": "person",
            "ta": "thing",
            "tb": "thing",
            "building": "building",
            "c": "person",
        },
        (
            "In {who:s} will the {ta} was left to {a}, the {tb} to {b}, and the {building} to {c}, who had "
            "expected nothing. The dog, which nobody had thought of, walked home with the lawyer.",
            "{who} left {a} {ta:a} and {b} {tb:a}. It surprised everyone that neither of them got the {building}: "
            "that, the "
            "lawyer read out in a dry voice, was for {c}.",
            "Though {b} would have liked the {building}, it was {c} who inherited it from {who}. To {b} "
            "came only {tb:a}, and to {a}, who was abroad at the time, {ta:a}.",
        ),
        {
            "ta": (
                "What did {who} leave to {a}?",
                "What did {a} inherit?",
                "Which thing passed from {who} to {a}?",
            ),
            "tb": (
                "What did {who} leave to {b}?",
                "What did {b} inherit?",
                "Which thing passed from {who} to {b}?",
            ),
            "building": (
                "What did {who} leave to {c}?",
                "What did {c} inherit?",
                "Which building passed from {who} to {c}?",
            ),
            "a": (
                "Who inherited the {ta}?",
                "To whom did {who} leave the {ta}?",
                "Who became the owner of {who:s} {ta}?",
            ),
            "b": (
                "Who inherited the {tb}?",
                "To whom did {who} leave the {tb}?",
                "Who became the owner of {who:s} {tb}?",
            ),
            "c": (
                "Who inherited the {building}?",
                "To whom did {who} leave the {building}?",
                "Who became the owner of {who:s} {building}?",
            ),
            "who": (
                "From whom did {a} inherit the {ta}?",
                "Who left the {building} to {c}?",
                "Whose {tb} passed to {b}?",
            ),
        },
    ),
    Frame(
        "item_zoo",
        {"town": "town", "a": "animal", "b": "animal", "ma": "month", "mb": "month", "pet": "pet", "keeper": "person"},
        (
            "The zoo in {town} got its {a} in {ma}, and in {mb} came {b:a} from a circus that had closed. {keeper} "
            "looks after "
            "the second one, which the children have named {pet}.",
            "{pet} is the name that the children of {town} chose for the {b} in their zoo, which arrived in {mb} and "
            "is fed by "
            "{keeper}. The {a}, there since {ma}, still has no name.",
            "Since {ma} the zoo in {town} has had {a:a}, but the visitors go straight to the {b}, brought in {mb}. "
            "The latter "
            "is called {pet} and obeys nobody except its keeper, {keeper}.",
        ),
        {
            "ma": (
                "In which month did the {a} come to the zoo in {town}?",
                "Since which month has the zoo in {town} had the {a}?",
                "When did the {a} arrive?",
            ),
            "mb": (
                "In which month did the {b} come to the zoo in {town}?",
                "When did {pet} arrive in {town}?",
                "When did the {b} arrive?",
            ),
            "a": (
                "Which animal came to the zoo in {town} in {ma}?",
                "What animal does the zoo in {town} have besides the {b}?",
                "Which animal arrived in {ma}?",
            ),
            "b": (
                "What kind of animal is {pet}?",
                "Which animal does {keeper} look after?",
                "Which animal came to the zoo in {town} in {mb}?",
            ),
            "pet": (
                "What is the {b} in the zoo of {town} called?",
                "What is the name of the animal that {keeper} looks after?",
                "What name did the {b} get?",
            ),
            "keeper": (
                "Who looks after {pet}?",
                "Who is the keeper of the {b} in {town}?",
                "Which person takes care of the {b}?",
            ),
        },
    ),
    Frame(
        "item_library_loans",
        {"who": "person", "other": "person", "a": "book", "b": "book", "due": "date", "back": "date", "fine": "price"},
        (
            "{who} borrowed {a} from the library, and {other} borrowed {b}. Both books should have been back by "
            "{due}; {other} was in time, "
            "but {who} did not return {who:their} book until {back} of the next year and had to pay a fine of {fine}.",
            "A fine of {fine} was entered against the name of {who}, who brought {a} back to the library on {back} "
            "although it "
            "was due on {due} of the year before. With {b}, the loan of {other}, there was no such trouble.",
            "The last day for both loans was {due}. {other} had handed in {b} at the library long before, but {a} lay "
            "under {who:s} bed and was returned only on {back} of the following year, which cost {who:them} a fine of "
            "{fine}.",
        ),
        {
            "a": (
                "Which book did {who} borrow?",
                "What did {who} bring back to the library on {back}?",
                "Which book was returned too late by {who}?",
            ),
            "b": (
                "Which book did {other} borrow?",
                "What is the title of the book that {other} had from the library?",
                "Which loan did {other} have?",
            ),
            "due": (
                "When was {a} due?",
                "By what date should {who} have returned {a}?",
                "What was the last day of {who:s} loan?",
            ),
            "back": (
                "When did {who} return {a}?",
                "On what date did {a} come back to the library?",
                "On which day did the library get its book back from {who}?",
            ),
            "fine": (
                "How much did {who} have to pay?",
                "What was the fine for {a}?",
                "What did it cost {who} to be late?",
            ),
            "who": (
                "Who borrowed {a}?",
                "Who had to pay a fine of {fine}?",
                "Who returned {a} to the library?",
            ),
            "other": (
                "Who borrowed {b}?",
                "By whom was {b} taken from the library?",
                "Who had {b} from the library?",
            ),
        },
    ),
)
