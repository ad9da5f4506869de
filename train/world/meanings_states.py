"""Meanings about things, places and events: where they are, cost, befall; see `meaning` for how to read them."""

from train.world.meaning import parse

MEANINGS = parse("""
stand : X=furniture,machine,artwork,instrument P=room,place + now chance
  X stand in P ~ | X be kept in P | X have their place in P ~ | X be to be found in P
  P? Where is X? | Where is X kept? | Where can one see X? | In which place is X to be found?
  X? What stands in P? | What is kept in P? | What can be found in P?

hang : X=artwork,garment,bell P=room,place + span now chance
  X hang in P ~ | X be hung up in P | X have their place in P ~
  P? Where is X? | Where can X be seen? | Where does X hang?
  X? What hangs in P? | What is to be seen in P?

lie : X=paper,jewel,toy,key,garment C=container + span chance
  X lie in C ~ | X be in C | X be lying in C
  C? Where was X? | What was X in? | Where did X lie? | Where could one have found X?
  X? What was in C? | What lay in C?

belong : X=animal,building,vehicle,boat,land,instrument,jewel,tool A=person + span now chance
  X belong to A ~ | A own X | A be the owner of X | X be the property of A | A have X as their own ~
  A? Whose is X? | Who is the owner of X? | Whose property is X? | To whom does X belong?
  X? What does A own? | What is A's property? | What belongs to A?

cost : X=tool,garment,jewel,object,vehicle,instrument,preserve,bake M=price chance
  X cost M ~ | X be priced at M | X be on sale for M | X be to be had for M
  M? How much is X? | What is the price of X? | What does one have to pay for X? | How much did X cost?
  X? What cost M? | What could one get for M?

weigh_much : X=weighty,animal,catch,machine W=weight chance
  X weigh W ~ | X have a weight of W ~ | X bring W to the scales ~ | X be W in weight
  W? How heavy is X? | What does X weigh? | How much did X weigh? | What is the weight of X?
  X? What weighed W? | What had a weight of W?

long : X=structure,boat,garment,land L=length chance
  X be L long | X have a length of L ~ | X measure L from end to end ~
  L? How long is X? | What is the length of X? | What does X measure?
  X? What was L long? | What had a length of L?

old_as : X=building,tree,machine,artwork Y=year chance
  X date from Y ~ | X be from Y | X go back to Y ~
  Y? How old is X, going by their year? | From what year is X? | From which year does X date? | Of what year is X?
  X? What is from Y? | What dates from Y?

material : X=furniture,object,jewel,toy,artwork,garment M=material chance + now
  X be made of M | X consist of M ~ | X be made out of M
  M? What is X made of? | Of what material is X? | What does X consist of? | What was used to make X?
  X? What is made of M? | What consists of M?

coloured : X=structure,vehicle,boat,building C=colour chance
  X be painted C | X be C in colour | X be C all over
  C? What colour is X? | Which colour was X painted? | What was the colour of X?
  X? What is C? | What was C in colour?

used_as : X=building Y=usage + span now chance
  X serve as Y ~ | X be used as Y | X be in use as Y
  Y? What is X used as? | What does X serve as? | What use was made of X? | What is X today?
  X? What serves as Y? | What is used as Y? | Which building does duty as Y?

hold : X=container Y=goods,fruit,preserve,jewel,paper chance
  X hold Y ~ | X contain Y | Y be in X ~
  Y? What was in X? | What were the contents of X? | What did X contain?
  X? What contained Y? | Where was Y? | What held Y?

carried : V=vehicle,boat,ship Y=goods,furniture,fruit,animal P=town + when
  V carry Y to P | V bring Y to P | V take Y to P | V come to P with a load of Y ~
  Y? What was the load of V? | What did V have on board? | What came to P on V?
  V? What carried Y? | On what did Y get to P?
  P? Where was V going? | What was the destination of V? | Where was Y taken?

sail_ship : S=ship P=town Q=town + when with
  S sail from P to Q ~ | S leave P for Q ~ | S put to sea from P with Q as their destination ~
  S make the passage from P to Q ~
  Q? What was the destination of S? | Where was S bound? | For which port was S bound?
  P? From which port did S come? | Where did S set sail? | What port did S leave?
  S? Which ship sailed to Q? | Which ship left P?

sink : S=ship,boat chance P=town + when why
  deed? What happened to S? | What became of S?
  S sink off P ~ | S go down off P ~ | S go to the bottom of the sea off P ~ | S be lost off P
  = the loss of S
  P? Near which town did S sink? | Where did S go down? | Near what place does S lie at the bottom of the sea?
  S? Which vessel sank? | What went down? | What lies at the bottom of the sea off P?
  ? S come to their end off P ~

captain : A=person S=ship,boat + span now chance
  A be the captain of S | A command S | A be in command of S | S sail under A ~
  A? Who was the captain of S? | Under whom did S sail? | Who gave the orders on S?
  S? Which ship did A command? | Of what was A the captain?

work_on : A=person J=job S=ship,boat + span now
  A work on S as J ~ | A serve on S as J ~ | A be employed on S as J
  J? What was A's work on S? | As what did A work on S?

flood : X=building,land,structure chance + when
  deed? What happened to X?
  X be flooded | X be under water | X stand under water ~
  X? What was under water? | What did the water reach? | What got wet?

burn_down : X=building + when why chance
  deed? What happened to X?
  X burn down ~ | X be destroyed by fire | X go up in flames ~
  = the fire in X
  X? What was destroyed by fire? | Which building caught fire? | What was lost in the flames?

collapse : X=structure,building + when why chance
  deed? What happened to X?
  X collapse ~ | X fall down ~ | X give way ~ | X come down with a crash ~
  = the collapse of X
  X? What fell down? | What came down?

break_down : X=machine,vehicle,boat + when where why chance
  deed? What happened to X? | What was the matter with X?
  X break down ~ | X stop working ~ | X give up the ghost ~ | X go out of order ~
  X? What was out of order? | What did not work any more? | What no longer worked?

damaged : X=building,structure,boat,tree D=disaster + when chance
  X be damaged by D | D damage X | D leave their marks on X ~ | X suffer damage from D
  D? What damaged X? | What was the cause of the damage to X? | What left their marks on X?
  X? What was damaged? | What suffered from D? | To what did D do harm?

stolen : X=jewel,vehicle,animal,instrument,artwork P=place + when chance
  deed? What happened to X? | What became of X?
  X be stolen from P | X be taken from P by thieves | X vanish from P ~ | X go missing from P ~ | X disappear from P ~
  = the disappearance of X
  X? What was missing from P? | What was stolen? | What did the thieves take?
  P? Where had X been before? | Where was X stolen? | What place was visited by thieves?

turn_up : X=jewel,paper,animal,garment,key P=place,room + when chance
  X turn up in P ~ | X be found in P | X come to light in P ~ | X be discovered in P
  P? Where was X? | Where was X found? | Where did somebody find X?
  X? What was found in P? | What came to light in P?

run_off : X=animal,bird P=place,land + when why chance
  deed? What did X do?
  X run away from P ~ | X escape from P ~ | X get out of P ~ | X break out of P ~
  = the escape of X
  P? Where was X kept before? | Where had X been? | From what place did X get away?
  X? What animal got away? | What got away from P? | What was on the loose?

grow_wild : X=flower,tree P=land,nestplace + now chance
  X grow in P ~ | X be to be found in P | X thrive in P ~
  P? Where is X to be found? | Where can one see X? | Where does one come across X?
  X? What grows in P? | What thrives in P?

bloom : X=flower,tree M=month chance + why
  X bloom in M ~ | X come into flower in M ~ | X be in flower in M | X blossom in M ~
  M? When is X in flower? | When did X come into bloom? | In which month did X bloom?
  X? What was in flower in M? | What came into bloom in M?

nest : X=bird P=nestplace + span now chance
  X nest in P ~ | X have their nest in P ~ | X build their nest in P ~ | X bring up their young in P ~
  P? Where was the nest of X? | Where did X bring up their young? | Where is X's nest?
  X? What nests in P? | Which bird's young are in P? | Which bird was at home in P?

born_animal : X=young A=mother chance + when where
  A give birth to X ~ | A have X ~ | A become the mother of X ~ | X be born to A
  A? What was the mother of X? | Which animal had young? | Which animal became a mother?
  X? What was A the mother of? | What was born?

held : E=event P=town + when why now chance
  E be held in P | E take place in P ~ | E be in P | P be the place for E ~
  P? Where was E? | Where did one have to go for E? | Which town had E?
  E? What was held in P? | What took place in P? | What was going on in P?
  when? When was E? | What was the day of E?

last_long : E=event,strike D=duration chance
  E last D ~ | E go on for D ~ | E take D ~ | E be over after D
  D? How long was E? | How long did E last? | How long did E go on? | After how much time was E over?
  E? What lasted D? | What went on for D?

cancelled : E=event R=cause chance + when
  E be cancelled because of R | E be called off because of R | R put a stop to E
  R? Why did E not take place? | Why was E cancelled? | For what reason was E called off?
  R? What was to blame that there was no E?
  E? What did not take place? | What was called off because of R? | To what did R put a stop?

visitors : E=event N=crowd chance + when
  E be attended by N | N come to E ~ | E have N ~ | E draw N ~
  N? How many people came to E? | How large was the crowd at E? | How many were at E?
  N? What was the number of visitors at E?
  E? What was attended by N? | To what did N come?

prize_goes : X=prize E=contest A=person chance + when
  X go to A in E ~ | A be given X in E | A win X in E | A take home X from E
  A? Who got X? | Who won X? | Into whose hands did X come?
  X? What did A get in E? | What was A's prize? | What could A take home?

lead_to : X=lane P=place Q=place now chance
  X lead from P to Q ~ | X run from P to Q ~ | X go from P to Q ~ | X link P and Q ~
  Q? Where does X end? | Where does one get by following X from P? | What is at the other end of X?
  P? Where does X begin? | From where does X lead to Q?
  X? What leads to Q? | What takes one from P to Q? | By what does one get from P to Q?

far : P=town Q=town N=distance chance
  P be N from Q ~ | P lie N from Q ~
  N? How far is P from Q? | What is the distance between P and Q? | How far is it from P to Q?
  N? How far apart are P and Q?

near : X=building Y=place + now chance
  X stand by Y ~ | X be close to Y | X be situated next to Y | X be beside Y
  Y? Where is X? | What is X next to? | What is close to X? | Beside what does X stand?
  X? What stands by Y? | What is next to Y? | What is close to Y?

called : X=dogs,mount,boat N=pet chance
  X be called N | X go by the name of N ~ | X answer to the name of N ~ | X have the name of N ~
  N? What is the name of X? | What is X called? | To what name does X answer?

speak_language : A=person L=language chance + now why
  A speak L ~ | A know L ~ | A be able to speak L | A have a good command of L ~
  L? Which language does A know? | In which language can one talk to A? | What language did A speak?
  A? Who knows L? | Who could talk to people in L? | Who understands L?

have_pet : A=person X=animal,bird chance + span now why
  A keep X as a pet | A have X as a pet | A share their home with X ~
  X? What pet did A have? | What lives in A's home? | What kind of animal lived with A?
  A? Who had X as a pet? | Whose pet was X? | Who lived with X?

open_hours : X=building,shop T=clock U=clock chance
  X be open from T to U | X have their doors open from T to U ~ | X admit visitors from T to U ~
  T? When does X open? | From what time is X open? | At what time may one enter X?
  T? At what hour are the doors of X unlocked?
  U? When does X close? | Until when is X open? | At what time does one have to leave X?
  U? At what hour are the doors of X locked?

leave_time : X=transit P=town T=clock chance
  X leave for P at T ~ | X depart for P at T ~ | X set off for P at T ~
  T? When does X leave for P? | What time does X depart? | At what time does one have to be there for X?
  P? Where does X go? | What is the destination of X? | Where does one get with X?
  X? What goes to P at T? | What leaves for P?

arrive_time : X=transit P=town T=clock chance
  X come from P at T ~ | X arrive from P at T ~ | X get in from P at T ~ | X be due from P at T
  T? When does X from P arrive? | What time does X get in? | At what time is X due?
  P? Where does X come from? | From which town does X come?

number_of : P=town N=number X=facility chance + now
  P have N X ~ | P boast N X ~
  N? How many X does P have? | How many X are there in P? | What is the number of X in P?
  P? Which town has N X? | Where are there N X?

people_in : P=town N=thousands chance + now
  P have N inhabitants ~ | P be home to N people ~
  N? How many people live in P? | What is the population of P? | How many inhabitants does P have? | How large is P?
  P? Which town has N inhabitants? | Where do N people live?

known_for : P=town X=specialty + now chance
  P be known for X | P be famous for X | P be proud of X | P owe their fame to X ~
  X? What is P famous for? | What is P known for? | To what does P owe their fame?
  P? Which town is famous for X? | What town is proud of X?

flow : R=river P=town S=lake chance
  R flow through P into S ~ | R run through P to S ~ | R take their way through P into S ~
  S? Into which lake does R flow? | Where does R end? | Where does the water of R go?
  P? Which town lies on R? | Through which town does R flow?
  R? Which river flows through P? | Which river ends in S? | On which river does P lie?
""")
