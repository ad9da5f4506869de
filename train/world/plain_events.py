"""Frames about journeys, weather, fairs, finds and the like, asked in plain words that seldom name a slot."""

from __future__ import annotations

from train.world.frame import Frame

FRAMES = (
    Frame(
        "plain_event_coach_axle",
        {
            "start": "town",
            "goal": "town",
            "due": "clock",
            "came": "clock",
            "shelter": "building",
            "soup": "food",
            "means": "means",
        },
        (
            "The mail coach from {start} broke its axle on the pass, and the passengers had to wait in {shelter:a}, "
            "where the driver's wife gave them {soup}. They went on {means} and reached {goal} at {came} instead of "
            "{due}.",
            "At {due} the mail coach should have been in {goal}. But an axle snapped on the pass, hours after it had "
            "left {start}; everyone took shelter in {shelter:a} and was fed {soup}, and it was {came} before they "
            "arrived, {means}, at the end of their journey.",
            "Nobody was hurt when the axle of the mail coach gave way on the pass between {start} and {goal}. The "
            "passengers found shelter in {shelter:a} and, after a meal of {soup}, finished the journey {means}. They "
            "had been expected at {due} and arrived at {came}.",
        ),
        {
            "came": (
                "When did the passengers of the mail coach finally arrive?",
                "At what time did the travellers get to the end of their journey after the broken axle?",
                "When did the passengers reach {goal}?",
                "At what time did the people from {start} arrive at last?",
            ),
            "due": (
                "At what time should the mail coach have arrived?",
                "When were the passengers of the coach expected?",
                "When was the coach supposed to be in {goal}?",
                "At what time should the coach from {start} have reached its goal?",
            ),
            "shelter": (
                "Where did the coach passengers take shelter?",
                "In what kind of building did the travellers wait after the axle broke?",
                "What building gave shelter to the travellers on the way to {goal}?",
                "Where did the travellers from {start} eat {soup}?",
            ),
            "soup": (
                "What did the stranded passengers eat?",
                "What were the coach travellers given to eat on the pass?",
                "What meal did the people in the {shelter} get?",
                "What were the passengers bound for {goal} fed?",
            ),
            "means": (
                "How did the passengers travel on after the axle had broken?",
                "How was the journey of the mail coach passengers finished?",
                "How did the stranded travellers finally get to {goal}?",
                "By what means did the coach passengers from {start} continue?",
            ),
        },
    ),
    Frame(
        "plain_event_balloon_flight",
        {
            "who": "person",
            "friend": "person",
            "colour": "colour",
            "ballast": "thing",
            "field": "crop",
            "start": "town",
            "goal": "town",
        },
        (
            "{who} rose from the meadow at {start} in {who:their} {colour} balloon, with {friend} as the only "
            "passenger. Over the woods they had to throw {ballast:a} overboard to keep above the trees, and in the "
            "end they came down near {goal} in a field of {field}.",
            "A balloon, {colour} from top to bottom, landed among the {field} near {goal} on Sunday. It had taken off "
            "in {start} with {who} at the burner and {friend} as passenger; {ballast:a} that was thrown out on the "
            "way has not been found.",
            "The passenger, {friend}, kept {friend:their} eyes shut, while {who}, who was flying the {colour} "
            "balloon, threw out {ballast:a} to make it lighter. They had set off from {start}; they landed beyond "
            "{goal}, where a farmer was rather cross about his {field}.",
        ),
        {
            "who": (
                "Who flew the balloon?",
                "Who was the pilot of the balloon?",
                "Who was flying the balloon in which {friend} sat?",
                "Who steered the balloon that took off from {start}?",
            ),
            "friend": (
                "Who was the passenger in the balloon?",
                "Who went along on the balloon flight without flying it?",
                "Whom did {who} take along in the balloon?",
                "Who was the passenger on the flight from {start}?",
            ),
            "colour": (
                "What colour was the balloon?",
                "Which colour did the balloon have?",
                "What was the colour of the balloon that {who} flew?",
                "What colour was the balloon that landed near {goal}?",
            ),
            "ballast": (
                "What was thrown out of the balloon?",
                "What went overboard to make the balloon lighter?",
                "What did the balloon from {start} lose on the way?",
                "Which thing was dropped while {who} was in the air?",
            ),
            "field": (
                "What was growing in the field where the balloon landed?",
                "Among which crop did the balloon come down?",
                "What crop grew where {who} landed?",
                "In a field of what did the balloon land near {goal}?",
            ),
            "start": (
                "From which town did the balloon take off?",
                "Where did the balloon flight begin?",
                "Where did {who} take off?",
                "In what town did the flight that ended near {goal} start?",
            ),
        },
    ),
    Frame(
        "plain_event_class_outing",
        {
            "who": "person",
            "plan": "building",
            "seen": "building",
            "means": "means",
            "reason": "reason",
            "snack": "food",
            "day": "weekday",
        },
        (
            "The school outing on {day} was to have been a visit to the {plan}, but because {reason}, {who}, the "
            "teacher, took the children to the {seen} instead. They travelled {means} and ate {snack} on the grass.",
            "{who} had promised {who:their} class the {plan}. On {day}, however, {reason}, so the outing went {means} "
            "to the {seen}; at midday the children sat on the grass with {snack}, and nobody complained.",
            "With {snack} in their bags the children set out on {day}, {means}, on their school outing. They saw the "
            "{seen}. The {plan}, which they had really meant to visit, had to be left out, as {reason}, and {who}, "
            "their teacher, was sorry about it.",
        ),
        {
            "plan": (
                "What had the class first meant to visit on its outing?",
                "Which building was the school outing supposed to go to?",
                "What did the children who were taken out by {who} not get to see after all?",
                "Which building did the class really want to visit on {day}?",
            ),
            "seen": (
                "What did the class visit on its outing?",
                "Where did the school outing really go?",
                "To what place did {who} take the children instead?",
                "What did the children see on {day}?",
            ),
            "reason": (
                "Why could the class not visit the {plan}?",
                "Why was the plan for the school outing changed?",
                "Why did the children go to another place on their outing than planned?",
                "What was the reason why {who} had to change the outing?",
            ),
            "snack": (
                "What did the children eat on the school outing?",
                "What did the class eat on the grass?",
                "What food did {who:s} class have on the outing?",
                "What was eaten on the grass on {day}?",
            ),
            "day": (
                "On which day was the school outing?",
                "What day did the class go on its outing?",
                "On what day did {who} take the class out?",
                "On which weekday did the class see the {seen}?",
            ),
        },
    ),
    Frame(
        "plain_event_swapped_suitcase",
        {
            "who": "person",
            "other": "person",
            "one": "garment",
            "two": "thing",
            "station": "town",
            "day": "weekday",
            "start": "town",
        },
        (
            "On the night train from {start} two brown suitcases got mixed up. {who} opened the one that had been "
            "handed down to {who:them} in {station} and found {two:a} in it; {who:their} own, with {one:a} inside, "
            "was in the hands of {other}. On {day} they exchanged them.",
            "{other} got off the night train at {station} with a suitcase that was not {other:their} own: there was "
            "{one:a} in it, and it belonged to {who}. The right one, which held {two:a}, had been taken by {who}, who "
            "had also come from {start}. They did not swap back until {day}.",
            "Two suitcases that look alike are easily confused. {who:s}, with {one:a} in it, went home with {other}, "
            "and {other:s}, in which lay {two:a}, went home with {who}. Both had come on the night train from {start} "
            "to {station}; on {day} each got the right one back.",
        ),
        {
            "one": (
                "What was in the suitcase of {who}?",
                "Which garment lay in one of the two suitcases?",
                "What piece of clothing was found in one of the suitcases that were mixed up?",
                "What did {other} find in the wrong suitcase?",
            ),
            "two": (
                "Which object was in one of the suitcases from the night train?",
                "What, apart from a garment, was found in the mixed-up suitcases?",
                "Which thing did {who} take home by mistake?",
                "What was in the suitcase of {other}?",
            ),
            "day": (
                "On which day were the suitcases exchanged?",
                "When did the owners of the suitcases swap back?",
                "On what day did {who} get the right suitcase back?",
                "When did {other} have {other:their} own suitcase again?",
            ),
            "start": (
                "Where had the night train come from?",
                "From which town did the two travellers with the suitcases come?",
                "From what town did {who} travel by night train?",
                "Where did the train to {station} start?",
            ),
            "station": (
                "Where did the travellers with the suitcases get off the night train?",
                "In what town were the suitcases taken off the train?",
                "Where did the night train from {start} take {other}?",
                "At which town did {other} get off?",
            ),
        },
    ),
    Frame(
        "plain_event_hut_walk",
        {
            "who": "person",
            "top": "mountain",
            "first": "building",
            "second": "building",
            "snow": "weather",
            "days": "duration",
            "drink": "drink",
        },
        (
            "{who} walked over {top} in winter, a march of {days} in all. The first night was spent in {first:a} and "
            "the second, when there was {snow}, in {second:a}, where an old hermit poured out {drink}.",
            "It took {who} {days} to cross {top}. For the first night {first:a} served as a bed; on the second, in "
            "{snow}, a hermit with a long beard opened the door of {second:a} and at once put {drink} on the table.",
            "An old hermit lived in the {second} below {top}, and it was there that {who} spent {who:their} second "
            "night, drinking {drink} while outside there was {snow}. The night before {who:they} had slept in "
            "{first:a}. The whole crossing lasted {days}.",
        ),
        {
            "first": (
                "Where did the walker sleep on the first night?",
                "In what building was the first night of the crossing spent?",
                "Where did {who} spend the first night?",
                "In what did the walker on {top} sleep the night before meeting the hermit?",
            ),
            "second": (
                "Where did the hermit live?",
                "In what kind of building did the walker spend the second night?",
                "Where was {who} on the second night?",
                "What building did the hermit on {top} live in?",
            ),
            "snow": (
                "What was the weather like on the second night of the crossing?",
                "What weather was there outside while the walker sat with the hermit?",
                "In what weather did {who} come to the hermit?",
                "What was the weather on the second night on {top}?",
            ),
            "days": (
                "How long did the crossing of the mountain take?",
                "How long was the walker on the way in all?",
                "How long did it take {who} to cross the mountain?",
                "How long did the walk over {top} last?",
            ),
            "drink": (
                "What did the hermit give the walker to drink?",
                "What drink was there at the hermit's?",
                "What did {who} drink on the second night?",
                "What was drunk with the hermit near {top}?",
            ),
        },
    ),
    Frame(
        "plain_event_pack_animals",
        {
            "who": "person",
            "tent": "animal",
            "water": "animal",
            "lake": "lake",
            "days": "duration",
            "friend": "person",
            "tool": "tool",
        },
        (
            "On the march to {lake}, {tent:a} carried the tent and {water:a} the water. {who} led the way for {days}; "
            "{friend}, who came last, had nothing to carry but the {tool}.",
            "{who} and {friend} needed {days} to reach {lake}. Their tent was tied on the back of {tent:a}, their "
            "barrels of water on that of {water:a}. The only thing that they carried themselves was the {tool}, which "
            "{friend} did not trust to any beast.",
            "A strange procession arrived at {lake} after {days}: in front walked {who}, behind {who:them} {water:a} "
            "loaded with water and {tent:a} with the tent, and at the end {friend}, with the {tool} over "
            "{friend:their} shoulder.",
        ),
        {
            "tent": (
                "Which animal carried the tent?",
                "On the back of what animal was the tent?",
                "What animal had the tent on its back on the way to {lake}?",
                "Which of the animals that {who} took along bore the tent?",
            ),
            "water": (
                "Which animal carried the water?",
                "What animal was loaded with water?",
                "On which animal did {who} transport the water?",
                "What beast bore the barrels of water to {lake}?",
            ),
            "days": (
                "How long did the march to the lake take?",
                "How long were the two people and their pack animals on the way?",
                "How long did {who} need to get to the lake?",
                "How long was the march to {lake}?",
            ),
            "tool": (
                "What tool was carried by hand on the march to the lake?",
                "Which tool did neither of the pack animals carry?",
                "What did {friend} carry?",
                "Which tool was carried by a person on the way to {lake}?",
            ),
            "lake": (
                "To which lake did the march lead?",
                "Where did the procession with the pack animals arrive?",
                "Where did {who} go with the two animals?",
                "Which lake did {friend} reach?",
            ),
        },
    ),
    Frame(
        "plain_event_rowing_bet",
        {
            "who": "person",
            "rival": "person",
            "stake": "price",
            "lake": "lake",
            "time": "duration",
            "boast": "duration",
            "instrument": "instrument",
        },
        (
            "{rival} bet {stake} that nobody could row across {lake} and back in {boast} while someone in the boat "
            "played the {instrument}. {who} took up the oars and lost: {who:they} needed {time}, though the music was "
            "good.",
            "It was a bet. {who} said that {who:they} could row over {lake} and back in {boast}, with the sound of "
            "the {instrument} to keep the time; {rival} said no. When the rowing boat came back, {time} had passed, "
            "and {stake} changed hands.",
            "To row across {lake} and home again took {who} {time}, although {who:they} had boasted of doing it in "
            "{boast}. So {rival} won the bet, which was worth {stake}, and the man who had played the {instrument} in "
            "the boat got his supper.",
        ),
        {
            "stake": (
                "How much was the bet about the rowing worth?",
                "How much money did the rower lose?",
                "How much did {rival} win?",
                "What sum did {who} have to pay?",
            ),
            "who": (
                "Who rowed across the lake?",
                "Who lost the rowing bet?",
                "Who lost money to {rival}?",
                "Who rowed over {lake} and back?",
            ),
            "rival": (
                "Who won the bet about the rowing?",
                "Who did not believe that the rower would be fast enough?",
                "Who won {stake}?",
                "Against whom did {who} lose the bet?",
            ),
            "time": (
                "How long did the rower really need?",
                "How much time had passed when the rowing boat was back?",
                "How long did it take {who} to row there and back?",
                "How long did the trip across {lake} and back take?",
            ),
            "boast": (
                "In what time should the boat have been rowed there and back?",
                "What time was set for the rower in the bet?",
                "How fast should {who} have been to win the bet?",
                "In what time was {lake} to be crossed both ways?",
            ),
            "instrument": (
                "What instrument was played in the rowing boat?",
                "To the sound of what was the boat rowed?",
                "What instrument was heard while {who} rowed?",
                "Which instrument was played on the water of {lake}?",
            ),
        },
    ),
    Frame(
        "plain_event_ship_launch",
        {
            "ship": "ship",
            "who": "person",
            "drink": "drink",
            "plan": "date",
            "day": "date",
            "hull": "colour",
            "beast": "animal",
        },
        (
            "The new ferry was launched on {day}, and not on {plan} as announced, when the tide had been too low. "
            "{who} broke a bottle of {drink} on the bow, and the {ship}, her hull painted {hull} and a carved {beast} "
            "at her prow, slid into the water.",
            "With a bottle of {drink}, which did not break until the third throw, {who} named the new ferry {ship}. "
            "On {plan}, the day first chosen for the launch, there had not been enough water; on {day} the {hull} "
            "hull and the {beast} carved on the prow got wet at last.",
            "Under the carved {beast} of her prow hung the bottle: {drink}, not champagne. {who} let it fly against "
            "the {hull} hull, and the ferry {ship} was launched. That was on {day}; low water had made it impossible "
            "on {plan}, the date on the posters.",
        ),
        {
            "drink": (
                "What was in the bottle with which the ferry was named?",
                "With a bottle of what was the new ferry launched?",
                "What drink did {who} break on the bow?",
                "With what drink was the {ship} named?",
            ),
            "day": (
                "On what date was the new ferry launched?",
                "When did the launch of the ferry take place?",
                "When was the {ship} launched?",
                "On which day did {who} throw the bottle?",
            ),
            "plan": (
                "For what date had the launch first been announced?",
                "When should the ferry have been launched, had there been enough water?",
                "On which date was the {ship} to have been launched?",
                "What date had been planned before {day}?",
            ),
            "hull": (
                "What colour was the hull of the new ferry?",
                "Which colour was the hull that the bottle hit?",
                "What colour was the hull of the {ship}?",
                "Against a hull of what colour did {who} throw the bottle?",
            ),
            "beast": (
                "What animal was carved on the prow of the ferry?",
                "Which animal did the ferry carry at her prow?",
                "What carved animal is there on the {ship}?",
                "A carving of what animal was at the prow when {who} threw the bottle?",
            ),
            "who": (
                "Who broke the bottle at the launch?",
                "Who named the new ferry?",
                "Who launched the {ship}?",
                "Who threw the bottle of {drink}?",
            ),
        },
    ),
    Frame(
        "plain_event_stowaway",
        {
            "boy": "person",
            "ship": "ship",
            "cargo": "crop",
            "finder": "trade",
            "food": "food",
            "room": "thing",
            "port": "town",
            "days": "duration",
        },
        (
            "Behind the sacks of {cargo} in the hold of the {ship} a stowaway, {boy}, lay hidden for {days}. It was "
            "the ship's {finder} who found {boy:them} and brought {boy:them} {food}; in {port} {boy:they} was put "
            "ashore with {room:a} as a parting gift.",
            "The ship's {finder} heard someone sneeze among the {cargo} and pulled out a stowaway. {boy} had been "
            "hiding in the hold of the {ship} for {days} and was so hungry that {boy:they} ate {food} with both "
            "hands. When the crew set {boy:them} ashore in {port}, they gave {boy:them} {room:a}.",
            "For {days} nobody on the {ship} knew that there was a stowaway on board. Then the ship's {finder}, "
            "looking for rats among the {cargo}, found {boy}, who was given {food} at once and, on going ashore in "
            "{port}, {room:a} to remember the voyage by.",
        ),
        {
            "boy": (
                "Who was the stowaway?",
                "What was the name of the person hidden in the hold?",
                "Who hid on board the {ship}?",
                "Which stowaway was put ashore in {port}?",
            ),
            "cargo": (
                "What was the stowaway hidden among?",
                "Between which goods did the stowaway hide?",
                "What was in the hold of the {ship}?",
                "Among what was {boy} found?",
            ),
            "finder": (
                "Who of the crew found the stowaway?",
                "What was the job of the person who discovered the stowaway?",
                "What was the trade of the person on the {ship} who found {boy}?",
                "By which member of the crew was {boy} discovered?",
            ),
            "food": (
                "What did the hungry stowaway eat?",
                "What was the stowaway given to eat?",
                "What food did {boy} get on being found?",
                "What was eaten by the stowaway on the {ship}?",
            ),
            "days": (
                "How long did the stowaway stay hidden?",
                "For how long was there a stowaway on board without anyone knowing?",
                "How long did {boy} hide in the ship?",
                "How long was there a stowaway on the {ship} before anyone knew?",
            ),
            "room": (
                "What parting gift did the stowaway get?",
                "What did the crew give the stowaway on going ashore?",
                "What was given to {boy} in {port}?",
                "Which thing did the crew of the {ship} give away?",
            ),
        },
    ),
    Frame(
        "plain_event_deck_cargo_lost",
        {
            "ship": "ship",
            "lost": "number",
            "sound": "number",
            "goods": "thing",
            "port": "town",
            "goal": "town",
            "storm": "weather",
        },
        (
            "In {storm} the freighter {ship} lost part of her deck cargo: {lost} crates went overboard, {sound} were "
            "left, each with {goods:a} in it. Instead of going on to {goal}, she put in at {port} to have her rail "
            "mended.",
            "The freighter {ship} never got to {goal} that week. The ropes on deck did not hold in {storm}, and when "
            "the captain steered into the harbour of {port} for repairs, only {sound} crates were still in their "
            "place; {lost} had been swept into the sea. Every crate had held {goods:a}.",
            "Fishermen have been pulling crates from the water, and in each they find {goods:a}. There should be "
            "{lost} of them, washed off the deck of the freighter {ship}, which ran into {storm} on her way to "
            "{goal}. With the remaining {sound} she is lying in {port}, where her rail is being repaired.",
        ),
        {
            "lost": (
                "How many crates did the freighter lose?",
                "How many crates went overboard?",
                "How many crates fell from the deck of the {ship} into the sea?",
                "How many crates did the ship bound for {goal} lose?",
            ),
            "sound": (
                "How many crates were left on the deck of the freighter?",
                "How many crates did not go overboard?",
                "How many crates did the {ship} still have?",
                "With how many crates did the freighter reach {port}?",
            ),
            "goods": (
                "What was in the crates that went overboard?",
                "What did each of the crates hold?",
                "What was in the crates of the {ship}?",
                "What was the ship to have brought to {goal} in crates?",
            ),
            "port": (
                "Where did the freighter put in for repairs?",
                "In which harbour was the rail of the freighter mended?",
                "In which town did the {ship} find refuge?",
                "Where did the freighter go instead of {goal}?",
            ),
            "goal": (
                "What town was the freighter really bound for?",
                "Which town did the freighter not reach because she had to be repaired?",
                "Where was the {ship} to have gone?",
                "For which town were the crates on the {ship} meant?",
            ),
        },
    ),
    Frame(
        "plain_event_bottle_post",
        {
            "sender": "person",
            "finder": "person",
            "ship": "ship",
            "island": "island",
            "sent": "year",
            "found": "year",
            "relative": "relative",
        },
        (
            "A bottle with a letter in it was washed up on {island} in {found}, where {finder} stepped on it. "
            "{sender} had thrown it from the deck of the {ship} in {sent}; the letter was meant for {sender:their} "
            "{relative}.",
            "In {sent} {sender} wrote a few lines to {sender:their} {relative}, put them in a bottle and dropped it "
            "into the sea from the {ship}. It drifted about until {found}; then {finder}, gathering shells on "
            "{island}, picked it up.",
            "{finder} was walking {finder:their} dog on {island} in {found} when {finder:they} found a bottle with a "
            "letter. It came from {sender}, a passenger of the {ship}, who had written it to {sender:their} "
            "{relative} and thrown it into the waves in {sent}.",
        ),
        {
            "sender": (
                "Who had put the letter in the bottle?",
                "Who threw the bottle into the sea?",
                "Who wrote the letter that {finder} found in a bottle?",
                "Which passenger threw a bottle from the {ship}?",
            ),
            "finder": (
                "Who found the bottle with the letter?",
                "Who picked up the bottle on the beach?",
                "By whom was the bottle found on {island}?",
                "Who found the letter of {sender}?",
            ),
            "sent": (
                "In what year was the bottle thrown into the sea?",
                "When was the letter in the bottle written?",
                "When did {sender} throw the bottle overboard?",
                "In which year did the bottle leave the {ship}?",
            ),
            "found": (
                "In what year was the bottle found?",
                "When did the letter in the bottle reach a shore?",
                "When did {finder} find the bottle?",
                "In which year was the bottle washed up on {island}?",
            ),
            "relative": (
                "For whom was the letter in the bottle meant?",
                "To which relative was the letter in the bottle written?",
                "Which relative should have got the bottle that {finder} found?",
                "To whom did {sender} write from the sea?",
            ),
            "island": (
                "On which island was the bottle found?",
                "Where was the bottle with the letter washed up?",
                "Where did {finder} find the letter?",
                "On what island did the letter of {sender} come ashore?",
            ),
        },
    ),
    Frame(
        "plain_event_ship_parrot",
        {
            "pet": "pet",
            "ship": "ship",
            "cook": "person",
            "captain": "person",
            "language": "language",
            "home": "language",
            "biscuit": "food",
            "colour": "colour",
        },
        (
            "On board the {ship} lives {colour:a} parrot called {pet}. It swears in {home}, which it learned from "
            "{captain}, the captain, but begs for {biscuit} in {language}, the mother tongue of the cook, {cook}.",
            "The captain, {captain}, bought the {colour} parrot {pet} for company and taught it to swear in {home}. "
            "Since then {cook}, the cook of the {ship}, has taught it a second language as well: when it wants "
            "{biscuit}, it asks in {language}.",
            "When the ship's parrot {pet}, {colour:a} bird, wants {biscuit}, it says so in {language}, as {cook} "
            "taught it in the galley. For swearing it uses {home}, the language of {captain}, who is captain of the "
            "{ship}.",
        ),
        {
            "pet": (
                "What is the name of the ship's parrot?",
                "What is the parrot called?",
                "What parrot lives on the {ship}?",
                "What is the name of the bird that {cook} taught to beg?",
            ),
            "language": (
                "In which language does the parrot ask for food?",
                "What language does the parrot beg in?",
                "Which language did {cook} teach the parrot?",
                "In what language does {pet} ask for {biscuit}?",
            ),
            "home": (
                "In which language does the parrot swear?",
                "What language does the bird use for swearing?",
                "In what language does {pet} swear?",
                "Which language did the parrot learn from {captain}?",
            ),
            "biscuit": (
                "What does the parrot like to eat?",
                "For what does the parrot beg?",
                "What food does {pet} ask for?",
                "What does the parrot of the {ship} beg for?",
            ),
            "colour": (
                "What colour is the parrot?",
                "Which colour does the ship's parrot have?",
                "What colour is {pet}?",
                "What is the colour of the bird on the {ship}?",
            ),
        },
    ),
    Frame(
        "plain_event_aground_tug",
        {
            "ship": "ship",
            "tug": "ship",
            "port": "town",
            "time": "duration",
            "cargo": "crop",
            "high": "clock",
            "ran": "clock",
        },
        (
            "A barge laden with {cargo}, the {ship}, ran onto a sandbank off {port} at {ran}. For {time} she lay "
            "there with gulls on her roof, until the tug {tug} pulled her free at high water, at {high}.",
            "At {high}, at high water, the tug {tug} managed to drag a barge off the sandbank before {port}. The "
            "{ship}, with {cargo} on board, had been stuck there since {ran}; {time} passed in all before she floated "
            "again.",
            "{time} on a sandbank: that was the fate of the barge {ship}, which was bringing {cargo} to {port} and "
            "got stuck at {ran}. A rope was made fast, and at {high}, when the water was highest, the tug {tug} "
            "hauled her off.",
        ),
        {
            "ship": (
                "What was the name of the barge on the sandbank?",
                "Which barge ran aground?",
                "Which vessel was stuck on the sandbank off {port}?",
                "What barge did the {tug} pull free?",
            ),
            "tug": (
                "What was the tug called?",
                "Which vessel pulled the barge off the sandbank?",
                "Which tug came to the help of the {ship}?",
                "By which tug was the barge near {port} pulled free?",
            ),
            "time": (
                "How long was the barge stuck on the sandbank?",
                "For how long did the barge lie aground?",
                "How long did it take until the {ship} was free?",
                "How long did the barge off {port} lie on the sandbank?",
            ),
            "cargo": (
                "What was the barge on the sandbank carrying?",
                "With what was the stranded barge loaded?",
                "What did the {ship} have on board?",
                "What cargo was on the barge that the {tug} freed?",
            ),
            "high": (
                "At what time was the barge pulled free?",
                "When was high water?",
                "When did the {tug} haul the barge off?",
                "At what time was the {ship} freed?",
            ),
            "ran": (
                "At what time did the barge run onto the sandbank?",
                "Since when had the barge been stuck?",
                "When did the {ship} run aground?",
                "At what time did the barge get stuck off {port}?",
            ),
        },
    ),
    Frame(
        "plain_event_snowed_in_school",
        {
            "school": "school",
            "pupils": "number",
            "days": "duration",
            "hall": "room",
            "food": "food",
            "teacher": "person",
            "month": "month",
        },
        (
            "Snow blocked the doors of {school} one day in {month}, and {pupils} children could not go home for "
            "{days}. They slept on mats in the {hall}, and {teacher}, who taught sums, cooked {food} for everyone "
            "every evening.",
            "In {month}, when the drifts reached the windows, {pupils} pupils were snowed in at {school}. {teacher}, "
            "the teacher of mathematics, found a big pot and made {food}; the mats from the gymnasium were laid out "
            "in the {hall}, and there the children slept for {days}.",
            "For {days} the {hall} of {school} was a dormitory. It was {month}; the snow lay so high that {pupils} "
            "children had to stay at school overnight, and they lived on {food}, which {teacher}, their mathematics "
            "teacher, learned to cook on the spot.",
        ),
        {
            "pupils": (
                "How many children were snowed in at school?",
                "How many pupils had to sleep at school because of the snow?",
                "How many children could not leave {school}?",
                "For how many pupils did {teacher} cook?",
            ),
            "days": (
                "How long did the children have to stay at school because of the snow?",
                "For how long was the school snowed in?",
                "How long did the children sleep at {school}?",
                "For how long did {teacher} cook for the children?",
            ),
            "hall": (
                "In which room did the snowed-in children sleep?",
                "Where were the mats laid out for the night?",
                "Where did the pupils of {school} sleep?",
                "Which room was used for sleeping in that {month}?",
            ),
            "food": (
                "What did the snowed-in children eat?",
                "What was cooked for the children at school?",
                "What did {teacher} cook?",
                "What food was eaten by the children shut in at {school}?",
            ),
            "teacher": (
                "Who cooked for the snowed-in children?",
                "Which teacher made the meals while the school was snowed in?",
                "Who made {food} for the children?",
                "Who cooked at {school}?",
            ),
            "month": (
                "In which month was the school snowed in?",
                "When did the pupils have to stay at school because of the snow?",
                "In what month was {school} cut off by snow?",
                "In which month did {teacher} cook for the pupils?",
            ),
        },
    ),
    Frame(
        "plain_event_lightning_tree",
        {"beast": "animal", "time": "clock", "road": "road", "planted": "year", "who": "person", "bench": "material"},
        (
            "Lightning struck the great old tree in {road} at {time}. {beast:A} that had been standing under it "
            "walked away unharmed, but the {bench} bench around the trunk was burnt to pieces. {who} had planted the "
            "tree in {planted}.",
            "The tree that {who} planted in {road} in {planted}, a giant in its old age, was split by lightning at "
            "{time}. Of the {bench} bench at its foot nothing is left; {beast:a} that was sheltering there, however, "
            "only shook itself.",
            "Nothing happened to the {beast} that had looked for shelter under the old tree in {road} when the "
            "lightning struck at {time}. The tree itself, planted by {who} in {planted}, lost its crown, and the "
            "{bench} bench below caught fire.",
        ),
        {
            "beast": (
                "What animal was under the tree when the lightning struck?",
                "Which animal was not harmed by the lightning?",
                "What animal had taken shelter under the tree in {road}?",
                "What animal escaped the lightning at {time}?",
            ),
            "time": (
                "At what time did lightning strike the tree?",
                "When was the tree hit by lightning?",
                "At what time was the tree in {road} struck?",
                "When did lightning split the tree that {who} had planted?",
            ),
            "planted": (
                "In what year was the tree planted?",
                "When had the tree that was struck by lightning been planted?",
                "In which year did {who} plant the tree?",
                "When was the tree in {road} planted?",
            ),
            "bench": (
                "Of what was the bench around the tree made?",
                "What material was the bench that burnt?",
                "What was the bench in {road} made of?",
                "What was the bench under {who:s} tree made of?",
            ),
            "road": (
                "In which street did lightning strike a tree?",
                "Where did the tree that was hit by lightning stand?",
                "In what road did {who} plant a tree?",
                "In which road did the lightning strike at {time}?",
            ),
        },
    ),
    Frame(
        "plain_event_hail_greenhouse",
        {
            "who": "person",
            "panes": "number",
            "whole": "number",
            "lost": "crop",
            "saved": "crop",
            "day": "date",
            "price": "price",
        },
        (
            "On {day} hail as big as walnuts broke {panes} panes of the greenhouse that belongs to {who}; only "
            "{whole} stayed whole. The {lost} inside could not be saved, but the {saved} in the open had been covered "
            "in time. New glass will cost {price}.",
            "{who} has had to order new glass for {price}. The hailstorm of {day} left just {whole} panes of "
            "{who:their} greenhouse in one piece and smashed {panes}, so that the {lost} under them were cut to "
            "ribbons; nothing happened to the {saved}, over which sacks had been spread.",
            "There were {panes} broken panes and {whole} unbroken ones when {who} counted what the hail of {day} had "
            "left of the greenhouse. Sacks had protected the {saved}. The loss of the {lost}, {who:they} said, hurt "
            "more than the {price} for the glass.",
        ),
        {
            "panes": (
                "How many panes of the greenhouse did the hail break?",
                "How many greenhouse panes were smashed?",
                "How many panes did {who} lose?",
                "How many panes of glass broke on {day}?",
            ),
            "whole": (
                "How many panes of the greenhouse stayed whole?",
                "How many panes did the hail leave unbroken?",
                "How many of {who:s} panes were not broken?",
                "How many panes survived the hail of {day}?",
            ),
            "lost": (
                "Which crop was destroyed by the hail?",
                "What was growing in the greenhouse and could not be saved?",
                "What crop did {who} lose?",
                "Which plants were ruined on {day}?",
            ),
            "saved": (
                "Which crop was protected from the hail?",
                "What was covered with sacks or in some other way before the hail came?",
                "Which of {who:s} crops were not harmed?",
                "Which crop survived the hail of {day}?",
            ),
            "price": (
                "How much does the new glass for the greenhouse cost?",
                "What must be paid for new panes after the hail?",
                "How much does {who} have to pay for glass?",
                "What does the glass that was broken on {day} cost to replace?",
            ),
            "day": (
                "On what date did hail smash the greenhouse?",
                "When was the hailstorm?",
                "On which date were {who:s} panes broken?",
                "When were {panes} panes broken?",
            ),
        },
    ),
    Frame(
        "plain_event_frozen_river",
        {
            "river": "river",
            "month": "month",
            "again": "month",
            "drink": "drink",
            "price": "price",
            "game": "game",
            "beast": "animal",
            "seller": "trade",
        },
        (
            "The {river} froze over in {month} and did not thaw until {again}. On the ice the young people tried to "
            "play {game}, {seller:a} sold {drink} from a sledge at {price} a cup, and {beast:a} had to be pulled out "
            "of a hole with ropes.",
            "From a sledge on the frozen {river}, {seller:a} was selling {drink}; the cup cost {price}, which did not "
            "stop anyone. The ice had come in {month}. It bore everybody, even those who played {game} on it, except "
            "for {beast:a} that fell through near the weir, and it lasted into {again}.",
            "Between {month}, when the ice closed, and {again}, when it broke up, the {river} belonged to the people. "
            "They played {game} on it, they drank {drink}, sold by {seller:a} from a sledge for {price} a cup, and "
            "together they saved {beast:a} that had fallen through the ice.",
        ),
        {
            "month": (
                "In which month did the river freeze?",
                "When did the ice on the river come?",
                "In what month did the {river} freeze over?",
                "When did people begin to play {game} on the ice?",
            ),
            "again": (
                "In which month did the ice on the river melt?",
                "Until which month did the ice last?",
                "When did the {river} thaw?",
                "In what month could nobody buy {drink} on the ice any more?",
            ),
            "drink": (
                "What was sold on the ice?",
                "What could one drink on the frozen river?",
                "What did the {seller} sell on the ice?",
                "What was drunk on the frozen {river}?",
            ),
            "price": (
                "How much did a cup cost on the ice?",
                "What was the price of a hot or cold drink on the frozen river?",
                "How much was a cup of {drink}?",
                "What did the {seller} charge for a cup?",
            ),
            "game": (
                "What game was played on the ice?",
                "Which game did people play on the frozen river?",
                "What was played on the {river}?",
                "What did people play while the {seller} sold drinks?",
            ),
            "beast": (
                "What animal fell through the ice?",
                "Which animal had to be rescued from the river?",
                "What animal broke through the ice of the {river}?",
                "Which animal got into trouble on the ice in that winter when {drink} was sold there?",
            ),
        },
    ),
    Frame(
        "plain_event_barometer_wrong",
        {
            "who": "person",
            "said": "weather",
            "came": "weather",
            "garment": "garment",
            "room": "room",
            "day": "weekday",
            "maker": "person",
        },
        (
            "The barometer in the {room} promised {said} for {day}, so {who} put on {garment:a} before going out. "
            "What came was {came}, and there has been talk of sending it back to {maker}, who made it.",
            "{who} trusts the barometer that {maker} built, which hangs in the {room}. On {day} it pointed to {said}, "
            "and out {who:they} went in {garment:a}; an hour later there was {came} and nothing else.",
            '"Nothing but {came}!" cried {who} on {day}, standing at the door in {garment:a}, chosen with care that '
            "morning. The barometer in the {room}, a work of {maker}, had foretold {said}.",
        ),
        {
            "said": (
                "What weather did the barometer foretell?",
                "What weather did the barometer point to?",
                "What weather did {who} expect?",
                "What did the barometer promise for {day}?",
            ),
            "came": (
                "What was the weather really like after the barometer's mistake?",
                "What weather came that the barometer had not foretold?",
                "What weather did {who} get in the end?",
                "How was the weather on {day}?",
            ),
            "garment": (
                "What was put on because of the barometer?",
                "Which garment was chosen after a look at the barometer?",
                "What did {who} wear?",
                "What garment was worn on {day}?",
            ),
            "room": (
                "In which room is the barometer?",
                "Where does the barometer hang?",
                "Where in the house of {who} is the barometer?",
                "In which room does the barometer by {maker} hang?",
            ),
            "maker": (
                "Who made the barometer?",
                "Who built the barometer that was wrong?",
                "Who made the instrument that deceived {who}?",
                "By whom was the barometer in the {room} made?",
            ),
            "day": (
                "On which day was the barometer wrong?",
                "On what day did the weather prove the barometer wrong?",
                "On which day did {who} believe the barometer?",
                "When did the barometer in the {room} make a mistake?",
            ),
        },
    ),
    Frame(
        "plain_event_dry_well",
        {
            "village": "town",
            "neighbour": "town",
            "dry": "month",
            "rain": "month",
            "saved": "crop",
            "lost": "crop",
            "means": "means",
            "deep": "length",
        },
        (
            "The village well in {village} ran dry in {dry}, and until it rained in {rain}, water had to be fetched "
            "{means} from {neighbour}. It was enough for the {saved} but not for the {lost}. A new well, {deep} deep, "
            "has since been dug.",
            "When the well of {village} gave out in {dry}, the villagers brought water {means} from {neighbour}. They "
            "saved the {saved} with it and had to let the {lost} wither. Not until {rain} did rain fall, and by then "
            "men were digging a new well, which goes down {deep}.",
            "From {dry}, when the well was empty, until the first rain in {rain}, {village} lived on water that came "
            "from {neighbour} {means}. The council had a new well sunk to a depth of {deep}; that helped nobody's "
            "{lost}, which had withered, but the {saved} had pulled through.",
        ),
        {
            "neighbour": (
                "From where was water fetched when the well was dry?",
                "Which town gave water to the village with the dry well?",
                "Where did the people of {village} get water?",
                "From which town did water come {means}?",
            ),
            "dry": (
                "In which month did the well run dry?",
                "When was the village well empty?",
                "In what month did the well of {village} dry up?",
                "Since what month had water been brought from {neighbour}?",
            ),
            "rain": (
                "In which month did it rain at last?",
                "When did rain end the drought in the village?",
                "In what month did rain fall in {village}?",
                "Until which month did water have to come from {neighbour}?",
            ),
            "saved": (
                "Which crop was saved although the well was dry?",
                "What crop did the villagers manage to save?",
                "Which crop survived the drought in {village}?",
                "What was watered with the water from {neighbour}?",
            ),
            "lost": (
                "Which crop withered when the well was dry?",
                "What crop could not be saved from the drought?",
                "Which crop was lost in {village}?",
                "What withered while water came from {neighbour}?",
            ),
            "deep": (
                "How deep is the new well?",
                "To what depth was the new well sunk?",
                "How deep was the new well of {village} dug?",
                "How far down does the well go that was dug after {dry}?",
            ),
        },
    ),
    Frame(
        "plain_event_painter_fell",
        {
            "who": "person",
            "helper": "person",
            "colour": "colour",
            "house": "building",
            "height": "length",
            "year": "weekday",
        },
        (
            "{who} was painting the shutters of the {house} {colour} on {year} when the ladder slipped. {who:They} "
            "fell {height} into a hedge and got away with a scratch; {helper}, who had been holding the ladder, "
            "fainted and was taken home.",
            "On {year} the ladder slipped at the {house}. {who}, busy painting the shutters {colour}, dropped "
            "{height} and landed in the hedge, hardly scratched. The one who had to be carried home was {helper}, the "
            "person at the foot of the ladder, who had fainted.",
            "The shutters of the {house}, half of them already {colour}, will have to wait. {who}, the painter, fell "
            "{height} from a ladder into the hedge on {year}, and although nothing worse than a scratch came of it, "
            "{helper}, who had been holding the ladder, fainted with fright.",
        ),
        {
            "who": (
                "Who fell from the ladder into the hedge?",
                "Who was painting the shutters?",
                "Who fell {height}?",
                "Who was painting when {helper} fainted?",
            ),
            "helper": (
                "Who was holding the ladder?",
                "Who fainted when the painter fell?",
                "Who fainted at the foot of {who:s} ladder?",
                "Who was holding the ladder at the {house}?",
            ),
            "colour": (
                "What colour are the shutters being painted?",
                "In which colour was the painter who fell painting the shutters?",
                "What colour was {who} using?",
                "In what colour are the shutters of the {house} being painted?",
            ),
            "house": (
                "The shutters of which building were being painted?",
                "At which building did the ladder slip?",
                "Where did {who} fall from a ladder?",
                "Which building was to get {colour} shutters?",
            ),
            "height": (
                "How far did the painter fall?",
                "How deep was the fall into the hedge?",
                "How far did {who} fall?",
                "How far down did the painter of the {house} drop?",
            ),
            "year": (
                "On which day did the ladder slip?",
                "On what day did the painter fall?",
                "On which day did {helper} faint?",
                "When did {who} fall into the hedge?",
            ),
        },
    ),
    Frame(
        "plain_event_milk_cart",
        {
            "who": "person",
            "animal": "animal",
            "scare": "thing",
            "milk": "drink",
            "road": "road",
            "litres": "number",
            "start": "clock",
        },
        (
            "The cart of {who} overturned in {road} at {start}, when the {animal} that pulled it shied at {scare:a} "
            "someone had left on the pavement. All {litres} churns of {milk} ran into the gutter, and the cats of the "
            "quarter were there at once.",
            "{litres} churns of {milk} flowed down {road} on market day. {who} had been driving along as usual when, "
            "at {start}, the {animal} in the shafts saw {scare:a} on the pavement, reared up and turned the cart "
            "over. Only the cats were pleased.",
            "To the delight of the cats, a cart lay on its side in {road} at {start}, and {milk} from {litres} churns "
            "was running along the gutter. The blame belongs to {scare:a}, left lying on the pavement: it had "
            "frightened the {animal}, and {who} had not been able to hold the reins.",
        ),
        {
            "who": (
                "Whose cart overturned?",
                "Who was driving the cart that turned over?",
                "Who was the driver of the cart in {road}?",
                "Who lost {litres} churns?",
            ),
            "animal": (
                "What animal was pulling the cart that overturned?",
                "Which animal shied and turned the cart over?",
                "What animal pulled the cart of {who}?",
                "What animal was frightened in {road}?",
            ),
            "scare": (
                "What frightened the animal that pulled the cart?",
                "What had someone left on the pavement?",
                "What was lying on the pavement in {road}?",
                "At what did the {animal} take fright?",
            ),
            "milk": (
                "What ran into the gutter when the cart overturned?",
                "What were the churns filled with?",
                "What did {who} carry in churns?",
                "What was spilt in {road}?",
            ),
            "litres": (
                "How many churns were spilt?",
                "How many churns were on the cart that turned over?",
                "How many churns did {who} lose?",
                "How many churns were emptied in {road}?",
            ),
            "start": (
                "At what time did the cart overturn?",
                "When did the accident with the churns happen?",
                "At what time did {who} have the accident?",
                "When did the cart turn over in {road}?",
            ),
        },
    ),
    Frame(
        "plain_event_chimney_fire",
        {
            "who": "person",
            "pan": "food",
            "room": "room",
            "coat": "garment",
            "beast": "animal",
            "time": "clock",
            "relative": "relative",
        },
        (
            "A pan of {pan} caught fire in the {room} at {time} because {who} had fallen asleep over the newspaper. "
            "{beast:A} in the yard made such a noise that the {relative} of the sleeper came running and beat out the "
            "flames with {coat:a}.",
            "It was {time}, and {who} was asleep over the newspaper. In the {room} a pan of {pan} began to burn. What "
            "saved the house was {beast:a} that raised the alarm in the yard, and {who:their} {relative}, who took "
            "{coat:a} from the hook and smothered the fire with it.",
            "If it had not been for {beast:a} that would not be quiet in the yard at {time}, the house might be gone. "
            "{who} was sleeping behind {who:their} newspaper, the {pan} in the pan had caught fire, the {room} was "
            "full of smoke; then {who:their} {relative} came and put the fire out with {coat:a}.",
        ),
        {
            "pan": (
                "What was burning in the pan?",
                "What food caught fire?",
                "What did {who} let burn?",
                "What was in the pan that set the {room} on fire?",
            ),
            "room": (
                "In which room did the pan catch fire?",
                "Where in the house was the fire?",
                "In which room of {who:s} house was there a fire?",
                "In what room did the {pan} burn?",
            ),
            "coat": (
                "With what were the flames from the pan put out?",
                "Which garment was used to smother the fire?",
                "What garment did the {relative} use against the flames?",
                "With what garment was {who:s} house saved?",
            ),
            "beast": (
                "What animal gave the alarm when the pan burned?",
                "Which animal made a noise in the yard?",
                "What animal saved the house of {who}?",
                "Which animal was noisy at {time}?",
            ),
            "time": (
                "At what time did the pan catch fire?",
                "When did the animal in the yard raise the alarm?",
                "At what time was {who} asleep over the newspaper?",
                "When did the {pan} catch fire?",
            ),
            "relative": (
                "Who put the fire in the pan out?",
                "Which relative smothered the flames?",
                "Which relative of {who} put out the fire?",
                "Who beat out the flames with the {coat}?",
            ),
        },
    ),
    Frame(
        "plain_event_broken_window",
        {
            "who": "person",
            "owner": "person",
            "game": "game",
            "room": "room",
            "price": "price",
            "sum": "price",
            "day": "weekday",
            "fruit": "food",
        },
        (
            "During a game of {game} in the yard on {day}, {who} sent the ball through the window of the {room}. The "
            "glazier wanted {price} for a new pane, of which {owner}, whose window it was, asked the child to pay "
            "only {sum}, and gave {who:them} {fruit} as well.",
            "{owner} was sitting in the {room} when, on {day}, a ball came through the window. {who} had been playing "
            "{game} outside and came in, very red, to confess. A pane costs {price}; {owner} asked for {sum} towards "
            "it and fetched {fruit} for them both.",
            "The pane in the window of the {room} was broken on {day}, in the middle of a game of {game}. {who}, "
            "whose ball it was, went to {owner} at once to own up, was treated to {fruit} and had to pay {sum}, "
            "although the glazier charged {price} for the new glass.",
        ),
        {
            "who": (
                "Who broke the window with a ball?",
                "Who owned up to having broken the window?",
                "Who broke the window that belongs to {owner}?",
                "Who broke a pane on {day}?",
            ),
            "game": (
                "What game was being played when the window broke?",
                "During which game did the ball go through the window?",
                "What was {who} playing?",
                "What game was played on {day}?",
            ),
            "room": (
                "The window of which room was broken?",
                "Into which room did the ball fly?",
                "In which of {owner:s} rooms was the window broken?",
                "The window of which room did {who} break?",
            ),
            "price": (
                "How much did the glazier charge for the new pane?",
                "What was the whole cost of the broken window?",
                "What did {owner} have to pay the glazier?",
                "How much did the pane that {who} broke cost?",
            ),
            "sum": (
                "How much did the child have to pay for the broken window?",
                "What part of the cost of the window did the child pay?",
                "How much of the cost of {price} did the child have to give?",
                "How much did {who} pay for the window?",
            ),
            "fruit": (
                "What did the child who broke the window get to eat?",
                "What was eaten after the child had owned up?",
                "What did {owner} offer the child?",
                "What food was {who} given?",
            ),
        },
    ),
    Frame(
        "plain_event_child_in_shaft",
        {
            "child": "person",
            "heard": "trade",
            "saver": "trade",
            "time": "duration",
            "tool": "tool",
            "deep": "length",
            "sweet": "food",
        },
        (
            "A child, {child}, fell {deep} down a dry well in the woods. {heard:A} heard {child:them} call, but it "
            "was {saver:a} who, let down on a rope with {tool:a}, brought {child:them} up after {time}. The first "
            "thing {child:they} asked for was {sweet}.",
            "{time} in a dry well were enough, said {child}, and asked for {sweet}. The call of the child, from a "
            "depth of {deep}, had been heard by a passing {heard}, and help was fetched: {saver:a}, who climbed down "
            "on a rope and freed {child:them} with {tool:a}.",
            "With {tool:a} in one hand {saver:a} was lowered into the dry well into which {child} had fallen, {deep} "
            "below the grass. {heard:A} on the way home had noticed the child's cries. After {time} all was well, and "
            "{child} was eating {sweet}.",
        ),
        {
            "heard": (
                "Who heard the child in the well?",
                "What was the trade of the person who noticed the cries from the well?",
                "What was the trade of the person who heard {child}?",
                "Who noticed a call from a depth of {deep}?",
            ),
            "saver": (
                "Who brought the child up from the well?",
                "What was the trade of the person who was lowered into the well?",
                "Who got {child} out of the well?",
                "What did the person who went into the well with the {tool} do for a living?",
            ),
            "time": (
                "How long was the child in the well?",
                "After what time was the child brought up from the well?",
                "How long did {child} have to wait in the well?",
                "How long did the child stay at a depth of {deep}?",
            ),
            "tool": (
                "What tool was used to get the child out of the well?",
                "Which tool did the rescuer take down into the well?",
                "With what tool was {child} freed?",
                "What tool did the {saver} have in the well?",
            ),
            "deep": (
                "How deep did the child fall?",
                "How far down in the well was the child?",
                "How far did {child} fall?",
                "At what depth did the {saver} find the child?",
            ),
            "sweet": (
                "What did the rescued child want to eat?",
                "What did the child from the well ask for?",
                "What food did {child} ask for?",
                "What did the child who was saved by the {saver} get to eat?",
            ),
        },
    ),
    Frame(
        "plain_event_roof_cat",
        {
            "pet": "pet",
            "beast": "animal",
            "owner": "person",
            "house": "building",
            "long": "length",
            "fish": "food",
            "hour": "clock",
            "short": "length",
        },
        (
            "The firefighters first came with a ladder of {short}, which did not reach the roof of the {house}. With "
            "a second one, {long} long, they got up to {pet}, the {beast} of {owner}, and lured it down with {fish} "
            "at {hour}.",
            "{pet}, {beast:a}, had climbed onto the roof of the {house} and would not come down. {owner} called the "
            "firefighters, whose first ladder measured {short} and was no good; only on the one of {long} did they "
            "get near enough to hold out {fish}. At {hour} the runaway was back on the ground.",
            "At {hour} {owner} had {owner:their} {beast} {pet} back. It had sat on the roof of the {house} all day, "
            "far above the firefighters' first ladder, with its {short}; it took one of {long}, and the smell of "
            "{fish}, to get it down.",
        ),
        {
            "beast": (
                "What animal was on the roof?",
                "What kind of animal did the firefighters bring down?",
                "What kind of animal is {pet}?",
                "What animal belongs to {owner}?",
            ),
            "house": (
                "On the roof of which building was the animal?",
                "To which building were the firefighters called?",
                "Where had {pet} climbed up?",
                "On which roof was the animal that belongs to {owner}?",
            ),
            "long": (
                "How long was the ladder that reached the roof?",
                "What was the length of the firefighters' second ladder?",
                "With a ladder of what length did the firefighters get to {pet}?",
                "How long was the ladder that was used at last at the {house}?",
            ),
            "short": (
                "How long was the ladder that did not reach the roof?",
                "What was the length of the firefighters' first ladder?",
                "How long was the ladder that was too short to reach {pet}?",
                "What length did the first ladder at the {house} have?",
            ),
            "fish": (
                "With what was the animal lured down from the roof?",
                "What food did the firefighters use?",
                "With what food was {pet} caught?",
                "What did the {beast} on the roof like to smell?",
            ),
            "hour": (
                "At what time was the animal back on the ground?",
                "When did the animal come down from the roof?",
                "At what time did {owner} get the animal back?",
                "When did {pet} come down?",
            ),
        },
    ),
    Frame(
        "plain_event_sheep_island_tide",
        {
            "who": "person",
            "beast": "animal",
            "many": "number",
            "saved": "number",
            "boat": "means",
            "coat": "garment",
            "island": "island",
            "tide": "clock",
        },
        (
            "The flood tide came at {tide} and cut off a herd on the sands near {island}. {who} waved {coat:a} from "
            "the dyke until help came {boat}; of the {many} animals, every one {beast:a}, {saved} were brought to "
            "land alive.",
            "{who} saw from the dyke that the tide, which turned at {tide}, had cut off the whole herd on the sands "
            "by {island}: {many} beasts, all alike, not one that was not {beast:a}. {who:They} tore off {coat:a} and "
            "waved it. Helpers arrived {boat} and got {saved} of them ashore.",
            "Of {many} animals that the tide had trapped on the sands off {island}, {saved} are alive today. For that "
            "their owner can thank {who}, who noticed at {tide} how the water was rising, and signalled with {coat:a} "
            "from the dyke, and the men who came {boat}. One {beast} more, and the barge would have sunk.",
        ),
        {
            "who": (
                "Who gave the signal from the dyke?",
                "Who noticed that the herd was cut off by the tide?",
                "Who waved the {coat}?",
                "Who saw the herd in danger near {island}?",
            ),
            "coat": (
                "What was waved from the dyke?",
                "With which garment was the signal given that the herd was cut off?",
                "What garment did {who} wave?",
                "With what did somebody signal that the herd off {island} was in danger?",
            ),
            "many": (
                "How many animals were cut off by the tide?",
                "How large was the herd on the sands?",
                "How many animals were trapped near {island}?",
                "How many animals did {who} see in danger?",
            ),
            "saved": (
                "How many animals of the herd were saved?",
                "How many animals were brought from the sands to land?",
                "How many of the animals near {island} survived?",
                "How many animals were saved because {who} gave a signal?",
            ),
            "beast": (
                "A herd of which animal was cut off by the tide?",
                "Which kind of animal was trapped on the sands?",
                "What kind of animal stood on the sands off {island}?",
                "What kind of animal was helped by {who}?",
            ),
            "boat": (
                "How did the helpers come to the herd on the sands?",
                "By what means did help arrive after the signal from the dyke?",
                "How did the men get to {island}?",
                "How did the helpers come whom {who} had called?",
            ),
        },
    ),
    Frame(
        "plain_event_river_rescue",
        {
            "who": "person",
            "child": "person",
            "runner": "person",
            "rod": "thing",
            "river": "river",
            "reward": "price",
            "pride": "feeling",
            "gift": "thing",
        },
        (
            "When {child} fell into the {river}, {who} held out {rod:a} to {child:them} from the landing stage and "
            "pulled {child:them} in, while {runner} ran for the doctor. {who} refused the {reward} that the parents "
            "offered; {gift:a}, however, {who:they} accepted, feeling {pride}.",
            "{runner} ran for the doctor; {who} lay down on the landing stage, reached {rod:a} out over the {river}, "
            "and {child}, who had fallen in, caught hold of it. Later the grateful parents offered {reward}. The "
            "rescuer, {pride} but polite, took {gift:a} instead.",
            '"I am {pride}," said {who}, when the parents of {child} wanted to give {who:them} {reward}, and took '
            "only {gift:a}. {child} had been drowning in the {river}; {rod:a}, held out from the landing stage, was "
            "what saved {child:them}. {runner} had gone to get the doctor.",
        ),
        {
            "who": (
                "Who pulled the child out of the water?",
                "Who refused money for saving a child?",
                "Who saved {child}?",
                "Who was given the {gift} for a rescue?",
            ),
            "child": (
                "Who fell into the water near the landing stage?",
                "Which child was saved from drowning?",
                "Who fell into the {river}?",
                "Whom did {who} pull out of the water?",
            ),
            "runner": (
                "Who ran for the doctor?",
                "Who fetched the doctor to the landing stage?",
                "Who went for the doctor when {child} was in the water?",
                "Who got the doctor while {who} was pulling the child in?",
            ),
            "rod": (
                "What was held out to the drowning child?",
                "What did the drowning child catch hold of?",
                "With what was {child} pulled out of the water?",
                "What did {who} hold out over the water?",
            ),
            "reward": (
                "How much money did the rescuer refuse?",
                "What sum did the parents of the saved child offer?",
                "How much was {who} offered?",
                "How much money did the parents of {child} offer?",
            ),
            "gift": (
                "What did the rescuer accept as a gift?",
                "What did the parents give the rescuer instead of money?",
                "What did {who} get for the rescue?",
                "Which gift did the parents of {child} give?",
            ),
        },
    ),
    Frame(
        "plain_event_tombola",
        {
            "first": "thing",
            "second": "thing",
            "last": "food",
            "price": "price",
            "number": "number",
            "who": "person",
            "other": "person",
            "fete": "building",
        },
        (
            "The tombola at the fete in the {fete} had {first:a} as its first prize and {second:a} as its second; all "
            "the rest got {last}. {who} won the first with ticket number {number}, {other} the second. A ticket cost "
            "{price}.",
            "{price} was the price of a ticket in the tombola, and everyone who came to the fete in the {fete} bought "
            "one. Number {number} brought {who} the first prize, {first:a}; {other} went home with the second, "
            "{second:a}; those who won nothing were comforted with {last}.",
            '"Number {number}!" called the vicar, and {who} ran up to fetch the first prize of the tombola, '
            "{first:a}. {second:A}, the second prize, fell to {other}, and the losers, who had also paid their "
            "{price} for a ticket, were given {last}. So the fete in the {fete} ended well.",
        ),
        {
            "first": (
                "What was the first prize in the tombola?",
                "What could one win as first prize at the fete?",
                "What did {who} win in the tombola?",
                "What was won with ticket number {number}?",
            ),
            "second": (
                "What was the second prize in the tombola?",
                "Which thing was the second prize at the fete?",
                "What did {other} win?",
                "What was the second prize in the {fete}?",
            ),
            "last": (
                "What did the losers of the tombola get?",
                "What was given to those who won nothing at the fete?",
                "What consolation was there for the losers in the {fete}?",
                "What did one get if one was not as lucky as {who}?",
            ),
            "price": (
                "How much did a ticket for the tombola cost?",
                "What was the price of a tombola ticket?",
                "How much did {other} pay for a ticket?",
                "What did a ticket cost in the {fete}?",
            ),
            "number": (
                "What was the number of the winning ticket?",
                "Which number won the first prize in the tombola?",
                "Which number did {who} have?",
                "With which number was the {first} won?",
            ),
            "fete": (
                "In which building was the fete held?",
                "Where did the tombola take place?",
                "In what building did {who} win the tombola?",
                "Where could one win {first:a}?",
            ),
        },
    ),
    Frame(
        "plain_event_guess_the_weight",
        {
            "who": "person",
            "other": "person",
            "real": "weight",
            "guess": "weight",
            "far": "weight",
            "prize": "food",
            "fair": "festival",
        },
        (
            "How heavy was the pumpkin? At the {fair} {other} said {far} and was laughed at, {who} said {guess} and "
            "won. The scales showed {real}, and the reward for the nearest guess was {prize}.",
            "The giant pumpkin of the {fair} weighed {real}, as everyone could see when it was lifted onto the "
            "scales. Nearest to that came {who} with a guess of {guess}; farthest from it was {other}, with {far}. "
            "The winner took home {prize}.",
            "For guessing the weight of the pumpkin at the {fair} one could win {prize}. {who} wrote {guess} on "
            "{who:their} slip and got the prize, although the true weight was {real}. {other} had been sure of {far}, "
            "the worst guess of all.",
        ),
        {
            "real": (
                "What was the true weight of the pumpkin?",
                "How heavy was the pumpkin really?",
                "How much did the pumpkin of the {fair} weigh?",
                "What did the scales show after {who} had guessed?",
            ),
            "guess": (
                "Which guess of the pumpkin's weight won?",
                "What was the best guess of the pumpkin's weight?",
                "What weight did {who} guess?",
                "What was the winning guess at the {fair}?",
            ),
            "far": (
                "What was the worst guess of the pumpkin's weight?",
                "Which guess was farthest from the weight of the pumpkin?",
                "What weight did {other} guess?",
                "What was the guess that came nowhere near at the {fair}?",
            ),
            "who": (
                "Who made the best guess about the pumpkin?",
                "Who won by guessing the weight of the pumpkin?",
                "Who won {prize}?",
                "Who guessed best at the {fair}?",
            ),
            "prize": (
                "What was the prize for guessing the weight of the pumpkin?",
                "What could the best guesser take home?",
                "What did {who} win?",
                "What did one get for the nearest guess at the {fair}?",
            ),
        },
    ),
    Frame(
        "plain_event_market_stalls",
        {
            "left": "thing",
            "right": "thing",
            "drink": "drink",
            "food": "food",
            "open": "clock",
            "shut": "clock",
            "town": "town",
            "month": "month",
        },
        (
            "At the candle-lit market of {town}, in {month}, the stall to the left of the fountain sells {left:a} to "
            "anyone who asks, the one to the right {right:a}. Between them there is {drink} against the cold and "
            "{food} against hunger. The stalls open at {open} and close at {shut}.",
            "Every evening in {month} the stalls around the fountain in {town} light their candles at {open}, when "
            "they open; at {shut}, when they close, they are put out. You can buy {left:a} at the stall on the left, "
            "{right:a} at that on the right, and in the middle you drink {drink} and eat {food}.",
            "Who needs {right:a} goes to the stall right of the fountain, and who needs {left:a} to the stall on its "
            "left. The stall in the middle feeds the market-goers of {town} with {food} and warms them with {drink}. "
            "The market is held in {month}; from {open}, when the stalls open, until they close at {shut}, candles "
            "burn on all of them.",
        ),
        {
            "left": (
                "What is sold at the stall on the left of the fountain?",
                "What can one buy at the left-hand stall?",
                "What does the stall on the left in {town} sell?",
                "What does the stall left of the fountain offer in {month}?",
            ),
            "right": (
                "What is sold at the stall on the right of the fountain?",
                "What does the right-hand stall sell?",
                "What can one buy at the stall on the right in {town}?",
                "What is for sale on the right of the fountain in {month}?",
            ),
            "drink": (
                "What can one drink at the candle-lit market?",
                "What drink is sold between the two stalls?",
                "What do people drink at the market in {town}?",
                "What drink keeps people warm at the market in {month}?",
            ),
            "food": (
                "What can one eat at the candle-lit market?",
                "What food does the stall in the middle sell?",
                "What do people eat at the market in {town}?",
                "What food is there by the fountain in {month}?",
            ),
            "open": (
                "When do the stalls by the fountain open?",
                "At what time are the candles lit at the market?",
                "When do the stalls in {town} open?",
                "At what time does the market begin in {month}?",
            ),
            "shut": (
                "When do the stalls by the fountain close?",
                "At what time are the candles of the market put out?",
                "When does the market in {town} close?",
                "Until what time are the stalls open in {month}?",
            ),
        },
    ),
    Frame(
        "plain_event_fireworks_place",
        {
            "usual": "building",
            "place": "lake",
            "fair": "festival",
            "start": "clock",
            "over": "clock",
            "reason": "reason",
            "who": "trade",
            "dog": "animal",
        },
        (
            "The fireworks of the {fair} were set off from a raft on {place} this year, not, as usual, from the roof "
            "of the {usual}, because {reason}. {who:A} lit them at {start}; at {over} the last rocket went up, and "
            "every {dog} in the neighbourhood crept out of hiding.",
            "Because {reason}, the roof of the {usual}, where the rockets are usually lit, could not be used for the "
            "fireworks of the {fair}. A raft was anchored on {place} instead, and from there {who:a} sent up the "
            "first rocket at {start} and the last at {over}. Only the {dog} next door hid under a bed.",
            "This year the fireworks could be seen twice, in the sky and in {place}, for they were set off from a "
            "raft there. The roof of the {usual}, the usual place, was out of the question, as {reason}. {who:A} had "
            "charge of the matches; it began at {start} and was over at {over}. So ended the {fair}, to the relief of "
            "{dog:a} that hates noise.",
        ),
        {
            "place": (
                "Where were the fireworks set off this year?",
                "On which lake was the raft with the fireworks?",
                "From where were the rockets of the {fair} sent up?",
                "Where were the fireworks lit by the {who}?",
            ),
            "usual": (
                "From the roof of which building are the fireworks usually set off?",
                "Where are the rockets lit in other years?",
                "On which building do the fireworks of the {fair} usually stand?",
                "Which roof could not be used because {reason}?",
            ),
            "start": (
                "At what time did the fireworks begin?",
                "When was the first rocket lit?",
                "When did the fireworks of the {fair} start?",
                "At what time did the {who} begin to light the rockets?",
            ),
            "over": (
                "At what time were the fireworks over?",
                "When did the last rocket go up?",
                "When did the fireworks of the {fair} end?",
                "At what time had the {who} finished?",
            ),
            "who": (
                "Who lit the fireworks?",
                "What is the trade of the person who set off the rockets?",
                "Who had the fireworks of the {fair} in hand?",
                "What was the trade of the person on the raft on {place}?",
            ),
            "dog": (
                "What animal was afraid of the fireworks?",
                "Which animal hid from the rockets?",
                "What animal suffered from the fireworks of the {fair}?",
                "Which kind of animal does not like the noise from {place}?",
            ),
        },
    ),
    Frame(
        "plain_event_roundabout",
        {
            "child": "person",
            "first": "animal",
            "second": "animal",
            "price": "price",
            "colour": "colour",
            "prize": "drink",
            "rides": "number",
            "relative": "relative",
        },
        (
            "There is an old roundabout at the fair, on which a ride costs {price}. {child} rode on the wooden "
            "{first}, while {child:their} {relative} had to be content with the {second}, which has lost a leg; both "
            "of them drank {prize} when, after {rides} rides, the {colour} tent roof stopped turning.",
            "{child} always chooses the {first} on the old roundabout under the {colour} tent roof. This time "
            "{child:their} {relative} came along, got the three-legged {second} and called it quits after {rides} "
            "rides at {price} each; then they went to drink {prize}.",
            "Under {colour:a} roof turn the wooden animals of the roundabout. At {price} a ride it is not cheap, but "
            "{child} would not get down from the {first} before {rides} rides were over, and {child:their} "
            "{relative}, on the {second} with the missing leg, longed for {prize}, which they had afterwards.",
        ),
        {
            "first": (
                "Which wooden animal did the child ride on the roundabout?",
                "On what did the child sit on the roundabout?",
                "On which animal did {child} ride?",
                "What did the child ride on while the {relative} sat on the {second}?",
            ),
            "second": (
                "Which wooden animal of the roundabout has lost a leg?",
                "On which animal did the child's {relative} ride?",
                "What animal did the relative of {child} get?",
                "Which of the animals on the roundabout has only three legs?",
            ),
            "price": (
                "How much does a ride on the roundabout cost?",
                "What is the price of one ride?",
                "How much did {child} have to pay for each ride?",
                "What does it cost to ride on the {first}?",
            ),
            "rides": (
                "How many rides on the roundabout were there?",
                "How often did they ride?",
                "How many rides did {child} have?",
                "After how many rides did they drink {prize}?",
            ),
            "colour": (
                "What colour is the roof of the roundabout?",
                "Which colour does the roundabout have above the wooden animals?",
                "What was the colour of the roof above {child}?",
                "What colour is the tent roof under which the {first} turns?",
            ),
            "prize": (
                "What did they drink after the rides on the roundabout?",
                "What drink was there when the rides were over?",
                "What did {child} drink?",
                "What did the {relative} get to drink after the ride?",
            ),
        },
    ),
    Frame(
        "plain_event_scarecrows",
        {
            "who": "person",
            "other": "person",
            "hat": "garment",
            "coat": "material",
            "prize": "thing",
            "second": "food",
            "field": "crop",
        },
        (
            "In the contest for the best scarecrow, {who} came first with one that wore {hat:a} and had hands of "
            "{coat}; the judges gave {who:them} {prize:a}. {other} was second and got {second}. The winner now keeps "
            "the crows off a field of {field}.",
            "{other:s} scarecrow scared even the judges, but it only came second, which meant {second}. First place, "
            "and with it {prize:a}, went to {who}, whose scarecrow, with hands made of {coat}, lifts {hat:a} in the "
            "wind. It is to guard a field of {field}.",
            "The judges of the scarecrow contest laughed when they saw {hat:a} on the winning figure and shook its "
            "hands, which were of {coat}. {who}, its maker, was handed {prize:a}, {other}, in second place, {second}. "
            "From now on the crows will have to leave the {field} in the winner's field alone.",
        ),
        {
            "who": (
                "Who won the scarecrow contest?",
                "Who made the best scarecrow?",
                "Who was better than {other} in the contest?",
                "Whose scarecrow wore {hat:a}?",
            ),
            "hat": (
                "What did the winning scarecrow wear?",
                "Which garment did the best scarecrow have on?",
                "What did the scarecrow of {who} wear?",
                "What garment did the scarecrow with the hands of {coat} wear?",
            ),
            "coat": (
                "Of what were the hands of the winning scarecrow made?",
                "What material did the best scarecrow have for hands?",
                "Of what did {who} make the hands?",
                "What were the hands of the scarecrow that wore the {hat} made of?",
            ),
            "prize": (
                "What was the first prize for the scarecrows?",
                "What did the maker of the best scarecrow get?",
                "What did {who} win?",
                "What prize did the scarecrow with the {hat} win?",
            ),
            "second": (
                "What was the second prize for the scarecrows?",
                "What did the maker of the second-best scarecrow get?",
                "What did {other} win?",
                "With what did {other} have to be content?",
            ),
            "field": (
                "What grows in the field that the winning scarecrow guards?",
                "From which crop does the best scarecrow keep the crows away?",
                "What crop does the scarecrow of {who} protect?",
                "What does the scarecrow with the {hat} guard?",
            ),
        },
    ),
    Frame(
        "plain_event_quiz_night",
        {
            "inn": "building",
            "good": "subject",
            "bad": "subject",
            "points": "number",
            "won": "number",
            "prize": "drink",
            "day": "weekday",
            "team": "trade",
            "other": "trade",
        },
        (
            "The quiz at the {inn} on {day} was won by the table of the {team} with {won} points. The table of the "
            "{other} got {points}; it had known everything about {good} and nothing at all about {bad}. The winners "
            "shared a bottle of {prize}.",
            "At the {inn} there was a quiz on {day}. Questions on {good} were no trouble to the {other} and the "
            "friends at his table, but those on {bad} ruined them; they stopped at {points} points. The winning "
            "table, that of the {team}, reached {won} and was rewarded with a bottle of {prize}.",
            "A bottle of {prize} stood ready for the best table in the quiz at the {inn}. It went, on {day}, to that "
            "of the {team}, with a total of {won} points, because the second-best, where the {other} was sitting, "
            "collected only {points}: splendid in {good}, it knew no answer in {bad}.",
        ),
        {
            "bad": (
                "In which subject did the losing table know nothing at the quiz?",
                "On which subject could the second-best table not answer any question?",
                "In which subject was the table of the {other} weak?",
                "Which subject brought no points to the {other}?",
            ),
            "good": (
                "In which subject did the losing table know everything at the quiz?",
                "What subject was easy for the table that lost the quiz?",
                "In which subject was the table of the {other} good?",
                "About which subject did the {other} and his friends know everything?",
            ),
            "won": (
                "With how many points was the quiz won?",
                "How many points did the winners of the quiz have?",
                "How many points did the table of the {team} get?",
                "How many points were enough to win at the {inn}?",
            ),
            "points": (
                "How many points did the losing table get in the quiz?",
                "How many points did the second-best table have?",
                "How many points did the table of the {other} get?",
                "How many points did the losers at the {inn} collect?",
            ),
            "prize": (
                "What did the winners of the quiz get to drink?",
                "Of what was there a bottle to be won in the quiz?",
                "A bottle of what did the table of the {team} win?",
                "What was the prize at the {inn}?",
            ),
            "day": (
                "On which day was the quiz?",
                "On what day of the week was the quiz held?",
                "When was there a quiz at the {inn}?",
                "On what day did the table of the {team} win?",
            ),
        },
    ),
    Frame(
        "plain_event_raft_race",
        {
            "first": "person",
            "last": "person",
            "stuff": "material",
            "sunk": "material",
            "river": "river",
            "time": "duration",
            "bridge": "building",
            "prize": "garment",
        },
        (
            "In the raft race down the {river} {first} was the fastest: on a raft of {stuff} {first:they} reached the "
            "{bridge} in {time}. The raft of {last} was made of {sunk} and sank in sight of the start. The winner "
            "wears {prize:a} until next year.",
            "A raft made of {sunk} does not float for long, as {last} found out in the raft race on the {river}, in "
            "which {last:they} sank at once. One made of {stuff} took {first} to the finish at the {bridge} in "
            "{time}, and so {first:they} was helped into {prize:a}, the dress of honour of the winner.",
            "The winner of the raft race on the {river} is helped into {prize:a} and may wear it all year. This time "
            "it was {first}, whose raft of {stuff} came to the {bridge}, where the race ends, after {time}. For "
            "{last} it was over soon: {last:their} raft, built of {sunk}, went under.",
        ),
        {
            "first": (
                "Who won the raft race?",
                "Who was the fastest on a raft?",
                "Who got to the {bridge} on a raft before all others?",
                "Who won the raft race on the {river}?",
            ),
            "last": (
                "Whose raft sank?",
                "Who sank in the raft race?",
                "Who had a raft of {sunk}?",
                "Who went under in the race on the {river}?",
            ),
            "stuff": (
                "Of what was the winning raft made?",
                "What material did the winner of the raft race use?",
                "What was the raft of {first} made of?",
                "Of what was the raft built that reached the {bridge}?",
            ),
            "sunk": (
                "Of what was the raft made that sank?",
                "What material was no good for a raft?",
                "What was {last:s} raft made of?",
                "Of what was the raft that went down in the {river}?",
            ),
            "prize": (
                "What garment may the winner of the raft race wear?",
                "What is the winner of the raft race dressed in?",
                "What may {first} wear?",
                "In what is the winner of the race on the {river} dressed?",
            ),
            "bridge": (
                "At which building did the raft race end?",
                "Where was the finish of the raft race?",
                "Where did {first} arrive on a raft?",
                "Where does the raft race on the {river} end?",
            ),
        },
    ),
    Frame(
        "plain_event_snail_race",
        {
            "who": "person",
            "slow": "pet",
            "fast": "pet",
            "bait": "crop",
            "time": "duration",
            "long": "length",
            "child": "person",
            "colour": "colour",
        },
        (
            "The snail race was over after {time}. {fast}, {who:s} snail, had covered the {long} of the course in "
            "pursuit of some {bait}, while {slow}, {colour} dots on her shell, the snail that {child} had trained, "
            "slept at the start.",
            "{child:s} snail, {slow}, marked with {colour} dots, never moved. So the snail race was won by {fast}, "
            "with {who} cheering beside the track: {long} in {time}, and all for some {bait} at the end of it.",
            "Some {bait} lay at the finish, {long} away, and it took the winning snail {time} to get there. {fast}, "
            "that was its name, is owned by {who}. {slow}, the snail with the {colour} dots, went to sleep before the "
            "start, much to the grief of {child}.",
        ),
        {
            "fast": (
                "What was the name of the winning snail?",
                "Which snail won the race?",
                "What is the name of the snail of {who}?",
                "Which snail was quicker than {slow}?",
            ),
            "slow": (
                "What was the name of the snail that slept?",
                "Which snail did not leave the start?",
                "What was {child:s} snail called?",
                "Which snail has {colour} dots?",
            ),
            "bait": (
                "What lay at the finish of the snail race?",
                "With what were the snails tempted to run?",
                "What did {fast} want to eat?",
                "What did the snail of {who} crawl towards?",
            ),
            "time": (
                "How long did the snail race last?",
                "How long did the winning snail need?",
                "How long did {fast} take?",
                "After what time was the snail of {who} at the finish?",
            ),
            "long": (
                "How long was the track for the snails?",
                "What distance did the snails have to cover?",
                "How far did {fast} crawl?",
                "What distance did the snail of {who} cover?",
            ),
            "colour": (
                "What colour were the dots on the shell?",
                "In which colour was the sleeping snail marked?",
                "What colour were the dots of {slow}?",
                "What colour were the dots on {child:s} snail?",
            ),
        },
    ),
    Frame(
        "plain_event_bandstand",
        {
            "hall": "building",
            "opener": "song",
            "encore": "song",
            "weather": "weather",
            "missing": "instrument",
            "day": "weekday",
            "leader": "person",
        },
        (
            "Because of {weather} the brass band did not play in the park on {day} but in the {hall}. {leader} "
            "conducted; {opener} opened the evening, {encore} was played as an encore, and nobody noticed that the "
            "{missing} was missing.",
            "On {day} there was {weather}, and {leader} led the brass band out of the park and into the {hall}. The "
            "player of the {missing} had stayed at home, but the rest began with {opener}, and the audience clapped "
            "until they got {encore} as an encore.",
            "The benches of the {hall} were full when {leader} raised the baton on {day}. The brass band had fled "
            "from the park because of {weather}, and the {missing} had not turned up; all the same, {opener}, the "
            "first piece, went well, and the encore, {encore}, had to be played twice.",
        ),
        {
            "hall": (
                "Where did the brass band play instead of in the park?",
                "In which building was the concert of the brass band?",
                "In what building did {leader} conduct the brass band?",
                "Where was the brass band on {day}?",
            ),
            "weather": (
                "What weather drove the brass band out of the park?",
                "What was the weather like when the brass band wanted to play in the park?",
                "Because of what weather did {leader} move the concert?",
                "What weather was there on {day}?",
            ),
            "opener": (
                "Which piece did the brass band play first?",
                "With which piece did the concert of the brass band begin?",
                "What did the band under {leader} play to begin with?",
                "What piece opened the concert in the {hall}?",
            ),
            "encore": (
                "Which piece did the brass band play as an encore?",
                "What was the last piece of the concert, the encore?",
                "What encore did {leader} conduct?",
                "What was played as an encore in the {hall}?",
            ),
            "missing": (
                "Which instrument was missing in the brass band?",
                "What instrument did nobody play in the band?",
                "Which instrument did {leader} have to do without?",
                "What instrument was not to be heard in the {hall}?",
            ),
            "day": (
                "On which day did the brass band play?",
                "When was the concert of the brass band?",
                "On which day did {leader} conduct the band?",
                "On what day was the brass band in the {hall}?",
            ),
        },
    ),
    Frame(
        "plain_event_power_cut_concert",
        {
            "solo": "instrument",
            "alone": "instrument",
            "who": "person",
            "other": "person",
            "time": "clock",
            "back": "clock",
            "light": "thing",
            "gift": "drink",
            "place": "building",
        },
        (
            "At {time} the lights went out in the {place}, in the middle of the concert. {who}, who had been playing "
            "the {alone}, went on by heart, but {other} let {other:their} {solo} sink. The caretaker, who came with a "
            "candle, stumbled over {light:a}. The power came back at {back}, when all were drinking {gift}.",
            "There was a power cut during the concert in the {place}. From {time} until {back} it was dark; {other} "
            "let {other:their} {solo} sink, {who} played on without notes on the {alone}, and the caretaker, feeling "
            "his way in with a candle, fell over {light:a}. In the interval {gift} was served.",
            "At {time}, in the middle of the concert in the {place}, the power failed. {other} could not read the "
            "notes for the {solo} and stopped; {who}, at the {alone}, needed none. The caretaker brought a candle but "
            "stumbled over {light:a}. When the lamps burned again, at {back}, everyone was in the foyer drinking "
            "{gift}.",
        ),
        {
            "time": (
                "At what time did the lights go out during the concert?",
                "When did the power fail at the concert?",
                "At what time did it get dark in the {place}?",
                "When did {other} have to stop playing?",
            ),
            "back": (
                "At what time was there light again after the power cut?",
                "When did the power come back?",
                "Until what time was it dark in the {place}?",
                "At what time did {other} have light again?",
            ),
            "alone": (
                "Which instrument went on sounding in the dark?",
                "What instrument was played without notes during the power cut?",
                "What instrument did {who} play?",
                "Which instrument was played by heart in the {place}?",
            ),
            "solo": (
                "Which instrument fell silent in the dark?",
                "What instrument could not be played without seeing the notes?",
                "What instrument did {other} play?",
                "Which instrument stopped in the dark {place}?",
            ),
            "light": (
                "Over what did the caretaker stumble in the dark?",
                "What made the caretaker with the candle fall?",
                "What stood in the caretaker's way in the {place}?",
                "Over what did somebody fall while {who} was playing?",
            ),
            "gift": (
                "What was drunk at the concert with the power cut?",
                "What drink was served to the audience?",
                "What did people drink in the {place}?",
                "What did the audience of {who} drink?",
            ),
        },
    ),
    Frame(
        "plain_event_organ_mouse",
        {
            "church": "town",
            "beast": "animal",
            "who": "person",
            "finder": "person",
            "cost": "price",
            "day": "weekday",
            "nest": "material",
        },
        (
            "For weeks one pipe of the organ in {church} made no sound. {finder}, sent for by {who}, the organist, "
            "opened it on {day} and found the nest of {beast:a}, woven of {nest}. The repair, which {finder:they} had "
            "put at {cost}, cost nothing but a laugh in the end.",
            "On {day} the organ of {church} got back its missing note. {beast:A} had built a nest of {nest} in the "
            "pipe, and {finder}, the organ builder, had first thought of a bill of {cost}; in the end {finder:they} "
            'did it for nothing. "I thought I was going deaf," said {who}, who plays it.',
            "{who} plays the organ in {church} and had been missing a note for weeks. The repair, for which a price "
            "of {cost} had been named, was free in the end: on {day} {finder}, who builds organs, pulled a heap of "
            "{nest} out of the silent pipe, the nest of {beast:a}.",
        ),
        {
            "beast": (
                "What animal had its nest in the organ?",
                "Which animal silenced a pipe of the organ?",
                "The nest of what animal did {finder} find?",
                "What animal lived in the organ of {church}?",
            ),
            "nest": (
                "Of what was the nest in the organ made?",
                "What was in the silent pipe of the organ?",
                "Of what material was the nest that {finder} found?",
                "What was the nest of the {beast} made of?",
            ),
            "finder": (
                "Who found the nest in the organ?",
                "Who repaired the organ?",
                "Whom did {who} need to get the missing note back?",
                "Who repaired the organ in {church}?",
            ),
            "who": (
                "Who plays the organ with the silent pipe?",
                "Who noticed that a note of the organ was missing?",
                "For whom did {finder} repair the organ?",
                "Who is the organist in {church}?",
            ),
            "cost": (
                "How much was the repair of the organ at first expected to cost?",
                "What price had been feared for the organ repair?",
                "What price did {finder} think of first?",
                "How much had the people of {church} expected to pay for the organ?",
            ),
            "day": (
                "On which day was the nest in the organ found?",
                "On which day was the organ repaired?",
                "When did {finder} open the silent pipe?",
                "When was the organ in {church} repaired?",
            ),
        },
    ),
    Frame(
        "plain_event_bench_meeting",
        {
            "for": "number",
            "against": "number",
            "cost": "price",
            "site": "road",
            "other": "road",
            "stuff": "material",
            "day": "weekday",
            "giver": "trade",
        },
        (
            "The parish council met on {day} and argued for two hours about a bench. By {for} votes to {against} it "
            "was decided to put it up in {site} and not in {other}; it will be of {stuff}, and the cost, {cost}, will "
            "be paid by {giver:a} who wishes to remain unknown.",
            "A new bench of {stuff} is coming to {site}, although some would have liked it better in {other}. On "
            "{day} {for} members of the parish council voted in favour and {against} against. It costs {cost}, but "
            "not the parish: {giver:a}, who did not give a name, is paying.",
            "{other} or {site}? The parish council could not agree on {day} where the new bench should stand. When "
            "hands were raised, {for} were for the second and {against} against, so {site} it is. The bench, of "
            "{stuff}, was promised by an unknown {giver}, who put {cost} in an envelope for it.",
        ),
        {
            "site": (
                "In which street will the new bench be put up?",
                "Where did the parish council decide to put the bench?",
                "Where will the bench of {stuff} stand?",
                "In which street will the bench stand, if not in {other}?",
            ),
            "other": (
                "Which street will not get the bench after all?",
                "Where would some members of the parish council have preferred the bench?",
                "Which street lost to {site}?",
                "In which other street than {site} could the bench have stood?",
            ),
            "for": (
                "How many members of the council voted in favour of the place for the bench?",
                "How many votes were there for the place of the bench?",
                "How many voted for {site}?",
                "How many votes in favour did the council count on {day}?",
            ),
            "against": (
                "How many votes were there against the place chosen for the bench?",
                "How many members of the council were against?",
                "How many voted against {site}?",
                "How many votes against were there on {day}?",
            ),
            "cost": (
                "How much does the new bench cost?",
                "What is the price of the bench?",
                "How much does the {giver} pay?",
                "How much does the bench for {site} cost?",
            ),
            "giver": (
                "Who is paying for the bench?",
                "What is the trade of the person who gives the money for the bench?",
                "Who gave {cost}?",
                "Who pays for the bench in {site}?",
            ),
        },
    ),
    Frame(
        "plain_event_bee_meeting",
        {
            "came": "number",
            "hoped": "number",
            "topic": "subject",
            "talk": "subject",
            "speaker": "person",
            "room": "room",
            "cake": "food",
            "start": "clock",
        },
        (
            "The beekeepers' club had laid out chairs for {hoped}, but {came} people came, so the meeting was moved "
            "from the {room} to the garden. {speaker} spoke on {talk} instead of {topic}, as the programme said, and "
            "afterwards there was {cake}. It had begun at {start}.",
            "At {start} {speaker} rose to speak to the beekeepers' club, not about {topic}, as had been printed, but "
            "about {talk}. The audience, {came} persons where {hoped} had been hoped for, could not fit into the "
            "{room} and sat among the hives, eating {cake}.",
            "{came} listeners and {cake} for only {hoped}: the secretary of the beekeepers' club was in despair. The "
            "{room} was too small, so they all sat in the garden when {speaker} began at {start}. {speaker:They} had "
            "prepared a talk on {topic} but forgot it at home, and spoke on {talk}.",
        ),
        {
            "came": (
                "How many people came to the beekeepers' meeting?",
                "How many listeners did the talk at the beekeepers' club have?",
                "How many people listened to {speaker}?",
                "How many people did not fit into the {room}?",
            ),
            "hoped": (
                "For how many people was the beekeepers' club prepared?",
                "How many listeners had the beekeepers expected?",
                "How many people were expected to hear {speaker}?",
                "How many people had been counted on for the {room}?",
            ),
            "talk": (
                "What was the talk at the beekeepers' club really about?",
                "On which subject did the speaker at the beekeepers' meeting speak?",
                "On what did {speaker} speak?",
                "What was the talk at {start} about?",
            ),
            "topic": (
                "What subject had been planned for the talk to the beekeepers?",
                "About what should the speaker really have talked at the beekeepers' club?",
                "On which subject should {speaker} have spoken?",
                "What subject had been meant for the talk at {start}?",
            ),
            "room": (
                "Which room was too small for the beekeepers?",
                "In which room should the beekeepers' meeting have been held?",
                "In which room should {speaker} have spoken?",
                "In which room could {came} people not find a place?",
            ),
            "cake": (
                "What was eaten at the beekeepers' meeting?",
                "What food was there for the beekeepers?",
                "What was there to eat when {speaker} spoke?",
                "What did the {came} listeners eat?",
            ),
        },
    ),
    Frame(
        "plain_event_bicycle_thief",
        {
            "owner": "person",
            "thief": "trade",
            "old": "colour",
            "new": "colour",
            "shed": "building",
            "price": "price",
            "mark": "thing",
            "day": "weekday",
            "found": "weekday",
        },
        (
            "{owner:s} bicycle was stolen from the {shed} on {day}. It had been {old}; when it turned up on {found}, "
            "with {thief:a} who had been asking {price} for it, it was {new}, but {mark:a} still hung from the saddle.",
            "{thief:A} tried to sell a freshly painted {new} bicycle for {price} on {found}. {owner} happened to pass "
            "by and knew it at once by {mark:a} that hung from the saddle: it was {owner:their} own, the {old} one "
            "that had disappeared from the {shed} on {day}.",
            "The thief had painted the {old} bicycle {new} but forgotten {mark:a} under the saddle. So {owner}, from "
            "whose {shed} it had been taken on {day}, recognised it on {found} in the hands of {thief:a}, who wanted "
            "{price} for it, and called the police.",
        ),
        {
            "old": (
                "What colour was the bicycle before it was stolen?",
                "What was the old colour of the bicycle?",
                "What colour was {owner:s} bicycle at first?",
                "What colour was the bicycle when it disappeared from the {shed}?",
            ),
            "new": (
                "In which colour did the thief paint the bicycle?",
                "What colour was the bicycle when it was found?",
                "What colour was the bicycle of {owner} after the theft?",
                "What colour was the bicycle on {found}?",
            ),
            "shed": (
                "From where was the bicycle stolen?",
                "In which building was the bicycle before the theft?",
                "Where did {owner} keep the bicycle?",
                "From which building was the bicycle taken on {day}?",
            ),
            "price": (
                "How much did the thief want for the bicycle?",
                "For how much was the stolen bicycle to be sold?",
                "What did the {thief} ask for the bicycle?",
                "For what sum was {owner:s} bicycle offered?",
            ),
            "mark": (
                "By what was the stolen bicycle recognised?",
                "What hung from the saddle of the bicycle?",
                "By what did {owner} know the bicycle?",
                "What had the {thief} forgotten to take off the bicycle?",
            ),
            "found": (
                "On which day did the stolen bicycle turn up?",
                "On what day was the bicycle recognised?",
                "When did {owner} see the bicycle again?",
                "On which day was the {thief} caught with the bicycle?",
            ),
        },
    ),
    Frame(
        "plain_event_magpie_ring",
        {
            "bird": "animal",
            "ring": "thing",
            "who": "person",
            "suspect": "trade",
            "tower": "building",
            "weeks": "duration",
            "finder": "trade",
        },
        (
            "For {weeks} everyone in the house of {who} believed that the {suspect} had stolen {ring:a}. Then "
            "{finder:a} who was mending the {tower} found it, in a nest high under the roof: {bird:a} had carried it "
            "off through the open window.",
            "The thief was {bird:a}. It had flown in at the window, picked up {ring:a} that belonged to {who} and "
            "carried it to its nest on the {tower}, where {finder:a} at work on the roof came across it {weeks} "
            "later. The {suspect}, suspected by all, has had an apology.",
            "{who} has apologised to the {suspect}, whom {who:they} had suspected for {weeks} of having stolen "
            "{ring:a}. In a nest on the {tower}, {finder:a}, who had climbed up to repair it, found the missing "
            "piece. It was {bird:a} that had taken it.",
        ),
        {
            "bird": (
                "What animal was the thief?",
                "Which animal carried something off to its nest?",
                "What animal stole the {ring}?",
                "To what animal did the nest belong that the {finder} came upon?",
            ),
            "ring": (
                "What was stolen through the window?",
                "What was found in the nest?",
                "What was missing in {who:s} house?",
                "What did the {finder} find?",
            ),
            "suspect": (
                "Who was wrongly suspected of the theft?",
                "To whom was an apology made?",
                "Whom did {who} suspect?",
                "Who was innocent, although the {ring} was missing?",
            ),
            "tower": (
                "In which building was the nest with the stolen thing?",
                "Where was the thief's nest?",
                "On which building did the {finder} work?",
                "On what building was the {ring} found?",
            ),
            "weeks": (
                "For how long was an innocent person suspected?",
                "After what time was the stolen thing found in the nest?",
                "For how long was the {suspect} suspected?",
                "For how long was the {ring} missing?",
            ),
            "finder": (
                "Who found the stolen thing in the nest?",
                "What was the trade of the person who climbed up to the nest?",
                "Who found the {ring}?",
                "Who was mending the {tower}?",
            ),
        },
    ),
    Frame(
        "plain_event_pie_window",
        {
            "food": "food",
            "guilty": "animal",
            "suspect": "animal",
            "who": "person",
            "room": "room",
            "time": "clock",
            "day": "weekday",
            "trace": "garment",
            "second": "food",
        },
        (
            "{who} had put {food} on the sill of the {room} window to cool; at {time} on {day} the dish was empty. "
            "{suspect:A} was chased out of the garden for it, but the true thief, {guilty:a}, lay asleep on "
            "{trace:a}, licking its mouth, and they had {second} for dinner.",
            "On {day} somebody ate the {food} that had been left to cool on the window sill of the {room}, and {who} "
            "had to serve {second}. The neighbour's {suspect} was blamed at first. At {time}, however, {guilty:a} was "
            "discovered, fast asleep on {trace:a} and full to the ears: it was the thief.",
            "Not the {suspect}, which everyone blamed, but the {guilty} was the thief. It had taken the {food} from "
            "the sill of the {room} window, where {who} had set it to cool, and was found at {time} on {day}, "
            "sleeping off its meal on {trace:a}. The family had to make do with {second}.",
        ),
        {
            "food": (
                "What was stolen from the window sill?",
                "What had been put on the window sill to cool?",
                "What had {who} left on the window sill?",
                "What did the {guilty} eat?",
            ),
            "guilty": (
                "Which animal ate the food from the window sill?",
                "What animal turned out to be the thief?",
                "Which animal stole what {who} had put out?",
                "What animal took the {food}?",
            ),
            "suspect": (
                "Which animal was wrongly blamed?",
                "What animal was suspected at first but had not eaten anything?",
                "Which animal was innocent of taking the {food}?",
                "Which animal was blamed before the {guilty} was found out?",
            ),
            "second": (
                "What did they have to eat instead of the stolen food?",
                "What was the dinner after the theft from the window sill?",
                "What did {who} have to serve in the end?",
                "What was eaten in the place of the {food}?",
            ),
            "trace": (
                "On what was the thief sleeping?",
                "On which garment did the well-fed animal lie?",
                "On what garment did the {guilty} sleep?",
                "On what did the animal lie that had eaten the {food}?",
            ),
            "room": (
                "On the sill of which room's window was the food cooling?",
                "From the window of which room was the food stolen?",
                "Where had {who} put the food to cool?",
                "At the window of which room did the {guilty} steal?",
            ),
        },
    ),
    Frame(
        "plain_event_weathercock",
        {
            "stolen": "animal",
            "stuff": "material",
            "tower": "building",
            "village": "town",
            "month": "month",
            "back": "month",
            "youths": "trade",
            "price": "price",
        },
        (
            "In {month} the weathervane, {stolen:a} of {stuff}, disappeared from the {tower} in {village}. {youths:A} "
            "brought it back in {back}; he had meant to sell it for {price}, but {stolen:a} that everybody knows "
            "finds no buyer.",
            "The {stolen} turns in the wind again over {village}. Stolen from the {tower} in {month}, the old "
            "weathervane, which is made of {stuff}, was found at the door in {back}, with a note from {youths:a}, who "
            "regretted not having got the {price} that he had hoped for.",
            "{youths:A} climbed the {tower} of {village} in {month} and took down its weathervane, {stolen:a} cut "
            "from {stuff}. Nobody wanted to pay the {price} that he asked, and so, in {back}, he put it back himself, "
            "at night and without a word.",
        ),
        {
            "stolen": (
                "What animal is the weathervane in the shape of?",
                "The figure of which animal was stolen from the roof?",
                "Which animal is to be seen on the {tower}?",
                "What animal figure turns over {village}?",
            ),
            "stuff": (
                "Of what is the stolen weathervane made?",
                "What material is the weathervane?",
                "What is the {stolen} on the roof made of?",
                "What is the weathervane of {village} made of?",
            ),
            "tower": (
                "From which building was the weathervane stolen?",
                "On which building does the weathervane turn?",
                "On what building is the {stolen}?",
                "On which building of {village} is the weathervane?",
            ),
            "month": (
                "In which month was the weathervane stolen?",
                "When did the weathervane disappear?",
                "In what month did the {youths} take the weathervane?",
                "When was the weathervane of {village} taken?",
            ),
            "back": (
                "In which month did the weathervane come back?",
                "When was the weathervane returned?",
                "In what month did the {youths} return it?",
                "When did {village} have its weathervane again?",
            ),
            "price": (
                "How much did the thief want for the weathervane?",
                "For how much was the weathervane to be sold?",
                "How much money did the {youths} hope for?",
                "What sum did nobody want to pay for the {stolen}?",
            ),
        },
    ),
    Frame(
        "plain_event_fireplace_letter",
        {
            "finder": "trade",
            "room": "room",
            "writer": "person",
            "reader": "person",
            "written": "year",
            "found": "year",
            "flower": "flower",
            "language": "language",
        },
        (
            "{finder:A} who took out the old fireplace in the {room} in {found} discovered a letter behind it. It was "
            "written in {language}, bore the date {written}, and had a pressed {flower} in it; {writer} had asked "
            "{reader} to wait for {writer:them}.",
            "Behind the fireplace in the {room} a letter had been lying since {written}, the year in which {writer} "
            "wrote it to {reader}, in {language}, and put {flower:a} inside. It was {finder:a} who drew it out in "
            "{found}, covered with soot.",
            "{reader} never got the letter that {writer} wrote {reader:them} in {written}. It had slipped behind the "
            "fireplace of the {room}, and only when {finder:a} came to tear that out, in {found}, did it come to "
            "light, four pages in {language} with a dried {flower}.",
        ),
        {
            "finder": (
                "Who found the letter behind the fireplace?",
                "What was the trade of the person who took out the fireplace?",
                "Who discovered the letter of {writer}?",
                "By whom was a letter found in {found}?",
            ),
            "room": (
                "In which room was the old fireplace?",
                "Where in the house was the letter found?",
                "In which room had the letter of {writer} been lying?",
                "In what room did the {finder} find a letter?",
            ),
            "written": (
                "In what year was the letter behind the fireplace written?",
                "What was the date of the letter that was found?",
                "When did {writer} write the letter?",
                "In which year was the letter to {reader} written?",
            ),
            "found": (
                "In what year was the letter behind the fireplace found?",
                "When did the letter come to light?",
                "When did the {finder} find the letter?",
                "In which year was the letter to {reader} discovered?",
            ),
            "flower": (
                "What flower was in the letter?",
                "Which flower had been pressed and put into the letter?",
                "Which flower did {writer} put into the letter?",
                "What flower did the {finder} find?",
            ),
            "language": (
                "In which language was the letter behind the fireplace?",
                "What language was the old letter written in?",
                "In which language did {writer} write?",
                "In what language was the letter to {reader}?",
            ),
        },
    ),
    Frame(
        "plain_event_late_postcard",
        {
            "sender": "relative",
            "who": "person",
            "place": "lake",
            "sent": "date",
            "came": "date",
            "picture": "building",
            "clerk": "trade",
            "under": "thing",
            "years": "duration",
        },
        (
            "A postcard that {who:s} {sender} posted at {place} on {sent} reached its goal {years} later, on {came}. "
            "It shows {picture:a}; it had been lying under {under:a} at the post office, where {clerk:a} found it.",
            "{years} is a long time for a postcard. The one with {picture:a} on it, which {who} received on {came}, "
            "had been written by {who:their} {sender} at {place} on {sent}; until {clerk:a} moved {under:a} at the "
            "post office, nobody knew that it was lying underneath.",
            "On {came} the postman handed {who} a postcard with a view of {picture:a}. It was from {who:their} "
            "{sender}, who had been staying at {place}, and the postmark said {sent}: {years} it had spent at the "
            "post office, hidden under {under:a}, before {clerk:a} pulled it out.",
        ),
        {
            "sender": (
                "From which relative was the late postcard?",
                "Who had written the postcard?",
                "Which relative had written to {who}?",
                "Which relative posted a card at {place}?",
            ),
            "sent": (
                "When was the postcard posted?",
                "What is the date on the postmark of the postcard?",
                "On which date was the card to {who} posted?",
                "When was the postcard sent from {place}?",
            ),
            "came": (
                "When did the postcard arrive?",
                "On which date was the late postcard delivered?",
                "When did {who} get the card?",
                "On what date did the card from {place} arrive at last?",
            ),
            "years": (
                "How long was the postcard on its way?",
                "How long did the postcard lie at the post office?",
                "How long did {who} have to wait for the card?",
                "After how long did the card from {place} arrive?",
            ),
            "picture": (
                "What building is on the postcard?",
                "What does the late postcard show?",
                "What is to be seen on the card that {who} got?",
                "Of which building is there a picture on the card from {place}?",
            ),
            "under": (
                "Under what had the postcard been lying?",
                "What had hidden the postcard at the post office?",
                "Under what did the {clerk} find the card?",
                "Under what had the card to {who} been hidden?",
            ),
        },
    ),
    Frame(
        "plain_event_hospital_envelope",
        {
            "sum": "price",
            "who": "trade",
            "found": "weekday",
            "ward": "room",
            "illness": "illness",
            "use": "thing",
            "giver": "trade",
        },
        (
            "On {found} {who:a} found a plain envelope in the {ward} of the hospital. There were {sum} in it and a "
            "slip with the words: for the care that I had with {illness}. The money has been spent on {use:a}, and "
            "the giver, so people say, is {giver:a}.",
            "An envelope without a name, but with {sum} in it, lay in the {ward} of the hospital on {found}. {who:A} "
            "noticed it. The giver, thought to be {giver:a}, thanked the nurses on a slip for the weeks with "
            "{illness}; they bought {use:a} for the patients.",
            "The patients of the hospital have {use:a} now, for someone who was treated there for {illness} left an "
            "envelope with {sum} in the {ward}. It is said to have been {giver:a}; the {who} who came upon it on "
            "{found} saw nobody.",
        ),
        {
            "sum": (
                "How much money was in the envelope at the hospital?",
                "What sum did the hospital receive in an envelope?",
                "How much money did the {who} find?",
                "How much was in the envelope in the {ward}?",
            ),
            "who": (
                "Who found the envelope at the hospital?",
                "What is the trade of the person who noticed the envelope?",
                "Who found {sum}?",
                "Who found an envelope in the {ward}?",
            ),
            "giver": (
                "Who is thought to have left the envelope?",
                "What trade does the giver of the money probably have?",
                "Who is said to have given {sum}?",
                "Who probably put the money in the {ward}?",
            ),
            "use": (
                "What was bought with the money from the envelope?",
                "On what was the money in the envelope spent?",
                "What was bought for {sum}?",
                "What do the patients have thanks to the person who had {illness}?",
            ),
            "illness": (
                "What illness had the giver of the envelope had?",
                "For what had the giver been treated at the hospital?",
                "What had the person who gave {sum} suffered from?",
                "What had been the matter with the {giver}?",
            ),
            "found": (
                "On which day was the envelope found at the hospital?",
                "When was the money for the hospital found?",
                "On what day did the {who} find the envelope?",
                "On which day were {sum} found?",
            ),
        },
    ),
    Frame(
        "plain_event_coin_pot",
        {
            "who": "person",
            "metal": "material",
            "pot": "material",
            "coins": "number",
            "field": "crop",
            "deep": "length",
            "museum": "price",
            "first": "tool",
            "relative": "relative",
        },
        (
            "{who} was digging in a field of {field} when {who:their} {first} struck a pot of {pot}, {deep} down. It "
            "held {coins} coins, all of {metal}. The museum paid {museum} for them, of which the {relative} of the "
            "finder, who owns the land, got half.",
            "The museum has bought {coins} old coins of {metal} for {museum}. They were in a pot of {pot} that had "
            "been lying {deep} under a field of {field} until {who} hit it with the {first}; half of the money went "
            "to {who:their} {relative}, the owner of the field.",
            "Something rang under the {first}. {who}, who was working in the {relative:s} field, among the {field}, "
            "dug on and at a depth of {deep} lifted out a pot made of {pot}, full to the brim: {coins} coins of "
            "{metal}, for which the museum has now paid {museum}.",
        ),
        {
            "metal": (
                "Of what were the coins in the pot?",
                "What metal or other material were the old coins made of?",
                "Of what were the coins that {who} found?",
                "What were the coins made of that the museum got for {museum}?",
            ),
            "pot": (
                "Of what was the pot with the coins made?",
                "What material was the pot in the field?",
                "Of what was the pot that {who} dug up?",
                "Of what was the pot that lay {deep} under the ground?",
            ),
            "coins": (
                "How many coins were in the pot?",
                "How many coins did the museum buy?",
                "How many coins did {who} find?",
                "How many coins were bought for {museum}?",
            ),
            "field": (
                "What was growing in the field with the coins?",
                "In a field of what was the pot found?",
                "What grew where {who} was digging?",
                "What was growing above the pot of {pot}?",
            ),
            "deep": (
                "How deep was the pot with the coins?",
                "At what depth did the pot lie?",
                "How deep did {who} dig?",
                "How deep was the pot of {pot}?",
            ),
            "museum": (
                "How much did the museum pay for the coins?",
                "What was the price of the coins from the field?",
                "How much money did the find of {who} bring?",
                "How much was paid for the coins of {metal}?",
            ),
        },
    ),
    Frame(
        "plain_event_car_park_bones",
        {
            "beast": "animal",
            "other": "animal",
            "who": "subject",
            "age": "number",
            "town": "town",
            "road": "road",
            "weeks": "duration",
            "machine": "trade",
        },
        (
            "Under the new car park in {road} {machine:a} came upon large bones. At first they were taken for those "
            "of {other:a}, but students of {who} from {town} found out in {weeks} that they had belonged to {beast:a} "
            "that died {age} centuries ago.",
            "{age} centuries old are the bones from the building site of the car park in {road}, and they are those "
            "of {beast:a}, not, as the {machine} who dug them up believed, of {other:a}. For {weeks} students of "
            "{who}, who had come from {town}, knelt there with brushes.",
            "Students of {who} from {town} have spent {weeks} on their knees in {road}, where a car park is being "
            "built. {machine:A} had found bones there and thought them the bones of {other:a}. Now it is certain: "
            "they are from {beast:a} and are {age} centuries old.",
        ),
        {
            "beast": (
                "To what animal did the bones under the car park really belong?",
                "What animal's bones were dug up for the car park?",
                "Which animal's skeleton did the students of {who} identify?",
                "The bones of what animal lay under {road}?",
            ),
            "other": (
                "To what animal were the bones first thought to belong?",
                "Which animal did the finder of the bones think of?",
                "For the bones of what animal did the {machine} take them?",
                "Which animal did people first think of in {road}?",
            ),
            "machine": (
                "Who found the bones on the building site?",
                "What was the trade of the person who came upon the bones?",
                "Who dug up the bones in {road}?",
                "By whom were the bones of the {beast} found?",
            ),
            "who": (
                "What subject do the students study who dug for the bones?",
                "Students of which subject worked on the building site?",
                "What do the students from {town} study?",
                "Students of what were at work in {road}?",
            ),
            "weeks": (
                "How long did the students work on the bones?",
                "How long did the students kneel on the building site?",
                "How long did the students from {town} dig?",
                "For how long were the students of {who} on the site?",
            ),
            "road": (
                "In which street is the car park being built?",
                "Where were the old bones found?",
                "In which street did the {machine} find bones?",
                "In what road was the skeleton of {beast:a} found?",
            ),
        },
    ),
    Frame(
        "plain_event_hidden_picture",
        {
            "who": "trade",
            "room": "room",
            "shown": "animal",
            "ground": "colour",
            "paper": "flower",
            "value": "price",
            "year": "year",
            "painter": "person",
        },
        (
            "While taking the old wallpaper with its pattern of {paper} blossoms off the wall of the {room}, {who:a} "
            "uncovered a painting: {shown:a} before {ground:a} sky. {painter} painted it in {year}, and experts put "
            "its value at {value}.",
            "Experts value at {value} the wall painting that {who:a} has uncovered in the {room} of an old house. It "
            "was hidden under wallpaper with {paper:a} on every sheet and shows {shown:a}; the sky behind it is "
            "{ground}. It is signed by {painter}, with the year, {year}.",
            "{painter} painted {shown:a} on the wall of the {room} in {year} and made the sky above it {ground}. "
            "Later owners did not care for it and covered it with wallpaper, one {paper} beside the other, which "
            "{who:a} has now pulled off. The painting, the experts say, is worth {value}.",
        ),
        {
            "shown": (
                "What animal is in the painting under the wallpaper?",
                "What does the uncovered wall painting show?",
                "What animal did {painter} paint?",
                "What is to be seen in the painting that the {who} uncovered?",
            ),
            "ground": (
                "What colour is the sky in the uncovered painting?",
                "Which colour was used for the sky on the wall?",
                "What colour did {painter} give the sky?",
                "What colour is the sky behind the {shown}?",
            ),
            "paper": (
                "What flower was on the old wallpaper?",
                "Which flower was the pattern on the wallpaper above the painting?",
                "What flower covered the painting of {painter}?",
                "Which flower was on the wallpaper that the {who} pulled off?",
            ),
            "value": (
                "How much is the painting under the wallpaper worth?",
                "At what do experts value the wall painting?",
                "What is the value of the picture by {painter}?",
                "How much is the painting of the {shown} worth?",
            ),
            "who": (
                "Who uncovered the painting on the wall?",
                "What is the trade of the person who took off the wallpaper?",
                "Who discovered the painting by {painter}?",
                "Who found the picture of the {shown}?",
            ),
            "room": (
                "On the wall of which room was the painting?",
                "From which room was the wallpaper taken off?",
                "In which room did {painter} paint?",
                "In what room is the painting of the {shown}?",
            ),
        },
    ),
    Frame(
        "plain_event_pool_guest",
        {
            "beast": "animal",
            "found": "trade",
            "time": "clock",
            "bait": "food",
            "vehicle": "means",
            "home": "lake",
            "days": "duration",
            "town": "town",
        },
        (
            "When the swimming pool in {town} was to be opened at {time}, {found:a} discovered {beast:a} swimming in "
            "it. For {days} nobody could bathe. Then the guest was lured into a net with {bait} and taken {vehicle} "
            "to {home}.",
            "{days} was how long {beast:a} had the swimming pool of {town} to itself. {found:A} had noticed it at "
            "{time}, when the gates were to be opened; it only went into the net after {bait} had been put in it, and "
            "it travelled {vehicle} to {home}, where it was let go.",
            "The swimming pool of {town} is open again. {beast:A}, first seen in the water at {time} by {found:a}, "
            "had kept the bathers out for {days}, until someone thought of putting {bait} into a net. It is now "
            "living at {home}, where it was taken {vehicle}.",
        ),
        {
            "beast": (
                "What animal was in the swimming pool?",
                "What animal kept the bathers out of the pool?",
                "What animal did the {found} see in the water?",
                "Which animal was taken to {home}?",
            ),
            "found": (
                "Who discovered the animal in the swimming pool?",
                "What was the trade of the person who saw the animal in the pool first?",
                "Who saw the {beast} in the water?",
                "Who made a discovery at the pool in {town}?",
            ),
            "bait": (
                "With what was the animal lured out of the pool?",
                "What food was put into the net?",
                "With what was the {beast} caught?",
                "What was used as bait at the pool in {town}?",
            ),
            "days": (
                "How long was the swimming pool closed to bathers?",
                "For how long did the animal stay in the pool?",
                "How long was the {beast} in the pool?",
                "How long could nobody bathe at the pool of {town}?",
            ),
            "vehicle": (
                "How was the animal from the pool taken away?",
                "By what means was the animal transported after it was caught?",
                "How did the {beast} travel?",
                "How was the animal taken to {home}?",
            ),
            "time": (
                "At what time was the animal in the swimming pool noticed?",
                "When was the pool to be opened?",
                "At what time did the {found} see the animal?",
                "When was the {beast} first seen?",
            ),
        },
    ),
    Frame(
        "plain_event_circus_escape",
        {
            "beast": "animal",
            "hid": "room",
            "who": "person",
            "food": "crop",
            "tent": "colour",
            "keeper": "person",
            "day": "weekday",
            "time": "clock",
            "back": "clock",
        },
        (
            "From the circus with the {tent} tent {beast:a} escaped at {time} on {day}. {who} found it in {who:their} "
            "{hid} and telephoned; {keeper}, the keeper, walked it home with a bag of {food} under its nose, and at "
            "{back} it was in its place again.",
            "{who} opened the door of {who:their} {hid} on {day} and looked into the face of {beast:a}. It had been "
            "missing from the circus, the one with the {tent} tent, since {time}. {keeper}, who looks after it, came "
            "with {food}, and by {back} it was standing in its stable, chewing.",
            "The people of the circus with the {tent} tent searched from {time} to {back} on {day} for their runaway, "
            "{beast:a}. It had gone into the {hid} of {who}. There {keeper}, its keeper, called it by name, let it "
            "smell the {food} and led it back to its straw.",
        ),
        {
            "beast": (
                "What animal escaped from the circus?",
                "Which animal was the runaway from the circus?",
                "What animal did {who} find at home?",
                "Which animal does {keeper} look after?",
            ),
            "hid": (
                "In which room was the animal from the circus found?",
                "Where had the runaway animal gone?",
                "In which of {who:s} rooms did the animal hide?",
                "In which room did {keeper} catch the animal?",
            ),
            "food": (
                "With what was the animal led back to the circus?",
                "What did the runaway animal get to smell?",
                "What did {keeper} use to bring the animal back?",
                "What did the {beast} like enough to follow it?",
            ),
            "tent": (
                "What colour is the tent of the circus?",
                "Which colour does the circus have for its tent?",
                "What colour was the tent that the {beast} ran away from?",
                "What colour is the tent of the circus where {keeper} works?",
            ),
            "time": (
                "At what time did the animal escape from the circus?",
                "Since when was the circus animal missing?",
                "At what time did the {beast} run away?",
                "When on {day} did the animal leave the circus?",
            ),
            "back": (
                "At what time was the animal back at the circus?",
                "Until what time was the circus animal away?",
                "When was the {beast} in its place again?",
                "By what time had {keeper} brought the animal back?",
            ),
        },
    ),
    Frame(
        "plain_event_goose_guard",
        {
            "pet": "pet",
            "who": "person",
            "inn": "building",
            "victim": "trade",
            "friend": "trade",
            "drink": "drink",
            "food": "crop",
            "loss": "garment",
            "years": "duration",
        },
        (
            "A goose called {pet} guards the door of the {inn} and has done so for {years}. She once tore {loss:a} "
            "off {victim:a}, yet the {friend} who brings the {drink} may stroke her. {who}, her owner, feeds her on "
            "{food}.",
            "For {years} no thief has dared to enter the {inn}, because {who} keeps a goose there. {pet} is fed on "
            "{food} and loves the {friend}, who delivers {drink}; the {victim}, on the other hand, still talks about "
            "{loss:a} that he lost to her beak.",
            "The {friend} who delivers {drink} has nothing to fear from the goose at the {inn}. The {victim} does: it "
            "was from him that {pet} tore {loss:a}. {who}, to whom she has belonged for {years}, gives her {food} "
            "every evening and calls her the best of watchdogs.",
        ),
        {
            "pet": (
                "What is the goose called?",
                "What is the name of the bird that guards the door?",
                "What is the name of {who:s} goose?",
                "What goose guards the {inn}?",
            ),
            "inn": (
                "Which building does the goose guard?",
                "At the door of which building does the goose keep watch?",
                "Where does {pet} keep watch?",
                "At which building does {who} keep a goose?",
            ),
            "victim": (
                "Who lost a garment to the goose?",
                "From whom did the goose tear something?",
                "Whom did {pet} attack?",
                "Who lost the {loss}?",
            ),
            "friend": (
                "Whom does the goose like?",
                "Who has nothing to fear from the goose?",
                "Who may come near {pet}?",
                "Who brings {drink}?",
            ),
            "loss": (
                "What did the goose tear off?",
                "Which garment fell victim to the goose?",
                "Which garment did {pet} get hold of?",
                "What did the {victim} lose?",
            ),
            "food": (
                "What is the goose fed on?",
                "What does the goose eat?",
                "What does {pet} get to eat?",
                "What does {who} give the goose?",
            ),
        },
    ),
    Frame(
        "plain_event_bee_swarm",
        {
            "who": "person",
            "keeper": "person",
            "road": "road",
            "day": "weekday",
            "box": "material",
            "time": "clock",
            "honey": "number",
            "letters": "number",
            "hive": "colour",
        },
        (
            "On {day} a swarm of bees settled in the letterbox of {who} in {road}. The letterbox is of {box}, and the "
            "bees went in and out through the slot until {time}, when {keeper}, a beekeeper, brushed them into "
            "{hive:a} hive. The {letters} letters inside were sticky, and {honey} stings were counted.",
            "The postman noticed nothing on {day} and pushed {letters} letters into a letterbox in {road} in which a "
            "swarm of bees was sitting. {who}, whose letterbox, {box} all round, was humming, sent for {keeper}. At "
            "{time} the beekeeper had the swarm in {hive:a} hive; he, the postman and the dog had {honey} stings "
            "between them.",
            "A letterbox of {box} in {road}, {letters} letters in it and on top of them a swarm of bees: that was "
            "what {who} found on {day}. {keeper} came with {hive:a} hive and a brush and got {honey} stings, but at "
            "{time} the bees were in their new home.",
        ),
        {
            "who": (
                "Whose letterbox did the bees settle in?",
                "Who found a swarm of bees at home?",
                "To whom did {keeper} come because of the bees?",
                "Who had bees in a letterbox in {road}?",
            ),
            "keeper": (
                "Who caught the swarm of bees?",
                "Who got the bees out of the letterbox?",
                "Who helped {who} with the bees?",
                "Who came to {road} with a hive?",
            ),
            "box": (
                "Of what is the letterbox with the bees made?",
                "What material is the letterbox?",
                "What is {who:s} letterbox made of?",
                "Of what is the letterbox made that had bees in it on {day}?",
            ),
            "time": (
                "At what time was the swarm of bees in its hive?",
                "Until when were the bees in the letterbox?",
                "At what time had {keeper} caught the bees?",
                "By what time was {who} rid of the bees?",
            ),
            "hive": (
                "What colour is the hive into which the bees were put?",
                "Which colour does the new home of the bees have?",
                "What colour was the hive that {keeper} brought?",
                "What colour is the hive that holds the bees from {road}?",
            ),
            "letters": (
                "How many letters were in the letterbox with the bees?",
                "How many letters lay under the bees?",
                "How many letters did {who} have in the letterbox?",
                "How many letters were found in the letterbox in {road}?",
            ),
        },
    ),
)
