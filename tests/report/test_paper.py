"""The paper's figures, against a few read off the tables again; stored on the scale of results."""

import pytest

from caplore.report import paper


def test_figures_are_those_of_the_paper() -> None:
    beam = {row.label: row.scores for row in paper.rows("coco", "beam")}
    assert beam["SLL-SLE"] == pytest.approx({"meteor": 0.270, "cider_d": 1.172, "spice": 0.203})
    assert beam["NIC"] == pytest.approx({"meteor": 0.237, "cider_d": 0.855})
    sampled = {row.label: row.scores for row in paper.rows("coco", "rs")}
    assert sampled["SLL-SLE"] == pytest.approx(
        {"cider_d": 1.159, "div_1": 0.29, "div_2": 0.40, "mbleu_4": 0.68}
    )
    assert sampled["GAN"] == {"div_1": 0.41, "div_2": 0.55, "mbleu_4": 0.51}
    tgif = {row.label: row.scores for row in paper.rows("tgif", "beam")}
    assert tgif["SLL-SLE"] == pytest.approx({"meteor": 0.188, "cider_d": 0.508, "spice": 0.166})


def test_the_claim_stands_in_the_figures_as_stored() -> None:
    """SLL-SLE is better than SLL and SLL-ME on both sides at once: a slip of a digit would show."""
    for dataset in ("coco", "tgif"):
        beam = {row.label: row.scores["cider_d"] for row in paper.rows(dataset, "beam")}
        assert beam["SLL-SLE"] > max(beam["SLL"], beam["SLL-ME"])
    for part in ("rs", "bs"):
        sets = {row.label: row.scores for row in paper.rows("COCO", part)}
        for rival in ("SLL", "SLL-ME"):
            assert sets["SLL-SLE"]["cider_d"] > sets[rival]["cider_d"]
            assert sets["SLL-SLE"]["div_2"] > sets[rival]["div_2"]
            assert sets["SLL-SLE"]["mbleu_4"] < sets[rival]["mbleu_4"]


def test_other_data_has_no_figures() -> None:
    assert paper.rows("coco-proxy", "beam") == ()
    assert paper.rows("tgif", "rs") == ()
