"""Values that nobody means well with, and the command line asked in this process, so that thousands take seconds."""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from hypothesis import strategies as st

from featurelab.pipelines.engine.command import cli
from featurelab.pipelines.engine.experiment.catalogue import strangers

LONG = 100_000
TRICKS = [
    *(
        "",
        " ",
        "-",
        "--",
        "=",
        ",",
        ";",
        "'",
        '"',
        "\\",
        "%",
        "%00",
        "%s%n",
        "{}",
        "{0.__class__}",
        "{{7*7}}",
        "${HOME}",
    ),
    *(
        "../",
        "../../etc/passwd",
        "/etc/passwd",
        "~",
        "~/x",
        "~root",
        "C:\\x",
        "\\\\host\\share",
        "a/../../b",
        "NUL",
        ".",
    ),
    *("$(touch x)", "`touch x`", "; touch x", "| touch x", "&& touch x", "> x", "*", "!!", "\n touch x", "a\nb\r\nc"),
    *("__import__('os').system('touch x')", "lambda: 0", "eval('1')", "!!python/object/apply:os.system ['touch x']"),
    *(
        '{"a": 1, "a": 2}',
        "[1, 1, 1",
        "[1, 2]]",
        '["a", {"b": []}]',
        "- a\n- b",
        "&a [*a, *a]",
        "<!ENTITY x SYSTEM 'y'>",
    ),
    *(
        "nan",
        "-nan",
        "inf",
        "-inf",
        "Infinity",
        "1e400",
        "-1e400",
        "-0",
        "-0.0",
        "0x1p9999",
        "1_0",
        "١٢",
        "½",
        "1e-400",
    ),
    *("9" * 4000, "9" * 5000, "-" + "9" * 400, "0." + "0" * 400 + "1", str(2**63), str(2**64), str(-(2**63)), "True"),
    *("\x00", "a\x00b", "\x1b[2J\x1b]0;title\x07", "\x7f", "\x85", "\u2028", "\u202ecod.exe", "\ufeff", "\udc80\udcff"),
    *(
        "é",
        "e\u0301",
        "İ",
        "ß",
        "\U0001f4a5",
        "\ufffe",
        "\u0000" * 9,
        "a\tb",
        "None",
        "null",
        "none",
        "[]",
        "{}",
        "[NaN]",
    ),
    *("choice()", "choice(,)", "choice(1", "uniform(nan,1)", "uniform(0,inf)", "randint(1,1e9)", "loguniform(-1,1)"),
    *(
        "uniform(-1e308,1e308)",
        "randint(0," + "9" * 4000 + ")",
        "choice([[[[[[[[[[1]]]]]]]]]])",
        "uniform(1,2)(3)",
        "x()",
    ),
    *("sqlite://", "sqlite:", "sqlite:///:memory:", "sqlite:///../x", "file:///tmp/x", "http://", "http://[::1", "://"),
    *("http://me:hunter2-hunter2@nowhere.invalid", "postgresql://me:hunter2-hunter2@127.0.0.1:1/x?password=hunter2-xx"),
]
tricks = st.sampled_from(TRICKS)
repeated = st.tuples(st.sampled_from("a9[({,=\"'\\/\n-%@.:\x1b\u202e<"), st.sampled_from([50, 999, 5000, LONG])).map(
    lambda pair: pair[0] * pair[1]
)
controls = st.text(st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Zs", "Co"]), min_size=1, max_size=12)
texts = st.one_of(
    st.text(max_size=40),
    tricks,
    repeated,
    controls,
    st.lists(tricks, min_size=2, max_size=4).map("".join),
    st.tuples(tricks, st.text(max_size=8)).map("".join),
    st.lists(st.text("[](){},:\"'0123456789.eE+- \\nulltrue", max_size=12), max_size=6).map(",".join),
    st.integers().map(str),
    st.floats().map(repr),
)


@dataclass(frozen=True)
class Answer:
    """What a command said: `accepted` where it would have gone on to do something."""

    code: int
    out: str
    err: str
    accepted: bool


class Accepted(BaseException):
    """Raised in place of what a command does once it has found nothing wrong with the request."""


def accept(*args: object, **options: object) -> None:
    raise Accepted


@dataclass
class Commands:
    """Asks the command line in an empty folder, and looks after each answer whether something was written."""

    home: Path
    many: int = 0  # different wrong values of each kind to ask for

    def __call__(self, *arguments: str) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        accepted, code, before = False, 0, sys.argv
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            sys.argv = ["featurelab", *arguments]
            try:
                cli.main()
            except SystemExit as end:
                code = int(end.code or 0)
            except Accepted:
                accepted = True
            finally:
                sys.argv = before
        return Answer(code, out.getvalue(), err.getvalue(), accepted)

    def refusal(self, *arguments: str) -> str | None:
        """The one line with which a request is refused, or None where it is accepted; nothing is written either way."""
        before = written(self.home)
        answer = self(*arguments)
        assert written(self.home) == before, "something was written"
        if answer.accepted:
            return None
        assert answer.code == 2, answer
        assert answer.out == ""
        check_line(answer.err)
        return answer.err


def check_line(err: str) -> None:
    """One line of a reasonable length that does nothing but say what is wrong."""
    assert err.startswith("featurelab: "), err
    assert err.endswith("\n")
    assert err[:-1].isprintable(), repr(err)
    assert len(err) < 520
    assert "Traceback" not in err
    assert "hunter2-" not in err


def written(folder: Path) -> list[tuple[str, int]]:
    """What is below a folder; the files that SQLite keeps beside an open database do not count."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".hypothesis"]  # its own notes
        found += [(os.path.join(place, name), 0) for name in folders]
        paths = [os.path.join(place, name) for name in files if not name.endswith(("-wal", "-shm"))]
        found += [(path, os.lstat(path).st_size) for path in paths]
    return sorted(found)


@pytest.fixture(scope="module", params=[40, pytest.param(1000, marks=pytest.mark.heavy)])
def commands(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """The command line in a folder of its own, where nothing that it accepts is done, and no name is looked up."""
    home = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        quicken(patch, home)
        patch.setattr("featurelab.pipelines.engine.sweep.begin.prepare", accept)
        patch.setattr("featurelab.pipelines.engine.sweep.ray.cluster.connect_ray", accept)
        patch.setattr("featurelab.tracking.store.connect.connect", accept)
        yield Commands(home, request.param)


def quicken(patch: pytest.MonkeyPatch, home: Path, packages: Sequence[object] = ()) -> None:
    """Build the command once, and look for packages of experiments only among these."""
    patch.chdir(home)
    patch.setenv("HOME", str(home))
    patch.setenv("MPLCONFIGDIR", str(home.parent / "matplotlib"))  # which notes its fonts when it is imported
    patch.setattr(cli, "app", typer.main.get_command(cli.app))
    patch.setattr(strangers, "entries", lambda: list(packages))
    for name in list(os.environ):
        if name.startswith(("MLFLOW_TRACKING", "FEATURELAB_", "RAY_")):
            patch.delenv(name)
