"""Makes the golden files of this folder with llama.cpp: tokens of 200 strings, logits of 2,000 positions, greedy text.

Run once, from the root of the repository, with the sources of llama.cpp (they are in the `llama-cpp-python` sdist) and
a build of its library (ten minutes on one core):

    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36 && tar xf llama_cpp_python-0.3.36.tar.gz
    cd llama_cpp_python-0.3.36/vendor/llama.cpp
    cmake -B build -DLLAMA_CURL=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
    cmake --build build --target llama
    cd -
    .venv/bin/python tests/data/llama/make_golden.py "$(katagami models path smollm2-135m-instruct)" \
        llama_cpp_python-0.3.36/vendor/llama.cpp llama_cpp_python-0.3.36/vendor/llama.cpp/build/bin

llama.cpp rounds activations to 8 bits where weights are quantised, so it is asked about a copy of the model whose
weights are the same numbers in float32. Texts that come from the repository are stored as tokens, so that they may
change.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
POSITIONS = 2000
TEXT_TOKENS = 250
BEST = 8
GREEDY_TOKENS = 40

STRINGS = [
    *(
        "",
        " ",
        "  ",
        "\n",
        "\n\n",
        " \n ",
        "\t",
        "\t\tx",
        "   three before",
        "three after   ",
        "a  b   c",
        "\r\n",
        "\u00a0x",
    ),
    *(
        "Hello, world!",
        "don't can't it's we'll they've I'm you'd",
        "DON'T",
        "e-mail",
        "snake_case camelCase PascalCase",
    ),
    *(
        "0",
        "42",
        "1234567890",
        "3.14159",
        "-1e-10",
        "2026-11-30T09:23:54Z",
        "v1.2.3-rc4",
        "0x1F",
        "١٢٣",
        "१२३",
        "²³",
        "½",
    ),
    *(
        '{"id": 1, "title": "型紙"}',
        '{"a":[1,2,{"b":null}],"c":true}',
        '",',
        '"}',
        '": "',
        '\\"',
        "[[]]",
        '{"level": "easy"}',
    ),
    *(
        "型紙は染めの道具です。",
        "吾輩は猫である。名前はまだ無い。",
        "カタカナとひらがな",
        "「引用」、句読点。",
        "東京都千代田区１－１",
    ),
    *("😀", "👩‍👩‍👧‍👦", "🇯🇵", "👍🏽", "☃️", "a😀b", "😀😀😀", "❤️‍🔥"),
    *(
        "naïve café",
        "e\u0301",
        "Ångström",
        "ß",
        "ĿŀŁł",
        "Привет, мир",
        "שלום",
        "مرحبا بالعالم",
        "한국어 문장",
        "ไทย",
        "ελληνικά",
    ),
    *(
        "def f(x: int) -> int:\n    return x + 1\n",
        "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}",
        "SELECT * FROM t WHERE id=1;",
    ),
    *(
        "<html><body>&nbsp;</body></html>",
        "$ ls -la | grep foo",
        "a && b || !c",
        "x -> y => z",
        "C:\\Users\\me",
        "/usr/bin/env",
    ),
    *("https://example.org/a?b=c&d=%20#e", "me@example.org", "#hashtag @name", "100%", "$5.00", "€20", "¥300", "№ 5"),
    *(
        "<|im_start|>user\nhi<|im_end|>",
        "<|endoftext|>",
        "<|im_end|>",
        "<repo_name>",
        "<|im_start",
        "|>",
        "<empty_output>",
    ),
    *("\x00", "\x1b[31m", "\x7f", "\ufeff", "\u200b", "\u2028", "\ufffd", "\U0010ffff", "\u0301", "a\u0300\u0301"),
    *(
        "....",
        "......!!!???",
        "----",
        "====",
        "____",
        "'''",
        '"""',
        "```python\n```",
        "~~~",
        "* * *",
        "1. one\n2. two\n",
    ),
    *(
        "supercalifragilisticexpialidocious",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "ababababab",
        "the the the",
        "The THE tHe",
    ),
    *(
        "Ⅷ",
        "①②③",
        "ﬁ ligature",
        "Ｆｕｌｌｗｉｄｔｈ",
        "𝔘𝔫𝔦",
        "𓀀",
        "\u3000全角空白\u3000",
        "…",
        "–—",
        "“quoted” ‘text’",
        "O’Neill’s",
    ),
]
PROMPTS = [
    "The capital of France is",
    "Once upon a time, there was a",
    "def fibonacci(n):",
    "1, 2, 3, 4, 5,",
    '{"name": "Alice", "age":',
    "The three primary colours are",
    "Water boils at",
    "In 1969, the first",
    "import numpy as np\n",
    "Dear Sir or Madam,\n",
]
QUESTIONS = [
    "What is the capital of Japan?",
    "Write a haiku about rain.",
    "List three fruits.",
    "What is 2 + 2?",
    "Translate 'good morning' to Spanish.",
    "Who wrote Hamlet?",
    "Explain photosynthesis in one sentence.",
    "Give me a JSON object with a name and an age.",
    "Why is the sky blue?",
    "Name a programming language.",
]
JAPANESE = "型紙は、布を染めるために紙を切り抜いたものです。色は切り抜かれたところだけを通ります。" * 6


