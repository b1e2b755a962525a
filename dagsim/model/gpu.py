"""The catalogue of GPU types: performance, power and rental price of each GPU, with the source of
each value.

A single speed per GPU type is a simplification. For example, in measurements, a V100 trained BERT
2.6 times as fast as a T4, and an A100 5.2 times as fast. For DeepSpeech2, these factors are only 2.3
and 1.5 (Sia, SOSP 2023, artifact profiles). Where this matters, give a task its own ``speeds`` or
use the throughput table (``dagsim.systems.cluster.models.throughputs``).

Prices are list prices for on-demand machines. Each was recorded with its source and year, and has
not been checked since. Prices vary widely between vendors and over time, so treat them as orders of
magnitude. Give your own prices with ``--price`` or with ``prices`` in the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dagsim.errors import ModelError


@dataclass(frozen=True, slots=True)
class GpuType:
    """A GPU type with its peak rates for dense operations (without sparsity). The rate of a number
    format that the hardware does not support is None. ``tdp_watts`` is the thermal design power,
    and ``idle_watts`` is the power that an idle GPU draws.

    Raises:
        ModelError: A rate, size or power is not positive, or the idle power exceeds the thermal
            design power.
    """

    name: str
    """Name by which clusters and jobs refer to the type."""
    fp32_tflops: float
    """Peak FP32 rate in TFLOPS."""
    memory_gb: float
    """Memory in GB."""
    bandwidth_gb_s: float
    """Memory bandwidth in GB/s."""
    tdp_watts: float
    """Thermal design power in watts."""
    idle_watts: float
    """Power of an idle GPU in watts, at most ``tdp_watts``."""
    tf32_tflops: float | None = None
    """Peak TF32 rate in TFLOPS. None if the type does not support TF32."""
    fp16_tflops: float | None = None
    """Peak FP16 rate in TFLOPS. None if the type does not support FP16."""
    nvlink_gb_s: float = 0.0
    """Total bandwidth in GB/s of the links to other GPUs, in one direction. Data sheets usually
    give the sum of both directions, which is twice this value."""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """For each field, the source of its value."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name in ("fp32_tflops", "memory_gb", "bandwidth_gb_s", "tdp_watts"):
            if not getattr(self, name) > 0:
                raise ModelError(f"GPU type {self.name!r}: {name} must be positive, got {getattr(self, name)!r}")
        for name in ("tf32_tflops", "fp16_tflops"):
            rate = getattr(self, name)
            if rate is not None and not rate > 0:
                raise ModelError(f"GPU type {self.name!r}: {name} must be positive or left out, got {rate!r}")
        if not 0 <= self.idle_watts <= self.tdp_watts:
            raise ModelError(
                f"GPU type {self.name!r}: idle_watts must be 0 to tdp_watts ({self.tdp_watts}), got {self.idle_watts!r}"
            )
        if self.nvlink_gb_s < 0:
            raise ModelError(f"GPU type {self.name!r}: nvlink_gb_s must not be negative, got {self.nvlink_gb_s!r}")

    def tflops(self, precision: str = "fp32") -> float:
        """Return the peak rate in TFLOPS at ``precision`` (``fp32``, ``tf32`` or ``fp16``). If the
        GPU does not support this precision, return the rate at the next slower one.
        """
        match precision:
            case "fp32":
                return self.fp32_tflops
            case "tf32":
                return self.tf32_tflops or self.fp32_tflops
            case "fp16":
                return self.fp16_tflops or self.tflops("tf32")
            case _:
                raise ModelError(f"unknown precision {precision!r}; allowed: fp32, tf32, fp16")


_TEN_PERCENT = "assumption: 10% of TDP"
_HGX = "NVIDIA HGX platform page (8 GPUs, divided by 8; rates without sparsity)"
_TPU = "Google Cloud TPU documentation, system architecture"
_TPU_FP32 = "assumption: a sixth of bf16 (six passes for FP32 products)"
_TPU_WATTS = "not published; assumption"
_SPECS = "hmc-tech.com and sysrqmts.com specification pages"
_IDLE = "nvidia-smi captures in public repositories, 0 MiB used, 0% busy"


def _sheet(gpu: str) -> str:
    return f"NVIDIA {gpu} datasheet"


def _sources(rates: str, idle: str, **others: str) -> dict[str, str]:
    names = ("fp32_tflops", "tf32_tflops", "fp16_tflops", "memory_gb", "bandwidth_gb_s", "nvlink_gb_s", "tdp_watts")
    return {**dict.fromkeys(names, rates), "idle_watts": idle, **others}


