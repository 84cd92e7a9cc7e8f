"""A policy as an ONNX graph: raw observations in, actions within bounds out, nothing left to the caller.

The graph is written node by node, which needs no tracer and has no operator in it that we did not choose.
"""

from collections.abc import Callable
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

from geonpg.agents.checkpoint import write_bytes
from geonpg.agents.outputs import is_standard
from geonpg.errors import require
from geonpg.scripts.models.model import Model
from geonpg.scripts.runs.building import RAW, evaluation_env, play

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


def export(model: Model, path: Path, seed: int) -> dict[str, Any]:
    """Write the graph, once it has been found equal to the policy; tells the difference, and on how many observations.

    Both are given the same float32 observations: those of an episode that the graph plays, and random ones around them.
    """
    check_exportable(model)
    data = to_onnx(model).SerializeToString()
    player = Player(data, model.settings.frames)
    observations = trials(player, model, seed)
    difference = largest_difference(model, observations, player.act(observations))
    require(
        difference <= TOLERANCE,
        f"the graph differs from the torch policy by {difference:.1e}, more than {TOLERANCE}: {path} is not written",
    )
    write_bytes(path, data)
    return {"file": str(path), "difference": difference, "observations": len(observations)}


def check_exportable(model: Model) -> None:
    """Before any work: a graph can be made of this policy."""
    policy: Any = model.policy
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
    """Nodes in the making."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, operator: str, *inputs: str | Array, result: str = "", **attributes: Any) -> str:
        """Add a node and return its result's name; inputs are such names, or constants."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        result = result or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [result], **attributes))
        return result

    def constant(self, value: Array) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name


def to_onnx(model: Model) -> onnx.ModelProto:
    """observation [n, ...] -> action [n, ...]; [n, frames, ...] if the policy sees several."""
    frames = [model.settings.frames] if model.settings.frames > 1 else []
    shape: list[str | int] = ["n", *frames, *shape_of(model.observation_space)]
    kind = TensorProto.FLOAT if isinstance(model.action_space, spaces.Box) else TensorProto.INT64
    observation = helper.make_tensor_value_info("observation", TensorProto.FLOAT, shape, FRAMES_NOTE if frames else "")
    action = helper.make_tensor_value_info("action", kind, ["n", *shape_of(model.action_space)])
    graph = Graph()
    decide(graph, think(graph, see(graph, "observation", model), model.policy), model)
    body = helper.make_graph(graph.nodes, model.env_id, [observation], [action], graph.constants)
    opset = [helper.make_opsetid("", OPSET)]
    made = helper.make_model(body, opset_imports=opset, ir_version=IR_VERSION, producer_name="geonpg")
    helper.set_model_props(made, {"env": model.env_id, "steps": str(model.steps)})
    onnx.checker.check_model(made, full_check=True)
    return made


def shape_of(space: spaces.Space[Any]) -> tuple[int, ...]:
    return tuple(space.shape or ())


def see(graph: Graph, x: str, model: Model) -> str:
    """Raw observations -> the network's inputs [n, d]: normalised in double precision, as `Normalize` does."""
    missing = graph.node("IsNaN", x) if model.settings.frames > 1 else None
    normalize = model.normalization
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
    """Inputs [n, d] -> the parameters of the policy's distribution [n, k]: means, or logits."""
    for layer in (*policy.mlp_extractor.policy_net, policy.action_net):
        if isinstance(layer, nn.Linear):
            x = graph.node("Gemm", x, layer.weight.detach().numpy(), layer.bias.detach().numpy(), transB=1)
        else:
            operator, attributes = ACTIVATIONS[type(layer)](layer)
            x = graph.node(operator, x, **attributes)
    return x


def decide(graph: Graph, z: str, model: Model) -> None:
    """Parameters [n, k] -> the likeliest action, as the environment takes it."""
    space = model.action_space
    if isinstance(space, spaces.Box):
        z = bound(graph, z, model.policy.action_space)
        if model.settings.scale_actions:
            middle, half = middle_and_half(space)
            z = graph.node("Add", graph.node("Mul", z, half.reshape(-1)), middle.reshape(-1))
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
    """ONNX's Clip has one pair of bounds for all columns; here each column has its own."""
    low, high = (limit.astype(np.float32).reshape(-1) for limit in (space.low, space.high))
    return graph.node("Min", graph.node("Max", x, low), high)


def middle_and_half(space: spaces.Box) -> tuple[Array, Array]:
    """As `ScaleActions` has them."""
    return (space.high + space.low) / 2, (space.high - space.low) / 2


class Player:
    """A graph that plays raw environments as a policy would, and remembers what it was given."""

    def __init__(self, data: bytes, frames: int) -> None:
        self.session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        self.frames = frames
        self.seen: list[Array] = []  # [n, ...] of every step

    def act(self, observations: Array) -> Array:
        actions: Array = self.session.run(None, {"observation": observations})[0]
        return actions

    def predict(
        self, observation: Any, state: Any = None, episode_start: Array | None = None, deterministic: bool = False
    ) -> tuple[Array, Any]:
        """SB3's signature."""
        now = np.asarray(observation, dtype=np.float32)
        if self.frames > 1:
            unseen = np.full((len(now), self.frames, *now.shape[1:]), np.nan, dtype=np.float32)
            before = self.seen[-1] if self.seen else unseen
            now = np.concatenate([now[:, None], before[:, :-1]], axis=1)
        self.seen.append(now)
        return self.act(now), state


def trials(player: Player, model: Model, seed: int) -> Array:
    """The observations of an episode, and random ones around them: [n, ...]."""
    env = evaluation_env(RAW, model.env_id, 1, None, seed)
    play(player, env)
    env.close()
    real = np.concatenate(player.seen)
    newest = real[:, 0] if player.frames > 1 else real
    noise = np.random.default_rng(seed).standard_normal((RANDOM_OBSERVATIONS, *real.shape[1:]))
    random = newest.mean(0) + RANDOM_SPREAD * newest.std(0) * noise
    return np.concatenate([real, random.astype(np.float32)])


def largest_difference(model: Model, observations: Array, actions: Array) -> float:
    """Between the policy's actions and these. Choices, which have no distance, are compared by their log-probability:
    where two are equally likely up to rounding, either is right.
    """
    inputs, policy = observations, model.policy
    if model.normalization is not None:
        inputs = model.normalization.normalize_observations(inputs)
    if model.settings.frames > 1:
        inputs = np.where(np.isnan(inputs), 0, inputs).reshape(len(inputs), -1)
    own, _ = policy.predict(inputs, deterministic=True)
    if isinstance(model.action_space, spaces.Box):
        middle, half = middle_and_half(model.action_space) if model.settings.scale_actions else (0, 1)
        return float(np.abs(middle + half * own - actions).max())
    assert isinstance(policy, ActorCriticPolicy)
    with torch.no_grad():
        distribution = policy.get_distribution(policy.obs_to_tensor(inputs)[0])
        best, found = (distribution.log_prob(torch.as_tensor(choice).float()) for choice in (own, actions))
    return float((best - found).abs().max())
