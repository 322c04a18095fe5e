"""One checkpoint layer by layer and in the ordinary order, each in a process of its own.

A process is started anew because the largest memory it held is only known of it whole.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from longctx.errors import LongctxError
from longctx.models.native.synth import preset, write_checkpoint

TOKENS = 2048
SIZES = {
    "hidden_size": 768,
    "moe_intermediate_size": 256,
    "n_routed_experts": 64,
    "intermediate_size": 1536,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0,
    "max_position_embeddings": 8192,
}
SCHEDULE = "FFFSSSFSSSFS"


def compared(folder: Path, tokens: int = TOKENS) -> Iterator[str]:
    """Lines: bytes read, memory and time of both orders, and whether logits and caches agree."""
    place = folder / "native-stream-model"
    if not (place / "config.json").exists():
        config = preset("glm-5.2", "small", schedule=SCHEDULE, **SIZES)
        write_checkpoint(config, place, fp8=True)
    size = sum(file.stat().st_size for file in place.glob("*.safetensors"))
    yield f"{len(SCHEDULE)} layers, {size / 1e6:,.0f} MB in FP8, {tokens:,} tokens"
    found = {order: _in_a_process(place, order, tokens) for order in ("ordinary", "streamed")}
    for order, done in found.items():
        memory = f"{done['peak_bytes'] / 1e6:,.0f} MB held at most beyond the start"
        yield (
            f"  {order}: {done['bytes_read'] / 1e6:,.1f} MB of weights handed out, {memory}, "
            f"{done['seconds']:.1f} s"
        )
    same = found["ordinary"]["digest"] == found["streamed"]["digest"]
    yield f"  logits and caches are {'identical' if same else 'DIFFERENT'}, to the bit"


def _in_a_process(place: Path, order: str, tokens: int) -> dict:
    command = [sys.executable, "-m", "longctx.jobs.native_stream", str(place), order, str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise LongctxError(f"{order} order failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)


def _measure(place: Path, order: str, tokens: int) -> dict:
    import torch

    from longctx.models.native.cache import NativeCache
    from longctx.models.native.config import parse_native_config
    from longctx.models.native.decoder import NativeDecoder
    from longctx.models.native.streaming import stream_prefill
    from longctx.models.weights.native import NativeSource

    config = parse_native_config(json.loads((place / "config.json").read_text(encoding="utf-8")))
    source = NativeSource(place, torch.bfloat16)
    cache = NativeCache(config, tokens, "bf16")
    ids = torch.randint(0, config.vocab, (tokens,), generator=torch.Generator().manual_seed(0))
    before, begin = _peak_bytes(), time.perf_counter()
    if order == "streamed":
        with tempfile.TemporaryDirectory(dir=place.parent) as spill:
            logits = stream_prefill(config, source, ids, cache, spill_dir=Path(spill))
    else:
        logits = NativeDecoder(config, source).forward(ids, cache, last_only=True)
    seconds = time.perf_counter() - begin
    digest = hashlib.sha256(logits.numpy().tobytes())
    for tensor in cache.valid().values():
        digest.update(tensor.view(torch.uint8).numpy().tobytes())
    return {
        "bytes_read": source.bytes_read,
        "peak_bytes": _peak_bytes() - before,
        "seconds": seconds,
        "digest": digest.hexdigest(),
    }


def _peak_bytes() -> int:
    """The most this process has held; where Linux says it, without its parent's."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    print(json.dumps(_measure(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
