"""Meanings among people: helping, teaching, hiring, beating, telling, hearing; see `meaning` for how to read them."""

from train.world.meaning import parse

MEANINGS = parse("""
teach : A=person B=someone S=subject + span where when why
  A teach B S ~ | A teach S to B | B learn S from A | A give B lessons in S ~ | B take lessons in S from A ~
  A instruct B in S
  S? What did B learn from A? | What were the lessons about? | What subject did A teach B?
  A? Who was B's teacher? | Who gave B lessons? | From whom did B learn S?
  B? Who was A's pupil? | Whom did A teach? | Who took lessons from A?

teach_school : A=person S=subject P=school,town + span now
  A teach S at P | A give lessons in S at P ~ | A be a teacher of S at P | A have a post as a teacher of S at P ~
  S? What was A's subject at P? | What did A teach? | In what did A give lessons at P?
  P? Where did A teach S? | Where did A have a post? | Where did one learn S from A?

learn_trade : A=person B=person T=trade P=town + span when
  A learn the trade of T from B (in P) | A serve an apprenticeship with B as T (in P) ~ | B train A as T (in P)
  T? What trade did A learn? | As what was A trained by B? | What did A become with B's help?
  B? Who was A's master? | Who trained A? | From whom did A learn a trade?
  P? Where did A learn a trade? | In which town was A an apprentice?

help_with : A=person B=someone X=chore + when where why
  A help B with X | A give B a hand with X ~ | A assist B with X | B have the help of A with X ~
  X? What did A help B with? | What did B need help with? | What could B not do alone?
  A? Whose help did B have? | Who gave B a hand? | Who was B's helper?
  B? Whom did A help? | Who was helped by A? | Who got help from A?

rescue : A=person B=someone X=danger + when why where
  A rescue B from X | A save B from X | A pull B out of X | A get B out of X ~ | B be saved from X by A
  = the rescue of B
  A? Who was B's rescuer? | To whom did B owe being alive? | Who came to B's rescue?
  B? Who was rescued? | Whose life did A save? | Who had been in danger?
  X? From what was B rescued? | What was the danger for B? | What was B in?

nurse : A=person B=someone I=illness + span where when
  A nurse B through I | A look after B during I | A take care of B during I | A sit at the bedside of B during I ~
  I? What was wrong with B? | What was B ill with? | From what did B suffer?
  A? Who was B's nurse? | Who sat at B's bedside? | Who cared for B?
  B? Who was ill? | Who had I? | Who was A's patient?

ill : A=person I=illness chance + when span where
  A fall ill with I ~ | A catch I | A go down with I ~ | A come down with I ~
  I? What was wrong with A? | What did A suffer from? | Which illness did A have?
  A? Who was ill? | Who suffered from I? | Who had I?

cure : A=person B=someone I=illness + when long
  A cure B of I | A rid B of I | A free B from I ~ | A heal B of I
  I? What was wrong with B? | What illness did B have?
  A? Who made B well again? | To whom did B owe being well again? | Who was B's doctor?
  B? Who was made well again? | Who was A's patient? | Whom did A make well?

hurt : A=person J=injury chance + when where why
  deed? What happened to A?
  A get J ~ | A come home with J ~ | A suffer J
  J? What happened to A? | What was A's injury? | How was A hurt? | What did the doctor have to treat?
  A? Who was hurt? | Who was injured? | Whose injury was J?

bite : X=biter B=person chance + when where
  X bite B | X sink their teeth into B ~
  X? What bit B? | Which animal hurt B?
  B? Who was bitten? | Who was hurt by X? | Whom did X hurt?

hire : A=person B=person J=job + when why span where
  A hire B as J | A employ B as J | A take on B as J | A give B a job as J ~ | B work for A as J ~
  B be in A's service as J
  J? What did B do for A? | As what was B employed? | What was B's job?
  A? Who was B's employer? | For whom did B work? | Who gave B work?
  B? Who worked for A? | Who was given a job by A? | Who got the job?

dismiss : A=person B=person J=job + when why
  A dismiss B as J | A give B notice as J ~ | A fire B as J | B lose their job as J with A ~
  J? What had B worked as until then? | Which job did B lose?
  A? Who put B out of work? | Through whom did B lose a job?
  B? Who lost a job? | Who was out of work?

succeed : A=person B=person J=post + when why
  A succeed B as J | A follow B as J | A take over as J from B ~ | B be succeeded by A as J | A become J after B ~
  B make way for A as J
  A? Who came after B? | Who was B's successor? | Who got the post after B?
  B? Who was J before A? | Who came before A? | Whose successor was A?
  J? What was A's new post? | What did A become?

appoint : A=person B=someone J=post + when why
  A make B J ~ | A appoint B J | A name B J | A choose B as J
  J? What did B become? | What was B made? | To what post was B called?
  A? Who gave B the post? | Who chose B? | To whom did B owe the post?
  B? Who became J? | Who got the post?

elect : B=person J=post P=club + when
  B be elected J of P | B become J of P ~ | B be voted in as J of P | B win the vote for J of P
  J? What did B become? | What was B's post? | To what post was B elected?
  P? Of what did B become J?
  B? Who won the vote? | Who became J of P? | Who was voted J of P?

resign : A=person J=post P=club + when why
  A resign as J of P ~ | A step down as J of P ~ | A give up the post of J of P ~ | A lay down the office of J of P ~
  J? What had A been until then? | What post did A give up?
  A? Who was no longer J of P? | Who gave up a post? | Who left a post?

found : A=person X=club,shop,school,company P=town + when with why
  A found X (in P) | A set up X (in P) | A start X (in P) | A be the founder of X
  = the founding of X
  A? Who was the founder of X? | To whom does X go back? | Who is X's founder?
  P? Where was X founded? | In which town did X begin?
  ? A establish X (in P)

join : A=person X=club + when why with
  A join X | A become a member of X ~ | A enter X
  X? Of what did A become a member? | What did A belong to from then on?
  A? Who became a member of X? | Who was the new member of X?

leave_club : A=person X=club + when why
  A leave X | A give up being a member of X ~ | A quit X
  X? What did A no longer belong to? | What was A no longer a member of?

run_shop : A=person X=shop P=town + span with why now
  A run X (in P) | A be in charge of X (in P) | A manage X (in P) | A be at the head of X (in P)
  A? Who was the head of X? | Who had the say in X? | Who was at the head of X?
  ? A be responsible for X

open_shop : A=person X=shop P=town + when with why
  A open X (in P) | A start X (in P) | A set up X (in P)
  = the opening of X
  P? Where did A open X? | Where is X? | In which town is A's new business?

close_shop : A=person X=shop + when why
  A close down X | A shut X for good | A give up X | A put an end to X ~
  = the closing of X
  ? A be no longer able to keep X open

lead : A=person X=led + when where why span
  A lead X | A be at the head of X | A be the leader of X | A be in charge of X
  A? Who was the head of X? | Who was the leader of X? | Who had the say in X?

conduct : A=person X=music + when where
  A conduct X | A hold the baton for X ~ | A direct X | A be the conductor of X
  A? Who was the conductor of X? | Who stood in front of X?

organise : A=person X=event P=town + when why help
  A organise X (in P) | A arrange X (in P) | A see to the preparations for X (in P) ~ | A be the organiser of X
  = the preparation of X
  A? Who was behind X? | Whose work was X? | Who was the organiser of X?

open_event : A=person X=event,building + when
  A open X | A declare X open ~ | A perform the opening of X ~ | A give the opening speech at X ~
  = the opening of X

miss_event : A=person X=event + why
  A miss X | A stay away from X | A fail to come to X ~ | A be absent from X
  X? Where was A missing? | What did A stay away from?
  A? Who was missing at X? | Who was absent at X?

attend : A=person X=event P=town + with why when
  A attend X (in P) | A go to X (in P) ~ | A be at X (in P) | A be among the guests at X (in P)
  A? Who was among the guests at X? | Who was there for X? | Whose face was seen at X?

put_off : A=person X=event T=weekday U=weekday + why
  A put off X from T to U | A move X from T to U | A postpone X from T to U
  U? When did X take place in the end? | On which day was X held in the end? | What was the new day of X?
  T? When was X to have been held at first? | What was the first day for X? | For which day had X been planned?
  A? Who changed the day of X? | Whose decision was it to hold X later?

invite : A=person B=someone X=event + when why
  A invite B to X | A ask B to X | B be invited to X by A | B get an invitation to X from A ~
  A send B an invitation to X ~
  = the invitation to X
  A? Whose guest was B? | Who was B's host at X? | At whose wish did B come?
  B? Who was A's guest at X? | Who was asked to come by A?
  X? What was B invited to? | To what did A invite B?

marry : A=person B=person P=town chance + when
  A marry B (in P) | B be married to A (in P) | A have a wedding with B (in P) ~
  = the wedding of A and B
  B? To whom was A married? | Whom did A take in marriage?
  P? Where was the wedding of A and B? | In which town did A and B marry?
  when? When was the wedding of A and B? | When did A and B marry? | When did A and B become a couple?

beat : A=person B=person X=match + when where
  A beat B (at X) | A win against B (at X) ~ | A defeat B (at X) | B lose to A (at X) ~ | B be beaten by A (at X)
  A? Who was the winner at X? | Who was too good for B? | Against whom did B lose?
  B? Who was the loser at X? | Who had to admit defeat? | Against whom did A win?
  X? What did A and B play? | At what did A win?

win_race : A=person X=race P=town + when
  A win X (in P) | A come first in X (in P) ~ | A take first place in X (in P) ~ | A be the winner of X (in P)
  A finish ahead of everyone in X (in P) ~
  A? Who was the winner of X? | Who was the fastest in X? | Who got the first prize in X?
  P? Where did A win? | In which town was X held?
  ? A be better than all the others in X

second : A=person X=race + when why
  A come second in X ~ | A take second place in X ~ | A finish X in second place ~ | A be only second in X
  A? Who was only beaten by the winner of X? | Who was second in X? | Who got the second prize in X?

last : A=person X=race + when why
  A come last in X ~ | A finish last in X ~ | A be the last in X | A finish behind everyone else in X ~
  A? Who was the slowest in X? | Who was last in X? | Who had nobody behind in X?

team_win : A=team B=team N=score P=town + when
  A beat B N (in P) ~ | A defeat B N (in P) ~ | A win N against B (in P) ~ | B lose N to A (in P) ~
  = the match between A and B
  A? Which team won? | Who won the match? | Which team was better than B? | Who were the winners?
  B? Which team lost? | Who lost the match? | Who were the losers?
  N? What was the score? | How did the match between A and B end? | What was the result?
  P? Where did A and B play? | In which town was the match?

score : A=person N=goals T=team + when where
  A score N for T | A get N for T ~ | T owe N to A
  N? How many did A get? | What did A score?
  A? Who scored for T? | Who got N for T?
  T? Which team did A play for? | For which team did A score?

tell : A=person B=someone X=news + when where why
  A tell B X ~ | B hear X from A | A let B know X ~ | B learn X from A | A pass on X to B | B be told X by A
  X? What did A let B know? | What did B hear?
  A? From whom did B hear X? | How did B come to know X?
  B? Whom did A tell X? | Who heard X from A? | With whom did A share X?

warn : A=person B=someone X=hazard + when where why
  A warn B of X | A tell B to look out for X ~ | B be told by A to be careful of X | A give B a warning about X ~
  X? What was B to be careful of? | What did A warn B about?
  A? Who gave the warning? | Whose warning was it? | Who told B to be careful?
  B? Who got the warning? | Who had to be careful?

ask_for : A=person B=someone X=favour + when where why
  A ask B for X | A beg B for X | A request X from B | A turn to B for X ~
  X? What did A want from B? | What was A's wish? | What did A wish for?
  A? Who wanted X? | Who had a wish? | Who begged for X?
  B? From whom did A want X? | To whom did A turn?

promise : A=person B=someone X=gift + when where why
  A promise B X ~ | A promise X to B | A give B their word about X ~ | B be promised X by A
  X? What was B to get? | What was B promised? | About what did A give their word?
  A? Who made the promise? | From whom could B expect X?
  B? Who was to get X? | To whom did A make the promise?

write_to : A=person B=someone + when where why times
  A write to B | A send B a letter ~ | B get a letter from A ~ | B hear from A ~ | B receive a letter from A ~
  A? Who was the writer of the letter? | From whom was the letter? | Whose letter did B get?
  B? To whom was the letter addressed? | Who got a letter from A? | For whom was the letter?

phone : A=person B=someone + when where why times
  A phone B | A ring up B | A call B on the telephone | B get a call from A ~ | A speak to B on the telephone ~
  A? Whose call was it? | Who was the caller? | Who was on the line when B picked up the receiver?
  B? Who got the call? | Who had to come to the telephone? | Whom did A want to speak to?

quarrel : A=person B=someone X=quarrelled + when where
  A quarrel with B about X ~ | A argue with B about X ~ | A have a row with B about X ~ | A fall out with B over X ~
  = the quarrel about X
  X? What was the quarrel about? | What did A and B argue about? | What was the trouble between A and B?
  B? With whom did A have a row? | With whom was A not on speaking terms?

complain : A=person X=nuisance B=someone + when why
  A complain about X (to B) | A make a complaint about X (to B) ~ | A be angry about X | A grumble about X
  X? What was A angry about? | What made A angry? | What annoyed A?
  A? Who was angry about X? | Whom did X annoy? | Whose complaint was it?
  B? Who had to listen to A? | To whom did A complain?

praise : A=person B=someone X=praised + when where
  A praise B for X | A have only good words for B because of X ~ | B be praised by A for X | A speak well of B for X ~
  X? For what was B praised? | What did A like about B? | What did A praise?
  A? Who was full of praise? | Who had good words for B? | Who admired B?
  B? Who was praised? | Whom did A admire? | For whom did A have good words?

thank : A=person B=someone X=praised + when where
  A thank B for X | A be grateful to B for X | A say thank you to B for X ~ | A express thanks to B for X ~
  X? What was A grateful for? | For what was B thanked?
  A? Who was grateful? | Who had reason to thank B?
  B? To whom was A grateful? | Who was thanked?

blame : A=person B=someone X=mishap + when why
  A blame B for X | A say that X was the fault of B ~ | B be blamed for X by A | A accuse B of having caused X ~
  X? What was B supposed to have caused? | What was B blamed for?
  B? Whose fault was X, in the eyes of A? | Who got the blame? | On whom did A put the blame?
  A? Who put the blame on B? | In whose eyes was X the fault of B?

recognise : A=person B=someone F=feature chance + when where
  A recognise B by F | A know B by F ~ | B be recognised by A by F
  F? How did A know that it was B? | What gave B away? | By what was B recognised?
  A? Who saw that it was B? | Who knew B at once?
  B? Whom did A know at once? | Who was recognised?

see : A=person X=animal,bird,vehicle,boat chance + when where tool
  A see X | A spot X | A catch sight of X ~ | A notice X
  ? A set eyes on X

hear : A=person X=noise chance + when where
  A hear X | A listen to X | A make out X
  X? What reached A's ears? | What was the sound that A noticed? | What could A hear?
  A? Whose ears did X reach? | Who noticed X?

dream : A=person X=dreamt chance + when where
  A dream of X ~ | A see X in a dream ~ | A have a dream about X ~
  X? What did A's dream deal with? | What did A see while asleep? | What came up in A's dream?

fear : A=person X=feared + span why now chance
  A be afraid of X | A fear X | A be scared of X | A live in fear of X ~
  X? What did A fear? | What frightened A? | What was A's great fear?
  A? Who was scared of X? | Whom did X frighten? | Who was frightened by X?

like : A=person X=dish,fruit,drink,game,subject,season + why now chance
  A like X best of all | A love X | A be fond of X | A prefer X to everything else ~
  X? What is A's favourite? | What did A like best? | What pleases A most?
  A? Whose favourite is X? | Who was fond of X? | Who liked X?

hate : A=person X=dish,game,weather,subject,noise + why now chance
  A hate X | A detest X | A be unable to stand X | A have a strong dislike of X ~
  X? What did A dislike? | What does A not like at all? | What could A do without?
  A? Who disliked X? | Who does not like X at all?

play_game : A=person B=someone X=game + when where times
  A play X with B | A have a game of X with B ~ | B be A's partner at X
  X? What did A and B play? | What game did A choose? | At what did A and B spend the time?
  B? With whom did A play? | Who was A's partner at X?

play_music : A=person X=instrument E=event + when where
  A play X (at E) | A perform on X (at E) ~ | A make music on X (at E) ~
  X? What did A play? | On what did A perform? | On which instrument did A make music?
  A? Who was the player of X? | Who made music on X?

sing : A=person X=song,aria + when where times why
  A sing X | A give a performance of X ~ | A perform X
  X? What did A sing? | What could one hear from A?

speak : A=person X=topic P=place + when why
  A give a talk about X (in P) ~ | A speak about X (in P) ~ | A hold a lecture on X (in P) ~
  = the talk about X
  X? What was A's talk about? | What was the subject of A's talk? | What did A have to say something about?
  P? Where did A give the talk? | Where did A speak?

read : A=person X=text,book + when where why long
  A read X | A study X from cover to cover | A work their way through X ~
  ? A look into X
  X? What did A read? | What was in A's hands to read?

read_aloud : A=person X=text B=someone + when where why
  A read X to B | A read out X to B | A read B X ~
  B? Who listened to A? | For whom did A read X aloud? | Whose listener was it?
  X? What did A read aloud? | What did B listen to?

photograph : A=person X=animal,building,bird,event,boat + when why
  A photograph X | A take a photograph of X ~ | A take a picture of X ~
  ? A make a picture of X
  X? What can be seen in A's photograph? | What was in front of A's camera?

guide : A=person B=someone X=building,land + when long
  A show B around X ~ | A take B around X ~ | A guide B through X | B be shown around X by A
  A? Who was B's guide? | Who showed B around? | Who led B through X?
  B? Who was shown around? | Whose guide was A?
  X? What did A show B? | What did B see with A?

guard : A=person X=building,prize,container + when span why
  A guard X | A watch over X | A keep watch over X ~ | A stand guard over X ~
  ? A protect X

arrest : A=person B=person X=crime + when where
  A arrest B for X | A take B away for X ~ | B be arrested by A for X | A put B behind bars for X ~
  X? What was B accused of? | Why was B arrested? | What had B done?
  B? Who was arrested? | Who was behind bars? | Who was taken away?
  A? Who made the arrest? | By whom was B taken away?

fine : A=person B=person M=price X=crime + when where
  A fine B M for X ~ | B have to pay A M for X ~ | A make B pay M for X ~
  M? How much did B have to pay? | What was the fine? | How high was the fine?
  X? For what was B fined? | What had B done?
  B? Who was fined? | Who had to pay for X?

persuade : A=person B=someone X=deed + when where
  A persuade B to X ~ | A get B to X ~
  X? What did A persuade B to do? | What did A get B to do? | What did B do in the end because of A?
  A? Who talked B into it? | Who brought B round?
  B? Whom did A talk into it? | Who gave in to A?
""")
