"""The GPU kernel in Triton's interpreter, against the plain-torch reference.

The interpreter is switched on by an environment variable read at import, so it runs in a process
of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

SCRIPT = """
import torch
from longctx.kernels.block_scores.reference import reference
from longctx.kernels.block_scores.triton import gpu_block_scores

torch.manual_seed(0)
SIZES = ((5, 100, 64, 32), (63, 129, 128, 32), (70, 1, 32, 16), (3, 640, 128, 32))
for rows, tokens, dim, block in SIZES:
    q = torch.randn(rows, dim)
    keys = torch.randint(-127, 128, (tokens, dim), dtype=torch.int8)
    scales = (torch.rand(tokens) * 0.02 + 0.001).half()
    found = gpu_block_scores((q / dim**0.5).half(), keys, scales, block)
    wanted = reference(q, keys, scales, block)
    assert found.shape == wanted.shape and not found.isnan().any()
    assert (found - wanted).abs().max() < 5e-3, (rows, tokens, dim, block)
    found = gpu_block_scores(q / dim**0.5, keys.float(), None, block)
    assert (found - reference(q, keys.float(), None, block)).abs().max() < 1e-3

# equal keys tie, negative scores stay negative where a block is cut short
q = -torch.ones(1, 16)
keys = torch.ones(33, 16)
assert gpu_block_scores(q, keys, None, 32).tolist() == [[-16.0, -16.0]]
print("equal")
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is a dependency on Linux only")
def test_kernel_equals_the_reference():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=False
    )

    assert done.stdout.strip() == "equal", done.stderr[-2000:]
