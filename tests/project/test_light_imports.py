"""What a trial imports, and that what Lightning would import beside it is there as soon as somebody uses it."""

import subprocess
import sys
from pathlib import Path

import pytest

TRIAL = """
import sys
from featurelab.pipelines.engine.command.cli import main
sys.argv[1:] = ["run", "neural_feature_ansatz/init_scale", "steps=3", "n_train=8", "width=8"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
START = "import sys, featurelab, pytorch_lightning as pl, torch\n"
COMPILER = {"torch._inductor", "torch._dynamo.eval_frame", "sympy"}
HEAVY = {"transformers", "torchmetrics.functional", "matplotlib", "ray"} | COMPILER


def said(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_trial_imports_neither_the_compiler_nor_sympy_nor_ray_nor_what_torchmetrics_can_plot_and_tokenize(tmp_path):
    listed = said(f"{TRIAL}\nprint('imported', *sys.modules)", tmp_path).rpartition("imported ")[2].split()
    assert {"torch.optim", "pytorch_lightning", "torchmetrics.metric", "mlflow"} <= set(listed)
    assert HEAVY & set(listed) == set()


def test_torchmetrics_is_whole_at_its_first_use_and_its_metrics_are_those_that_lightning_knows(tmp_path):
    code = """
assert "torchmetrics.functional" not in sys.modules
import torchmetrics
from pytorch_lightning.core.module import Metric
assert issubclass(torchmetrics.Accuracy, Metric) and torchmetrics.functional.accuracy
metric = torchmetrics.classification.BinaryAccuracy()
metric(torch.tensor([0, 1]), torch.tensor([0, 0]))
print(torchmetrics.__version__, metric.compute().item(), type(metric.plot()[0]).__name__, type(torchmetrics).__name__)
"""
    version, *rest = said(START + code, tmp_path).split()
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
def test_compiled_networks_are_recognised_and_optimizers_stay_out_of_what_is_compiled(first, tmp_path):
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
    assert said(START + code, tmp_path).split() == ["1.0"] * 3


def test_lightning_is_imported_as_usual_if_this_way_fails(tmp_path):
    code = """
from featurelab import _lightning
_lightning._part_of_torchmetrics = lambda *names: 1 / 0
import pytorch_lightning as pl
import torchmetrics
print(pl.Trainer.__name__, type(torchmetrics).__name__, "torchmetrics.functional" in sys.modules)
"""
    assert said(f"import sys, featurelab\n{code}", tmp_path).split() == ["Trainer", "module", "True"]
