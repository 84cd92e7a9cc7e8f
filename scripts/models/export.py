"""A policy as an ONNX graph: raw observations in, actions within bounds out, nothing left to the caller.

The graph is written node by node, which needs no tracer and has no operator in it that we did not choose.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn

from geonpg.agents.outputs import is_standard
from geonpg.errors import require
from geonpg.files import write_bytes
from geonpg.scripts.models.policy import TrainedPolicy, with_history
from geonpg.scripts.runs.evaluation import play

Array = NDArray[Any]

OPSET, IR_VERSION = 17, 8  # of 2022: any runtime in use reads them
TOLERANCE = 1e-5  # largest difference between the graph and the policy
RANDOM_OBSERVATIONS, RANDOM_SPREAD = 1000, 5.0  # so many deviations from an episode's mean: enough to be clipped
FRAMES_NOTE = "the last observations, the newest first; NaN where the episode had not begun"

ACTIVATIONS: dict[type[nn.Module], Callable[[Any], tuple[str, dict[str, Any]]]] = {
    nn.Tanh: lambda layer: ("Tanh", {}),
    nn.ReLU: lambda layer: ("Relu", {}),
    nn.ELU: lambda layer: ("Elu", {"alpha": layer.alpha}),
}


def export(trained: TrainedPolicy, path: Path, seed: int) -> dict[str, Any]:
    """Write the graph once it has been found equal to the policy; return plain data about both.

    Both are given the same float32 observations: those of an episode that the graph plays, and random ones around them.
    """
    check_exportable(trained)
    data = to_onnx(trained).SerializeToString()
    player = Player(data, trained.settings.frames)
    observations = trials(player, trained, seed)
    difference = largest_difference(trained, observations, player.act(observations))
    require(
        difference <= TOLERANCE,
        f"the graph differs from the torch policy by {difference:.1e}, more than {TOLERANCE}: {path} is not written",
    )
    write_bytes(path, data, durable=True)
    return {"file": str(path), "difference": difference, "observations": len(observations)}


def check_exportable(trained: TrainedPolicy) -> None:
    """Refuse a policy of which no graph can be made."""
    policy: Any = trained.network
    require(
        isinstance(policy, ActorCriticPolicy)
        and is_standard(policy)
        and isinstance(policy.pi_features_extractor, FlattenExtractor)
        and isinstance(policy.observation_space, spaces.Box)
        and not is_image_space(policy.observation_space),
        f"only policies of plain layers on vectors of numbers can be exported, not {type(policy).__name__} "
        f"on {policy.observation_space}",
    )
    legal = ", ".join(kind.__name__ for kind in ACTIVATIONS)
    for layer in policy.mlp_extractor.policy_net:
        name = type(layer).__name__
        require(type(layer) in (nn.Linear, *ACTIVATIONS), f"activation {name} cannot be exported: only {legal} can")


@dataclass
class Graph:
    """The nodes and constants of a graph in the making."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, operator: str, *inputs: str | Array, result: str = "", **attributes: Any) -> str:
        """Add a node and return its result's name; inputs are such names, or constants."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        result = result or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [result], **attributes))
        return result

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name


def to_onnx(trained: TrainedPolicy) -> onnx.ModelProto:
    """Make a graph: observation [n, ...], or [n, frames, ...] if the policy sees several -> action [n, ...]."""
    frames = [trained.settings.frames] if trained.settings.frames > 1 else []
    shape: list[str | int] = ["n", *frames, *shape_of(trained.observation_space)]
    kind = TensorProto.FLOAT if isinstance(trained.action_space, spaces.Box) else TensorProto.INT64
    observation = helper.make_tensor_value_info("observation", TensorProto.FLOAT, shape, FRAMES_NOTE if frames else "")
    action = helper.make_tensor_value_info("action", kind, ["n", *shape_of(trained.action_space)])
    graph = Graph()
    decide(graph, think(graph, see(graph, "observation", trained), trained.network), trained)
    body = helper.make_graph(graph.nodes, trained.env_id or "policy", [observation], [action], graph.constants)
    opset = [helper.make_opsetid("", OPSET)]
    made = helper.make_model(body, opset_imports=opset, ir_version=IR_VERSION, producer_name="geonpg")
    helper.set_model_props(made, {"env": trained.env_id or "", "steps": str(trained.steps)})
    onnx.checker.check_model(made, full_check=True)
    return made


def shape_of(space: spaces.Space[Any]) -> tuple[int, ...]:
    """The shape of one element of a space."""
    return tuple(space.shape or ())


def see(graph: Graph, x: str, trained: TrainedPolicy) -> str:
    """Add raw observations -> the network's inputs [n, d]: normalised in double precision, as `Normalize` does."""
    missing = graph.node("IsNaN", x) if trained.settings.frames > 1 else None
    normalize = trained.normalization
    if normalize is not None and normalize.scales_observations:
        moments, clip = normalize.observation_moments, np.array(normalize.clip, dtype=np.float64)
        x = graph.node("Cast", x, to=TensorProto.DOUBLE)
        x = graph.node("Sub", x, moments.mean)
        x = graph.node("Div", x, np.sqrt(moments.variance + normalize.epsilon))
        x = graph.node("Clip", x, -clip, clip)
        x = graph.node("Cast", x, to=TensorProto.FLOAT)
    if missing is not None:
        x = graph.node("Where", missing, np.zeros((), dtype=np.float32), x)
    return graph.node("Flatten", x, axis=1)