# fmt: off
_CATALOGUE = (
    GpuType("A100-40", fp32_tflops=19.49, tf32_tflops=155.9, fp16_tflops=311.9, memory_gb=40, bandwidth_gb_s=1555,
            nvlink_gb_s=300, tdp_watts=400, idle_watts=50, sources=_sources(_SPECS, f"{_IDLE} (median of 10)")),
    GpuType("A100-80", fp32_tflops=19.49, tf32_tflops=155.9, fp16_tflops=311.9, memory_gb=80, bandwidth_gb_s=2039,
            nvlink_gb_s=300, tdp_watts=400, idle_watts=50, sources=_sources(_sheet("A100 80GB SXM"), "assumed equal to A100-40")),
    GpuType("V100-16", fp32_tflops=15.67, fp16_tflops=125.3, memory_gb=16, bandwidth_gb_s=900,
            nvlink_gb_s=150, tdp_watts=300, idle_watts=42, sources=_sources(_SPECS, f"{_IDLE} (median of 10)")),
    GpuType("V100-32", fp32_tflops=15.67, fp16_tflops=125.3, memory_gb=32, bandwidth_gb_s=900,
            nvlink_gb_s=150, tdp_watts=300, idle_watts=42, sources=_sources(_SPECS, "assumed equal to V100-16")),
    GpuType("T4", fp32_tflops=8.14, fp16_tflops=65.1, memory_gb=16, bandwidth_gb_s=320,
            tdp_watts=70, idle_watts=9, sources=_sources(_SPECS, f"{_IDLE} (8 captures at P8)")),
    GpuType("P100", fp32_tflops=10.6, fp16_tflops=21.2, memory_gb=16, bandwidth_gb_s=732,
            nvlink_gb_s=80, tdp_watts=300, idle_watts=30, sources=_sources(_sheet("P100 SXM2"), _TEN_PERCENT)),
    # A K80 board has two GPUs. This entry is one of them, with half of the board's rate, memory and
    # power.
    GpuType("K80", fp32_tflops=4.37, memory_gb=12, bandwidth_gb_s=240,
            tdp_watts=150, idle_watts=15, sources=_sources(_sheet("K80") + ", halved", _TEN_PERCENT)),
    GpuType("A10", fp32_tflops=31.2, tf32_tflops=62.5, fp16_tflops=125.0, memory_gb=24, bandwidth_gb_s=600,
            tdp_watts=150, idle_watts=15, sources=_sources(_sheet("A10"), _TEN_PERCENT)),
    GpuType("A40", fp32_tflops=37.4, tf32_tflops=74.8, fp16_tflops=149.7, memory_gb=48, bandwidth_gb_s=696,
            nvlink_gb_s=56.25, tdp_watts=300, idle_watts=30, sources=_sources(_sheet("A40"), _TEN_PERCENT)),
    GpuType("H100", fp32_tflops=67.0, tf32_tflops=495.0, fp16_tflops=989.0, memory_gb=80, bandwidth_gb_s=3350,
            nvlink_gb_s=450, tdp_watts=700, idle_watts=70, sources=_sources(_sheet("H100 SXM5"), _TEN_PERCENT)),
    GpuType("RTX-2080Ti", fp32_tflops=13.45, fp16_tflops=53.8, memory_gb=11, bandwidth_gb_s=616,
            nvlink_gb_s=50, tdp_watts=250, idle_watts=15, sources=_sources("NVIDIA Turing whitepaper (FP16 with FP32 accumulate)", "assumption: 6% of TDP")),
    GpuType("RTX-4090", fp32_tflops=82.6, tf32_tflops=82.6, fp16_tflops=165.0, memory_gb=24, bandwidth_gb_s=1008,
            tdp_watts=450, idle_watts=20, sources=_sources("NVIDIA Ada whitepaper (tensor rates with FP32 accumulate)", "assumption: 4% of TDP")),
    GpuType("A30", fp32_tflops=10.3, tf32_tflops=82.0, fp16_tflops=165.0, memory_gb=24, bandwidth_gb_s=933,
            nvlink_gb_s=100, tdp_watts=165, idle_watts=16.5, sources=_sources(_sheet("A30"), _TEN_PERCENT)),
    GpuType("L4", fp32_tflops=30.3, tf32_tflops=60.0, fp16_tflops=121.0, memory_gb=24, bandwidth_gb_s=300,
            tdp_watts=72, idle_watts=7.2, sources=_sources(_sheet("L4") + ", halved where it counts sparsity", _TEN_PERCENT)),
    GpuType("L40S", fp32_tflops=91.6, tf32_tflops=183.0, fp16_tflops=362.0, memory_gb=48, bandwidth_gb_s=864,
            tdp_watts=350, idle_watts=35, sources=_sources(_sheet("L40S"), _TEN_PERCENT)),
    GpuType("H200", fp32_tflops=67.0, tf32_tflops=495.0, fp16_tflops=989.0, memory_gb=141, bandwidth_gb_s=4800,
            nvlink_gb_s=450, tdp_watts=700, idle_watts=70, sources=_sources(_sheet("H200 SXM") + ", halved where it counts sparsity", _TEN_PERCENT)),
    GpuType("GH200", fp32_tflops=67.0, tf32_tflops=495.0, fp16_tflops=989.0, memory_gb=96, bandwidth_gb_s=4000,
            nvlink_gb_s=450, tdp_watts=700, idle_watts=70, sources=_sources("assumed equal to H100", _TEN_PERCENT, memory_gb="JUPITER documentation (Jülich): 96 GB at 4 TB/s", bandwidth_gb_s="JUPITER documentation (Jülich): 96 GB at 4 TB/s", nvlink_gb_s=_sheet("H100 SXM5"), tdp_watts="assumed equal to H100: the GPU without its Grace CPU")),
    GpuType("B200", fp32_tflops=75.0, tf32_tflops=1125.0, fp16_tflops=2250.0, memory_gb=180, bandwidth_gb_s=8000,
            nvlink_gb_s=900, tdp_watts=1000, idle_watts=100, sources=_sources(_HGX, _TEN_PERCENT, memory_gb=_sheet("DGX B200"), bandwidth_gb_s=_sheet("DGX B200"), tdp_watts=_sheet("HGX B200"))),
    GpuType("GB200", fp32_tflops=80.0, tf32_tflops=1250.0, fp16_tflops=2500.0, memory_gb=186, bandwidth_gb_s=8000,
            nvlink_gb_s=900, tdp_watts=1200, idle_watts=120, sources=_sources("NVIDIA GB200 NVL72 page (72 GPUs, divided by 72; rates without sparsity)", _TEN_PERCENT, tdp_watts="NVIDIA Blackwell architecture technical brief")),
    GpuType("B300", fp32_tflops=75.0, tf32_tflops=1125.0, fp16_tflops=2250.0, memory_gb=288, bandwidth_gb_s=8000,
            nvlink_gb_s=900, tdp_watts=1400, idle_watts=140, sources=_sources(_HGX, _TEN_PERCENT, memory_gb="NVIDIA blog on Blackwell Ultra", bandwidth_gb_s="NVIDIA blog on Blackwell Ultra", tdp_watts="NVIDIA blog on Blackwell Ultra (at most)")),
    GpuType("RTX-PRO-6000", fp32_tflops=125.95, tf32_tflops=251.9, fp16_tflops=503.8, memory_gb=96, bandwidth_gb_s=1792,
            tdp_watts=600, idle_watts=60, sources=_sources(f"{_SPECS} (Blackwell, Workstation Edition)", _TEN_PERCENT)),
    GpuType("MI300X", fp32_tflops=163.4, tf32_tflops=653.7, fp16_tflops=1307.4, memory_gb=192, bandwidth_gb_s=5300,
            nvlink_gb_s=448, tdp_watts=750, idle_watts=75, sources=_sources("AMD Instinct MI300X data sheet", _TEN_PERCENT, nvlink_gb_s="AMD Instinct MI300X data sheet: 7 links of 128 GB/s in both directions")),
    GpuType("MI325X", fp32_tflops=163.4, tf32_tflops=653.7, fp16_tflops=1307.4, memory_gb=256, bandwidth_gb_s=6000,
            nvlink_gb_s=448, tdp_watts=1000, idle_watts=100, sources=_sources("AMD Instinct MI325X data sheet", _TEN_PERCENT, nvlink_gb_s="AMD Instinct MI325X data sheet: 7 links of 128 GB/s in both directions")),
    # An MI250X module has two GPUs (GCDs), which drivers and schedulers count separately. This
    # entry is one of them, that is, half of the module.
    GpuType("MI250X-GCD", fp32_tflops=23.95, fp16_tflops=191.5, memory_gb=64, bandwidth_gb_s=1638,
            nvlink_gb_s=200, tdp_watts=250, idle_watts=25, sources=_sources("AMD Instinct MI250X data sheet, halved (vector FP32)", _TEN_PERCENT, nvlink_gb_s="LUMI documentation: link inside the module, 400 GB/s in both directions", tdp_watts="AMD Instinct MI250X data sheet: 500 W, halved (peak: 560 W)")),
    GpuType("MI100", fp32_tflops=23.1, fp16_tflops=184.6, memory_gb=32, bandwidth_gb_s=1229,
            tdp_watts=300, idle_watts=30, sources=_sources("AMD Instinct MI100 data sheet (vector FP32)", _TEN_PERCENT)),
    GpuType("TPU-v5e", fp32_tflops=32.8, fp16_tflops=197.0, memory_gb=16, bandwidth_gb_s=819,
            nvlink_gb_s=200, tdp_watts=200, idle_watts=20, sources=_sources(f"{_TPU} (1,600 Gbit/s of links)", _TEN_PERCENT, fp32_tflops=_TPU_FP32, tdp_watts=_TPU_WATTS)),
    GpuType("TPU-v5p", fp32_tflops=76.5, fp16_tflops=459.0, memory_gb=95, bandwidth_gb_s=2765,
            nvlink_gb_s=600, tdp_watts=500, idle_watts=50, sources=_sources(f"{_TPU} (4,800 Gbit/s of links)", _TEN_PERCENT, fp32_tflops=_TPU_FP32, tdp_watts=_TPU_WATTS)),
    GpuType("TPU-v6e", fp32_tflops=153.0, fp16_tflops=918.0, memory_gb=32, bandwidth_gb_s=1600,
            nvlink_gb_s=400, tdp_watts=300, idle_watts=30, sources=_sources(f"{_TPU} (3,200 Gbit/s of links)", _TEN_PERCENT, fp32_tflops=_TPU_FP32, tdp_watts=_TPU_WATTS)),
)
# fmt: on

