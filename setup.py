"""The packages of the wheel; all else stands in pyproject.toml.

`featurelab/modules`, `featurelab/pipelines` and `featurelab/tracking` are symbolic links. A ZIP archive, or Git on
Windows, leaves text files in their place: then the build takes the folders themselves.
"""

from pathlib import Path

from setuptools import find_namespace_packages, setup

FOLDERS = ("modules", "pipelines", "tracking")
linked = all(Path("featurelab", folder).is_dir() for folder in FOLDERS)
places = {f"featurelab.{folder}": f"featurelab/{folder}" if linked else folder for folder in FOLDERS}
inner = [
    f"{package}.{name}"
    for package, place in places.items()
    for name in find_namespace_packages(place, exclude=["*__pycache__"])  # folders of templates are packages too
]

setup(packages=["featurelab", *places, *inner], package_dir={} if linked else places)