class Reference:
    """The program of reference.cpp."""

    def __init__(self, program: Path, model: Path) -> None:
        self._process = subprocess.Popen([program, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tokens(self, text: str) -> list[int]:
        """Tokens of a text."""
        data = text.encode()
        self._ask(struct.pack("<ii", 0, len(data)) + data)
        return self._numbers(self._numbers(1)[0])

    def logits(self, token_ids: list[int], size: int) -> np.ndarray:
        """Logits after each token, float32 (N, V)."""
        self._ask(struct.pack(f"<ii{len(token_ids)}i", 1, len(token_ids), *token_ids))
        data = self._process.stdout.read(4 * size * len(token_ids))
        return np.frombuffer(data, "<f4").reshape(len(token_ids), size)

    def greedy(self, token_ids: list[int], count: int) -> list[int]:
        """The likeliest tokens that follow."""
        self._ask(struct.pack(f"<ii{len(token_ids) + 1}i", 2, len(token_ids), *token_ids, count))
        return self._numbers(count)

    def _ask(self, question: bytes) -> None:
        self._process.stdin.write(question)
        self._process.stdin.flush()

    def _numbers(self, count: int) -> list[int]:
        return list(struct.unpack(f"<{count}i", self._process.stdout.read(4 * count)))


def compile_reference(sources: Path, library: Path, program: Path) -> None:
    """Compile reference.cpp against a build of llama.cpp."""
    includes = [f"-I{sources / folder}" for folder in ("include", "ggml/include")]
    libraries = [f"-L{library}", f"-Wl,-rpath,{library.resolve()}", "-lllama", "-lggml", "-lggml-base"]
    command = ["g++", "-O2", "-std=c++17", *includes, HERE / "reference.cpp", *libraries, "-o", program]
    subprocess.run(command, check=True)


def write_float32(source: Path, target: Path) -> None:
    """The same model with all weights in float32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def strings() -> list[str]:
    """200 of them: the list above, and random ones made of its parts and of random characters."""
    draws = random.Random(0)
    made = []
    while len(STRINGS) + len(made) < 200:
        parts = [draws.choice([*STRINGS, chr(draws.randrange(0x20, 0xD7FF)), str(draws.random())]) for _ in range(4)]
        made.append(draws.choice(["", " ", "\n"]).join(parts))
    return STRINGS + made


def write_tokens(reference: Reference) -> None:
    """tokens.json: each string with its tokens."""
    rows = [[text, reference.tokens(text)] for text in strings()]
    lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    (HERE / "tokens.json").write_text(f"[\n{lines}\n]\n")


def write_logits(reference: Reference, size: int) -> None:
    """logits.npz: texts of 250 tokens each, and the best eight logits after each token."""
    names = ("LICENSE", "README.md", "engine/step.py", "docs/configuration.md", "pyproject.toml", "CHANGELOG.md")
    texts = [(ROOT / name).read_text("utf-8") for name in names]
    chats = [text for question in QUESTIONS for text in ("user\n" + question, "assistant\n")]
    texts += [JAPANESE, "\n".join(chats), " ".join(PROMPTS), (ROOT / "engine/models/__init__.py").read_text("utf-8")]
    token_ids = [reference.tokens(text)[:TEXT_TOKENS] for text in texts]
    token_ids = [ids for ids in token_ids if len(ids) == TEXT_TOKENS][: POSITIONS // TEXT_TOKENS]
    found = np.concatenate([reference.logits(ids, size) for ids in token_ids])
    best = np.argsort(-found, axis=1, kind="stable")[:, :BEST]
    np.savez_compressed(
        HERE / "logits.npz",
        token_ids=np.array(token_ids, np.int32),
        best_ids=best.astype(np.int32),
        best_logits=np.take_along_axis(found, best, axis=1),
    )


def write_greedy(reference: Reference) -> None:
    """greedy.json: 20 prompts as tokens, each with the 40 that follow."""
    start, end = 1, 2
    prompts = [reference.tokens(prompt) for prompt in PROMPTS]
    for question in QUESTIONS:
        asked, answered = reference.tokens("user\n" + question), reference.tokens("assistant\n")
        prompts.append([start, *asked, end, *reference.tokens("\n"), start, *answered])
    rows = [[prompt, reference.greedy(prompt, GREEDY_TOKENS)] for prompt in prompts]
    (HERE / "greedy.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def main(model: Path, sources: Path, library: Path) -> None:
    """Make all three."""
    with tempfile.TemporaryDirectory() as folder:
        program, copy = Path(folder) / "reference", Path(folder) / "float32.gguf"
        compile_reference(sources, library, program)
        write_float32(model, copy)
        reference = Reference(program, copy)
        write_tokens(reference)
        write_logits(reference, size=49152)
        write_greedy(reference)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
