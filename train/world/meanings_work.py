"""Meanings of work: making, mending, cleaning, building, growing and cooking; see `meaning` for how to read them."""

from train.world.meaning import parse

MEANINGS = parse("""
mend : A=person X=machine,furniture,vehicle,boat,toy,structure,instrument + when where tool why help long price
  A mend X | A repair X | A fix X | A put X right | A get X working again ~ | A get X back in working order ~
  = the repair of X | the repair work on X
  ? A see to X

patch : A=person X=garment + when where why help long
  A mend X | A patch X | A darn X | A sew up the hole in X ~ | A stitch the tear in X ~
  ? A repair X

paint : A=person X=structure,furniture,boat,building C=colour + when why help long
  A paint X C ~ | A give X a coat of C paint ~ | A put C paint on X ~ | A turn X C with a brush ~
  C? What colour did A paint X? | Which colour did A choose for X? | What is the colour of X now?
  C? In what colour did A paint X?
  A? Who painted X? | Who gave X its new colour? | Who repainted X? | Who changed the colour of X?
  X? What did A paint C? | What was painted C? | What got a coat of C paint?

whitewash : A=person X=building,room,structure + when tool why help long
  A paint X | A give X a fresh coat of paint | A put a new coat of paint on X | A repaint X
  ? A brighten up X | A redecorate X

varnish : A=person X=furniture,instrument,boat + when where tool long
  A varnish X | A put a coat of varnish on X ~ | A give X a coat of varnish
  ? A treat X with varnish

polish : A=person X=furniture,jewel,instrument,vehicle + when where why help long
  A polish X | A rub X until it shone ~ | A make X shine ~ | A give X a good polish
  = the polishing of X

wash_clothes : A=person X=garment + when where why
  A wash X | A do the washing of X ~ | A launder X | A get X clean with soap and water ~
  ? A clean X

clean : A=person X=machine,structure,building,vehicle,instrument + when tool why help long
  A clean X | A scrub X | A give X a good clean | A get the dirt off X ~ | A rid X of dirt and dust
  = the cleaning of X

sharpen : A=person X=blade + when where why long
  A sharpen X | A put a new edge on X ~ | A grind X | A make X sharp again ~ | A hone X

oil : A=person X=machine,vehicle + when why
  A oil X | A grease X | A put oil on X ~ | A put a few drops of oil into X ~ | A lubricate X

build : A=person X=building,boat,structure + when site why help long @0
  A build X | A put up X | A construct X | A erect X
  = the construction of X | the building of X
  ? A be the builder of X | A be responsible for building X

make : A=person X=furniture,toy,instrument,object + when where help long tool for @0
  A make X | A put X together | A build X | A make X with their own hands ~
  ? A be the maker of X | A produce X | A craft X
  A? Whose work is X? | Who was the maker of X?

carve : A=person X=toy,furniture M=material + when where long @0
  A carve X (out of M) | A cut X (from M) | A shape X with a knife (out of M)
  ? A make X (from M)
  M? What is X made of? | What did A use for X? | Of what material is X? | What material was X carved from?
  ? A create X

sew : A=person X=garment + when where for long @0
  A sew X | A make X | A stitch X together
  ? A be the maker of X | A produce X with needle and thread

knit : A=person X=garment + when where for long @0
  A knit X | A make X out of wool ~ | A knit X from wool ~
  ? A make X

design : A=person X=building,structure,garment,boat + when for @0
  A design X | A draw the plans for X ~ | A draw up the plans for X ~ | A be the designer of X
  A make the plans for X ~
  ? A be the architect behind X | A plan what X would look like ~
  = the design of X

invent : A=person X=machine,toy,tool + when where @0
  A invent X | A come up with the idea for X ~ | A be the inventor of X | A think up X | A have the idea of making X ~
  = the invention of X
  A? Whose invention was X? | Whose idea was X?

paint_picture : A=person X=artwork + when where for long @0
  A paint X | A be the painter of X
  ? A create X | A make X
  ? A be the artist behind X
  A? Whose work is X? | By whom is X?

write : A=person X=text + when where for long why @0
  A write X | A be the author of X | A compose X | A put X down on paper ~
  ? A be the writer of X
  A? Whose work is X? | By whom is X? | From whose pen is X?

illustrate : A=person X=text + when for long
  A illustrate X | A draw the pictures for X ~ | A do the drawings in X ~ | A make the pictures for X ~
  ? A be the illustrator of X | A provide the pictures for X
  = the illustration of X

translate : A=person X=text L=language + when for long
  A translate X (into L) | A put X into L | A turn X into L | A be the translator of X
  ? A make it possible to read X in L ~
  = the translation of X
  L? Into which language was X translated? | Which language did A translate X into?
  L? In which language can X be read now?

publish : A=person X=text + when where
  A publish X | A bring out X | A be the publisher of X | A put X into print ~
  = the publication of X
  ? A print X

copy : A=person X=paper,text + when where for long why
  A copy X | A make a copy of X | A write X out again ~ | A copy out X by hand
  ? A duplicate X

dig : A=person X=structure + when site tool help long @0
  ! A dig X ~
  A dig out X | A clear X of mud | A clear the mud out of X ~
  ? A work on X with a spade

pull_down : A=person X=building,structure + when why help long @2
  A pull down X | A tear down X | A demolish X | A knock down X | A have X demolished ~
  = the demolition of X
  ? A get rid of X | A destroy X

enlarge : A=person X=building,shop,structure + when why help
  A enlarge X | A make X bigger ~ | A extend X | A add to X ~
  = the extension of X
  ? A change the size of X

restore : A=person X=artwork,building,furniture + when why help long
  A restore X | A bring X back to its old beauty ~ | A make X look as it once did ~ | A do up X | A renovate X
  = the restoration of X

clear_out : A=person X=building,container + when why help long
  A empty X | A clear out X | A take everything out of X ~
  ! A leave nothing in X ~
  ? A make X empty ~

fill : A=person X=container Y=goods,fruit,vegetable,preserve + when where why
  A fill X with Y | A put Y into X ~ | A pour Y into X ~
  ! A load X with Y
  Y? What did A put into X? | What was X filled with? | What was in X then? | With what did A fill X?
  X? What did A fill with Y? | Into what did A put Y? | What did A put Y into?

plant : A=person X=tree,flower P=land,place + when tool why help
  A plant X (in P) | A put X into the ground (in P) | A set X (in P)
  = the planting of X
  P? Where did A plant X? | In what place does X grow now?

cut_down : A=person X=tree + when site tool why help @2
  A cut down X | A fell X | A chop down X | A take an axe to X ~
  = the felling of X
  ? A get rid of X

prune : A=person X=tree + when tool why
  A prune X | A trim X | A cut back the branches of X ~ | A cut X back | A shorten the branches of X ~

sow : A=person X=crop,vegetable P=land + when why help
  A sow X (in P) | A plant P with X | A put X in P ~
  = the sowing of X
  ? A grow X (in P)

grow : A=person X=vegetable,fruit,flower,crop P=land,town + span why now
  A grow X (in P) | A raise X (in P) | A cultivate X (in P)
  ? A be a grower of X

harvest : A=person X=crop,vegetable,fruit + when why help long
  A harvest X | A bring in X | A gather in X | A get X in before the rain ~
  = the harvest of X
  ? A reap X

pick : A=person X=fruit,flower P=land,place + when why help for
  A pick X (in P) | A gather X (in P)
  ! A fill a basket with X (in P)
  ? A collect X (in P)

water : A=person X=flower,tree,vegetable + when why times tool
  A water X | A give X water | A pour water on X ~ | A see to it that X had enough water ~
  ? A keep X from drying out

milk : A=person X=milker + when where times help
  A milk X | A do the milking of X ~ | A get milk from X ~

feed : A=person X=animal,bird Y=feed + when where times
  A feed X (with Y) | A give X something to eat ~ | A give Y to X | A see to it that X got its food ~
  Y? What did A feed X with? | What did A give X to eat? | What food did X get from A? | What did X get to eat?

groom : A=person X=horselike + when where for
  A brush X | A groom X | A comb the coat of X ~ | A rub down X
  ? A take care of X

shear : A=person X=woolly + when where tool
  A shear X | A clip the wool of X ~ | A take the wool off X ~ | A cut the wool off X ~

breed : A=person X=pets + span where now
  A breed X | A raise X | A be a breeder of X | A make a living by raising X ~
  = the breeding of X
  ? A keep X

bake : A=person X=bake + when where for long why help @0
  A bake X | A make X in the oven ~ | A prepare X in the oven ~
  ? A make X | A be the baker of X
  = the baking of X

cook : A=person X=dish + when where for help why @0
  A cook X | A make X | A prepare X
  ? A be the one at the stove when there was X ~
  = the cooking of X

eat : A=person X=dish,fruit,bake + when where why @2
  A eat X | A have X for a meal ~ | A finish off X | A help themself to X ~
  ? A consume X | A put away X

drink : A=person X=drink + when where why @2
  A drink X | A have a glass of X ~ | A quench their thirst with X
  ? A have X to drink ~

brew : A=person X=drink + when where for @0
  A prepare X | A make X | A see to the preparation of X ~
  = the preparation of X

serve : A=person X=dish,drink,bake B=someone + when where
  A serve B X ~ | A serve X to B | A bring B X ~ | A put X in front of B ~
  ? A give X to B
  B? Who was served X? | Who got X from A? | To whom did A serve X?

burn_food : A=person X=dish,bake chance + when why
  A burn X | A let X burn ~ | A leave X on the fire for too long ~ | A forget X in the oven ~
  ? A spoil X

peel : A=person X=fruit,vegetable + when where tool for
  A peel X | A take the skin off X ~ | A remove the skin of X
  ? A prepare X

preserve : A=person X=preserve + when where for help long @0
  A make X | A prepare X
  ? A be the maker of X
  = the making of X

taste : A=person X=dish,bake,drink,preserve + when where why
  A taste X | A try X | A take a little of X to see how it was ~ | A sample X
  ? A test X for its flavour

hang_picture : A=person X=artwork P=room + when tool why help
  A hang X in P | A hang up X (in P) | A put up X on the wall (of P) | A give X a place on the wall of P ~
  P? Where did A hang X? | In which room can X be seen now? | On the wall of which room did A hang X?

light : A=person X=light + when where why
  A light X | A set a match to X ~ | A get X burning ~
  ? A make X burn ~

put_out : A=person X=fire + when where why help tool
  A put out X | A extinguish X | A pour water on X until it was out ~ | A fight X until it was out ~
  ? A stop X

ring : A=person X=bell + when why times
  A ring X | A pull the rope of X ~ | A sound X | A make X ring out ~

wind : A=person X=timepiece + when times why
  A wind up X | A wind X | A turn the key of X ~ | A set X going again ~

tune : A=person X=stringed + when where for long
  A tune X | A put X in tune ~ | A get X into tune
  = the tuning of X

chop_wood : A=person X=wood + when where tool why help long
  A chop X | A split X | A cut up X with an axe | A cut X into pieces

dye : A=person X=garment C=colour + when where why
  A dye X C ~ | A change the colour of X to C ~ | A turn X C with dye ~
  C? What colour did A dye X? | Which colour did X become? | What is the colour of X now?
  A? Who dyed X? | Who changed the colour of X? | Who gave X a new colour?

weave : A=person X=woven + when where for long @0
  A weave X | A make X on a loom ~ | A make X at the loom ~
  ? A make X

iron : A=person X=garment + when where for why
  A iron X | A press X | A get the creases out of X ~ | A smooth out X with an iron

fold : A=person X=laundry + when where
  A fold up X | A fold X | A lay X together neatly

lay_floor : A=person X=surface + when help long
  A lay X | A put down X | A put in X

pave : A=person X=path M=paving + when help why long
  A pave X (with M) | A cover X with M | A lay M on X ~ | A surface X (with M)
  M? What is X paved with? | With what did A pave X? | What did A cover X with?

insulate : A=person X=building M=stuffing + when why help
  A insulate X (with M) | A keep the cold out of X with M ~ | A fill the walls of X with M ~
  M? What did A use to keep X warm? | With what did A insulate X? | What is in the walls of X?

fence : A=person X=land + when why help long
  A fence in X | A put a fence around X ~ | A put up a fence around X ~ | A enclose X with a fence
  = the fencing of X

plough : A=person X=land + when why help long
  A plough X | A plough up X | A work X with a plough ~ | A turn over the soil of X ~
  = the ploughing of X

mow : A=person X=grassy + when tool why long
  A mow X | A cut the grass of X ~ | A mow the grass in X ~
  = the mowing of X

drain : A=person X=wet + when why help long
  A drain X | A let the water out of X ~ | A empty X of water | A get the water out of X ~
  = the draining of X

replace : A=person X=machine,structure,furniture Y=machine,furniture + when why
  A replace X with Y | A put Y in the place of X ~ | A exchange X for Y
  Y? What took the place of X? | What did A put in the place of X? | What replaced X?
  X? What was replaced by Y? | What had been there before Y? | What did A replace with Y?

test : A=person X=machine,vehicle,boat + when where long why
  A test X | A try out X | A put X to the test ~ | A check whether X worked ~
  = the test of X

inspect : A=person X=building,structure,boat,vehicle + when why help
  A inspect X | A examine X | A look X over | A check X for damage | A take a close look at X ~
  = the inspection of X

measure : A=person X=land,structure,furniture + when tool why help
  A measure X | A take the measurements of X ~ | A find out how long and how wide X was ~
  = the measuring of X

weigh : A=person X=weighty + when where why
  A weigh X | A put X on the scales ~ | A find out how heavy X was ~
  = the weighing of X

count_things : A=person X=heaps + when where why help times
  A count X | A find out how many X there were ~ | A go through X one by one to get the number ~
  = the counting of X

decorate : A=person X=room,building Y=flower + when why help
  A decorate X with Y | A put Y all over X ~ | A adorn X with Y
  Y? What was X decorated with? | With what did A decorate X? | What did A use to make X look pretty?
  X? What was decorated with Y? | What did A adorn with Y?

wrap : A=person X=jewel,toy,object Y=wrapping + when where for
  A wrap X in Y | A put Y around X ~ | A cover X with Y
  Y? What was X wrapped in? | In what did A wrap X? | What was around X?

stick : A=person X=broken + when where why help
  A glue X together | A stick X together again | A put the pieces of X together again ~
  ? A mend X with glue

tow : A=person X=vehicle,boat P=town + when help why
  A tow X to P | A pull X to P on a rope | A haul X to P | A drag X to P
""")
