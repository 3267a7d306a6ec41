"""Names of devices: what is nearly right is answered with what to write."""

import pytest
import torch

from pairre.support.device import pick_device
from pairre.support.errors import DeviceError


@pytest.mark.parametrize(
    ("name", "meant"),
    [("gpu", "cuda"), ("GPU", "cuda"), ("gpu:1", "cuda:1"), ("nvidia", "cuda"), ("cdua", "cuda"), ("cpus", "cpu")],
)
def test_a_wrong_name_is_answered_with_the_right_one(name, meant):
    with pytest.raises(DeviceError, match=f"did you mean '{meant}'"):
        pick_device(name)


def test_the_processor_is_always_there():
    assert pick_device("cpu") == torch.device("cpu")
