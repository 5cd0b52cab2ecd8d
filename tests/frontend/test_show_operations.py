"""docs/operations.md is printed from the table."""

from pathlib import Path

from tatami.frontend.ops import OPS
from tatami.frontend.show_operations import show_operations


def test_the_page_is_current(update_golden: bool) -> None:
    page = Path(__file__).parents[2] / "docs" / "operations.md"
    if update_golden:
        page.write_text(show_operations())
    assert page.read_text() == show_operations()


def test_every_operation_is_on_it() -> None:
    assert all(f"| `{name}` |" in show_operations() for name in OPS)
