"""Where our own classes are meant to differ from torch: behaviour id to reason. docs/parity.md shows them.

The runner fails an entry that does not differ, so the first list cannot go stale.
"""

from __future__ import annotations

from ampscaler.conformance.subject import CPP_CLASS

CPP_CLASS_DIFFERENCES: dict[str, str] = {
    "S2.2": "enabled is a bool; torch keeps any object and looks at its truth value",
    "S2.3": "the warning comes from C++ and so ends with the place in the source; torch_xla is not looked for",
    "S2.4": "any spelling of CUDA is disabled on a machine without it; torch compares with the string 'cuda'",
    "S2.5": "options are validated, so a NaN factor is refused; torch lets it pass",
    "S2.6": "options are validated: a start scale or interval that cannot work is refused at once",
    "S2.7": "arguments have types in C++, so wrong ones are refused also when disabled",
    "S2.9": "options are validated before the device is looked at, so that a program fails alike on every machine",
    "S3.5": "a start value that does not fit is refused by the constructor, not by the first scale()",
    "S5.1": "an optimizer is recognised by its parameters, so these are walked before the stage is looked at",
    "S5.6": "all gradients are checked before the first is written, so an error leaves none half done",
    "S5.7": "a scale whose reciprocal is of no use sets the flag",
    "S5.17": "a gradient that occurs twice in an optimizer is divided once; torch divides it once per mention",
    "S5.18": "the call comes from C++, so of a gradient's overrides only __torch_function__ is not asked",
    "S6.2": "a closure given by position is refused like the keyword",
    "S6.6": "a step refused because there was no gradient leaves no trace; torch's optimizer stays UNSCALED",
    "S7.5": "cpu:0 and torch.device are understood as devices, so a new scale given as a tensor is accepted there too",
    "S7.15": "an interval is an integer in C++, so set_growth_interval refuses what torch's next update refuses",
    "S8.1": "get_scale() is a float from the start; torch returns the very object that was given",
    "S8.3": "the setters validate; torch takes anything",
    "S8.4": "a disabled scaler keeps its numbers, so its getters work; torch's raise AttributeError",
    "S9.1": "the scale of a state is a float from the start; torch's is the object that was given",
    "S9.2": "load_state_dict takes dicts only, also when disabled",
    "S9.3": "a state is loaded whole or not at all; torch stops half way",
    "S9.4": "a loaded state is validated like the options; torch takes anything that fits into a tensor",
    "S10.1": "the object is not pickled or copied, as it owns C++ state: its state_dict() is what is saved",
    "S10.2": "the object is not pickled or copied, as it owns C++ state: its state_dict() is what is saved",
    "S10.3": "the object is not pickled or copied, as it owns C++ state: its state_dict() is what is saved",
    "S10.4": "the object is not pickled or copied; its state passes to and from torch's class by state_dict",
    "S11.2": "an optimizer of the older keyword protocol is handed unscaled gradients, never the scaler itself",
    "S11.4": "a step without gradients is refused for every optimizer, torch hands a fused one the int 0 as its flag; "
    "and the flags' maximum is handed over, not their sum",
    "S11.5": "a user's grad_scale of None counts as not set; torch multiplies by it and fails",
    "S11.6": "a user's own grad_scale is put back after the step; torch deletes it",
    "S11.7": "both attributes are taken back when the optimizer raises; torch leaves them, so a retry divides twice",
    "S11.8": "a step without gradients is refused for every optimizer",
    "S13.3": "a gradient that overflows by the scaler's unscaling sets the flag; the operator itself is the same",
    "S14.1": "rows of the table differ where the sections before say so: setters validate, and nothing is pickled",
    "S15.1": "options are validated, so a NaN factor is refused on every torch",
    "S15.5": "the warning about the keyword protocol does not exist, since that protocol is not used",
    "W1": "the buffers that a skipped step has created are removed",
    "W3": "the attributes are taken back when the optimizer raises, so a retry is right",
    "W4": "a scale whose reciprocal is of no use sets the flag, so the step is skipped",
    "W5": "a gradient that overflows by the unscaling sets the flag",
    "W7": "all gradients are checked before the first is written",
    "W9": "a gradient that occurs twice in an optimizer is divided once",
    "W10": "devices are compared as devices, so a tensor is accepted for cpu:0 too",
    "W12": "a closure given by position is refused like the keyword",
    "W13": "a state is validated and loaded whole or not at all",
    "W14": "a new optimizer at an old address is recognised by its parameters and starts afresh",
    "W16": "a fused optimizer without gradients is refused by step, like others",
    "W17": "a user's grad_scale of None counts as not set, and a user's own factor is put back",
    "W18": "a NaN factor is refused",
    "W20": "an update that fails leaves the scale as it was",
    "W22": "nothing is pickled, and a failed unscale_ leaves no trace",
}

#: Differences that the runner does not meet: two devices are needed, or private names in their stead. A test in C++
#: sees them, FlagsOfSeveralDevicesCombineToExactlyOne.
CPP_CLASS_UNSEEN_DIFFERENCES: dict[str, str] = {
    "W2": "the maximum of the flags is handed over",
    "U16.1": "the maximum of the flags is handed over",
}

#: Qualified name of the class to its differences; a class that is not listed has none.
DIFFERENCES = {CPP_CLASS: CPP_CLASS_DIFFERENCES}
