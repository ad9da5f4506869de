"""Frames about journeys and events, told as scenes: several values of one kind, each in a role of its own."""

from __future__ import annotations

from train.world.frame import Frame

FRAMES = (
    Frame(
        "event_command",
        {"who": "person", "mate": "person", "old": "person", "ship": "ship", "port": "town", "goal": "town"},
        (
            "When the {ship} left {port} for {goal}, {who} was in command, with {mate} as mate. The captain of "
            "former years, {old}, stayed behind on the quay and waved until the masts were out of sight.",
            "{who} took over the {ship} as captain from {old}, who wanted to grow roses at last. On the first "
            "voyage, which began in {port} and ended in {goal}, the post of mate was given to {mate}.",
            "{old} had been captain of the {ship} for half a lifetime, but on the voyage from {port} to {goal} it "
            "was {who} who gave the orders as captain. {mate} sailed as mate and kept the log.",
            "Bound for {goal}, the {ship} sailed out of {port} with the morning tide. Her new captain was {who}; her "
            "mate, as so often, was {mate}. Only the cook still spoke of {old}, under whom she had sailed before.",
        ),
        {
            "who": (
                "Who was in command of the {ship} on the voyage to {goal}?",
                "Who was captain when the {ship} sailed from {port}?",
                "Who followed {old} as captain of the {ship}?",
            ),
            "mate": (
                "Who sailed on the {ship} as mate?",
                "Who was the mate when {who} commanded the {ship}?",
                "Which person was mate on the voyage from {port} to {goal}?",
            ),
            "old": (
                "Who had been captain of the {ship} before {who}?",
                "Under whom had the {ship} sailed earlier, before {who} took command?",
                "Who was the former captain of the {ship}?",
            ),
            "port": (
                "From which town did the {ship} sail?",
                "Where did the voyage of the {ship} to {goal} begin?",
                "What port did {who} leave on the {ship}?",
            ),
            "goal": (
                "Which town was the {ship} bound for when she left {port}?",
                "Where did the {ship} sail to from {port}?",
                "To what town did {who} take the {ship}?",
            ),
        },
    ),
    Frame(
        "event_late_ferry",
        {"ship": "ship", "due": "clock", "left": "clock", "island": "island", "day": "weekday", "reason": "reason"},
        (
            "The ferry to {island}, the {ship}, should have cast off at {due} on {day}. Because {reason}, however, "
            "the passengers sat on their bags until {left}, when the gangway was finally pulled in.",
            "It was {left} on {day} before the {ship} got away to {island}. The timetable on the pier said {due}, "
            "but {reason}, and no one could be found to ring the bell.",
            "On {day} the people waiting for the {ship} were told that she would not leave for {island} at {due}, as "
            "always, because {reason}. Children fell asleep on the benches, and she did not set out until {left}.",
        ),
        {
            "due": (
                "At what time should the {ship} have left for {island}?",
                "What time of departure was planned for the {ship}?",
                "When was the ferry to {island} supposed to go on {day}?",
            ),
            "left": (
                "At what time did the {ship} really leave for {island}?",
                "When did the {ship} finally set out?",
                "At what time did the delayed ferry to {island} depart?",
            ),
            "island": (
                "To which island did the {ship} sail?",
                "Where was the {ship} going on {day}?",
                "For what island was the {ship} bound?",
            ),
            "day": (
                "On which day was the {ship} late?",
                "On what day of the week was the ferry to {island} delayed?",
                "Which day did the passengers of the {ship} have to wait?",
            ),
            "reason": (
                "Why was the {ship} late?",
                "Why did the ferry to {island} not leave at {due}?",
                "What was the reason why the {ship} was delayed?",
            ),
        },
    ),
    Frame(
        "event_change_trains",
        {"who": "person", "home": "town", "change": "town", "goal": "town", "start": "clock", "end": "clock"},
        (
            "{who} boarded the train in {home} at {start} with a hard-boiled egg in each pocket. {who:They} had to "
            "change in {change}, where the waiting room was locked, and it was {end} when {who:they} got down in "
            "{goal}.",
            "To get from {home} to {goal}, {who} first took the train to {change} and there changed to another. The "
            "whole trip, which had begun at {start}, was over at {end}.",
            "In {goal}, the end of the journey, the station clock showed {end} when {who} stepped out. At {start} "
            "{who:they} had left {home}, and in {change} there had been a long wait for the second train.",
            "There is no direct train from {home} to {goal}. {who} therefore left at {start}, changed platforms in "
            "{change} among a crowd of schoolchildren, and was at the end of the journey by {end}.",
        ),
        {
            "home": (
                "From which town did {who} set out by train?",
                "Where did the train journey of {who} begin?",
                "Which town did {who} leave at {start}?",
            ),
            "change": (
                "Where did {who} change trains?",
                "In what town did {who} have to wait for the second train on the way to {goal}?",
                "Between {home} and {goal}, where did {who} get into another train?",
            ),
            "goal": (
                "Where did the train journey of {who} end?",
                "What town did {who} travel to by train?",
                "Which town did {who} reach at {end}?",
            ),
            "start": (
                "At what time did {who} leave {home}?",
                "When did the train journey of {who} begin?",
                "What time was it when {who} departed for {goal}?",
            ),
            "end": (
                "At what time did {who} arrive in {goal}?",
                "When was the train journey of {who} over?",
                "What time was it when {who} reached {goal}?",
            ),
        },
    ),
    Frame(
        "event_summit",
        {"who": "person", "friend": "person", "guide": "person", "peak": "mountain", "bad": "weather", "hut": "lake"},
        (
            "{who} and {friend} set out for {peak} with a guide, {guide}. At the hut by {hut} {friend} gave up and "
            "made tea, while {who} reached the top in spite of {bad}, and wrote {who:their} name in the book there.",
            "Of the two friends who wanted to climb {peak}, only {who} stood on the summit; {friend} waited in the "
            "hut at {hut} with blistered feet. They had been led by {guide}, who had not expected {bad}.",
            "Led by {guide}, two hikers started for {peak}. They had expected a fine day, but {bad} came. {friend} "
            "stopped at the hut near {hut}, and it was {who} alone who went on to the top.",
        ),
        {
            "who": (
                "Who reached the top of {peak}?",
                "Who stood on the summit of {peak} while {friend} waited?",
                "Which of the two hikers climbed {peak} to the end?",
            ),
            "friend": (
                "Who gave up the climb of {peak}?",
                "Who stayed at the hut near {hut}?",
                "Which hiker did not get to the top of {peak} with {who}?",
            ),
            "guide": (
                "Who was the guide on the way up {peak}?",
                "By whom were {who} and {friend} led?",
                "Who led the hikers on {peak}?",
            ),
            "hut": (
                "Near which lake was the hut where {friend} stayed?",
                "At what lake did {friend} stop?",
                "By which lake did {friend} wait while {who} climbed {peak}?",
            ),
            "bad": (
                "What weather did the hikers meet on {peak}?",
                "What was the weather like when {who} climbed {peak}?",
                "In what weather did {who} get to the top of {peak}?",
            ),
            "peak": (
                "Which mountain did {who} climb?",
                "What mountain was too much for {friend}?",
                "Up which mountain did {guide} lead the hikers?",
            ),
        },
    ),
    Frame(
        "event_expedition",
        {
            "who": "person",
            "doctor": "person",
            "maps": "person",
            "giver": "person",
            "river": "river",
            "men": "number",
            "year": "year",
        },
        (
            "The expedition up the {river} in {year} was led by {who} and paid for by {giver}, who never left home "
            "again after an illness. Among its {men} members were {doctor}, who looked after the sick, and {maps}, "
            "who drew the maps.",
            "In {year} {who} led {men} people up the {river} to look for its source. {maps} drew the maps and "
            "{doctor} served as doctor; the tents, the boats and the flour had been bought with the money of {giver}.",
            "{giver} put up the money, but it was {who} who, in {year}, led the {men} travellers to the upper "
            "{river}. Those with fever were treated by {doctor}; the drawing of maps was left to {maps}.",
        ),
        {
            "who": (
                "Who led the expedition up the {river}?",
                "Who was the leader of the journey along the {river} in {year}?",
                "Under whose leadership did the {men} travellers explore the {river}?",
            ),
            "doctor": (
                "Who looked after the sick on the {river} expedition?",
                "Who was the doctor of the expedition that {who} led?",
                "Which member of the {river} expedition treated those who were ill?",
            ),
            "maps": (
                "Who drew the maps on the expedition up the {river}?",
                "Who was the mapmaker of the expedition that {who} led?",
                "By whom were the maps of the {river} drawn?",
            ),
            "giver": (
                "Who paid for the expedition up the {river}?",
                "Whose money made the {river} expedition possible?",
                "By whom was the expedition that {who} led paid for?",
            ),
            "men": (
                "How many people took part in the expedition up the {river}?",
                "How many travellers did {who} lead up the {river}?",
                "How many members did the {river} expedition have?",
            ),
            "year": (
                "In what year did the expedition go up the {river}?",
                "When did {who} explore the {river}?",
                "In which year did {who} lead the expedition that {giver} paid for?",
            ),
        },
    ),
    Frame(
        "event_ice_rescue",
        {"who": "person", "child": "person", "helper": "person", "lake": "lake", "tool": "thing", "clock": "clock"},
        (
            "It was {clock} when {child} broke through the ice of {lake}. {helper} ran for help, but {who} did not "
            "wait: {who:they} lay down flat, pushed {tool:a} across the ice and pulled {child} out by the sleeve.",
            "{child}, who had been skating on {lake}, fell through the ice at {clock}. While {helper} ran along the "
            "shore to fetch help, the skater was pulled out by {who} with the aid of {tool:a}.",
            "With {tool:a} from the boathouse {who} saved the life of {child}, under whom the ice on {lake} had "
            "given way at {clock}. By the time {helper}, who had run to fetch help, came back, the danger was over.",
        ),
        {
            "who": (
                "Who pulled {child} out of the water of {lake}?",
                "Who saved {child} when the ice broke?",
                "Who was the rescuer of {child}?",
                "To whom does {child} owe {child:their} life?",
            ),
            "child": (
                "Who fell through the ice of {lake}?",
                "Who was rescued by {who} on {lake}?",
                "Whom did {who} save?",
            ),
            "helper": (
                "Who ran for help when {child} fell through the ice?",
                "Who went to fetch help on the shore of {lake}?",
                "While {who} was saving {child}, who ran for help?",
            ),
            "lake": (
                "On which lake did {child} break through the ice?",
                "Where did {who} save {child}?",
                "On what lake did the accident of {child} happen?",
            ),
            "tool": (
                "What did {who} use to get {child} out of the ice?",
                "With what did {who} rescue {child}?",
                "What object helped {who} to save {child}?",
            ),
            "clock": (
                "At what time did {child} fall through the ice?",
                "When did the ice on {lake} break under {child}?",
                "What time was it when {child} had the accident on {lake}?",
            ),
        },
    ),
    Frame(
        "event_theft",
        {
            "thief": "person",
            "owner": "person",
            "blamed": "person",
            "finder": "person",
            "thing": "thing",
            "room": "room",
            "den": "building",
        },
        (
            "The {thing} of {owner} vanished from the {room} while the family sat in the garden. At first {blamed} "
            "was suspected, wrongly, for it was {thief} who had taken it. {finder} found it later in {den:a}.",
            "{thief} stole {thing:a} from {owner} out of the {room}, and half the street thought that {blamed} had "
            "done it. Only when {finder} came upon it in {den:a}, under some sacks, did the truth come out.",
            "For a week everyone believed that {blamed} had carried off the {thing} that used to stand in the {room} "
            "of {owner}. In fact the thief was {thief}, who had hidden it in {den:a}, where it was found by {finder}.",
            "Not {blamed}, as the constable had thought, but {thief} stole the {thing} belonging to {owner}. It had "
            "been taken from the {room} and came to light in {den:a}, where {finder} found it behind a barrel.",
        ),
        {
            "thief": (
                "Who stole the {thing}?",
                "Who was the real thief of {owner:s} {thing}?",
                "By whom had the {thing} been taken from {owner}?",
            ),
            "owner": (
                "To whom did the stolen {thing} belong?",
                "From whom did {thief} steal?",
                "Who was the owner of the {thing} that {thief} stole?",
            ),
            "blamed": (
                "Who was wrongly suspected of stealing the {thing}?",
                "Who was thought to have stolen from {owner} although {thief} had done it?",
                "Which innocent person was blamed for the theft of the {thing}?",
            ),
            "finder": (
                "Who found the stolen {thing}?",
                "Who discovered what {thief} had stolen?",
                "By whom was the {thing} of {owner} found?",
            ),
            "room": (
                "From which room was the {thing} stolen?",
                "Out of what room did {thief} take the {thing}?",
                "Where was the {thing} of {owner} before it was stolen?",
            ),
            "den": (
                "In what building was the stolen {thing} found?",
                "Where did {finder} find the {thing}?",
                "In what sort of building did {finder} come upon {owner:s} {thing}?",
            ),
        },
    ),
    Frame(
        "event_lost_found",
        {"who": "person", "finder": "person", "bringer": "person", "thing": "thing", "road": "road", "sum": "price"},
        (
            "{who} lost {thing:a} on {road} on the way home from a dance. It was picked up by {finder}, who had no "
            "time to go round, and so {bringer} brought it back and was given {sum} as a reward.",
            "On {road}, half under the leaves, {finder} found {thing:a}. {bringer}, who knew whose it was, carried "
            "it to {who}, who had lost it, and came home with a reward of {sum}.",
            "A reward of {sum} was paid for the {thing} that {who} had lost. The money went to {bringer}, who handed "
            "it over at the door, although it was {finder} who had found it lying on {road}.",
        ),
        {
            "who": (
                "Who had lost the {thing}?",
                "Who lost something on {road}?",
                "To whom did {bringer} bring back the {thing}?",
            ),
            "finder": (
                "Who found the {thing} on {road}?",
                "Who picked up what {who} had lost?",
                "By whom was the {thing} found?",
            ),
            "bringer": (
                "Who brought the {thing} back to {who}?",
                "Who was paid the reward of {sum}?",
                "Who got the reward although {finder} had found the {thing}?",
            ),
            "thing": (
                "What did {who} lose?",
                "What was found by {finder} on {road}?",
                "What did {bringer} bring back to {who}?",
            ),
            "road": (
                "In which street was the {thing} found?",
                "Where did {finder} find the {thing}?",
                "On what road did the {thing} lie until {finder} saw it?",
            ),
            "sum": (
                "How much was the reward for the {thing}?",
                "What reward did {bringer} get?",
                "How much did {bringer} receive for bringing back the {thing}?",
            ),
        },
    ),
    Frame(
        "event_baking_prizes",
        {
            "who": "person",
            "second": "person",
            "third": "person",
            "dish": "food",
            "other": "food",
            "fair": "festival",
            "judge": "person",
        },
        (
            "At the {fair} the first prize for cooking went to {who} for {dish}. The second was awarded to {second}, "
            "who had made {other}, and the third to {third}. {judge}, the judge, had to loosen a button.",
            "{judge} tasted everything at the {fair} and took an hour to decide. {second} came second with {other} "
            "and {third} third, but {dish} won, and so the blue ribbon for the first place was pinned on {who}.",
            "{who} won the cooking contest at the {fair} with {dish}, ahead of {second}, whose {other} took second "
            "prize, and {third}, who was content with the third. The judge was {judge}.",
        ),
        {
            "who": (
                "Who won the cooking contest at the {fair}?",
                "Who got the first prize at the {fair}?",
                "Whom did the judge {judge} put in first place at the {fair}?",
                "Who came before {second} and {third}?",
            ),
            "second": (
                "Who won second prize at the {fair}?",
                "Who came second in the cooking contest that {who} won?",
                "Who was placed between {who} and {third}?",
            ),
            "third": (
                "Who won third prize at the {fair}?",
                "Who came third, after {who} and {second}?",
                "To whom did the third place at the {fair} go?",
            ),
            "dish": (
                "What did {who} cook to win at the {fair}?",
                "Which dish won first prize at the {fair}?",
                "For what dish was {who} given the first prize?",
            ),
            "other": (
                "What had {second} made for the contest?",
                "Which dish took second prize at the {fair}?",
                "With what dish did {second} come second?",
            ),
            "judge": (
                "Who was the judge at the {fair}?",
                "Who judged the cooking of {who} and {second}?",
                "Who decided the cooking contest at the {fair}?",
            ),
        },
    ),
    Frame(
        "event_music_contest",
        {
            "who": "person",
            "rival": "person",
            "prize": "prize",
            "mine": "instrument",
            "theirs": "instrument",
            "town": "town",
            "year": "year",
        },
        (
            "Two players were left in the last round of the music contest in {town} in {year}. {rival} played the "
            "{theirs} without a fault, but the {prize} was given to {who}, whose {mine} had made an old man weep.",
            "In {year} {who} won the {prize} in {town} on the {mine}. {rival}, who had come with {theirs:a} borrowed "
            "from an uncle, reached the final too but went home with nothing except flowers.",
            "The judges in {town} argued until late in the evening. {rival:s} {theirs} or {who:s} {mine}? In the end "
            "it was {who} who received the {prize} of {year}, and the loser was the first to clap.",
        ),
        {
            "who": (
                "Who won the {prize} in {town}?",
                "To whom was the {prize} of {year} given?",
                "Who beat {rival} in the music contest?",
            ),
            "rival": (
                "Who lost to {who} in the music contest in {town}?",
                "Who reached the final but did not win the {prize}?",
                "Over whom did {who} win in {town}?",
            ),
            "mine": (
                "What instrument did {who} play?",
                "On which instrument was the {prize} won in {year}?",
                "With what instrument did {who} beat {rival}?",
            ),
            "theirs": (
                "What instrument did {rival} play?",
                "Which instrument was played by {rival}, who lost to {who}?",
                "On what instrument did {rival} fail to win the {prize}?",
            ),
            "town": (
                "Where was the music contest that {who} won?",
                "In which town did {who} win the {prize}?",
                "In what town did {rival} lose to {who}?",
            ),
            "year": (
                "In what year did {who} win the {prize}?",
                "When was the music contest in {town}?",
                "In which year did {rival} lose to {who}?",
            ),
        },
    ),
    Frame(
        "event_match_moved",
        {
            "winner": "team",
            "loser": "team",
            "plan": "weekday",
            "day": "weekday",
            "reason": "reason",
            "scorer": "person",
            "crowd": "number",
        },
        (
            "The match between {winner} and {loser} was to be played on {plan}. Because {reason}, it was put off "
            "until {day}; {winner} then won by a single goal, scored by {scorer} before {crowd} wet spectators.",
            "Only {crowd} people saw {scorer} score the one goal with which {winner} beat {loser}. The game was "
            "played on {day} and not, as the posters said, on {plan}, because {reason}.",
            "On {plan} the players went home again without touching a ball, because {reason}. On {day}, when they "
            "tried once more, {loser} were beaten by {winner}. {scorer} got the only goal, and {crowd} people were "
            "watching.",
        ),
        {
            "winner": (
                "Which team beat {loser}?",
                "Who won the match against {loser}?",
                "Which team won the match in which {scorer} scored?",
            ),
            "loser": (
                "Which team lost to {winner}?",
                "Whom did {winner} beat?",
                "Against which team did {winner} win?",
            ),
            "plan": (
                "On which day should {winner} have played {loser} at first?",
                "For what day was the match between {winner} and {loser} first planned?",
                "From which day was the match of {winner} against {loser} moved?",
            ),
            "day": (
                "On which day did {winner} really beat {loser}?",
                "On what day was the match between {winner} and {loser} finally played?",
                "To which day was the game of {winner} against {loser} moved?",
            ),
            "reason": (
                "Why was the match between {winner} and {loser} put off?",
                "Why did {loser} not play on {plan}?",
                "Why was there no game between {winner} and {loser} on {plan}?",
            ),
            "scorer": (
                "Who scored the goal against {loser}?",
                "By whom was the only goal of the match between {winner} and {loser} scored?",
                "Whose goal decided the game for {winner}?",
            ),
            "crowd": (
                "How many people watched {winner} beat {loser}?",
                "How many spectators saw the goal of {scorer}?",
                "How many people came to the match between {winner} and {loser}?",
            ),
        },
    ),
    Frame(
        "event_meeting_moved",
        {
            "chair": "person",
            "away": "person",
            "town": "town",
            "plan": "date",
            "held": "date",
            "reason": "reason",
            "place": "building",
        },
        (
            "The yearly meeting of the {town} allotment holders, called for {plan}, was held on {held} instead, "
            "because {reason}. With {away} still abroad, {chair} took the chair, and all met in {place:a}.",
            "Because {reason}, the allotment holders of {town} could not meet on {plan}. They came together on "
            "{held} in {place:a}, where {chair} presided; {away}, who was away, had sent a long letter.",
            "On {held} the allotment holders of {town} sat down in {place:a} for the meeting that they had meant to "
            "hold on {plan}. {chair} presided in the absence of {away}. The delay had a simple cause: {reason}.",
        ),
        {
            "plan": (
                "For what date was the meeting of the allotment holders of {town} planned at first?",
                "On which date should the meeting in {town} have taken place?",
                "What was the first date of the meeting over which {chair} presided?",
            ),
            "held": (
                "On what date did the allotment holders of {town} really meet?",
                "To which date was the meeting in {town} moved?",
                "When did {chair} chair the meeting in {town}?",
            ),
            "reason": (
                "Why was the meeting of the allotment holders of {town} not held on {plan}?",
                "Why was the meeting in {town} put off?",
                "Why did the allotment holders of {town} meet later than planned?",
            ),
            "chair": (
                "Who chaired the meeting of the allotment holders of {town}?",
                "Who presided while {away} was away?",
                "Who led the meeting in {town} in place of {away}?",
            ),
            "away": (
                "Who was absent from the meeting in {town}?",
                "Who was not there when {chair} led the meeting?",
                "Who missed the meeting of the allotment holders of {town}?",
            ),
            "place": (
                "In what sort of building did the allotment holders of {town} meet?",
                "Where did {chair} preside over the meeting?",
                "In which building was the {town} meeting held?",
            ),
        },
    ),
    Frame(
        "event_mayor_vote",
        {
            "who": "person",
            "loser": "person",
            "old": "person",
            "town": "town",
            "lead": "number",
            "doors": "number",
            "trade": "trade",
        },
        (
            "When {old} no longer wished to be mayor of {town}, two people stood for the post. {who}, {trade:a} "
            "known to everyone, was elected with a lead of {lead} votes, although {loser} had knocked at {doors} "
            "doors.",
            "{who}, {trade:a}, is the new mayor of {town}, the successor of {old}. {loser} had gone to {doors} "
            "houses to ask for votes, but lost the election by {lead} votes all the same.",
            "{loser} rang the bell of {doors} houses in {town} and still did not become mayor: the voters preferred "
            "{who}, by trade {trade:a}, who won by {lead} votes. {old}, mayor until then, handed over the keys.",
        ),
        {
            "who": (
                "Who was elected mayor of {town}?",
                "Who won the election in {town} against {loser}?",
                "Who became mayor of {town} after {old}?",
            ),
            "loser": (
                "Who lost the election in {town}?",
                "Who stood for mayor of {town} against {who} without success?",
                "Whom did {who} beat in the election?",
            ),
            "old": (
                "Who was mayor of {town} before {who}?",
                "Whose successor as mayor of {town} is {who}?",
                "Who was the previous mayor of {town}?",
            ),
            "lead": (
                "By how many votes did {who} win?",
                "By how many votes was {loser} beaten in {town}?",
                "How many votes lay between {who} and {loser}?",
            ),
            "doors": (
                "At how many houses did {loser} call before the election?",
                "How many doors did {loser} go to in {town}?",
                "How many houses did {loser} visit to ask for votes?",
            ),
            "trade": (
                "What is the trade of the new mayor of {town}?",
                "What does {who}, the winner of the election in {town}, do for a living?",
                "What was {who} by trade?",
            ),
        },
    ),
    Frame(
        "event_opening_building",
        {
            "who": "person",
            "design": "person",
            "money": "person",
            "house": "building",
            "town": "town",
            "day": "date",
            "cost": "price",
        },
        (
            "On {day} {who} cut the ribbon and opened the {house} in {town}. It had been designed by {design}, and "
            "the {cost} that it cost had come out of the pocket of {money}, who sat in the last row.",
            "The {house} in {town}, a work of {design}, cost {cost}, every bit of it given by {money}. The band "
            "played when it was opened on {day}; the ribbon was cut by {who}.",
            "{design} drew the plans, {money} gave the {cost} that were needed, but it was {who} who was asked to "
            "open the {house} in {town}, and on {day} {who:they} did so with a pair of garden shears.",
        ),
        {
            "who": (
                "Who opened the {house} in {town}?",
                "By whom was the {house} in {town} opened on {day}?",
                "Who performed the opening of the {house} that {design} designed?",
            ),
            "design": (
                "Who designed the {house} in {town}?",
                "Who made the plans for the {house} that {who} opened?",
                "Whose design was the {house} paid for by {money}?",
            ),
            "money": (
                "Who paid for the {house} in {town}?",
                "Whose money built the {house} that {who} opened?",
                "By whom was the {house} in {town} paid for?",
            ),
            "day": (
                "On what date was the {house} in {town} opened?",
                "When did {who} open the {house}?",
                "What was the date of the opening of the {house} in {town}?",
            ),
            "cost": (
                "How much did the {house} in {town} cost?",
                "How much did {money} give for the {house}?",
                "What was the price of the {house} that {design} designed?",
            ),
            "town": (
                "In which town is the {house} that {design} designed?",
                "Where did {who} open the {house}?",
                "For which town did {money} pay for the {house}?",
            ),
        },
    ),
    Frame(
        "event_concert_substitute",
        {
            "who": "person",
            "ill": "person",
            "lead": "person",
            "inst": "instrument",
            "song": "song",
            "encore": "song",
            "sick": "illness",
        },
        (
            "An hour before the concert word came that {ill} had {sick}. {who} took over the part on the {inst}, "
            'under the baton of {lead}; the evening opened with "{song}" and closed with "{encore}".',
            "{who} was not on the programme at all, but played the {inst} that night in place of {ill}, who lay at "
            'home with {sick}. {lead} conducted. "{song}" was heard first, and "{encore}" at the very end.',
            'The concert, conducted by {lead}, began with "{song}" and ended, after long applause, with '
            '"{encore}". Because {ill} was in bed with {sick}, the {inst} was played by {who}.',
        ),
        {
            "who": (
                "Who took the place of {ill} at the concert?",
                "Who played the {inst} when {lead} conducted?",
                "By whom was {ill} replaced?",
            ),
            "ill": (
                "Who was too ill to play the {inst}?",
                "For whom did {who} step in at the concert?",
                "Who could not play because of {sick}?",
            ),
            "lead": (
                "Who conducted the concert at which {who} played the {inst}?",
                "Who was the conductor when {who} replaced {ill}?",
                "Under which conductor did {who} play in place of {ill}?",
            ),
            "song": (
                "With what piece did the concert conducted by {lead} open?",
                "Which piece was played first on the evening when {who} stood in for {ill}?",
                "What was played first at the concert of {who}?",
            ),
            "encore": (
                "What piece was played last at the concert conducted by {lead}?",
                "With which piece did the concert end at which {who} replaced {ill}?",
                "What came at the end of the concert that {lead} conducted?",
            ),
            "sick": (
                "What was wrong with {ill} on the night of the concert?",
                "What illness kept {ill} at home?",
                "From what did {ill} suffer when {who} took over?",
            ),
        },
    ),
    Frame(
        "event_picture_sold",
        {
            "who": "person",
            "buyer": "person",
            "bidder": "person",
            "book": "book",
            "asked": "price",
            "paid": "price",
            "town": "town",
        },
        (
            'At the exhibition in {town} {who} showed a large picture called "{book}" and wanted {asked} for it. '
            "{bidder} thought about it over lunch and came back too late: it had gone to {buyer} for {paid}.",
            '{buyer} paid {paid} for "{book}", a picture by {who} that hung near the door at the exhibition in '
            "{town}. On the label stood {asked}. {bidder} had wanted it as well, but had hesitated too long.",
            '"{book}", which {who} had painted in a cold attic, was marked at {asked} when it was shown in {town}. '
            "Two visitors wanted it; {bidder} went away without it, and {buyer} took it home for {paid}.",
        ),
        {
            "who": (
                'Who painted "{book}"?',
                "Whose picture did {buyer} take home from the exhibition in {town}?",
                "Who was the painter of the picture that {buyer} bought?",
            ),
            "buyer": (
                'Who bought "{book}"?',
                "To whom was the picture by {who} sold?",
                "Who paid {paid} for a picture in {town}?",
            ),
            "bidder": (
                'Who wanted "{book}" but did not get it?',
                "Who was too late to buy the picture by {who}?",
                "Who missed the picture that went to {buyer}?",
            ),
            "asked": (
                'What price was asked for "{book}"?',
                "How much did {who} want for the picture at first?",
                'At how much was "{book}" marked in {town}?',
            ),
            "paid": (
                'How much did {buyer} pay for "{book}"?',
                "For what price was the picture by {who} really sold?",
                "How much money did {buyer} give for the picture?",
            ),
            "book": (
                "What is the name of the picture that {buyer} bought?",
                "Which picture did {who} show in {town}?",
                "What was the picture called that {bidder} failed to get?",
            ),
        },
    ),
    Frame(
        "event_cave_discovery",
        {
            "who": "person",
            "guess": "person",
            "namer": "person",
            "peak": "mountain",
            "found": "animal",
            "year": "year",
            "chase": "animal",
        },
        (
            "In {year} {who}, who was running after {chase:a}, stumbled into a cave under {peak} with a picture of "
            "{found:a} on its wall. {guess} called it a fake. The cave owes its name, however, to {namer}.",
            "The cave under {peak} was discovered in {year} by {who}, who had only been looking for a lost {chase}. "
            "{found:A} is painted on its wall. {namer} gave the cave its name; {guess} swore that it was all a fake.",
            '"A fake!" cried {guess} when told of the {found} painted on the wall of the cave under {peak}. But '
            "{who}, led there in {year} by a runaway {chase}, had truly discovered it, and {namer} found a name for "
            "it.",
        ),
        {
            "who": (
                "Who discovered the cave under {peak}?",
                "By whom was the painted cave found in {year}?",
                "Who was the first to find the cave that {namer} named?",
            ),
            "guess": (
                "Who believed that the picture in the cave under {peak} was a fake?",
                "Who did not believe in the discovery of {who}?",
                "Who thought that the painting found by {who} was false?",
            ),
            "namer": (
                "Who named the cave under {peak}?",
                "From whom did the cave that {who} discovered get its name?",
                "Who gave the cave found in {year} its name?",
            ),
            "found": (
                "What animal is painted in the cave under {peak}?",
                "A picture of which animal did {who} discover in the cave?",
                "Which animal is shown on the wall of the cave that {who} found?",
            ),
            "chase": (
                "What animal was {who} after when {who:they} found the cave?",
                "Which animal led {who} to the cave under {peak}?",
                "Which animal did {who} want to catch near {peak}?",
            ),
            "year": (
                "In what year was the cave under {peak} discovered?",
                "When did {who} find the cave?",
                "In which year did {who} discover the cave that {namer} named?",
            ),
        },
    ),
    Frame(
        "event_road_race",
        {
            "who": "person",
            "leader": "person",
            "last": "person",
            "start": "town",
            "goal": "town",
            "far": "distance",
            "mishap": "reason",
        },
        (
            "{leader} was ahead for most of the race from {start} to {goal}, {far} of dust and sun, but it was {who} "
            "who crossed the line first. {last} came in last of all, long after dark, because {mishap}.",
            "The race began at the pump in {start}, ran over {far} and finished in {goal}. {who} won it, passing "
            "{leader}, the leader until then, on the last hill; {last} finished last, because {mishap}.",
            'First in {goal} was {who}, second {leader}, who had led nearly all the way, and last {last}. "I am '
            'slow because {mishap}," the last one said. The runners had covered {far} since they left {start}.',
        ),
        {
            "who": (
                "Who won the race from {start} to {goal}?",
                "Who overtook {leader} in the race?",
                "Who was the first to arrive in {goal}?",
            ),
            "leader": (
                "Who led the race to {goal} for most of the way?",
                "Who was in front in the race before {who} won it?",
                "Whom did {who} overtake in the race from {start}?",
            ),
            "last": (
                "Who came last in the race to {goal}?",
                "Who finished the race from {start} behind all others?",
                "Who was the slowest in the race that {who} won?",
            ),
            "start": (
                "Where did the race to {goal} start?",
                "In which town did the race begin that {who} won?",
                "From what town did the runners set out for {goal}?",
            ),
            "goal": (
                "Where did the race from {start} end?",
                "In which town was the finish of the race that {who} won?",
                "To what town did the runners go from {start}?",
            ),
            "far": (
                "How long was the race from {start} to {goal}?",
                "How far did the runners have to go to reach {goal}?",
                "What was the length of the race that {who} won?",
            ),
            "mishap": (
                "Why was {last} the last to arrive?",
                "Why did {last} come last in the race to {goal}?",
                "What reason was there for {last} finishing last?",
            ),
        },
    ),
    Frame(
        "event_flood_shelter",
        {
            "river": "river",
            "town": "town",
            "first": "family",
            "second": "family",
            "hall": "building",
            "barn": "building",
            "height": "length",
        },
        (
            "When the {river} rose by {height} and ran through the streets of {town}, the {first} family found "
            "shelter in {hall:a} and the {second} family in {barn:a}, where they slept on straw with the dog between "
            "them.",
            "The flood in {town}, in which the {river} stood {height} above its usual mark, drove people from their "
            "beds. {hall:A} took in the {first} family; {barn:a} had room for the {second} family and its hens.",
            "While the {second} family spent the nights of the flood in {barn:a}, the {first} family was given beds "
            "in {hall:a}. In {town} nobody could remember that the {river} had ever risen by {height} before.",
        ),
        {
            "river": (
                "Which river flooded {town}?",
                "What is the name of the river that rose by {height} in {town}?",
                "Which river drove the {first} family out of the house?",
            ),
            "height": (
                "How much did the {river} rise in {town}?",
                "How far above its usual mark was the {river}?",
                "By how much did the water of the {river} rise?",
            ),
            "hall": (
                "Where did the {first} family find shelter from the flood?",
                "In what building did the {first} family stay during the flood in {town}?",
                "Which building took in the {first} family?",
            ),
            "barn": (
                "Where did the {second} family find shelter from the flood?",
                "In what building did the {second} family sleep while {town} was under water?",
                "Which building took in the {second} family?",
            ),
            "first": (
                "Which family was given shelter in the {hall}?",
                "What was the name of the family that stayed in the {hall} while {town} was flooded?",
                "Which family from {town} did not go to the {barn} but to the {hall}?",
            ),
            "second": (
                "Which family was given shelter in the {barn}?",
                "What was the name of the family that stayed in the {barn} while {town} was flooded?",
                "Which family from {town} did not go to the {hall} but to the {barn}?",
            ),
        },
    ),
    Frame(
        "event_fire_alarm",
        {
            "who": "person",
            "ringer": "person",
            "saved": "person",
            "house": "building",
            "clock": "clock",
            "over": "clock",
            "thing": "thing",
        },
        (
            "{who} was the first to see the smoke above the {house}. It was {clock}. {ringer} rang the bell, {saved} "
            "carried out {thing:a}, and everyone else passed buckets until the fire was out at {over}.",
            "The fire in the {house} was noticed at {clock} by {who}, who could not sleep, and the bell was rung by "
            "{ringer}. All that was saved from the flames was {thing:a}, thanks to {saved}. At {over} the fire was "
            "out.",
            "At {over}, when the last flame in the {house} had been put out, {saved} was still holding the {thing} "
            "that {saved:they} had carried out. {ringer} had rung the bell after {who} noticed the fire at {clock}.",
        ),
        {
            "who": (
                "Who noticed the fire in the {house}?",
                "Who was the first to see that the {house} was burning?",
                "Who saw the fire before {ringer} rang the bell?",
            ),
            "ringer": (
                "Who rang the bell when the {house} was on fire?",
                "By whom was the alarm bell rung after {who} saw the fire?",
                "Who gave the alarm with the bell when the {house} burned?",
            ),
            "saved": (
                "Who carried the {thing} out of the burning {house}?",
                "Who saved the {thing} from the fire?",
                "By whom was the {thing} brought out of the {house}?",
            ),
            "thing": (
                "What did {saved} carry out of the {house}?",
                "What was saved from the fire in the {house}?",
                "What object did {saved} bring out of the flames?",
            ),
            "clock": (
                "At what time was the fire in the {house} noticed?",
                "When did {who} see the fire?",
                "What time was it when the fire in the {house} was discovered?",
            ),
            "over": (
                "At what time was the fire in the {house} out?",
                "When was the fire that {who} had noticed put out?",
                "By what time were the flames in the {house} put out?",
            ),
        },
    ),
    Frame(
        "event_wrong_delivery",
        {
            "who": "person",
            "other": "person",
            "firm": "company",
            "ordered": "thing",
            "came": "thing",
            "road": "road",
            "wrong": "road",
        },
        (
            "{who} of {road} had ordered {ordered:a} from {firm}, but when the parcel was opened there lay {came:a} "
            "in it. What {who:they} had been waiting for had been left with {other} in {wrong} by mistake.",
            "By a mistake of {firm}, {came:a} was delivered to {who} in {road}. The {ordered} that {who:they} had "
            "ordered stood meanwhile on the doorstep of {other} in {wrong}, who had no use for it.",
            "In {wrong}, {other} unpacked {ordered:a} and wondered who had sent it. The driver of {firm} had mixed "
            "up two parcels: {who}, in {road}, had ordered it, and had been brought {came:a} instead.",
        ),
        {
            "ordered": (
                "What had {who} ordered from {firm}?",
                "What should have been delivered to {who}?",
                "What did {other} get by mistake?",
            ),
            "came": (
                "What was delivered to {who} by mistake?",
                "What did {who} get from {firm} instead of what was ordered?",
                "What did {firm} really bring to {who}?",
            ),
            "other": (
                "To whom was the {ordered} delivered by mistake?",
                "Who received what {who} had ordered?",
                "Who in {wrong} got the wrong parcel?",
            ),
            "firm": (
                "Which company made a mistake with the order of {who}?",
                "From which company had {who} ordered the {ordered}?",
                "Which company brought {who} the wrong thing?",
            ),
            "road": (
                "In what street does {who} live?",
                "Where was the {came} delivered?",
                "In which street should the {ordered} have been delivered to {who}?",
            ),
            "wrong": (
                "In what street does {other} live?",
                "To which street was the {ordered} taken by mistake?",
                "In which street was the parcel that {who} was waiting for left?",
            ),
        },
    ),
    Frame(
        "event_holiday_changed",
        {
            "who": "person",
            "mate": "person",
            "plan": "island",
            "place": "lake",
            "reason": "reason",
            "means": "means",
            "stay": "duration",
        },
        (
            "{who} and {mate} had talked all winter about a holiday on {plan}. They dropped the plan because "
            "{reason}, went to {place} instead, {means}, and stayed there for {stay} in a house with a leaking tap.",
            "Instead of {plan}, which had been the idea of {mate}, {place} became the goal of the holiday that "
            "{mate} took with {who}. They travelled {means} and remained for {stay}; {plan} was out of the question "
            "because {reason}.",
            "It was at {place} and not on {plan}, as they had intended, that {who} spent {stay} with {mate}. They "
            "got there {means}. The plan had been changed at the last moment because {reason}.",
        ),
        {
            "plan": (
                "Where had {who} and {mate} meant to go at first?",
                "Which island did {who} and {mate} not go to after all?",
                "What island had been planned for the holiday of {who}?",
            ),
            "place": (
                "Where did {who} and {mate} spend their holiday in the end?",
                "To what lake did {who} go instead of {plan}?",
                "At which lake did {mate} spend {stay}?",
            ),
            "reason": (
                "Why did {who} and {mate} change their holiday plan?",
                "Why did {who} not go to {plan}?",
                "Why did {mate} and {who} go to {place} instead?",
            ),
            "means": (
                "How did {who} and {mate} travel to {place}?",
                "How did {who} get to {place}?",
                "By what means did {mate} reach {place} on that holiday?",
            ),
            "stay": (
                "How long did {who} stay at {place}?",
                "For how long were {who} and {mate} at {place}?",
                "How long did the holiday of {mate} at {place} last?",
            ),
            "mate": (
                "With whom did {who} go to {place}?",
                "Who was with {who} at {place}?",
                "Who travelled to {place} together with {who}?",
            ),
        },
    ),
    Frame(
        "event_ship_in_storm",
        {
            "lost": "ship",
            "helper": "ship",
            "captain": "person",
            "saver": "person",
            "crew": "number",
            "isle": "island",
            "port": "town",
        },
        (
            "The {lost}, under {captain}, struck a rock off {isle} in the storm and sank within the hour. Her crew "
            "of {crew} was picked up by the {helper}, whose captain, {saver}, landed them all in {port}.",
            "{saver} steered the {helper} through the breakers to the sinking {lost} and took off all {crew} of her "
            "crew, {captain}, her captain, last. She had run aground off {isle}; the men were brought to {port}.",
            "In {port} the {helper} and her captain, {saver}, were met with cheers. On board were the {crew} "
            "sailors of the {lost}, the ship of {captain}, which lay at the bottom of the sea near {isle}.",
        ),
        {
            "lost": (
                "Which ship sank near {isle}?",
                "What ship was {captain} captain of?",
                "The crew of which ship was saved by the {helper}?",
            ),
            "helper": (
                "Which ship saved the crew of the {lost}?",
                "What ship was {saver} captain of?",
                "On which ship were the sailors of the {lost} brought to {port}?",
            ),
            "captain": (
                "Who was captain of the {lost}?",
                "Whose ship sank off {isle}?",
                "Under whose command was the ship that the {helper} came to help?",
            ),
            "saver": (
                "Who was captain of the {helper}?",
                "Which captain saved the sailors of the {lost}?",
                "Who brought the crew of the {lost} to {port}?",
            ),
            "crew": (
                "How many sailors of the {lost} were saved?",
                "How many people did the {helper} take on board from the {lost}?",
                "How large was the crew of the {lost}?",
            ),
            "isle": (
                "Off which island did the {lost} sink?",
                "Near what island was the ship of {captain} lost?",
                "Near which island did the {helper} find the {lost}?",
            ),
            "port": (
                "To which town was the crew of the {lost} brought?",
                "Where did the {helper} land the sailors of the {lost}?",
                "In what port did {saver} put the rescued people ashore?",
            ),
        },
    ),
    Frame(
        "event_horse_fair",
        {
            "seller": "person",
            "buyer": "person",
            "between": "person",
            "beast": "animal",
            "asked": "price",
            "paid": "price",
            "fair": "festival",
        },
        (
            "At the {fair} {seller} asked {asked} for {beast:a} with one white ear. {buyer} shook {buyer:their} head "
            "and walked away, but {between} brought the two together again, and they shook hands on {paid}.",
            "{buyer} bought {beast:a} from {seller} at the {fair} and paid {paid} for it, not the {asked} that had "
            "been asked at first. The bargain had been talked into shape by {between}, over a glass of cider.",
            "It took {between}, who knew them both, to settle the sale: {seller} would not come down from {asked}, "
            "and {buyer} would not open the purse. At last the {beast} changed hands at the {fair} for {paid}.",
        ),
        {
            "seller": (
                "Who sold the {beast} at the {fair}?",
                "From whom did {buyer} buy the {beast}?",
                "Who asked {asked} for the {beast}?",
            ),
            "buyer": (
                "Who bought the {beast} at the {fair}?",
                "To whom did {seller} sell the {beast}?",
                "Who paid {paid} for the {beast}?",
            ),
            "between": (
                "Who helped {seller} and {buyer} to agree on a price?",
                "Who brought about the sale of the {beast} at the {fair}?",
                "Thanks to whom was the bargain between {seller} and {buyer} made?",
            ),
            "asked": (
                "How much did {seller} ask for the {beast} at first?",
                "What was the first price of the {beast} at the {fair}?",
                "What price did {seller} name at the beginning to {buyer}?",
            ),
            "paid": (
                "How much was paid for the {beast} in the end?",
                "For what price did {buyer} get the {beast}?",
                "On what price did {seller} and {buyer} agree?",
            ),
            "fair": (
                "At which fair did {buyer} buy the {beast}?",
                "Where did {seller} sell the {beast}?",
                "At what event did {seller} and {buyer} make their bargain?",
            ),
        },
    ),
    Frame(
        "event_game_evening",
        {
            "who": "person",
            "final": "person",
            "absent": "person",
            "game": "game",
            "inn": "building",
            "won": "thing",
            "comfort": "food",
        },
        (
            "The {game} contest in the {inn} was won by {who}, who beat {final} in the last game and got {won:a}. "
            "{final} was consoled with {comfort}. {absent}, the winner of the year before, did not take part.",
            "{absent} had won at {game} the year before but stayed away this time, and so the last game in the {inn} "
            "was between {final} and {who}. {who} won {won:a}; {comfort} was all that {final} took home.",
            "{won:A} stood on the counter of the {inn} as first prize for the best at {game}. {who} carried it off. "
            "For {final}, who lost the last game, there was {comfort}; {absent}, who had won a year earlier, sent "
            "greetings.",
        ),
        {
            "who": (
                "Who won the {game} contest in the {inn}?",
                "Who beat {final} at {game}?",
                "Who went home with the {won}?",
            ),
            "final": (
                "Who lost the last game against {who}?",
                "Who came second at {game} in the {inn}?",
                "Whom did {who} beat at {game}?",
            ),
            "absent": (
                "Who had won the {game} contest the year before?",
                "Which former winner did not play {game} in the {inn} this time?",
                "Who had been the winner a year before {who}?",
            ),
            "won": (
                "What was the first prize in the {game} contest?",
                "What did {who} win in the {inn}?",
                "What did {who} receive for beating {final}?",
            ),
            "comfort": (
                "What did {final} get after losing to {who}?",
                "What was given to {final} in the {inn}?",
                "With what prize did {final} have to be content?",
            ),
            "game": (
                "What game was played in the {inn}?",
                "At which game did {who} beat {final}?",
                "What game had {absent} won at the year before?",
            ),
        },
    ),
    Frame(
        "event_two_travellers",
        {
            "who": "person",
            "other": "person",
            "from1": "town",
            "from2": "town",
            "meet": "town",
            "how1": "means",
            "how2": "means",
        },
        (
            "{who} came {how1} from {from1} and {other} {how2} from {from2}, and yet the two cousins arrived for the "
            "party in {meet} within a minute of each other, just as the soup was being carried to the table.",
            "The cousins had agreed to meet in {meet} for their grandmother's party. {other} left {from2} and "
            "travelled {how2}; {who}, whose way from {from1} was shorter, made it {how1} and still forgot the "
            "flowers.",
            "To reach the family party in {meet}, {who} set out from {from1} {how1}, while cousin {other}, who lives "
            "in {from2}, preferred to come {how2}. Both were late for the cake.",
        ),
        {
            "from1": (
                "From which town did {who} come to {meet}?",
                "Where did {who} start on the way to the party in {meet}?",
                "What town did {who} leave to meet {other}?",
            ),
            "from2": (
                "From which town did {other} come to {meet}?",
                "Where did {other} start on the way to the party in {meet}?",
                "What town did {other} leave to meet {who}?",
            ),
            "how1": (
                "How did {who} travel to {meet}?",
                "How did {who} get from {from1} to the party?",
                "How did the cousin of {other} come to {meet}?",
            ),
            "how2": (
                "How did {other} travel to {meet}?",
                "How did {other} get from {from2} to the party?",
                "How did the cousin of {who} come to {meet}?",
            ),
            "meet": (
                "In which town did {who} and {other} meet?",
                "Where did {who} go from {from1}?",
                "To what town did {other} travel to meet {who}?",
            ),
            "other": (
                "Which of the cousins came from {from2}?",
                "Who travelled from {from2} to {meet}?",
                "Whom did {who} meet in {meet}?",
            ),
        },
    ),
    Frame(
        "event_play_first_night",
        {
            "who": "person",
            "author": "person",
            "first": "person",
            "play": "book",
            "plan": "date",
            "night": "date",
            "town": "town",
        },
        (
            'The first night of "{play}", a comedy by {author}, had been announced in {town} for {plan}. Then '
            "{first}, who was to play the miser, ran off to sea; on {night} the curtain rose at last, with {who} in "
            "the part.",
            'Written by {author}, "{play}" was first seen in {town} on {night}. {who} played the miser, since '
            "{first}, for whom the part was meant, had left the company, and nobody had known the lines on {plan}, "
            "the day fixed.",
            '{who} learned the part of the miser in {author:s} "{play}" in a few days after {first} had given it '
            "up. That is why {town} saw the first performance on {night}, although {plan} was printed on every "
            "poster.",
        ),
        {
            "who": (
                'Who played the miser in "{play}"?',
                "Who took over the part from {first}?",
                "Which actor was on the stage in {town} instead of {first}?",
            ),
            "author": (
                'Who wrote "{play}"?',
                "Who is the author of the play in which {who} was the miser?",
                'By whom is "{play}"?',
            ),
            "first": (
                'Who was meant to play the miser in "{play}" at first?',
                "In whose place did {who} act?",
                "Who gave up the part that {who} then played?",
            ),
            "plan": (
                'For what date was the first night of "{play}" announced?',
                'On what date should "{play}" have been shown in {town}?',
                'What was the date first fixed for "{play}"?',
            ),
            "night": (
                'On what date was "{play}" really performed for the first time?',
                'When did {town} see the first performance of "{play}"?',
                "On which date did {who} first play the miser in {town}?",
            ),
            "town": (
                'In which town was "{play}" first performed?',
                "Where did {who} play the miser?",
                "What town saw the first night of the comedy by {author}?",
            ),
        },
    ),
    Frame(
        "event_stranded_train",
        {
            "start": "town",
            "stop": "town",
            "goal": "town",
            "bad": "weather",
            "wait": "duration",
            "who": "person",
            "food": "food",
        },
        (
            "The night train from {start} to {goal} got no further than {stop}, where {bad} held it up for {wait}. "
            "The stationmaster, {who}, unlocked the waiting room and had {food} brought for the passengers.",
            "Stuck in {stop} for {wait} because of {bad}, the passengers who had got on in {start} were fed with "
            "{food} by {who}, the stationmaster. None of them had much hope of being in {goal} for breakfast.",
            "On the way to {goal} the night train, which had left {start} on time, was stopped by {bad} at {stop}. "
            "{who}, who was stationmaster there, served {food} to everyone, and after {wait} the whistle blew again.",
        ),
        {
            "start": (
                "From which town did the train that was stuck in {stop} come?",
                "Where had the night train to {goal} started?",
                "In what town had the passengers who waited in {stop} begun their journey?",
            ),
            "stop": (
                "Where was the night train from {start} to {goal} held up?",
                "In which town did the passengers have to wait on the way to {goal}?",
                "At what place was {who} stationmaster?",
            ),
            "goal": (
                "What was the destination of the night train from {start}?",
                "To which town was the train going that was held up in {stop}?",
                "Where did the passengers from {start} want to go?",
            ),
            "bad": (
                "What weather stopped the train in {stop}?",
                "What held up the night train to {goal}?",
                "Because of what did the train from {start} have to wait in {stop}?",
            ),
            "wait": (
                "How long did the train have to wait in {stop}?",
                "For how long was the night train to {goal} held up?",
                "How long were the passengers the guests of {who} in {stop}?",
            ),
            "who": (
                "Who was the stationmaster in {stop}?",
                "Who gave the passengers of the train to {goal} something to eat?",
                "Who looked after the passengers in {stop}?",
            ),
            "food": (
                "What did the passengers get to eat in {stop}?",
                "What did {who} give to the passengers?",
                "What food was served to the people on the train to {goal}?",
            ),
        },
    ),
    Frame(
        "event_runaway_pet",
        {
            "who": "person",
            "keeper": "person",
            "finder": "person",
            "pet": "pet",
            "home": "road",
            "found": "building",
            "day": "weekday",
        },
        (
            "{who} was away for the week and had left {pet} with {keeper}, from whose yard in {home} the animal ran "
            "off on {day}. It was {finder} who found it, wet and hungry, behind {found:a}.",
            "On {day} {pet} slipped through a hole in the fence in {home}, where {keeper} was looking after the "
            "animal for {who}, its owner. After a long search {finder} heard a whine and discovered it behind "
            "{found:a}.",
            "Behind {found:a}, {finder} found {pet}, the runaway that everyone was looking for. The animal belongs "
            "to {who} but was being kept by {keeper} in {home}, and had escaped from there on {day}.",
        ),
        {
            "who": (
                "To whom does {pet} belong?",
                "Who is the owner of {pet}?",
                "For whom was {keeper} looking after {pet}?",
            ),
            "keeper": (
                "Who was looking after {pet} for {who}?",
                "From whom did {pet} run away in {home}?",
                "With whom had {who} left {pet}?",
            ),
            "finder": (
                "Who found {pet}?",
                "By whom was {pet} discovered behind the {found}?",
                "Who found the animal that had run away from {keeper}?",
            ),
            "home": (
                "From which street did {pet} run away?",
                "Where was {keeper} looking after {pet}?",
                "In what street did {pet} escape?",
            ),
            "found": (
                "Behind what building was {pet} found?",
                "Where did {finder} find {pet}?",
                "Behind which building did {finder} come upon {pet}?",
            ),
            "day": (
                "On which day did {pet} run away?",
                "On what day of the week did {pet} escape from {home}?",
                "When did {keeper} lose {pet}?",
            ),
        },
    ),
    Frame(
        "event_late_letter",
        {
            "who": "person",
            "sender": "person",
            "carrier": "person",
            "wrote": "date",
            "came": "date",
            "from1": "town",
            "hidden": "thing",
        },
        (
            "The letter that {sender} wrote in {from1} on {wrote} was meant for {who}, but it slipped behind "
            "{hidden:a} in the post office. Months later {carrier} found it while sweeping, and on {came} it was "
            "delivered at last.",
            "{who} did not get the letter from {sender} until {came}, although it was dated {from1}, {wrote}. It had "
            "lain behind {hidden:a} at the post office, where {carrier} came across it one quiet afternoon.",
            "If {carrier} had not moved {hidden:a} in the post office, nobody would ever have found the letter. "
            "{sender} had posted it in {from1} on {wrote}, and {who}, for whom it was meant, could read it only on "
            "{came}.",
        ),
        {
            "who": (
                "To whom had {sender} written the letter?",
                "Who got the letter from {sender} on {came}?",
                "For whom was the letter that {carrier} found?",
            ),
            "sender": (
                "Who wrote the letter to {who}?",
                "From whom was the letter that {carrier} found?",
                "Who sent {who} a letter from {from1}?",
            ),
            "carrier": (
                "Who found the letter from {sender} in the post office?",
                "Thanks to whom did {who} get the letter after all?",
                "By whom was the letter to {who} found behind the {hidden}?",
            ),
            "wrote": (
                "On what date did {sender} send the letter?",
                "What is the date of the letter that {sender} wrote in {from1}?",
                "When was the letter to {who} written?",
            ),
            "came": (
                "On what date did {who} receive the letter?",
                "When did the letter from {sender} reach {who} at last?",
                "When could {who} read what {sender} had written?",
            ),
            "from1": (
                "From which town did {sender} write to {who}?",
                "Where was the letter to {who} posted?",
                "In what town was {sender} when the letter was written?",
            ),
            "hidden": (
                "Behind what had the letter to {who} been lying?",
                "What had hidden the letter from {sender} in the post office?",
                "Behind what object did {carrier} find the letter?",
            ),
        },
    ),
)
