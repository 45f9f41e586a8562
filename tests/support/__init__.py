"""What several tests share: samples of what Paceline reads and writes, and ways to run it; one concept per module."""

from pkgutil import iter_modules

import pytest

# failing assertions in them show their values, as those of tests do
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))
