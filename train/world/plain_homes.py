"""Scenes of homes, families, work, schools, shops and food, asked about in plain words that name little."""

from __future__ import annotations

from train.world.frame import Frame

FRAMES = (
    Frame(
        "home_front_door",
        {
            "who": "person",
            "road": "road",
            "now": "colour",
            "old": "colour",
            "shut": "colour",
            "month": "month",
        },
        (
            (
                "The front door of the house in {road} is {now} these days. It was {old} until {who} took a brush to "
                "it in {month}, and the shutters, which nobody touched, are still {shut}."
            ),
            (
                "In {month}, {who} gave the front door in {road} a coat of {now} paint to hide the {old} one "
                "underneath. The shutters stayed {shut}, because not a drop was left for them."
            ),
            (
                "{who} had grown tired of the {old} front door of the house in {road}, so in {month} it was repainted "
                "{now}. Visitors find that it does not go with the {shut} shutters."
            ),
        ),
        {
            "now": (
                "What colour is the front door?",
                "What colour is the front door now?",
                "Which colour did {who} choose for the front door?",
                "What is the new colour of the door in {road}?",
            ),
            "old": (
                "What colour was the front door before?",
                "What colour did the door have before it was repainted?",
                "What colour was the front door before {who} painted it?",
                "Which colour did the door in {road} use to be?",
            ),
            "shut": (
                "What colour are the shutters?",
                "Which colour do the shutters have?",
                "What is the colour of the shutters in {road}?",
                "What colour are the shutters on the house that {who} worked on?",
            ),
            "month": (
                "When was the front door painted?",
                "In which month was the door repainted?",
                "In which month did {who} paint the door?",
                "When did the front door turn {now}?",
            ),
            "who": (
                "Who painted the front door?",
                "Who changed the colour of the door?",
                "Who repainted the front door in {road}?",
                "Who made the front door {now}?",
            ),
        },
    ),
    Frame(
        "home_attic",
        {
            "who": "person",
            "found": "thing",
            "cellar": "thing",
            "gift": "thing",
            "relative": "relative",
            "weekday": "weekday",
        },
        (
            (
                "When {who} cleared out the attic on {weekday}, {found:a} turned up behind the water tank. The cellar "
                "held nothing but {cellar:a}, and {who:their} {relative}, who had come to help, was sent home with "
                "{gift:a} as thanks."
            ),
            (
                "{who} spent {weekday} tidying the house from top to bottom. In the attic lay {found:a} that nobody "
                "remembered; in the cellar stood {cellar:a}; and {gift:a}, the only thing without dust on it, was "
                "given to {who:their} {relative}."
            ),
            (
                "A search of the attic brought {found:a} to light, while down in the cellar {who} came upon "
                "{cellar:a}. It was a long {weekday}, and for carrying boxes {who:their} {relative} received "
                "{gift:a}."
            ),
        ),
        {
            "found": (
                "What was found in the attic?",
                "What turned up under the roof?",
                "What did {who} find in the attic?",
                "What lay in the attic that {weekday}?",
            ),
            "cellar": (
                "What was in the cellar?",
                "What was discovered below the house, in the cellar?",
                "What did {who} come across in the cellar?",
                "Which object was in the cellar that {weekday}?",
            ),
            "gift": (
                "What was given away?",
                "Which thing left the house as a present?",
                "What was the {relative} given?",
                "What did {who} give away?",
            ),
            "relative": (
                "Who was given something from the house?",
                "Which member of the family went home with a present?",
                "To whom did {who} give something?",
                "Who got the {gift}?",
            ),
            "weekday": (
                "When was the attic cleared?",
                "On which day was the attic searched?",
                "On what day did {who} go through the attic?",
                "On which day did the {found} come to light?",
            ),
        },
    ),
    Frame(
        "home_leak",
        {
            "who": "person",
            "drip": "room",
            "sleep": "room",
            "trade": "trade",
            "clock": "clock",
            "thing": "thing",
        },
        (
            (
                "Rain came through the ceiling of the {drip} at {clock}, and {who} could find nothing better than "
                "{thing:a} to put under the leak. The family moved to the {sleep} for the night and sent for "
                "{trade:a} in the morning."
            ),
            (
                "At {clock}, {who} was woken by water dripping in the {drip}. {who:They} set {thing:a} beneath the "
                "leak, made up beds in the {sleep} for everyone, and rang {trade:a} as soon as it was light."
            ),
            (
                "It was {trade:a} who stopped the leak in the end. Until then water ran down into the {drip}, where "
                "{who} had put {thing:a} to catch it, and everyone slept in the {sleep}; the first drops had fallen "
                "at {clock}."
            ),
        ),
        {
            "drip": (
                "Where did the rain come in?",
                "In which room was the leak?",
                "Which room did {who} find wet?",
                "Where did the {thing} stand?",
            ),
            "sleep": (
                "Where did the family sleep?",
                "Where did everyone spend the night?",
                "Where did the family of {who} go to bed?",
                "Which room stayed dry enough to sleep in when the {drip} was wet?",
            ),
            "trade": (
                "Who was called about the leak?",
                "Which tradesman came because of the water?",
                "What was the trade of the person who saw to the leak in the {drip}?",
                "Whom did the household of {who} call in?",
            ),
            "clock": (
                "When did the leak start?",
                "At what time did the water begin to drip?",
                "At what time did {who} get trouble with the roof?",
                "When did rain begin to fall into the {drip}?",
            ),
            "thing": (
                "What was put under the leak?",
                "What caught the water?",
                "What did {who} place beneath the leak?",
                "What stood in the {drip} to catch the drops?",
            ),
        },
    ),
    Frame(
        "home_stove",
        {
            "who": "person",
            "relative": "relative",
            "light": "clock",
            "out": "clock",
            "number": "number",
            "cold": "room",
        },
        (
            (
                "The tiled stove is lit by {who} at {light} and has gone out by {out}. It eats {number} logs a day, "
                "and still no warmth reaches the {cold}; the ashes are carried out by {who:their} {relative}."
            ),
            (
                "{who} lights the tiled stove at {light} every winter morning, and it burns until {out}. While "
                "{who:their} {relative} takes the ashes to the yard, {number} logs for the day are stacked beside it. "
                "Only the {cold} stays cold."
            ),
            (
                "Every day the tiled stove swallows {number} logs. Its fire is lit at {light} and dies at {out}, "
                "{who} being in charge of the matches and {who:their} {relative} of the ashes; the {cold} is the one "
                "room it cannot heat."
            ),
        ),
        {
            "light": (
                "When is the stove lit?",
                "At what time is the fire started?",
                "At what time does {who} light the stove?",
                "When is the first of the {number} logs set alight?",
            ),
            "out": (
                "When does the stove go out?",
                "Until when does the fire burn?",
                "When does the fire that {who} makes die?",
                "By what time has the stove burnt its {number} logs?",
            ),
            "number": (
                "How many logs does the stove burn?",
                "How many logs are needed each day?",
                "How many logs a day go into the stove that {who} lights?",
                "How much wood, in logs, is used in a day?",
            ),
            "cold": (
                "Which room stays cold?",
                "Which room does the stove fail to heat?",
                "Which room in the home of {who} is not warmed?",
                "Where is it cold in spite of the fire?",
            ),
            "relative": (
                "Who takes out the ashes?",
                "Who empties the stove?",
                "Who carries out the ashes for {who}?",
                "Which relative deals with the ashes?",
            ),
            "who": (
                "Who lights the stove?",
                "Who makes the fire?",
                "Who sets a match to the stove at {light}?",
                "Whose job is it to get the stove burning?",
            ),
        },
    ),
    Frame(
        "home_two_wells",
        {
            "dug": "year",
            "gate": "year",
            "depth": "length",
            "depth2": "length",
            "trade": "trade",
            "who": "person",
            "crop": "crop",
        },
        (
            (
                "The well behind the kitchen was dug in {dug} by {trade:a} and goes down {depth}. There is another by "
                "the gate, of {gate}, only {depth2} deep, from which {who}, the present owner, pumps water for "
                "{crop}."
            ),
            (
                "Two wells belong to the house. {who} waters the {crop} from the one by the gate, which dates from "
                "{gate} and is {depth2} deep; the drinking water comes from the well behind the kitchen, {depth} "
                "down, the work of {trade:a} who dug it in {dug}."
            ),
            (
                "{who} fetches water for {crop} at the gate, where a well was sunk in {gate} to a depth of {depth2}. "
                "For the kitchen there is a second well, right behind it, dug in {dug} by {trade:a}, with a shaft "
                "{depth} from top to bottom."
            ),
        ),
        {
            "dug": (
                "When was the well behind the kitchen dug?",
                "From which year is the kitchen well?",
                "In what year did the {trade} dig the well?",
                "In which year was the well of {depth} made?",
            ),
            "gate": (
                "When was the well by the gate made?",
                "From which year is the well at the gate?",
                "From which year is the well that {who} uses for plants?",
                "In which year was the well of {depth2} made?",
            ),
            "depth": (
                "How deep is the well behind the kitchen?",
                "How far down does the kitchen well go?",
                "How deep did the {trade} dig?",
                "What is the depth of the well that was dug in {dug}?",
            ),
            "depth2": (
                "How deep is the well by the gate?",
                "How far down does the well at the gate go?",
                "How deep is the well from which {who} takes water?",
                "What is the depth of the well of {gate}?",
            ),
            "trade": (
                "Who dug the well behind the kitchen?",
                "What was the trade of the person who made the kitchen well?",
                "What was the occupation of the person who dug the well in {dug}?",
                "By whom was the well of {depth} dug?",
            ),
            "crop": (
                "What is the water from the well by the gate used for?",
                "What is watered from the gate well?",
                "What does {who} water?",
                "Which plants get water from the well of {gate}?",
            ),
        },
    ),
    Frame(
        "home_curtains",
        {
            "who": "person",
            "helper": "person",
            "rail": "material",
            "rings": "material",
            "colour": "colour",
            "room": "room",
        },
        (
            (
                "The curtains at the big front window are {colour} and hang from a rail made of {rail} on rings of "
                "{rings}. {who} sewed them in a single evening after {helper} had measured the window; the old pair "
                "was hung in the {room}."
            ),
            (
                "{who} made new curtains for the big front window, {colour} from top to bottom, and threaded them on "
                "{rings} rings. {helper} merely took the measurements and put up the rail, which is of {rail}; the "
                "worn-out ones now hang in the {room}."
            ),
            (
                "Having measured the big front window, {helper} left the needle to {who}. The curtains that came of "
                "it are {colour}; for the rail {rail} was used, for the rings {rings}, while the former curtains have "
                "moved to the {room}."
            ),
        ),
        {
            "rail": (
                "What is the curtain rail made of?",
                "Of what material is the rail at the front window?",
                "What is the rail that goes with the {colour} curtains made of?",
                "Which material was used for the rail of the curtains that {who} sewed?",
            ),
            "rings": (
                "What are the curtain rings made of?",
                "Of what material are the rings?",
                "Which material are the rings on the {colour} curtains made of?",
                "What are the rings made of, if the rail is of {rail}?",
            ),
            "colour": (
                "What colour are the curtains?",
                "What colour are the new curtains at the front window?",
                "In which colour did {who} make the curtains?",
                "What is the colour of the curtains that hang on rings of {rings}?",
            ),
            "room": (
                "Where are the old curtains?",
                "In which room do the former curtains hang?",
                "Where did the curtains go that {who} replaced?",
                "Which room got the curtains that were there before the {colour} ones were sewn?",
            ),
            "who": (
                "Who sewed the curtains?",
                "Who did the needlework?",
                "Who sewed after {helper} had measured?",
                "Who made the {colour} curtains?",
            ),
            "helper": (
                "Who measured the window?",
                "Who took the measurements for the curtains?",
                "Who measured the window for {who}?",
                "Who measured before the {colour} curtains were made?",
            ),
        },
    ),
    Frame(
        "home_moving",
        {
            "family": "family",
            "old": "road",
            "new": "road",
            "planned": "date",
            "date": "date",
            "broken": "thing",
            "number": "number",
        },
        (
            (
                "The {family} family meant to leave {old} on {planned}, but it was {date} when the removal van came. "
                "By evening {number} crates stood in the hall of their new flat in {new}, and {broken:a} had been "
                "broken on the stairs."
            ),
            (
                "On {date}, and not on {planned}, the day first agreed, the removal men carried {number} crates up to "
                "a flat in {new}. The {family} family, who had lived in {old} until then, lost only {broken:a}, which "
                "fell and broke."
            ),
            (
                "Their flat in {new} has room for everything that the removal men brought from {old}: {number} crates "
                "in all. The {family} family had booked the van for {planned} and got it on {date}; {broken:a} was "
                "the one thing that got broken."
            ),
        ),
        {
            "new": (
                "Where is the new flat?",
                "Where does the family live now?",
                "To which street did the {family} family move?",
                "Where did the removal men unload the {number} crates?",
            ),
            "old": (
                "Where did the family live before?",
                "From which street did they move?",
                "Where did the {family} family live until then?",
                "What was their address before {new}?",
            ),
            "planned": (
                "For which day was the move planned?",
                "When should the removal van have come?",
                "When did the {family} family mean to move?",
                "On which date was the van booked to leave {old}?",
            ),
            "date": (
                "On which day did the move take place?",
                "When did the removal van really come?",
                "On what date did the {family} family move?",
                "When were the crates carried up to the flat in {new}?",
            ),
            "broken": (
                "What was broken in the move?",
                "What got damaged?",
                "What did the {family} family lose?",
                "What broke on the day of the {number} crates?",
            ),
            "number": (
                "How many crates were there?",
                "How many crates did the men carry?",
                "How many crates did the {family} family have?",
                "How many crates were brought to {new}?",
            ),
        },
    ),
    Frame(
        "home_spare_key",
        {
            "who": "person",
            "neighbour": "person",
            "flower": "flower",
            "thing": "thing",
            "room": "room",
            "weekday": "weekday",
        },
        (
            (
                "The spare key is kept under the pot with the {flower} in it, a second one with {neighbour} across "
                "the landing. {who} forgot both on {weekday}, climbed in at the window of the {room} and knocked over "
                "{thing:a}."
            ),
            (
                "{who} locked the door on {weekday} without thinking of the spare key that lies beneath the potted "
                "{flower}, or of the one left with {neighbour}, the neighbour. The way in led through the window of "
                "the {room} and cost {thing:a}, which was knocked to the floor."
            ),
            (
                "There was no need to climb through the window of the {room}, as {who} did on {weekday}, knocking "
                "over {thing:a}. {neighbour} next door has a key, and the spare one has always been under the pot "
                "where the {flower} grows."
            ),
        ),
        {
            "flower": (
                "What grows in the pot above the spare key?",
                "Which plant hides the spare key?",
                "Under which plant could {who} have found the key?",
                "What is in the pot that stands on the key?",
            ),
            "neighbour": (
                "Which neighbour has a key?",
                "Who else keeps a key?",
                "Which neighbour could {who} have asked for a key?",
                "With whom is the second key?",
            ),
            "room": (
                "Through which room's window did the owner get in?",
                "Into which room did the climb lead?",
                "Which room did {who} climb into?",
                "Where was the {thing} knocked over?",
            ),
            "thing": (
                "What was knocked over?",
                "What fell during the climb through the window?",
                "What did {who} knock over?",
                "What stood in the {room} and was overturned?",
            ),
            "weekday": (
                "When was the owner locked out?",
                "On which day was the key forgotten?",
                "On what day did {who} climb in at the window?",
                "When was the {thing} overturned?",
            ),
            "who": (
                "Who climbed in at the window?",
                "Who was locked out?",
                "Who upset the {thing}?",
                "Who forgot that {neighbour} had a key?",
            ),
        },
    ),
    Frame(
        "home_chimney_sweep",
        {
            "who": "person",
            "asked": "price",
            "paid": "price",
            "weekday": "weekday",
            "planned": "weekday",
            "found": "thing",
        },
        (
            (
                "The chimney sweep who had been expected on {planned} turned up on {weekday}. He pulled {found:a} out "
                "of the flue, wanted {asked} for his trouble, and was content with {paid} when {who} added a cup of "
                "tea."
            ),
            (
                "{who} let the chimney sweep in on {weekday}, although he had promised to come on {planned}. What had "
                "blocked the flue was {found:a}. The bill said {asked}, but {paid} was all he took in the end."
            ),
            (
                "For {paid} the fireplace draws again, and {who} keeps {found:a}, the cause of the blocked flue, as a "
                "souvenir. The chimney sweep, who came on {weekday} instead of {planned}, had asked for {asked} at "
                "first."
            ),
        ),
        {
            "found": (
                "What was stuck in the chimney?",
                "What blocked the flue?",
                "What came out of the chimney at the house of {who}?",
                "What did the sweep pull from the flue that {weekday}?",
            ),
            "asked": (
                "How much did the chimney sweep ask for?",
                "What was the sweep's first price?",
                "What did the sweep want from {who} at first?",
                "How much was to be paid before the sweep settled for {paid}?",
            ),
            "paid": (
                "How much was the chimney sweep paid?",
                "What did the sweep get in the end?",
                "How much did {who} pay for the chimney?",
                "What did the sweep accept instead of {asked}?",
            ),
            "weekday": (
                "When did the chimney sweep come?",
                "On which day was the flue cleared?",
                "On what day did {who} let the sweep in?",
                "On which day was the {found} found?",
            ),
            "planned": (
                "When should the chimney sweep have come?",
                "On which day was the sweep expected?",
                "For what day had the sweep promised {who} to come?",
                "Which day had been agreed before the sweep came on {weekday}?",
            ),
        },
    ),
    Frame(
        "home_wallpaper",
        {
            "who": "person",
            "room": "room",
            "other": "room",
            "flower": "flower",
            "number": "number",
            "left": "number",
            "colour": "colour",
        },
        (
            (
                "{who} has papered the {room} with a pattern of the {flower} on {colour:a} ground. It took {number} "
                "rolls of wallpaper, and the {left} that were left over will never be enough for the {other}."
            ),
            (
                "The wallpaper in the {room} shows the {flower}, over and over, on {colour}. Of the rolls that {who} "
                "bought, {number} were used and {left} remain in the cupboard, waiting for somebody to do the {other} "
                "as well."
            ),
            (
                "In the {room} the walls were bare until {who} hung {number} rolls of wallpaper there, {colour} with "
                "the {flower} as its pattern. Next comes the {other}, though just {left} rolls are left."
            ),
        ),
        {
            "room": (
                "Which room has been papered?",
                "Where is the new wallpaper?",
                "Which room did {who} paper?",
                "In which room were {number} rolls used?",
            ),
            "other": (
                "Which room has not been papered yet?",
                "Which room is still waiting for wallpaper?",
                "Which room has {who} not papered?",
                "For which room are {left} rolls too few?",
            ),
            "flower": (
                "What is the pattern on the wallpaper?",
                "Which flower is on the walls?",
                "Which flower can be seen in the {room}?",
                "What plant is shown on the paper that {who} hung?",
            ),
            "number": (
                "How many rolls of wallpaper were used?",
                "How many rolls were hung?",
                "How many rolls did {who} need?",
                "How many rolls went into the {room}?",
            ),
            "left": (
                "How many rolls are left?",
                "How many rolls of wallpaper were not used?",
                "How many rolls does {who} have left?",
                "How many rolls remained after the {room}?",
            ),
            "colour": (
                "What colour is the wallpaper?",
                "What is the ground of the pattern?",
                "What colour did {who} put on the walls?",
                "What is the background colour in the {room}?",
            ),
        },
    ),
    Frame(
        "home_lodger",
        {
            "who": "person",
            "now": "trade",
            "before": "trade",
            "room": "room",
            "rent": "price",
            "weekday": "weekday",
            "food": "food",
        },
        (
            (
                "The lodger who has the {room} is {now:a}, and quieter than the {before} who rented it last year. "
                "{who}, the landlady's cousin, collects {rent} every {weekday}; breakfast is extra, but a supper of "
                "{food} costs nothing."
            ),
            (
                "Last year's lodger was {before:a}; the present one is {now:a}. {who} comes by every {weekday} for "
                "{rent}, in return for which the guest gets the {room} and, in the evening, a supper of {food}."
            ),
            (
                "{who} lets the {room} to {now:a}. The rent, {rent}, falls due every {weekday} and covers an evening "
                "meal, as a rule {food}; the lodger before, {before:a}, never paid on time."
            ),
        ),
        {
            "now": (
                "What does the lodger do for a living?",
                "What is the present lodger's job?",
                "What is the occupation of the lodger who pays {rent}?",
                "Who rents the {room} at present?",
            ),
            "before": (
                "What was the former lodger's job?",
                "Who lodged there before?",
                "What did the person do who rented the {room} earlier?",
                "Whose place did the {now} take?",
            ),
            "room": (
                "Which room is let?",
                "Where does the lodger live in the house?",
                "Which room does the {now} rent?",
                "For which room does {who} collect the rent?",
            ),
            "rent": (
                "How much is the rent?",
                "What does the lodger pay?",
                "What does the {now} pay to live there?",
                "How much does {who} receive from the lodger?",
            ),
            "weekday": (
                "When is the rent due?",
                "On which day does the lodger pay?",
                "On which day does {who} get the money?",
                "On what day is the {rent} paid?",
            ),
            "food": (
                "What does the lodger get in the evening?",
                "What is served to the lodger for supper?",
                "What does the {now} eat in the evening?",
                "Which dish comes with the {room}?",
            ),
        },
    ),
    Frame(
        "home_bathtub",
        {
            "who": "person",
            "material": "material",
            "weight": "weight",
            "number": "number",
            "price": "price",
            "asked": "price",
            "road": "road",
        },
        (
            (
                "The bathtub that {who} bought in {road} is made of {material} and weighs {weight}. It took {number} "
                "men to get it up the stairs; the dealer had wanted {asked}, yet he let it go for {price}."
            ),
            (
                "{number} men were needed for the {material} bathtub, which weighs {weight}. {who} had seen it in a "
                "yard in {road} with {asked} on the label, and took it home for {price}."
            ),
            (
                "{who} beat the price of {material:a} bathtub down from {asked} to {price}. A cart brought it from "
                "the shop in {road}, and {number} men, groaning under its {weight}, carried it to the first floor."
            ),
        ),
        {
            "material": (
                "What is the bathtub made of?",
                "Of what material is the tub?",
                "What is the bathtub of {who} made of?",
                "What material weighing {weight} had to be carried?",
            ),
            "weight": (
                "How much does the bathtub weigh?",
                "How heavy is the tub?",
                "What is the weight of the tub that {who} bought?",
                "How much did the {number} men have to carry?",
            ),
            "number": (
                "How many men carried the bathtub?",
                "How many people were needed to move the tub?",
                "How many men carried the bathtub for {who}?",
                "How many men did it take to lift {weight}?",
            ),
            "price": (
                "How much did the bathtub cost in the end?",
                "What was paid for the tub?",
                "How much did {who} pay?",
                "For how much was the {asked} bathtub sold?",
            ),
            "asked": (
                "What did the dealer ask for the bathtub?",
                "What was the price of the tub at first?",
                "How much should {who} have paid at first?",
                "What was the label price of the bathtub that went for {price}?",
            ),
            "road": (
                "Where was the bathtub bought?",
                "In which street did the tub come from?",
                "Where did {who} buy the bathtub?",
                "In which street was the {material} tub for sale?",
            ),
        },
    ),
    Frame(
        "home_cradle",
        {
            "who": "person",
            "maker": "relative",
            "knitter": "relative",
            "wood": "material",
            "rockers": "material",
            "year": "year",
            "colour": "colour",
        },
        (
            (
                "{who} was the first child to sleep in the cradle, in {year}. It had been built by the {maker}, of "
                "{wood}, with rockers of {rockers} underneath; the blanket, {colour} with white stripes, was the gift "
                "of the {knitter}."
            ),
            (
                "The family cradle is of {wood} on rockers of {rockers}, and the {maker} made it with a pocket knife "
                "and much patience. In {year}, {who} lay in it before anybody else, wrapped in {colour:a} blanket "
                "from the {knitter}."
            ),
            (
                "When {who} was born in {year}, the {maker} built a cradle out of {wood} and gave it rockers, for "
                "which {rockers} was just the thing. No other child had slept in it before; the blanket, {colour} and "
                "warm, came from the {knitter}."
            ),
        ),
        {
            "maker": (
                "Who built the cradle?",
                "Which relative made the cradle?",
                "Who built the cradle in which {who} slept?",
                "Who worked with {wood}?",
            ),
            "knitter": (
                "Who gave the blanket?",
                "From whom was the blanket?",
                "Which relative provided a blanket for {who}?",
                "Who gave the {colour} blanket?",
            ),
            "wood": (
                "What is the cradle made of?",
                "Of what material was the cradle itself built?",
                "What did the {maker} build the cradle from?",
                "What was the cradle of {who} made of, apart from the rockers?",
            ),
            "rockers": (
                "What are the rockers made of?",
                "Of what material are the rockers under the cradle?",
                "What did the {maker} use for the rockers?",
                "What were the rockers under {who} made of?",
            ),
            "colour": (
                "What colour was the blanket?",
                "Which colour was the blanket in the cradle?",
                "What colour was the blanket from the {knitter}?",
                "In what colour of blanket did {who} lie?",
            ),
            "year": (
                "When was the cradle first used?",
                "In which year did the first child sleep in the cradle?",
                "In what year was {who} laid in the cradle?",
                "When did the {maker} have the cradle ready?",
            ),
        },
    ),
    Frame(
        "home_sunday_lunch",
        {
            "who": "person",
            "cook": "relative",
            "washer": "relative",
            "main": "food",
            "sweet": "food",
            "drink": "drink",
            "clock": "clock",
        },
        (
            (
                "Sunday lunch at the house of {who} begins at {clock} sharp. The {cook} cooks, which means {main} "
                "first and {sweet} afterwards, with {drink} in the big jug, and the {washer} washes up."
            ),
            (
                "{who} invites the whole family for Sunday lunch, to be eaten at {clock}. There is {drink} to drink, "
                "with {main} as the first course and {sweet} as the second, both made by the {cook}; the dishes are "
                "left to the {washer}."
            ),
            (
                "On Sundays the {washer} does the dishes, since it is the {cook} who has stood at the stove all "
                "morning. Lunch with {who} starts at {clock} with {main}, ends with {sweet}, and {drink} is poured "
                "throughout."
            ),
        ),
        {
            "cook": (
                "Who cooks the Sunday lunch?",
                "Which relative stands at the stove on Sundays?",
                "Who cooks when {who} gives lunch?",
                "Who makes the {main}?",
            ),
            "washer": (
                "Who washes up?",
                "Who does the dishes on Sundays?",
                "Who does the washing-up after lunch with {who}?",
                "Whose job is it to clean the plates after the {sweet}?",
            ),
            "main": (
                "What is the first course?",
                "What is eaten first on Sundays?",
                "What does {who} serve first?",
                "What does the {cook} put on the table before anything else?",
            ),
            "sweet": (
                "What is the second course?",
                "What comes at the end of the lunch?",
                "What do the guests of {who} eat last?",
                "What is eaten after the {main}?",
            ),
            "drink": (
                "What is drunk with the Sunday lunch?",
                "What is there to drink?",
                "What is poured at the table of {who}?",
                "What do they drink with the {main}?",
            ),
            "clock": (
                "When is Sunday lunch?",
                "At what time does the lunch begin?",
                "At what time should one be at the house of {who}?",
                "When does the {main} come to the table?",
            ),
        },
    ),
    Frame(
        "home_will",
        {
            "who": "person",
            "a": "person",
            "b": "person",
            "c": "person",
            "thing": "thing",
            "animal": "animal",
            "instrument": "instrument",
        },
        (
            (
                "The lawyer read out the will of {who} in the front room. {a} was to have the {instrument}, {b} the "
                "{animal} and everything in its shed, and {c}, who had expected the house, {thing:a}."
            ),
            (
                "In the will that {who} left, {c} came last and was given {thing:a}. The {instrument} went to {a}, "
                "the {animal} to {b}; the house itself, the lawyer said, would be sold."
            ),
            (
                "{who} had thought about everyone before dying. According to the will, the {animal} belongs to {b} "
                "now, {thing:a} to {c} and the {instrument} to {a}, whose hands alone were thought fit for it."
            ),
        ),
        {
            "instrument": (
                "Which musical instrument was named in the will?",
                "Which instrument was left to somebody?",
                "What did {a} inherit?",
                "Which instrument did {who} leave behind?",
            ),
            "animal": (
                "Which animal was left to somebody in the will?",
                "Which animal has a new owner?",
                "What was {b} given in the will?",
                "Which animal had belonged to {who}?",
            ),
            "thing": (
                "Which thing was inherited besides the animal and the instrument?",
                "Apart from the animal and the instrument, what did the will give away?",
                "What did {c} get?",
                "What was left to {c} in the will?",
            ),
            "a": (
                "Who inherited the instrument?",
                "Who got something to make music on?",
                "Who was left the {instrument}?",
                "To whom did the {instrument} go?",
            ),
            "b": (
                "Who inherited the animal?",
                "To whom was an animal left?",
                "To whom does the {animal} belong now?",
                "Who was given the {animal} by the will?",
            ),
            "c": (
                "Who inherited neither the animal nor the instrument?",
                "Who got neither an instrument nor an animal?",
                "Who was left the {thing}?",
                "To whom did the {thing} go?",
            ),
        },
    ),
    Frame(
        "home_birthday_cake",
        {
            "who": "person",
            "baker": "relative",
            "food": "food",
            "colour": "colour",
            "number": "number",
            "thing": "thing",
            "clock": "clock",
        },
        (
            (
                "At {clock} the lights went out and the birthday cake was carried in, {colour} icing and all, with "
                "{number} candles on it. {who:s} {baker} had baked it, although {who} would sooner have eaten {food}, "
                "and the best of the presents was {thing:a}."
            ),
            (
                "{who} blew out {number} candles in one breath at {clock}. The birthday cake had {colour} icing and "
                "was the work of {who:their} {baker}; {thing:a} was the present liked most, and {food}, {who:they} "
                "said, would be liked even better than cake."
            ),
            (
                "For the birthday, the {baker} baked a cake, covered it with {colour} icing and stuck {number} "
                "candles into it. {who}, who likes {food} much better, was handed it at {clock} and then unpacked "
                "{thing:a}, the favourite present."
            ),
        ),
        {
            "baker": (
                "Who baked the birthday cake?",
                "Which relative made the cake?",
                "Who baked the cake for {who}?",
                "Who was responsible for the {colour} icing?",
            ),
            "colour": (
                "What colour was the icing?",
                "What colour was the birthday cake on the outside?",
                "What colour was the icing on the cake of {who}?",
                "Which colour did the {baker} choose for the cake?",
            ),
            "number": (
                "How many candles were there?",
                "How many candles were on the cake?",
                "How many candles did {who} have?",
                "How many candles did the {baker} put on the cake?",
            ),
            "thing": (
                "What was the best present?",
                "Which present was liked most?",
                "What was {who:s} favourite present?",
                "What was unpacked on the day of the {number} candles?",
            ),
            "food": (
                "What would have been better liked than the cake?",
                "What dish does the birthday child prefer?",
                "What would {who} rather have eaten?",
                "What was preferred to the cake that the {baker} made?",
            ),
            "clock": (
                "When was the cake brought in?",
                "At what time were the candles burning?",
                "At what time did {who} get the cake?",
                "When were the {number} candles blown out?",
            ),
        },
    ),
    Frame(
        "home_pocket_money",
        {
            "elder": "person",
            "younger": "person",
            "much": "price",
            "little": "price",
            "weekday": "weekday",
            "room": "room",
            "drawer": "relative",
        },
        (
            (
                "Pocket money is paid every {weekday} by the {drawer}. {elder}, the elder child, gets {much} and has "
                "to sweep the {room} for it; {younger}, the younger one, gets {little} for doing nothing at all."
            ),
            (
                "Every {weekday} the children line up for their pocket money. It is {little} for {younger}, who is "
                "the younger, and {much} for {elder}, the elder, says the {drawer}, provided that the {room} has been "
                "swept."
            ),
            (
                "The younger child, {younger}, receives {little} in pocket money, the elder, {elder}, {much}. It is "
                "the {drawer} who hands out the coins every {weekday}, after a look at the {room}, which the elder "
                "must sweep."
            ),
        ),
        {
            "much": (
                "How much pocket money does the elder child get?",
                "What is the elder child given?",
                "How much does {elder} get?",
                "What is paid for sweeping the {room}?",
            ),
            "little": (
                "How much pocket money does the younger child get?",
                "What does the younger child receive?",
                "How much is given to {younger}?",
                "What does the younger child get from the {drawer}?",
            ),
            "weekday": (
                "When is pocket money paid?",
                "On which day do the children get their money?",
                "On what day does {elder} receive money?",
                "On which day does the {drawer} hand out the coins?",
            ),
            "room": (
                "Which room has to be swept?",
                "What must be cleaned for the pocket money?",
                "Which room does {elder} sweep?",
                "Which room does the {drawer} look at?",
            ),
            "drawer": (
                "Who pays the pocket money?",
                "Which relative gives the children their money?",
                "Who gives {younger} the coins?",
                "From whom do the children get their money every {weekday}?",
            ),
            "elder": (
                "Who is the elder child?",
                "Who has to sweep?",
                "Which child gets {much}?",
                "Who is older than {younger}?",
            ),
        },
    ),
    Frame(
        "home_dog_walk",
        {
            "pet": "pet",
            "family": "family",
            "early": "clock",
            "late": "clock",
            "morning": "relative",
            "evening": "relative",
            "road": "road",
        },
        (
            (
                "{pet}, the old dog of the {family} family, goes out twice a day: at {early} with the {morning}, "
                "round the pond, and at {late} with the {evening}, never further than {road}."
            ),
            (
                "The morning walk belongs to the {morning}, who fetches the lead at {early}. In the evening, at "
                "{late}, it is the {evening} who takes {pet}, the dog of the {family} family, as far as {road} and "
                "back."
            ),
            (
                "No dog is more punctual than {pet}. The {family} family have agreed that the {evening} does the "
                "evening walk, at {late}, down to {road}, and the {morning} the one in the morning, at {early}."
            ),
        ),
        {
            "pet": (
                "What is the dog's name?",
                "What is the dog called?",
                "What is the name of the dog of the {family} family?",
                "Which dog walks to {road}?",
            ),
            "early": (
                "When is the dog's morning walk?",
                "At what time does the dog first go out?",
                "When does the {morning} walk the dog?",
                "At what time does {pet} go out in the morning?",
            ),
            "late": (
                "When is the dog's evening walk?",
                "At what time does the dog go out for the second time?",
                "When does the {evening} walk the dog?",
                "At what time is {pet} taken out in the evening?",
            ),
            "morning": (
                "Who walks the dog in the morning?",
                "Who takes the dog on its first walk?",
                "Who walks {pet} in the morning?",
                "With whom does the dog go out at {early}?",
            ),
            "evening": (
                "Who walks the dog in the evening?",
                "Who takes the dog on its second walk?",
                "Who goes out with {pet} in the evening?",
                "With whom does the dog go to {road}?",
            ),
            "road": (
                "How far does the evening walk go?",
                "Where does the dog turn round in the evening?",
                "Where does the {evening} go with the dog?",
                "Which road does {pet} reach at night?",
            ),
        },
    ),
    Frame(
        "home_wedding_dress",
        {
            "who": "family",
            "sewer": "person",
            "lender": "person",
            "material": "material",
            "flower": "flower",
            "month": "month",
            "colour": "colour",
        },
        (
            (
                "The daughter of the {who} family was married in {month} in a dress that {sewer} had sewn, with small "
                "buttons of {material}. The veil was lent by {lender}, the sash was {colour}, and the bouquet held "
                "only one kind of flower, the {flower}."
            ),
            (
                "{sewer} sewed the wedding dress, with {colour:a} sash and buttons made of {material}, and {lender} "
                "lent a veil. So the bride from the {who} family walked up the aisle in {month}, holding a bouquet in "
                "which nothing but the {flower} was allowed."
            ),
            (
                "In {month} everyone admired the bride of the {who} family. Her dress, made by {sewer}, had buttons "
                "of {material}; the sash round it was {colour}, the veil belonged to {lender}, and the bouquet was "
                "all of one flower, the {flower}."
            ),
        ),
        {
            "material": (
                "What were the buttons on the wedding dress made of?",
                "Of what material were the buttons?",
                "Which material did {sewer} choose for the buttons?",
                "What were the buttons made of when the {who} daughter was married?",
            ),
            "flower": (
                "Which flower was in the bouquet?",
                "What did the bride carry in her bouquet?",
                "Which flower did the {who} daughter carry?",
                "What was in the bouquet that went with the {colour} sash?",
            ),
            "colour": (
                "What colour was the sash?",
                "Which colour did the bride wear round her waist?",
                "What colour was the sash on the dress that {sewer} made?",
                "What colour was the sash when {lender} had lent the veil?",
            ),
            "month": (
                "When was the wedding?",
                "In which month was the bride married?",
                "In which month was the wedding of the {who} family?",
                "When was the dress that {sewer} made worn?",
            ),
            "sewer": (
                "Who sewed the wedding dress?",
                "Who made the dress?",
                "Who made the dress for the {who} wedding?",
                "Who made the dress with the {colour} sash?",
            ),
            "lender": (
                "Who lent the veil?",
                "To whom did the veil belong?",
                "Who lent something to the bride of the {who} family?",
                "Who was the owner of the veil that went with the {colour} sash?",
            ),
        },
    ),
    Frame(
        "home_reunion",
        {
            "family": "family",
            "came": "number",
            "expected": "number",
            "town": "town",
            "building": "building",
            "month": "month",
            "food": "food",
        },
        (
            (
                "For the family reunion the {family} family hired the {building} in {town}, where tables were laid "
                "for {expected}. In the end {came} relatives came, in the last week of {month}, and what was left of "
                "the {food} was eaten for days."
            ),
            (
                "{expected} guests had been expected at the reunion of the {family} family, but {came} signed the "
                "visitors' book in {month}. The {building} in {town} was just the right size, and everyone talked "
                "about the {food}."
            ),
            (
                "The {family} family met in {month} at the {building} in {town} for their reunion. Nobody had counted "
                "properly: {food} had been cooked for {expected}, and the people who sat down to it were {came}."
            ),
        ),
        {
            "came": (
                "How many relatives came to the reunion?",
                "How many people were really there?",
                "How many members of the {family} family turned up?",
                "How many people came to {town}?",
            ),
            "expected": (
                "How many guests were expected at the reunion?",
                "For how many was everything prepared?",
                "How many people did the {family} family expect?",
                "How many guests was the {building} meant to hold that day?",
            ),
            "town": (
                "Where was the family reunion?",
                "In which town did the relatives meet?",
                "In which town did the {family} family meet?",
                "In what town is the {building} of the reunion?",
            ),
            "building": (
                "In which building was the reunion held?",
                "What had been hired for the reunion?",
                "Where in {town} did the relatives eat?",
                "Which building did the {family} family use?",
            ),
            "month": (
                "When was the reunion?",
                "In which month did the relatives come together?",
                "When did the {family} family meet?",
                "In which month was the {building} hired?",
            ),
            "food": (
                "What was eaten at the reunion?",
                "Which dish was served to the relatives?",
                "What did the {family} family eat?",
                "What was there to eat in {town}?",
            ),
        },
    ),
    Frame(
        "home_bedtime",
        {
            "who": "person",
            "book": "book",
            "before": "book",
            "clock": "clock",
            "reader": "relative",
            "room": "room",
        },
        (
            (
                "The bedtime story starts at {clock}, when the {reader} sits down on the edge of the bed. At the "
                "moment it comes from {book}; {before} was finished last week, and {who}, who is meant to be asleep, "
                "listens from the {room}."
            ),
            (
                "{who} knows {before} by heart, so a new bedtime book has been begun. It is {book}, a chapter of "
                "which is read aloud by the {reader} at {clock}, in the {room}, where the lamp is best."
            ),
            (
                "Chapter by chapter the {reader} is reading {book} aloud as a bedtime story, now that {before} is "
                "over. {who} waits for it in the {room} from supper on, though nothing is ever read before {clock}."
            ),
        ),
        {
            "book": (
                "Which book is being read at bedtime?",
                "From which book does the bedtime story come now?",
                "Which book does {who} hear now?",
                "Which book followed {before}?",
            ),
            "before": (
                "Which book was read before?",
                "Which bedtime book is finished?",
                "Which book did {who} hear earlier?",
                "What was read before {book}?",
            ),
            "clock": (
                "When is the bedtime story read?",
                "At what time does the reading begin?",
                "At what time does {who} hear the story?",
                "At what time does the {reader} start reading?",
            ),
            "reader": (
                "Who reads the bedtime story?",
                "Which relative reads aloud?",
                "Who reads to {who}?",
                "Who is reading {book}?",
            ),
            "room": (
                "Where does the child listen to the story?",
                "In which room is the bedtime story heard?",
                "In which room does {who} listen?",
                "Where can {book} be heard?",
            ),
        },
    ),
    Frame(
        "home_laundry",
        {
            "who": "person",
            "shrunk": "garment",
            "dyed": "garment",
            "lost": "garment",
            "colour": "colour",
            "weekday": "weekday",
        },
        (
            (
                "{who} did the washing on {weekday} and will not be asked again. One garment, the {shrunk}, shrank to "
                "the size of a doll's; the {dyed} came out {colour}; and the {lost}, hung on the line, blew away over "
                "the roofs."
            ),
            (
                "On {weekday} the wind took the {lost} off the washing line. That was the least of it: {who} had "
                "boiled the {shrunk} until it shrank, and put the {dyed} in with something that dyed it {colour}."
            ),
            (
                "Washing day, {weekday}, ended badly for {who}. The {dyed} had turned {colour} in the tub, the "
                "{shrunk} had shrunk so that nobody could get into it, and only a peg was left where the {lost} had "
                "hung before the wind carried it off."
            ),
        ),
        {
            "shrunk": (
                "What shrank in the wash?",
                "Which garment is too small now?",
                "What did {who} make smaller by accident?",
                "Which garment shrank on {weekday}?",
            ),
            "dyed": (
                "What changed its colour in the wash?",
                "Which garment was dyed by mistake?",
                "Which garment turned {colour}?",
                "What did {who} dye by mistake?",
            ),
            "lost": (
                "What blew away?",
                "Which garment did the wind carry off?",
                "What did {who} lose from the line?",
                "What was lost to the wind on {weekday}?",
            ),
            "colour": (
                "What colour did the garment turn?",
                "Which colour came out of the wash?",
                "What colour is the {dyed} now?",
                "What colour did {who} make something by mistake?",
            ),
            "weekday": (
                "When was the washing done?",
                "On which day did the wash go wrong?",
                "On which day did {who} do the laundry?",
                "When did the {lost} blow away?",
            ),
            "who": (
                "Who did the washing?",
                "Who spoiled the laundry?",
                "Who shrank the {shrunk}?",
                "Who gave the {dyed} a new colour?",
            ),
        },
    ),
    Frame(
        "home_twins",
        {
            "one": "person",
            "two": "person",
            "violin": "instrument",
            "game": "game",
            "other": "game",
            "subject": "subject",
            "subject2": "subject",
        },
        (
            (
                "The twins are easy to tell apart. {one}, the one with the glasses, is good at {subject} and plays "
                "{game}; {two}, who has freckles, prefers {other}, does well in {subject2} and keeps the {violin} "
                "under the bed."
            ),
            (
                "Of the twins, it is {two} who has freckles, practises the {violin} and spends the afternoons at "
                "{other}. {one} wears glasses and would rather play {game}; at school the one with the glasses is "
                "best at {subject}, the other at {subject2}."
            ),
            (
                "A pair of glasses marks one of the twins, {one}, who likes {subject} at school and {game} after it. "
                "Freckles mark {two}, whose favourite lesson is {subject2}, whose favourite game is {other}, and "
                "whose {violin} can be heard through the wall."
            ),
        ),
        {
            "violin": (
                "Which instrument does one of the twins have?",
                "What does the twin with the freckles make music on?",
                "Which instrument does {two} have?",
                "What do you hear when {two} makes music?",
            ),
            "game": (
                "What game does the twin with the glasses play?",
                "Which game does the one who wears glasses like?",
                "What game does {one} play?",
                "Which game does the twin who likes {subject} play?",
            ),
            "other": (
                "What game does the twin with the freckles play?",
                "Which game is preferred by the freckled twin?",
                "What is the favourite game of {two}?",
                "Which game does the twin who likes {subject2} play?",
            ),
            "subject": (
                "What is the twin with the glasses good at?",
                "Which subject is best for the one with the glasses?",
                "Which subject does {one} like?",
                "What is the subject of the twin who plays {game}?",
            ),
            "subject2": (
                "In which subject does the twin with the freckles do well?",
                "Which subject is best for the freckled twin?",
                "What is {two} good at?",
                "What is the subject of the twin who plays {other}?",
            ),
            "two": (
                "Which twin plays an instrument?",
                "Which of the twins has freckles?",
                "Which twin plays {other}?",
                "Who is the twin of {one}?",
            ),
            "one": (
                "Which twin wears glasses?",
                "Which of the twins does not have freckles?",
                "Which twin plays {game}?",
                "Who is the twin of {two}?",
            ),
        },
    ),
    Frame(
        "home_night_shift",
        {
            "start": "clock",
            "end": "clock",
            "pause": "clock",
            "drink": "drink",
            "boss": "person",
            "sub": "person",
            "town": "town",
        },
        (
            (
                "The night shift at the glassworks in {town} begins at {start} and ends at {end}. At {pause} the "
                "furnaces are left to themselves for a little while and {drink} is handed round; {boss} is the "
                "foreman, and {sub} stands in when the foreman is on leave."
            ),
            (
                "At the glassworks in {town} the foreman of the night shift is {boss}, for whom {sub} fills in now "
                "and then. The men clock on at {start}, have their break, with {drink}, at {pause}, and are free to "
                "go at {end}."
            ),
            (
                "Until {end} nobody on the night shift may leave the glassworks in {town}. They have started at "
                "{start} and had one break, at {pause}, for a mug of {drink}. The foreman is {boss}, or {sub} "
                "whenever somebody has to stand in."
            ),
        ),
        {
            "start": (
                "When does the night shift begin?",
                "At what time do the men at the glassworks start?",
                "At what time does the shift under {boss} start?",
                "When does night work begin in {town}?",
            ),
            "end": (
                "When does the night shift end?",
                "At what time may the men go home?",
                "Until when do the men work under {boss}?",
                "When is the night shift in {town} over?",
            ),
            "pause": (
                "When is the break on the night shift?",
                "At what time do the men rest?",
                "At what time is {drink} drunk?",
                "When do the men at the glassworks in {town} have a break?",
            ),
            "drink": (
                "What do the men drink in the break?",
                "What is drunk on the night shift?",
                "What is drunk at the glassworks in {town}?",
                "Which drink is to be had at {pause}?",
            ),
            "boss": (
                "Who is the foreman?",
                "Who is in charge of the night shift?",
                "For whom does {sub} stand in?",
                "Who is the foreman at the glassworks in {town}?",
            ),
            "sub": (
                "Who stands in for the foreman?",
                "Who takes charge when the foreman is away?",
                "Who fills in for {boss}?",
                "Who sometimes leads the night shift in {town}?",
            ),
        },
    ),
    Frame(
        "home_career",
        {
            "who": "person",
            "first": "trade",
            "now": "trade",
            "dream": "trade",
            "year": "year",
            "wage": "price",
            "town": "town",
        },
        (
            (
                "{who} started out as {first:a} in {town}, on {wage} a week, and has been {now:a} since {year}. The "
                "dream of {who:their} childhood, to become {dream:a}, was never mentioned at work."
            ),
            (
                "As a child {who} wanted to be {dream:a}. Life in {town} offered a first job as {first:a}, paid with "
                "{wage} a week, and in {year} a better one, as {now:a}, which {who:they} has kept."
            ),
            (
                "The first job that {who} had, as {first:a} in {town}, brought in {wage} a week. In {year} {who:they} "
                "left it and became {now:a}, which {who:they} still is; nobody ever wanted {dream:a} there, and so "
                "the childhood wish came to nothing."
            ),
        ),
        {
            "first": (
                "What was the first job?",
                "What did the career begin with?",
                "What was {who:s} first job?",
                "What job was done in {town} at the start?",
            ),
            "now": (
                "What is the present job?",
                "Which occupation was taken up later and kept?",
                "What is {who:s} job now?",
                "Which job was begun in {year}?",
            ),
            "dream": (
                "What was the childhood dream?",
                "Which trade was wished for but never learnt?",
                "What did {who} want to be as a child?",
                "Which job did the {now} long for as a child?",
            ),
            "year": (
                "When did the job change?",
                "In what year was the better job taken?",
                "Since which year has {who} had the present job?",
                "When was the job as {first:a} given up?",
            ),
            "wage": (
                "What was the weekly wage in the first job?",
                "How much did the first job bring in?",
                "How much did {who} earn at first?",
                "What was the week's pay of the {first}?",
            ),
            "town": (
                "Where was the first job?",
                "In which town did the career begin?",
                "Where did {who} first work?",
                "In what town was there work as {first:a}?",
            ),
        },
    ),
    Frame(
        "home_retirement",
        {
            "who": "person",
            "next": "person",
            "speaker": "person",
            "gift": "thing",
            "number": "number",
            "age": "age",
        },
        (
            (
                "After {number} years of carrying letters, the postman {who} has retired at {age}. {speaker} made the "
                "speech in the sorting room, the colleagues gave {gift:a}, and the round has been taken over by "
                "{next}."
            ),
            (
                "The letters are brought by {next} now, for {who}, who was the postman here for {number} years, "
                "retired at the age of {age}. There was a speech by {speaker} and a present, {gift:a}, from the "
                "colleagues."
            ),
            (
                "{who} has delivered the last letter. At {age}, with {number} years behind {who:them} and {gift:a}, a "
                "present from the colleagues, under one arm, the postman retired, thanked {speaker} for the speech "
                "and wished {next}, the successor, dry weather."
            ),
        ),
        {
            "who": (
                "Who has retired?",
                "Which postman stopped work?",
                "Who was given the {gift}?",
                "About whom did {speaker} make a speech?",
            ),
            "next": (
                "Who is the new postman?",
                "Who has taken over the round?",
                "Who followed {who}?",
                "Who brings the letters after the retirement of {who}?",
            ),
            "speaker": (
                "Who made the speech?",
                "Who spoke at the farewell?",
                "Who gave the speech for {who}?",
                "Who spoke on the day of the {gift}?",
            ),
            "gift": (
                "What did the colleagues give?",
                "What was the farewell present?",
                "What was {who} given?",
                "What was given away after {number} years?",
            ),
            "number": (
                "How many years did the postman work?",
                "For how many years were letters carried?",
                "For how many years did {who} deliver letters?",
                "How many years lay behind the postman at the age of {age}?",
            ),
            "age": (
                "How old is the retired postman?",
                "At what age did the postman retire?",
                "At what age did {who} stop work?",
                "How old was the postman after {number} years of service?",
            ),
        },
    ),
    Frame(
        "home_strike",
        {
            "month_start": "month",
            "month_end": "month",
            "asked": "price",
            "got": "price",
            "leader": "person",
            "town": "town",
            "before": "price",
        },
        (
            (
                "The women of the cannery in {town} earned {before} a week, asked for {asked} and went on strike in "
                "{month_start}. {leader} spoke for them at the gate; when the strike was over, in {month_end}, they "
                "had {got}."
            ),
            (
                "Led by {leader}, the women at the cannery in {town} stopped work in {month_start}. They had been "
                "paid {before} a week and called for {asked}; in {month_end} they settled for {got} and ended the "
                "strike."
            ),
            (
                "In {month_end} the strike at the cannery in {town} ended with a weekly wage of {got}. Before it they "
                "had been paid {before}, and it was for {asked} that {leader} had led the women out in {month_start}."
            ),
        ),
        {
            "month_start": (
                "When did the strike begin?",
                "In which month did the women stop work?",
                "In which month did {leader} lead the women out?",
                "When did the cannery in {town} come to a stop?",
            ),
            "month_end": (
                "When did the strike end?",
                "In which month was the strike over?",
                "In which month was a wage of {got} agreed?",
                "Until which month were the women of {town} on strike?",
            ),
            "asked": (
                "What wage did the women demand?",
                "How much did the strikers ask for?",
                "How much a week did the women under {leader} ask for?",
                "What did the women of {town} want to be paid?",
            ),
            "got": (
                "What wage did the women get in the end?",
                "What was the result of the strike, in money a week?",
                "How much was agreed instead of {asked}?",
                "What wage had been won by {month_end}?",
            ),
            "before": (
                "What did the women earn before the strike?",
                "How much was the old wage?",
                "What was paid in {town} before the strike?",
                "What was the weekly wage before {leader} led the strike?",
            ),
            "leader": (
                "Who led the strike?",
                "Who was at the head of the women?",
                "Who led the women of {town}?",
                "Who was the leader when {asked} was demanded?",
            ),
        },
    ),
    Frame(
        "home_canteen",
        {
            "food": "food",
            "food2": "food",
            "drink": "drink",
            "price": "price",
            "building": "building",
            "cook": "person",
        },
        (
            (
                "The staff canteen is on the ground floor of the {building}, where a hot meal costs {price}. {cook}, "
                "the cook, serves {food} every Monday without fail and {food2} every Friday, with as much {drink} as "
                "anyone wants."
            ),
            (
                "Every Friday the staff canteen smells of {food2}, every Monday of {food}: {cook}, who does the "
                "cooking, holds to old habits. A meal comes to {price}, {drink} is there to drink, and the door is at "
                "the back of the {building}."
            ),
            (
                "For {price} one can eat, and drink {drink}, in the staff canteen behind the {building}. The dish on "
                "Mondays is always {food} and on Fridays always {food2}, and nobody has dared to ask {cook}, the "
                "cook, for a change."
            ),
        ),
        {
            "food": (
                "What is there to eat in the canteen on Monday?",
                "What is the dish on Mondays?",
                "What does {cook} cook every Monday?",
                "What is eaten every Monday at the {building}?",
            ),
            "food2": (
                "What does the canteen serve on Fridays?",
                "What can the staff eat on Friday?",
                "What does {cook} make for Friday?",
                "What does one get for {price} on a Friday?",
            ),
            "drink": (
                "What is there to drink in the canteen?",
                "What do the staff drink with the meal?",
                "What is drunk with what {cook} cooks?",
                "What do people drink in the canteen at the {building}?",
            ),
            "price": (
                "How much is a meal in the canteen?",
                "What do the staff pay for a hot meal?",
                "What does it cost to eat what {cook} cooks?",
                "How much does one pay for a meal at the {building}?",
            ),
            "building": (
                "Where is the canteen?",
                "In or at which building do the staff eat?",
                "At which building does {cook} work?",
                "Where can one have a meal for {price}?",
            ),
            "cook": (
                "Who cooks in the canteen?",
                "What is the cook's name?",
                "Who makes {food} for the staff?",
                "Which person feeds the staff at the {building}?",
            ),
        },
    ),
    Frame(
        "home_office",
        {
            "company": "company",
            "old": "road",
            "new": "road",
            "number": "number",
            "reason": "reason",
            "means": "means",
            "month": "month",
        },
        (
            (
                "In {month} the head office of {company} moved from {old} to {new} because {reason}. All {number} "
                "desks went {means}, and the clerks, who trusted nobody else, carried the rubber plant themselves."
            ),
            (
                "The clerks of {company} have had their office in {new} since {month}. They had to give up the rooms "
                "in {old}, because {reason}, and {number} desks and a rubber plant were taken across the town "
                "{means}."
            ),
            (
                "No clerk had wanted to leave {old}. But {company} moved its office to {new} in {month}, because "
                "{reason}; the {number} desks travelled {means}, and the rubber plant on somebody's knees."
            ),
        ),
        {
            "new": (
                "Where is the office now?",
                "To which street did the office move?",
                "Where does {company} have its office now?",
                "Where did the {number} desks go?",
            ),
            "old": (
                "Where was the office before?",
                "From where did the office move?",
                "Where did the clerks of {company} work earlier?",
                "Where were the {number} desks at first?",
            ),
            "number": (
                "How many desks were moved?",
                "How many desks does the office have?",
                "How many desks were taken to {new}?",
                "How many desks did {company} move?",
            ),
            "reason": (
                "Why did the office move?",
                "Why could the clerks not stay?",
                "Why did {company} give up its rooms?",
                "Why did the clerks leave {old}?",
            ),
            "means": (
                "How were the desks moved?",
                "How did the desks travel?",
                "How did the {number} desks get to the new rooms?",
                "How did {company} transport the desks?",
            ),
            "month": (
                "When did the office move?",
                "In which month did the clerks change their address?",
                "Since when has {company} had its new office?",
                "In which month were the desks brought to {new}?",
            ),
        },
    ),
    Frame(
        "home_workbench",
        {
            "who": "person",
            "old": "tool",
            "lent": "tool",
            "broken": "tool",
            "wood": "material",
            "handle": "material",
            "neighbour": "person",
        },
        (
            (
                "Above the workbench of {who}, which is made of {wood}, every tool has its nail. The oldest tool "
                "there is the {old}, with a handle of {handle}; one tool, the {lent}, is missing because of "
                "{neighbour}, who borrowed it, and the {broken} broke in the frost."
            ),
            (
                "{who} built the workbench out of {wood} and hung the tools over it. One nail is empty, since "
                "{neighbour} has borrowed the {lent}; from another hangs the one tool that is broken, the {broken}; "
                "and in the middle is the oldest piece, the {old}, its handle carved from {handle}."
            ),
            (
                "The oldest tool that {who} owns is the {old}, whose handle was cut from {handle}. It lies on a "
                "workbench of {wood} beside the {broken}, which nobody can use since it broke, and the place of the "
                "{lent} is empty until {neighbour} returns what was borrowed."
            ),
        ),
        {
            "old": (
                "Which tool is the oldest?",
                "What is the oldest thing at the workbench?",
                "What is the oldest tool that {who} has?",
                "Which tool has a handle of {handle}?",
            ),
            "lent": (
                "Which tool has been borrowed?",
                "Which tool is missing?",
                "Which tool did {neighbour} borrow?",
                "What did {who} lend to somebody?",
            ),
            "broken": (
                "Which tool is broken?",
                "Which tool is of no use any more?",
                "Which of the tools of {who} broke?",
                "Which tool is broken, while {neighbour} has another?",
            ),
            "wood": (
                "What is the workbench made of?",
                "Of what material is the bench for the tools?",
                "What did the bench of {who} get built from?",
                "On what kind of bench does the {old} belong?",
            ),
            "handle": (
                "What is the handle of the oldest tool made of?",
                "Of what material is the old handle?",
                "What is the handle of the {old} made of?",
                "What material did {who} have in the handle of the oldest tool?",
            ),
            "neighbour": (
                "Who borrowed a tool?",
                "Who has to return something to the workbench?",
                "Who borrowed something from {who}?",
                "Who has the {lent}?",
            ),
        },
    ),
    Frame(
        "home_apprentice",
        {
            "who": "person",
            "master": "person",
            "nurse": "relative",
            "tool": "tool",
            "blame": "tool",
            "trade": "trade",
            "duration": "duration",
        },
        (
            (
                "{who}, apprentice to the {trade} {master}, cut a thumb on the second morning. It was the {tool} that "
                "did it, not the {blame}, as {who:they} told the {nurse} who bandaged the wound, and {duration} went "
                "by before work could go on."
            ),
            (
                "The apprentice came home from the {trade} with a cut thumb, and it was the {nurse} who put the "
                "bandage on. {who} had blamed the {blame}, but {master}, the master, said that the {tool} had done "
                "it; the wound took {duration} to heal."
            ),
            (
                "For {duration} the apprentice could not work because of a cut thumb. {who} had been told by "
                "{master}, the {trade}, to be careful with the {blame}, and so {who:they} was; it was the {tool} that "
                "cut so deep that the {nurse} needed a long bandage."
            ),
        ),
        {
            "tool": (
                "What cut the thumb?",
                "Which tool caused the wound?",
                "On which tool did {who} get the wound?",
                "Which tool was it that hurt the apprentice of {master}?",
            ),
            "blame": (
                "Which tool did not cause the wound?",
                "Which tool was not to blame?",
                "Which tool had not hurt {who}?",
                "Which tool was harmless, though not the {tool}?",
            ),
            "trade": (
                "Which trade was the apprentice learning?",
                "What kind of craftsman was the master?",
                "What was the trade of {master}?",
                "Which trade did {who} want to learn?",
            ),
            "duration": (
                "How long did the wound keep the apprentice from work?",
                "How long did the thumb take to get better?",
                "How long did {who} have to wait for the thumb to heal?",
                "How long did {master} do without the apprentice?",
            ),
            "nurse": (
                "Who bandaged the thumb?",
                "Which relative looked after the wound?",
                "Who put a bandage on {who:s} thumb?",
                "Who treated the wound that the {tool} had made?",
            ),
            "master": (
                "Who was the master?",
                "Whose apprentice cut a thumb?",
                "To whom was {who} apprenticed?",
                "Who was the master {trade}?",
            ),
        },
    ),
    Frame(
        "home_ladder",
        {
            "who": "person",
            "sub": "person",
            "building": "building",
            "illness": "illness",
            "duration": "duration",
            "garment": "garment",
            "means": "means",
        },
        (
            (
                "{who}, the sign painter, fell off a ladder at the {building} in {garment:a} that caught on a nail. "
                "{who:They} was taken to hospital {means} and was in bed for {duration}, with {illness} on top of it; "
                "{sub} finished the sign."
            ),
            (
                "The sign on the {building} was begun by {who} and finished by {sub}. Between the two came a fall "
                "from the ladder, caused by {garment:a} catching on a nail, a journey {means} to the hospital, "
                "{duration} in bed and, to make things worse, {illness}."
            ),
            (
                "{who} fell from the ladder in front of the {building}, because {garment:a} had got caught on a nail. "
                "The hospital, reached {means}, kept the painter in bed for {duration}, where {illness} was added to "
                "the bruises, and the half-painted sign was completed by {sub}."
            ),
        ),
        {
            "building": (
                "At which building did the painter fall?",
                "Where was the ladder standing?",
                "Where did {who} fall?",
                "On which building did {sub} paint?",
            ),
            "garment": (
                "What caught on the nail?",
                "Which garment caused the fall?",
                "What got caught when {who} was on the ladder?",
                "Which garment made the painter of the {building} fall?",
            ),
            "means": (
                "How did the painter get to hospital?",
                "How was the journey to the hospital made?",
                "How was {who} taken to hospital?",
                "How did the painter travel after falling at the {building}?",
            ),
            "duration": (
                "How long was the painter in bed?",
                "For how long did the painter have to lie down?",
                "How long did {who} stay in bed?",
                "For how long was the painter of the {building} in bed?",
            ),
            "illness": (
                "What made the painter's days in bed even worse?",
                "From what did the painter suffer in bed?",
                "What was wrong with {who} in hospital, apart from the fall?",
                "What was the illness of the painter from the {building}?",
            ),
            "sub": (
                "Who finished the sign?",
                "Who took over the painting?",
                "Who completed what {who} had begun?",
                "Who finished the work on the {building}?",
            ),
        },
    ),
    Frame(
        "home_bus",
        {
            "first": "clock",
            "last": "clock",
            "road": "road",
            "end": "town",
            "number": "number",
            "colour": "colour",
            "driver": "person",
        },
        (
            (
                "The first bus leaves {road} at {first}, the last at {last}, and both go to {end}. The driver, "
                "{driver}, wears {colour} gloves in all seasons and counts the passengers: the bus has {number} seats "
                "and nobody may stand."
            ),
            (
                "{driver}, who drives the bus between {road} and its last stop, {end}, is known for wearing {colour} "
                "gloves. There are {number} seats in the vehicle; it sets out for the first time at {first} and for "
                "the last time at {last}."
            ),
            (
                "With {number} seats and a driver in {colour} gloves, {driver}, the bus starts its first journey from "
                "{road} at {first}. Whoever wants to go to {end} after {last}, when the last one leaves, will have to "
                "walk."
            ),
        ),
        {
            "first": (
                "When does the first bus leave?",
                "At what time does the earliest bus set out?",
                "When does {driver} start the first journey?",
                "At what time does the first bus to {end} leave?",
            ),
            "last": (
                "When does the last bus leave?",
                "Until what time can one catch a bus?",
                "When does {driver} start for the last time?",
                "At what time does the last bus to {end} go?",
            ),
            "road": (
                "Where does the bus start?",
                "From which street does the bus leave?",
                "Where does one board the bus to {end}?",
                "In which street does {driver} begin the journey?",
            ),
            "end": (
                "Where does the bus go?",
                "What is the last stop?",
                "To which town does the bus from {road} go?",
                "Where does {driver} drive the passengers?",
            ),
            "number": (
                "How many seats are there in the bus?",
                "How many passengers can ride at a time?",
                "How many seats does the bus of {driver} have?",
                "For how many is there room in the bus to {end}?",
            ),
            "colour": (
                "What colour are the driver's gloves?",
                "Which colour does the driver wear on his hands?",
                "What colour are the gloves of {driver}?",
                "What colour are the gloves of the driver to {end}?",
            ),
        },
    ),
    Frame(
        "home_timetable",
        {
            "weekday": "weekday",
            "first": "subject",
            "after": "subject",
            "off": "subject",
            "teacher": "person",
            "reason": "reason",
            "school": "school",
        },
        (
            (
                "At {school} every {weekday} begins with {first}; after lunch comes {after}. This week the lesson in "
                "{off}, which {teacher} should have given in between, was cancelled because {reason}."
            ),
            (
                "The pupils of {school} have {first} in the first lesson of {weekday} and {after} straight after "
                "lunch. They had been looking forward to {off} with {teacher}, but it was dropped, because {reason}."
            ),
            (
                "Nobody at {school} had to learn any {off} on {weekday}: {teacher} cancelled the lesson because "
                "{reason}. There was still {first}, in the first lesson of the morning, and {after}, right after "
                "lunch."
            ),
        ),
        {
            "first": (
                "What is the first lesson of the day?",
                "With which subject does the morning begin?",
                "What do the pupils of {school} learn first?",
                "Which subject comes first on {weekday}?",
            ),
            "after": (
                "What is taught after lunch?",
                "Which lesson follows the midday meal?",
                "What do the pupils of {school} have after lunch?",
                "Which subject is taught after lunch on {weekday}?",
            ),
            "off": (
                "Which lesson was cancelled?",
                "Which subject was not taught?",
                "Which lesson did {teacher} not give?",
                "Which lesson was dropped at {school}?",
            ),
            "weekday": (
                "On which day was a lesson cancelled?",
                "For which day does the timetable hold?",
                "On which day do the lessons begin with {first}?",
                "On what day is there {after} in the afternoon?",
            ),
            "reason": (
                "Why was the lesson cancelled?",
                "Why did one lesson not take place?",
                "Why did {teacher} not teach?",
                "Why was there no {off}?",
            ),
            "teacher": (
                "Who cancelled a lesson?",
                "Whose lesson was dropped?",
                "Who teaches {off}?",
                "Which teacher at {school} gave no lesson?",
            ),
        },
    ),
    Frame(
        "home_school_play",
        {
            "lead": "person",
            "under": "person",
            "scenery": "person",
            "date": "date",
            "room": "room",
            "thing": "thing",
            "planned": "date",
        },
        (
            (
                "The school play was put off from {planned} to {date}, since {lead}, in the leading role, had lost "
                "{lead:their} voice. {under} knew the part, too, but stayed in the {room} with the curtain ropes; the "
                "forest was painted by {scenery}, and the audience laughed most at {thing:a} that fell from it."
            ),
            (
                "On {date} the pupils at last put on their school play, which had been announced for {planned}. "
                "{lead} had the leading role, {scenery} had painted the forest, {thing:a} fell down and made "
                "everybody laugh, and {under}, who had learnt the lead as a substitute, waited in the {room} in vain."
            ),
            (
                "Nobody needed {under}, the substitute, who sat in the {room} throughout the school play. {lead} "
                "played the lead as planned, if on {date} rather than {planned}, in front of a forest from the brush "
                "of {scenery}; only {thing:a} that fell over drew more laughter."
            ),
        ),
        {
            "lead": (
                "Who played the leading role?",
                "Who had the main part in the school play?",
                "For whom was {under} the substitute?",
                "Who had the lead on {date}?",
            ),
            "under": (
                "Who was the substitute?",
                "Who knew the main part but did not play it?",
                "Who could have replaced {lead}?",
                "Who sat in the {room}?",
            ),
            "scenery": (
                "Who painted the forest?",
                "Who made the scenery?",
                "Who painted the forest in which {lead} acted?",
                "Who did the painting for the play on {date}?",
            ),
            "date": (
                "On which date was the school play given?",
                "When did the pupils really perform?",
                "On what date did {lead} play the main part?",
                "When was the play given that should have been on {planned}?",
            ),
            "planned": (
                "For which date was the school play announced?",
                "When should the pupils have performed at first?",
                "When should {lead} have played at first?",
                "On what date had the play of {date} been meant to take place?",
            ),
            "thing": (
                "What fell down during the play?",
                "What made the audience laugh?",
                "What fell while {lead} was on the stage?",
                "What drew laughter on {date}?",
            ),
            "room": (
                "Where did the substitute wait?",
                "In which room was the substitute?",
                "Where was {under} during the play?",
                "In which room was the person who could have replaced {lead}?",
            ),
        },
    ),
    Frame(
        "home_head_teacher",
        {
            "now": "person",
            "before": "person",
            "year": "year",
            "ban": "game",
            "allow": "game",
            "school": "school",
            "garment": "garment",
        },
        (
            (
                "When {now} became head teacher of {school} in {year}, {ban} was forbidden in the yard and {allow} "
                "allowed. The old head, {before}, had cared for nothing but manners and was never seen without "
                "{garment:a}."
            ),
            (
                "The head teacher of {school} is {now}, who took over from {before} in {year}. Under the new rules "
                "the pupils may play {allow} in the yard but not {ban}, and {garment:a}, once the mark of the old "
                "head, hangs forgotten behind the door."
            ),
            (
                "In {year}, {before}, a head teacher who always went about in {garment:a}, handed {school} over to "
                "{now}. What is forbidden in the yard since then is {ban}; on the other hand, anyone may play {allow} "
                "there."
            ),
        ),
        {
            "now": (
                "Who is the head teacher now?",
                "Who took over the school?",
                "Who is the present head teacher of {school}?",
                "Who followed {before}?",
            ),
            "before": (
                "Who was the head teacher before?",
                "Who handed the school over?",
                "Who led the school until {year}?",
                "Whose place did {now} take?",
            ),
            "ban": (
                "Which game is forbidden in the yard?",
                "What may the pupils not play?",
                "Which game is forbidden under {now}?",
                "What is not to be played at {school}?",
            ),
            "allow": (
                "Which game is allowed in the yard?",
                "What may the pupils play?",
                "Which game is allowed under {now}?",
                "Which game may one play at {school}?",
            ),
            "year": (
                "When did the new head teacher take over?",
                "In which year did the school get a new head?",
                "In which year did {now} become head teacher?",
                "Until what year was {before} the head?",
            ),
            "garment": (
                "What did the old head always wear?",
                "Which garment was the mark of the former head?",
                "What used {before} to wear?",
                "Which garment belonged to the head before {now}?",
            ),
        },
    ),
    Frame(
        "home_class_pet",
        {
            "animal": "animal",
            "pet": "pet",
            "crop": "crop",
            "never": "crop",
            "carer": "person",
            "weekend": "person",
            "teacher": "person",
            "number": "number",
        },
        (
            (
                "The class of {teacher} keeps a small {animal} named {pet} by the window, in a cage that {number} "
                "children built together. It lives on {crop} and will not touch {never}; {carer} feeds it on school "
                "days, {weekend} at the weekend."
            ),
            (
                "In the cage by the classroom window, built by {number} children, sits {pet}, a little {animal}. "
                "{carer} is in charge of the food from Monday to Friday and {weekend} takes over for the weekend; it "
                "gets {crop}, as it leaves {never} lying. The teacher, {teacher}, only sweeps the floor."
            ),
            (
                "{teacher} was against it at first, but then {number} children built a cage and the class got its "
                "{animal}. It answers to the name of {pet}, eats {crop}, refuses {never}, and goes home with "
                "{weekend} for the weekend, while {carer} looks after it on school days."
            ),
        ),
        {
            "animal": (
                "Which animal lives in the classroom?",
                "What kind of animal does the class have?",
                "What is {pet}?",
                "Which animal does {carer} feed?",
            ),
            "pet": (
                "What is the name of the animal in the classroom?",
                "What is the class animal called?",
                "What is the {animal} called?",
                "What does {weekend} call the animal in the cage?",
            ),
            "crop": (
                "What does the classroom animal eat?",
                "What is the animal fed with?",
                "What does {pet} live on?",
                "What does {carer} give the animal?",
            ),
            "never": (
                "What will the classroom animal not eat?",
                "Which food is refused?",
                "What does {pet} refuse?",
                "What should {carer} not put in the cage?",
            ),
            "carer": (
                "Who feeds the animal on school days?",
                "Who looks after the animal during the week?",
                "Who feeds {pet} on school days?",
                "Which child has charge of the {animal} from Monday to Friday?",
            ),
            "weekend": (
                "Who looks after the animal at the weekend?",
                "Who takes care of the animal on Saturdays and Sundays?",
                "Who has {pet} at the weekend?",
                "Which child feeds the {animal} when there is no school?",
            ),
            "number": (
                "How many children built the cage?",
                "How many builders did the cage have?",
                "How many children built a home for {pet}?",
                "How many children made the cage for the {animal}?",
            ),
        },
    ),
    Frame(
        "home_spelling",
        {
            "first": "person",
            "second": "person",
            "prize": "thing",
            "prize2": "book",
            "number": "number",
            "school": "school",
            "word": "flower",
        },
        (
            (
                "{first} won the spelling contest at {school} after {number} words. The word on which {second}, who "
                'came second, stumbled was "{word}"; the winner took home {prize:a}, the runner-up a copy of '
                "{prize2}."
            ),
            (
                "The first prize in the spelling contest at {school} was {prize:a} and went to {first}; the second, "
                'the book {prize2}, was for {second}. After {number} words the two were still level, until "{word}" '
                "decided the matter."
            ),
            (
                "For {number} words neither {first} nor {second} made a mistake in the spelling contest at {school}. "
                'Then "{word}" proved one too many for {second}, who was consoled with {prize2}, a book, while '
                "{first} as the winner received {prize:a}."
            ),
        ),
        {
            "first": (
                "Who won the spelling contest?",
                "Who spelt best?",
                "Who was better at spelling than {second}?",
                "Who won the {prize}?",
            ),
            "second": (
                "Who came second in the spelling contest?",
                "Who made a mistake in the end?",
                "Whom did {first} beat?",
                "Who was given {prize2}?",
            ),
            "prize": (
                "What was the first prize in the spelling contest?",
                "What did the winner get?",
                "What did {first} win?",
                "What was the main prize at {school}?",
            ),
            "prize2": (
                "What was the second prize?",
                "Which book was given to the runner-up?",
                "Which book did {second} get?",
                "What was the second prize at {school}?",
            ),
            "number": (
                "After how many words was the contest decided?",
                "How many words were spelt without a mistake?",
                "After how many words did {second} fail?",
                "How many words did it take at {school}?",
            ),
            "word": (
                "Which word decided the spelling contest?",
                "Which word was too difficult?",
                "Which word did {second} get wrong?",
                "What word decided the contest at {school}?",
            ),
        },
    ),
    Frame(
        "home_sports_day",
        {
            "planned": "weekday",
            "held": "weekday",
            "weather": "weather",
            "spoon": "person",
            "sack": "person",
            "length": "length",
            "food": "food",
        },
        (
            (
                "Sports day was to have been on {planned}, but on account of {weather} the children ran on {held} "
                "instead. {spoon} won the egg-and-spoon race, {sack} the sack race over {length}, and everybody was "
                "given {food}."
            ),
            (
                "{spoon} was first in the egg-and-spoon race, and in the sack race, which was run over {length}, it "
                "was {sack} who reached the line first. That was on {held}: on {planned}, the day fixed for sports "
                "day, {weather} had kept the children indoors, eating the {food} meant for the winners."
            ),
            (
                "Because of {weather}, sports day was moved from {planned} to {held}. The sack race, {length} long, "
                "was won by {sack} and the egg-and-spoon race by {spoon}, and afterwards everyone ate {food} on the "
                "grass."
            ),
        ),
        {
            "planned": (
                "When should sports day have been?",
                "For which day was sports day planned?",
                "On what day did {weather} spoil the sports?",
                "On which day should {spoon} have run at first?",
            ),
            "held": (
                "When was sports day held?",
                "On which day did the children run?",
                "When did {sack} win a race?",
                "On which day was {spoon} the fastest?",
            ),
            "weather": (
                "Why was sports day put off?",
                "What kind of weather did they have at first?",
                "What was the weather on {planned}?",
                "Which weather delayed the victory of {sack}?",
            ),
            "spoon": (
                "Who won the egg-and-spoon race?",
                "Who was best with an egg on a spoon?",
                "Who won the other race, if {sack} won the sack race?",
                "Who won the egg race on {held}?",
            ),
            "sack": (
                "Who won the sack race?",
                "Who was the fastest in a sack?",
                "Who won the race over {length}?",
                "Who won the sack race on {held}?",
            ),
            "length": (
                "How long was the sack race?",
                "Over what distance did the children hop in sacks?",
                "How far did {sack} have to go?",
                "How long was the sack race on {held}?",
            ),
            "food": (
                "What did the children eat on sports day?",
                "What was there to eat?",
                "What did {spoon} and the others eat?",
                "Which food was eaten at the sports in spite of {weather}?",
            ),
        },
    ),
    Frame(
        "home_school_trip",
        {
            "building": "building",
            "there": "means",
            "back": "means",
            "lost": "person",
            "garment": "garment",
            "clock": "clock",
            "number": "number",
        },
        (
            (
                "On the school trip to the {building} the class travelled {there} and came home {back}. {lost} had "
                "gone back for {garment:a} left in the cloakroom, and was missing at {clock}, when all {number} "
                "pupils should have been at the gate."
            ),
            (
                "The class of {number} went to see the {building} on a school trip, {there} on the way out and {back} "
                "on the way home. At {clock} the teacher counted heads: {lost} was not among them, but was searching "
                "the cloakroom for {garment:a} left behind."
            ),
            (
                "{lost} had left {garment:a} behind on the school trip, and that is why one of the {number} pupils "
                "was missing at {clock}, when the rest wanted to go home {back}. They had come {there} in the morning "
                "to visit the {building}."
            ),
        ),
        {
            "building": (
                "Where did the school trip go?",
                "Which building did the class visit?",
                "Which building did {lost} see with the class?",
                "What did the {number} pupils go and see?",
            ),
            "there": (
                "How did the class get there?",
                "How did the pupils travel on the way out?",
                "How did {lost} travel in the morning?",
                "How did the class get to the {building}?",
            ),
            "back": (
                "How did the class get home?",
                "How did the pupils travel on the way back?",
                "How was {lost} to travel home?",
                "How did the {number} pupils come back?",
            ),
            "garment": (
                "What was left behind on the school trip?",
                "Which garment was forgotten?",
                "What did {lost} go back for?",
                "Which garment did a pupil leave at the {building}?",
            ),
            "clock": (
                "When was a pupil missing?",
                "At what time were the pupils counted?",
                "At what time was {lost} missed?",
                "At what time was somebody missing at the {building}?",
            ),
            "number": (
                "How many pupils were in the class?",
                "How many children went on the trip?",
                "How many pupils visited the {building}?",
                "How many were in the class of {lost}?",
            ),
            "lost": (
                "Who was missing on the school trip?",
                "Which pupil did not come to the meeting place?",
                "Who had left the {garment} behind?",
                "Who was missing at {clock}?",
            ),
        },
    ),
    Frame(
        "home_uniform",
        {
            "jacket": "colour",
            "tie": "colour",
            "cap": "colour",
            "school": "school",
            "price": "price",
            "month": "month",
            "garment": "garment",
        },
        (
            (
                "The uniform of {school} consists of {jacket:a} jacket, {tie:a} tie and, outdoors, {cap:a} cap. From "
                "{month} it costs {price}, because {garment:a} for cold days has been added to the list."
            ),
            (
                "From {month} on, the pupils of {school} have to buy {garment:a} as well, which brings the price of "
                "the uniform to {price}. The jacket is still {jacket}, as the tie is {tie} and the cap, which nobody "
                "wears, {cap}."
            ),
            (
                "For {price} the parents get a cap in {cap}, a jacket in {jacket} and a tie in {tie}; that is the "
                "uniform at {school}. In {month}, {garment:a} becomes part of it, to be worn on cold days."
            ),
        ),
        {
            "jacket": (
                "What colour is the school jacket?",
                "Which colour must the jacket have?",
                "What colour is the jacket at {school}?",
                "What colour is the jacket worn with the {tie} tie?",
            ),
            "tie": (
                "What colour is the school tie?",
                "Which colour do the pupils wear round the neck?",
                "What colour is the tie at {school}?",
                "What colour is the tie that goes with the {jacket} jacket?",
            ),
            "cap": (
                "What colour is the cap?",
                "Which colour do the pupils wear on the head?",
                "What colour is the cap at {school}?",
                "Which colour has the cap that belongs to the {jacket} jacket?",
            ),
            "price": (
                "How much does the uniform cost?",
                "What do the parents pay for it?",
                "What is the price of the uniform at {school}?",
                "How much is the uniform from {month} on?",
            ),
            "month": (
                "When does the list for the uniform change?",
                "From which month is there something new to buy?",
                "In which month is the {garment} added?",
                "When does {school} change its uniform?",
            ),
            "garment": (
                "What has been added to the uniform?",
                "Which garment is new on the list?",
                "What new garment must pupils of {school} buy?",
                "What becomes part of the uniform in {month}?",
            ),
        },
    ),
    Frame(
        "home_shoe_shop",
        {
            "owner": "person",
            "helper": "relative",
            "open": "clock",
            "close": "clock",
            "shut": "weekday",
            "road": "road",
            "animal": "animal",
        },
        (
            (
                "The shoe shop in {road} opens at {open} and closes at {close}, except on {shut}, when it stays shut "
                "all day. {owner} owns it, {owner:their} {helper} stands behind the counter, and a wooden {animal} in "
                "the window shows what shoes are not for."
            ),
            (
                "{owner} keeps a shoe shop in {road}, with a wooden {animal} in the window. From {open}, when it "
                "opens, until {close}, when the blind comes down, customers are served by {owner:their} {helper}, and "
                "{shut} is the day on which the shop is closed."
            ),
            (
                "Children know the shoe shop in {road} by the wooden {animal} in its window. It belongs to {owner}, "
                "though the person one meets at the counter is the {helper}; one can buy there from {open} to "
                "{close}, every day but {shut}."
            ),
        ),
        {
            "open": (
                "When does the shoe shop open?",
                "From what time can one buy shoes?",
                "At what time does the shop of {owner} open?",
                "When do the doors open in {road}?",
            ),
            "close": (
                "When does the shoe shop close?",
                "Until what time can one buy shoes?",
                "At what time does {owner} close the shop?",
                "When does the shop in {road} shut in the evening?",
            ),
            "shut": (
                "On which day is the shoe shop closed?",
                "On what day of the week can no shoes be bought?",
                "On which day does {owner} keep the shop shut?",
                "On which day can one not shop in {road}?",
            ),
            "helper": (
                "Who serves the customers?",
                "Who stands at the counter of the shoe shop?",
                "Who serves in the shop of {owner}?",
                "Whom does one meet at the counter in {road}?",
            ),
            "animal": (
                "What stands in the window of the shoe shop?",
                "Which wooden animal is on show?",
                "What animal did {owner} put in the window?",
                "Which animal can be seen in the window in {road}?",
            ),
            "road": (
                "Where is the shoe shop?",
                "In which street can shoes be bought?",
                "Where does {owner} have a shop?",
                "In which street is the wooden {animal}?",
            ),
            "owner": (
                "Who owns the shoe shop?",
                "To whom does the shop with the wooden animal belong?",
                "Who is the owner of the shop in {road}?",
                "Whose shop window holds the {animal}?",
            ),
        },
    ),
    Frame(
        "home_bookshop",
        {
            "who": "person",
            "wanted": "book",
            "bought": "book",
            "found": "thing",
            "asked": "price",
            "paid": "price",
            "language": "language",
        },
        (
            (
                "{who} went to the second-hand bookshop for {wanted} and came out with {bought}, a novel in "
                "{language}. The bookseller had asked {asked} and got {paid}, as {found:a} had left a stain on the "
                "cover."
            ),
            (
                "The second-hand bookshop had no copy of {wanted}, which {who} had come for. Instead {who:they} "
                "bought {bought}, written in {language}, for {paid}: the {asked} pencilled inside was too much for a "
                "book whose cover {found:a} had plainly stained."
            ),
            (
                "For {paid}, and not the {asked} first asked for it, {bought} changed hands in the second-hand "
                "bookshop. {who} does not read a word of {language}, the language of the book, and had been looking "
                "for {wanted}; what made it cheap was the mark of {found:a} on its cover."
            ),
        ),
        {
            "wanted": (
                "Which book did the customer look for?",
                "Which book was not to be had?",
                "Which book did {who} want?",
                "Which book was looked for before {bought} was found?",
            ),
            "bought": (
                "Which book was bought?",
                "What was sold in the second-hand bookshop?",
                "Which book did {who} buy?",
                "Which book is in {language}?",
            ),
            "asked": (
                "What was the first price of the book?",
                "How much did the bookseller ask?",
                "How much should {who} have paid?",
                "What was the price of {bought} at first?",
            ),
            "paid": (
                "How much was paid for the book?",
                "What did the bookseller get in the end?",
                "What did {who} pay?",
                "For how much was {bought} sold?",
            ),
            "found": (
                "What had damaged the cover?",
                "What left its mark on the book?",
                "What had left a mark on {bought}?",
                "What spoiled the cover of the book that {who} bought?",
            ),
            "language": (
                "In which language is the book?",
                "What language was the book written in?",
                "In what language is {bought}?",
                "In which language was the book that {who} bought?",
            ),
        },
    ),
    Frame(
        "home_fish_stall",
        {
            "seller": "person",
            "rival": "person",
            "weight": "weight",
            "price": "price",
            "weekday": "weekday",
            "clock": "clock",
            "drink": "drink",
        },
        (
            (
                "{seller} sells fish on the quay every {weekday} until {clock}. This week {seller:they} had a catfish "
                "of {weight} on the stall and asked {price} for it; {rival}, who sells mussels opposite, offered a "
                "bottle of {drink} instead."
            ),
            (
                "On {weekday} there was a catfish on the fish stall on the quay that weighed {weight}. Its price was "
                "{price}, no bottle of {drink} would do, said {seller}, who runs the stall, when {rival} from the "
                "mussel stand tried to bargain; at {clock} the stall was packed up with the fish unsold."
            ),
            (
                "A catfish of {weight}, with a price of {price}, drew the crowd to the fish stall of {seller} on "
                "{weekday}. {rival}, the seller of mussels, who would have swapped it for a bottle of {drink}, was "
                "still arguing at {clock}, when everyone packed up."
            ),
        ),
        {
            "seller": (
                "Who sells the fish?",
                "Who runs the fish stall?",
                "Who asked {price} for the catfish?",
                "To whom did {rival} make an offer?",
            ),
            "rival": (
                "Who sells mussels?",
                "Who wanted to swap something for the fish?",
                "Who made an offer to {seller}?",
                "Who offered {drink}?",
            ),
            "weight": (
                "How much did the catfish weigh?",
                "How heavy was the fish?",
                "What was the weight of the fish that {seller} had?",
                "How heavy was the fish for {price}?",
            ),
            "price": (
                "How much was the catfish?",
                "What was asked for the big fish?",
                "How much did {seller} want?",
                "What did the fish of {weight} cost?",
            ),
            "weekday": (
                "When is the fish stall on the quay?",
                "On which day was the catfish for sale?",
                "On which day does {seller} sell fish?",
                "On what day did {rival} bargain for the fish?",
            ),
            "clock": (
                "When does the fish stall pack up?",
                "Until what time is fish sold on the quay?",
                "Until what time does {seller} stand on the quay?",
                "At what time was the market over on {weekday}?",
            ),
            "drink": (
                "What was offered for the catfish instead of money?",
                "Which drink was offered in exchange?",
                "What did {rival} offer?",
                "What was in the bottle that {seller} did not take?",
            ),
        },
    ),
    Frame(
        "home_tailor",
        {
            "who": "person",
            "customer": "person",
            "garment": "garment",
            "buttons": "material",
            "lining": "colour",
            "collar": "colour",
            "duration": "duration",
            "promised": "duration",
            "price": "price",
        },
        (
            (
                "{customer} ordered {garment:a} from the tailor {who}, with {buttons} for the buttons, {collar:a} "
                "collar and {lining:a} lining. It was promised within {promised} and took {duration}; the bill, at "
                "least, stayed at {price}."
            ),
            (
                "The tailor, {who}, had said that the order would take {promised}, but {customer} waited {duration} "
                "for it. What came in the box was {garment:a} with buttons of {buttons}, {collar} at the collar but "
                "{lining} in the lining, along with a bill for {price}."
            ),
            (
                "After {duration}, where {promised} had been promised, the tailor's parcel came at last. In it "
                "{customer} found {garment:a} with {lining:a} lining, {collar:a} collar and buttons made of "
                "{buttons}, and a note in which {who} asked for {price}."
            ),
        ),
        {
            "garment": (
                "What did the tailor make?",
                "What was ordered from the tailor?",
                "What did {customer} order?",
                "Which garment came from the tailor {who}?",
            ),
            "buttons": (
                "What are the buttons made of?",
                "Of what material are the tailor's buttons?",
                "What are the buttons on the {garment} made of?",
                "Buttons of which material did {customer} get?",
            ),
            "lining": (
                "What colour was the lining?",
                "Which colour was inside?",
                "What colour was the lining of the {garment}?",
                "Which colour of lining did {customer} get?",
            ),
            "collar": (
                "What colour was the collar?",
                "Which colour did the tailor choose for the collar?",
                "What colour is the collar on the {garment}?",
                "What colour was the collar that {who} made?",
            ),
            "duration": (
                "How long did the tailor really take?",
                "After what time did the parcel come?",
                "How long did {customer} have to wait?",
                "How long did {who} need?",
            ),
            "promised": (
                "How long should the order have taken?",
                "Within what time had the tailor promised to be ready?",
                "How long did {who} say it would take?",
                "For how long had {customer} been told to wait?",
            ),
            "price": (
                "How much was the tailor's bill?",
                "What did the order cost?",
                "How much did {customer} have to pay?",
                "What did {who} charge?",
            ),
        },
    ),
    Frame(
        "home_shop_sign",
        {
            "new": "material",
            "old": "material",
            "painter": "person",
            "carver": "person",
            "building": "building",
            "year": "year",
            "animal": "animal",
        },
        (
            (
                "The sign over the chemist's shop shows a golden {animal} and is of {new}. {carver} carved it in "
                "{year}, {painter} did the gilding, and the {old} sign that hung there before can be seen in the "
                "{building}."
            ),
            (
                "In {year} the chemist's shop got the sign that it still has, {animal:a} cut from {new}. The carving "
                "is by {carver}, the gold paint by {painter}; its predecessor, of {old}, was carried over to the "
                "{building} and kept."
            ),
            (
                "Visitors to the {building} are shown a sign of {old}, which hung over the chemist's shop until "
                "{year}. Then {carver} carved a new one from {new}, in the shape of {animal:a}, and {painter} painted "
                "it gold."
            ),
        ),
        {
            "new": (
                "What is the sign of the chemist's shop made of?",
                "Of what material is the present sign?",
                "What did {carver} carve the sign from?",
                "From what was the golden {animal} made?",
            ),
            "old": (
                "What was the old sign made of?",
                "Of what material was the sign before?",
                "Of what is the sign in the {building}?",
                "What was the sign made of that {painter} did not paint?",
            ),
            "painter": (
                "Who put the gold on the sign?",
                "Who painted the sign?",
                "Who gilded what {carver} had carved?",
                "Who made the {animal} golden?",
            ),
            "carver": (
                "Who carved the sign?",
                "Who did the carving for the chemist?",
                "Who carved the sign that {painter} gilded?",
                "Who worked with {new} for the chemist?",
            ),
            "animal": (
                "What does the sign of the chemist's shop show?",
                "Which animal is on the sign?",
                "Which animal did {carver} carve?",
                "What animal did {painter} paint gold?",
            ),
            "building": (
                "Where is the old sign now?",
                "In which building is the former sign kept?",
                "Where can the sign of {old} be seen?",
                "Where was the old sign taken when {carver} had made a new one?",
            ),
            "year": (
                "When was the new sign made?",
                "Since which year has the sign hung there?",
                "In what year did {carver} carve the sign?",
                "When was the {old} sign taken down?",
            ),
        },
    ),
    Frame(
        "home_jam",
        {
            "who": "person",
            "crop": "crop",
            "crop2": "crop",
            "number": "number",
            "broken": "number",
            "room": "room",
            "helper": "relative",
            "month": "month",
        },
        (
            (
                "In {month}, {who} made jam and chutney for the winter: the jam, {number} jars of it, came from "
                "{crop}, the chutney from {crop2}. All of it stands in the {room}, apart from {broken} jars that "
                "{who:their} {helper} dropped."
            ),
            (
                "{who} boiled {crop} down to {number} jars of jam in {month}, and used {crop2} for a chutney. When "
                "the jars were carried to the {room}, {who:their} {helper} let {broken} of them fall on the tiles."
            ),
            (
                "There were {number} jars of jam on the table when {who} had finished with the {crop} in {month}, to "
                "say nothing of the chutney, for which {crop2} had to serve. The {helper}, told to take everything to "
                "the {room}, broke {broken} jars on the way."
            ),
        ),
        {
            "crop": (
                "What was the jam made from?",
                "What was boiled down to jam?",
                "What did {who} make jam from?",
                "What was in the {number} jars?",
            ),
            "crop2": (
                "What was the chutney made from?",
                "What was used for the chutney?",
                "What did {who} use for the chutney?",
                "What did the chutney of {month} consist of?",
            ),
            "number": (
                "How many jars of jam were made?",
                "How many jars of jam were there at first?",
                "How many jars of jam did {who} make?",
                "How many jars of jam were filled in {month}?",
            ),
            "broken": (
                "How many jars were broken?",
                "How many jars were dropped?",
                "How many jars did the {helper} break?",
                "How many jars did {who} lose?",
            ),
            "room": (
                "Where are the jars kept?",
                "To which room were the jars taken?",
                "Where does {who} keep the jars?",
                "Where was the {helper} to take the jars?",
            ),
            "helper": (
                "Who broke the jars?",
                "Which relative let jars fall?",
                "Who dropped jars that {who} had filled?",
                "Who was to take the jars to the {room}?",
            ),
            "month": (
                "When was the jam made?",
                "In which month were the jars filled?",
                "In which month did {who} make jam?",
                "When were the {number} jars of jam boiled?",
            ),
        },
    ),
    Frame(
        "home_cafe",
        {
            "waiter": "person",
            "cook": "person",
            "special": "food",
            "off": "food",
            "drink": "drink",
            "price": "price",
            "weekday": "weekday",
        },
        (
            (
                "At the café by the tram stop the dish of the day is {special}, at {price} with a glass of {drink}. "
                "{waiter}, who waits at the tables, wipes {off} from the blackboard, since {cook} in the kitchen has "
                "none left, and reminds the guests that there will be no service on {weekday}."
            ),
            (
                "The blackboard of the café by the tram stop offers {special} as today's special, {drink} and all, "
                "for {price}. A line has been drawn through {off}, now sold out; {cook} is cooking, {waiter} is "
                "waiting at the tables, and {weekday} is the day of rest."
            ),
            (
                "Except on {weekday}, when it is closed, the café by the tram stop has a special for {price}, today "
                "{special} together with {drink}. The guests who want {off} are told by {waiter}, the waiter, that "
                "none is left, for which {cook}, the cook, is sorry."
            ),
        ),
        {
            "special": (
                "What is the dish of the day?",
                "What is today's special in the café?",
                "What can one eat for {price}?",
                "What is the special that {cook} has cooked?",
            ),
            "off": (
                "What is sold out?",
                "Which dish is no longer to be had in the café?",
                "What has {cook} run out of?",
                "Which dish does {waiter} not serve any more?",
            ),
            "drink": (
                "What is drunk with the special?",
                "Which drink is included in the price?",
                "Which drink comes with the {special}?",
                "What is in the glass that {waiter} brings with the special?",
            ),
            "price": (
                "How much is the dish of the day?",
                "What does the special cost?",
                "What does one pay for {special}?",
                "For how much does {waiter} serve the special?",
            ),
            "weekday": (
                "On which day is the café closed?",
                "When is the café's day of rest?",
                "When does {waiter} have a day off?",
                "On which day does {cook} not cook?",
            ),
            "waiter": (
                "Who waits at the tables?",
                "Who serves in the café?",
                "Who serves what {cook} cooks?",
                "Who brings the {special} to the table?",
            ),
            "cook": (
                "Who cooks in the café?",
                "Who works in the café's kitchen?",
                "Who cooks what {waiter} serves?",
                "Who made the {special}?",
            ),
        },
    ),
    Frame(
        "home_picnic",
        {
            "who": "person",
            "forgot": "food",
            "brought": "food",
            "drink": "drink",
            "lake": "lake",
            "thing": "thing",
            "weather": "weather",
            "friend": "person",
        },
        (
            (
                "{who} had packed the picnic basket in a hurry and left {forgot} on the kitchen table. So at {lake} "
                "they had just {brought}, which {friend} had brought, and {drink} to wash it down, until {weather} "
                "drove everyone under {thing:a}."
            ),
            (
                "The picnic at {lake} was saved by {friend}, who had {brought} along, because {forgot}, prepared by "
                "{who} the night before, had been forgotten at home. They drank {drink} and, when {weather} set in, "
                "sat close together beneath {thing:a}."
            ),
            (
                "Nobody went hungry at {lake}, though {who} had forgotten the {forgot} when packing the picnic "
                "basket. {friend} shared out {brought}, {drink} went from hand to hand, and with {thing:a} over their "
                "heads they did not mind even {weather}."
            ),
        ),
        {
            "forgot": (
                "What was forgotten at home?",
                "What was missing from the picnic basket?",
                "What did {who} forget?",
                "Which food never reached {lake}?",
            ),
            "brought": (
                "What was eaten at the picnic?",
                "What did they have to eat in the end?",
                "What did {friend} bring?",
                "What was there to eat at {lake}?",
            ),
            "drink": (
                "What did they drink at the picnic?",
                "What was there to drink?",
                "What was drunk at {lake}?",
                "What did they drink with what {friend} had brought?",
            ),
            "lake": (
                "Where was the picnic?",
                "By which lake did they eat?",
                "At which lake did {friend} share out the food?",
                "Where did {who} miss the food?",
            ),
            "thing": (
                "What gave them shelter at the picnic?",
                "Under what did they sit?",
                "What kept the {weather} off?",
                "What was used for shelter at {lake}?",
            ),
            "weather": (
                "What was the weather like at the picnic?",
                "What made them look for shelter?",
                "What came over {lake}?",
                "What did {friend} and the others shelter from?",
            ),
            "friend": (
                "Who saved the picnic?",
                "Who shared out the food?",
                "Who had food when {who} had none?",
                "Who brought the {brought}?",
            ),
        },
    ),
    Frame(
        "home_burnt",
        {
            "who": "person",
            "burnt": "food",
            "instead": "food",
            "guest": "trade",
            "clock": "clock",
            "relative": "relative",
            "drink": "drink",
            "feeling": "feeling",
        },
        (
            (
                "{who} burnt the {burnt} to a cinder while the guest, {guest:a}, waited at the table with a glass of "
                "{drink}. By {clock} the plates were filled with {instead}, which the {relative} had made in no time, "
                "and the guest looked {feeling}."
            ),
            (
                "The smell of burning came from what should have been {burnt}. {who} opened the windows, the "
                "{relative} took over the stove, and at {clock} the guest, {guest:a} who had been kept busy with "
                "{drink}, was served {instead} after all and seemed {feeling}."
            ),
            (
                "By the time the guest, {guest:a}, got something to eat it was {clock}, and it was {instead}, cooked "
                "by the {relative}. {who} had let the {burnt} burn while pouring out {drink}, and the visitor went "
                "home rather {feeling}."
            ),
        ),
        {
            "burnt": (
                "What was burnt?",
                "Which dish was spoiled on the stove?",
                "What did {who} burn?",
                "What would the guest have eaten instead of {instead}?",
            ),
            "instead": (
                "What was served in the end?",
                "What did the guest eat after all?",
                "What did the {relative} cook?",
                "What was eaten in place of {burnt}?",
            ),
            "guest": (
                "What was the guest's job?",
                "What did the visitor do for a living?",
                "What was the occupation of the guest of {who}?",
                "What was the trade of the guest who ate {instead}?",
            ),
            "clock": (
                "When was dinner served at last?",
                "At what time did the guest get something to eat?",
                "At what time did the guest of {who} eat?",
                "When was {instead} on the table?",
            ),
            "relative": (
                "Who cooked the second dish?",
                "Who saved the dinner?",
                "Who cooked after {who} had failed?",
                "Who made the {instead}?",
            ),
            "drink": (
                "What did the guest drink while waiting?",
                "What was poured out for the guest?",
                "What was there to drink in the house of {who}?",
                "What was drunk before the {instead} came?",
            ),
            "feeling": (
                "How did the guest seem?",
                "What was the guest's mood at the end?",
                "In what mood was the guest of {who}?",
                "How did the {guest} look?",
            ),
        },
    ),
    Frame(
        "home_cook_off",
        {
            "first": "person",
            "second": "person",
            "dish": "food",
            "dish2": "food",
            "prize": "thing",
            "judge": "trade",
            "number": "number",
        },
        (
            (
                "{first} won the cooking contest in the market hall with {dish} and was handed {prize:a}. The chief "
                "judge, {judge:a}, had tasted {number} dishes and ranked the {dish2} that {second} had made just "
                "behind it."
            ),
            (
                "At the cooking contest in the market hall {number} dishes were tasted by the chief judge, who is "
                "{judge:a}. First place and {prize:a} went to {first} for {dish}; the second place, for {dish2}, was "
                "taken by {second}."
            ),
            (
                "The {dish2} of {second} came second, which surprised nobody who had tried the {dish} with which "
                "{first} won the cooking contest. {prize:A} was the prize, {judge:a} the chief judge, and {number} "
                "dishes in all stood on the counters of the market hall."
            ),
        ),
        {
            "first": (
                "Who won the cooking contest?",
                "Whose dish was the best?",
                "Who beat {second} at cooking?",
                "Who cooked the {dish}?",
            ),
            "second": (
                "Who came second in the cooking contest?",
                "Whose dish was the second best?",
                "Who was beaten by {first}?",
                "Who cooked the {dish2}?",
            ),
            "dish": (
                "Which dish won the contest?",
                "What was the winning dish?",
                "What did {first} cook?",
                "Which dish was better than the {dish2}?",
            ),
            "dish2": (
                "Which dish came second?",
                "What was the second-best dish?",
                "What did {second} cook?",
                "Which dish was ranked behind the {dish}?",
            ),
            "prize": (
                "What was the prize for cooking best?",
                "What did the winner get?",
                "What did {first} win?",
                "What was given to the cook of the {dish}?",
            ),
            "judge": (
                "What does the chief judge do for a living?",
                "What is the judge's occupation?",
                "What is the occupation of the judge who chose {first}?",
                "What was the trade of the one who liked the {dish} best?",
            ),
            "number": (
                "How many dishes were there?",
                "How many dishes had to be tasted?",
                "How many dishes were judged when {first} won?",
                "How many dishes did the {judge} have to taste?",
            ),
        },
    ),
    Frame(
        "home_lunchbox",
        {
            "who": "person",
            "friend": "person",
            "own": "food",
            "swap": "food",
            "drink": "drink",
            "weekday": "weekday",
            "colour": "colour",
        },
        (
            (
                "{who} opened the {colour} lunch box on {weekday}, found {own} in it and sighed. {friend} on the next "
                "bench had {swap}, so the two swapped, and only the flask of {drink} stayed with its owner."
            ),
            (
                "On {weekday} two lunch boxes changed places on a bench in the school yard. {who:s}, the {colour} "
                "one, had {own} in it; {friend} gave up {swap} for it, and a flask of {drink} was shared by both."
            ),
            (
                "With {own} in the lunch box again, {who} was glad to find {friend} willing to swap. As it turned "
                "out, {swap} can cheer up a whole {weekday}; the {colour} box went back empty and so did the flask, "
                "which had held {drink}."
            ),
        ),
        {
            "own": (
                "What was in the lunch box at first?",
                "What was given away in the swap?",
                "What did {who} have for lunch at first?",
                "What did {friend} get from the swap?",
            ),
            "swap": (
                "What was the lunch swapped for?",
                "Which food was had in exchange?",
                "What did {friend} have at first?",
                "What did {who} get from the swap?",
            ),
            "drink": (
                "What was in the flask?",
                "What was there to drink for lunch?",
                "What was in the flask when {who} swapped lunch?",
                "What was drunk on {weekday}?",
            ),
            "weekday": (
                "When were the lunches swapped?",
                "On which day was the swap?",
                "On which day did {who} swap lunch?",
                "On which day did {friend} change lunches?",
            ),
            "colour": (
                "What colour was the lunch box?",
                "Which colour was the box?",
                "What colour was {who:s} lunch box?",
                "Which colour was the box with {own} in it?",
            ),
            "friend": (
                "With whom was the lunch swapped?",
                "Who had something better for lunch?",
                "With whom did {who} swap?",
                "Who gave up the {swap}?",
            ),
        },
    ),
)
