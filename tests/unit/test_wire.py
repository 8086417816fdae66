"""What every model that crosses a border has in common."""

import pytest
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from turnkeeper.wire import Name, WireModel


class Inner(WireModel):
    """A part of something."""

    some_value: int
    not_said: str | None = None


class Outer(WireModel):
    """Something with parts, a null that means something, and free JSON."""

    run_id: str
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    output: JsonValue = None
    free: JsonValue = None

    def kept_nulls(self) -> frozenset[str]:
        """See `WireModel.kept_nulls`."""
        return frozenset({"output"})


class Parent(BaseModel):
    """A model of somebody else's that holds one of ours."""

    inner: Inner


def test_json_names_are_camel_case_without_being_asked() -> None:
    """The wire keeps the reference's names; no caller has to remember `by_alias`."""
    assert Outer(run_id="r", inner=Inner(some_value=1)).model_dump(mode="json") == {
        "runId": "r",
        "inner": {"someValue": 1},
        "inners": [],
        "output": None,
    }
    assert Inner(some_value=1).model_dump_json() == '{"someValue":1}'


def test_a_field_that_is_none_is_left_out() -> None:
    """Clients refuse an optional field that is null; nested models and containers are treated alike."""
    dumped = Outer(run_id="r", inners=(Inner(some_value=1), Inner(some_value=2, not_said="x"))).model_dump(mode="json")
    assert dumped["inners"] == [{"someValue": 1}, {"someValue": 2, "notSaid": "x"}]
    assert "inner" not in dumped
    assert Parent(inner=Inner(some_value=1)).model_dump_json() == '{"inner":{"someValue":1}}'


def test_a_null_that_means_something_is_kept() -> None:
    """A model says which of its nulls are values."""
    assert Outer(run_id="r").model_dump(mode="json")["output"] is None
    assert "free" not in Outer(run_id="r").model_dump(mode="json")


def test_nulls_inside_of_free_json_are_kept() -> None:
    """What an author or a model wrote is never changed."""
    free: JsonValue = {"a": None, "b": [None, {"c": None}]}
    assert Outer(run_id="r", free=free).model_dump(mode="json")["free"] == free


def test_both_spellings_are_read() -> None:
    """Python code uses snake_case, the wire camelCase."""
    assert Outer.model_validate({"runId": "r"}) == Outer.model_validate({"run_id": "r"}) == Outer(run_id="r")


def test_unknown_fields_are_ignored() -> None:
    """A history may hold what another release wrote."""
    assert Inner.model_validate_json('{"someValue":1,"fromTheFuture":{"a":1}}') == Inner(some_value=1)


def test_a_wire_model_cannot_be_changed() -> None:
    """What crosses a border is a value."""
    inner = Inner(some_value=1)
    with pytest.raises(ValidationError):
        inner.some_value = 2  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize("text", ["a", "_", "~", "a.b", "x" * 128])
def test_a_name_is_accepted(text: str) -> None:
    """DI-02: run ids and instance names are segments of a path."""
    assert TypeAdapter(Name).validate_python(text) == text


@pytest.mark.parametrize("text", ["", ".", "..", ".a", "a/b", "a b", "a\n", "é", "x" * 129])
def test_what_is_no_name_is_refused(text: str) -> None:
    """DI-02: and are refused before they become part of one."""
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(text)
