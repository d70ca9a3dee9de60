"""What Kubernetes takes as a label."""

import pytest

from ccm.model.objects import is_label, is_label_key, is_label_value


@pytest.mark.parametrize("value", ["", "a", "A-b_c.9", "a" * 63])
def test_values_that_can_be(value: str) -> None:
    assert is_label_value(value)


@pytest.mark.parametrize("value", ["m5 large", "a" * 64, "-a", "a.", "a\n", "ä", "a/b", " "])
def test_values_that_cannot_be(value: str) -> None:
    assert not is_label_value(value)
    assert not is_label("key", value)


@pytest.mark.parametrize("key", ["a", "A_b", "example.com/a", "x-1.y/Z", f"{'a' * 253}/{'b' * 63}"])
def test_keys_that_can_be(key: str) -> None:
    assert is_label_key(key)


@pytest.mark.parametrize(
    "key",
    ["", "a b", "/a", "a/", "a/b/c", "Example.com/a", "-a/b", "a..b/c", "b" * 64, f"{'a' * 254}/b"],
)
def test_keys_that_cannot_be(key: str) -> None:
    assert not is_label_key(key)
    assert not is_label(key, "value")
