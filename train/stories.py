"""Plain little stories of five to ten sentences, told from a small grammar of plots."""

from __future__ import annotations

import random
from collections.abc import Callable

_SLOTS: dict[str, tuple[str, ...]] = {
    "pet": ("cat", "dog", "goat", "goose", "pony", "lamb", "hen", "parrot"),
    "look": ("grey", "brown", "black", "white", "spotted", "young", "little", "small"),
    "hide": (
        "behind the mill",
        "under the bridge",
        "in the old barn",
        "by the well",
        "in a hay cart",
        "beside the church wall",
        "in the orchard",
        "on the steps of the school",
    ),
    "thing": (
        "a silver ring",
        "a brass key",
        "a leather purse",
        "a pocket watch",
        "a red scarf",
        "a wooden flute",
        "a small painted box",
        "a pair of glasses",
    ),
    "spot": (
        "on the road",
        "in the grass",
        "under a bench",
        "beside the fountain",
        "near the bridge",
        "on the river bank",
        "in a hedge",
    ),
    "goods": ("apples", "honey", "eggs", "cheese", "bread", "pears", "baskets", "candles", "wool", "plums"),
    "trade": ("baker", "carpenter", "potter", "weaver", "clock maker", "smith", "tailor", "printer", "gardener"),
    "item": ("chair", "bowl", "lamp", "box", "cup", "basket", "ladder"),
    "cause": (
        "a broken fence",
        "a borrowed book",
        "a lost hammer",
        "a muddy path",
        "a game of cards",
        "a garden wall",
        "a loud trumpet",
        "a torn coat",
    ),
    "gift": (
        "a warm coat",
        "a blue kite",
        "a book of maps",
        "a new drum",
        "a jar of honey",
        "a small lantern",
        "a pair of boots",
        "a paint box",
    ),
    "cake": ("an apple cake", "a plum cake", "a honey cake", "a nut cake", "a lemon cake", "a carrot cake"),
    "noise": (
        "a soft tapping",
        "a low humming",
        "a strange scratching",
        "a long creak",
        "a faint ringing",
        "a dull thump",
    ),
    "source": (
        "a loose shutter",
        "a hedgehog in a bucket",
        "an owl in the chimney",
        "a branch against the window",
        "a mouse with a nut",
        "a neighbour's cat",
        "a bell on a lost sheep",
    ),
    "plant": ("beans", "carrots", "tulips", "peas", "onions", "roses", "pumpkins", "sunflowers"),
    "pest": ("snails", "rabbits", "crows", "mice", "goats"),
    "sport": (
        "a running race",
        "a kite race",
        "a baking contest",
        "a singing contest",
        "a boat race",
        "a chess match",
        "a drawing contest",
    ),
    "prize": ("a silver cup", "a basket of fruit", "a blue ribbon", "a new bicycle", "a big cheese"),
    "season": ("spring", "summer", "autumn", "winter"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "weather": ("sunny", "windy", "grey", "cold", "warm", "misty", "bright", "quiet"),
    "time": ("morning", "afternoon", "evening"),
    "ride": ("by train", "on foot", "by boat", "on a bicycle", "in a farm cart", "by bus"),
    "food": ("soup", "bread and cheese", "hot pancakes", "baked potatoes", "apple pie", "warm milk and cake"),
    "tool": ("rope", "net", "pole", "ladder", "plank"),
    "num": ("two", "three", "four", "five", "six"),
}

# A plot starts at "="; "-" starts a step, "?" a step that may be left out, "|" another wording of the step.
# {a} and {b} are full names, {A} and {B} the first names of the same people, {t} and {u} towns.
_PLOTS = """
= lost animal
- {a} lived in {t} and had a {look} {pet}.
| In {t} there lived {a}, who kept a {look} {pet}.
| {a} of {t} loved a {look} {pet} more than anything else.
- One {weather} {time} the {pet} was gone.
| On {day} the gate stood open and the {pet} was nowhere to be seen.
| Then, one {weather} {day}, the {pet} did not come when {A} called.
- {A} looked in every street and asked every neighbour.
| {A} searched the house, the yard and the lane, but found nothing.
| {A} walked through the whole town and called again and again.
? Nobody had seen the {pet}.
| The postman only shook his head.
| It grew dark, and {A} began to worry.
- Then {b} came along and said, "I saw a {pet} {hide}."
| At last {b} called out, "There is a {look} {pet} {hide}!"
| A friend, {b}, had heard a sound {hide}.
- They went there together at once.
| {A} and {B} ran there as fast as they could.
| {A} took a lamp, and {B} led the way.
- There sat the {pet}, tired but safe.
| The {pet} was there, hungry and glad to be found.
| And there it was, fast asleep.
- {A} thanked {B} and made {food} for both of them.
| {A} was so happy that {B} had to stay for {food}.
| From that day on, {A} always closed the gate.
= found object
- One {weather} {time} {a} found {thing} {spot}.
| {a} was walking through {t} and saw {thing} {spot}.
| On a {weather} {day} in {t}, {a} came upon {thing} {spot}.
- "Someone must be sad about this," thought {A}.
| {A} wondered who had lost it.
| It was not new, but it looked as if somebody loved it.
- {A} asked at the shop, at the school and at the inn.
| First {A} went from door to door and asked.
| {A} put a note on the door of the town hall.
? No one knew anything about it.
| For {num} days nobody came.
| Many people looked at it, but it was not theirs.
- Then {b} knocked on the door.
| On {day}, {b} read the note and came at once.
| In the end {A} met {b}, who was looking at the ground with care.
- "I have been looking for it all week," said {B}.
| {B} had lost it on the way to the market.
| It had once belonged to the grandmother of {B}.
- {A} gave it back with a smile.
| {A} was glad to hand it over.
| So {A} put it into the hands of {B}.
- {B} wanted to pay, but {A} only asked for a cup of tea.
| The two have been good friends ever since.
| {B} baked {cake} to say thank you, and they ate it together.
= storm
- A great storm came to {t} in {season}.
| One {season} night the wind rose over {t}.
| Dark clouds stood over {t} on {day}.
- {a} closed the shutters and lit a lamp.
| {a} was at home and listened to the rain.
| {a} brought in the washing and the hens.
- The wind shook the roof, and the rain beat on the door.
| The thunder was so loud that the cups rang on the shelf.
| Branches fell into the street, and the river grew.
- Then somebody knocked.
| In the middle of the storm there was a knock at the door.
| Suddenly {A} heard a voice outside.
- It was {b}, wet from head to foot.
| {b} stood there, cold and tired, with a broken umbrella.
| {b} had lost the way in the dark.
- "Come in and sit by the fire," said {A}.
| {A} brought a blanket and {food}.
| {A} put more wood on the fire and made tea.
? They told each other stories until the thunder was far away.
| They played cards while the wind howled.
| They talked half the night.
- In the morning the sky was clear, and they mended the fence together.
| The next day the sun shone, and {B} went home with dry clothes.
| When the sun came up, the storm was over, and two people had become friends.
= market day
- Every {day} there was a market in {t}.
| It was market day in {t}, and the square was full.
| On {day}, {a} rose before the sun, for it was market day in {t}.
- {a} had come with a cart full of {goods}.
| {a} wanted to sell {goods} there.
| With a heavy basket of {goods}, {a} found a place near the fountain.
- At first nobody stopped to buy.
| The {time} passed slowly, and few people came.
| The next stall was bigger, and all the people went there.
- Then {b} tried some and liked what there was.
| After a while {b} came by and asked about the price.
| {b}, who had the next stall, saw this and felt sorry.
- "These are the best {goods} in town!" cried {B}.
| {B} told everybody about the fine {goods}.
| {B} sang a funny song about {goods}, and people began to laugh.
- Soon there was a long line in front of the stall.
| Before long everyone wanted some.
| By noon the cart was almost empty.
- {A} kept the last of the {goods} and gave them to {B}.
| In the evening {A} shared the money with {B}.
| {A} went home with an empty cart and a full purse.
? "Come again next week," said {B}.
| They still meet there every week.
| It had been a very good day.
= apprentices
- {a} and {b} were learning to be a {trade} in {t}.
| A {trade} in {t} had two apprentices, {a} and {b}.
| In {t}, {a} and {b} worked for the same old {trade}.
- {A} was quick, and {B} was careful.
| {A} liked to hurry, but {B} liked to take time.
| {A} talked all day, while {B} hardly said a word.
- One day the master asked each of them to make something for the mayor.
| On {day} the master was ill, and there was much to do.
| One {weather} {time} a big order came in.
- {A} was done first, but the work soon fell apart.
| {A} began at once and forgot to measure.
| {A} worked so fast that a tool broke.
- {B} worked so slowly that the day was almost over.
| {B} had only finished the half of it by sunset.
| {B} looked at the plan for so long that nothing got done.
- "Let us do it together," said {A} in the end.
| Then {B} said, "You be quick, and I will check."
| So they sat down side by side and shared the work.
- Before night it was ready, and it was very good.
| What they made together was better than what either could make alone.
| They finished in time, and nothing was broken.
- The master looked at it and smiled.
| "Now you have learned the most important thing," said the master.
| The old {trade} was proud of both of them.
= quarrel made up
- {a} and {b} were neighbours in {t}.
| In {t}, everybody knew that {a} and {b} were the best of friends.
| {a} and {b} had grown up in the same street in {t}.
- One day they quarrelled over {cause}.
| On {day} they had a quarrel about {cause}.
| Then {cause} came between them.
- {A} said something unkind, and {B} slammed the door.
| Neither of them wanted to say sorry.
| {B} went home angry, and {A} was angry too.
- For {num} weeks they did not speak.
| They crossed the street when they saw each other.
| The days were long, and both of them felt alone.
- Then {A} fell on the ice, and {B} was the first to help.
| One {weather} {time} {B} heard that {A} was ill and brought {food}.
| At last {A} wrote a short letter and put it under the door.
- "I am sorry," said {A}.
| "It was silly of me," said {B}.
| They looked at each other and began to laugh.
? "So am I," said the other.
| Nobody could remember who had been right.
| It took only a minute to make it good again.
- Since then they drink tea together every {day}.
| They shook hands and were friends again.
| That evening they ate {cake} together, just as before.
= journey
- {a} wanted to see the sea and left {t} one {weather} {time}.
| One {season}, {a} set out from {t} to visit {b} in {u}.
| {a} had a letter for {b}, and {b} lived far away in {u}.
- {A} travelled {ride} and took only a small bag.
| The way was long, and {A} went {ride}.
| {A} packed bread, a map and a warm coat, and went {ride}.
- On the first day everything went well.
| The fields were green, and the birds were singing.
| The road went over hills and through a dark wood.
- On the second day {A} took the wrong way.
| Then it began to rain, and the map got wet.
| Near a crossroads {A} did not know which way to go.
- A shepherd pointed to a path behind the hill.
| A child with a dog showed {A} the right road.
| An old farmer offered {A} a bed in the barn.
? {A} slept well and went on early.
| {A} said thank you and walked on.
| The stars were out when the last hill was behind {A}.
- After {num} days {A} was there.
| At last {A} saw the roofs in the sun.
| In the end the long way was over.
- {b} was already waiting with {food}.
| "I thought you would never come!" said {b}.
| {b} opened the door and laughed with joy.
= birthday
- It was the birthday of {a}, but nobody in {t} said a word.
| {a} woke up on a {weather} {day} and thought, "Today is my birthday."
| In {t}, {a} was getting ready for a birthday.
- The {time} went by, and no one came.
| There was no letter and no parcel.
| {A} put cups on the table and waited.
- {A} was a little sad and went for a walk.
| "They have all forgotten me," thought {A}.
| {A} looked out of the window again and again.
- What {A} did not know was that {b} had a plan.
| But {b} had been busy since the early morning.
| Across the street, {b} was baking {cake}.
- When {A} opened the door of the barn, it was full of light.
| In the evening {B} asked {A} to come and look at something in the yard.
| Then there was a knock, and the whole street stood outside.
- "Happy birthday!" they all called.
| Everybody sang, and {B} sang loudest of all.
| There were lamps in the trees and music in the air.
- {B} had brought {gift} and {cake}.
| The best present was {gift}.
| {B} gave {A} {gift}, wrapped in blue paper.
- {A} laughed and did not know what to say.
| It was the best birthday {A} had ever had.
| They danced until the moon was high.
= mystery noise
- Every night {a} heard {noise} in the house.
| {a} lived alone in an old house in {t} and one night heard {noise}.
| In {t} people said that the old house was haunted, for at night there was {noise}.
- {A} sat up in bed and listened.
| {A} pulled the blanket up and did not move.
| It came again, a little louder than before.
- The next day {A} told {b} about it.
| In the morning {A} went to ask {b} for help.
| {b} did not believe in ghosts and promised to come.
- That night they waited together with a lantern.
| They sat in the dark kitchen and did not speak.
| {B} held a broom, and {A} held a candle.
- At midnight it began.
| Just after twelve, there it was again.
| They did not have to wait for long.
? {A} wanted to run away, but {B} went on.
| Step by step they followed the sound.
| The candle shook in the hand of {A}.
- {B} opened the little door and laughed: it was only {source}.
| They lifted the lamp and saw {source}.
| It was no ghost at all, but {source}.
- After that, {A} slept very well.
| {A} laughed too and made {food}.
| "So that is our ghost," said {A}.
= garden
- {a} had a small garden behind a house in {t}.
| In {season}, {a} began to dig a garden in {t}.
| There was a dry piece of land in {t}, and {a} wanted to grow {plant} there.
- {A} put the seeds into the ground and waited.
| {A} planted {plant} in long, straight rows.
| Every day {A} carried water from the well.
- But the {pest} came and ate the first green leaves.
| Then there was no rain for {num} weeks.
| Nothing came up, and {A} was ready to give up.
- "You must be patient," said {b}, who lived next door.
| {b} looked over the fence and gave good advice.
| {b} came with a bag of good earth and a spade.
- Together they put up a fence.
| They worked until the sun went down.
| {B} showed {A} how to cover the ground with straw.
- A week later there were green tips everywhere.
| By the end of the month the garden was full of {plant}.
| Then the rain came, and everything began to grow.
- {A} had never seen such fine {plant}.
| The {plant} were so big that people stopped to look.
| There were more {plant} than one house could need.
- {A} took the best ones to {B}.
| Half of the {plant} went to {B}, as was only fair.
| That evening the two friends sat in the garden and were content.
= river crossing
- {a} had to cross the river near {t}.
| A wide river runs past {t}, and {a} wanted to get to the other side.
| On a {weather} {time}, {a} came to the river at {t}.
- But the bridge had been washed away.
| The ferry was old, and there was a hole in it.
| The water was high after the rain.
- On the bank sat {b} with a heavy sack.
| There stood {b}, who wanted to cross as well.
| {b} was waiting there too, with a frightened goat.
- "It is too deep to walk," said {B}.
| "I have waited since {day}," said {B}.
| {B} had tried alone and had got wet feet.
- {A} looked around and found a {tool}.
| In the grass {A} saw a long {tool}.
| {A} remembered that there was a {tool} in the shed.
- {B} held one end, and {A} held the other.
| With the {tool} they made a way from stone to stone.
| They worked side by side and tied everything fast.
? Once {A} slipped, but {B} did not let go.
| The water was cold and quick.
| Step by step they moved forward.
- At last they stood on the other side, wet and happy.
| Before dark they were both across.
| "We did it!" called {A} from the far bank.
- They left the {tool} there for the next traveller.
| Then they shared some {food} and went on together.
| A year later there was a new bridge, and {A} and {B} had helped to build it.
= competition
- Every {season} there is {sport} in {t}.
| {t} was getting ready for {sport}.
| On {day} there was going to be {sport} in {t}.
- {a} wanted to win {prize}.
| The prize was {prize}, and {a} dreamed of it.
| {a} had practised for {num} months.
- {b} wanted to win it too.
| But {b} had won it {num} times before.
| The only one who could be better was {b}.
- When the day came, all the people stood in the square.
| The flags were out, and a band was playing.
| It was a {weather} day, and everyone had come.
- Just before the end, {B} got into trouble.
| {A} was ahead when {B} called for help.
| Then {B} tripped and could not go on.
- {A} stopped and went back.
| {A} did not think twice and helped.
| "Take my hand," said {A}.
- In the end they came last, but together.
| Somebody else won, but nobody talked about that.
| They did not win, and they did not mind.
- The people clapped louder for them than for the winner.
| "Next year we will try again," said {B}.
| The judge gave each of them a flower for being fair.
= broken gift
- {a} had borrowed a fine {item} from {b}.
| In {t}, {b} had lent {a} a beautiful {item}.
| {b} owned an old {item}, and {a} was allowed to use it for a week.
- On {day} it fell and broke.
| One {time} {A} was not careful, and it broke.
| There was a crash, and then the {item} was broken.
- {A} did not know what to do.
| {A} wanted to hide it at first.
| {A} felt very bad and could not sleep.
- "I will tell the truth," thought {A} in the morning.
| A {trade} in {t} said that it could not be mended.
| But a lie would only make things worse.
- So {A} went to {B} and told the whole story.
| {A} knocked on the door of {B} and said, "I have broken your {item}."
| With a red face, {A} showed {B} the pieces.
- {B} was silent for a moment.
| {B} looked at the pieces and then at {A}.
| {B} took a deep breath.
- "Thank you for telling me," said {B}.
| "It is only a {item}, and you are my friend," said {B}.
| "We can make a new one," said {B}.
- They spent the {time} making a new {item}, and it was even better.
| {A} saved some money and bought a new {item} in {u}.
| Since then {A} has been very careful with the things of others.
= newcomer
- When {a} moved to {t}, everything was strange.
| {a} was new in {t} and did not know anyone.
| In {season}, {a} came from {u} to live in {t}.
- The streets were narrow, and all the doors were closed.
| People were polite, but they were busy.
| In the evenings {A} sat alone at the window.
- One {weather} {time} {A} baked {cake} and left the window open.
| On {day} {A} lost the way and walked in circles.
| Then {A} took out a fiddle and began to play.
- {b} came past and stopped.
| It was {b} from next door who spoke first.
| A neighbour, {b}, stood still in the street.
- "You must be new here," said {B}.
| "Would you like to see the town?" asked {B}.
| "May I sit down with you?" asked {B}.
- They talked about {u} and about {t}.
| {B} showed {A} the market, the mill and the best place for {food}.
| By the time it was dark, they had told each other everything.
? The next day {B} brought two more friends.
| {B} knew everybody and told them about {A}.
| Soon people waved when {A} went by.
- Now {A} would not live anywhere else.
| A year later {A} was the one who greeted people who were new.
| From then on, {t} felt like home.
= snow
- In the night so much snow fell on {t} that no door would open.
| One winter {t} was covered in deep snow.
| It had snowed for {num} days, and {t} was very still.
- {a} climbed out of the window with a shovel.
| {a} had enough wood, but no more bread.
| {a} looked out and saw no smoke from the house of {b}.
- "I must see how {b} is," said {A}.
| "The old house next door is cold today," thought {A}.
| {A} was worried about {b}, who lived at the end of the lane.
- It took a whole {time} to dig a path.
| The snow was deep, and each step was hard work.
| {A} dug and dug until both hands were cold.
- {B} was sitting by a cold stove.
| {B} had no more wood and was wrapped in a blanket.
| Behind the door, {B} was calling for help.
- {A} fetched wood and lit the fire.
| Soon a fire was burning, and there was {food} on the table.
| {A} brought a basket of wood and some {food}.
- "You are a good neighbour," said {B}.
| "I shall never forget this," said {B}.
| {B} smiled and gave {A} a pair of warm gloves.
? Outside, children were building a snowman.
| Then it began to snow again, but nobody minded.
| When the snow melted, the path was still there.
"""


def _parse(text: str) -> list[list[tuple[bool, list[str]]]]:
    """The plots of the table: each a list of steps, each step whether it may be left out and its wordings."""
    plots: list[list[tuple[bool, list[str]]]] = []
    for line in text.strip().splitlines():
        mark, rest = line[0], line[2:]
        if mark == "=":
            plots.append([])
        elif mark == "|":
            plots[-1][-1][1].append(rest)
        else:
            plots[-1].append((mark == "?", [rest]))
    return plots


PLOTS = _parse(_PLOTS)


def story(rng: random.Random, name: Callable[[], str], town: Callable[[], str]) -> str:
    """A little story; `name` and `town` give the names of its people and places."""
    first = name()
    second = name()
    for _ in range(20):
        if second.split()[0] != first.split()[0]:
            break
        second = name()
    here, there = town(), town()
    for _ in range(20):
        if there != here:
            break
        there = town()
    slots = {slot: rng.choice(values) for slot, values in _SLOTS.items()}
    short = {"A": first.split()[0], "B": second.split()[0]}
    full = {"a": first, "b": second}
    seen: set[str] = set()
    sentences = []
    for optional, wordings in rng.choice(PLOTS):
        if optional and rng.random() < 0.5:
            continue
        text = rng.choice(wordings)
        # A person's first mention carries the full name, every later one the first name.
        for key, other in (("a", "A"), ("b", "B")):
            full_mark, short_mark = "{" + key + "}", "{" + other + "}"
            if key in seen:
                text = text.replace(full_mark, short_mark)
            elif full_mark in text or short_mark in text:
                text = text.replace(full_mark, short_mark).replace(short_mark, full_mark, 1)
                seen.add(key)
        sentence = text.format(t=here, u=there, **short, **full, **slots)
        sentences.append(sentence[0].upper() + sentence[1:])
    return " ".join(sentences)
