"""The towers of a file: counted, or said to be left out."""

from simserve.spec.hugging_face.family import Tower
from simserve.spec.hugging_face.harmless import HARMLESS as HARMLESS_EVERYWHERE
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers.sizes import HARMLESS
from simserve.spec.model import TowerSpec


def read_towers(whole: Keys, towers: tuple[Tower, ...], hidden_size: int) -> tuple[list[TowerSpec], list[str]]:
    """The towers that are counted, beside a decoder of some `hidden_size`; and what is left out, in words."""
    counted: list[TowerSpec] = []
    left_out: list[str] = []
    for tower in towers:
        around = _around(whole, tower.section[:-1])
        keys = None if around is None else around.section(tower.section[-1])
        if around is None or keys is None:
            if not tower.optional:
                left_out.append(f"the weights of its {tower.name}, of which the file has no {'.'.join(tower.section)}")
            continue
        parameters = None if tower.parameters is None else tower.parameters(keys, around, hidden_size)
        if parameters is None:
            keys.know(*keys.raw())
            left_out.append(f"the weights of its {tower.name}" + (f" ({tower.why})" if tower.why else ""))
            continue
        keys.know(*HARMLESS_EVERYWHERE, *HARMLESS)
        counted.append(TowerSpec(name=tower.name, num_parameters=parameters))
        left_out.append(f"the work of its {tower.name}")
    return counted, left_out


def _around(whole: Keys, path: tuple[str, ...]) -> Keys | None:
    keys: Keys | None = whole
    for name in path:
        keys = None if keys is None else keys.section(name)
    return keys
