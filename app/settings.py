"""What the server is told from outside: environment variables in, `Settings` out, frozen.

Every setting is `KATAGAMI_` and its name in capitals; `katagami serve` has a flag for most, and a flag wins.
docs/configuration.md lists them; a test keeps the two equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from engine import EngineConfig
from engine.config import KV_CACHE_BYTES
from engine.models.models_folder import default_home
from schemas_cache import DEFAULT_LIMITS, MEMORY_BYTES, SIZE_LIMIT_BYTES

PREFIX = "KATAGAMI_"
ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#\sA-Z]+")


class Settings(BaseSettings):
    """All settings, with their defaults and bounds."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", populate_by_name=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    model: Annotated[tuple[str, ...], NoDecode] = ("katagami-char", "katagami-bpe")
    home: Path = Field(default_factory=default_home)
    cache_size_limit_bytes: int = Field(default=SIZE_LIMIT_BYTES, ge=2**20)
    cache_memory_limit_bytes: int = Field(default=MEMORY_BYTES, ge=2**20)
    kv_cache_bytes: int = Field(default=KV_CACHE_BYTES, ge=2**20)
    max_running: int = Field(default=64, ge=1)
    max_queued: int = Field(default=256, ge=1)
    batch_invariant: bool = False
    threads: int = Field(default=1, ge=1)  # `blas_threads` reads it, before there are settings
    compile_workers: int = Field(default=2, ge=1)
    compile_timeout_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    max_states: int = Field(default=DEFAULT_LIMITS.max_states, ge=1_000)
    max_frames: int = Field(default=DEFAULT_LIMITS.max_frames, ge=1_000)
    max_table_bytes: int = Field(default=DEFAULT_LIMITS.max_memory_bytes, ge=2**20)
    max_compile_work: int = Field(default=DEFAULT_LIMITS.max_work, ge=10_000)
    max_state_work: int = Field(default=DEFAULT_LIMITS.max_expansion_work, ge=10_000)
    default_max_tokens: int = Field(default=512, ge=1)
    structured_output: bool = True
    api_key: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(), validation_alias=AliasChoices(f"{PREFIX}API_KEY", f"{PREFIX}API_KEYS")
    )
    api_key_file: Path | None = None
    metrics_need_key: bool = False
    cors_origin: Annotated[tuple[str, ...], NoDecode] = ()
    body_limit_bytes: int = Field(default=8 * 2**20, ge=1)
    request_timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    client_timeout_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    max_connections: int = Field(default=1000, ge=1)
    grace_s: float = Field(default=30.0, ge=0, allow_inf_nan=False)
    seed: int | None = Field(default=None, ge=0)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    log_prompts: bool = False

    @field_validator("model", "api_key", "cors_origin", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Several are written with commas between them."""
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value

    @field_validator("cors_origin")
    @classmethod
    def _as_browsers_write_it(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """One that no browser sends would let nobody in, and say nothing. An empty variable is none."""
        if value == ("",):
            return ()
        odd = next((origin for origin in value if not ORIGIN.fullmatch(origin)), None)
        if odd is not None:
            told = "must be * or scheme://host:port in small letters, with nothing behind it, not {origin}"
            raise PydanticCustomError("origin", told, {"origin": repr(odd)})
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @property
    def cache_folder(self) -> Path:
        """Where compiled schemas are kept."""
        return self.home / "schemas"

    def engine_config(self) -> EngineConfig:
        """The engine's part of the settings."""
        return EngineConfig(
            model=self.model[0],
            models=self.model,
            home=self.home,
            cache_folder=self.cache_folder,
            cache_size_limit_bytes=self.cache_size_limit_bytes,
            cache_memory_limit_bytes=self.cache_memory_limit_bytes,
            kv_cache_bytes=self.kv_cache_bytes,
            max_running=self.max_running,
            max_queued=self.max_queued,
            batch_invariant=self.batch_invariant,
            compile_workers=self.compile_workers,
            compile_timeout_s=self.compile_timeout_s,
            max_states=self.max_states,
            max_frames=self.max_frames,
            max_table_bytes=self.max_table_bytes,
            max_compile_work=self.max_compile_work,
            max_state_work=self.max_state_work,
            seed=self.seed,
            grace_s=self.grace_s,
        )


def unknown_variables(names: Iterable[str]) -> dict[str, str | None]:
    """Names that look like settings and are none, each with the nearest that is one."""
    known = {name.upper(): f"{PREFIX}{name.upper()}" for name in (*Settings.model_fields, "api_keys")}
    ours = [name for name in names if name.upper().startswith(PREFIX)]
    nearest = {name: get_close_matches(name.upper().removeprefix(PREFIX), known, n=1) for name in sorted(ours)}
    return {
        name: known[matches[0]] if matches else None
        for name, matches in nearest.items()
        if name.upper() not in known.values()
    }
