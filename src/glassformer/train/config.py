"""Configuration that all tasks share; ``train.tasks`` adds the sections of each."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from glassformer.config import Config


class OptimizerConfig(Config):
    """Section 5.3. With ``schedule = "noam"``, ``learning_rate`` is a factor on equation 3; else it is the peak."""

    kind: Literal["adam", "adamw"] = Field("adam", description="Kingma and Ba 2015, or with decoupled weight decay")
    schedule: Literal["noam", "inverse_sqrt", "cosine", "constant"] = Field("noam", description="rate schedule")
    learning_rate: float = Field(1.0, gt=0, description="factor (noam) or peak")
    embedding_rate: float = Field(1.0, gt=0)
    """Rate of the vocabulary's embeddings, and of an output matrix shared with them, as a multiple of the others'.

    A row learns only from the tokens that are its own (Yang et al. 2022, arXiv:2203.03466, table 3).
    """
    warmup_steps: int = Field(4000, ge=0, description="steps of rising rate")
    cooldown_steps: int = Field(0, ge=0, description="last steps, in which the rate falls linearly to 0")
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = Field(
        (0.9, 0.98), description="Adam β₁, β₂"
    )
    epsilon: float = Field(1e-9, gt=0, description="Adam ε")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of matrices only; needs adamw")
    clip_norm: float = Field(0.0, ge=0)
    """Largest norm of the gradient; 0 does not clip."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.weight_decay and self.kind == "adam":
            raise ValueError("kind=adam has no weight_decay; set kind=adamw, or weight_decay=0")
        return self


class TrainConfig(Config):
    """Length and precision of training. Steps are absolute: a resumed run ends where an uninterrupted one would.

    ``max_steps`` may be raised on resuming; under ``schedule = "cosine"`` the rate is then that of the longer run.
    """

    max_steps: int = Field(100_000, gt=0, description="updates in all")
    max_seconds: float = Field(0.0, ge=0)
    """Training time after which the run ends, validation and start not counted; 0 is no limit."""
    seed: int = Field(1, ge=0, lt=2**63, description="random seed of weights, batches and dropout")
    precision: Literal["float32", "bfloat16"] = Field("float32", description="precision of matrix products")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="the paper's epsilon_ls")
    dropout_warmup_steps: int = Field(0, ge=0)
    """Steps over which dropout rises from 0 to the model's (Morerio et al. 2017, arXiv:1703.06229)."""
    accumulate: int = Field(1, gt=0)
    """Batches per step: gradients are summed and divided by the number of their tokens."""
    ema: float = Field(0.0, ge=0, lt=1)
    """Decay of the exponential moving average of the weights, which is then what is validated and saved; 0 is none."""
    save_every: int = Field(1000, gt=0, description="steps between checkpoints")
    keep_checkpoints: int = Field(
        5, gt=0, description="newest scheduled checkpoints to keep, besides the best and one saved on interruption"
    )
    log_every: int = Field(50, gt=0, description="steps between progress reports")
    max_bad_steps: int = Field(10, ge=0)
    """Steps with a loss or gradient that is not finite that may be skipped before the run stops."""
    device: str = Field("auto", description="device: auto (a GPU if present), cpu or cuda")
    engine: Literal["auto", "torch", "native", "compile"] = "auto"
    """Engine of the model. ``native``: the C++ kernels, on a CPU. ``torch``: PyTorch. ``auto``: the kernels for the
    parts that they can compute. ``compile``: ``torch.compile`` of the stacks. A run resumes on the same engine only."""
    threads: int = Field(0, ge=0)
    """CPU threads, at most one a core; 0 leaves PyTorch's choice, and a resumed run its own. In Python, as set by
    `torch.set_num_threads`."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Form of a training by several processes. ``ddp``: each has the whole model. ``fsdp``: weights, gradients and
    optimizer are divided among them, for models that do not fit one device; on PyTorch alone."""
    tensor_parallel: int = Field(1, gt=0)
    """Processes that divide the heads and the inner width of each layer; the others share the rows. It divides
    `n_heads`, `attention.n_kv_heads`, `d_ff` and the number of processes. On PyTorch alone."""
    wait_seconds: float = Field(1800.0, gt=0, le=604_800)
    """Time that several processes wait for one that does not answer, which has to exceed the longest validation."""
    start_from: str | None = None
    """Run or checkpoint to start from: its tokenizer, and its weights where they fit. It also fills in settings that
    ``[model]`` leaves out, except dropout and sizes that the data decide."""
    override_on_resume: bool = False
    """Let ``--resume`` change ``[optimizer]`` and ``train.precision``, ``label_smoothing``, ``dropout_warmup_steps``,
    ``accumulate``, ``ema`` (not from or to 0), ``loss`` and the number of threads. The run records each change."""


class ValidationConfig(Config):
    """Validation and early stopping."""

    every: int = Field(1000, gt=0, description="steps between validations")
    metric: str = "loss"
    """Chooses the best checkpoint and stops the run."""
    patience: int = Field(0, ge=0)
    """Validations without a better ``metric`` before the run stops; 0 never stops."""


class PlainTrainConfig(TrainConfig):
    """Length and precision of training. Steps are absolute: a resumed run ends where an uninterrupted one would."""

    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of the probability given to all entries")


class AccuracyValidation(ValidationConfig):
    """Validation by accuracy: the share of correctly classified examples."""

    metric: Literal["accuracy", "loss"] = "accuracy"
    """Chooses the best checkpoint and stops the run."""


class RunConfig(Config):
    """Configuration of a training run; each task has its own sections beside these."""

    task: str
    model: Config
    data: Config
    optimizer: OptimizerConfig = OptimizerConfig()
    train: TrainConfig = TrainConfig()
    validation: ValidationConfig = ValidationConfig()
