from itertools import product

import torch

from cotransport.system.randomness import derived_seed, generator, seeded


def test_every_place_has_its_own_seed() -> None:
    seeds = {derived_seed(seed, *place) for seed in range(3) for place in product(range(3), repeat=3)}
    assert len(seeds) == 3 * 3**3
    assert all(0 <= seed < 2**63 for seed in seeds)  # torch takes no more


def test_a_generator_depends_on_its_place_alone() -> None:
    first = torch.rand(3, generator=generator(1, 2))
    torch.rand(5)
    assert torch.equal(torch.rand(3, generator=generator(1, 2)), first)
    assert not torch.equal(torch.rand(3, generator=generator(2, 1)), first)


def test_the_global_generator_is_seeded_inside_and_restored_afterwards() -> None:
    before = torch.get_rng_state()
    with seeded(1, 2):
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    with seeded(1, 2):
        assert torch.equal(torch.rand(3), first)
