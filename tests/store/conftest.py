import pytest

# The contract is no test module, but its assertions are to explain themselves, too.
pytest.register_assert_rewrite("tests.store.contract")
