"""What a data section may say."""

import pytest

from glassformer.data import DataConfig
from glassformer.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"train": []}, "train"),
        ({"weights": [1.0]}, "weights has 1 values and train 2 paths"),
        ({"weights": [1.0, 0.0]}, "above 0"),
        ({"weights": [1.0, float("inf")]}, "finite number"),
        ({"weights": [1.0, float("nan")]}, "finite number"),
        ({"max_length_ratio": 0.5}, "never below 1"),
        ({"max_length_ratio": float("nan")}, "max_length_ratio"),
        ({"source": "en", "target": "en"}, "both 'en'"),
        ({"batch_token": 3}, "did you mean batch_tokens?"),
        ({"bucket_noise": 2}, "bucket_noise"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DataConfig.parse({"train": ["a", "b"], **values})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_configuration_survives_being_written(tmp_path) -> None:
    config = DataConfig(train=["a", "b"], weights=[1.0, 0.5], max_length_ratio=1.5, cache="~/c")
    config.write(tmp_path / "data.toml")
    assert DataConfig.read(tmp_path / "data.toml") == config
