"""Bounds on what a tokenizer from a model's folder may do to texts, checked before it gets any."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .hub_checks import ModelRefused

MOST_GROWTH = 64  # times: how much longer the replacements of a tokenizer may make a text
MOST_TEMPLATE, SECONDS, MEMORY = 1 << 20, 4, 1 << 30  # characters; seconds and bytes to write a short conversation
_SHOWN = [{"role": role, "content": "a film"} for role in ("user", "assistant", "user")]
# in a process of its own, which it may fill and block
_RENDER = """
import json, resource, sys
given = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_CPU, (given["seconds"], given["seconds"]))
resource.setrlimit(resource.RLIMIT_AS, (given["memory"], given["memory"]))
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
def refuse(said): raise ValueError(said)
env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
env.filters["tojson"] = lambda x, **options: json.dumps(x)
env.globals |= {"raise_exception": refuse, "strftime_now": lambda form: form}
text = env.from_string(given["template"]).render(messages=given["messages"], add_generation_prompt=True,
    bos_token="<s>", eos_token="</s>")
sys.exit(3 if len(text) > 100_000 else 0)
"""


def check_tokenizer(tokenizer: Any, place: Path, *, chat: bool = False) -> None:
    """Raise ModelRefused for replacements that make a text far longer and, with `chat`, for such a template.

    The template is tried on a short conversation, which cannot detect one that misbehaves only on a longer one.
    """
    inner = getattr(tokenizer, "backend_tokenizer", None)
    parts = [getattr(inner, part, None) for part in ("normalizer", "pre_tokenizer", "decoder")]
    growth = 1
    for part in parts:
        if part is not None:
            growth *= _growth(json.loads(part.__getstate__()))
    if growth > MOST_GROWTH:
        raise ModelRefused(f"{place / 'tokenizer.json'} makes texts more than {MOST_GROWTH} times longer")
    if chat and tokenizer.chat_template:
        _check_template(str(tokenizer.get_chat_template()), place)


def _growth(part: Any) -> int:
    if isinstance(part, list):
        product = 1
        for step in part:
            product *= _growth(step)
        return product
    if not isinstance(part, dict):
        return 1
    own = (
        len(str(part.get("content") or part.get("prepend") or "")) if part.get("type") in ("Replace", "Prepend") else 1
    )
    return max(1, own) * _growth(list(part.values()))


def _check_template(template: str, place: Path) -> None:
    wrong = f"{place}: the chat template"
    if len(template) > MOST_TEMPLATE:
        raise ModelRefused(f"{wrong} has {len(template):,} characters, but at most {MOST_TEMPLATE:,} are allowed")
    given = {"template": template, "messages": _SHOWN, "seconds": SECONDS, "memory": MEMORY}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _RENDER],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=8 * SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ModelRefused(f"{wrong} takes more than {SECONDS} s for three short turns") from None
    said = (done.stderr.strip().splitlines() or ["it was ended"])[-1][:160]
    if done.returncode == 3:
        raise ModelRefused(f"{wrong} writes more than 100,000 characters for three short turns")
    if done.returncode and not said.startswith("ValueError"):  # a template may refuse a conversation itself
        raise ModelRefused(f"{wrong} cannot be used within {SECONDS} s and {MEMORY >> 30} GiB: {said}")
