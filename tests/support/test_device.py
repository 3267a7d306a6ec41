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


def test_processes_of_a_machine_take_its_cards_in_turn(monkeypatch):
    current = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    devices = [pick_device("cuda", number) for number in range(4)]
    assert [str(device) for device in devices] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert [str(device) for device in current] == ["cuda:1", "cuda:1"]
