"""Other libraries: their attacks run by ours (:func:`peer`), and our attacks called the way theirs are.

    from whorl import interop

    attack = interop.peer("torchattacks:VMIFGSM", estimator="ai", eps=16 / 255)    # an attack like any of ours
    adv = attack(model, x, y, ids=ids)

    atk = interop.as_torchattacks(whorl.attack("ai-dim"), model)                   # adv = atk(images, labels)
    fool = interop.as_foolbox(whorl.attack("ai-pgd"))                              # raw, clipped, success = fool(...)

None of the libraries is imported before one of its attacks is requested.
"""

from whorl.interop.foolbox_style import FoolboxStyle, as_foolbox
from whorl.interop.libraries import library_names, peer_names
from whorl.interop.peer import Peer, find_estimator, peer
from whorl.interop.torchattacks_style import TorchattacksStyle, as_torchattacks
from whorl.interop.transferattack_style import as_transferattack

__all__ = [
    "FoolboxStyle",
    "Peer",
    "TorchattacksStyle",
    "as_foolbox",
    "as_torchattacks",
    "as_transferattack",
    "find_estimator",
    "library_names",
    "peer",
    "peer_names",
]