GPU_TYPES: Mapping[str, GpuType] = {gpu.name: gpu for gpu in _CATALOGUE}
"""The catalogue by name. A name consists of a type and its memory size. Users can add types with
``gpu_types`` in YAML."""

_ALIASES = {"A100": "A100-40", "V100": "V100-16", "V100M16": "V100-16", "V100M32": "V100-32"}


def canonical(name: str) -> str:
    """Return the catalogue's name for the GPU type ``name``. ``A100`` and ``V100`` stand for the
    variants with less memory.
    """
    return _ALIASES.get(name, name)


def gpu_type(name: str) -> GpuType:
    """Look up a GPU type in the catalogue. ``A100`` and ``V100`` stand for the variants with less
    memory.

    Raises:
        ModelError: There is no such type. The message lists the known types.
    """
    try:
        return GPU_TYPES[canonical(name)]
    except KeyError:
        raise ModelError(f"unknown GPU type {name!r}; known: {', '.join(sorted(GPU_TYPES))}") from None


class ListPrice(NamedTuple):
    """The on-demand price of one GPU, including its share of the machine."""

    usd_per_h: float
    source: str


def _aws(machine: str, year: int, gpus: int = 1) -> str:
    return f"AWS {machine}{f' / {gpus}' if gpus > 1 else ''}, {year}"


