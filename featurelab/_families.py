"""Import the families of `featurelab.modules` under short names, such as `featurelab.measures`."""

from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Families(MetaPathFinder, Loader):
    """Finds `<package>.<family>` and its submodules as `<package>.modules.<family>`, without a second copy."""

    def __init__(self, package: str, families: Collection[str]) -> None:
        self._package, self._families = package, frozenset(families)
        self._own: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package != self._package or rest.partition(".")[0] not in self._families:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(f"{self._package}.modules.{spec.name.partition('.')[2]}")
        self._own[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which the import system has just replaced. There is nothing left to run."""
        assert module.__spec__ is not None
        module.__spec__ = self._own.pop(module.__spec__.name)
