"""What a trial imports, and that what Lightning and MLflow would import beside it is there once somebody uses it."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

TRIAL = """
import sys
from featurelab.pipelines.engine.command.cli import main
sys.argv[1:] = ["run", "neural_feature_ansatz/init_scale", "steps=3", "n_train=8", "width=8"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
COMPILER = {"torch._inductor", "torch._dynamo.eval_frame"}
if Version(version("torch")) >= Version("2.11"):  # which no longer imports it by itself
    COMPILER.add("sympy")
OF_MLFLOW = {"pandas.core", "scipy", "fastapi", "mlflow.data.pandas_dataset", "mlflow.genai.evaluation"}
HEAVY = {"transformers", "torchmetrics.functional", "matplotlib", "ray"} | COMPILER | OF_MLFLOW
STORE = "import sys, mlflow, mlflow.store.tracking.sqlalchemy_store\n"
NAMES = """
import importlib
for name in ("mlflow", "mlflow.data", "mlflow.gateway", "mlflow.models", "mlflow.genai", "mlflow.genai.judges",
             "mlflow.genai.scorers", "mlflow.genai.datasets"):
    module = importlib.import_module(name)
    for attribute in sorted(module.__all__):
        value = getattr(module, attribute)
        is_module = isinstance(value, type(sys))
        print(name, attribute, "module" if is_module else getattr(value, "__module__", type(value).__name__))
"""


FORKS = """
import json, os, traceback
for line in sys.stdin:
    folder, code = json.loads(line)
    if not (child := os.fork()):
        os.chdir(folder)
        os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT), 1)
        status = 1
        try:
            exec(code, {"__name__": "__main__", **globals()})
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(status)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def said(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def forked_after(start: str) -> Iterator[Callable[[str, Path], str]]:
    """`said` in copies of one process that ran `start`: imports, which take seconds, happen once."""
    command = [sys.executable, "-c", start + FORKS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        into, out = process.stdin, process.stdout
        assert into is not None
        assert out is not None

        def said_after(code: str, folder: Path) -> str:
            into.write(json.dumps([str(folder), code]) + "\n")
            status = out.readline().strip()
            text = (folder / "said").read_text()
            assert status == "0", text
            return text

        yield said_after


@pytest.fixture(scope="module")
def after_lightning() -> Iterator[Callable[[str, Path], str]]:
    with forked_after("import sys, featurelab, pytorch_lightning as pl, torch\n") as run:
        yield run


@pytest.fixture(scope="module")
def after_mlflow() -> Iterator[Callable[[str, Path], str]]:
    with forked_after(f"import featurelab\n{STORE}") as run:
        yield run


def test_a_trial_imports_neither_compilers_nor_ray_nor_what_torchmetrics_and_mlflow_do_not_need_for_it(tmp_path):
    listed = said(f"{TRIAL}\nprint('imported', *sys.modules)", tmp_path).rpartition("imported ")[2].split()
    assert {"torch.optim", "pytorch_lightning", "torchmetrics.metric", "mlflow"} <= set(listed)
    assert HEAVY & set(listed) == set()


def test_networks_are_made_without_the_compiler(after_lightning, tmp_path):
    code = """
from featurelab import nets
nets.cnn(3, (4, 4), outputs=2, seed=0)
nets.two_layer(3, 4, seed=0)
nets.ScaledInputs(3)
nets.TrunkFeature(torch.nn.Identity(), 3, 4, seed=0)
nets.attention_net(5, 3, width=4, heads=1, head_dim=2, feedforward=4, seed=0)
print("imported", *sys.modules)
"""
    listed = after_lightning(code, tmp_path).rpartition("imported ")[2].split()
    assert COMPILER & set(listed) == set()


def test_torchmetrics_is_whole_at_its_first_use_and_its_metrics_are_those_that_lightning_knows(
    after_lightning, tmp_path
):
    code = """
assert "torchmetrics.functional" not in sys.modules
import torchmetrics
from pytorch_lightning.core.module import Metric
assert issubclass(torchmetrics.Accuracy, Metric) and torchmetrics.functional.accuracy
metric = torchmetrics.classification.BinaryAccuracy()
metric(torch.tensor([0, 1]), torch.tensor([0, 0]))
print(torchmetrics.__version__, metric.compute().item(), type(metric.plot()[0]).__name__, type(torchmetrics).__name__)
"""
    version, *rest = after_lightning(code, tmp_path).split()
    assert version[0].isdigit()
    assert rest == ["0.5", "Figure", "module"]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("import torch._dynamo.config", marks=pytest.mark.heavy),
        pytest.param("torch._dynamo.list_backends()", marks=pytest.mark.heavy),
        "",
    ],
)
def test_compiled_networks_are_recognised_and_optimizers_stay_out_of_what_is_compiled(first, after_lightning, tmp_path):
    code = f"""
net = torch.nn.Linear(3, 1)
torch.nn.init.zeros_(net.weight)  # so that the difference below is exact
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
assert "torch._dynamo.eval_frame" not in sys.modules
{first}
compiled = torch.compile(net, backend="eager")
assert isinstance(compiled, torch._dynamo.OptimizedModule)
from lightning_fabric.wrappers import _unwrap_compiled
assert _unwrap_compiled(compiled)[0] is net and _unwrap_compiled(net)[0] is net

def step():
    optimizer.zero_grad()
    compiled(torch.ones(2, 3)).sum().backward()
    optimizer.step()

before = net.weight.clone()
torch.compile(step, backend="eager")()
print(*(before - net.weight).flatten().tolist())
"""
    assert after_lightning(code, tmp_path).split() == ["1.0"] * 3


def test_lightning_is_imported_as_usual_if_this_way_fails(tmp_path):
    code = """
from featurelab import _lightning
_lightning._part_of_torchmetrics = lambda *names: 1 / 0
import pytorch_lightning as pl
import torchmetrics
print(pl.Trainer.__name__, type(torchmetrics).__name__, "torchmetrics.functional" in sys.modules)
"""
    assert said(f"import sys, featurelab\n{code}", tmp_path).split() == ["Trainer", "module", "True"]


def test_mlflow_offers_the_same_names_from_the_same_modules_as_without_us(after_mlflow, tmp_path):
    assert said(STORE + NAMES, tmp_path) == after_mlflow(NAMES, tmp_path)


@pytest.mark.parametrize(
    "code",
    [
        "import pandas; from pandas.core.frame import DataFrame; assert pandas.DataFrame is DataFrame",
        "from mlflow.genai.scorers.base import Scorer; assert mlflow.genai.scorers.Scorer is Scorer",
        "from mlflow.genai.scorers import scorer; assert mlflow.genai.scorer is scorer",
        "assert mlflow.genai.judges.make_judge.__name__ == 'make_judge'  # and not the module of this name",
        "from mlflow.models.signature import ModelSignature; assert mlflow.models.ModelSignature is ModelSignature",
    ],
)
def test_postponed_packages_of_mlflow_are_whole_at_their_first_use(code, after_mlflow, tmp_path):
    imported = "assert 'pandas.core' not in sys.modules and 'mlflow.genai.evaluation' not in sys.modules"
    after_mlflow(f"{imported}\n{code}", tmp_path)


def test_a_trial_can_log_a_table_as_a_dataset_of_mlflow(after_mlflow, tmp_path):
    code = """
import pandas as pd
mlflow.set_tracking_uri("sqlite:///mlflow.db")
with mlflow.start_run() as run:
    mlflow.log_input(mlflow.data.from_pandas(pd.DataFrame({"x": [1.0, 2.0]}), name="twins"))
(stored,) = mlflow.get_run(run.info.run_id).inputs.dataset_inputs
source = mlflow.data.get_source(stored)
print(stored.dataset.name, type(source).__name__)
"""
    assert after_mlflow(code, tmp_path).split() == ["twins", "CodeDatasetSource"]


@pytest.mark.parametrize("failing", ["mlflow", "mlflow.store.tracking.sqlalchemy_store"])
def test_mlflow_is_imported_as_usual_if_this_way_fails(failing, tmp_path):
    code = f"""
import sys, featurelab
from featurelab import _mlflow
_mlflow._Later.run = lambda *arguments: 1 / 0
_mlflow.IMPORTS = ("{failing}",)
{STORE}
client = mlflow.MlflowClient("sqlite:///mlflow.db")
print(client.get_experiment("0").name, "pandas.core" in sys.modules, type(sys.modules["mlflow.genai"]).__name__)
"""
    assert said(code, tmp_path).split() == ["Default", "True", "module"]
