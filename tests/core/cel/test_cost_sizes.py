"""The bounds of a device and the paths that lead to them."""

from __future__ import annotations

from allot.core.cel.costs.ranges import Range
from allot.core.cel.costs.sizes import EMPTY_PATH, ITEMS, KEYS, VALUES, Path, device_sizes


def _size(*steps: str, consumable_capacity: bool = True) -> Range | None:
    path = Path.root(steps[0])
    for step in steps[1:]:
        path = path.extended(step)
    return device_sizes(consumable_capacity=consumable_capacity).estimate(path)


def test_the_parts_of_a_device_have_the_bounds_of_the_api() -> None:
    assert _size("device") == Range(0, 0)
    assert _size("device", "driver") == Range(0, 63)
    assert _size("device", "attributes") == Range(0, 32)
    assert _size("device", "attributes", KEYS) == Range(0, 63)
    assert _size("device", "attributes", VALUES) == Range(0, 32)
    assert _size("device", "attributes", VALUES, KEYS) == Range(0, 32)
    assert _size("device", "attributes", VALUES, VALUES) == Range(0, 64)
    assert _size("device", "capacity", VALUES, VALUES) == Range(0, 0)
    assert _size("device", "allowMultipleAllocations") == Range(0, 1)


def test_any_field_of_a_map_of_attributes_is_an_attribute() -> None:
    assert _size("device", "attributes", VALUES, "model") == Range(0, 64)


def test_fields_of_other_maps_are_unknown() -> None:
    assert _size("device", "attributes", "example.com") is None
    assert _size("device", "capacity", VALUES, "memory") is None


def test_elements_of_an_attribute_are_unknown() -> None:
    assert _size("device", "attributes", VALUES, "names", ITEMS) is None


def test_other_variables_are_unknown() -> None:
    assert _size("node") is None
    assert device_sizes(consumable_capacity=True).estimate(EMPTY_PATH) is None


def test_the_field_for_shared_devices_exists_with_consumable_capacity_only() -> None:
    assert _size("device", "allowMultipleAllocations", consumable_capacity=False) is None


def test_extending_a_path_a_second_time_overwrites_the_first_extension_where_go_would() -> None:
    three = Path.root("device").extended("attributes").extended(VALUES)
    keys, values = three.extended(KEYS), three.extended(VALUES)
    assert keys.steps() == values.steps() == ["device", "attributes", VALUES, VALUES]


def test_extending_a_path_whose_storage_is_full_copies_it() -> None:
    two = Path.root("device").extended("attributes")
    keys, values = two.extended(KEYS), two.extended(VALUES)
    assert keys.steps() == ["device", "attributes", KEYS]
    assert values.steps() == ["device", "attributes", VALUES]
