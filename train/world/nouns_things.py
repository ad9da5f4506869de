"""Things that much can be done with: animals, tools, clothes, food, buildings; see `nouns` for how to read them."""

TABLE = """
animal : animal, creature
  / old, young, small, large, black, white, brown, grey, spotted, lame, thin, fat, hungry, clever, stray, tame
  goat, sheep, cow, horse, donkey, mule, pig, dog, cat, rabbit, pony, lamb, calf, bull, ox, kid, mare, foal, stallion,
  puppy, kitten, sheepdog, greyhound, terrier, spaniel, ram, ewe, hedgehog, tortoise, squirrel, ferret, guinea pig,
  piglet, cart horse, heifer, poodle, bulldog, otter, hare, llama, camel, hamster, deer, fox cub

bird : bird, animal
  / old, young, white, grey, tame, injured, black, noisy, lost, brown, small
  hen, duck, goose, turkey, pigeon, parrot, canary, owl, falcon, raven, swan, heron, jackdaw, magpie, cockerel,
  peacock, budgerigar, finch, crane, gull, hawk, pheasant, thrush, crow, dove, starling, stork

tool : tool
  / old, new, small, heavy, rusty, sharp, blunt, broken, good, borrowed, long, short, iron
  hammer, chisel, saw, plane, file, drill, axe, hatchet, spade, shovel, fork, rake, hoe, scythe, sickle, trowel,
  pickaxe, crowbar, wrench, screwdriver, mallet, spirit level, tape measure, hacksaw, paintbrush, penknife, pitchfork,
  bread knife, garden hose, wheelbarrow, ladder, grindstone, watering can, carving knife, pliers*, shears*, tongs*,
  scissors*

vehicle : vehicle
  / old, new, green, red, blue, white, black, heavy, small, large, rusty, second-hand, yellow, open
  cart, wagon, bicycle, tricycle, car, van, lorry, tractor, bus, coach, carriage, motorcycle, sledge, hay cart,
  milk float, fire engine, taxi, caravan, tram, handcart, pram, scooter, delivery van, ambulance, tandem, gig,
  horse cart, steamroller

boat : boat, vessel
  / old, new, small, large, green, red, blue, white, leaky, wooden, narrow, half-finished, long
  rowing boat, canoe, sailing boat, ferry, barge, raft, fishing boat, yacht, kayak, lifeboat, dinghy, trawler,
  steamer, houseboat, punt, pilot boat, motorboat, schooner, tug, cutter, sloop

machine : machine, device
  / old, new, broken, noisy, small, large, heavy, rusty, green, second-hand, faulty, modern
  clock, pump, engine, radio, sewing machine, typewriter, camera, boiler, printing press, loom, spinning wheel,
  water wheel, generator, telephone, church clock, kitchen clock, alarm clock, grandfather clock, stove, oven, lift,
  crane, cash register, gramophone, lawnmower, mill wheel, harvester, music box, washing machine, projector,
  telescope, fan, heater, coffee grinder, cider press, weighing machine, toaster, refrigerator, lamp, lantern,
  weather vane, winch, butter churn, cuckoo clock, barometer, vacuum cleaner, electric kettle

instrument : instrument, musical instrument
  / old, new, small, large, black, white, broken, cheap, fine, beautiful, second-hand, borrowed, valuable
  cello, violin, viola, piano, harp, flute, oboe, clarinet, bassoon, trumpet, horn, trombone, tuba, guitar, lute,
  mandolin, banjo, accordion, drum, recorder, fiddle, double bass, zither, saxophone, concertina, church organ,
  bagpipes*, cymbals*, mouth organ, kettledrum, tambourine, harpsichord

furniture : piece of furniture
  / old, new, small, large, heavy, oak, pine, walnut, painted, carved, broken, antique, round, plain, second-hand
  chair, table, kitchen table, armchair, rocking chair, stool, bench, desk, bookcase, wardrobe, cupboard, bed, sofa,
  chest of drawers, cradle, dresser, sideboard, writing desk, bookshelf, hat rack, high chair, cabinet,
  dining table, bedside table, couch, footstool, settle, church pew, folding chair, workbench, bunk bed

garment : garment, piece of clothing, item of clothing
  / red, blue, green, black, white, grey, brown, yellow, striped, woollen, linen, silk, new, old, warm, thin, torn,
  / embroidered, second-hand, borrowed, expensive, plain, checked, pale blue, dark green
  scarf, coat, cloak, jacket, waistcoat, shirt, blouse, dress, skirt, apron, hat, cap, bonnet, shawl, jumper,
  cardigan, belt, tie, raincoat, gown, uniform, nightgown, robe, veil, straw hat, wedding dress, overcoat, kilt,
  pullover, tunic, suit, costume, gloves*, mittens*, boots*, socks*, trousers*, slippers*, stockings*, shoes*,
  pyjamas*, riding boots*, dancing shoes*

jewel : piece of jewellery
  / gold, silver, old, heavy, small, pearl, diamond, ruby, amber, plain, precious, antique
  ring, necklace, brooch, bracelet, pendant, locket, tiara, wedding ring, pocket watch, chain, cameo, bangle,
  earrings*, cufflinks*

object : object, item
  / old, new, small, large, little, big, heavy, broken, wooden, iron, copper, brass, silver, painted, plain, green,
  / red, blue, black, white, yellow, rusty, second-hand, beautiful, strange, battered, antique, dusty, cheap
  kettle, mirror, jug, teapot, vase, candlestick, bowl, basket, chest, trunk, suitcase, umbrella, walking stick,
  compass, globe, purse, wallet, padlock, rope, bucket, barrel, tray, flowerpot, pillow, blanket, quilt, carpet, rug,
  curtain, tablecloth, cushion, hand bell, school bell, whistle, medal, coin, key, front door key, oil lamp,
  picture frame, penholder, inkwell, snuff box, sugar bowl, frying pan, saucepan, cake tin, milk jug, coal scuttle,
  birdcage, fishing rod, saddle, bridle, tent, rucksack, handbag, lunch box, toolbox, sewing basket, hourglass,
  magnifying glass, chessboard, parasol, sundial, flag, shield, sword, helmet, mask, crown, horseshoe, anchor, candle,
  broom, bathtub, doormat, signboard, letter box, glasses*, reading glasses*, binoculars*, skates*, skis*

toy : toy
  / old, new, wooden, small, large, red, blue, painted, broken, green, favourite, stuffed
  doll, puppet, kite, ball, spinning top, rocking horse, teddy bear, toy train, toy boat, tin soldier, doll's house,
  hoop, skipping rope, jigsaw puzzle, model ship, toy drum, rag doll, hobby horse, paper boat, marionette, catapult,
  swing, building blocks*, marbles*

paper : document, paper
  / old, long, short, secret, important, torn, yellow, handwritten, forgotten, missing, sealed
  letter, map, diary, will, contract, list, report, certificate, telegram, postcard, logbook, receipt, notebook, bill,
  photograph, newspaper, passport, ledger, birth certificate, petition, timetable, recipe, account book,
  visitors' book, programme, seating plan, manuscript, love letter, treaty, sketch, floor plan, invitation, note,
  cheque, school report, prescription

artwork : work of art
  / large, small, famous, old, strange, unfinished, beautiful, valuable, modern, unsigned
  painting, portrait, statue, carving, mural, tapestry, mosaic, engraving, sculpture, self-portrait, landscape,
  still life, watercolour, bronze head, altarpiece, woodcut, family portrait, stained glass window, fresco, bust,
  charcoal drawing, icon, relief, miniature

text : piece of writing
  / long, short, sad, funny, famous, first, last, old, new, unfinished, angry, simple
  poem, play, novel, story, speech, sermon, cookbook, ballad, fairy tale, essay, article, travel guide, comedy,
  tragedy, biography, history of the town, hymn, lullaby, song, film script, opera, sonnet, textbook, pamphlet,
  ghost story, detective novel, children's book, radio play, memoir, dictionary, riddle, limerick

bake : dish, food
  / large, small, burnt, fresh, warm, huge, sweet, delicious, whole, enormous
  apple pie, cherry pie, plum cake, honey cake, loaf of rye bread, carrot cake, cheese tart, leek pie, chestnut cake,
  lemon tart, chocolate cake, birthday cake, wedding cake, mushroom pie, fruit cake, ginger cake, fish pie, meat pie,
  sponge cake, gooseberry tart, walnut loaf, pumpkin pie, rhubarb crumble, plum pudding, oat biscuits*,
  ginger biscuits*, bread rolls*, scones*, pancakes*, almond biscuits*, cheese straws*, waffles*

dish : dish, food
  / hot, cold, thick, spicy, salty, tasty, simple, delicious, hearty
  barley soup~, onion soup~, beef stew~, mutton stew~, lentil soup~, fish stew~, rice pudding~, potato salad~,
  pea soup~, tomato soup~, bean soup~, roast lamb~, roast chicken~, fried trout~, smoked fish~, porridge~, goulash~,
  vegetable curry~, cucumber salad~, roast duck~, grilled salmon~, mashed potato~, dumplings*, sausages*, noodles*,
  baked potatoes*, stuffed peppers*, cabbage rolls*, meatballs*, fishcakes*

drink : drink
  / cold, hot, fresh, sweet, bitter, strong, home-made, weak
  mint tea~, black tea~, green tea~, coffee~, cocoa~, hot chocolate~, milk~, cider~, beer~, red wine~, white wine~,
  apple juice~, pear juice~, lemonade~, ginger beer~, elderflower syrup~, plum brandy~, buttermilk~, orange juice~,
  camomile tea~, mulled wine~, barley water~

preserve : food
  / sweet, home-made, dark, fresh, good, thick
  plum jam~, strawberry jam~, honey~, goat's cheese~, butter~, smoked ham~, pickled herring~, orange marmalade~,
  dried fish~, apple sauce~, mustard~, quince jelly~, tomato chutney~, sheep's cheese~, cream~, maple syrup~,
  blackberry jelly~, pickled onions*, dried mushrooms*, salted almonds*

fruit : fruit
  / ripe, sweet, fresh, sour, green, wild, early, rotten
  apples*, pears*, plums*, cherries*, grapes*, strawberries*, figs*, apricots*, peaches*, oranges*, lemons*,
  raspberries*, blackberries*, gooseberries*, redcurrants*, melons*, quinces*, damsons*, blueberries*, bananas*

vegetable : vegetable
  / fresh, young, large, early, dried, home-grown
  potatoes*, turnips*, carrots*, cabbages*, onions*, leeks*, beans*, peas*, lentils*, pumpkins*, cucumbers*,
  radishes*, tomatoes*, beetroots*, parsnips*, lettuces*, marrows*, cauliflowers*, mushrooms*, sprouts*, garlic~,
  spinach~, celery~, rhubarb~, asparagus~, kale~

crop : crop
  / good, winter, early, late, fine
  barley~, wheat~, rye~, oats*, maize~, hops*, flax~, hay~, tobacco~, sugar beet~, lavender~, clover~, hemp~,
  mustard~, buckwheat~, millet~, sunflowers*

flower : flower, plant
  / white, red, yellow, pink, purple, wild, early, orange
  roses*, tulips*, lilies*, daffodils*, snowdrops*, crocuses*, bluebells*, poppies*, daisies*, marigolds*,
  sunflowers*, irises*, peonies*, primroses*, violets*, orchids*, carnations*, dahlias*, hyacinths*, geraniums*,
  lupins*, cornflowers*, foxgloves*, pansies*, sweet peas*, chrysanthemums*, hollyhocks*, forget-me-nots*

tree : tree
  / old, young, tall, hollow, fallen, rotten, diseased, huge, leaning, dead
  apple tree, pear tree, oak, elm, ash tree, beech, birch, walnut tree, cherry tree, plum tree, willow, poplar, pine,
  fir tree, yew, lime tree, chestnut tree, maple, holly tree, fig tree, hazel bush, rose bush, cedar, larch,
  mulberry tree, hawthorn hedge, lilac bush

goods :
  / good, cheap, fine, wet, old, local
  coal~, wool~, timber~, salt~, flour~, grain~, sugar~, cloth~, leather~, firewood~, sand~, gravel~, straw~, oil~,
  soap~, paper~, wax~, paint~, cement~, peat~, manure~, cotton~, silk~, tea~, rice~, ice~, bricks*, tiles*, candles*,
  nails*, seeds*, eggs*, barrels*, spices*, slates*, feathers*, hides*, ropes*

building : building
  / old, new, stone, wooden, brick, small, large, ruined, abandoned, half-finished, whitewashed, crooked, northern,
  / southern, upper, lower
  chapel, church, water mill, windmill, town hall, school, library, museum, theatre, inn, lighthouse, bakery, brewery,
  railway station, post office, hospital, market hall, castle, tower, barn, stable, warehouse, factory, forge,
  courthouse, prison, monastery, hotel, cinema, boathouse, observatory, greenhouse, cottage, farmhouse, manor house,
  concert hall, bank, pharmacy, bookshop, tannery, granary, sawmill, garage, shed, henhouse, bungalow, village hall,
  youth hostel, gatehouse, tea room, sports hall, hunting lodge, summer house, pigsty, dairy

shop : business, shop
  / small, old, new, busy, little, family, corner
  bakery, bookshop, tea room, hotel, inn, brewery, pharmacy, toy shop, hat shop, butcher's shop, fish shop,
  flower shop, shoe shop, garage, boatyard, riding school, dairy, cheese shop, bicycle shop, sawmill, guest house,
  laundry, hairdresser's, coffee house, printing works, pottery, restaurant, sweet shop, dance school, antique shop,
  travel agency, music shop, ironmonger's, tailor's shop, vineyard, newspaper

structure :
  / old, new, stone, wooden, brick, small, large, ruined, abandoned, half-finished, whitewashed, crooked, northern,
  / southern, upper, lower
  bridge, wall, fence, gate, roof, well, chimney, staircase, dam, pier, road, footpath, tunnel, fountain, pond,
  garden wall, church tower, front door, cellar, balcony, porch, drain, harbour wall, railway line, ceiling,
  kitchen floor, attic window, bandstand, milestone, jetty, playground, canal, swimming pool, tennis court, bench,
  ditch, embankment, flagpole, cattle trough, stile, street lamp, garden gate, shop window, weir, lock gate

land : piece of land
  / large, small, northern, southern, narrow, stony, marshy, upper, lower, sunny, overgrown
  field, meadow, orchard, garden, vineyard, pasture, vegetable garden, wood, churchyard, park, marsh, hillside,
  rose garden, kitchen garden, allotment, hop garden, paddock, building plot, fishpond, strip of land

event : event
  / great, annual, small, first, long-awaited, yearly
  wedding, concert, fair, boat race, harvest supper, exhibition, auction, picnic, dance, flower show, raffle,
  puppet show, sack race, lecture, parade, bazaar, quiz, carnival, chess tournament, town meeting, school play,
  bonfire, christening, sheepdog trial, marathon, food market, opera evening, reading, funeral, reunion, jumble sale,
  poetry evening, dog show, tug of war, bicycle race, cooking contest, swimming race, fancy-dress ball

news : news
  / good, bad, strange, sad, surprising, false
  news of the flood~, news of the wedding~, secret, rumour about the mayor, story of the shipwreck,
  truth about the fire~, result of the vote, date of the sale, name of the thief, price of the house,
  plan for the new road, news of the birth~, answer to the riddle, story about the ghost, way to the waterfall,
  number of the safe, end of the story, news of the victory~, recipe for the cake, story of the lost ring

subject : subject
  botany~, history~, law~, medicine~, chemistry~, physics~, geology~, astronomy~, music~, philosophy~, mathematics~,
  geography~, engineering~, architecture~, economics~, literature~, biology~, Latin~, Greek~, grammar~, drawing~,
  navigation~, anatomy~, bookkeeping~, French~, Russian~, needlework~, singing~, cookery~, dancing~, arithmetic~,
  handwriting~, first aid~, photography~, woodwork~, swimming~, fencing~, gardening~

game : game, sport
  chess~, draughts~, backgammon~, dominoes~, darts~, tennis~, cricket~, football~, hockey~, billiards~, croquet~,
  badminton~, table tennis~, rugby~, polo~, skittles~, bridge~, whist~, handball~, volleyball~, basketball~, golf~,
  rowing~, curling~, archery~

illness : illness, disease
  measles~, fever, pneumonia~, influenza~, scarlet fever~, mumps~, bronchitis~, malaria~, bad cough, chickenpox~,
  typhoid~, whooping cough~, tonsillitis~, asthma~, jaundice~, toothache~, migraine~, hay fever~, food poisoning~,
  earache~, gout~, sore throat

injury : injury
  broken leg, broken arm, sprained ankle, twisted knee, cut finger, black eye, broken nose, burnt hand, sore back,
  swollen foot, broken rib, bruised shoulder, snake bite, bee sting, bump on the head

prize : prize
  silver cup, gold medal, bicycle, basket of fruit, radio, goose, crate of wine, book token, free ticket, pony,
  copper kettle, box of chocolates, trip to the sea, new hat, bronze medal, pocket watch, set of spoons, pot of honey,
  pair of skates, weekend in the mountains, sewing machine, ham, fountain pen, camera, blue ribbon, picnic basket,
  year's supply of coffee, wheel of cheese

container : container
  / large, small, blue, red, green, old, wooden, locked, brown, yellow, heavy, empty
  basket, box, bag, sack, jar, crate, bottle, barrel, bucket, tin, chest, bowl, drawer, trunk, suitcase, jug,
  envelope, cardboard box, sewing basket, biscuit tin, hatbox, wicker basket, shoebox, wallet, toolbox, vase, teapot,
  rucksack, satchel, cash box, money box

job : job, post
  cook, gardener, night watchman, clerk, driver, teacher, nurse, organist, waiter, porter, housekeeper, librarian,
  bookkeeper, ferryman, guide, caretaker, coachman, shop assistant, lighthouse keeper, groom, secretary, forester,
  train driver, music teacher, translator, postman, baker, mechanic, tailor, chambermaid, shepherd, cashier
"""
