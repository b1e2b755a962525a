"""The step time of transformer training with data, tensor and pipeline parallelism on a number of
nodes.

A step computes ``accumulation`` micro-batches. The compute time of each micro-batch has three
parts: matrix products (6 FLOP per parameter and token), attention (12 FLOP per layer, width and
pair of tokens), and element-wise operations, which are limited by memory bandwidth. In each
micro-batch, full sharding gathers the parameters twice and reduces the gradients once, in 2-byte
numbers. With ``grad_op``, the parameters are gathered once per step. With ``none``, the gradients
are all-reduced once per step. NCCL builds one ring per NIC, so a collective is limited by the
slower of NVLink and all NICs of a node together. Communication is assumed not to overlap with
compute.

With ``tensor`` and ``pipeline`` degrees above 1 (Megatron-LM: Shoeybi et al. 2019; Narayanan et
al., SC 2021), ranks are ordered so that the ranks of a tensor group are adjacent, followed by data
groups and then by pipeline stages. A tensor group all-reduces activations four times per layer and
micro-batch (six with checkpointing), and a stage sends activations forward and gradients backward.
A pipeline of p stages takes the time of p - 1 additional micro-batches (1F1B). With v chunks of
layers per stage, it takes the time of (p - 1) / v micro-batches, but sends data v times as often
(interleaved 1F1B, Narayanan et al., section 2.2.2). Element-wise operations are assumed to be split
over the tensor group (sequence parallelism, Korthikanti et al. 2022). The measured runs do not use
such degrees, so these terms are not fitted.

The seven constants of ``FITTED`` are a least-squares fit to 144 measured runs of MPT models on 8 to
512 A100 and H100 GPUs (mosaicml/llm-foundry, ``scripts/train/benchmarking``, commit 8c8dd48):
``python scripts/validate_llm.py --rows FILE --fit``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from dagsim.errors import ModelError
from dagsim.families.fabric.collectives import NVLINK_GB_S, GroupTraffic, gpu_family
from dagsim.model.gpu import GpuType


@dataclass(frozen=True, slots=True)
class LlmFit:
    """The constants of the step time that are fitted to measured runs."""

    a100: float
    """Share of the peak rate in matrix products."""
    h100: float
    h100_fp8: float
    a100_attention: float
    """Share of the peak rate in attention; on H100, the kernels in these runs were older than the
    GPU."""
    h100_attention: float
    elementwise_bytes: float
    """Bytes of memory traffic per layer, width and token."""
    exposed: float
    """Measured seconds of communication, divided by the seconds that the bandwidths imply."""


FITTED: Final = LlmFit(0.945, 0.81, 0.799, 0.571, 0.313, 538.0, 1.4)

_NIC_GB_S: Final = {"A100": 24.0, "H100": 46.0}
"""Bandwidth that is reached per NIC, HDR 200 and NDR 400, one NIC per GPU, by the family of the GPU
type. Runs were measured on these families only."""


@dataclass(frozen=True, slots=True)
class LlmTraining:
    """A model and the settings with which it is trained."""

    params: float
    """Number of parameters."""
    layers: int
    """Number of layers."""
    width: int
    """Size of the hidden state."""
    sequence: int
    """Tokens per sequence."""
    micro_batch: int
    """Micro-batch size: the number of sequences per data rank (per GPU if there is no tensor or
    pipeline parallelism).
    """
    accumulation: int = 1
    """Micro-batches per step."""
    precision: Literal["bf16", "fp8"] = "bf16"
    """Number format of matrix products. It determines which of the GPU's peak rates applies."""
    sharding: Literal["full", "grad_op", "none"] = "full"
    """How long every GPU keeps all parameters: only while it uses them (``full``), during a whole
    step (``grad_op``), or all the time (``none``).
    """
    checkpointing: bool = False
    """True to recompute activations, which costs one additional forward pass."""
    tensor: int = 1
    """Number of GPUs over which each layer is split."""
    pipeline: int = 1
    """Number of stages into which the layers are split. The number of data ranks is the number of a
    gang's GPUs divided by ``tensor`` and ``pipeline``."""
    chunks: int = 1
    """For an interleaved schedule, the number of parts into which the layers of each stage are
    divided.
    """

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        numbers = ("params", "layers", "width", "sequence", "micro_batch", "accumulation")
        for name in (*numbers, "tensor", "pipeline", "chunks"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ModelError(f"llm: {name} must be positive, got {getattr(self, name)!r}")
        if self.layers % self.pipeline:
            raise ModelError(f"llm: pipeline must divide the {self.layers} layers, got {self.pipeline!r}")
        if self.layers // self.pipeline % self.chunks:
            raise ModelError(
                f"llm: chunks must divide the {self.layers // self.pipeline} layers of a stage, got {self.chunks!r}"
            )

    @property
    def rounds(self) -> float:
        """The time of a step, measured in micro-batches, including the idle time of the
        pipeline."""
        return self.accumulation + (self.pipeline - 1) / self.chunks

    def data(self, gpus: int) -> int:
        """Return the number of data ranks on ``gpus`` GPUs.

        Raises:
            ModelError: The GPUs are not a multiple of the tensor and pipeline degrees.
        """
        ranks, rest = divmod(gpus, self.tensor * self.pipeline)
        if rest or ranks < 1:
            raise ModelError(
                f"llm: {gpus} GPUs are not a multiple of {self.tensor} tensor x {self.pipeline} pipeline ranks"
            )
        return ranks

    def tokens(self, gpus: int) -> int:
        """Return the tokens per step on ``gpus`` GPUs."""
        return self.sequence * self.micro_batch * self.accumulation * self.data(gpus)


def is_measured(training: LlmTraining, gpu: GpuType) -> bool:
    """Return True if runs were measured on the GPU type and the type supports the precision."""
    family = gpu_family(gpu.name)
    return family in _NIC_GB_S and (training.precision != "fp8" or family == "H100")


def compute_s(training: LlmTraining, gpu: GpuType, fit: LlmFit = FITTED) -> float:
    """Return the seconds per step without communication.

    Raises:
        ModelError: The GPU type is not an A100 or H100, which are the only types with measured
            runs, or it does not support FP8.
    """
    family = gpu_family(gpu.name)
    if family not in _NIC_GB_S:
        raise ModelError(f"llm: there are no measured runs on {gpu.name}; allowed: A100 and H100")
    hopper, fp8 = family == "H100", training.precision == "fp8"
    if fp8 and not hopper:
        raise ModelError(f"llm: {gpu.name} does not support FP8")
    peak = gpu.tflops("fp16") * 1e12
    products = peak * (2 * fit.h100_fp8 if fp8 else fit.h100 if hopper else fit.a100)
    attention = peak * (fit.h100_attention if hopper else fit.a100_attention)
    units = training.layers * training.width
    passes = 4 / 3 if training.checkpointing else 1.0
    token_s = passes * (
        6 * training.params / products
        + 12 * units * training.sequence / attention
        + fit.elementwise_bytes * units / (gpu.bandwidth_gb_s * 1e9)
    )
    return training.rounds * training.micro_batch * training.sequence * token_s / (training.tensor * training.pipeline)


def collectives(training: LlmTraining, fit: LlmFit = FITTED) -> tuple[int, float]:
    """Return the number of gathers and reductions per step, and the effective bytes of each
    according to the fit."""
    repeats = training.accumulation
    count = 3 * repeats if training.sharding == "full" else 1 + repeats if training.sharding == "grad_op" else 2
    return count, fit.exposed * 2 * training.params / (training.tensor * training.pipeline)


def groups(training: LlmTraining, gpus: int, fit: LlmFit = FITTED) -> tuple[GroupTraffic, ...]:
    """Return the traffic of the tensor, data and pipeline groups of ``gpus`` GPUs in a step.

    Raises:
        ModelError: See ``LlmTraining.data``.
    """
    data, tensor, stages = training.data(gpus), training.tensor, training.pipeline
    rounds = training.rounds
    activations_gb = fit.exposed * 2e-9 * training.micro_batch * training.sequence * training.width
    reductions = (6 if training.checkpointing else 4) * training.layers // stages
    count, size = collectives(training, fit)
    parts: list[tuple[float, int, int, Literal["ring", "all_gather", "pipeline"]]] = [
        (rounds * reductions * activations_gb, tensor, 1, "ring"),
        (count * size / 1e9, data, tensor, "all_gather"),
        (rounds * training.chunks * activations_gb / tensor, stages, tensor * data, "pipeline"),
    ]
    return tuple([GroupTraffic(*part) for part in parts if part[1] > 1])


def step_s(training: LlmTraining, gpu: GpuType, gpus: int, per_node: int = 8, fit: LlmFit = FITTED) -> float:
    """Return the seconds per step on ``gpus`` GPUs. Each node has ``per_node`` GPUs and equally
    many NICs. If a group of ranks is smaller than a node, its size must divide ``per_node``. If it
    is larger, ``per_node`` must divide its size.

    Raises:
        ModelError: See ``compute_s`` and ``LlmTraining.data``.
    """
    total_s = compute_s(training, gpu, fit)
    family = gpu_family(gpu.name)
    for group in groups(training, gpus, fit):
        gb_s = NVLINK_GB_S[family]
        if group.stride * group.size > per_node:
            # number of groups that send from a node to other nodes at the same time
            at_once = min(group.stride, per_node)
            if group.collective == "pipeline" and group.size * min(group.stride, per_node) > 2 * per_node:
                at_once *= 2  # each group sends both forward and backward from a node
            nics_gb_s = per_node * _NIC_GB_S[family] / at_once
            gb_s = nics_gb_s if group.stride >= per_node else min(gb_s, nics_gb_s)
        total_s += group.moved() / (gb_s * 1e9)
    return total_s
