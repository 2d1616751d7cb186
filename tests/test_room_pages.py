"""docs/reference/rooms.md: every optimisation has an example in which it changes its stage. See also
tests/test_docs.py.
"""

import pytest
import room_pages

from minitri.optimize.pass_table import OPTIONAL, ROOMS


def test_every_room_has_an_example() -> None:
    assert set(room_pages.examples()) == set(OPTIONAL)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_an_example_shows_its_room(room: room_pages.Room) -> None:
    lines = list(room_pages.difference(room))
    assert any(line.startswith("+") for line in lines) and any(line.startswith("-") for line in lines)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_room_has_an_idea_and_code(room: room_pages.Room) -> None:
    first, rest = room_pages.idea(room)
    assert first.endswith(".") and rest
    assert room_pages.lines(room) > 0
