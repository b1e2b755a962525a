"""The catalogue of GPU types against the makers' architecture: cores, clocks, buses and links."""

from __future__ import annotations

import pytest

from dagsim.model.gpu import GPU_TYPES

CORES_AND_GHZ = {
    **{"A100-40": (6912, 1.41), "A100-80": (6912, 1.41), "V100-16": (5120, 1.53), "V100-32": (5120, 1.53)},
    **{"T4": (2560, 1.59), "P100": (3584, 1.48), "K80": (2496, 0.875), "A10": (9216, 1.695), "H100": (16896, 1.98)},
    **{"H200": (16896, 1.98), "RTX-2080Ti": (4352, 1.545), "RTX-4090": (16384, 2.52), "A30": (3584, 1.44)},
    **{"L4": (7424, 2.04), "L40S": (18176, 2.52), "RTX-PRO-6000": (24064, 2.617)},
    **{"MI300X": (304 * 128, 2.1), "MI325X": (304 * 128, 2.1)},
    **{"A40": (10752, 1.74), "MI100": (7680, 1.502), "MI250X-GCD": (110 * 64, 1.7), "GH200": (16896, 1.98)},
}
"""FP32 cores and boost clock; a core does a multiplication and an addition per cycle."""
BITS_AND_GBIT = {
    **{"A100-40": (5120, 2.43), "A100-80": (5120, 3.186), "V100-16": (4096, 1.758), "V100-32": (4096, 1.758)},
    **{"T4": (256, 10), "P100": (4096, 1.43), "K80": (384, 5), "A10": (384, 12.5), "H100": (5120, 5.234)},
    **{"H200": (6144, 6.25), "RTX-2080Ti": (352, 14), "RTX-4090": (384, 21), "A30": (3072, 2.43), "L4": (192, 12.5)},
    **{"L40S": (384, 18), "RTX-PRO-6000": (512, 28), "MI300X": (8192, 5.176), "MI325X": (8192, 5.86)},
    **{"B200": (8192, 7.8125), "GB200": (8192, 7.8125), "B300": (8192, 7.8125)},
    **{"A40": (384, 14.5), "MI100": (4096, 2.4), "MI250X-GCD": (4096, 3.2)},
}
"""Width of the memory bus, and the rate of each of its pins."""
LINKS_AND_GB_S = {
    **{"A100-40": (12, 25), "A100-80": (12, 25), "V100-16": (6, 25), "V100-32": (6, 25), "P100": (4, 20)},
    **{"H100": (18, 25), "H200": (18, 25), "B200": (18, 50), "GB200": (18, 50), "B300": (18, 50)},
    **{"RTX-2080Ti": (2, 25), "A30": (4, 25), "MI300X": (7, 64), "MI325X": (7, 64)},
    **{"TPU-v5e": (4, 50), "TPU-v5p": (6, 100), "TPU-v6e": (4, 100)},
    **{"A40": (4, 14.0625), "MI250X-GCD": (4, 50), "GH200": (18, 25)},
}
"""Links to other GPUs, and the rate of each in one direction."""
MEMORY_GB_AND_WATTS = {
    **{"A100-40": (40, 400), "A100-80": (80, 400), "V100-16": (16, 300), "V100-32": (32, 300), "T4": (16, 70)},
    **{"P100": (16, 300), "K80": (24 / 2, 300 / 2), "A10": (24, 150), "H100": (80, 700), "H200": (141, 700)},
    **{"RTX-2080Ti": (11, 250), "RTX-4090": (24, 450), "A30": (24, 165), "L4": (24, 72), "L40S": (48, 350)},
    **{"B200": (180, 1000), "GB200": (186, 1200), "B300": (288, 1400), "RTX-PRO-6000": (96, 600)},
    **{"MI300X": (192, 750), "MI325X": (256, 1000), "TPU-v5e": (16, 200), "TPU-v5p": (95, 500), "TPU-v6e": (32, 300)},
    **{"A40": (48, 300), "MI100": (32, 300), "MI250X-GCD": (64, 500 / 2), "GH200": (96, 700)},
}


@pytest.mark.parametrize("name", GPU_TYPES)
def test_rates_are_those_of_cores_buses_and_links(name: str) -> None:
    gpu = GPU_TYPES[name]
    if name in CORES_AND_GHZ:
        cores, ghz = CORES_AND_GHZ[name]
        assert gpu.fp32_tflops == pytest.approx(2 * cores * ghz / 1000, rel=2.5e-3)
    if name in BITS_AND_GBIT:
        bits, gbit = BITS_AND_GBIT[name]
        assert gpu.bandwidth_gb_s == pytest.approx(bits * gbit / 8, rel=1e-3)
    links, gb_s = LINKS_AND_GB_S.get(name, (0, 0))
    assert gpu.nvlink_gb_s == links * gb_s
    assert (gpu.memory_gb, gpu.tdp_watts) == MEMORY_GB_AND_WATTS[name]


@pytest.mark.parametrize("name", GPU_TYPES)
def test_other_precisions_and_idle_power_follow_the_rules_of_their_sources(name: str) -> None:
    gpu = GPU_TYPES[name]
    rule = gpu.sources["idle_watts"]
    percent = {"assumption: 10% of TDP": 10, "assumption: 6% of TDP": 6, "assumption: 4% of TDP": 4.4444}.get(rule)
    if percent:
        assert gpu.idle_watts == pytest.approx(gpu.tdp_watts * percent / 100, rel=1e-3)
    if gpu.tf32_tflops and gpu.fp16_tflops:
        assert gpu.fp16_tflops == pytest.approx(2 * gpu.tf32_tflops, rel=0.013)
    if "TPU" in name:
        assert gpu.fp32_tflops == pytest.approx(gpu.fp16_tflops / 6, rel=2e-3)
    assert gpu.fp16_tflops is None or gpu.fp16_tflops >= gpu.fp32_tflops
    assert set(gpu.sources) >= {"fp32_tflops", "memory_gb", "bandwidth_gb_s", "tdp_watts", "idle_watts"}
