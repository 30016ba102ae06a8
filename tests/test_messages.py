"""The nearest name, and lists of names."""

from novidgp.messages import listed, nearest, unknown


def test_the_nearest_name_is_offered_and_none_if_nothing_is_near():
    assert nearest("bostn", ["energy", "boston"]) == "boston"
    assert nearest("bostn", ["energy"]) is None
    assert nearest("abxx", ["abcd"], cutoff=0.4) == "abcd"
    assert nearest("abxx", ["abcd"], cutoff=0.6) is None


def test_an_unknown_value_is_named_with_the_choices():
    assert unknown("kernel", "rqq", ["rq", "rbf"]) == (
        "kernel='rqq' is unknown. Did you mean 'rq'? Choose one of: 'rq', 'rbf'."
    )
    assert unknown("kernel", 3, ()) == "kernel=3 is unknown. Choose one of: none."


def test_long_lists_are_cut():
    assert listed(["a", "b"]) == "'a', 'b'"
    assert listed(["a", "b", "c"], limit=1) == "'a' and 2 more"
