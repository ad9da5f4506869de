"""Frames about scenes of village and family life, with several values of one kind in different roles."""

from __future__ import annotations

from train.world.frame import Frame

FRAMES = (
    Frame(
        "life_clock",
        {
            "who": "person",
            "helper": "person",
            "former": "person",
            "town": "town",
            "weekday": "weekday",
            "price": "price",
        },
        (
            (
                "{who} mended the old clock in the hall at {town} on {weekday} and took {price} for it. {helper} "
                "only held the lamp, while {former}, who used to see to such things, watched from the stairs."
            ),
            (
                "In the hall at {town} the clock strikes again. For years {former} had kept it going, but this time "
                "the work was done by {who}, with {helper} handing up the tools; the bill came to {price}."
            ),
            (
                "When the hall clock in {town} stopped, people first thought of {former}, who had always repaired it "
                "before. It was {who}, however, who got it running on {weekday}, and {helper} did no more than "
                "steady the ladder."
            ),
            (
                "For {price}, {who} put the clock in the hall at {town} right. {who:Their} assistant that {weekday} "
                "was {helper}; earlier repairs had been the business of {former}."
            ),
        ),
        {
            "who": (
                "Who mended the clock in the hall at {town}?",
                "Who got the hall clock at {town} running again?",
                "Whom did {helper} help with the clock?",
                "By whom was the clock at {town} repaired this time?",
            ),
            "helper": (
                "Who helped {who} with the clock?",
                "Who only helped when the clock at {town} was mended?",
                "Who gave {who} a hand with the repair of the hall clock?",
            ),
            "former": (
                "Who had looked after the clock at {town} before {who}?",
                "Who used to mend the hall clock in {town}?",
                "Who repaired the clock at {town} in earlier days?",
            ),
            "price": (
                "How much did {who} get for mending the clock?",
                "What did the repair of the clock at {town} cost?",
                "What was {who} paid for the work on the hall clock?",
            ),
            "weekday": (
                "On what day did {who} mend the clock?",
                "On which day of the week was the hall clock at {town} repaired?",
                "When did {who} set the clock at {town} going again?",
            ),
        },
    ),
    Frame(
        "life_subjects",
        {
            "school": "school",
            "who": "person",
            "s1": "subject",
            "t2": "person",
            "s2": "subject",
            "t3": "person",
            "s3": "subject",
        },
        (
            (
                "At {school} in those days {who} taught {s1}, {t2} {s2}, and {s3} was left to {t3}, whose room under "
                "the roof was always cold."
            ),
            (
                "{who} had charge of {s1} at {school}. The lessons in {s2} were given by {t2}, not by {t3}, who came "
                "on the early bus and took the classes in {s3}."
            ),
            (
                "Three new teachers came to {school} that autumn: {t2} for {s2}, {t3} for {s3} and, after a long "
                "search, {who} for {s1}."
            ),
            (
                "Anyone who learned {s1} at {school} learned it from {who}. For {s3} the children went across the "
                "yard to {t3}, while {t2} tried to make them love {s2}."
            ),
        ),
        {
            "who": (
                "Who taught {s1} at {school}?",
                "Which teacher gave the lessons in {s1}?",
                "From whom did the pupils of {school} learn {s1}?",
            ),
            "t2": (
                "Who was the teacher of {s2} at {school}?",
                "Who taught {s2}?",
                "By whom was {s2} taught at {school}?",
            ),
            "t3": (
                "Who gave lessons in {s3} at {school}?",
                "To whom was {s3} entrusted at {school}?",
                "Which person taught {s3}?",
            ),
            "s1": (
                "What did {who} teach at {school}?",
                "Which subject did {who} teach?",
                "In which subject did {who} give lessons?",
            ),
            "s2": (
                "Which subject was taught by {t2}?",
                "What was {t2:s} subject at {school}?",
                "What could one learn from {t2}?",
            ),
            "s3": (
                "What did {t3} teach?",
                "Which subject did {t3} have at {school}?",
                "{t3} was the teacher of which subject?",
            ),
        },
    ),
    Frame(
        "life_music",
        {
            "who": "person",
            "t1": "person",
            "i1": "instrument",
            "d1": "weekday",
            "t2": "person",
            "i2": "instrument",
            "d2": "weekday",
        },
        (
            (
                "{who} has two music lessons a week: on {d1} {t1} teaches {who:them} the {i1}, and on {d2} "
                "{who:they} carries the {i2} up the hill to {t2}."
            ),
            (
                "For the {i1} there is {t1}, who comes to the house every {d1} and never takes off the coat; for the "
                "{i2}, which {who} likes far better, there is {t2}, and that lesson is on {d2}."
            ),
            (
                "{who} began on the {i1} with {t1}, always on a {d1}. The {i2} was added later. It is {t2} who gives "
                "{who:them} that second lesson, each {d2} after tea."
            ),
            (
                "Every {d2} the sound of the {i2} comes from the window where {t2} is teaching {who}. With {t1}, by "
                "contrast, {who} practises the {i1}, and the day for that is {d1}."
            ),
        ),
        {
            "t1": (
                "Who teaches {who} the {i1}?",
                "With whom does {who} learn the {i1}?",
                "Who gives {who} a lesson on {d1}?",
            ),
            "t2": (
                "From whom does {who} learn the {i2}?",
                "Who teaches {who} to play the {i2}?",
                "Who is {who:s} teacher on {d2}?",
            ),
            "i1": (
                "Which instrument does {t1} teach {who}?",
                "What does {who} learn from {t1}?",
                "What does {who} play in the lesson on {d1}?",
            ),
            "i2": (
                "Which instrument does {who} learn with {t2}?",
                "What instrument is {t2} teaching {who}?",
                "What does {who} play with {t2}?",
            ),
            "d1": (
                "On which day does {who} have a lesson with {t1}?",
                "When is {who:s} lesson on the {i1}?",
                "On what day of the week does {t1} teach {who}?",
            ),
            "d2": (
                "On which day does {t2} teach {who}?",
                "When does {who} have the lesson on the {i2}?",
                "What day of the week is kept for {who:s} lesson with {t2}?",
            ),
        },
    ),
    Frame(
        "life_market_bargain",
        {
            "who": "person",
            "seller": "person",
            "thing": "thing",
            "asked": "price",
            "paid": "price",
            "weekday": "weekday",
            "other": "person",
        },
        (
            (
                "{who} saw {thing:a} on the stall of {seller} last {weekday}. The card said {asked}, but after a "
                "long talk about the weather {who:they} had it for {paid}, and {other} carried it home."
            ),
            (
                "On {weekday} {seller} was asking {asked} for {thing:a}. {other} only laughed and walked on; {who}, "
                "more patient, stayed, bargained and paid {paid}."
            ),
            (
                "The {thing} that {who} bought from {seller} cost {paid}. The price on the label had been {asked}, "
                "and {other}, who stood by, could not believe that the two had come to terms."
            ),
            (
                "{seller} sold {thing:a} on {weekday}, not to {other}, who had looked at it twice, but to {who}. The "
                "price named at first was {asked}, the sum counted out on the counter {paid}."
            ),
        ),
        {
            "who": (
                "Who bought the {thing} from {seller}?",
                "To whom did {seller} sell the {thing}?",
                "Who is the new owner of the {thing} from the stall of {seller}?",
            ),
            "seller": (
                "Who sold {who} the {thing}?",
                "From whom did {who} buy the {thing}?",
                "Who had the {thing} for sale?",
            ),
            "asked": (
                "What price did {seller} ask for the {thing} at first?",
                "How much was asked for the {thing}?",
                "What should the {thing} have cost {who} before the bargaining?",
            ),
            "paid": (
                "How much did {who} pay for the {thing}?",
                "What sum did {seller} get for the {thing} in the end?",
                "For what price was the {thing} sold to {who}?",
            ),
            "weekday": (
                "On which day did {seller} sell the {thing}?",
                "When did {who} buy the {thing}?",
                "On what day of the week was the {thing} sold?",
            ),
            "thing": (
                "What did {who} buy from {seller}?",
                "What did {seller} sell to {who}?",
                "For what did {who} pay {paid}?",
            ),
        },
    ),
    Frame(
        "life_house_sale",
        {
            "seller": "person",
            "who": "person",
            "other": "person",
            "road": "road",
            "asked": "price",
            "paid": "price",
            "year": "year",
        },
        (
            (
                "{seller} put the house in {road} up for sale in {year} and hoped for {asked}. {other} spoke of "
                "buying it, measured the cellar and was not heard of again; {who} bought it, for {paid}."
            ),
            (
                "{who} has owned the house in {road} since {year}, when {seller} let it go for {paid}. It had been "
                "advertised at {asked}, and {other} too had made an offer, but was turned away."
            ),
            (
                "In {year} the house in {road} changed hands. What {seller} had asked was {asked}; what {who} gave "
                "was {paid}. {other}, who had wanted it badly, took rooms above the bakery instead."
            ),
            (
                "Although {other} had been promised the first refusal, the house in {road} was sold by {seller} to "
                "{who}. The notary wrote down {paid}, and not the {asked} of the advertisement."
            ),
        ),
        {
            "who": (
                "Who bought the house in {road}?",
                "To whom did {seller} sell the house?",
                "Who became the new owner of the house in {road}?",
            ),
            "seller": (
                "Who sold the house in {road}?",
                "From whom did {who} buy the house?",
                "Who was the owner of the house in {road} before {who}?",
            ),
            "other": (
                "Who thought of buying the house in {road} but did not get it?",
                "Who besides {who} was interested in {seller:s} house?",
                "Who was the unlucky rival of {who} for the house in {road}?",
            ),
            "asked": (
                "What price was asked for the house in {road}?",
                "How much did {seller} want for the house at first?",
                "At what price was the house in {road} offered?",
            ),
            "paid": (
                "How much did {who} pay for the house?",
                "For how much was the house in {road} sold?",
                "What did {seller} actually get for the house in {road}?",
            ),
            "year": (
                "In what year was the house in {road} sold?",
                "When did {who} buy the house from {seller}?",
                "In which year did the house in {road} change hands?",
            ),
        },
    ),
    Frame(
        "life_will",
        {
            "dead": "person",
            "who": "person",
            "thing1": "thing",
            "heir2": "person",
            "thing2": "thing",
            "heir3": "person",
            "thing3": "thing",
        },
        (
            (
                "When the will of {dead} was read, nobody spoke. The {thing1} was to go to {who}, the {thing2} to "
                "{heir2}, and {heir3}, who had expected more, got the {thing3}."
            ),
            (
                "{who} inherited {thing1:a} from {dead}. {heir2} was left the {thing2}; as for the {thing3}, it went "
                "to {heir3}, together with a note that nobody else was allowed to see."
            ),
            (
                "In the will, written on two sheets of kitchen paper, {dead} left {heir3} {thing3:a} and {heir2} "
                "{thing2:a}. To {who}, who had kept the garden all those years, fell the {thing1}."
            ),
            (
                "{heir2}, not {who}, was given the {thing2} that had belonged to {dead}. {who} received the {thing1} "
                "instead, while the {thing3} was handed to {heir3}."
            ),
        ),
        {
            "who": (
                "Who inherited the {thing1} from {dead}?",
                "To whom did {dead} leave the {thing1}?",
                "Which of the heirs got the {thing1}?",
            ),
            "heir2": (
                "Who got the {thing2} after the death of {dead}?",
                "To whom did {dead} leave the {thing2}?",
                "Who is the heir to the {thing2}?",
            ),
            "heir3": (
                "Who received the {thing3} that had been {dead:s}?",
                "Who inherited the {thing3}?",
                "Into whose hands did the {thing3} of {dead} pass?",
            ),
            "thing1": (
                "What did {who} inherit from {dead}?",
                "What did {dead} leave to {who}?",
                "What was {who:s} share of {dead:s} belongings?",
            ),
            "thing2": (
                "What did {heir2} inherit?",
                "What was left to {heir2} by {dead}?",
                "Which of {dead:s} belongings went to {heir2}?",
            ),
            "thing3": (
                "What did {heir3} get from {dead}?",
                "What passed from {dead} to {heir3}?",
                "What did {dead} leave {heir3}?",
            ),
        },
    ),
    Frame(
        "life_quarrel",
        {
            "who": "person",
            "other": "person",
            "thing": "thing",
            "judge": "person",
            "duration": "duration",
            "road": "road",
        },
        (
            (
                "{who} and {other}, who live opposite each other in {road}, did not speak for {duration}, all "
                "because of {thing:a}. It was {judge} who made peace between them at last; the {thing} was given to "
                "{other}."
            ),
            (
                "For {duration} there was a quarrel in {road} over {thing:a}. {who} said it had been lent, {other} "
                "said it had been a present, and {judge}, called in to settle the matter, decided for {other}."
            ),
            (
                "{who} claimed the {thing}, and so did {other}. After {duration} of slammed doors in {road}, {judge} "
                "listened to both of them over a pot of coffee and let {other} keep it."
            ),
            (
                "The quarrel in {road} between {who} and {other} was ended by {judge}. It had lasted {duration} and "
                "had begun with {thing:a}, which from that day on was {other:s}."
            ),
        ),
        {
            "other": (
                "Who got the {thing} in the end?",
                "With whom did {who} quarrel about the {thing}?",
                "Who was allowed to keep the {thing} after the quarrel with {who}?",
            ),
            "judge": (
                "Who settled the quarrel between {who} and {other}?",
                "Who made peace in {road}?",
                "By whom was the argument over the {thing} brought to an end?",
            ),
            "thing": (
                "What did {who} and {other} quarrel about?",
                "Over what was there a quarrel in {road}?",
                "What did both {who} and {other} want to have?",
            ),
            "duration": (
                "How long did the quarrel in {road} last?",
                "For how long were {who} and {other} at odds?",
                "How long did it take before {judge} ended the quarrel?",
            ),
            "road": (
                "In which street did {who} and {other} quarrel?",
                "Where did {judge} make peace?",
                "Where did the trouble over the {thing} take place?",
            ),
        },
    ),
    Frame(
        "life_wedding",
        {
            "who": "person",
            "spouse": "person",
            "witness": "person",
            "planned": "date",
            "held": "date",
            "town": "town",
            "reason": "reason",
        },
        (
            (
                "{who} and {spouse} were to be married on {planned}, but because {reason} the wedding was moved to "
                "{held}. It took place in {town}, and {witness} was the witness."
            ),
            (
                "The cards had been printed for {planned}. As it turned out, {who} married {spouse} in {town} on "
                "{held}, for {reason}; the ring was carried up the aisle by {witness}, who was also the witness."
            ),
            (
                "{who} and {spouse} became a married couple on {held}, and not on {planned} as the invitations said. "
                "{witness} signed the register in {town} as witness."
            ),
            (
                "On {held}, in the little church at {town}, {spouse} and {who} were wed at last. The first day "
                "chosen, {planned}, had been given up because {reason}. Beside them, as witness, stood {witness}."
            ),
        ),
        {
            "spouse": (
                "Whom did {who} marry?",
                "Who married {who} in {town}?",
                "To whom was {who} married on {held}?",
            ),
            "witness": (
                "Who was the witness when {who} married {spouse}?",
                "Who was witness at the wedding in {town}?",
                "Who acted as witness for {who} and {spouse}?",
            ),
            "planned": (
                "For what day was the wedding of {who} and {spouse} first planned?",
                "When should {who} and {spouse} have been married?",
                "Which date had first been chosen for {who:s} wedding?",
            ),
            "held": (
                "On what date were {who} and {spouse} really married?",
                "When did the wedding of {who} and {spouse} take place?",
                "On which day did {who} marry {spouse}?",
            ),
            "town": (
                "Where did {who} marry {spouse}?",
                "In which town did the wedding of {who} and {spouse} take place?",
                "Where was {witness} a witness?",
            ),
            "reason": (
                "Why were {who} and {spouse} not married on {planned}?",
                "Why was the wedding of {who} and {spouse} put on another day?",
                "Why did {who} and {spouse} change the date of the wedding?",
            ),
        },
    ),
    Frame(
        "life_visit",
        {
            "who": "person",
            "host": "person",
            "other": "person",
            "town": "town",
            "came": "weekday",
            "left": "weekday",
            "relative": "relative",
        },
        (
            (
                "{who} came to {town} on {came} to stay with {host}, {who:their} {relative}. {who:They} had meant to "
                "call on {other} as well, but the trunk was packed again on {left} before there was time."
            ),
            (
                "On {came} {host} met {who} at the gate in {town}; the bed was made and the guest room warm. By "
                "{left} the visit was over; {other}, who lives round the corner, never knew that anyone had been "
                "there."
            ),
            (
                "{who} spent some days in {town}, from {came} to {left}. {who:They} slept at the house of "
                "{who:their} {relative} {host}, not at {other:s}, where the roof was being mended."
            ),
            (
                "{host}, the {relative} of {who}, has a spare room in {town} and opened it on {came}. It was raining "
                "when {who} went home again on {left}, without having seen {other}."
            ),
        ),
        {
            "host": (
                "With whom did {who} stay in {town}?",
                "At whose house in {town} was {who} a guest?",
                "Who had {who} as a guest?",
            ),
            "came": (
                "On which day did {who} arrive in {town}?",
                "When did {who} come to stay with {host}?",
                "On what day did {who:s} visit to {host} begin?",
            ),
            "left": (
                "On what day did {who} leave {town}?",
                "When did {who} go home from {town}?",
                "On which day did {who:s} visit to {host} end?",
            ),
            "town": (
                "Where does {host} live?",
                "In which town did {who} stay?",
                "Where did {who} go to visit {host}?",
            ),
            "relative": (
                "What relation is {host} to {who}?",
                "Which family relation of {who} is {host}?",
                "How is {host} related to {who}?",
            ),
        },
    ),
    Frame(
        "life_moving",
        {
            "who": "person",
            "from": "town",
            "to": "town",
            "stayed": "person",
            "relative": "relative",
            "year": "year",
            "means": "means",
        },
        (
            (
                "{who} left {from} for {to} in {year}, with everything in four boxes, travelling {means}. "
                "{who:Their} {relative}, {stayed}, would not hear of it and stayed behind."
            ),
            (
                "In {year} {who} moved house. {from} had become too quiet; in {to} there was work, and so {who:they} "
                "went there {means}, while {stayed}, {who:their} {relative}, kept the old rooms and the cat."
            ),
            (
                "The house in {from} now belongs to {stayed} alone. {who} has lived in {to} since {year}, when "
                "{who:they} made the journey {means} with a birdcage on {who:their} knees."
            ),
            (
                "{stayed} still lives in {from}. Not so {who}: {to} has been {who:their} home ever since the move in "
                "{year}, made {means} and in pouring rain."
            ),
        ),
        {
            "from": (
                "From where did {who} move to {to}?",
                "In which town did {who} live before the move to {to}?",
                "Where does {stayed} still live?",
            ),
            "to": (
                "Where did {who} go to live in {year}?",
                "To which town did {who} move from {from}?",
                "Where does {who} live now?",
            ),
            "stayed": (
                "Who did not move with {who}, but stayed in {from}?",
                "Who remained behind in {from}?",
                "Which person stayed in {from} when {who} left?",
            ),
            "year": (
                "In what year did {who} move to {to}?",
                "When did {who} leave {from}?",
                "In which year did {who} move house?",
            ),
            "means": (
                "How did {who} travel from {from} to {to}?",
                "By what means did {who} move to {to}?",
                "How did {who} get to {to} when moving house?",
            ),
            "relative": (
                "What relation is {stayed} to {who}?",
                "How is {stayed} related to {who}?",
            ),
        },
    ),
    Frame(
        "life_sickbed",
        {
            "who": "person",
            "ill1": "illness",
            "other": "person",
            "ill2": "illness",
            "nurse": "person",
            "night": "person",
            "duration": "duration",
        },
        (
            (
                "{who} lay ill with {ill1} for {duration}. By day {nurse} sat at the bedside; at night it was "
                "{night} who kept the fire in. Next door, at the same time, {other} was down with {ill2}."
            ),
            (
                "Two beds were set up in the front room: one for {other}, who had {ill2}, and one for {who}, who "
                "suffered from {ill1}. {nurse} looked after {who} by day, and when the lamps were lit {night} took "
                "over."
            ),
            (
                "{who} had {ill1}, not {ill2}, as the neighbours told one another; that was {other}. The days of "
                "nursing {who} were {nurse:s}, the nights were {night:s}, and after {duration} the patient was up "
                "again."
            ),
            (
                "It took {duration} before {who} was rid of {ill1}. {night} watched by {who:them} at night so that "
                "{nurse}, the day nurse, could sleep a little."
            ),
        ),
        {
            "ill1": (
                "What illness did {who} have?",
                "With what was {who} ill?",
                "From which illness did {who} suffer?",
            ),
            "ill2": (
                "What illness did {other} have?",
                "With what was {other} ill?",
                "What was the matter with {other}?",
            ),
            "nurse": (
                "Who nursed {who} by day?",
                "Who looked after {who} in the daytime?",
                "By whom was {who} cared for during the day?",
            ),
            "night": (
                "Who nursed {who} at night?",
                "Who looked after {who} during the night?",
                "Who took the night watches when {who} was ill?",
            ),
            "duration": (
                "How long was {who} ill?",
                "How long did {who:s} illness last?",
                "After how long was {who} well again?",
            ),
            "who": (
                "Who was ill with {ill1}?",
                "Which person suffered from {ill1}?",
                "Who was nursed by {nurse} by day?",
            ),
        },
    ),
    Frame(
        "life_hobbies",
        {
            "who": "person",
            "game1": "game",
            "other": "person",
            "game2": "game",
            "weekday": "weekday",
            "relative": "relative",
            "winner": "person",
        },
        (
            (
                "{who} would give up dinner for {game1}. {who:Their} {relative}, {other}, does not care for it and "
                "prefers {game2}; every {weekday} the two sit at separate tables, and {winner} goes from one to the "
                "other."
            ),
            (
                "In that family {who} is the one for {game1}, {other} the one for {game2}. {winner}, who plays "
                "neither, makes the sandwiches each {weekday}, when the whole table is cleared for the boards and "
                "the cards."
            ),
            (
                "{who} learned {game1} at school and has never stopped. On {weekday}, when there is no light in "
                "{who:their} window, {who:they} is sure to be playing it at the club, while {other}, {who:their} "
                "{relative}, is at home over {game2}."
            ),
            (
                "Not {game1} but {game2} is what {other} likes best; it is {who} who plays {game1}, and that on "
                "every {weekday} of the year."
            ),
        ),
        {
            "game1": (
                "What does {who} play?",
                "What is {who:s} favourite game?",
                "Which game does {who} like best?",
            ),
            "game2": (
                "What does {other} prefer to play?",
                "Which game is {other:s} favourite?",
                "What does {other} like to play instead of {game1}?",
            ),
            "weekday": (
                "On which day does {who} play {game1}?",
                "On what day of the week does {who} spend the time with {game1}?",
                "When does {who} play {game1}?",
            ),
            "relative": (
                "What relation is {other} to {who}?",
                "How is {other} related to {who}?",
            ),
            "who": (
                "Who is fond of {game1}?",
                "Which person plays {game1}?",
                "Who spends every {weekday} with {game1}?",
            ),
            "other": (
                "Who would rather play {game2} than {game1}?",
                "Which person likes {game2}?",
                "Whose favourite game is {game2}?",
            ),
        },
    ),
    Frame(
        "life_birthday",
        {
            "who": "person",
            "g1": "person",
            "thing1": "thing",
            "g2": "person",
            "thing2": "garment",
            "baker": "person",
            "age": "age",
        },
        (
            (
                "{who} turned {age} and was woken by singing. From {g1} there was {thing1:a}, from {g2} {thing2:a} "
                "in tissue paper, and the cake, slightly burnt, had been baked by {baker}."
            ),
            (
                "On the table, beside the cake that {baker} had made, lay two parcels for {who}, who was {age} that "
                "morning: {thing2:a} from {g2} and, under far too much string, {thing1:a}, the present of {g1}."
            ),
            (
                "{who} was given {thing1:a} by {g1} and {thing2:a} by {g2} when {who:they} turned {age}. {baker} had "
                "brought no parcel, but had stood in the kitchen until midnight over the birthday cake."
            ),
            (
                "For {who:s} birthday {g2} had knitted or sewn {thing2:a}, nobody quite knew which, whereas {g1} "
                "gave {thing1:a}. The cake was the work of {baker}, and the candles on it came to {age}."
            ),
        ),
        {
            "g1": (
                "Who gave {who} the {thing1}?",
                "From whom did {who} get the {thing1}?",
                "Whose present to {who} was the {thing1}?",
            ),
            "g2": (
                "Who gave {who} the {thing2}?",
                "From whom was the {thing2} that {who} got?",
                "Who had the {thing2} ready for {who:s} birthday?",
            ),
            "thing1": (
                "What did {g1} give {who} for the birthday?",
                "What was {g1:s} present to {who}?",
                "What did {who} get from {g1}?",
            ),
            "thing2": (
                "What did {who} get from {g2}?",
                "What did {g2} give to {who}?",
                "Which garment was given to {who}?",
            ),
            "baker": (
                "Who baked the cake for {who}?",
                "By whom was {who:s} birthday cake made?",
                "Who made the cake for the birthday of {who}?",
            ),
            "age": (
                "How old was {who} on that birthday?",
                "What age did {who} reach?",
                "How old did {who} become when {g1} gave {who:them} the {thing1}?",
            ),
        },
    ),
    Frame(
        "life_supper",
        {
            "who": "person",
            "dish1": "food",
            "cook2": "person",
            "dish2": "food",
            "host": "person",
            "drink": "drink",
            "guest": "person",
        },
        (
            (
                "{who} made {dish1} for the supper at {host:s} house, {cook2} came with {dish2} under a cloth, and "
                "{guest}, who cannot cook, brought {drink} for everybody."
            ),
            (
                "At {host:s} long table there was {dish2}, which {cook2} had cooked, and {dish1}, which {who} had "
                "carried across the yard still steaming. The {drink} was {guest:s} share in the feast."
            ),
            (
                "{host} had invited them all and did not have to cook at all. The {dish1} came from {who}, the "
                "{dish2} from {cook2}; to drink there was {drink}, the gift of {guest}."
            ),
            (
                "{who} had meant to bring {dish2} to the supper at {host:s}, but {cook2} was already making that. So "
                "{who:they} cooked {dish1} instead, and {guest} saw to the {drink}."
            ),
        ),
        {
            "who": (
                "Who made the {dish1} for the supper at {host:s}?",
                "Who brought {dish1} to {host:s} house?",
                "By whom was the {dish1} cooked?",
            ),
            "cook2": (
                "Who cooked the {dish2}?",
                "Who made {dish2} for the supper at {host:s}?",
                "Who came to {host:s} supper with {dish2}?",
            ),
            "dish1": (
                "What did {who} make for the supper?",
                "What did {who} bring to eat at {host:s} house?",
                "Which dish was cooked by {who}?",
            ),
            "dish2": (
                "What did {cook2} cook?",
                "Which dish at {host:s} supper was made by {cook2}?",
                "What had {cook2} made for the guests?",
            ),
            "drink": (
                "What was there to drink at {host:s} house?",
                "What did {guest} bring?",
                "Which drink was provided by {guest}?",
            ),
            "guest": (
                "Who brought the {drink} to {host:s} supper?",
                "Who saw to the drink at {host:s}?",
                "Which guest of {host} brought nothing to eat, but {drink}?",
            ),
            "host": (
                "At whose house did {who} and {cook2} have supper?",
                "Who was the host of {who} and {guest}?",
                "For whose supper did {who} make {dish1}?",
            ),
        },
    ),
    Frame(
        "life_letter",
        {
            "who": "person",
            "to": "person",
            "carrier": "person",
            "wrote": "date",
            "came": "date",
            "town": "town",
            "relative": "relative",
        },
        (
            (
                "{who} wrote to {to} on {wrote}, from a boarding house in {town}. The letter did not come by post: "
                "{carrier} brought it in a coat pocket, and it was {came} before it was opened."
            ),
            (
                "On {came} {carrier} stood at the door of {to} with a letter in hand. {who} had written it in "
                "{town}, and the date at the top of the page was {wrote}."
            ),
            (
                "{who:s} letter to {to}, {who:their} {relative}, is dated {wrote}. It was delivered on {came} by "
                "{carrier}, who happened to be travelling home from {town}, where {who} lived at the time."
            ),
            (
                "Although the letter that {who} wrote in {town} bears the date {wrote}, it was {came} when {to} held "
                "it at last. {carrier}, who had been asked to deliver it, made no excuse."
            ),
        ),
        {
            "who": (
                "From whom was the letter that {to} got on {came}?",
                "Who wrote to {to}?",
                "Whose letter did {carrier} deliver?",
            ),
            "to": (
                "To whom did {who} write?",
                "For whom was {who:s} letter?",
                "To whom did {carrier} bring the letter of {who}?",
            ),
            "carrier": (
                "Who brought {to} the letter from {who}?",
                "By whom was {who:s} letter delivered?",
                "Who carried the letter from {who} to {to}?",
            ),
            "wrote": (
                "On what date did {who} write to {to}?",
                "When was the letter to {to} written?",
                "What is the date of {who:s} letter?",
            ),
            "came": (
                "When did {to} get the letter from {who}?",
                "On what date did {who:s} letter reach {to}?",
                "On which day did {carrier} deliver the letter to {to}?",
            ),
            "town": (
                "Where did {who} write the letter to {to}?",
                "In which town was the letter of {who} written?",
                "From which town did {who} write?",
            ),
        },
    ),
    Frame(
        "life_apprentice",
        {
            "who": "person",
            "master": "person",
            "trade": "trade",
            "wish": "trade",
            "town": "town",
            "duration": "duration",
            "relative": "relative",
        },
        (
            (
                "{who} wanted to be {wish:a}, but {who:their} {relative} would have none of it. {who:They} was sent "
                "to {town} instead and served {duration} with {master}, {trade:a} who was known for a short temper."
            ),
            (
                "For {duration} {who} learned the work of {trade:a} in {town} under {master}. The dream of being "
                "{wish:a} was not forgotten, only put away with the school books."
            ),
            (
                "{master}, {trade:a} in {town}, took {who} on as an apprentice. {who} stayed {duration}, and never "
                "said to anyone there that {who:they} would rather have become {wish:a}."
            ),
            (
                "{who} was apprenticed to {master} of {town}. {who:They} had hoped for the life of {wish:a}; what "
                "{who:they} became, after {duration} at the bench, was {trade:a} like the master."
            ),
        ),
        {
            "master": (
                "To whom was {who} apprenticed?",
                "Who taught {who} the work of {trade:a}?",
                "With whom did {who} serve in {town}?",
                "Who was {who:s} master?",
            ),
            "trade": (
                "What trade did {who} learn from {master}?",
                "What was {master} by trade?",
                "Which trade did {who} learn in {town}?",
            ),
            "wish": (
                "What had {who} wanted to become?",
                "What was the trade that {who} dreamed of?",
                "What would {who} rather have been than {trade:a}?",
            ),
            "town": (
                "Where was {who} an apprentice?",
                "In which town did {master} work?",
                "Where did {who} learn to be {trade:a}?",
            ),
            "duration": (
                "How long was {who} with {master}?",
                "How long did {who:s} apprenticeship in {town} last?",
                "For how long did {who} learn from {master}?",
            ),
        },
    ),
    Frame(
        "life_borrowed",
        {
            "who": "person",
            "owner": "person",
            "third": "person",
            "thing": "thing",
            "promised": "weekday",
            "back": "weekday",
            "room": "room",
        },
        (
            (
                "{who} borrowed {thing:a} from {owner} and promised to return it by {promised}. {third} was then "
                "seen using it, and so it was {back} before the thing stood in {owner:s} {room} again."
            ),
            (
                "The {thing} belongs to {owner}, though one might not think so. {who} had asked for it until "
                "{promised} and passed it on to {third}; on {back}, with a new scratch, it came home."
            ),
            (
                "On {back} {owner} had the {thing} back at last. {promised} had been the day agreed with {who}, who "
                "had borrowed it, but {who} had lent it to {third} without asking."
            ),
            (
                "{owner} lent {who} {thing:a}, and {who} lent it to {third}. It ought to have been back in the "
                "{room} on {promised}; it was brought on {back}, together with a jar of jam."
            ),
        ),
        {
            "who": (
                "Who borrowed the {thing} from {owner}?",
                "To whom did {owner} lend the {thing}?",
                "Who lent the {thing} on to {third}?",
            ),
            "owner": (
                "Whose is the {thing} that {who} borrowed?",
                "From whom did {who} borrow the {thing}?",
                "Who is the owner of the {thing}?",
            ),
            "third": (
                "Who used {owner:s} {thing} after {who} had borrowed it?",
                "Who besides {who} had the {thing} for a time?",
                "Who had the use of the {thing} through {who}?",
            ),
            "promised": (
                "On which day should {who} have returned the {thing}?",
                "By what day was the {thing} to be back with {owner}?",
                "Which day had {who} agreed on for giving back the {thing}?",
            ),
            "back": (
                "On what day did {owner} get the {thing} back?",
                "When did the {thing} really come back to {owner}?",
                "On which day was {owner:s} {thing} returned?",
            ),
            "thing": (
                "What did {who} borrow from {owner}?",
                "What did {owner} lend to {who}?",
                "Which of {owner:s} belongings came to {third}?",
            ),
        },
    ),
    Frame(
        "life_choir",
        {
            "who": "person",
            "song1": "song",
            "singer2": "person",
            "song2": "song",
            "player": "person",
            "leader": "person",
            "town": "town",
        },
        (
            (
                "{who} sang {song1} alone at the choir evening in {town}; for {song2} it was {singer2} who stepped "
                "forward. {leader} conducted, and {player} was at the piano with the lid that never stays up."
            ),
            (
                "The choir of {town}, which {leader} conducts, gave two solos this year. {singer2} had {song2}, and "
                "{song1} went to {who}, with {player} accompanying both of them on the piano."
            ),
            (
                "{who} had practised {song2} for weeks, but on the evening in {town} {singer2} was given that solo, "
                "and {who} sang {song1}. The piano was played by {player}, the choir led by {leader}."
            ),
            (
                "Under {leader}, who has led the choir of {town} for half a lifetime, {song1} was sung by {who} and "
                "{song2} by {singer2}. {player} played the piano and turned the pages as well."
            ),
        ),
        {
            "who": (
                "Who sang {song1} in {town}?",
                "Who was the soloist in {song1}?",
                "By whom was {song1} sung?",
            ),
            "singer2": (
                "Who sang the solo in {song2}?",
                "Who was heard in {song2} at {town}?",
                "By whom was {song2} sung?",
            ),
            "song1": (
                "What did {who} sing in {town}?",
                "Which song was sung by {who}?",
                "In which song did {who} have the solo?",
            ),
            "song2": (
                "What did {singer2} sing?",
                "Which song was {singer2:s} solo?",
                "Which song did the choir of {town} leave to {singer2}?",
            ),
            "player": (
                "Who played the piano for the choir of {town}?",
                "Who accompanied {who} and {singer2} on the piano?",
                "Who was at the piano when {who} sang {song1}?",
            ),
            "leader": (
                "Who led the choir of {town}?",
                "Under whom did {who} and {singer2} sing?",
                "Who was the conductor when {who} sang {song1}?",
            ),
        },
    ),
    Frame(
        "life_play",
        {
            "book": "book",
            "who": "person",
            "former": "person",
            "illness": "illness",
            "prompter": "person",
            "painter": "person",
            "town": "town",
        },
        (
            (
                "{former} was to have played the lead in {book}, but lay in bed with {illness}. So {who} learned the "
                "part in two days, {prompter} whispered the lines, and {town} saw the scenery that {painter} had "
                "painted."
            ),
            (
                "{who} took the leading part when {town} put on {book}. It had been meant for {former}, who went "
                "down with {illness}; {prompter} was the prompter, and the painted wood was the work of {painter}."
            ),
            (
                "When the villagers of {town} gave {book}, the painted trees were by {painter} and the prompter was "
                "{prompter}. On account of {illness}, {former} could not appear, and the lead was played by {who}."
            ),
            (
                "{who} had only been asked to sell tickets for {book}. Then {former}, who had the lead, caught "
                "{illness}, and {who} played it instead, with {prompter} as prompter behind a screen painted by "
                "{painter}."
            ),
        ),
        {
            "who": (
                "Who played the lead in {book} in the end?",
                "Who took the part that had been {former:s} in {book}?",
                "By whom was {former} replaced?",
            ),
            "former": (
                "Who should have played the lead in {book}?",
                "Whose part did {who} take over in {book}?",
                "Who could not act in {book} because of {illness}?",
            ),
            "illness": (
                "What illness kept {former} from playing in {book}?",
                "What did {former} suffer from?",
                "Because of which illness was {former} replaced by {who}?",
            ),
            "prompter": (
                "Who was the prompter in {book}?",
                "Who whispered the lines when {who} played in {book}?",
                "Who helped {who} as prompter?",
            ),
            "painter": (
                "Who did the painting for {book}?",
                "Who painted the scenery for the play in which {who} had the lead?",
                "By whom was the scenery of {book} painted?",
            ),
            "town": (
                "Where was {book} performed?",
                "In which town did {who} play in {book}?",
                "Which town saw {who} in the leading part?",
            ),
        },
    ),
    Frame(
        "life_painted",
        {
            "building": "building",
            "town": "town",
            "who": "person",
            "new": "colour",
            "old": "colour",
            "helper": "person",
            "cleaner": "person",
        },
        (
            (
                "{who} has painted the door of the {building} in {town} {new}; it used to be {old}. {helper} mixed "
                "the paint, and the windows, which nobody had touched for years, were washed by {cleaner}."
            ),
            (
                "The door of the {building} in {town}, {old} for as long as people can remember, is {new} now. That "
                "is {who:s} work, done with the help of {helper}, who mixed the paint, while {cleaner} cleaned the "
                "windows."
            ),
            (
                "At the {building} in {town} {cleaner} washed the windows and {helper} stirred the paint pots. The "
                "brush itself was held by {who}, under whose hand the {old} door became a {new} one."
            ),
            (
                "{who} chose {new} for the door of the {building} in {town}, although {helper}, who only mixed the "
                "paint, would have kept it {old}. To {cleaner} fell the windows."
            ),
        ),
        {
            "who": (
                "Who painted the door of the {building} in {town}?",
                "By whom was the door in {town} painted {new}?",
                "Whom did {helper} help with the paint?",
            ),
            "new": (
                "What colour is the door of the {building} in {town} now?",
                "In which colour did {who} paint the door?",
                "What colour did the door get when {who} painted it?",
            ),
            "old": (
                "What colour was the door of the {building} before {who} painted it?",
                "What was the former colour of the door in {town}?",
                "Which colour did the door of the {building} have in earlier days?",
            ),
            "helper": (
                "Who mixed the paint for {who}?",
                "Who only helped with the paint at the {building}?",
                "Who gave {who} a hand with the paint?",
            ),
            "cleaner": (
                "Who washed the windows of the {building}?",
                "By whom were the windows in {town} cleaned?",
                "Who saw to the windows while {who} painted the door?",
            ),
            "building": (
                "Which building in {town} did {who} paint the door of?",
                "To which building does the door belong that {who} painted?",
            ),
        },
    ),
    Frame(
        "life_lost_pet",
        {
            "who": "person",
            "pet": "pet",
            "animal": "animal",
            "finder": "person",
            "place": "building",
            "price": "price",
            "day": "weekday",
        },
        (
            (
                "{who} had hunted for {pet} since {day}, when the gate was left open. It was {finder} who found the "
                "{animal}, asleep in the {place}, and who would not take the {price} that had been promised."
            ),
            (
                "{pet}, the {animal} that belongs to {who}, ran off on {day}. A reward of {price} was written on "
                "every fence, and in the end {finder} heard a noise in the {place} and looked inside."
            ),
            (
                "{who} offered {price} to anyone who brought back {pet}, {animal:a} missing since {day}. Many looked "
                "by the water; {finder} looked in the {place}, and that was right."
            ),
            (
                "In the {place}, behind some sacks, {finder} came upon {pet}. The {animal} had been gone since "
                "{day}, and {who}, who had put up a reward of {price}, wept for joy."
            ),
        ),
        {
            "who": (
                "To whom does {pet} belong?",
                "Who had lost {pet}?",
                "Who is the owner of the {animal} that {finder} found?",
            ),
            "finder": (
                "Who found {pet}?",
                "By whom was {who:s} {animal} found?",
                "Who discovered {pet} in the {place}?",
            ),
            "place": (
                "Where was {pet} found?",
                "Where did {finder} find the {animal}?",
                "In which building had {who:s} {animal} been hiding?",
            ),
            "price": (
                "What reward did {who} promise for {pet}?",
                "How much did {who} offer to the finder of {pet}?",
                "What was the reward for the {animal}?",
            ),
            "day": (
                "On what day did {pet} get lost?",
                "Since when had {who:s} {animal} been missing?",
                "On which day did {pet} run away?",
            ),
            "animal": (
                "What kind of animal is {pet}?",
                "What sort of animal did {who} lose?",
                "What animal was found by {finder}?",
            ),
        },
    ),
    Frame(
        "life_garden_show",
        {
            "who": "person",
            "crop1": "crop",
            "second": "person",
            "crop2": "crop",
            "judge": "person",
            "town": "town",
            "year": "year",
        },
        (
            (
                "{who} took first prize at the garden show in {town} in {year}, for {crop1} grown behind the coal "
                "shed. The second prize went to {second} for {crop2}; {judge}, who judged them all, went home with "
                "neither."
            ),
            (
                "At the garden show of {year} in {town}, {judge} walked up and down the tables for an hour. The red "
                "ribbon, for the second prize, was then tied to {second:s} {crop2}, and the gold one, for the first, "
                "to {who:s} {crop1}."
            ),
            (
                "{second} had won for years with {crop2}, but at {town} in {year} had to be content with the second "
                "prize. The first was awarded by {judge} to {who}, for {crop1}."
            ),
            (
                "Not {second} but {who} was first at the {town} garden show. The judge, {judge}, praised {who:their} "
                "{crop1} and put the {crop2} of {second} in second place."
            ),
        ),
        {
            "who": (
                "Who won the first prize at {town}?",
                "Who was first at the garden show in {town}?",
                "Who was placed before {second}?",
                "To whom did {judge} give the first prize?",
            ),
            "second": (
                "Who won the second prize at {town}?",
                "Who came second to {who} at the garden show?",
                "To whom did {judge} give the second prize?",
            ),
            "crop1": (
                "For what did {who} win the first prize?",
                "What had {who} grown?",
                "What did the winner show at {town}?",
            ),
            "crop2": (
                "For what did {second} get the second prize?",
                "What did {second} show at {town}?",
                "Which crop was {second:s}?",
            ),
            "judge": (
                "Who was the judge of the garden show in {town}?",
                "Who decided between {who} and {second}?",
                "By whom was {who} given the first prize?",
            ),
            "year": (
                "In what year did {who} win at {town}?",
                "When did {second} get the second prize?",
                "In which year was {who} first at the garden show?",
            ),
        },
    ),
    Frame(
        "life_dress",
        {
            "who": "person",
            "garment": "garment",
            "sewer": "person",
            "cutter": "person",
            "wanted": "colour",
            "got": "colour",
            "price": "price",
        },
        (
            (
                "{who} had asked for {garment:a} in {wanted}, but the shop had only {got} cloth left. {cutter} cut "
                "it out on the kitchen floor, {sewer} sewed it, and the finished thing, {got} as it was, cost "
                "{price}."
            ),
            (
                "The {garment} that {who} wears on Sundays was sewn by {sewer}, after {cutter} had cut the cloth. It "
                "is {got}; {wanted} was what {who:they} had ordered, and {price} was what {who:they} paid."
            ),
            (
                "For {price} {who} had {garment:a} made. {cutter} did the cutting and {sewer} the sewing, and since "
                "no {wanted} cloth could be found, which was the colour wanted, it became {got}."
            ),
            (
                "{sewer}, not {cutter}, sewed the {garment} that {who} had ordered; {cutter} had merely cut the "
                "cloth. It turned out {got} instead of the {wanted} that {who} had in mind."
            ),
        ),
        {
            "sewer": (
                "Who sewed the {garment} for {who}?",
                "By whom was {who:s} {garment} sewn?",
                "Who did the sewing of {who:s} {garment}?",
            ),
            "cutter": (
                "Who cut the cloth for {who:s} {garment}?",
                "Who did the cutting while {sewer} did the sewing?",
                "By whom was the cloth for the {garment} cut?",
            ),
            "wanted": (
                "Which colour had {who} wanted for the {garment}?",
                "In what colour did {who} order the {garment}?",
                "What colour should {who:s} {garment} have been?",
            ),
            "got": (
                "What colour was {who:s} {garment} in the end?",
                "In which colour was the {garment} made for {who}?",
                "What is the real colour of {who:s} {garment}?",
            ),
            "price": (
                "How much did {who} pay for the {garment}?",
                "What did {who:s} {garment} cost?",
                "What was the price of the {garment} that {sewer} sewed?",
            ),
            "who": (
                "For whom was the {garment} made?",
                "Whose {garment} did {sewer} sew?",
                "Who ordered the {garment}?",
            ),
        },
    ),
    Frame(
        "life_stray",
        {
            "who": "person",
            "owner": "person",
            "animal": "animal",
            "crop": "crop",
            "price": "price",
            "witness": "person",
            "road": "road",
        },
        (
            (
                "{who} of {road} found no {crop} left in the garden one morning, only bare ground. {witness} had "
                "seen {animal:a} go through the hedge, and since it was {owner:s}, it was {owner} who paid the "
                "damage, {price} in all."
            ),
            (
                "{owner} keeps {animal:a} in {road}, and one night it got in among the {crop} of {who}. {owner} "
                "denied it until {witness}, who had watched from the window, spoke up; then {who} received {price}."
            ),
            (
                "{who} lost a whole bed of {crop} to {animal:a} that belongs to {owner}. Thanks to {witness}, the "
                "only person in {road} who had seen it, {who:they} was paid {price} for the loss."
            ),
            (
                "Nobody in {road} would have known whose {animal} had eaten the {crop} of {who} if {witness} had not "
                "looked out. It was {owner:s}, and the damages, {price}, were counted out on the garden wall."
            ),
        ),
        {
            "owner": (
                "To whom does the {animal} belong that ate the {crop}?",
                "Who had to pay {who} for the {crop}?",
                "Whose {animal} got into the garden of {who}?",
            ),
            "who": (
                "Whose {crop} was eaten by the {animal}?",
                "Who was paid {price} for the {crop}?",
                "Who suffered damage from {owner:s} {animal}?",
            ),
            "witness": (
                "Who saw what the {animal} of {owner} did?",
                "Who was the witness in {road}?",
                "Thanks to whom did {who} learn whose {animal} it was?",
            ),
            "crop": (
                "What did {owner:s} {animal} eat?",
                "What was {who} growing in {road}?",
                "Which crop did {who} lose to the {animal}?",
            ),
            "price": (
                "How much did {who} get for the damage?",
                "What sum did {owner} pay for the {crop}?",
                "How much did the hungry {animal} cost {owner}?",
            ),
            "animal": (
                "What kind of animal did {owner} keep?",
                "What sort of animal ate the {crop} of {who}?",
                "Which animal of {owner:s} was seen by {witness}?",
            ),
        },
    ),
    Frame(
        "life_late_guest",
        {
            "who": "person",
            "host": "person",
            "town": "town",
            "plan": "clock",
            "real": "clock",
            "means": "means",
            "reason": "reason",
        },
        (
            (
                "{who} had written that {who:they} would be with {host} in {town} at {plan}. It was {real} when the "
                "bell rang, because {reason}, and {who:they} had made the last part of the way {means}."
            ),
            (
                "Supper in {town} was ready at {plan}, as arranged, and {host} kept it warm. At {real} {who} "
                "arrived, {means}, with wet shoes and many apologies: {reason}."
            ),
            (
                "{host} looked out for {who} at {plan}, the time they had agreed on, but {town} lay dark and empty. "
                "{who} came {means}, and not before the church clock said {real}."
            ),
            (
                "The hour fixed for the visit was {plan}; the hour at which {who} stood in {host:s} hall in {town} "
                "was {real}. It could not be helped, for {reason}."
            ),
        ),
        {
            "plan": (
                "At what time was {who} expected by {host}?",
                "For what time had {who} agreed to come to {town}?",
                "When should {who} have been at {host:s} house?",
            ),
            "real": (
                "At what time did {who} really arrive at {host:s}?",
                "When did {who} get to the house of {host}?",
                "What time was it when {who} came to {host} in {town}?",
            ),
            "host": (
                "Who was waiting for {who} in {town}?",
                "Whom did {who} visit in {town}?",
                "At whose house did {who} arrive late?",
            ),
            "means": (
                "How did {who} come to {host}?",
                "By what means did {who} get to {town}?",
                "How did {who} travel to {host:s} house?",
            ),
            "reason": (
                "Why was {who} not with {host} at {plan}?",
                "Why did {who} reach {host} at another time than agreed?",
                "What kept {who} from being in {town} at the hour fixed?",
            ),
        },
    ),
    Frame(
        "life_game_night",
        {
            "host": "person",
            "weekday": "weekday",
            "who": "person",
            "game1": "game",
            "winner2": "person",
            "game2": "game",
            "loser": "person",
        },
        (
            (
                "On {weekday} there were games at {host:s} house. {who} won at {game1}, {winner2} won at {game2}, "
                "and {loser}, who lost at both, was allowed to finish the cake."
            ),
            (
                "{who} beat everyone at {game1} when {host} had the neighbours in on {weekday}. At {game2}, though, "
                "nobody could touch {winner2}; {loser} won nothing at all."
            ),
            (
                "The neighbours met at {host:s} on {weekday}. {winner2} proved the best at {game2}, while in {game1} "
                "the victory was {who:s}. {loser} came last in both."
            ),
            (
                "{who} had never played {game1} before, yet won it at {host:s} house on {weekday}. {winner2} carried "
                "off {game2} without much trouble, and poor {loser} went home without a single win."
            ),
        ),
        {
            "who": (
                "Who won at {game1}?",
                "Who was the winner of the {game1} at {host:s} house?",
                "By whom were the others beaten at {game1}?",
            ),
            "winner2": (
                "Who won at {game2}?",
                "Who was the best at {game2} in {host:s} house?",
                "Who was the winner of the {game2}?",
            ),
            "loser": (
                "Who won nothing at {host:s} house?",
                "Who had no luck, neither at {game1} nor at {game2}?",
                "Which guest of {host:s} won neither {game1} nor {game2}?",
            ),
            "host": (
                "At whose house did {who} win at {game1}?",
                "Who had {who} and {loser} as guests?",
                "Where, that is at whose house, was {game2} played?",
            ),
            "weekday": (
                "On what day were there games at {host:s} house?",
                "On which day did {who} win at {game1}?",
                "When did {winner2} win at {game2}?",
            ),
            "game1": (
                "At what did {who} win?",
                "Which game was won by {who}?",
                "In which game was {who} better than all the others at {host:s}?",
            ),
            "game2": (
                "Which game did {winner2} win?",
                "At what did {winner2} beat the others?",
                "What was played when {winner2} won?",
            ),
        },
    ),
    Frame(
        "life_rooms",
        {
            "family": "family",
            "who": "person",
            "room1": "room",
            "p2": "person",
            "room2": "room",
            "p3": "person",
            "room3": "room",
        },
        (
            (
                "Before the guests came, the {family} house was turned upside down. {who} scrubbed the {room1}, {p2} "
                "painted the {room2}, and {p3} carried the broken chairs out of the {room3}."
            ),
            (
                "{who} took a bucket and cleaned the {room1}. In the {room2} of the {family} house {p2} was busy "
                "with paint and brush; only the {room3} was still full of broken chairs, and those {p3} took away."
            ),
            (
                "In the {family} house nobody was idle that week: the {room3} was cleared by {p3}, the {room1} "
                "washed by {who}, and the {room2}, which had been dark for years, painted by {p2}."
            ),
            (
                "The {family} family had shared out the work. Cleaning the {room1} was left to {who}, painting the "
                "{room2} to {p2}, and clearing out the {room3} to {p3}, who grumbled."
            ),
        ),
        {
            "who": (
                "Who cleaned the {room1} in the {family} house?",
                "By whom was the {room1} scrubbed?",
                "Who did the washing of the {room1}?",
            ),
            "p2": (
                "Who painted the {room2} of the {family} house?",
                "By whom was the {room2} painted?",
                "Who worked with a brush in the {room2}?",
            ),
            "p3": (
                "Who cleared the {room3}?",
                "By whom was the {room3} of the {family} house emptied of rubbish?",
                "Who carried things out of the {room3}?",
            ),
            "room1": (
                "Which room did {who} clean?",
                "Which room of the {family} house was scrubbed by {who}?",
                "Where in the {family} house did {who} work?",
            ),
            "room2": (
                "Which room was painted by {p2}?",
                "Which room of the {family} house got fresh paint from {p2}?",
                "What did {p2} paint?",
            ),
            "room3": (
                "Which room did {p3} clear?",
                "From which room did {p3} remove things?",
                "Where in the {family} house was {p3} at work?",
            ),
        },
    ),
    Frame(
        "life_auction",
        {
            "thing": "thing",
            "owner": "person",
            "who": "person",
            "top": "price",
            "rival": "person",
            "bid": "price",
            "building": "building",
        },
        (
            (
                "The {thing} that had belonged to {owner} was auctioned in the {building}. {rival} went as far as "
                "{bid} and sat down; {who} said {top}, quite softly, and took it home."
            ),
            (
                "{who} paid {top} for {thing:a} at the auction in the {building}. It had stood in {owner:s} house "
                "for a lifetime, and {rival}, whose last bid was {bid}, had very much hoped to have it."
            ),
            (
                "At the auction in the {building}, {bid} was offered by {rival} and {top} by {who}, so that the "
                "hammer fell for {who}. The {thing}, once {owner:s} pride, left on a handcart."
            ),
            (
                "{rival} would not go beyond {bid}. That is how {owner:s} old {thing} came to {who} for {top}, at an "
                "auction in the {building} to which hardly anybody else had come."
            ),
        ),
        {
            "who": (
                "Who bought the {thing} at the auction?",
                "Who got the {thing} for {top}?",
                "Whose bid of {top} won the {thing} that had been {owner:s}?",
            ),
            "owner": (
                "To whom had the {thing} belonged before the auction?",
                "Whose {thing} did {who} buy?",
                "Who owned the {thing} before {who} did?",
            ),
            "rival": (
                "Who bid for the {thing} but did not get it?",
                "Who was {who:s} rival at the auction?",
                "Who offered {bid} for the {thing}?",
            ),
            "top": (
                "How much did {who} pay for the {thing}?",
                "For what price was {owner:s} {thing} sold?",
                "What was the winning bid of {who}?",
            ),
            "bid": (
                "How much did {rival} offer for the {thing}?",
                "What was {rival:s} last bid?",
                "Up to what sum did {rival} bid at the auction?",
            ),
            "building": (
                "Where was the {thing} auctioned?",
                "Where did {who} buy the {thing}?",
                "In which building did {rival} bid for the {thing}?",
            ),
        },
    ),
    Frame(
        "life_siblings",
        {
            "who": "person",
            "town1": "town",
            "trade1": "trade",
            "other": "person",
            "town2": "town",
            "trade2": "trade",
            "relative": "relative",
        },
        (
            (
                "{who} lives in {town1} and earns a living as {trade1:a}. {who:Their} {relative}, {other}, went the "
                "other way down the valley, to {town2}, and is {trade2:a} there."
            ),
            (
                "There were two of them, and both left home: {other} for {town2}, to work as {trade2:a}, and {who} "
                "for {town1}, where the sign over the door now says that {trade1:a} lives there."
            ),
            (
                "{who} is {trade1:a}, unlike {other}, {who:their} {relative}, who became {trade2:a}. On feast days, "
                "when everyone comes together, one travels from {town1}, that is {who}, and the other from {town2}."
            ),
            (
                "If you want {trade1:a}, ask for {who} in {town1}. In {town2}, where people often confuse the two, "
                "you will find only {other}, who is {trade2:a}."
            ),
        ),
        {
            "town1": (
                "Where does {who} live?",
                "In which town is {who} to be found?",
                "Where does {who} have a home?",
            ),
            "town2": (
                "Where does {other} live?",
                "In which town is {other} to be found?",
                "What town is {other:s} home?",
            ),
            "trade1": (
                "What is {who} by trade?",
                "What does {who} do for a living?",
                "What work does {who} do in {town1}?",
            ),
            "trade2": (
                "What is {other} by trade?",
                "What is {other:s} work in {town2}?",
                "As what does {other} earn a living?",
            ),
            "relative": (
                "What relation is {other} to {who}?",
                "How is {other} related to {who}?",
            ),
            "other": (
                "Who lives in {town2}?",
                "Who works as {trade2:a}?",
                "Which person is {trade2:a} in {town2}?",
            ),
        },
    ),
    Frame(
        "life_new_teacher",
        {
            "school": "school",
            "who": "person",
            "former": "person",
            "other": "person",
            "subject": "subject",
            "year": "year",
            "duration": "duration",
        },
        (
            (
                "{who} has taught {subject} at {school} since {year}. Before that {former} had done so for "
                "{duration}, and it was widely believed that {other}, who had also applied, would follow."
            ),
            (
                "When {former} gave up teaching {subject} at {school}, after {duration}, two people applied. {other} "
                "had the better coat and {who} the better letters; it was {who} who was chosen, in {year}."
            ),
            (
                "In {year} {school} found a new teacher of {subject}. The post, which {former} had held for "
                "{duration}, was given to {who}, much to the surprise of {other}, who had thought it as good as won."
            ),
            (
                "{who}, and not {other}, succeeded {former} as teacher of {subject} at {school}. That was in {year}, "
                "and the old desk, at which {former} had sat for {duration}, was thrown out at once."
            ),
        ),
        {
            "who": (
                "Who became the new teacher of {subject} at {school}?",
                "Who succeeded {former} at {school}?",
                "Who was chosen for the post, and not {other}?",
            ),
            "former": (
                "Whom did {who} follow as a teacher at {school}?",
                "Who taught {subject} at {school} before {who}?",
                "Who was {who:s} predecessor?",
            ),
            "other": (
                "Who hoped in vain for the post that {who} got?",
                "Who applied besides {who}?",
                "Who wanted to teach {subject} at {school} but was not chosen?",
            ),
            "subject": (
                "What does {who} teach at {school}?",
                "Which subject was taught by {former}?",
                "For which subject did {school} need a teacher?",
            ),
            "year": (
                "In what year did {who} get the post at {school}?",
                "Since when has {who} been teaching {subject}?",
                "When did {who} succeed {former}?",
            ),
            "duration": (
                "How long had {former} taught at {school}?",
                "For how long did {former} have the post before {who}?",
                "How long did {former} teach {subject}?",
            ),
        },
    ),
    Frame(
        "life_orders",
        {
            "shop": "person",
            "who": "person",
            "food1": "food",
            "c2": "person",
            "food2": "food",
            "weekday": "weekday",
            "number": "number",
        },
        (
            (
                "{who} had ordered {food1} from {shop}, and {c2} had ordered {food2}. On {weekday}, with {number} "
                "people waiting in the shop, the two parcels were mixed up, so that {c2} went home with the {food1}."
            ),
            (
                "In {shop:s} shop there were {number} customers at once on {weekday}, and that is how it happened. "
                "{c2}, who had asked for {food2}, was handed the {food1} meant for {who}."
            ),
            (
                "{c2} opened the parcel from {shop:s} shop and found the {food1} that {who} had ordered. Nobody had "
                "yet touched the other parcel, the {food2} for {c2}, on the counter where {shop} had been serving "
                "{number} people that {weekday}."
            ),
        ),
        {
            "shop": (
                "In whose shop did {who} order {food1}?",
                "Who keeps the shop where {c2} was a customer?",
                "Who served {number} people on {weekday}?",
            ),
            "food1": (
                "What had {who} ordered?",
                "What did {c2} get by mistake?",
                "What was in the parcel meant for {who}?",
            ),
            "food2": (
                "What had {c2} ordered from {shop}?",
                "What did {c2} really want?",
                "Which food should {c2} have got?",
            ),
            "c2": (
                "Who got the {food1} that was meant for {who}?",
                "Who had asked for {food2}?",
                "To whom was {who:s} order given by mistake?",
            ),
            "who": (
                "Whose {food1} was given to {c2}?",
                "For whom was the {food1} meant?",
                "Who should have got the {food1}?",
            ),
            "weekday": (
                "On what day did {c2} get the wrong parcel?",
                "When were there so many people in {shop:s} shop?",
                "On which day was the order of {who} mixed up?",
            ),
            "number": (
                "How many people were there in {shop:s} shop?",
                "How many customers did {shop} have when {c2} got the wrong parcel?",
                "How many people were in the shop on {weekday}?",
            ),
        },
    ),
)
