"""The container without a container: every command of the Dockerfile and the compose file is run outside Docker.

Instructions are carried out one after another in a temporary folder that stands for the image's root: paths are put
below it, `COPY` copies, `RUN` runs, `ENV` sets. Then the server starts as `CMD` says, and `HEALTHCHECK` asks it. What
needs Docker itself (pulling the base image, mounting, dropping privileges) is checked as text.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICE: dict[str, Any] = COMPOSE["services"]["katagami"]
START_S = 20
ACCOUNT_COMMANDS = ("groupadd", "useradd")  # they take a folder to stand for the root


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile, continuation lines joined."""

    name: str
    text: str


def parse(dockerfile: str) -> list[list[Instruction]]:
    """Instructions of each stage, which begins with `FROM`."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    stages: list[list[Instruction]] = []
    for line in joined.splitlines():
        name, text = line.split(maxsplit=1)
        if name == "FROM":
            stages.append([])
        stages[-1].append(Instruction(name, text))
    return stages


STAGES = parse(DOCKERFILE)


def last(name: str) -> str:
    """Text of an instruction of the final stage, of which there is one."""
    (text,) = [each.text for each in STAGES[-1] if each.name == name]
    return text


@dataclass
class Image:
    """A folder that stands for an image's root, and what its instructions have set so far."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"

    def locate(self, path: str) -> Path:
        """Where a path of the image lies outside."""
        return self.root / os.path.join(self.workdir, path).lstrip("/")

    def relocate(self, text: str) -> str:
        """Put the image's own paths in a text below the root."""
        return re.sub(r"(?<![\w.])/(?=(?:opt|src|data)\b)", f"{self.root}/", text)

    def carry_out(self, instruction: Instruction) -> None:
        """Do what an instruction says."""
        actions = {"COPY": self.copy, "ENV": self.set, "RUN": self.run_line, "WORKDIR": self.enter}
        if instruction.name in actions:
            actions[instruction.name](instruction.text)

    def enter(self, text: str) -> None:
        """`WORKDIR`: go to a folder, made where missing."""
        self.workdir = text
        self.locate(".").mkdir(parents=True, exist_ok=True)

    def set(self, text: str) -> None:
        """`ENV`: set variables, which may name others."""
        for word in shlex.split(text):
            name, value = word.split("=", 1)
            self.environment[name] = self.relocate(value.replace("$PATH", self.environment["PATH"]))

    def copy(self, text: str) -> None:
        """`COPY` from the repository; the virtual environment of the other stage is there already."""
        *sources, target = text.split()
        if text.startswith("--from="):
            return
        for source in sources:
            to = self.locate(target)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, to / source if to.is_dir() else to)

    def run_line(self, text: str) -> None:
        """`RUN`: each command of a line, those that make accounts below the root and only as its owner."""
        privileged = os.geteuid() == 0 and all(map(shutil.which, ACCOUNT_COMMANDS))
        for command in text.split("&&"):
            if command.split()[0] in (*ACCOUNT_COMMANDS, "install"):
                if privileged:
                    self.run(re.sub(r"^\s*(\w+add) ", rf"\1 --prefix {self.root} ", command))
            else:
                self.run(command)

    def run(self, command: str) -> None:
        """Run one command in the shell."""
        done = subprocess.run(
            ["/bin/sh", "-c", self.relocate(command)],
            cwd=self.locate("."),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Both stages carried out, in one folder; takes as long as installing the dependencies."""
    root = tmp_path_factory.mktemp("image")
    (root / "bin").mkdir()
    python = root / "bin" / "python"  # stands for the base image's
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (root / "etc").mkdir()
    for name in ("passwd", "group"):
        (root / "etc" / name).touch()
    kept = {name: value for name, value in os.environ.items() if re.match("HOME$|LANG|LC_|PIP_|SSL_|.*_proxy$", name)}
    outside = kept | {"PATH": f"{root / 'bin'}:{os.environ['PATH']}"}
    for stage in STAGES:
        image = Image(root, dict(outside))
        for instruction in stage:
            image.carry_out(instruction)
            image.environment.pop("PIP_NO_CACHE_DIR", None)  # the cache of this machine is welcome
    return image


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server(image: Image) -> Iterator[Image]:
    """The image with its `CMD` running, on a free port."""
    assert image.environment["KATAGAMI_PORT"] == "8000"
    image.environment["KATAGAMI_PORT"] = str(free_port())
    command = json.loads(last("CMD"))
    executable = shutil.which(command[0], path=image.environment["PATH"])
    assert executable is not None
    assert Path(executable).is_relative_to(image.root)
    with subprocess.Popen([executable, *command[1:]], cwd=image.locate("."), env=image.environment) as process:
        yield image
        process.terminate()
        assert process.wait(30) == 0


def health(image: Image, command: list[str]) -> int:
    """Exit code of a health check."""
    executable = shutil.which(command[0], path=image.environment["PATH"])
    assert executable is not None
    done = subprocess.run([executable, *command[1:]], env=image.environment, capture_output=True, timeout=30)
    return done.returncode


def dockerfile_check() -> list[str]:
    """The command of `HEALTHCHECK`."""
    command: list[str] = json.loads(last("HEALTHCHECK").split("CMD", 1)[1])
    return command


def compose_check(image: Image) -> list[str]:
    """The command of the compose file's health check, which asks the container's fixed port."""
    kind, *command = SERVICE["healthcheck"]["test"]
    assert kind == "CMD"
    return [word.replace(":8000/", f":{image.environment['KATAGAMI_PORT']}/") for word in command]


def test_the_commands_build_an_installation(image: Image) -> None:
    """After all `RUN` lines the environment holds the packages, the models and the command, and no pip."""
    script = "import app, engine, schemas_cache, sys; print(app.__file__)"
    python = image.root / "opt" / "katagami" / "bin" / "python"
    done = subprocess.run([python, "-P", "-c", script], capture_output=True, text=True, check=True)
    packages = Path(done.stdout.strip()).parents[1]
    assert packages.is_relative_to(image.root)
    assert sorted(path.name for path in (packages / "engine" / "embedded").iterdir()) == [
        "katagami-bpe",
        "katagami-char",
    ]
    assert not (packages / "pip").exists()


def test_the_server_becomes_healthy_and_ready(server: Image) -> None:
    """`CMD` starts a server that both health checks find healthy, and that gets ready."""
    url = f"http://127.0.0.1:{server.environment['KATAGAMI_PORT']}/ready"
    wait_until(lambda: health(server, dockerfile_check()) == 0)
    assert health(server, compose_check(server)) == 0
    wait_until(lambda: httpx.get(url, trust_env=False).status_code == 200)


def wait_until(condition: Callable[[], bool]) -> None:
    """Return as soon as a condition holds; fail when it does not within the time for a start."""
    give_up_s = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.2)


def test_models_are_pulled_with_the_pip_of_the_base_image(image: Image) -> None:
    """The environment has none; the one that is on the path is called, here one that fails in its own way."""
    pip = image.root / "bin" / "pip"  # stands for the base image's
    pip.write_text("#!/bin/sh\nexit 77\n")
    pip.chmod(0o755)
    katagami = image.root / "opt" / "katagami" / "bin" / "katagami"
    command = [katagami, "models", "pull", "smollm2-135m-instruct"]
    done = subprocess.run(command, cwd=image.locate("."), env=image.environment, capture_output=True, text=True)
    assert (2, True) == (done.returncode, "(exit code 77" in done.stderr)


def test_a_missing_server_is_unhealthy(image: Image) -> None:
    """Where nobody answers, both checks exit with 1."""
    environment = image.environment | {"KATAGAMI_PORT": str(free_port())}
    silent = Image(image.root, environment)
    assert [health(silent, dockerfile_check()), health(silent, compose_check(silent))] == [1, 1]


def test_the_final_stage_has_no_build_tools() -> None:
    """The image is slim, takes one thing from the other stage, and installs nothing."""
    assert [stage[0].text.split()[0] for stage in STAGES] == ["python:3.13-slim"] * 2
    assert [each.text for each in STAGES[-1] if each.name == "COPY"] == ["--from=build /opt/katagami /opt/katagami"]
    assert not re.search(r"apt|pip", " ".join(each.text for each in STAGES[-1] if each.name == "RUN"))


def test_the_container_runs_without_privileges() -> None:
    """A user with a fixed number, which the accounts made before and the volumes belong to."""
    user = last("USER")
    assert user == "10001:10001"
    assert "--uid 10001 --gid 10001" in last("RUN")
    assert "--owner 10001 --group 10001 /data /data/schemas /data/models" in last("RUN")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_user_owns_the_volumes(image: Image) -> None:
    """The account exists under its number, and the folders of the volumes are its own."""
    accounts = [line.split(":") for line in (image.root / "etc" / "passwd").read_text().splitlines()]
    assert [(name, uid, gid) for name, _, uid, gid, *_ in accounts] == [("katagami", "10001", "10001")]
    assert {(image.root / "data" / name).stat().st_uid for name in (".", "schemas", "models")} == {10001}


def test_the_volumes_hold_what_survives() -> None:
    """Compiled schemas and models are volumes, under the home that the server is told; compose names both."""
    volumes = json.loads(last("VOLUME"))
    home = dict(word.split("=", 1) for word in last("ENV").split())["KATAGAMI_HOME"]
    assert volumes == [f"{home}/schemas", f"{home}/models"]
    mounted = dict(mount.split(":") for mount in SERVICE["volumes"])
    assert list(mounted.values()) == volumes
    assert mounted.keys() == COMPOSE["volumes"].keys()


def test_the_port_is_published_on_this_machine_only() -> None:
    """The container listens everywhere, on the port it exposes; compose publishes it on 127.0.0.1 by default."""
    environment = dict(word.split("=", 1) for word in last("ENV").split())
    assert environment["KATAGAMI_HOST"] == "0.0.0.0"  # noqa: S104
    assert last("EXPOSE") == environment["KATAGAMI_PORT"] == "8000"
    assert SERVICE["ports"] == ["${KATAGAMI_PUBLISH:-127.0.0.1:8000}:8000"]


def test_compose_starts_one_service_of_this_version() -> None:
    """One service, built here, tagged with the project's version, restarted, with its root read-only."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert list(COMPOSE["services"]) == ["katagami"]
    assert (SERVICE["build"], SERVICE["image"]) == (".", f"katagami:{version}")
    assert (SERVICE["restart"], SERVICE["read_only"]) == ("unless-stopped", True)


def test_the_build_context_is_what_is_copied() -> None:
    """`.dockerignore` lets through what `COPY` names, and nothing else."""
    copied = {word for stage in STAGES for each in stage if each.name == "COPY" for word in each.text.split()[:-1]}
    copied = {word for word in copied if not word.startswith(("--from", "/"))}
    lines = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and line[0] != "#"]
    context = {path.name for path in ROOT.iterdir() if not ignored(path.name, lines)}
    assert context == copied


def ignored(name: str, patterns: list[str]) -> bool:
    """Whether an entry of the top level is left out: the last pattern that fits decides."""
    fitting = [pattern for pattern in patterns if fnmatch(name, pattern.lstrip("!"))]
    return bool(fitting) and not fitting[-1].startswith("!")
