"""Frames about scenes in plain words: places, gardens, farms, tools and collections, asked with no key."""

from __future__ import annotations

from train.world.frame import Frame

FRAMES = (
    Frame(
        "place_cafe_canal",
        {"first": "building", "now": "food", "drink": "drink", "year": "year", "trade": "trade", "colour": "colour"},
        (
            "The café by the canal was once {first:a}, and the old hooks still hang from its beams. A retired "
            "{trade} bought it in {year} and painted the shutters {colour}. Most guests come for the {now}, though "
            "regulars swear by the {drink}.",
            "Before it became a café, the low house beside the canal served as {first:a}. Since {year}, when it was "
            "taken over by a retired {trade}, it has been known for its {now}. You will recognise it by the "
            "{colour} shutters; on cold days they pour {drink} at the door.",
            "If you follow the canal you come to a café with {colour} shutters. They serve {drink} there, but what "
            "has made it famous is the {now}. The owner, a former {trade}, found the place empty in {year}; until "
            "then it had been {first:a}.",
        ),
        {
            "first": (
                "What was the café by the canal before?",
                "What used to be in the building where the café is now?",
                "What kind of building was the café before {year}?",
                "What had the café with the {colour} shutters once been?",
            ),
            "now": (
                "What is the café by the canal famous for?",
                "Which dish do most people go to the café for?",
                "What is the café that {trade:a} took over best known for?",
                "Besides {drink}, what can you get at the café by the canal?",
            ),
            "drink": (
                "What can you drink at the canal café?",
                "Which drink does the café serve?",
                "Apart from {now}, what is served at the café?",
                "What is there to drink behind the {colour} shutters?",
            ),
            "year": (
                "When did the café get its owner?",
                "In what year was the house by the canal bought?",
                "In which year did the {trade} take over the house beside the canal?",
                "When did the old {first} by the canal find a new owner?",
            ),
            "trade": (
                "What was the café owner's job before?",
                "What did the owner of the café by the canal use to do for a living?",
                "Who bought the house by the canal in {year}, a retired what?",
                "What was the former trade of the person who bought the {first} by the canal?",
            ),
            "colour": (
                "What colour are the shutters of the café?",
                "In what colour are the shutters painted?",
                "What colour are the shutters of the place that serves {now}?",
                "What is the colour of the shutters on the former {first} by the canal?",
            ),
        },
    ),
    Frame(
        "place_cinema_carpets",
        {"one": "year", "two": "year", "thing": "thing", "garment": "garment", "seats": "number", "song": "song"},
        (
            'After a last showing of "{song}" the cinema in the square closed in {one} and stood empty, '
            "with its {seats} seats under dust sheets. A carpet dealer moved in in {two}. On his first day "
            "he found {thing:a} behind the screen and, in the cloakroom, {garment:a} that nobody had ever "
            "collected.",
            'Carpets are sold today where films were once shown: the last picture, "{song}", ran in the '
            "cinema in {one}, and a carpet dealer has had the hall since {two}. Of the {seats} seats none "
            "remains. Behind the screen the dealer discovered {thing:a}; the cloakroom still held "
            "{garment:a}.",
            "{garment:A} hung forgotten in the cloakroom and {thing:a} stood behind the screen when the "
            "carpet dealer unlocked the old cinema in {two}. Its {seats} seats had been empty ever since "
            '{one}, the year in which the last film, "{song}", was shown.',
        ),
        {
            "one": (
                "When did the cinema close?",
                "In what year was the last film shown in the square?",
                "In which year did the cinema with {seats} seats shut?",
                "When did the old cinema stop showing films, before the carpet dealer came?",
            ),
            "two": (
                "When did the carpet dealer move in?",
                "Since when have carpets been sold in the old cinema?",
                "In which year did the dealer come who found {thing:a}?",
                "In what year was the cinema that closed in {one} taken over by a carpet dealer?",
            ),
            "thing": (
                "What was found behind the screen?",
                "What did the carpet dealer find behind the screen of the old cinema?",
                "What stood behind the screen in {two}?",
                "Besides {garment:a}, what did the dealer come across in the cinema?",
            ),
            "garment": (
                "What had been left in the cloakroom?",
                "Which piece of clothing was never collected from the cloakroom?",
                "What garment did the carpet dealer find in {two}?",
                "Apart from {thing:a}, what had been left behind in the cinema?",
            ),
            "seats": (
                "How many seats did the cinema have?",
                "How many people could the old cinema seat?",
                "How many seats were there in the cinema that closed in {one}?",
                "What was the number of seats in the cinema where {thing:a} was found?",
            ),
            "song": (
                "What was the last film at the cinema called?",
                "What was the title of the last picture shown in the cinema?",
                "Which film was shown last, in {one}?",
                "What is the name of the film after which the cinema with {seats} seats closed?",
            ),
        },
    ),
    Frame(
        "place_fire_station",
        {"trade": "trade", "room": "room", "other": "room", "clock": "clock", "price": "price"},
        (
            "The fire engine left long ago, and now {trade:a} rents the old fire station for {price} a month. The "
            "garage has become a bright {other}, while the room where the hoses used to dry serves as {room:a}. "
            "Visitors may ring the big bell, but only after {clock}.",
            "For {price} a month the town lets its former fire station to {trade:a}. Where hoses once hung to dry "
            "there is now {room:a}; the garage of the fire engine was turned into {other:a}. Neighbours have asked "
            "that the bell should not be rung before {clock}.",
            "Nobody may ring the bell of the old fire station before {clock}. That rule was made when {trade:a} "
            "moved in, at a rent of {price} a month, and made the garage into {other:a} and the place for drying "
            "hoses into {room:a}.",
        ),
        {
            "trade": (
                "Who rents the old fire station now?",
                "Who has moved into the former fire station?",
                "Who pays {price} a month for the fire station?",
                "Who turned the garage into {other:a}?",
            ),
            "room": (
                "What has become of the room where the hoses used to dry?",
                "What is the place for drying hoses used as today?",
                "What did the {trade} make of the room for the hoses?",
                "The garage became {other:a}, but what did the hose room become?",
            ),
            "other": (
                "What was the garage of the fire station turned into?",
                "What is there now where the fire engine stood?",
                "What has the {trade} made out of the garage?",
                "The hose room is now {room:a}; what is the garage?",
            ),
            "clock": (
                "From what time may the bell be rung?",
                "Until when must the bell stay silent?",
                "At what time can visitors of the {trade} begin to ring the bell?",
                "What is the earliest time for ringing the bell of the fire station?",
            ),
            "price": (
                "What is the rent of the old fire station?",
                "How much does the fire station cost a month?",
                "How much does the {trade} pay every month?",
                "What is the monthly rent for the place with the new {room}?",
            ),
        },
    ),
    Frame(
        "place_swimming_baths",
        {
            "early": "clock",
            "late": "clock",
            "day": "weekday",
            "child": "price",
            "adult": "price",
            "month": "month",
            "length": "length",
        },
        (
            "The swimming baths open at {early} and close at {late}, but on {day} they stay shut for cleaning. "
            "Adults pay {adult}, children {child}. The outdoor pool, which is {length} long, is filled only from "
            "{month} on.",
            "From {month} onwards you can also swim in the outdoor pool, all {length} of it. A ticket for the "
            "swimming baths costs {child} for a child and {adult} for a grown-up; the doors are unlocked at {early} "
            "and locked again at {late}. On {day} the cleaners have the place to themselves.",
            "Closed on {day} for cleaning, says the sign at the swimming baths, and under it: open from {early}, "
            "last swimmers out by {late}. The price for adults is {adult}, but only {child} is asked of children. "
            "The outdoor pool measures {length} and is opened in {month}.",
        ),
        {
            "early": (
                "When do the swimming baths open?",
                "What is the opening time of the baths?",
                "At what time can you get into the baths that charge adults {adult}?",
                "From what time can people go in, if the baths shut at {late}?",
            ),
            "late": (
                "When do the swimming baths close?",
                "What is the closing time of the baths?",
                "The baths are open from {early} until when?",
                "At what time must swimmers be out of the baths that are shut on {day}?",
            ),
            "day": (
                "On which day are the swimming baths closed?",
                "When are the baths cleaned?",
                "On which day of the week can you not use the pool of {length}?",
                "On what day are the baths that open at {early} shut?",
            ),
            "child": (
                "What do children pay at the swimming baths?",
                "How much is a swim for a child?",
                "If an adult pays {adult}, what does a child pay?",
                "What is the price for children at the baths that are shut on {day}?",
            ),
            "adult": (
                "What does an adult ticket for the baths cost?",
                "How much do grown-ups pay for a swim?",
                "Children pay {child}; how much do adults pay?",
                "What is the price for adults at the baths that open at {early}?",
            ),
            "month": (
                "In which month does the outdoor pool open?",
                "From what month can you swim outdoors?",
                "From when is the pool of {length} in use?",
                "When does the season in the outdoor pool begin at the baths that are closed on {day}?",
            ),
            "length": (
                "How long is the outdoor pool?",
                "What is the length of the pool in the open air?",
                "How long is the pool that opens in {month}?",
                "What does the outdoor pool of the baths that close on {day} measure?",
            ),
        },
    ),
    Frame(
        "place_toy_museum",
        {
            "road": "road",
            "full": "price",
            "low": "price",
            "day": "weekday",
            "clock": "clock",
            "thing": "thing",
            "floor": "room",
        },
        (
            "The toy museum in {road} shows its oldest piece, {thing:a}, in what was once the {floor}. Tickets are "
            "{full}, or {low} for students. On {day} nobody pays at all, and the museum stays open until {clock}.",
            "Students get into the toy museum for {low} instead of {full}, and on {day}, when the doors do not "
            "close before {clock}, admission is free for all. The house is in {road}. Its oldest treasure, "
            "{thing:a}, is kept in the former {floor}.",
            "To find the oldest piece in the toy museum, {thing:a}, you have to ask the way to the former {floor}. "
            "The museum is in {road}; entry is {full}, students are let in for {low}, and on the free evening, "
            "which is {day}, you may stay until {clock}.",
        ),
        {
            "road": (
                "Where is the toy museum?",
                "In which street does the toy museum stand?",
                "Where can you see {thing:a}?",
                "In what street is the museum that is free on {day}?",
            ),
            "full": (
                "What does an ordinary ticket for the toy museum cost?",
                "How much is the full price at the toy museum?",
                "Students pay {low} at the museum; what do others pay?",
                "What is the normal entrance price of the museum in {road}?",
            ),
            "low": (
                "How much do students pay at the toy museum?",
                "What is the price for students?",
                "Others pay {full}; how much is a student's ticket?",
                "What does a student pay to see {thing:a}?",
            ),
            "day": (
                "On which day is the toy museum free?",
                "When can you visit the toy museum without paying?",
                "On what day does the museum in {road} cost nothing?",
                "On which day of the week is the museum open until {clock}?",
            ),
            "clock": (
                "How late is the museum open on its free day?",
                "Until what time may visitors stay on the free evening?",
                "Until when is the toy museum open on {day}?",
                "At what time does the museum in {road} close on the day when it is free?",
            ),
            "thing": (
                "What is the oldest piece in the toy museum?",
                "Which object is the oldest that the toy museum owns?",
                "What is shown in the former {floor}?",
                "What is the oldest thing in the museum in {road}?",
            ),
            "floor": (
                "In which room is the oldest piece kept?",
                "Which former room holds the oldest toy?",
                "In what used to be which room does the museum show {thing:a}?",
                "Where in the museum in {road} is the oldest piece?",
            ),
        },
    ),
    Frame(
        "place_library_fines",
        {
            "weeks": "duration",
            "film": "duration",
            "fine": "price",
            "number": "number",
            "day": "weekday",
            "clock": "clock",
        },
        (
            "Books may be kept for {weeks}, says the new notice in the library, but films must be back after "
            "{film}. Whoever forgets pays {fine}. No reader may take home more than {number} books at a time, and "
            "the story hour for children has been moved to {day} at {clock}.",
            "The library has changed its rules: {number} books at once is the limit, the loan runs for {weeks}, and "
            "a late book costs {fine}. Films are lent for {film}. The children's story hour will from now on be "
            "held on {day}, beginning at {clock}.",
            "On {day} at {clock} the librarian reads stories to the children; the rest of the time she keeps her "
            "eye on the shelves. A late book costs {fine}. You can borrow up to {number} books for {weeks}, while a "
            "film is lent for no longer than {film}.",
        ),
        {
            "weeks": (
                "How long can you keep a book from the library?",
                "What is the loan period for books?",
                "Films must be returned after {film}, but how long may books be kept?",
                "How long may a reader keep the {number} books?",
            ),
            "film": (
                "For how long are films lent?",
                "How long may you keep a film from the library?",
                "Books can be kept for {weeks}; what about films?",
                "How long is the loan for films at the library that charges {fine} for late books?",
            ),
            "fine": (
                "What does a late book cost?",
                "How much is the fine at the library?",
                "How much do you pay if you keep a book longer than {weeks}?",
                "What must a reader pay who forgets to bring back one of the {number} books?",
            ),
            "number": (
                "How many books can you borrow at once?",
                "What is the largest number of books a reader may take home?",
                "How many books may be taken out for {weeks}?",
                "How many books at a time does the library lend that has its story hour on {day}?",
            ),
            "day": (
                "On which day is the story hour?",
                "When are stories read to the children?",
                "On which day of the week does the story hour start at {clock}?",
                "On what day can children hear stories in the library that lends {number} books at once?",
            ),
            "clock": (
                "At what time does the story hour begin?",
                "What time do the children have to be there for the stories?",
                "When does the story hour on {day} start?",
                "At what time is the reading for children in the library that lends films for {film}?",
            ),
        },
    ),
    Frame(
        "place_bakery_hours",
        {
            "early": "clock",
            "noon": "clock",
            "sunday": "clock",
            "cake": "food",
            "bread": "food",
            "road": "road",
            "price": "price",
        },
        (
            "The bakery in {road} opens at {early} on working days, but on Sundays nobody need come before "
            "{sunday}. Its {bread} is usually gone by {noon}. Regulars order the {cake} for Sundays, at {price} a "
            "portion.",
            "Anyone who wants the {bread} has to be quick, because nothing of it is left after {noon}. The bakery, "
            "which is in {road}, lets its first customers in at {early}, on Sundays at {sunday}; then, and only "
            "then, there is also {cake} for {price}.",
            "On Sundays the bakery in {road} opens at {sunday} and sells {cake}, which costs {price}. During the "
            "week it opens at {early}, and the {bread} that has made it popular is sold out by {noon}.",
        ),
        {
            "early": (
                "When does the bakery open on working days?",
                "What time does the bakery open during the week?",
                "From what time on weekdays can you buy {bread}?",
                "At what time does the bakery in {road} open on a weekday?",
            ),
            "noon": (
                "By what time is the bakery's best bread usually sold out?",
                "Until when must you come so as not to find the favourite sold out?",
                "By when has all the {bread} gone?",
                "Until what time does the bakery in {road} have {bread}?",
            ),
            "sunday": (
                "When does the bakery open on Sundays?",
                "What is the bakery's opening time on a Sunday?",
                "At what time on Sundays can you first buy {cake}?",
                "From what time is the bakery in {road} open on Sundays?",
            ),
            "cake": (
                "What does the bakery sell on Sundays?",
                "What do customers get from the bakery for their Sunday?",
                "What costs {price} at the bakery?",
                "Which speciality does the bakery in {road} have on Sundays?",
            ),
            "bread": (
                "What is sold out first at the bakery?",
                "For what must customers be quick on working days?",
                "What has gone by {noon} in the bakery?",
                "What is sold out early in {road}?",
            ),
            "price": (
                "What does the Sunday speciality of the bakery cost?",
                "How much does one pay for what the bakery sells on Sundays?",
                "How much is the {cake}?",
                "What does the bakery in {road} charge for its Sunday treat?",
            ),
        },
    ),
    Frame(
        "place_post_office_counter",
        {
            "old": "road",
            "new": "road",
            "date": "date",
            "from": "clock",
            "to": "clock",
            "reason": "reason",
            "who": "person",
        },
        (
            "The post office has left {old}, because {reason}, and will open its new counter in {new} on {date}. "
            "Parcels can be handed in from {from} until {to}. {who}, who has sold stamps for half a lifetime, is "
            "moving too.",
            "From {date} letters will be weighed and stamps sold in {new}. The post office had to give up its rooms "
            "in {old} because {reason}; but {who}, whom everybody knows from the stamp window, stays on. The "
            "counter takes parcels between {from} and {to}.",
            "{who} will go on selling stamps, only not in {old}: the post office is moving to {new} because "
            "{reason}. The first day there is {date}. Anyone with a parcel should come after {from} and before "
            "{to}.",
        ),
        {
            "old": (
                "Where was the post office before?",
                "Which street has the post office left?",
                "Where did {who} sell stamps until now?",
                "From which street is the post office moving to {new}?",
            ),
            "new": (
                "Where is the new post office?",
                "Where has the post office moved to?",
                "In which street will the post office open on {date}?",
                "The post office has left {old} for which street?",
            ),
            "date": (
                "When does the new post office open?",
                "On what day will the new counter open?",
                "On which day does the post office begin work in {new}?",
                "From what date will {who} sell stamps in the new rooms?",
            ),
            "from": (
                "From what time can parcels be handed in?",
                "When does the parcel counter begin to take parcels?",
                "From when does the post office in {new} take parcels?",
                "Parcels are taken until {to}, but from what time?",
            ),
            "to": (
                "Until what time does the post office take parcels?",
                "When does the parcel counter stop taking parcels?",
                "Parcels can be handed in from {from} until when?",
                "By what time must a parcel be at the post office in {new}?",
            ),
            "reason": (
                "Why did the post office move?",
                "For what reason did the post office have to leave its old rooms?",
                "Why is the post office no longer in {old}?",
                "Why will {who} be selling stamps at a new place?",
            ),
            "who": (
                "Who sells the stamps?",
                "Who works at the stamp window of the post office?",
                "Whom will customers meet again in {new}?",
                "Who used to sell stamps in {old}?",
            ),
        },
    ),
    Frame(
        "place_toll_bridge",
        {
            "river": "river",
            "horse": "price",
            "foot": "price",
            "year": "year",
            "keeper": "trade",
            "animal": "animal",
            "length": "length",
        },
        (
            "The toll bridge over the {river} is {length} long and was put up in {year}. A rider used to pay "
            "{horse}, someone on foot {foot}. The old toll board still hangs there, with a note in chalk that "
            "{animal:a} crosses free, and the keeper's hut is now lived in by {keeper:a}.",
            "On the toll board of the bridge across the {river} you can still read the old prices: {foot} for a "
            "walker, {horse} for a rider, nothing for {animal:a}. The bridge, {length} in length, dates from "
            "{year}. In the keeper's hut beside it lives {keeper:a}.",
            "{keeper:A} lives in the hut where the toll was once taken. Those who walked over paid {foot} and those "
            "who rode {horse}; {animal:a} went free. The bridge itself, built in {year}, takes the road across the "
            "{river} in {length}.",
        ),
        {
            "river": (
                "Which river does the toll bridge cross?",
                "What is the name of the river under the toll bridge?",
                "Which river is crossed by the toll bridge that was built in {year}?",
                "Over which river goes the toll bridge of {length}?",
            ),
            "horse": (
                "How much was the toll for a rider?",
                "What did people on horseback pay at the bridge?",
                "Walkers paid {foot}, but what did riders pay?",
                "What did a rider have to pay to cross the {river}?",
            ),
            "foot": (
                "What did walkers pay at the toll bridge?",
                "How much was the toll for someone on foot?",
                "Riders paid {horse}; how much did people on foot pay?",
                "How much did it cost to walk over the {river}?",
            ),
            "year": (
                "When was the toll bridge built?",
                "In what year did the toll bridge go up?",
                "In which year was the bridge over the {river} built?",
                "From which year is the bridge of {length}?",
            ),
            "keeper": (
                "Who lives in the keeper's hut now?",
                "What is the trade of the person in the old toll hut?",
                "Who lives beside the bridge over the {river}?",
                "What is the job of the person in the hut at the bridge of {length}?",
            ),
            "animal": (
                "Which animal crossed the toll bridge free?",
                "What animal could be taken over without paying?",
                "For which animal was there no toll at the {river}?",
                "Walkers paid {foot}, but which creature paid nothing?",
            ),
            "length": (
                "How long is the toll bridge?",
                "What is the length of the toll bridge?",
                "How long is the bridge across the {river}?",
                "What is the length of the bridge built in {year}?",
            ),
        },
    ),
    Frame(
        "place_footbridge_closed",
        {
            "start": "date",
            "end": "date",
            "reason": "reason",
            "detour": "duration",
            "means": "means",
            "road": "road",
            "colour": "colour",
        },
        (
            "The footbridge behind the school has been shut since {start} because {reason}, and will not be opened "
            "again before {end}. Pupils who are in a hurry go {means}; the others take the way round by {road}, "
            "which costs them {detour}. When it opens, the railings will be {colour}.",
            "Until {end} there is no crossing by the footbridge behind the school. It was closed on {start}, "
            "because {reason}, and its railings are now being painted {colour}. The detour through {road} takes "
            "{detour}, so that quite a few pupils have begun to come {means}.",
            "More and more pupils come {means} these days, since the way round by {road} takes them {detour}. The "
            "footbridge behind their school was closed on {start}. The cause: {reason}. On {end}, with fresh "
            "{colour} railings, it is to open again.",
        ),
        {
            "start": (
                "When was the footbridge closed?",
                "Since when has the footbridge been shut?",
                "From what date have the pupils had to go by {road}?",
                "When did the detour of {detour} begin?",
            ),
            "end": (
                "When will the footbridge open again?",
                "Until when will the footbridge be shut?",
                "The footbridge was closed on {start}; when will it be opened?",
                "From what date can pupils see the {colour} railings?",
            ),
            "reason": (
                "Why was the footbridge closed?",
                "For what reason can the footbridge not be used?",
                "Why was the footbridge behind the school shut on {start}?",
                "Why do the pupils have to go by {road}?",
            ),
            "detour": (
                "How long does the detour take?",
                "How much time does the way round cost the pupils?",
                "How long is the way by {road}?",
                "How long do pupils who do not come {means} need for the way round?",
            ),
            "means": (
                "How do pupils in a hurry get to school?",
                "By what means do more pupils now reach the school?",
                "How do those come who avoid the detour by {road}?",
                "How do some pupils travel since {start}?",
            ),
            "road": (
                "Which street does the detour follow?",
                "Which road do pupils use instead of the footbridge?",
                "Through what road leads the way round that takes {detour}?",
                "Where do the pupils walk until {end}?",
            ),
            "colour": (
                "What colour will the railings be?",
                "In which colour are the railings of the footbridge painted?",
                "What colour will the railings be on {end}?",
                "What is the new colour of the railings on the bridge that was closed on {start}?",
            ),
        },
    ),
    Frame(
        "place_avenue_limes",
        {
            "one": "town",
            "two": "town",
            "tree": "number",
            "lost": "number",
            "weather": "weather",
            "year": "year",
            "miles": "distance",
        },
        (
            "An avenue of lime trees runs from {one} to {two}, a walk of {miles}. In {year}, when it was planted by "
            "the last duke, it numbered {tree} trees. Then came {weather}, and in one night {lost} of them were "
            "gone.",
            "Of the {tree} lime trees that the duke had planted in {year}, {lost} were lost in a single night of "
            "{weather}. Still the avenue, which begins at {one}, is the finest way to reach {two}, {miles} further "
            "on.",
            "The duke wanted shade, so in {year} he had lime trees set along the road, {tree} of them. It took one "
            "night of {weather} to bring down {lost}. Those who walk the {miles} of the avenue set out from {one} "
            "and rest at {two}.",
        ),
        {
            "one": (
                "Where does the avenue of lime trees begin?",
                "From which town do walkers set out on the avenue?",
                "From where does the avenue lead to {two}?",
                "Which town lies at the start of the {miles} of lime trees?",
            ),
            "two": (
                "Where does the avenue of lime trees end?",
                "To which town does the avenue lead?",
                "If you start in {one}, where does the avenue take you?",
                "Which town lies at the far end of the {miles} of lime trees?",
            ),
            "tree": (
                "How many lime trees were planted?",
                "How many trees did the duke have planted along the road?",
                "How many limes stood there in {year}?",
                "What was the number of lime trees before {lost} were lost?",
            ),
            "lost": (
                "How many of the lime trees were lost?",
                "How many trees came down in one night?",
                "How many of the {tree} limes did the bad night cost?",
                "How many trees were brought down by {weather}?",
            ),
            "weather": (
                "What destroyed some of the lime trees?",
                "What was the weather like on the night when the limes were lost?",
                "What weather cost the avenue {lost} trees?",
                "What kind of weather struck the trees planted in {year}?",
            ),
            "year": (
                "When was the avenue planted?",
                "In what year did the duke plant the lime trees?",
                "When were the {tree} limes set along the road?",
                "In which year was the avenue from {one} laid out?",
            ),
            "miles": (
                "How long is the avenue of lime trees?",
                "How far does the avenue run?",
                "How far is it along the avenue from {one}?",
                "What is the distance to {two} under the limes?",
            ),
        },
    ),
    Frame(
        "place_tunnel",
        {
            "mountain": "mountain",
            "before": "duration",
            "after": "duration",
            "years": "duration",
            "cost": "price",
            "who": "person",
            "trade": "trade",
        },
        (
            "Before the tunnel through {mountain} was cut, carts needed {before} for the pass; now a lorry is "
            "through in {after}. The digging took {years} and cost {cost} for every yard. {who}, {trade:a} by "
            "training, had drawn the first plan on a tablecloth.",
            "The first plan of the tunnel was drawn on a tablecloth by {who}, who had been trained as {trade:a}. "
            "The diggers were inside {mountain} for {years}, and each yard cost {cost}. What took {before} over the "
            "pass takes {after} today.",
            "It is hard to believe that the way over the pass once took {before}, for the tunnel has cut it to "
            "{after}. {who}, who had learned to be {trade:a}, sketched it on a tablecloth; {years} of digging under "
            "{mountain} followed, at {cost} a yard.",
        ),
        {
            "mountain": (
                "Under which mountain does the tunnel run?",
                "What is the name of the mountain that was tunnelled through?",
                "Through what mountain leads the tunnel that {who} planned?",
                "Which mountain did the diggers work in for {years}?",
            ),
            "before": (
                "How long did it take over the pass before the tunnel?",
                "How long did carts need for the old way?",
                "The journey now takes {after}; how long did it take in former days?",
                "How long did it take to get over the pass at {mountain}?",
            ),
            "after": (
                "How long does it take through the tunnel?",
                "How much time does the journey need today, with the tunnel?",
                "The pass took {before}; how long does the tunnel take?",
                "How long does one need today to get past {mountain}?",
            ),
            "years": (
                "How long did it take to dig the tunnel?",
                "For how long were the diggers at work?",
                "How long did the digging under {mountain} go on?",
                "How long did it take to make what {who} had drawn?",
            ),
            "cost": (
                "What did a yard of tunnel cost?",
                "How much was paid for every yard of the tunnel?",
                "How much did each yard under {mountain} cost?",
                "What was the price of a yard of the tunnel that {who} had planned?",
            ),
            "who": (
                "Who drew the first plan of the tunnel?",
                "Who sketched the tunnel on a tablecloth?",
                "Who planned the way through {mountain}?",
                "What is the name of the {trade} who designed the tunnel?",
            ),
            "trade": (
                "What had the planner of the tunnel been trained as?",
                "What was the trade of the person who drew on the tablecloth?",
                "What had {who} learned?",
                "What was the profession of the person who planned the tunnel under {mountain}?",
            ),
        },
    ),
    Frame(
        "place_walled_garden",
        {
            "flower": "flower",
            "second": "flower",
            "crop": "crop",
            "number": "number",
            "material": "material",
            "who": "person",
            "season": "season",
        },
        (
            "Along the south wall of the walled garden {who} has let {flower:a} climb, while {second:a} grows "
            "beside the sundial. The beds in the middle belong to {crop}. There are {number} steps down to the "
            "pond, all cut from {material}, and the garden can be seen in {season}.",
            "{who} opens the walled garden to visitors in {season}. One goes down {number} steps of {material} to "
            "the pond, past the middle beds, which are full of {crop}; by the sundial stands {second:a}, and "
            "against the south wall {flower:a}.",
            "Not the {flower} on the south wall but the {second} next to the sundial is what {who} calls the heart "
            "of the walled garden. The middle beds are given over to {crop}. In {season} visitors may come in and "
            "sit on the {number} steps of {material} that lead to the pond.",
        ),
        {
            "flower": (
                "What grows against the south wall?",
                "Which flower was planted on the south wall of the garden?",
                "The {second} is by the sundial; what is on the south wall?",
                "What flower does {who} have along the south wall?",
            ),
            "second": (
                "What grows beside the sundial?",
                "Which flower stands by the sundial?",
                "What has {who} planted next to the sundial?",
                "The {flower} is on the south wall, but which flower is at the sundial?",
            ),
            "crop": (
                "What is grown in the middle beds?",
                "Which crop takes up the middle of the walled garden?",
                "What does {who} grow in the beds in the middle?",
                "What can be seen in the middle beds in {season}?",
            ),
            "number": (
                "How many steps lead down to the pond?",
                "How many steps are there in the walled garden?",
                "How many steps of {material} are there?",
                "How many steps has the garden that {who} shows to visitors?",
            ),
            "material": (
                "What are the steps to the pond made of?",
                "From what material were the garden steps cut?",
                "What are the {number} steps made of?",
                "What material are the steps in the garden that {who} looks after?",
            ),
            "who": (
                "Who looks after the walled garden?",
                "Who planted the flowers by the sundial and the south wall?",
                "Who opens the walled garden in {season}?",
                "Whose walled garden has {second:a} by the sundial?",
            ),
            "season": (
                "When can the walled garden be visited?",
                "At what time of the year is the walled garden open?",
                "In which season does {who} let visitors in?",
                "When may one sit on the {number} steps of the walled garden?",
            ),
        },
    ),
    Frame(
        "place_hedge_maze",
        {
            "metres": "length",
            "record": "duration",
            "who": "person",
            "slow": "duration",
            "thing": "thing",
            "tool": "tool",
            "number": "number",
        },
        (
            "The hedge maze behind the castle has paths of {metres} altogether and {number} dead ends. Its record "
            "is held by {who}, who reached the middle in {record}; an unlucky bus party once needed {slow}. In the "
            "middle stands {thing:a}, and the head gardener never goes in without {tool:a}.",
            "{thing:A} marks the middle of the hedge maze, and it took {who} just {record} to touch it, which "
            "nobody has beaten. A bus party was lost in there for {slow}. With {number} dead ends on {metres} of "
            "path that is no wonder; even the head gardener, who always carries {tool:a}, has gone wrong.",
            "Count on {number} dead ends when you enter the hedge maze! A bus party wandered up and down its "
            "{metres} of path for {slow} before they found {thing:a}, which stands in the middle. {who} has the "
            "record with {record}. The head gardener goes in every week with {tool:a} and says nothing.",
        ),
        {
            "metres": (
                "How long are the paths of the maze?",
                "What is the total length of the paths between the hedges?",
                "How long are the paths in the maze with {number} dead ends?",
                "What length of path lies around {thing:a}?",
            ),
            "record": (
                "What is the record for the maze?",
                "How long did the fastest visitor need for the maze?",
                "How quickly did {who} get to the middle?",
                "In what time was {thing:a} reached by the fastest visitor?",
            ),
            "who": (
                "Who holds the record for the maze?",
                "Who got to the middle of the maze fastest?",
                "Who needed no more than {record}?",
                "Who was the quickest to reach {thing:a}?",
            ),
            "slow": (
                "How long did the bus party need?",
                "For how long was the bus party lost in the maze?",
                "The record is {record}, but how long did the bus party take?",
                "How long did a party wander about before they came to {thing:a}?",
            ),
            "thing": (
                "What stands in the middle of the maze?",
                "What do visitors find at the centre of the hedges?",
                "What did {who} reach in {record}?",
                "What is at the middle of the maze with {number} dead ends?",
            ),
            "tool": (
                "What does the head gardener carry in the maze?",
                "Which tool does the head gardener take along?",
                "What does the gardener have with him in the maze with {number} dead ends?",
                "With which tool does the gardener go to see {thing:a}?",
            ),
            "number": (
                "How many dead ends are there in the maze?",
                "How many of the paths in the maze lead nowhere?",
                "How many dead ends did {who} have to avoid?",
                "How many dead ends are there around {thing:a}?",
            ),
        },
    ),
    Frame(
        "place_roof_garden",
        {
            "road": "road",
            "top": "crop",
            "box": "crop",
            "guest": "food",
            "price": "price",
            "who": "person",
            "trade": "trade",
        },
        (
            "On the flat roof of the hotel in {road}, {who}, once {trade:a}, grows {top} in old bathtubs and {box} "
            "in wine crates. Guests eat it all the same evening with {guest}. A tour of the roof costs {price}, and "
            "the view is free.",
            "Few guests of the hotel in {road} know that {who} raises {box} in wine crates on its flat roof, along "
            "with bathtubs full of {top}. {who:They} used to be {trade:a}. The kitchen serves the harvest with "
            "{guest}, and for {price} one is shown round the roof.",
            "It was {who}, {trade:a} until last year, who carried the bathtubs for the {top} and the wine crates "
            "for the {box} up to the roof of the hotel in {road}. Showing people round up there brings in {price} a "
            "head; downstairs the harvest is put on the table with {guest}.",
        ),
        {
            "road": (
                "In which street is the hotel with the garden on its roof?",
                "Where can one see vegetables growing on a hotel roof?",
                "In which street does {who} grow things on a roof?",
                "Where is the roof that one can see for {price}?",
            ),
            "top": (
                "What grows in the bathtubs?",
                "What is planted in the old bathtubs on the roof?",
                "What does {who} grow in bathtubs?",
                "The crates are for {box}, but what grows in the bathtubs?",
            ),
            "box": (
                "What grows in the wine crates?",
                "What is planted in the crates on the hotel roof?",
                "What does {who} keep in wine crates?",
                "The bathtubs are for {top}, but what grows in the wine crates?",
            ),
            "guest": (
                "What is the harvest from the roof served with?",
                "What dish do guests eat with the vegetables from the roof?",
                "With what does the hotel in {road} serve its harvest?",
                "What is put on the table together with what {who} grows?",
            ),
            "price": (
                "What does a tour of the roof cost?",
                "How much must one pay to be shown round on the roof?",
                "How much does the tour of the roof in {road} cost?",
                "What does {who} charge for a tour?",
            ),
            "who": (
                "Who grows vegetables on the hotel roof?",
                "Who looks after the bathtubs and the crates?",
                "Who keeps a garden on a roof in {road}?",
                "Who was {trade:a} before growing things in bathtubs?",
            ),
            "trade": (
                "What was the roof gardener's trade before?",
                "What did the person with the bathtubs use to be?",
                "What was {who} before?",
                "What is the former trade of the person who shows guests round for {price}?",
            ),
        },
    ),
    Frame(
        "place_palm_house",
        {
            "panes": "number",
            "year": "year",
            "weather": "weather",
            "plant": "flower",
            "month": "month",
            "tall": "length",
            "who": "person",
        },
        (
            "The panes of the palm house were broken by {weather} in {year}, and {who} saved the rarest plant, a "
            "white {plant}, by carrying it home in a blanket. It took {panes} new panes to close the roof. The "
            "tallest palm inside measures {tall} and flowers in {month}.",
            "In {month} the tallest palm in the palm house comes into flower, {tall} above the heads of the "
            "visitors. That it is still alive is a wonder, for in {year} {weather} broke so much glass that {panes} "
            "new panes were needed. {who} wrapped the rarest plant, a white {plant}, in a blanket and took it home.",
            "Wrapped in a blanket, the rarest plant of the palm house, a white {plant}, was taken home by {who} on "
            "the night in {year} when {weather} smashed the roof. A glazier put in {panes} new panes. The tallest "
            "palm had to stay where it was, being {tall} high; every {month} it flowers.",
        ),
        {
            "panes": (
                "How many new panes did the palm house need?",
                "How many panes were put into the roof?",
                "How many panes had to be replaced in {year}?",
                "How many panes were needed after {weather}?",
            ),
            "year": (
                "When were the panes of the palm house broken?",
                "In what year was the glass of the palm house smashed?",
                "When did {who} carry a plant home?",
                "In what year did {weather} damage the palm house?",
            ),
            "weather": (
                "What broke the panes of the palm house?",
                "What kind of weather damaged the roof?",
                "What smashed the glass in {year}?",
                "Because of what weather were {panes} new panes needed?",
            ),
            "plant": (
                "What was the rarest plant in the palm house?",
                "Which plant was carried home in a blanket?",
                "Which flower did {who} save?",
                "What was rescued from the palm house in {year}?",
            ),
            "month": (
                "When does the tallest palm flower?",
                "In which month can you see the palm in flower?",
                "In what month does the palm of {tall} come into flower?",
                "When does the big palm flower under the {panes} new panes?",
            ),
            "tall": (
                "How high is the tallest palm?",
                "What is the height of the biggest palm?",
                "How tall is the palm that flowers in {month}?",
                "How tall was the palm that {who} had to leave where it was?",
            ),
            "who": (
                "Who saved the rarest plant?",
                "Who wrapped a plant in a blanket?",
                "Who took the white {plant} home?",
                "Who rescued a plant in {year}?",
            ),
        },
    ),
    Frame(
        "place_dairy_farm",
        {
            "cows": "number",
            "goats": "number",
            "herd": "clock",
            "second": "clock",
            "milk": "price",
            "cheese": "price",
            "family": "family",
        },
        (
            "The {family} dairy farm keeps {cows} cows and, up on the slope, {goats} goats. The cows are milked at "
            "{herd}, the goats not before {second}. A can of milk costs {milk} at the gate, a whole cheese "
            "{cheese}.",
            "At {herd}, while it is still quiet, the cows come in for milking on the {family} dairy farm, {cows} of "
            "them; the {goats} goats have their turn at {second}. There is a shelf at the gate with an honesty box: "
            "{cheese} for a cheese, {milk} for a can of milk.",
            "If you leave {cheese} in the honesty box on the {family} dairy farm you may take a cheese, and for "
            "{milk} a can of milk. All of it comes from {goats} goats, which are milked at {second}, and {cows} "
            "cows, which are milked at {herd}.",
        ),
        {
            "cows": (
                "How many cows are there on the dairy farm?",
                "How many cows are milked?",
                "How many cows does the {family} family keep?",
                "How many animals are milked at {herd}?",
            ),
            "goats": (
                "How many goats does the dairy farm have?",
                "What is the number of goats on the dairy farm?",
                "How many goats are milked at {second}?",
                "There are {cows} cows; how many goats are there?",
            ),
            "herd": (
                "When are the cows milked?",
                "What is milking time for the cows?",
                "At what time are the {cows} cows milked?",
                "The goats are milked at {second}; when is it the turn of the cows?",
            ),
            "second": (
                "When are the goats milked?",
                "What is milking time for the goats?",
                "The cows are milked at {herd}; at what time are the goats?",
                "When do the {goats} goats have their turn?",
            ),
            "milk": (
                "How much is a can of milk at the farm gate?",
                "What do you pay for milk at the dairy farm?",
                "A cheese costs {cheese}; what does the milk cost?",
                "What does the {family} family ask for a can of milk?",
            ),
            "cheese": (
                "What does a cheese cost at the dairy farm?",
                "How much money must one leave for a cheese?",
                "Milk costs {milk}; how much is a cheese?",
                "What does the {family} family ask for a cheese?",
            ),
            "family": (
                "Which family runs the dairy farm?",
                "To whom does the dairy farm belong, that is, to which family?",
                "What is the name of the family with {goats} goats?",
                "Which family milks its cows at {herd}?",
            ),
        },
    ),
    Frame(
        "place_pick_your_own",
        {
            "first": "crop",
            "second": "crop",
            "date": "date",
            "end": "month",
            "kilo": "price",
            "lent": "thing",
            "who": "person",
        },
        (
            "Anyone may pick {first} at the fruit farm from {date}; picking {second} comes later and ends in {end}, "
            "when the gates are shut. A full bucket costs {kilo}. {who}, who sits at the gate under an umbrella, "
            "lends every family {lent:a}.",
            "From {date} the fruit farm lets people in to pick {first} for themselves. {who} weighs the buckets at "
            "the gate, takes {kilo} for each full one and lends {lent:a} to those who have come with nothing. Late "
            "in the year there is picking of {second} as well, but in {end} the gates are closed.",
            "The gates of the fruit farm are shut in {end}, so go in time. The season starts on {date} with {first} "
            "and finishes with {second}; whoever picks pays {kilo} for a full bucket, and {who}, at the gate, will "
            "lend you {lent:a}.",
        ),
        {
            "first": (
                "What can be picked first at the fruit farm?",
                "With which crop does the picking begin?",
                "What can people pick from {date}?",
                "What is picked at the fruit farm before {second}?",
            ),
            "second": (
                "What is picked later in the year?",
                "Which crop comes last at the fruit farm?",
                "What can be picked after {first}?",
                "With what does the picking end in {end}?",
            ),
            "date": (
                "When does the picking start?",
                "From what date may people pick fruit for themselves?",
                "From when can one pick {first}?",
                "On what day does {who} open the gate for the first pickers?",
            ),
            "end": (
                "In which month do the gates of the fruit farm shut?",
                "When does the picking end?",
                "In what month is it over with {second}?",
                "In which month does {who} close the gates?",
            ),
            "kilo": (
                "What does a full bucket cost?",
                "How much do pickers pay for a bucket?",
                "How much does {who} take for a full bucket?",
                "What is the price of a bucket in the season that starts on {date}?",
            ),
            "lent": (
                "What can pickers borrow at the gate?",
                "What is lent to families at the fruit farm?",
                "What does {who} lend to people?",
                "What can visitors who pick {first} borrow?",
            ),
            "who": (
                "Who sits at the gate of the fruit farm?",
                "Who lends things to the pickers?",
                "Who is it that lends people {lent:a}?",
                "Who takes {kilo} for a full bucket?",
            ),
        },
    ),
    Frame(
        "place_firewood_animal",
        {
            "carry": "animal",
            "guard": "animal",
            "pull": "animal",
            "town": "town",
            "load": "weight",
            "material": "material",
        },
        (
            "In the hills above {town} firewood is still carried down by {carry:a}, {load} at a time. {guard:A} "
            "keeps watch over the woodpile at night. The sawmill, whose wheel was once turned by {pull:a}, now runs "
            "by electricity and cuts only {material}.",
            "It takes {pull:a} to turn a wheel, people used to say at the sawmill above {town}, before the electric "
            "cable came. Only {material} is sawn there now. What is left over goes down to the village as firewood "
            "on the back of {carry:a}, which bears {load}, and the woodpile is guarded by {guard:a}.",
            "Strangers are chased from the woodpile by {guard:a}. The firewood itself comes down from the hills "
            "above {town} on the back of {carry:a}, never more than {load} in one load. At the sawmill, where they "
            "cut {material}, {pull:a} turned the wheel until the electric cable was laid.",
        ),
        {
            "carry": (
                "Which animal carries the firewood?",
                "On the back of what animal does the firewood come down?",
                "What animal brings firewood to {town}?",
                "Which animal carries loads of {load}?",
            ),
            "guard": (
                "Which animal guards the woodpile?",
                "What animal keeps strangers away from the woodpile?",
                "The firewood is carried by {carry:a}, but what guards it?",
                "What keeps watch over the woodpile above {town}?",
            ),
            "pull": (
                "Which animal used to turn the wheel of the sawmill?",
                "What turned the wheel before there was electricity?",
                "What animal once worked at the sawmill above {town}?",
                "By what was the wheel turned in the mill that now cuts {material}?",
            ),
            "load": (
                "How heavy is one load of firewood?",
                "How much firewood is carried at a time?",
                "How much can the {carry} carry?",
                "What weight of firewood comes down to {town} in one load?",
            ),
            "material": (
                "Which wood does the sawmill cut?",
                "What is sawn at the sawmill today?",
                "What do they cut at the sawmill above {town}?",
                "What does the mill cut where once {pull:a} worked?",
            ),
            "town": (
                "Above which town does the sawmill lie?",
                "Near which town is firewood carried down from the hills?",
                "Above what town does {guard:a} watch over the wood?",
                "Which town lies below the mill that saws {material}?",
            ),
        },
    ),
    Frame(
        "place_farm_barn",
        {
            "built": "year",
            "burnt": "year",
            "crop": "crop",
            "thing": "thing",
            "animal": "animal",
            "cause": "weather",
            "family": "family",
        },
        (
            "The big barn on the {family} farm was built in {built} to hold {crop}. During {cause} in {burnt} it "
            "was struck by lightning and burned; only {thing:a} and a frightened {animal} were brought out in time. "
            "Today it is used for weddings.",
            "Weddings are held today in the big barn of the {family} farm, which was put up in {built}. It was "
            "filled with {crop} to the rafters when, in {burnt}, during {cause}, lightning set it on fire. The "
            "neighbours led out {animal:a} and dragged {thing:a} through the smoke.",
            "In {burnt}, during {cause}, lightning struck the big barn on the {family} farm. The neighbours saved "
            "{thing:a} and, at the last moment, {animal:a}, but all the stored {crop} went up in flames. The walls "
            "of {built} stood firm, and couples now get married between them.",
        ),
        {
            "built": (
                "When was the barn built?",
                "From what year do the walls of the barn date?",
                "In what year did the {family} family get its big barn?",
                "The barn burned in {burnt}; when had it been built?",
            ),
            "burnt": (
                "When did the barn burn?",
                "In what year was the barn struck by lightning?",
                "In which year was the {animal} saved from the barn?",
                "When did the barn on the {family} farm catch fire?",
            ),
            "crop": (
                "What was stored in the barn?",
                "What was the big barn filled with in the old days?",
                "What did the {family} family keep in the big barn?",
                "What was in the barn that was built in {built}?",
            ),
            "thing": (
                "What object was saved from the burning barn?",
                "What did the neighbours get out of the barn besides an animal?",
                "What was brought out of the fire together with the {animal}?",
                "What was saved from the barn in {burnt}?",
            ),
            "animal": (
                "Which animal was saved from the fire?",
                "What animal was brought out of the burning barn?",
                "Which animal was in the barn on the {family} farm?",
                "What animal did the neighbours bring to safety besides {thing:a}?",
            ),
            "family": (
                "Which family owns the barn?",
                "On whose farm did the barn burn, that is, which family's?",
                "Which family had {animal:a} in its barn?",
                "To what family belongs the barn of {built}?",
            ),
        },
    ),
    Frame(
        "place_mill_flour",
        {
            "flour": "crop",
            "other": "crop",
            "stone": "material",
            "weight": "weight",
            "price": "price",
            "day": "weekday",
            "who": "person",
        },
        (
            "On {day} the old windmill grinds, weather permitting. {who}, who runs it, grinds {flour} on the upper "
            "stone and {other} on the lower one. The upper stone is of {stone}, and a sack of flour, which weighs "
            "{weight}, costs {price}.",
            "The lower millstone of the old windmill grinds {other} and the upper one, which was cut from {stone}, "
            "{flour}. {who} sets the sails turning every {day}. Visitors pay {price} for a sack of flour and then "
            "find out that they have {weight} to carry home.",
            "A sack from the old windmill weighs {weight} and costs {price}. {who}, the miller, only works on "
            "{day}; then the upper stone, which is made of {stone}, grinds {flour}, and the lower one {other}.",
        ),
        {
            "flour": (
                "What is ground on the upper stone?",
                "What goes through the upper millstone?",
                "The lower stone grinds {other}; what does the upper one grind?",
                "What does {who} grind on the upper stone?",
            ),
            "other": (
                "What is ground on the lower stone?",
                "What goes through the lower millstone?",
                "The upper stone grinds {flour}; what does the lower one grind?",
                "What does {who} put through the lower stone?",
            ),
            "stone": (
                "What is the upper millstone made of?",
                "From what was the upper stone cut?",
                "Of what material is the stone that grinds {flour}?",
                "What is the upper stone in the mill of {who} made of?",
            ),
            "weight": (
                "How heavy is a sack from the windmill?",
                "What does a sack of flour weigh?",
                "How much does a sack weigh that costs {price}?",
                "What is the weight of a sack filled by {who}?",
            ),
            "price": (
                "What does a sack of flour cost at the windmill?",
                "How much do visitors pay for a sack?",
                "What is the price of the sack that weighs {weight}?",
                "How much does {who} ask for a sack?",
            ),
            "day": (
                "On which day does the windmill grind?",
                "When do the sails turn?",
                "On what day of the week does {who} work?",
                "On which day can one see {flour} being ground?",
            ),
            "who": (
                "Who runs the windmill?",
                "Who is the miller in the old windmill?",
                "Who grinds {flour} on the upper stone?",
                "Who works at the windmill on {day}?",
            ),
        },
    ),
    Frame(
        "place_front_door_colours",
        {
            "door": "colour",
            "frame": "colour",
            "before": "colour",
            "number": "number",
            "road": "road",
            "who": "person",
            "reason": "reason",
        },
        (
            "The front door of number {number} in {road} is {door} and its frame {frame}. Until last summer the "
            "door was {before}, but {who} got out the brush because {reason}. The postman now walks past it.",
            "{who} has painted again. Number {number}, {road}, whose front door had been {before} for as long as "
            "the postman can remember, now has {door:a} one in {frame:a} frame, and all that because {reason}.",
            "Because {reason}, {who} stayed at home and gave the front door in {road} a coat of {door}; the frame "
            "got what was left of the {frame}. Letters for number {number} have gone astray ever since, as the "
            "postman looks for {before:a} door.",
        ),
        {
            "door": (
                "What colour is the front door now?",
                "In which colour was the front door painted?",
                "What colour did {who} give the door?",
                "The door frame is {frame}, but what colour is the door?",
            ),
            "frame": (
                "What colour is the door frame?",
                "In which colour was the frame of the door painted?",
                "What colour did {who} paint the frame?",
                "The front door is {door}; what colour is its frame?",
            ),
            "before": (
                "What colour was the front door before?",
                "What was the old colour of the door?",
                "What colour was the door in {road} until it was painted {door}?",
                "Which colour did the door have before {who} painted it?",
            ),
            "number": (
                "What is the number of the house with the painted door?",
                "Which house number does the postman have trouble with?",
                "At what number in {road} was the door painted?",
                "What is the house number of {who}?",
            ),
            "road": (
                "In which street is the house with the newly painted door?",
                "Where was a front door painted?",
                "In which street does {who} live?",
                "In what street is the {door} door?",
            ),
            "who": (
                "Who painted the front door?",
                "Who confused the postman with fresh paint?",
                "Who painted a door in {road}?",
                "Who turned the {before} door into one of another colour?",
            ),
            "reason": (
                "Why was the front door painted?",
                "What was the reason for painting the door?",
                "Why did {who} get out the brush?",
                "Why is the door in {road} a different colour now?",
            ),
        },
    ),
    Frame(
        "place_staircase",
        {
            "steps": "number",
            "wood": "material",
            "floor": "material",
            "rail": "material",
            "building": "building",
            "who": "person",
            "trade": "trade",
        },
        (
            "The staircase in the {building} has {steps} steps of {wood}, but its handrail is of {rail}. The floor "
            "of the landing was laid in {floor}. When {who}, {trade:a} on the second floor, comes home at night, "
            "everyone hears it.",
            "{who}, {trade:a}, knows which of the {steps} stairs creak: all of them. They are made of {wood}, as "
            "one can hear through every wall of the {building}. Only the landing, which was laid with {floor}, is "
            "quiet, and the handrail of {rail} is cold to the hand.",
            "Cold under the fingers runs the handrail, for it is of {rail}; the stairs, however, are of {wood}, and "
            "the landing in between has a floor of {floor}. There are {steps} steps in the {building}, and {who}, "
            "who works as {trade:a}, climbs them every night.",
        ),
        {
            "steps": (
                "How many steps does the staircase have?",
                "How many stairs are there?",
                "How many stairs does {who} have to climb?",
                "How many steps are there in the {building}?",
            ),
            "wood": (
                "What are the stairs made of?",
                "Of what material are the steps?",
                "The handrail is of {rail}, but what are the steps made of?",
                "What are the {steps} steps made of?",
            ),
            "floor": (
                "What is the floor of the landing made of?",
                "With what was the landing laid?",
                "The steps are of {wood}; what is the landing of?",
                "What material covers the landing in the {building}?",
            ),
            "rail": (
                "What is the handrail made of?",
                "Which material does the hand feel on the stairs?",
                "The steps are of {wood}, but what is the handrail of?",
                "What is the handrail on the way up to {who} made of?",
            ),
            "building": (
                "In what building is the staircase?",
                "What sort of building has the staircase with the cold handrail?",
                "Where does {who} climb the stairs?",
                "Which building has {steps} steps?",
            ),
            "who": (
                "Who comes up the stairs at night?",
                "Who climbs the creaking staircase?",
                "Who lives in the {building}?",
                "What is the name of the {trade} who uses the stairs?",
            ),
            "trade": (
                "What does the person who climbs the stairs at night do for a living?",
                "What is the trade of the one who uses the staircase?",
                "What is {who:s} profession?",
                "What does the lodger in the {building} work as?",
            ),
        },
    ),
    Frame(
        "place_roof_thatch",
        {
            "old": "material",
            "new": "material",
            "price": "price",
            "offer": "price",
            "days": "duration",
            "who": "person",
            "trade": "trade",
        },
        (
            "The roof of the boathouse used to be of {old}; since last autumn it is {new}. The first roofer asked "
            "{offer}, so the rowing club gave the job to {who}, {trade:a} with a long ladder, who did it for "
            "{price}. It took {days}.",
            "{who}, who is really {trade:a}, roofed the boathouse with {new} and was paid {price} by the rowing "
            "club. A proper roofer had wanted {offer} for it. The old roof, which was of {old}, came down in an "
            "hour; the new one took {days}.",
            "When the {old} on the boathouse began to let in the rain, the rowing club asked a roofer, who "
            'named a price of {offer}. "Too much," said the treasurer. So {who}, {trade:a}, put on a roof '
            "of {new} instead; the work lasted {days} and cost {price}.",
        ),
        {
            "old": (
                "What was the old roof of the boathouse made of?",
                "What was the roof that came off made of?",
                "Before {new}, what was on the boathouse?",
                "What was the roof made of before {who} came?",
            ),
            "new": (
                "What is the new roof of the boathouse made of?",
                "What covers the boathouse now?",
                "What did {who} use for the roof?",
                "What replaced the {old} on the boathouse?",
            ),
            "price": (
                "How much did the rowing club pay for the roof?",
                "What did the roof cost in the end?",
                "How much did {who} get for the work?",
                "The roofer asked {offer}; how much was actually paid?",
            ),
            "offer": (
                "How much did the first roofer ask?",
                "Which price was too much for the rowing club?",
                "The club paid {price}; what had the roofer wanted?",
                "What did the roofer ask before {who} got the job?",
            ),
            "days": (
                "How long did the work on the roof take?",
                "How long did it take to put on the new roof?",
                "How long did {who} need?",
                "How long did it take to lay the {new}?",
            ),
            "who": (
                "Who put a new roof on the boathouse?",
                "Who got the job from the rowing club?",
                "Which {trade} roofed the boathouse?",
                "Who did the roof for {price}?",
            ),
            "trade": (
                "What is the trade of the person who made the new roof?",
                "What was the person on the boathouse roof by profession?",
                "What does {who} really do for a living?",
                "What was the trade of the person who got {price} for the roof?",
            ),
        },
    ),
    Frame(
        "place_tiled_fountain",
        {
            "main": "colour",
            "rim": "colour",
            "fish": "number",
            "coin": "price",
            "year": "year",
            "gift": "company",
            "material": "material",
        },
        (
            "The fountain in the park was a present from {gift} and has been running since {year}. Its basin is "
            "tiled in {main}, its rim in {rim}; the spout is of {material}. It is home to {fish} goldfish, and "
            "every spring the coins on the bottom add up to {coin}.",
            "Each spring the gardeners collect about {coin} in coins from the bottom of the park fountain, while "
            "{fish} goldfish look on. The basin has {main} tiles and the rim {rim} ones. {gift} gave it to the town "
            "in {year}, complete with a spout of {material}.",
            "In {year} {gift} made the town a present of the fountain in the park: {main} tiles in the basin, {rim} "
            "tiles on the rim, and a spout made of {material}. Today it is home to {fish} goldfish, and the coins "
            "that people throw in come to {coin} by spring.",
        ),
        {
            "main": (
                "What colour are the tiles in the basin?",
                "In which colour is the basin of the fountain tiled?",
                "The rim is {rim}, but what colour is the basin?",
                "What colour is the basin in which the {fish} goldfish live?",
            ),
            "rim": (
                "What colour is the rim of the fountain?",
                "What colour are the tiles on the rim?",
                "The basin is {main}; what colour is the rim?",
                "What colour did {gift} choose for the rim?",
            ),
            "fish": (
                "How many goldfish live in the fountain?",
                "How many fish are there in the park?",
                "How many goldfish swim over the {main} tiles?",
                "How many goldfish are there in the fountain that {gift} gave?",
            ),
            "coin": (
                "How much money is collected from the fountain?",
                "What do the coins on the bottom add up to?",
                "How much do people throw in beside the {fish} goldfish?",
                "How much money lies each spring in the fountain of {year}?",
            ),
            "year": (
                "When was the fountain given to the town?",
                "Since what year has the fountain been there?",
                "In what year did {gift} give the fountain?",
                "When did the town get the fountain with the spout of {material}?",
            ),
            "gift": (
                "Who gave the fountain to the town?",
                "Which company made a present of the fountain?",
                "Who gave the park something in {year}?",
                "Who paid for the {main} tiles in the park?",
            ),
            "material": (
                "What is the spout of the fountain made of?",
                "Of what material is the spout?",
                "Of what is the spout that {gift} gave?",
                "What is the spout over the {main} basin made of?",
            ),
        },
    ),
    Frame(
        "place_borrowed_tools",
        {
            "one": "tool",
            "two": "tool",
            "own": "tool",
            "who": "person",
            "other": "person",
            "day": "weekday",
            "job": "thing",
        },
        (
            "{who} wanted to repair {job:a} and had nothing but {own:a} in the house. So the {one} was borrowed "
            "from {other} across the landing, and the {two} from the caretaker, who wants it back by {day}.",
            "By {day} the {two} must be back with the caretaker, and {who} has not even begun. {other}, from across "
            "the landing, has lent the {one} as well. The only tool that {who} owns, {own:a}, turned out to be "
            "useless for mending {job:a}.",
            "To mend {job:a} you need more than {own:a}, which was all that {who} had. {other}, who lives across "
            "the landing, came over with the {one}; the caretaker brought the {two} and said he would need it again "
            "on {day}.",
        ),
        {
            "one": (
                "What was borrowed from across the landing?",
                "Which tool did the neighbour across the landing lend?",
                "What did {other} lend?",
                "The caretaker lent the {two}; what did the neighbour lend?",
            ),
            "two": (
                "What did the caretaker lend?",
                "Which tool must be given back to the caretaker?",
                "What has to be back by {day}?",
                "The neighbour lent the {one}, but what came from the caretaker?",
            ),
            "own": (
                "Which tool was in the house already?",
                "What was the only tool at hand before any were borrowed?",
                "What tool does {who} own?",
                "What proved not enough for mending {job:a}?",
            ),
            "who": (
                "Who had to borrow tools?",
                "Who went to the caretaker for help with a repair?",
                "Who wanted to mend {job:a}?",
                "To whom did {other} lend a tool?",
            ),
            "other": (
                "Which neighbour lent a tool?",
                "Who lives across the landing?",
                "From whom was the {one} borrowed?",
                "Which neighbour helped {who} out?",
            ),
            "day": (
                "When does the caretaker want his tool back?",
                "By what day must the caretaker's tool be returned?",
                "When does the caretaker need the {two}?",
                "By when must {who} give the caretaker his tool?",
            ),
            "job": (
                "What was to be repaired with the borrowed tools?",
                "What needed mending?",
                "What did {who} want to repair?",
                "For mending what was the {one} borrowed?",
            ),
        },
    ),
    Frame(
        "place_village_pump",
        {
            "deep": "length",
            "water": "number",
            "minutes": "duration",
            "part": "material",
            "tool": "tool",
            "who": "person",
            "animal": "animal",
        },
        (
            "The village pump brings up water from {deep} below the square. Twelve strokes used to fill a bucket, "
            "but lately it took {water}, until {who} opened it with {tool:a} and found {animal:a} sitting in the "
            "pipe. A new valve of {part} was in place after {minutes}.",
            "It was {animal:a} that had blocked the village pump, so that you needed {water} strokes for a bucket "
            "instead of twelve. {who} took it apart with {tool:a}, put in a valve of {part} and had water again, "
            "from {deep} down, within {minutes}.",
            "{who} needed no more than {minutes} and {tool:a} to set the village pump right. In the pipe, which "
            "goes down {deep}, sat {animal:a}; that was why each bucket took {water} strokes and not twelve as "
            "before. The valve was changed too, and is now of {part}.",
        ),
        {
            "deep": (
                "From what depth does the village pump bring up water?",
                "How deep does the pipe of the pump go?",
                "How deep is the pump that {who} repaired?",
                "How far down goes the pipe in which {animal:a} was found?",
            ),
            "water": (
                "How many strokes did a bucket take while the pump was blocked?",
                "How many strokes were needed instead of twelve?",
                "How many strokes did one need before {who} came?",
                "How many strokes did it take because of the {animal}?",
            ),
            "minutes": (
                "How long did the repair of the pump take?",
                "How soon was the pump working again?",
                "How long did {who} need for the pump?",
                "How long did it take to open the pump with {tool:a} and change the valve?",
            ),
            "part": (
                "What is the new valve made of?",
                "Of what material is the valve of the pump?",
                "What is the valve made of that {who} put in?",
                "What was the valve made of that was fitted after the {animal} was found?",
            ),
            "tool": (
                "With what was the pump opened?",
                "Which tool was used to take the pump apart?",
                "What tool did {who} use?",
                "With what was the pump opened in which {animal:a} sat?",
            ),
            "who": (
                "Who repaired the village pump?",
                "Who found an animal in the pipe?",
                "Who took the pump apart with {tool:a}?",
                "Who discovered {animal:a} in the pump?",
            ),
            "animal": (
                "What was found in the pipe of the pump?",
                "Which animal had blocked the pump?",
                "Which animal did {who} find?",
                "What sat in the pipe, {deep} deep?",
            ),
        },
    ),
    Frame(
        "place_printing_press",
        {
            "year": "year",
            "weight": "weight",
            "day": "weekday",
            "paper": "colour",
            "ink": "colour",
            "who": "person",
            "lost": "tool",
        },
        (
            "The printing press in the cellar of the newspaper was made in {year} and weighs {weight}. It runs only "
            "on {day}, when {who} prints the wedding cards: {ink} ink on {paper} paper. Somewhere in its works "
            "there is still {lost:a} that was dropped there long ago.",
            "Wedding cards are printed every {day} in the cellar of the newspaper, in {ink} ink and on {paper} "
            "paper, by {who}. The press dates from {year}. Nobody has ever tried to move it, since it weighs "
            "{weight}, nor to get out the {lost} that fell into its works.",
            "{lost:A} once fell into the works of the old printing press and has never been seen again; at {weight} "
            "the machine could not be turned over. {who} uses it on {day} for wedding cards, with {paper} paper and "
            "{ink} ink, and is proud that it has not stopped since {year}, the year it was built.",
        ),
        {
            "year": (
                "When was the printing press made?",
                "In what year was the press built?",
                "From which year is the press of {weight}?",
                "In what year was the press built that {who} works with?",
            ),
            "weight": (
                "How heavy is the printing press?",
                "What does the press in the cellar weigh?",
                "What is the weight of the press from {year}?",
                "How heavy is the machine that {who} uses?",
            ),
            "day": (
                "On which day are the wedding cards printed?",
                "When does the old press run?",
                "On which day of the week does {who} print?",
                "On what day does the press of {year} run?",
            ),
            "paper": (
                "What colour is the paper of the wedding cards?",
                "On what colour of paper are the cards printed?",
                "The ink is {ink}; what colour is the paper?",
                "Which colour of paper does {who} use?",
            ),
            "ink": (
                "What colour is the ink?",
                "In which colour are the wedding cards printed?",
                "The paper is {paper}; in what colour is the ink?",
                "What colour of ink does {who} use for the cards?",
            ),
            "who": (
                "Who prints the wedding cards?",
                "Who works the old printing press?",
                "Who prints in the cellar on {day}?",
                "Who uses the press that was built in {year}?",
            ),
            "lost": (
                "Which tool fell into the printing press?",
                "What was dropped into the works of the press?",
                "What was lost in the machine of {year}?",
                "What lies in the works of the press that {who} uses?",
            ),
        },
    ),
    Frame(
        "place_threshing_machine",
        {
            "rent": "price",
            "days": "duration",
            "crop": "crop",
            "arm": "relative",
            "who": "person",
            "fuel": "means",
            "month": "month",
        },
        (
            "The threshing machine came {fuel} in {month} and stayed for {days}. The village paid {rent} to hire "
            "it. {who} fed it with {crop} from dawn to dusk, and {who:their} {arm} tied the sacks.",
            "For {days} nothing was heard in the village but the threshing machine, which had been hired for {rent} "
            "and brought there {fuel}. That was in {month}. The {crop} went in at the top, thrown by {who}, and at "
            "the bottom stood {who:their} {arm}, tying up sacks.",
            "In {month} the village hired a threshing machine; it cost {rent} and arrived {fuel}. {who} stood on "
            "top and threw in the {crop}, while the sacks were tied by {who:their} {arm}. When they had finished, "
            "after {days}, nobody could hear a word.",
        ),
        {
            "rent": (
                "What did it cost to hire the threshing machine?",
                "How much did the village pay for the machine?",
                "How much was paid for {days} of threshing?",
                "What was the hire of the machine that {who} fed?",
            ),
            "days": (
                "How long did the threshing last?",
                "For how long did the village have the threshing machine?",
                "How long did it take to thresh the {crop}?",
                "How long could the village keep the machine that cost {rent}?",
            ),
            "crop": (
                "What was threshed?",
                "What was thrown into the machine?",
                "What did {who} throw into the machine?",
                "What crop was threshed in {month}?",
            ),
            "arm": (
                "Who tied the sacks?",
                "Which relative tied up the sacks?",
                "Who in the family of {who} tied the sacks?",
                "Which relation of {who} worked at the bottom of the machine?",
            ),
            "who": (
                "Who fed the threshing machine?",
                "Who stood at the top of the machine?",
                "Who threw the {crop} into the machine?",
                "Who worked on the machine in {month}?",
            ),
            "fuel": (
                "How did the threshing machine reach the village?",
                "By what means was the machine brought?",
                "How did the machine that was hired for {rent} arrive?",
                "How was the machine that threshed the {crop} brought there?",
            ),
            "month": (
                "In which month was the threshing done?",
                "When did the machine come to the village?",
                "In what month did {who} feed the machine?",
                "In which month was the {crop} threshed?",
            ),
        },
    ),
    Frame(
        "place_reading_circle",
        {
            "now": "book",
            "before": "book",
            "next": "book",
            "day": "weekday",
            "clock": "clock",
            "who": "person",
            "food": "food",
        },
        (
            "The reading circle meets on {day} at {clock} above the chemist's shop. They have just finished "
            '"{before}" and are in the middle of "{now}", after which comes "{next}". {who} never has time '
            "to read but always brings {food}.",
            '"{next}" is what the reading circle will turn to when it is through with "{now}", the novel it '
            'is reading at present; "{before}" has been laid aside. The members climb the stairs above the '
            "chemist's shop every {day} at {clock}, and {who} provides the {food}.",
            "Thanks to {who} there is always {food} when the reading circle gathers above the chemist's "
            'shop, on {day} at {clock}. Its members are now arguing about "{now}". They liked "{before}", '
            'which they finished last month, and have great hopes of the one to follow, "{next}".',
        ),
        {
            "now": (
                "Which book is the reading circle reading at present?",
                "What is the title of the novel the members are in the middle of?",
                'After "{before}", what did the reading circle begin to read?',
                "What are they reading while {who} brings the food?",
            ),
            "before": (
                "Which book has the reading circle just finished?",
                "What did the members read last?",
                'What did the reading circle read before "{now}"?',
                'Which novel had the circle finished before it thought of "{next}"?',
            ),
            "next": (
                "Which book will the reading circle read next?",
                "What comes after the present novel?",
                'What will be read after "{now}"?',
                "What is to be the next book of the circle that {who} belongs to?",
            ),
            "day": (
                "On which day does the reading circle meet?",
                "When do the readers gather above the chemist's shop?",
                "On which day does {who} bring food to the readers?",
                'On which day of the week do they talk about "{now}"?',
            ),
            "clock": (
                "At what time does the reading circle meet?",
                "When do the readers climb the stairs above the chemist's shop?",
                "At what time on {day} does the reading circle gather?",
                "What time must {who} be there with the food?",
            ),
            "who": (
                "Who brings food to the reading circle?",
                "Who provides something to eat for the readers?",
                "Who brings the {food}?",
                "Who comes with something to eat on {day}?",
            ),
            "food": (
                "What is there to eat at the reading circle?",
                "What do the readers eat?",
                "What does {who} bring?",
                "What do the members eat on {day}?",
            ),
        },
    ),
    Frame(
        "place_cookery_book",
        {
            "book": "book",
            "pages": "number",
            "dish": "food",
            "wrong": "food",
            "who": "person",
            "relative": "relative",
            "price": "price",
        },
        (
            'The cookery book "{book}" has {pages} pages and costs {price}. {who}, who wrote it, dedicated '
            "it to {who:their} {relative}, from whom the recipe for {dish} came. Unfortunately the cover "
            "shows {wrong}, which is nowhere in the book.",
            'On the cover of "{book}" you see {wrong}, but a recipe for that you will look for in vain in '
            "its {pages} pages. {who:s} cookery book, which is sold at {price}, opens with {dish}, the way "
            "the {relative} to whom it is dedicated used to make it.",
            '{who} learned to make {dish} from {who:their} {relative}; no wonder that "{book}" is dedicated '
            "to that first teacher. The cookery book runs to {pages} pages at a price of {price}. Only the "
            "cover is a mistake: it shows {wrong}.",
        ),
        {
            "book": (
                "What is the title of the cookery book?",
                "What is the cookery book called?",
                "What is the title of the book that {who} wrote?",
                "Which book has a recipe for {dish}?",
            ),
            "pages": (
                "How many pages does the cookery book have?",
                "How long is the cookery book, in pages?",
                'How many pages are there in "{book}"?',
                "How many pages did {who} fill with recipes?",
            ),
            "dish": (
                "Which recipe came from the person to whom the cookery book is dedicated?",
                "For which dish is there a family recipe in the book?",
                "What did the {relative} know how to make?",
                'Whatever the cover shows, what dish is really in "{book}"?',
            ),
            "wrong": (
                "What does the cover of the cookery book show?",
                "Which dish is on the cover by mistake?",
                'What is to be seen on the cover of "{book}"?',
                "There is {dish} in the book, but what is on its cover?",
            ),
            "who": (
                "Who wrote the cookery book?",
                "Who is the author of the cookery book?",
                'Who wrote "{book}"?',
                "Whose cookery book costs {price}?",
            ),
            "relative": (
                "To whom is the cookery book dedicated?",
                "Which relation does the cookery book honour?",
                "To whom did {who} dedicate the book?",
                "From whom did the author learn to make {dish}?",
            ),
            "price": (
                "What does the cookery book cost?",
                "How much must one pay for the cookery book?",
                'How much is "{book}"?',
                "What is the price of the cookery book by {who}?",
            ),
        },
    ),
    Frame(
        "place_lost_atlas",
        {
            "year": "year",
            "price": "price",
            "paid": "price",
            "who": "person",
            "seller": "trade",
            "room": "room",
            "thing": "thing",
        },
        (
            "The atlas that disappeared from the town library in {year} has turned up. {who} bought it from "
            "{seller:a} for {paid} and kept it in the {room} under {thing:a}, without any idea that it is worth "
            "{price}.",
            "Under {thing:a} in the {room}: that was where {who} kept the big old atlas, for which {seller:a} had "
            "asked {paid}. An expert has now valued it at {price}, and also found the stamp of the town library, "
            "from which it vanished in {year}.",
            "Worth {price}, an expert says, is the atlas that {who} carried into the town library last week. "
            "{who:They} had paid {paid} for it, to {seller:a}, and pressed flowers with it, {thing:a} on top, in "
            "the {room}. It had been missing since {year}.",
        ),
        {
            "year": (
                "When did the atlas disappear?",
                "Since what year had the atlas been missing from the library?",
                "In what year did the library lose the atlas that {who} bought?",
                "When did the atlas worth {price} vanish?",
            ),
            "price": (
                "What is the atlas worth?",
                "At what value do experts put the atlas?",
                "The buyer paid {paid}; how much is the atlas worth?",
                "What is the value of the book that {who} had at home?",
            ),
            "paid": (
                "How much was paid for the atlas?",
                "What did the atlas cost the buyer?",
                "The atlas is worth {price}, but what was given for it?",
                "What did {who} pay for the atlas?",
            ),
            "who": (
                "Who bought the lost atlas?",
                "Who had the library's atlas at home?",
                "Who paid {paid} for the atlas?",
                "Who kept an atlas in the {room}?",
            ),
            "seller": (
                "From whom was the atlas bought?",
                "Who sold the atlas?",
                "What was the trade of the person who sold {who} the atlas?",
                "To whom were {paid} paid for the atlas?",
            ),
            "room": (
                "In which room was the atlas kept?",
                "Where in the house was the atlas?",
                "In which room did {who} keep the atlas?",
                "Where in the house did {thing:a} lie on top of the atlas?",
            ),
            "thing": (
                "What lay on top of the atlas?",
                "Under what was the atlas kept?",
                "What did {who} put on the atlas?",
                "What was on the atlas in the {room}?",
            ),
        },
    ),
    Frame(
        "place_choir_songs",
        {
            "first": "song",
            "last": "song",
            "encore": "song",
            "solo": "person",
            "trade": "trade",
            "cause": "feeling",
            "instrument": "instrument",
        },
        (
            'The fishermen\'s choir began with "{first}" and ended with "{last}", in which {solo}, by day '
            '{trade:a}, sang the solo. The people would not leave, so the choir gave them "{encore}" as an '
            "encore, and {instrument:a} joined in. It made everyone {cause}.",
            'Everyone went home {cause}, because of the encore: "{encore}", sung by the fishermen\'s choir '
            'to the sound of {instrument:a}. The evening had opened with "{first}". {solo}, who works as '
            '{trade:a}, had the solo in the closing piece, "{last}".',
            'With "{last}" the concert of the fishermen\'s choir should have been over; {solo}, otherwise '
            "{trade:a}, had just sung the solo in it. But {instrument:a} struck up, and the choir sang "
            '"{encore}" as an encore. Compared with "{first}", which had opened the evening, it made the '
            "listeners quite {cause}.",
        ),
        {
            "first": (
                "What did the fishermen's choir sing first?",
                "With which song did the concert of the choir open?",
                '"{last}" ended the concert; which song began it?',
                "With what did the evening open on which {solo} sang a solo?",
            ),
            "last": (
                "Which song came at the end of the programme, before the encore?",
                "In which song was there a solo?",
                "In which song did {solo} sing the solo?",
                'The choir began with "{first}"; with what did the programme end?',
            ),
            "encore": (
                "What did the choir sing as an encore?",
                "Which song was the encore?",
                'After "{last}", what did the choir add?',
                "Which song did the choir sing with the {instrument}?",
            ),
            "solo": (
                "Who sang the solo?",
                "Who sang alone in the fishermen's choir?",
                'Who was the soloist in "{last}"?',
                "What is the name of the {trade} who sang the solo?",
            ),
            "trade": (
                "What is the soloist by day?",
                "What is the trade of the one who sang the solo?",
                "What does {solo} do for a living?",
                'What is the job of the person who sang alone in "{last}"?',
            ),
            "cause": (
                "How did the listeners feel after the encore?",
                "What did the encore make people feel?",
                'How did people feel after "{encore}"?',
                "How did people feel when the {instrument} had been heard?",
            ),
            "instrument": (
                "Which instrument joined in the encore?",
                "What was played for the choir's encore?",
                'Which instrument was heard with "{encore}"?',
                "What was played after {solo} had sung?",
            ),
        },
    ),
    Frame(
        "place_lullaby",
        {
            "song": "song",
            "language": "language",
            "singer": "relative",
            "learner": "person",
            "island": "island",
            "year": "year",
            "bars": "number",
        },
        (
            '{learner} heard the lullaby "{song}" every night from {learner:their} {singer}, who sang it in '
            "{language}. It comes from {island}. A collector wrote it down there in {year}, but only {bars} "
            "verses, while the old people knew more.",
            '"{song}", the lullaby with which {learner:s} {singer} used to sing the children to sleep, is '
            "sung in {language}. Of its many verses {bars} were written down when a collector landed on "
            "{island} in {year}.",
            "In {year} a collector of songs went ashore on {island} and took down {bars} verses of a "
            'lullaby, "{song}". The words are {language}. {learner} had no need of the book; '
            "{learner:their} {singer} had sung it every evening.",
        ),
        {
            "song": (
                "What is the lullaby called?",
                "What is the title of the lullaby?",
                "Which lullaby comes from {island}?",
                "Which song did {learner} hear in the evening as a child?",
            ),
            "language": (
                "In which language is the lullaby sung?",
                "What language are the words of the lullaby in?",
                'In what language is "{song}"?',
                "In which language did {learner} hear a lullaby?",
            ),
            "singer": (
                "Who used to sing the lullaby?",
                "Which relative sang the lullaby in the evening?",
                "Who sang for {learner}?",
                'Who sang "{song}" to the children of the house?',
            ),
            "learner": (
                "Who was sung to sleep with the lullaby?",
                "Who heard the lullaby as a child?",
                "Whose {singer} sang the lullaby?",
                'Who learned "{song}" at home?',
            ),
            "island": (
                "From which island does the lullaby come?",
                "Where was the lullaby written down?",
                'From what island does "{song}" come?',
                "Where did the collector land in {year}?",
            ),
            "year": (
                "When was the lullaby written down?",
                "In what year did the collector hear the lullaby?",
                "When did a collector visit {island}?",
                'In which year was "{song}" taken down?',
            ),
            "bars": (
                "How many verses were written down?",
                "How many verses did the collector take down?",
                "How many verses were recorded in {year}?",
                'How many verses of "{song}" were written down?',
            ),
        },
    ),
    Frame(
        "place_wedding_clothes",
        {
            "bride": "garment",
            "groom": "garment",
            "captain": "garment",
            "colour": "colour",
            "who": "person",
            "cost": "price",
            "food": "food",
        },
        (
            "At the wedding on the ferry the bride wore {bride:a} that the theatre had lent her, and the groom came "
            "in his grandfather's {groom}. {who}, the captain, who married them, had put on {captain:a}. The flags "
            "were {colour}, there was {food} for everyone, and the whole day cost {cost}.",
            "The bride's {bride} was on loan from the theatre and the groom's {groom} had belonged to his "
            "grandfather, so the wedding on the ferry, {food} included, cost no more than {cost}. {who}, who as "
            "captain married the two under {colour} flags, appeared in {captain:a}.",
            "Nobody had told {who}, the captain, what to wear, so the couple were married on the ferry by someone "
            "in {captain:a}, under flags of {colour}. The bride had borrowed {bride:a} from the theatre; {groom:a} "
            "that had been his grandfather's was good enough for the groom. With {food} for all the guests, the "
            "bill came to {cost}.",
        ),
        {
            "bride": (
                "What did the bride wear?",
                "What had the bride borrowed from the theatre?",
                "The groom wore {groom:a}; what did the bride wear?",
                "Which garment did the theatre lend for the day that cost {cost}?",
            ),
            "groom": (
                "What did the groom wear at the wedding?",
                "Which garment had belonged to the groom's grandfather?",
                "The bride wore {bride:a}; what did the groom have on?",
                "What old garment did the groom wear under the {colour} flags?",
            ),
            "captain": (
                "What did the captain wear?",
                "In what garment did the captain marry the couple?",
                "The bride came in {bride:a}, but what did the captain put on?",
                "What did {who} wear on the ferry?",
            ),
            "colour": (
                "What colour were the flags on the ferry?",
                "In which colour was the ferry decked out with flags?",
                "What colour were the flags when {who} married the couple?",
                "What was the colour of the flags at the wedding that cost {cost}?",
            ),
            "who": (
                "Who married the couple on the ferry?",
                "Who was captain of the ferry?",
                "Who appeared at the wedding in {captain:a}?",
                "Who married two people under {colour} flags?",
            ),
            "cost": (
                "What did the wedding on the ferry cost?",
                "How much was spent on the wedding?",
                "How much did the wedding cost at which {who} wore {captain:a}?",
                "What did the wedding with the {colour} flags cost?",
            ),
            "food": (
                "What was there to eat at the wedding?",
                "What did the wedding guests eat on the ferry?",
                "What did people eat under the {colour} flags?",
                "What was eaten at the wedding that cost {cost}?",
            ),
        },
    ),
    Frame(
        "place_school_uniform",
        {
            "old": "colour",
            "new": "colour",
            "tie": "garment",
            "gone": "garment",
            "school": "school",
            "date": "date",
            "price": "price",
        },
        (
            "From {date} pupils of {school} will wear {new} instead of {old}. The {gone}, which everybody hated, "
            "has been dropped from the uniform; in its place there is {tie:a} with the school badge. A full set of "
            "clothes comes to {price}.",
            "The new uniform of {school} includes {tie:a} with the school badge, but no longer, to general relief, "
            "{gone:a}. It is {new}, while the old one was {old}. Parents must have found {price} for the set by "
            "{date}, the first day on which it is worn.",
            "{price} is what parents will spend on the new uniform, which is to be worn at {school} from {date} on. "
            "Gone is the {old}, and gone too the unloved {gone}; everything will be {new}, and the badge of the "
            "school goes on {tie:a}.",
        ),
        {
            "old": (
                "What colour was the old uniform?",
                "In which colour did the pupils go before?",
                "The new uniform is {new}; what colour was the old one?",
                "What colour was worn at {school} in the past?",
            ),
            "new": (
                "What colour is the new uniform?",
                "In which colour will the pupils be dressed?",
                "The old uniform was {old}; what colour is the new one?",
                "Which colour will be worn at {school} in future?",
            ),
            "tie": (
                "What carries the badge in the new uniform?",
                "On which garment is the school badge?",
                "The {gone} was dropped, but what was added to the uniform?",
                "On which piece of clothing do pupils of {school} wear the badge?",
            ),
            "gone": (
                "Which garment was dropped from the uniform?",
                "What need the pupils no longer wear?",
                "The uniform now has {tie:a}; which garment does it no longer have?",
                "What did the pupils of {school} hate to wear?",
            ),
            "school": (
                "Which school has a new uniform?",
                "At which school do the uniforms change?",
                "Where will the pupils wear {new}?",
                "At which school is the new uniform worn from {date}?",
            ),
            "date": (
                "From what date is the new uniform worn?",
                "When do the pupils first wear the new uniform?",
                "When does {school} change its uniform?",
                "From when on will the pupils go in {new}?",
            ),
            "price": (
                "What does the new uniform cost?",
                "How much do parents have to pay for the uniform?",
                "How much is the uniform of {school}?",
                "What is the price of the {new} uniform?",
            ),
        },
    ),
    Frame(
        "place_scarecrow",
        {
            "hat": "garment",
            "coat": "garment",
            "crop": "crop",
            "bird": "animal",
            "nest": "animal",
            "who": "person",
            "stick": "tool",
        },
        (
            "The scarecrow that {who} set up among the {crop} wears {hat:a} on its head of straw, {coat:a} over its "
            "shoulders, and has {stick:a} in its hand. The {bird} for which it was meant is not in the least "
            "afraid, and in one of its pockets lives {nest:a}.",
            "{who} has dressed the scarecrow as well as a bridegroom: {coat:a} for the body, {hat:a} for the straw "
            "head, {stick:a} to shake. It stands in a field of {crop}. It was to frighten away {bird:a} that came "
            "every morning, but all it has done is to give a home, in its pocket, to {nest:a}.",
            "In the pocket of the scarecrow {nest:a} has made its home. {who}, who put it up to drive {bird:a} out "
            "of the {crop}, does not mind. On top, over the straw, the figure has {hat:a}, its body is covered by "
            "{coat:a}, and it threatens everyone with {stick:a}.",
        ),
        {
            "hat": (
                "What does the scarecrow wear on its head?",
                "What covers the straw head?",
                "The body of the scarecrow is covered by {coat:a}; what has it on its head?",
                "What did {who} put on the scarecrow's head?",
            ),
            "coat": (
                "What does the scarecrow wear on its body?",
                "Which garment covers the scarecrow's body?",
                "On the head is {hat:a}, but what is the scarecrow's body dressed in?",
                "What garment did {who} hang on the body of the scarecrow?",
            ),
            "crop": (
                "In what field does the scarecrow stand?",
                "Which crop does the scarecrow guard?",
                "Which crop did {who} want to protect?",
                "What crop was the {bird} to be driven from?",
            ),
            "bird": (
                "Which animal was the scarecrow to frighten away?",
                "Against which animal was the scarecrow put up?",
                "What animal did {who} want to keep away?",
                "What creature came to the field of {crop} and was to be scared off?",
            ),
            "nest": (
                "What lives in the scarecrow's pocket?",
                "Which animal has found a home in the pocket?",
                "The scarecrow was put up against {bird:a}; which animal lives in it?",
                "What lives in the pocket of the figure that {who} put up?",
            ),
            "who": (
                "Who put up the scarecrow?",
                "Who made the scarecrow?",
                "Who dressed the scarecrow in {coat:a}?",
                "Who set something up to protect the {crop}?",
            ),
            "stick": (
                "What does the scarecrow hold in its hand?",
                "With what does the scarecrow threaten people?",
                "Which tool did {who} give the scarecrow?",
                "What is in the hand of the scarecrow that guards the {crop}?",
            ),
        },
    ),
    Frame(
        "place_teapot_collection",
        {
            "all": "number",
            "first": "price",
            "dear": "price",
            "dearest": "material",
            "shape": "animal",
            "who": "person",
            "room": "room",
            "year": "year",
        },
        (
            "{who} owns {all} teapots, and they fill the {room} from floor to ceiling. The first, shaped like "
            "{shape:a}, was bought at a jumble sale in {year} for {first}. The dearest is of {dearest}; for that a "
            "dealer was given {dear}.",
            "It began in {year} with a teapot in the shape of {shape:a}, at {first} the bargain of the jumble sale. "
            "Now there are {all} of them in {who:s} {room}, and the dearest one, a small pot of {dearest} from a "
            "dealer, cost {dear}.",
            "No room is left in the {room}, for {who} has put {all} teapots in it. A dealer was paid {dear} for the "
            "dearest of them, which is made of {dearest}. But the first, found in {year} at a jumble sale, cost "
            "only {first}; it looks like {shape:a}.",
        ),
        {
            "all": (
                "How many teapots are there in the collection?",
                "How many teapots have been collected?",
                "How many teapots does {who} own?",
                "How many teapots stand in the {room}?",
            ),
            "first": (
                "What did the first teapot cost?",
                "How much was paid at the jumble sale?",
                "How much was the teapot that looks like {shape:a}?",
                "The dearest teapot was {dear}; what did the first cost?",
            ),
            "dear": (
                "What did the dearest teapot cost?",
                "How much was paid to the dealer?",
                "How much did the teapot of {dearest} cost?",
                "The first teapot cost {first}; how much was the dearest?",
            ),
            "dearest": (
                "What is the dearest teapot made of?",
                "Of what material is the most expensive teapot?",
                "Of what is the teapot that cost {dear}?",
                "What is the dearest of the teapots in the {room} made of?",
            ),
            "shape": (
                "In the shape of which animal is the first teapot?",
                "What does the first teapot look like?",
                "Which animal does the teapot of {year} look like?",
                "What is the shape of the teapot that cost {first}?",
            ),
            "who": (
                "Who collects teapots?",
                "Whose collection began at a jumble sale?",
                "Who has {all} teapots?",
                "Who keeps teapots in the {room}?",
            ),
            "room": (
                "In which room are the teapots kept?",
                "Which room is full of teapots?",
                "In which room does {who} keep the teapots?",
                "Where in the house are the {all} teapots?",
            ),
            "year": (
                "When was the first teapot bought?",
                "In what year did the teapot collection begin?",
                "In which year did {who} buy a teapot at a jumble sale?",
                "When was the teapot in the shape of {shape:a} found?",
            ),
        },
    ),
    Frame(
        "place_stamp_album",
        {
            "total": "number",
            "country": "country",
            "missing": "colour",
            "given": "relative",
            "offer": "price",
            "who": "person",
            "year": "year",
        },
        (
            "{who} has {total} stamps from {country} in a single album, which was a present from {who:their} "
            "{given}. Only one is missing, the {missing} one of {year}. A dealer has one, but for {offer} it can "
            "stay where it is, says the family.",
            "A dealer offered the {missing} stamp of {year} for {offer}, and the family said no. So the album still "
            "has an empty place among its {total} stamps from {country}. It was given to {who} by {who:their} "
            "{given}.",
            "The album came from {who:s} {given}, and {total} stamps from {country} have been stuck into it since. "
            "{who} would give a lot for the one that is still missing: it was printed in {missing} in {year}. At a "
            "dealer's it costs {offer}.",
        ),
        {
            "total": (
                "How many stamps are there in the album?",
                "How many stamps have been collected so far?",
                "How many stamps from {country} are in the album?",
                "How many stamps does {who} have?",
            ),
            "country": (
                "Which country do the stamps in the album come from?",
                "From what country are the stamps?",
                "From which country does {who} collect stamps?",
                "In what country were the {total} stamps issued?",
            ),
            "missing": (
                "What colour is the stamp that is missing?",
                "Which colour has the stamp still to be found?",
                "What is the colour of the stamp of {year}?",
                "Which colour is the stamp that {who} still needs?",
            ),
            "given": (
                "Who gave the stamp album as a present?",
                "From which relative did the album come?",
                "Who gave {who} the album?",
                "Which relation gave the album that now holds {total} stamps?",
            ),
            "offer": (
                "What does the dealer want for the missing stamp?",
                "How much does the missing stamp cost?",
                "How much is the {missing} stamp?",
                "How much is the stamp of {year} at the dealer's?",
            ),
            "who": (
                "Who collects the stamps in the album?",
                "Who is still one stamp short?",
                "Who has {total} stamps?",
                "Who collects stamps from {country}?",
            ),
            "year": (
                "From which year is the missing stamp?",
                "In what year was the missing stamp printed?",
                "From what year is the stamp in {missing}?",
                "From what year is the stamp that {who} needs?",
            ),
        },
    ),
    Frame(
        "place_jam_weights",
        {
            "fruit": "crop",
            "other": "crop",
            "sugar": "weight",
            "amount": "weight",
            "jars": "number",
            "time": "duration",
            "price": "price",
            "who": "person",
        },
        (
            "For the school fair {who} boiled {amount} of {fruit} with {sugar} of sugar for {time} and filled "
            "{jars} jars. They were sold at {price} each. There would have been a chutney of {other} too, if the "
            "pot had not boiled over.",
            "{jars} jars of jam went for {price} apiece at the school fair. {who} had made them from {amount} of "
            "{fruit}, which were stirred, together with {sugar} of sugar, for {time}. A chutney of {other} was "
            "planned as well, but that boiled over.",
            "The chutney of {other} boiled over, so {who} had only jam to take to the school fair: {jars} jars at "
            "{price} each. Into the pot had gone {sugar} of sugar and {amount} of {fruit}, and all of it had "
            "simmered for {time}.",
        ),
        {
            "fruit": (
                "What was the jam made of?",
                "What went into the jam besides sugar?",
                "From what did {who} make jam?",
                "The chutney was of {other}, but of what was the jam?",
            ),
            "other": (
                "What was the chutney made of?",
                "With what was the chutney made that boiled over?",
                "The jam was made from {fruit}, but what was in the chutney?",
                "Of what had {who} meant to make chutney?",
            ),
            "sugar": (
                "How much sugar went into the jam?",
                "What was the weight of the sugar in the pot?",
                "How much sugar did {who} use?",
                "How much sugar was there for {amount} of fruit?",
            ),
            "amount": (
                "How much fruit went into the jam?",
                "What did the fruit for the jam weigh?",
                "How much of the {fruit} was used for the jam?",
                "What weight of fruit was boiled with {sugar} of sugar?",
            ),
            "jars": (
                "How many jars of jam were there?",
                "How many jars were filled?",
                "How many jars did {who} take to the fair?",
                "How many jars were sold at {price} each?",
            ),
            "time": (
                "How long did the jam boil?",
                "For how long was the jam on the stove?",
                "How long did {who} boil the jam?",
                "For how long did the {fruit} have to simmer?",
            ),
            "price": (
                "What did a jar of jam cost at the school fair?",
                "At what price was the jam sold?",
                "How much was each of the {jars} jars?",
                "How much did {who} charge for a jar?",
            ),
            "who": (
                "Who made jam for the school fair?",
                "Who boiled the jam?",
                "Who used {amount} of fruit?",
                "Whose chutney of {other} boiled over?",
            ),
        },
    ),
    Frame(
        "place_hall_measures",
        {
            "long": "length",
            "wide": "length",
            "people": "number",
            "chairs": "number",
            "hire": "price",
            "clock": "clock",
            "day": "weekday",
        },
        (
            "The village hall is {long} long and {wide} wide. Up to {people} people may be let in, although there "
            "are chairs for only {chairs}. To hire it for an evening costs {hire}; music must stop at {clock}, and "
            "{day} is kept for the brass band.",
            "Dancers should know that the music in the village hall has to end at {clock}, and that on {day} it "
            "belongs to the brass band. For the rest, {hire} buys you an evening in a hall {long} long by {wide} "
            "wide, with room for {people} people and chairs for {chairs}.",
            "There are {chairs} chairs in the village hall, but {people} people are allowed inside, so some will "
            "have to stand. It measures {long} in length and {wide} in width. Every day except {day}, when the "
            "brass band rehearses, it can be hired for {hire}, with music until {clock}.",
        ),
        {
            "long": (
                "How long is the village hall?",
                "What is the length of the hall?",
                "The hall is {wide} wide; how long is it?",
                "How long is the hall that can be hired for {hire}?",
            ),
            "wide": (
                "How wide is the village hall?",
                "What is the width of the hall?",
                "The hall is {long} long; how wide is it?",
                "How wide is the hall in which {people} people are allowed?",
            ),
            "people": (
                "How many people are allowed in the hall?",
                "What is the largest number of people the hall may hold?",
                "There are {chairs} chairs, but how many people may come in?",
                "How many people may be in the hall of {long}?",
            ),
            "chairs": (
                "How many chairs are there in the hall?",
                "How many people can sit down in the village hall?",
                "How many chairs are there for the {people} people?",
                "How many chairs are in the hall where music stops at {clock}?",
            ),
            "hire": (
                "What does it cost to hire the village hall?",
                "How much is the hall for an evening?",
                "How much does one pay for an evening until {clock}?",
                "What is the price of hiring the hall with {chairs} chairs?",
            ),
            "clock": (
                "When must the music stop?",
                "Until what time may there be music in the hall?",
                "Until when can one dance if one pays {hire}?",
                "At what time does music end in the hall that the band uses on {day}?",
            ),
            "day": (
                "On which day does the brass band have the hall?",
                "When can the village hall not be hired?",
                "On which day of the week is the hall of {long} kept for the band?",
                "On what day is the hall with {chairs} chairs not free?",
            ),
        },
    ),
    Frame(
        "place_church_bell",
        {
            "heavy": "weight",
            "light": "weight",
            "metal": "material",
            "year": "year",
            "cracked": "year",
            "clock": "clock",
            "who": "person",
            "height": "length",
        },
        (
            "Two bells hang in the church tower, {height} above the street. The large one weighs {heavy} and was "
            "cast in {year}; the small one, of {metal}, weighs {light} and has been silent since it cracked in "
            "{cracked}. {who} rings the large bell every day at {clock}.",
            "Every day at {clock} {who} pulls the rope of the large bell, {heavy} of metal cast in {year}. The "
            "small bell next to it, {height} above the street, cannot be rung, for it cracked in {cracked}. It "
            "weighs {light} and is made of {metal}.",
            "The small bell in the church tower is of {metal} and weighs {light}; it cracked in {cracked} and hangs "
            "there, {height} up, only for the pigeons. So {who}, who comes to ring at {clock}, uses the large one, "
            "which was cast in {year} and weighs {heavy}.",
        ),
        {
            "heavy": (
                "How heavy is the large bell?",
                "What is the weight of the large bell?",
                "The small bell weighs {light}; what does the large one weigh?",
                "How heavy is the bell that was cast in {year}?",
            ),
            "light": (
                "How heavy is the small bell?",
                "What does the cracked bell weigh?",
                "The large bell weighs {heavy}; how heavy is the small one?",
                "What is the weight of the bell that cracked in {cracked}?",
            ),
            "metal": (
                "What is the small bell made of?",
                "Of what is the cracked bell made?",
                "What material is the bell of {light}?",
                "Of what is the bell that has been silent since {cracked}?",
            ),
            "year": (
                "When was the large bell cast?",
                "In which year was the bigger bell made?",
                "In what year was the bell of {heavy} cast?",
                "From what year is the bell that {who} rings?",
            ),
            "cracked": (
                "When did the small bell crack?",
                "Since what year has the small bell been silent?",
                "In which year did the bell of {metal} crack?",
                "In what year was the bell of {light} damaged?",
            ),
            "clock": (
                "At what time is the bell rung?",
                "When does the large bell ring?",
                "At what time does {who} ring the bell?",
                "At what hour can one hear the bell that was cast in {year}?",
            ),
            "who": (
                "Who rings the bell?",
                "Who pulls the rope in the church tower?",
                "Who comes to the tower at {clock}?",
                "Who rings the bell of {heavy}?",
            ),
            "height": (
                "How high above the street do the bells hang?",
                "How high up in the tower are the bells?",
                "How high does the bell of {heavy} hang?",
                "How high above the street is the bell that cracked in {cracked}?",
            ),
        },
    ),
    Frame(
        "place_campsite",
        {
            "tent": "price",
            "van": "price",
            "shower": "price",
            "lake": "lake",
            "open": "month",
            "shut": "month",
            "quiet": "clock",
            "animal": "animal",
        },
        (
            "A tent on the campsite by {lake} costs {tent} a night, a caravan {van}, and {shower} has to be put "
            "into the slot for a hot shower. The site opens in {open} and shuts in {shut}. From {quiet} nobody may "
            "make a noise, except the {animal} of the owner.",
            "Whoever comes by caravan pays {van} a night on the campsite at {lake}, whoever comes with a tent "
            "{tent}; a hot shower is {shower} extra. It is open from {open} until {shut}. There is silence after "
            "{quiet}, or there would be if it were not for the owner's {animal}.",
            "Only the owner's {animal} ignores the rule that the campsite must be quiet from {quiet} on. The season "
            "on {lake} begins in {open} and is over in {shut}. A night costs {tent} for a tent and {van} for a "
            "caravan, while the hot shower swallows {shower}.",
        ),
        {
            "tent": (
                "What does a tent cost for a night?",
                "How much do campers with a tent pay?",
                "A caravan costs {van}; how much is a tent?",
                "What is the price for a tent at {lake}?",
            ),
            "van": (
                "What does a caravan cost for a night?",
                "How much do visitors with a caravan pay?",
                "A tent is {tent}; how much is a caravan?",
                "What is the price for a caravan at {lake}?",
            ),
            "shower": (
                "What does a hot shower cost at the campsite?",
                "How much has to be paid for hot water on the campsite?",
                "A tent costs {tent}; what does a shower cost?",
                "How much is a shower at {lake}?",
            ),
            "lake": (
                "On which lake is the campsite?",
                "By what lake can one camp?",
                "At which lake does a tent cost {tent}?",
                "Beside which lake does the season begin in {open}?",
            ),
            "open": (
                "In which month does the campsite open?",
                "When does the camping season begin?",
                "The campsite shuts in {shut}; when does it open?",
                "From what month can one camp at {lake}?",
            ),
            "shut": (
                "In which month does the campsite close?",
                "When is the camping season over?",
                "The campsite opens in {open}; when does it shut?",
                "Until what month can one camp at {lake}?",
            ),
            "quiet": (
                "From what time must the campsite be quiet?",
                "After what time may campers make no noise?",
                "From when on is silence the rule at {lake}?",
                "From what time should the {animal} be silent?",
            ),
            "animal": (
                "Which animal does the owner of the campsite have?",
                "What makes a noise at night on the campsite?",
                "What does one hear after {quiet}?",
                "Which animal disturbs the campers at {lake}?",
            ),
        },
    ),
    Frame(
        "place_lost_property",
        {
            "found": "thing",
            "coat": "garment",
            "pet": "animal",
            "day": "weekday",
            "fee": "price",
            "keep": "duration",
            "who": "person",
        },
        (
            "On {day} the tram office holds its sale of lost property, and {who} reads out the list. This time it "
            "includes {found:a} left on a seat, {coat:a} from the night tram and even {pet:a} in a cage. Whatever "
            "nobody fetches within {keep} is sold; until then the owner gets it back for {fee}.",
            "Things left on the trams are kept for {keep}, and the owner can have them back for {fee}. The rest is "
            "sold on {day} by {who}. What people forget! On a seat lay {found:a}, the night tram brought in "
            "{coat:a}, and in a cage sat {pet:a}.",
            "{who}, in charge of lost property at the tram office, has fed {pet:a} in a cage for days. On a hook "
            "hangs {coat:a} that was left on the night tram, next to {found:a} from a seat. A fee of {fee} is all "
            "that owners pay, but after {keep} everything goes into the sale on {day}.",
        ),
        {
            "found": (
                "What was left on a seat of the tram?",
                "Which object did somebody forget on a seat?",
                "The night tram brought in {coat:a}; what was on a seat?",
                "What did {who} have on the list that came from a seat?",
            ),
            "coat": (
                "Which garment was left on the night tram?",
                "What was found on the night tram?",
                "On a seat lay {found:a}, but what came from the night tram?",
                "What piece of clothing did {who} get from the night tram?",
            ),
            "pet": (
                "Which animal was left on the tram?",
                "What was in the cage?",
                "Which animal does {who} have in a cage at the tram office?",
                "Besides {found:a}, what living thing was handed in?",
            ),
            "day": (
                "On which day is the sale of lost property?",
                "When are the forgotten things sold?",
                "On which day does {who} sell lost property?",
                "On what day are things sold that were kept for {keep}?",
            ),
            "fee": (
                "What does the owner pay to get a thing back?",
                "How much is the fee for lost property?",
                "How much does one pay to get {coat:a} back?",
                "How much would it cost the owner to fetch the {pet}?",
            ),
            "keep": (
                "How long are lost things kept?",
                "Within what time must lost property be fetched?",
                "For how long does {who} keep what is lost?",
                "How long does the owner have to fetch the {coat}?",
            ),
            "who": (
                "Who looks after the lost property?",
                "Who runs the sale of lost property?",
                "Who sells things from the trams on {day}?",
                "Who has {pet:a} in a cage at the tram office?",
            ),
        },
    ),
    Frame(
        "place_wool_shop",
        {
            "left": "colour",
            "right": "colour",
            "socks": "colour",
            "buttons": "material",
            "price": "price",
            "day": "weekday",
            "number": "number",
            "who": "person",
        },
        (
            "In the left window of the wool shop everything is {left}, in the right one everything is {right}. "
            "Between them {who} sits knitting socks, always {socks}, with a glass of {buttons} buttons within "
            "reach. A ball of wool costs {price}; on {day} you get {number} for the price of one.",
            "{number} balls for the price of one, {price}: that is what the wool shop offers on {day}. You cannot "
            "miss it, with its left window all {left} and its right window all {right}. Inside there are glasses "
            "full of {buttons} buttons, and {who}, at work on yet another pair of {socks} socks.",
            "The socks that {who} knits behind the counter of the wool shop are {socks} and nothing else, though "
            "the shop window on the right is filled with {right} and that on the left with {left}. Its buttons are "
            "of {buttons}. Come on {day}, when {price}, the price of one ball, will buy you {number}.",
        ),
        {
            "left": (
                "Which colour fills the left window of the wool shop?",
                "What colour is the wool in the window on the left?",
                "The right window is {right}; what colour is the left one?",
                "What colour does {who} show in the left window?",
            ),
            "right": (
                "Which colour fills the right window of the wool shop?",
                "What colour is everything in the window on the right?",
                "The left window is {left}; what colour is the right one?",
                "What colour does {who} show in the right window?",
            ),
            "socks": (
                "What colour are the socks that are knitted in the shop?",
                "Which colour do the socks always have?",
                "What colour are the socks that {who} knits?",
                "The right window is {right}, but what colour are the socks?",
            ),
            "buttons": (
                "What are the buttons made of?",
                "Of what material are the buttons in the wool shop?",
                "What are the buttons in the shop of {who} made of?",
                "What are the buttons made of in the shop with the {left} window?",
            ),
            "price": (
                "What does a ball of wool cost?",
                "How much is one ball of wool?",
                "How much does {who} ask for a ball of wool?",
                "What do you pay on {day} for several balls of wool?",
            ),
            "day": (
                "On which day does the wool shop have a special offer?",
                "On what day is wool cheaper?",
                "On which day do you get {number} balls for the price of one?",
                "On what day does {who} sell several balls for the price of one?",
            ),
            "number": (
                "How many balls do you get for the price of one?",
                "How many balls of wool are there in the special offer?",
                "How many balls does one get on {day}?",
                "How many balls of wool can one have for {price} on the special day?",
            ),
            "who": (
                "Who knits the socks?",
                "Who works in the wool shop?",
                "Who knits nothing but {socks} socks?",
                "Who gives {number} balls of wool for the price of one?",
            ),
        },
    ),
    Frame(
        "place_lighthouse_hotel",
        {
            "rooms": "number",
            "night": "price",
            "before": "trade",
            "stairs": "number",
            "food": "food",
            "season": "season",
            "island": "island",
            "who": "person",
        },
        (
            "Since the light went electric the lighthouse on {island} has been a hotel with {rooms} beds. Up by the "
            "lamp, at the top of {stairs} stairs, breakfast is laid: {food}, with a view. {who}, who had been "
            "{before:a} for thirty years, asks {night} a night and closes it in {season}.",
            "{who}, after years as {before:a}, turned the lighthouse on {island} into a hotel. A night there costs "
            "{night}, breakfast included. It is {food}, and you have to climb {stairs} stairs for it, up to the "
            "lamp. Of the {rooms} beds none is free for months, and in {season} the house is shut.",
            "Breakfast in the lighthouse hotel, which is on {island}, means {food} beside the great lamp, at the "
            "top of {stairs} stairs. There are {rooms} beds at {night} a night. In {season} nobody can stay, "
            "because then {who} goes back to the mainland and works as {before:a}, just as in the old days.",
        ),
        {
            "rooms": (
                "How many beds are there in the lighthouse?",
                "How many guests can sleep in the lighthouse hotel?",
                "How many beds does the hotel on {island} have?",
                "How many beds does {who} let?",
            ),
            "night": (
                "What does a night in the lighthouse cost?",
                "How much do guests pay for a night?",
                "How much does {who} ask for a night?",
                "What is the price of a night in the lighthouse on {island}?",
            ),
            "before": (
                "What was the hotel owner's trade before the lighthouse became a hotel?",
                "What had the owner of the lighthouse hotel worked as?",
                "What was {who} before keeping a hotel?",
                "What was the old profession of the person who keeps the hotel on {island}?",
            ),
            "stairs": (
                "How many stairs lead up to the lamp?",
                "How many stairs must guests climb for breakfast?",
                "How many stairs are there in the lighthouse on {island}?",
                "How many stairs must one climb to get the {food}?",
            ),
            "food": (
                "What is there for breakfast in the lighthouse?",
                "What do guests eat beside the lamp?",
                "What does {who} serve for breakfast?",
                "What do guests get to eat at the top of the {stairs} stairs?",
            ),
            "season": (
                "When is the lighthouse hotel closed?",
                "In what season can no guests stay in the lighthouse?",
                "In which season does {who} close the hotel?",
                "At what time of year is the house with {rooms} beds shut?",
            ),
            "island": (
                "On which island is the lighthouse hotel?",
                "Where is the lighthouse that has become a hotel?",
                "On which island can one sleep in a lighthouse for {night}?",
                "On what island does {who} keep a hotel?",
            ),
            "who": (
                "Who keeps the lighthouse hotel?",
                "Who turned the lighthouse into a hotel?",
                "Who asks {night} for a night in the lighthouse?",
                "Who has a hotel on {island}?",
            ),
        },
    ),
    Frame(
        "place_statue_roundabout",
        {
            "stood": "road",
            "moved": "road",
            "horse": "colour",
            "metal": "material",
            "price": "price",
            "year": "year",
            "height": "length",
            "reason": "reason",
        },
        (
            "For a century the statue of the horse looked down {stood}; in {year} it was put on the roundabout in "
            "{moved}, because {reason}. It is {height} high and cast in {metal}. The move cost {price}, and some "
            "students have painted its hooves {horse}.",
            "The hooves of the horse on the roundabout are {horse}, a joke of some students. The statue, {height} "
            "of {metal}, used to be in {stood}, but because {reason} it was carried off in {year}, at a cost of "
            "{price}, to its new place in {moved}.",
            "It cost {price} to take the statue of the horse away from {stood} in {year}. That had to be done "
            "because {reason}. Now it stands, {height} high, on the roundabout in {moved}: a horse of {metal}, with "
            "hooves that students have painted {horse}.",
        ),
        {
            "stood": (
                "Where did the statue of the horse stand before?",
                "From which street was the statue taken away?",
                "Before it came to {moved}, where was the statue?",
                "In which street was the statue until {year}?",
            ),
            "moved": (
                "In which street is the roundabout with the horse?",
                "Where is the statue of the horse now?",
                "The statue left {stood} for which street?",
                "Where was the horse put in {year}?",
            ),
            "horse": (
                "What colour are the hooves of the horse?",
                "In which colour did the students paint the hooves?",
                "What colour are the hooves of the horse in {moved}?",
                "What colour are the hooves of the horse made of {metal}?",
            ),
            "metal": (
                "What is the statue of the horse made of?",
                "Of what is the horse on the roundabout?",
                "What is the horse with the {horse} hooves made of?",
                "What is the horse made of that stands in {moved}?",
            ),
            "price": (
                "What did it cost to move the statue?",
                "How much was paid for moving the horse?",
                "What was the cost of the move in {year}?",
                "How much did it cost to bring the horse to {moved}?",
            ),
            "year": (
                "When was the statue of the horse moved?",
                "In what year did the horse come to the roundabout?",
                "When was the statue taken from {stood}?",
                "In which year were {price} spent on moving a horse?",
            ),
            "height": (
                "How high is the statue of the horse?",
                "What is the height of the horse on the roundabout?",
                "How high is the horse of {metal}?",
                "How tall is the statue in {moved}?",
            ),
            "reason": (
                "Why was the statue of the horse moved?",
                "What was the reason for moving the horse?",
                "Why is the horse no longer in {stood}?",
                "Why was the horse taken away in {year}?",
            ),
        },
    ),
)