def think(graph: Graph, x: str, policy: Any) -> str:
    """Add inputs [n, d] -> the parameters of the policy's distribution [n, k]: means, or logits."""
    for layer in (*policy.mlp_extractor.policy_net, policy.action_net):
        if isinstance(layer, nn.Linear):
            x = graph.node("Gemm", x, layer.weight.detach().numpy(), layer.bias.detach().numpy(), transB=1)
        else:
            operator, attributes = ACTIVATIONS[type(layer)](layer)
            x = graph.node(operator, x, **attributes)
    return x


def decide(graph: Graph, z: str, trained: TrainedPolicy) -> None:
    """Add parameters [n, k] -> the likeliest action, as the environment takes it."""
    space = trained.action_space
    if isinstance(space, spaces.Box):
        z = bound(graph, z, trained.network.action_space)
        if trained.scaling is not None:
            z = graph.node("Mul", z, trained.scaling.half.reshape(-1))
            z = graph.node("Add", z, trained.scaling.middle.reshape(-1))
            z = bound(graph, z, space)  # the last bit of a sum may lie outside
        graph.node("Reshape", z, np.array([-1, *space.shape]), result="action")
    elif isinstance(space, spaces.Discrete):
        graph.node("ArgMax", z, axis=1, keepdims=0, result="action")
    elif isinstance(space, spaces.MultiDiscrete):
        edges, axis = np.cumsum([0, *space.nvec]), np.array([1])
        parts = [graph.node("Slice", z, edges[i : i + 1], edges[i + 1 : i + 2], axis) for i in range(len(space.nvec))]
        choices = [graph.node("ArgMax", part, axis=1, keepdims=1) for part in parts]
        graph.node("Concat", *choices, axis=1, result="action")
    else:  # MultiBinary
        likely = graph.node("Greater", z, np.zeros((), dtype=np.float32))
        graph.node("Cast", likely, to=TensorProto.INT64, result="action")


def bound(graph: Graph, x: str, space: Any) -> str:
    """Clip each column to its own bounds; ONNX's Clip has one pair for all."""
    low, high = (limit.astype(np.float32).reshape(-1) for limit in (space.low, space.high))
    return graph.node("Min", graph.node("Max", x, low), high)


class Player:
    """A graph that plays plain environments as a policy would; `seen` is everything it was shown."""

    def __init__(self, data: bytes, frames: int) -> None:
        self.session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        self.frames = frames
        self.seen: list[Array] = []  # [n, ...] of every step

    def act(self, observations: Array) -> Array:
        """Run the graph: observations [n, ...] -> actions [n, ...]."""
        actions: Array = self.session.run(None, {"observation": observations})[0]
        return actions

    def predict(
        self, observation: Any, state: Any = None, episode_start: Array | None = None, deterministic: bool = True
    ) -> tuple[Array, Any]:
        """Choose actions; SB3's signature."""
        seen = np.asarray(observation, dtype=np.float32)
        if self.frames > 1:
            seen = state = with_history(seen, state, episode_start, self.frames).astype(np.float32)
        self.seen.append(seen)
        return self.act(seen), state


def trials(player: Player, trained: TrainedPolicy, seed: int) -> Array:
    """Collect the observations of an episode, and random ones around them: [n, ...]."""
    with closing(trained.make_env(1, seed)) as env:
        play(player, env)
    real = np.concatenate(player.seen)
    newest = real[:, 0] if player.frames > 1 else real
    noise = np.random.default_rng(seed).standard_normal((RANDOM_OBSERVATIONS, *real.shape[1:]))
    random = newest.mean(0) + RANDOM_SPREAD * newest.std(0) * noise
    return np.concatenate([real, random.astype(np.float32)])


def largest_difference(trained: TrainedPolicy, observations: Array, actions: Array) -> float:
    """The largest difference between the policy's actions and these.

    Choices, which have no distance, are compared by their log-probability: of two that are equally likely up to
    rounding, either is right.
    """
    own, _ = trained.act(observations)
    if isinstance(trained.action_space, spaces.Box):
        return float(np.abs(own - actions).max())
    policy = trained.network
    assert isinstance(policy, ActorCriticPolicy)
    with torch.no_grad():
        distribution = policy.get_distribution(policy.obs_to_tensor(trained.inputs(observations))[0])
        best, found = (distribution.log_prob(torch.as_tensor(choice).float()) for choice in (own, actions))
    return float((best - found).abs().max())
