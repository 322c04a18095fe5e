"""Fetch a file or a model folder from the Hugging Face hub.

`huggingface_hub` resumes and retries by itself, for minutes when there is no network: whether the
hub answers at all is asked first, in a few seconds.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import logging
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from longctx.atomic import check_free, disk_full_message
from longctx.errors import LongctxError, ModelError
from longctx.models.sources import Progress

PROBE_SECONDS = 3.0
_WANTED = ("*.safetensors", "*.json", "*.jinja", "tokenizer*")
_UNWANTED = ("*/*", "consolidated*")  # other formats of the same weights


def hub_reachable(seconds: float = PROBE_SECONDS) -> bool:
    """Whether the hub, or the proxy in front of it, accepts a connection within that time."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    url = urllib.parse.urlsplit(constants.ENDPOINT)
    host = url.hostname or ""
    if not urllib.request.proxy_bypass(host):
        proxies = urllib.request.getproxies()
        proxy = proxies.get(url.scheme) or proxies.get("all")
        url = urllib.parse.urlsplit(proxy) if proxy else url
    port = url.port or (80 if url.scheme == "http" else 443)
    answered = threading.Event()

    def connect() -> None:
        try:
            socket.create_connection((url.hostname or host, port), timeout=seconds).close()
        except OSError:
            return
        answered.set()

    # In a thread, since looking up a name has no time limit of its own.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(seconds + 1)
    return answered.is_set()


def hub_cached(repo: str, file: str | None) -> Path | None:
    """A file, or the folder of a repository, that Hugging Face's own cache on this disk holds."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, file or "config.json")
    if not isinstance(found, str):
        return None
    return Path(found) if file else Path(found).parent


def fetch_hub_file(repo: str, file: str, folder: Path, progress: Progress) -> Path:
    """Download one file of a repository into `folder` and return its path.

    Raises `ModelError` for anything the hub refuses, `DoesNotFitError` when the disk is full.
    """
    with _hub_errors(repo, folder):
        import huggingface_hub

        bar = _bar_class(f"fetching {repo} from Hugging Face", 0, progress)
        found = huggingface_hub.hf_hub_download(
            repo, file, local_dir=folder, etag_timeout=PROBE_SECONDS, tqdm_class=bar
        )
    return Path(found)


def fetch_hub_folder(repo: str, folder: Path, progress: Progress) -> None:
    """Download weights (safetensors), settings and tokenizer of a repository into `folder`.

    Raises as `fetch_hub_file` does, and when the repository holds no safetensors.
    """
    sizes = hub_files(repo, folder)
    wanted = [name for name in sizes if _is_wanted(name)]
    if not any(name.endswith(".safetensors") for name in wanted):
        ggufs = [name for name in sizes if name.endswith(".gguf")]
        hint = f"; it has GGUF files: name one as {repo}:{ggufs[0]}" if ggufs else ""
        raise ModelError(f"{repo}: holds no safetensors{hint}")
    total = sum(sizes[name] for name in wanted)
    there = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    check_free(folder, max(0, total - there), f"the model {repo}")
    with _hub_errors(repo, folder):
        import huggingface_hub

        huggingface_hub.snapshot_download(
            repo,
            local_dir=folder,
            etag_timeout=PROBE_SECONDS,
            allow_patterns=wanted,
            tqdm_class=_bar_class(f"fetching {repo} from Hugging Face", total, progress),
        )


def hub_files(repo: str, folder: Path) -> dict[str, int]:
    """The files of a repository and their sizes in bytes. Raises as `fetch_hub_file` does."""
    with _hub_errors(repo, folder):
        import huggingface_hub

        info = huggingface_hub.HfApi().model_info(repo, files_metadata=True, timeout=15)
        return {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}


def _is_wanted(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in _WANTED) and not any(
        fnmatch.fnmatch(name, pattern) for pattern in _UNWANTED
    )


@contextlib.contextmanager
def _hub_errors(repo: str, folder: Path) -> Iterator[None]:
    """Turn what the hub's library raises into one line; keep it from announcing each retry."""
    from huggingface_hub import errors

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        with disk_full_message(folder / repo.rpartition("/")[2]):
            yield
    except errors.GatedRepoError:
        raise ModelError(
            f"{repo}: its owner lets in only users who asked; accept its terms on the hub, "
            "set HF_TOKEN and try again"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ModelError(f"{repo}: no such model on Hugging Face, or it is private") from None
    except errors.EntryNotFoundError as error:
        raise ModelError(f"{repo}: {_first_line(error)}") from None
    except LongctxError:
        raise
    except Exception as error:  # which families it lets through differs between its versions
        raise ModelError(f"{repo}: Hugging Face failed ({_first_line(error)}); try again") from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__


def _bar_class(stage: str, total: int, progress: Progress) -> type:
    """A progress bar that draws nothing and passes the bytes on.

    Files have bars of their own below one for all of them, so the fullest bar is the one to tell.
    """
    from tqdm import tqdm

    lock, told = threading.Lock(), [0]

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any):
            self.counts_bytes = kwargs.get("unit") == "B"
            kwargs.pop("name", None)
            super().__init__(*args, **(kwargs | {"file": io.StringIO(), "disable": False}))

        def update(self, n: float | None = 1) -> bool | None:
            drawn = super().update(n)
            with lock:
                if self.counts_bytes and self.n > told[0]:
                    told[0] = int(self.n)
                    progress(stage, told[0], max(total or int(self.total or 0), told[0]))
            return drawn

    return Bar
