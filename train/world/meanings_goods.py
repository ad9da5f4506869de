"""Meanings of having: buying, lending, giving, losing, hiding and carrying; see `meaning` for how to read them."""

from train.world.meaning import parse

MEANINGS = parse("""
sell : A=person B=person X=animal,tool,vehicle,boat,machine,furniture,instrument,jewel,garment,artwork,building,object
  + when where price why
  A sell X (to B) | B buy X (from A) | B purchase X (from A) | A let B have X for money ~ | B acquire X (from A)
  = the sale of X
  ? A part with X
  price? How much did X cost? | What was the price of X? | How much was paid for X? | What did B pay for X?
  price? How much money did A get for X? | How much did B have to pay for X?
  B? Who was the buyer of X? | Into whose hands did X pass? | Who became the owner of X? | Who has X now?
  A? Who was the seller of X? | Who had X first?

sell_shop : A=person B=person X=shop + when price why
  A sell X (to B) | B buy X (from A) | B take over X (from A) | A hand over X (to B)
  = the sale of X
  price? How much did X cost? | What was the price of X? | How much was paid for X? | What did B pay for X?
  B? Who was the new owner of X? | Into whose hands did X pass?
  A? Who had owned X before? | Who was the former owner of X?

sell_goods : A=person B=person X=goods,fruit,vegetable,crop,preserve,countable + when where price why
  A sell X (to B) | B buy X (from A) | A supply B with X | B purchase X (from A)
  A provide B with X
  ? B get X (from A)
  price? How much did X cost? | What did B pay for X? | How much did A charge for X? | How much was B charged for X?
  A? Who was the seller of X?
  B? Who was the buyer of X?

deal_in : A=person X=goods,tool,garment,toy P=town + span now
  A deal in X (in P) ~ | A sell X (in P) | A trade in X (in P) ~ | A have X for sale (in P) ~
  X? What could one buy from A? | What were the goods that A dealt in?

auction : A=person B=person X=artwork,furniture,jewel,instrument,land + when where price why
  A auction X | B buy X at the auction | A put X up for auction | B make the highest bid for X ~
  B get X at the auction
  price? How much did X go for? | What was bid for X? | What did X fetch?

lend : A=person B=person X=tool,vehicle,instrument,garment,object,boat,text + when why span where
  A lend X to B | A lend B X ~ | B borrow X from A | B have X on loan from A ~ | A let B use X ~
  = the loan of X
  A? Who was so kind as to let B use X? | Whose X did B borrow? | To whom did X really belong?
  B? Who was allowed to use X? | Who had to give X back?

return : A=person B=person X=tool,vehicle,instrument,garment,object,jewel + when why where
  A return X to B | A give X back to B | A bring X back to B | B get X back from A ~ | A take X back to B
  = the return of X
  B? Who had X again in the end? | To whom did X go back?

rent : A=person B=person X=building,land,vehicle,boat,room + span when price why
  A rent X from B | B let X to A | B rent out X (to A) | A be the tenant of X
  price? What was the rent for X? | How much did A pay for X? | How much did B charge for X?
  A? Who was the tenant of X?
  B? Who was the landlord of X? | To whom did X belong?

give : A=person B=person X=animal,jewel,toy,garment,object,instrument,furniture,flower,preserve,text
  + when why where purpose
  A give B X ~ | A give X to B | B receive X from A | B be given X by A | A make B a present of X ~
  A present B with X
  = the gift of X
  ? B get X from A ~
  A? Who was the giver of X? | From whom did X come? | Who was so generous as to give B X?
  B? Who was given X? | For whom was X? | Who was the lucky one to get X?
  X? What was A's present to B? | What did B get as a present from A? | What did A choose as a present for B?

bequeath : A=person B=person X=building,shop,land,jewel,instrument,furniture,artwork chance + why when
  A leave X to B (in their will) | B inherit X (from A) | X pass to B after the death of A ~
  A leave B X (in their will) ~
  B? Who was the heir to X? | Who got X when A died? | To whom did X go after A's death?
  A? From whose estate did X come?

donate : A=person X=artwork,goods,animal,object,text,machine,instrument P=place + when why
  A donate X to P | A make P a gift of X ~ | P receive X from A ~ | A give X to P | P be given X by A
  = the donation of X
  A? Who was the donor of X? | Whose gift is X?
  P? Which place got X? | Where did X go as a gift?

swap : A=person B=person X=tool,toy,animal,garment,jewel Y=tool,toy,animal,object + when where why
  A swap X for Y with B | A give B X in exchange for Y ~ | A trade X for Y with B | A exchange X for Y with B
  Y? What did A get for X? | What did A get in exchange for X? | What did B give for X?
  X? What did A give for Y? | What did B get for Y?
  = the exchange of X for Y

owe : A=person B=person M=price chance + span why now
  A owe B M ~ | A be in debt to B for M | A have to pay B M ~
  M? How much did A owe B? | How much money was A to pay back to B? | What did B have to get from A?
  B? Who was to get money from A? | To whom did A owe money?
  A? Who owed B money? | Who was in debt to B?

lend_money : A=person B=person M=price + when why purpose where
  A lend B M ~ | B borrow M from A | A lend M to B | B get a loan of M from A ~
  M? How much did A lend B? | How much money did B borrow? | What was the amount of the loan?

pay : A=person B=person M=price F=service + when why where
  A pay B M (for F) ~ | B get M (from A) (for F) ~ | B charge A M (for F) ~ | B receive M from A (for F) ~
  M? How much did B get? | How much did A pay B? | What did A pay B? | What did B charge A?
  M? How much money changed hands?
  F? What did A pay B for? | For what did B get the money?
  A? Who paid B? | Who gave B money?
  B? Who was paid by A? | Who got money from A?

pay_back : A=person B=person M=price + when why where
  A pay back M to B | A pay B back M ~ | B get back M from A ~ | A settle a debt of M with B ~
  M? How much did B get back? | How much did A pay back?

save_up : A=person M=price X=vehicle,instrument,boat,machine,animal + span why
  A save M for X | A put aside M for X | A put M in the bank for X ~ | A save up M to buy X ~
  M? How much did A save? | How much money did A put aside?
  X? What did A save up for? | What did A want to buy? | What was the money meant for?

win_prize : A=person X=prize E=contest chance + when where
  A win X (in E) | A get X as a prize (in E) ~ | A be awarded X (in E) | A go home with X (from E) ~
  X? What was the prize for A? | What did A get in E? | What was A's prize?
  E? In what did A win X? | For what did A win X?

steal : A=person B=person X=animal,jewel,vehicle,artwork,instrument,garment,tool,object,paper + when where why
  A steal X (from B) | A take X (from B) without asking | A rob B of X | A make off with X ~ | B be robbed of X by A
  = the theft of X
  A? Who was the thief of X? | Who was guilty of taking X?
  B? Who was the victim of the theft of X? | Whose X was stolen?

lose : A=person X=jewel,paper,garment,toy,key,tool,animal,object chance + when where why
  A lose X | A mislay X | A be unable to find X
  = the loss of X
  X? What was A missing? | What did A no longer have?
  ? A look for X in vain ~

find : A=person X=jewel,paper,garment,toy,key,animal,bird,object,artwork chance + when where
  A find X | A come across X | A discover X | A stumble upon X | A happen upon X ~
  = the discovery of X
  ? A be the finder of X
  A? Who was the finder of X?

search : A=person X=jewel,paper,garment,animal,key,object,person + when where why tool long
  A search for X | A look for X | A hunt for X | A try to find X
  = the search for X

hide : A=person X=jewel,paper,toy,prize,key,object,instrument C=container + when where why
  A hide X in C | A put X out of sight in C ~ | A conceal X in C | A put X in C so that nobody would see it ~
  C? Where did A hide X? | In what did A hide X? | What was X hidden in? | What was the hiding place of X?

store : A=person X=goods,fruit,vegetable,crop,preserve,garment C=container,place + when why span
  A store X in C | A keep X in C | A lay up X in C ~ | A stow X in C
  C? Where did A keep X? | Where was X kept? | In what did A store X?

lock_up : A=person X=building,container,room + when why tool
  A lock X | A lock up X | A turn the key of X ~ | A bolt X
  ? A close X so that nobody could get in ~

open : A=person X=container,door + when why tool
  A open X | A unlock X | A get X open ~
  = the opening of X

throw_away : A=person X=paper,toy,garment,furniture,object,bake + when where why @2
  A throw away X | A throw X out | A put X in the dustbin ~ | A discard X | A get rid of X

burn_thing : A=person X=paper,furniture,toy,garment + when where why @2
  A burn X | A throw X into the fire ~ | A put X into the stove ~ | A set fire to X ~
  = the burning of X
  ? A destroy X

break : A=person X=machine,instrument,toy,object chance + when where why tool
  A break X | A smash X | A knock X to pieces ~ | A leave X in pieces ~
  ? A damage X | A be to blame for what happened to X

spill : A=person X=drink,goods chance + when where why
  A spill X | A knock over X | A upset X | A let X run all over the floor ~

carry : A=person X=furniture,goods,container,instrument,machine P=place + when why help long
  A carry X to P | A take X to P | A bring X to P | A lug X to P
  P? Where did A take X? | Where did X go? | What was X carried to?

deliver : A=person X=goods,furniture,paper,preserve,bake,flower B=someone + when where long
  A deliver X to B | A bring X to B | B get X delivered by A ~ | A drop off X for B | A bring B X ~ | A take X to B
  = the delivery of X
  B? Who was X for? | Who got X? | To whom did A bring X?

send : A=person X=paper,toy,preserve,garment,flower,text B=someone + when why
  A send X to B | A send B X ~ | A post X to B | X reach B from A ~
  ? B get X from A ~ | B receive X from A ~
  A? Who was the sender of X? | From whom was X?
  B? Who was X addressed to? | To whom was X addressed?

fetch : A=person X=tool,container,machine,goods,object P=place B=someone + when why
  A fetch X from P (for B) | A get X from P (for B) ~ | A bring X from P (for B)
  P? Where did A get X? | Where had X been until then? | From what place did A bring X?

load : A=person X=goods,furniture,fruit,crop,vegetable V=vehicle,boat + when where help long
  A load X onto V | A load V with X | A put X on V | A fill V with X ~
  X? What did A load onto V? | What was the load of V? | What was V carrying? | What was on V?
  V? What did A load with X? | Onto what did A load X? | What carried X?

unload : A=person X=goods,furniture,fruit,vegetable V=vehicle,boat + when where help long
  A unload X from V | A take X off V ~ | A get X off V ~
  X? What did A take off V? | What had V brought? | What had been on V?

pack : A=person X=garment,object,preserve,text C=container + when why purpose
  A pack X into C | A put X into C | A stow X in C
  X? What did A put into C? | What was in C?
  C? What did A pack X into? | In what did A put X?

pick_up : A=person X=container,paper,jewel,toy + when where why
  A pick up X | A lift X from the ground | A bend down for X ~ | A raise X from the floor ~
  ? A take X in hand ~

drop : A=person X=container,instrument,toy,object chance + when where why
  A drop X | A let X fall ~ | A let X slip out of their hands ~
  ? A fail to hold on to X

choose : A=person X=garment,animal,jewel,toy,bake,furniture Y=garment,animal,jewel,toy,bake,furniture + when where why
  A choose X over Y | A pick X instead of Y | A take X rather than Y | A prefer X to Y | A decide on X and against Y ~
  X? Which of the two did A take? | What did A take in the end? | What did A like better? | What was A's choice?
  Y? What did A leave behind? | What did A decide against? | What did A leave?

order : A=person X=machine,furniture,goods,garment,text P=town + when why price
  A order X (from P) | A put in an order for X (from P) ~ | A place an order for X (in P) ~ | A send for X (from P) ~
  = the order of X
  P? Where did A order X? | Where was X to come from? | From which town did A order X?

import : A=person X=goods,drink,fruit,instrument P=country + span when now
  A import X from P | A bring X into the country from P | A get X from P | A buy X in P ~
  P? Where did X come from? | From which country did A import X? | In which country did A buy X?

wear : A=person X=garment,jewel E=event + why when now
  A wear X (at E) | A be dressed in X (at E)
  ! A come to E in X ~
  X? What did A have on? | What was A dressed in?

collect : A=person X=collectible + span why now
  A collect X | A have a collection of X ~ | A be a collector of X | A gather X wherever they could ~
  X? What did A's collection consist of? | What did A have a collection of?
  A? Whose collection of X is it?

need : A=person X=tool,machine,paper,garment,object chance + when why purpose
  A need X | A be in need of X

afford : A=person X=vehicle,instrument,building,garment M=price + why
  A spend M on X | A pay M for X | A give M for X ~ | A put down M for X ~
  M? How much did X cost? | How much did A pay for X? | What did A pay for X? | What was the price of X?
  X? What did A get for M? | What did A spend M on? | What cost A M?

entrust : A=person X=animal,key,shop,building,paper B=someone + when why span
  A leave X in the care of B ~ | A entrust X to B | B look after X for A | B take care of X for A
  A ask B to keep an eye on X ~
  B? In whose care was X? | Who was in charge of X? | Who had X while A was away?
  A? Who could not look after X? | On whose behalf did B look after X?

refuse_gift : A=person X=jewel,animal,prize,bake,drink B=someone + when why
  A refuse to take X from B ~ | A turn down X from B | A say no to X from B ~| B offer X to A in vain ~
  X? What was A unwilling to take? | What did A turn down? | What did B offer in vain?
  A? Who did not accept X? | Who turned down X? | Who said no to X?
  B? Who offered X in vain? | Whose offer did A turn down?

pawn : A=person X=jewel,instrument,garment,machine + when where price why
  A pawn X | A take X to the pawnbroker | A leave X at the pawnbroker's | A get a loan on X ~
  price? How much did A get for X? | How much was lent on X?
""")
