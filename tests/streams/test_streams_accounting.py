import pytest

from nile.streams.accounting import Accounting
from nile.summaries.errors import NileError


def test_every_tuple_is_in_one_place() -> None:
    account = Accounting()
    account.apply(5)
    account.reject({"null time": 2, "NaN time": 1})
    account.reject({"null time": 1})
    account.arrive_late(3)
    account.shed_applied(2)
    account.check()
    assert account == Accounting(12, 3, 3, 2, 4, {"null time": 3, "NaN time": 1})


def test_the_accounts_of_two_streams_add_up() -> None:
    left, right = Accounting(), Accounting()
    left.reject({"null time": 2})
    right.reject({"null time": 1, "NaN time": 1})
    right.apply(4)
    total = left + right
    total.check()
    assert total.as_dict() == {
        "tuples_in": 8,
        "applied": 4,
        "late": 0,
        "shed": 0,
        "rejected": 4,
        "reasons": {"NaN time": 1, "null time": 3},
    }
    assert left.reasons == {"null time": 2}


@pytest.mark.parametrize(
    "broken",
    [Accounting(tuples_in=1), Accounting(1, rejected=1), Accounting(0, applied=1, shed=-1), Accounting(2, applied=1)],
)
def test_accounts_that_do_not_add_up_are_noticed(broken: Accounting) -> None:
    with pytest.raises(NileError, match="needed in = applied"):
        broken.check()
