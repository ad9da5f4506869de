"""Kinds that few meanings need: what is rung, feared, quarrelled about, promised; see `nouns` for how to read them."""

TABLE = """
timepiece :
  / old, large, small, noisy
  clock, kitchen clock, church clock, grandfather clock, alarm clock, cuckoo clock, music box, pocket watch,
  gramophone, toy train

tower :
  church tower, castle tower, lighthouse, water tower, old oak, garden wall, city wall, factory chimney, flagpole,
  ladder, roof of the barn

bell :
  / old, small, heavy, cracked
  church bell, school bell, ship's bell, fire bell, dinner bell, bell of the chapel

broken : object
  / old, white, blue, broken, precious
  vase, teapot, jug, china doll, plate, flowerpot, soup bowl, sugar bowl, milk jug, porcelain figure, mirror frame

catch : fish
  / huge, small, fat, silver, beautiful
  trout, salmon, pike, eel, carp, perch, herring, cod, tench, lobster

collectible :
  / old, foreign, rare, strange
  stamps*, coins*, shells*, butterflies*, postcards*, maps*, clocks*, dolls*, fossils*, walking sticks*, teapots*,
  beer mats*, feathers*, keys*, medals*, toy trains*, first editions*, masks*, bottles*, music boxes*, hats*

contest : contest
  boat race, sack race, raffle, flower show, chess tournament, swimming race, quiz, cooking contest, dog show,
  bicycle race, poetry contest, egg-and-spoon race, singing contest, ploughing match, tug of war, spelling bee

countable :
  eggs*, tickets*, sheep*, candles*, hens*, goats*, letters*, stamps*, chairs*, sacks*, barrels*, cups*, blankets*,
  lamps*, buttons*, postcards*, bottles*, plates*, spoons*, baskets*, nails*, bricks*, bread rolls*, balloons*,
  lambs*, ducks*, geese*, boxes*, envelopes*, pencils*, cushions*, bicycles*, umbrellas*, hats*, scarves*, coins*

heaps :
  sheep*, votes*, cows*, bottles*, visitors*, coins*, stars*, birds on the lake*, empty seats*, boats*, sacks*,
  tickets*, trees in the park*, steps of the tower*, books*, ships in the harbour*, chairs*, geese*, candles*, cars*,
  logs*, letters*, plates*, eggs*, passengers*, pages*, bicycles*, blankets*, lambs*, flags*, hats*, barrels*,
  mistakes*

dogs : dog, animal
  / old, young, brown, black, lazy, spotted
  sheepdog, greyhound, terrier, spaniel, poodle, bulldog, puppy, retriever

feed :
  / fresh, dry
  hay~, oats*, bread~, carrots*, corn~, apples*, turnips*, cabbage leaves*, clover~, barley~, kitchen scraps*, seeds*

fire :
  fire in the barn, fire in the kitchen, forest fire, fire in the chimney, blaze in the hayloft, fire on the ship,
  burning cart

forest :
  / dark, large, dense
  forest, woods*, pine forest, moor, marshes*, jungle

grassy :
  / large, small, overgrown
  lawn, meadow, village green, churchyard, football pitch, cricket field, castle lawn, orchard, paddock

horselike : animal
  / old, young, white, brown, black, tired
  horse, pony, donkey, mule, mare, stallion, foal, cart horse

key : key
  / small, rusty, iron, spare, long
  front door key, cellar key, key of the safe, church key, garden key, key of the chest, car key

laundry :
  / clean, wet, white
  towels*, sheets*, tablecloth, shirts*, blankets*, napkins*, curtains*

light :
  / old, small, big
  lamp, lantern, candle, stove, fire in the hearth, bonfire, torch, street lamp, oil lamp, kitchen fire, beacon

lodging : place
  Red Lion, Golden Hind, Station Hotel, Blue Boar, White Hart, Crown Inn, Three Bells, Old Ferry House, Green Man,
  youth hostel, Black Swan, Grand Hotel, Ship Inn, Harbour Hotel, Seven Stars, mountain hut

milker : animal
  / old, young, brown, white, stubborn
  cow, goat, ewe, mare, camel

mount : animal
  / old, young, white, brown, grey, borrowed, black
  horse, pony, donkey, mule, camel, mare, stallion, elephant, cart horse

path :
  / old, steep, narrow, muddy
  road, footpath, courtyard, market square, lane, school yard, garden path, terrace, churchyard path, drive

paving : material
  gravel~, cobblestones*, bricks*, slabs*, flagstones*, tar~, sand~, concrete~, wooden planks*

pets :
  goats*, sheep*, rabbits*, pigs*, horses*, pigeons*, geese*, hens*, cattle*, greyhounds*, ponies*, bees*, ducks*,
  canaries*, donkeys*, turkeys*, trout*

service :
  work in the garden, clearing of the path, lessons*, portrait, use of the boat, night in the barn,
  shoeing of the horse, firewood~, new saddle, help with the harvest~, translation, journey by cart, dinner, haircut,
  music at the wedding~

stringed : instrument, musical instrument
  / old, small, fine, borrowed
  violin, cello, piano, harp, guitar, lute, mandolin, banjo, zither, grand piano

stuffing : material
  straw~, wool~, moss~, cork~, sawdust~, reeds*, newspaper~, felt~, clay~

surface :
  / new
  kitchen floor, carpet, pipes*, tiles in the bathroom*, stone steps*, dance floor, cable, water pipe, railway track

transport :
  last train, morning bus, night ferry, early coach, last tram, ferry to the island, school bus, express, noon train,
  steamer

water :
  / cold, small, deep
  lake, river, pond, sea, canal, bay, stream, mill pond, harbour, reservoir

weighty :
  / large, heavy, small
  parcel, sack of flour, pig, baby, goose, cheese, trunk, pumpkin, salmon, gold nugget, turkey, calf, sack of coal,
  mail bag, marrow

wet :
  / old, large, small
  pond, cellar, marsh, swimming pool, ditch, mine, lower field, boat, canal, water tank

wood :
  / dry, old
  firewood~, logs*, fallen tree, old fence, oak trunk, driftwood~, dead branches*, wooden crates*

woolly : animal
  / old, black, white, fat
  sheep, ram, ewe, lamb, goat, llama

woven :
  / fine, long, red, blue, colourful, striped
  carpet, blanket, rug, shawl, tapestry, tablecloth, wall hanging, scarf, bedspread

wrapping :
  newspaper~, brown paper~, silk~, cloth~, blanket, tissue paper~, towel, straw~, cotton wool~, old shirt, tablecloth,
  velvet~

biter : animal
  / large, small, angry, old
  dog, goose, horse, swan, snake, parrot, monkey, goat, cat, donkey, rat, ferret, camel, cockerel

chore :
  homework~, packing~, washing-up~, harvest, shopping~, move, accounts*, luggage~, firewood~, translation, cooking~,
  invitations*, decorations*, housework~, wedding cake, gardening~, laundry~, repairs*, paperwork~, hay~

danger : danger
  burning house, river, deep snow~, quicksand~, old well, flooded cellar, stormy sea, burning barn, icy water~, mine,
  sinking boat, blazing theatre, swamp, collapsed tunnel, harbour, runaway coach, raging flood

favour :
  glass of water, recipe, loan, lift to the station, bed for the night, piece of advice, second blanket, autograph,
  cup of flour, key to the garden, day off, map of the town, better room, pay rise, bowl of soup, reference

gift :
  pony, new bicycle, gold ring, trip to the sea, puppy, pay rise, new coat, piano, watch, house by the lake, boat,
  kite, seat in the front row, share of the profit

hazard : danger
  thin ice~, bull, loose step, thieves*, deep water~, wasps*, dog, falling rocks*, broken bridge, storm, fog~,
  hot stove, slippery stairs*, wolves*, strong current, adders*

praised :
  speech, soup, garden, singing~, painting, cake, advice~, patience~, idea, report, music~, work on the roof,
  hospitality~, quick thinking~, translation, apple pie, new song, drawings*

mishap :
  fire, accident, broken window, loss of the money, delay, mistake in the accounts, flood in the cellar, bad harvest,
  burnt dinner, dead battery, puncture, noise at night, lost match, scratch on the car

feature :
  voice, red hat, scar, walk, laugh, handwriting~, green coat, wooden leg, limp, accent, big ears*, beard, blue eyes*,
  ring, tattoo, smile

noise :
  owl in the garden, church bell, footsteps on the stairs*, barking of a dog~, explosion, rain on the roof~, thunder~,
  foghorn, crying of a baby~, cuckoo, shot, sound of a flute, whistle of the train, snoring~, breaking glass~

dreamt :
  white horse, ship without sails, falling star, talking bear, house made of glass, sea of flowers, long staircase,
  flying carpet, journey to the moon, lost brother, huge spider, golden key, empty school, wolf at the door

feared :
  spiders*, dark~, thunder~, snakes*, deep water~, mice*, dogs*, heights*, dentist, geese*, ghosts*, fire~, wasps*,
  bulls*, needles*, crowds*

aria : song
  lullaby, ballad, hymn, love song, old sea song, Christmas carol, national anthem, folk song, drinking song, march,
  aria, round, funeral song

topic : topic, subject
  life of the bees, history of the bridge, stars*, wild flowers*, old castles*, birds of the coast*,
  making of cheese~, dangers of the sea*, Roman coins*, care of horses~, railways*, deep-sea fish~,
  customs of the islanders*, glaciers*, weather~, future of farming, first aid~, healthy food~, mushrooms*, volcanoes*

led :
  choir, expedition, strike, search party, rebellion, orchestra, excavation, walking tour, parade, fire brigade,
  scout group, rescue party, school band, theatre group, drama club, dig at the castle

music :
  choir, orchestra, brass band, school orchestra, children's choir, string quartet, opera, concert, symphony,
  village band, church choir, wind band

club : club, group
  chess club, choir, rowing club, gardening club, football club, fire brigade, historical society, book club,
  brass band, sailing club, drama group, bowling club, beekeepers' union, photography club, hiking club,
  debating society, swimming club, sewing circle, folk dance group, town council, hunting club, cricket club,
  peace movement

post : post
  mayor, treasurer, chairman, secretary, captain, head gardener, headteacher, director, bandleader, head cook,
  president, harbour master, stationmaster, conductor, chief engineer, chief editor

race : race, contest
  boat race, sack race, swimming race, bicycle race, marathon, hurdle race, egg-and-spoon race, chess tournament,
  sailing race, ski race, horse race, spelling bee, baking contest, poetry contest, dog race

match : game
  chess~, draughts~, tennis~, golf~, billiards~, darts~, table tennis~, cards*, backgammon~, arm-wrestling~,
  badminton~, dominoes~, skittles~

score :
  one to nil~, two to one~, three to two~, five to three~, four to nil~, six to four~, 2 to 0~, 3 to 1~, 7 to 5~,
  21 to 14~, 12 to 9~, nine to eight~, 4 to 2~, six to one~

goals :
  two goals*, three goals*, four goals*, five goals*, one goal~, seven points*, ten points*, twelve points*,
  six goals*, twenty points*, nine points*

quarrelled :
  rent~, garden fence, noise at night~, inheritance, money~, best way to cook rice, dog, parking space, politics~,
  colour of the door, rules of the game*, broken window, name of the baby, window seat, bill, price of wood, will

nuisance :
  noise~, cold soup~, smell of fish, broken lift, smoke~, long wait, barking dog, leaking roof, high prices*,
  traffic~, bad service~, hard bed, dirty windows*, loud music~, flies*, holes in the road*

crime : crime
  stealing a horse~, theft~, burglary~, smuggling tea~, fraud~, poaching deer~, forging a cheque~, arson~,
  driving too fast~, spying~, robbing the bank~, breaking a window~, selling bad meat~, fishing without a permit~

deed :
  sell the farm~, learn the violin~, stay until Sunday~, go to the doctor~, enter the race~, lend them the boat~,
  buy a dog~, run for mayor~, open a shop~, give up smoking~, come to the dance~, tell the truth~, take the train~

usage :
  school, museum, youth hostel, warehouse, restaurant, post office, hospital, studio, library, concert hall,
  town hall, stable, garage, tea room, hotel, prison, chapel, workshop, cinema, nursery, archive, observatory

disaster :
  flood, storm, fire, earthquake, lightning~, hail~, hard frost, landslide, falling tree, explosion, high tide,
  heavy snow~, avalanche, gale, lorry

nestplace : place
  hedge, church tower, old oak, chimney, barn, reeds*, roof of the school, hollow willow, castle wall, letter box,
  boathouse, ivy~, gutter, cliff, rafters*

young :
  twins*, triplets*, two young ones*, three young ones*, four young ones*, five young ones*, six young ones*,
  seven young ones*, two males*, three females*, eight young ones*

door :
  / old, heavy, red, green, narrow
  front door, back door, garden gate, cellar door, kitchen window, attic window, church door, trapdoor, town gate,
  lock gate, stable door, shop door, door of the safe, castle gate

blade : tool
  / old, heavy, rusty, blunt, borrowed
  axe, saw, chisel, hatchet, scythe, sickle, bread knife, carving knife, penknife, pruning knife, sword, razor, spade,
  scissors*, shears*, plane, kitchen knife, ploughshare, pickaxe

strike :
  strike, storm, flood, heatwave, drought, siege, frost, trial, voyage, school holidays*, journey, quarrel, match,
  meeting, operation, search

cause :
  rain~, storm, illness of the singer, snow~, lack of money, strike, fog~, flood, death of the king, heat~, power cut,
  small number of guests, high wind~, missing key, epidemic, quarrel in the council

crowd :
  forty people*, two hundred people*, eighty guests*, a thousand visitors*, three hundred visitors*, sixty children*,
  150 people*, 400 guests*, 25 people*, twelve hundred people*, 90 visitors*, fifty-five guests*, 3000 people*

lane :
  / narrow, old, steep
  footpath, lane, mountain railway, cable car, tunnel, staircase, road, bridge, corridor, avenue, canal, cycle path,
  towpath, secret passage

transit :
  first train, last bus, morning ferry, night train, express, noon coach, mail boat, tram, school bus, evening ferry,
  slow train, market bus, steamer

facility :
  churches*, wells*, bridges*, schools*, inns*, bakeries*, windmills*, museums*, bookshops*, fountains*, parks*,
  cinemas*, hotels*, towers*, factories*, lighthouses*, streets*, squares*, farms*, shops*, ponds*, libraries*

thousands :
  eighty~, two hundred~, 350~, 900~, 1200~, 4000~, 15000~, three thousand~, five hundred~, 60000~, 7500~,
  twelve hundred~, 240~, 33000~, ninety~

specialty :
  cherries*, blue cheese~, wooden toys*, glass~, hot springs*, carnival~, lace~, cider~, bells*, honey cake~,
  horse races*, smoked eel~, stone bridges*, roses*, football~, white cliffs*, pottery~, ghost stories*, old clocks*,
  narrow streets*

mother : animal
  / old, brown, black, grey
  mare, cow, ewe, cat, sow, goat, spaniel, terrier, donkey, she-wolf, sheepdog
"""