LIST_PRICES: Mapping[str, ListPrice] = {
    "K80": ListPrice(0.90, _aws("p2.xlarge", 2024)),
    "P100": ListPrice(1.46, "Google Cloud, the GPU alone, 2024"),
    "V100-16": ListPrice(3.06, _aws("p3.2xlarge", 2024)),
    "V100-32": ListPrice(3.90, _aws("p3dn.24xlarge", 2024, 8)),
    "T4": ListPrice(0.526, _aws("g4dn.xlarge", 2024)),
    "A10": ListPrice(1.006, _aws("g5.xlarge (A10G)", 2024)),
    "L4": ListPrice(0.805, _aws("g6.xlarge", 2024)),
    "L40S": ListPrice(1.861, _aws("g6e.xlarge", 2024)),
    "A100-40": ListPrice(2.74, f"approximate, {_aws('p4d.24xlarge', 2025, 8)}"),
    "A100-80": ListPrice(3.43, f"approximate, {_aws('p4de.24xlarge', 2025, 8)}"),
    "H100": ListPrice(6.88, f"approximate, {_aws('p5.48xlarge', 2025, 8)}"),
    "H200": ListPrice(7.91, f"approximate, {_aws('p5en.48xlarge', 2025, 8)}"),
    "B200": ListPrice(14.24, f"approximate, {_aws('p6-b200.48xlarge', 2025, 8)}"),
    "B300": ListPrice(17.80, f"approximate, {_aws('p6-b300.48xlarge', 2025, 8)}"),
    "GB200": ListPrice(10.50, "approximate, CoreWeave NVL72, 2025"),
    "RTX-PRO-6000": ListPrice(2.50, "approximate, CoreWeave, 2025"),
    "RTX-4090": ListPrice(0.69, "approximate, RunPod, 2025"),
    "MI300X": ListPrice(6.00, "approximate, Azure ND96isr MI300X v5 / 8, 2025"),
    "TPU-v5e": ListPrice(1.20, "Google Cloud, a chip, 2024"),
    "TPU-v5p": ListPrice(4.20, "Google Cloud, a chip, 2024"),
    "TPU-v6e": ListPrice(2.70, "Google Cloud, a chip, 2024"),
}
"""List prices in US dollars by GPU type name. Types without a published on-demand price are left out."""
