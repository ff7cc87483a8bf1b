from caplore import __version__
from caplore.metrics.signature import Score, signature


def test_a_signature_lists_what_was_set_in_order() -> None:
    made = signature("CIDEr-D", tok="ptb", sigma=6.0, df=None, eos=False, clipped=True)
    assert made == f"CIDEr-D|tok:ptb|sigma:6|eos:no|clipped:yes|caplore:{__version__}"


def test_a_score_says_null_and_why() -> None:
    assert Score(None, "SPICE|v:1", "no Java").to_json() == {
        "value": None,
        "signature": "SPICE|v:1",
        "note": "no Java",
    }
    assert Score(0.5, "x").to_json() == {"value": 0.5, "signature": "x"}
