"""The extra `lab`: what the command, `featurelab.pipelines` and `featurelab.tracking` need beyond the core."""

from importlib.util import find_spec

PACKAGES = (
    "jinja2",
    "matplotlib",
    "mlflow",
    "pandas",
    "pydantic",
    "ray",
    "rich",
    "tenacity",
    "threadpoolctl",
    "tomlkit",
    "typer",
    "yaml",
)
INSTALL = "pip install 'feature-learning-lab[lab]'"


def require(what: str) -> None:
    """Raise ModuleNotFoundError, with one line that says what to install, unless the whole extra is there."""
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise ModuleNotFoundError(f"{what} needs {', '.join(missing)}: run {INSTALL}", name=missing[0])
