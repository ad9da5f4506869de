"""All meanings, and which of them say too nearly the same to stand in one passage."""

from train.world import meanings_goods, meanings_people, meanings_states, meanings_ways, meanings_work

MEANINGS = (
    *meanings_work.MEANINGS,
    *meanings_goods.MEANINGS,
    *meanings_ways.MEANINGS,
    *meanings_people.MEANINGS,
    *meanings_states.MEANINGS,
)

_ALIKE = (
    "mend patch restore stick replace whitewash paint varnish",
    "build make carve design invent sew knit weave paint_picture write copy translate illustrate publish",
    "bake cook brew preserve make serve",
    "clean polish wash_clothes clear_out drain",
    "find turn_up search hide stolen steal lose",
    "give donate send deliver return lend bequeath refuse_gift promise",
    "sell sell_shop sell_goods deal_in auction pawn afford cost order import",
    "belong rent bequeath sell sell_shop lend entrust have_pet",
    "live live_building move_house settle grow_up come_from emigrate work_abroad stay",
    "travel leave_for arrive pass_through come_back move_house sail drive ride flee emigrate",
    "travel leave_for arrive drive drive_person accompany hike sail ride",
    "hire dismiss work_abroad work_on succeed appoint elect resign learn_trade teach_school",
    "teach study learn_trade teach_school attend_school",
    "found open_shop run_shop close_shop sell_shop join leave_club",
    "organise open_event put_off held attend miss_event visitors cancelled invite",
    "win_race second last beat win_prize prize_goes team_win score",
    "cure nurse ill rescue hurt bite",
    "praise thank",
    "quarrel complain blame",
    "stand hang lie near store hold pack fill fetch carry",
    "material coloured paint dye carve whitewash",
    "arrest fine steal stolen",
    "tell phone write_to send warn promise",
    "damaged burn_down collapse flood pull_down break break_down mend sink",
    "load unload carried carry deliver",
    "like fear hate eat drink",
    "read read_aloud write translate",
    "sail_ship sink captain",
    "see photograph visit see_place guide",
    "meet visit accompany follow wait",
    "flood damaged put_out burn_thing light",
    "grow harvest pick sow plant grow_wild bloom",
    "owe lend_money pay pay_back save_up fine",
)


def _alike() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for line in _ALIKE:
        names = frozenset(line.split())
        for name in names:
            found[name] = found.get(name, frozenset()) | names
    return found


ALIKE = _alike()
"""Name of a meaning -> names of those that must not stand beside it."""
