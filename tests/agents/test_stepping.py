"""Training step by step, against `learn`."""

import torch
from stable_baselines3.common.callbacks import BaseCallback
from toy_envs import make_world, small

from geonpg.agents import ACKTR
from geonpg.agents.stepping import Stepper
from geonpg.envs import Normalize

ROLLOUT = 3 * 12  # environments, steps


def make() -> ACKTR:
    env = Normalize(make_world())
    return ACKTR("MlpPolicy", env, n_steps=12, anneal=True, policy_kwargs=small(""), seed=0)


def parameters(agent: ACKTR) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in agent.policy.parameters()])


class Ending(BaseCallback):
    """Ends a rollout at its third step."""

    def _on_step(self) -> bool:
        return self.n_calls < 3


def test_steps_are_those_of_learn() -> None:
    """To the last bit, normalisation, annealing and the numbers of updates included."""
    whole = make().learn(4 * ROLLOUT)
    stepped = make()
    stepper = Stepper(stepped, 4 * ROLLOUT)
    updates = [stepper.step() for _ in range(4)]
    assert torch.equal(parameters(whole), parameters(stepped))
    assert [update.n_updates for update in updates] == [1, 2, 3, 4]
    assert updates[-1] == stepped.last_update == whole.last_update
    assert stepped.num_timesteps == 4 * ROLLOUT


def test_what_is_left_may_be_counted_by_anything() -> None:
    """Here by steps, as `learn` counts it."""
    stepped = make()
    stepper = Stepper(stepped, 4 * ROLLOUT)
    for _ in range(3):
        stepper.step()
    run = make()
    Stepper(run, 10**9).run(lambda: 1 - (run.num_timesteps + ROLLOUT) / (4 * ROLLOUT))
    assert torch.equal(parameters(run), parameters(stepped))
    assert run.last_update == stepped.last_update
    assert run.num_timesteps == 3 * ROLLOUT
    assert not torch.equal(parameters(run), parameters(make().learn(3 * ROLLOUT)))


def test_a_rollout_alone_changes_no_parameter_and_an_update_no_rollout() -> None:
    agent = make()
    stepper, before = Stepper(agent, 1000), parameters(agent)
    assert stepper.roll()
    assert torch.equal(parameters(agent), before)
    assert agent.last_update is None
    stepper.update()
    assert not torch.equal(parameters(agent), before)
    assert agent.num_timesteps == ROLLOUT


def test_another_stepper_goes_on_if_it_is_asked_to() -> None:
    agent = make()
    Stepper(agent, 1000).step()
    Stepper(agent, 1000, reset_num_timesteps=False).step()
    assert agent.num_timesteps == 2 * ROLLOUT
    Stepper(agent, 1000)
    assert agent.num_timesteps == 0


def test_a_callback_can_end_a_rollout() -> None:
    agent = make()
    assert not Stepper(agent, 1000, Ending()).roll()
    assert agent.num_timesteps == 3 * 3
