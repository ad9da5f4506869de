"""Meanings of ways: travelling, arriving, meeting, staying and moving house; see `meaning` for how to read them."""

from train.world.meaning import parse

MEANINGS = parse("""
travel : A=person P=town Q=town M=means + when why with long
  A travel (from P) to Q (M) | A go (from P) to Q (M) | A make the journey (from P) to Q (M) ~
  A get (from P) to Q (M) ~
  = A's journey to Q | A's trip to Q
  Q? What was A's destination? | Where was A going? | Where did A's journey end? | Which town did A go to?
  P? Where did A start from? | Where did A's journey begin? | From which town did A set out?
  M? How did A get to Q? | How did A travel? | By what means did A go to Q? | What means of travel did A use?

leave_for : A=person P=town Q=town + when why with
  A leave P for Q | A set off from P for Q ~ | A set out from P to Q ~ | A depart from P for Q ~
  = A's departure from P
  Q? Where was A headed? | Where did A want to go? | What was A's destination? | Which town was A making for?
  P? Where did A set out? | Which town did A leave? | From where did A leave?

arrive : A=person P=town chance + when with why
  A arrive in P ~ | A reach P | A get to P ~ | A come to P ~
  = A's arrival in P
  P? Where did A arrive? | Which town did A reach? | Where did A turn up?
  ? A turn up in P ~

pass_through : A=person P=town Q=town + when why with
  A pass through P on the way to Q ~ | A go to Q by way of P ~ | A travel to Q through P ~
  A stop in P on the way to Q ~
  P? Where did A pass on the way to Q? | Through which town did A go?
  Q? What was A's destination? | Where was A going? | Where did A want to get to?

come_back : A=person P=town,country chance + when why with
  A come back from P ~ | A return from P ~ | A come home from P ~ | A be back from P
  = A's return from P
  P? Where had A been? | From where did A come back? | Where did A return from?

visit : A=person B=someone P=town + when why with times span
  A visit B (in P) | A pay B a visit (in P) ~ | A go to see B (in P) ~ | B have a visit from A (in P) ~
  A call on B (in P)
  = A's visit to B
  A? Who was B's guest? | Who came to see B? | From whom did B have a visit?
  B? Who was A's host? | Whose guest was A?
  P? Where did A visit B? | In which town did A go to see B? | In which town is B's home?

see_place : A=person P=building,land + when why with times
  A visit P | A go to see P | A have a look around P ~ | A look at P | A take a tour of P ~
  = A's visit to P
  P? What did A see? | What did A go to see? | What did A look at?

stay : A=person P=town H=lodging + when span why with
  A stay at H (in P) ~ | A spend the night at H (in P) ~ | A put up at H (in P) ~ | A take a room at H (in P) ~
  A sleep at H (in P) ~
  H? Where did A stay? | Where did A spend the night? | Where did A sleep?
  P? In which town did A stay? | In which town did A spend the night?

move_house : A=person P=town Q=town + when why with
  A move from P to Q ~ | A leave P to live in Q ~ | A change their home from P to Q ~
  = A's move to Q
  P? Where had A lived before? | Where did A live first? | In which town had A lived until then?
  Q? Where did A settle? | Where did A go to live? | Where is A's new home?

settle : A=person P=town,region + when why with
  A settle in P ~ | A go to live in P ~ | A make their home in P ~ | A set up house in P ~
  P? Where did A make a home? | Where did A go to live?

live : A=person P=town,road chance + span why with now
  A live in P ~ | A have a house in P ~ | A be at home in P | A have their home in P ~
  P? Where is A's home? | What is A's place of residence? | Where is A to be found at home?
  A? Whose home is in P? | Who is at home in P? | Who has a house in P?

live_building : A=person P=building chance + span why with
  A live in P ~ | A have their home in P ~ | A make their home in P ~
  P? In what kind of building did A live? | What was A's home? | What building was home to A?

born : A=person P=town chance + when
  A be born in P | A come into the world in P ~ | A see the light of day in P ~
  = A's birth
  P? What is A's birthplace? | Where was A born? | In which town did A's life begin?
  A? Who was born in P? | Whose birthplace is P?
  when? When was A born? | When is A's birthday? | What is the date of A's birth?

grow_up : A=person P=town,region chance + with why
  A grow up in P ~ | A spend their childhood in P ~ | A be brought up in P | A be raised in P
  P? In which place did A spend the years of childhood? | Where was A brought up? | Where was A as a child?
  A? Whose childhood was spent in P? | Who was a child in P?

come_from : A=person P=town,country,region chance + now
  A come from P ~ | A be from P | A be a native of P | A have their roots in P ~
  P? Where is A from? | What is A's home? | Of what place is A a native?
  A? Who is a native of P? | Whose home was P?

die : A=person P=town chance + when why
  A die in P ~ | A pass away in P ~ | A end their life in P ~
  = A's death
  P? Where did A die? | In which town did A's life end? | What was the place of A's death?
  A? Whose life ended in P? | Who died in P?

bury : A=person P=town,place chance + when
  A be buried in P | A find their last resting place in P ~ | A be laid to rest in P
  P? Where is A's grave? | Where does A lie buried? | What is A's last resting place?
  A? Whose grave is in P? | Who lies in P?

cross : A=person X=river,lake,land V=boat,vehicle,animal + when why with long
  A cross X (on V) | A get to the other side of X (on V) ~ | A get across X (on V) ~ | A go over X (on V) ~
  = the crossing of X
  V? On what did A cross X? | What did A use to cross X? | What took A across X?
  X? What did A get across? | What did A cross on V?

climb : A=person X=mountain,tree,tower + when why with times long
  A climb X | A climb up X ~ | A get to the top of X ~ | A make their way up X ~
  = the climbing of X
  ? A reach the highest point of X

sail : A=person V=boat,ship P=town + when why with long
  A sail V to P | A steer V to P | A take V to P | A bring V to P
  P? Where did V go? | Where did A sail? | What port did A steer for?
  V? What did A sail to P? | On what did A get to P? | What did A steer?

drive : A=person V=vehicle P=town + when why with long
  A drive V to P | A take V to P | A be at the wheel of V all the way to P ~
  P? Where did A drive? | Where did V go? | Which town did A drive to?
  V? What did A drive to P? | What did A take to P? | What kind of vehicle did A drive?
  A? Who was the driver of V? | Who was at the wheel of V?

ride : A=person V=mount P=town + when why with long
  A ride V to P | A go to P on V ~ | A make the journey to P on V ~
  P? Where did A ride? | Where did V carry A?
  V? What did A ride? | On what did A go to P? | What carried A to P?

drive_person : A=person B=someone P=town,place V=vehicle,boat + when why
  A take B to P (in V) | A drive B to P (in V) | A give B a lift to P (in V) ~ | B get a lift to P from A (in V) ~
  B? Who was A's passenger? | Whom did A give a lift? | Who got a lift from A?
  P? Where did A take B? | Where did B have to go?
  A? Who gave B a lift? | Who took B along? | Who was B's driver?
  V? In what did A take B to P? | What did A drive B in?

accompany : A=person B=someone P=town,place + when why
  A accompany B to P | A go with B to P ~ | A keep B company on the way to P ~ | A walk B to P
  A? Who was B's companion? | With whom did B go to P? | Who kept B company?
  B? Whose companion was A? | With whom did A go to P?
  P? Where did A and B go?

meet : A=person B=someone chance + when where why
  A meet B | A run into B ~ | A come across B ~ | A bump into B ~
  = A's meeting with B
  where? Where did the two meet? | Where did A and B see each other? | Where was it that A met B?
  when? When did the two meet? | When did A and B see each other?

wait : A=person B=someone chance + where span when why
  A wait for B | A stay until B came ~ | B keep A waiting ~ | A stand waiting for B ~
  B? Who kept A waiting? | Who was late?
  A? Who had to wait? | Who had to wait for B?

follow : A=person B=someone P=town,place + when why
  A follow B to P | A go after B to P ~ | A walk behind B all the way to P ~
  B? Who was followed? | Whom did A go after? | Behind whom did A walk?
  P? Where did A follow B?

flee : A=person P=town,country Q=town,country chance + when why with
  A flee from P to Q ~ | A escape from P to Q ~ | A run away from P to Q ~
  = A's flight from P
  Q? Where did A find shelter? | Where did A go to be safe? | To what place did A run away?
  P? From where did A run away? | In which place was A no longer safe?

get_lost : A=person P=land,forest chance + when why with span
  A get lost in P ~ | A lose their way in P ~| A go astray in P ~
  P? Where did A get lost? | Where did A go the wrong way?

run_away : A=person P=place,building chance + when why
  A run away from P ~ | A escape from P ~ | A leave P in secret ~ | A slip out of P ~
  P? From where did A run away? | What did A leave in secret?

walk_dog : A=person X=dogs P=land,place + when why times
  A walk X in P | A take X for a walk in P | A go for a walk in P with X ~
  P? Where did A take X? | Where did X get its walk?

swim : A=person P=water + when why with times
  A swim in P ~ | A go for a swim in P ~ | A bathe in P ~ | A take a dip in P ~
  P? Where did A take a dip? | In what did A go swimming? | Where did A get wet?

fish : A=person X=catch P=water + when with tool
  A catch X (in P) | A pull X out of the water (in P) | A land X (in P)
  P? Where did A catch X? | Where had X been swimming?
  X? What did A catch? | What was A's catch? | What kind of fish did A catch?

camp : A=person P=land,forest + when span why with
  A camp in P ~ | A put up their tent in P ~ | A spend the night in a tent in P ~
  P? Where did A put up the tent? | Where did A sleep in a tent? | Where was A's camp?

hike : A=person N=distance P=town + when why with long
  A walk N to P ~ | A go N on foot to P ~
  N? How far did A walk? | What distance did A cover on foot? | How far did A have to go?
  P? Where did A walk? | What was the goal of A's walk?

miss : A=person X=transport chance + where when why
  A miss X | A be too late for X| A arrive when X had already left ~
  X? What left without A? | What had gone when A came?

work_abroad : A=person P=country,town J=job + span when why
  A work as J in P ~ | A have a job as J in P ~ | A be employed as J in P | A earn their living as J in P ~
  J? What was A's job in P? | What did A work as? | What did A do for a living? | How did A earn a living?
  P? Where did A work? | Where did A have a job?

study : A=person S=subject P=school,town + when span why
  A study S at P | A take a course in S at P ~ | A go to P to learn S ~ | A be a student of S at P
  S? What was A's subject? | Which subject did A take? | What did A learn at P?
  P? Where did A learn S? | Where was A a student? | Where did A study?

attend_school : A=person P=school chance + span with
  A go to P ~ | A attend P | A be a pupil at P | A get their schooling at P ~
  P? Where did A go to school? | What was A's school? | Which school did A attend?

emigrate : A=person P=country + when why with
  A emigrate to P ~ | A leave home for a new life in P ~ | A go overseas to live in P ~
  P? Where did A emigrate? | In which country did A look for a new life?

hurry : A=person P=place + when why
  A hurry to P ~ | A run to P ~ | A go to P as fast as they could ~ | A rush to P ~
  P? Where did A run? | Where did A go in such haste?
""")
