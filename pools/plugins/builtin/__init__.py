"""Plugins that are part of Berth. Each plugin is a function with parameters."""

from collections.abc import Callable, Mapping

from pools.plugins.base import Plugin
from pools.plugins.builtin.accelerate import accelerate
from pools.plugins.builtin.cuml import cuml
from pools.plugins.builtin.huggingface import huggingface
from pools.plugins.builtin.jax import jax
from pools.plugins.builtin.joblib import joblib
from pools.plugins.builtin.keras import keras
from pools.plugins.builtin.mig import mig
from pools.plugins.builtin.mps import mps
from pools.plugins.builtin.sklearn import sklearn
from pools.plugins.builtin.torch import torch

ALL: Mapping[str, Callable[..., Plugin]] = {
    "accelerate": accelerate, "cuml": cuml, "huggingface": huggingface, "jax": jax, "joblib": joblib,
    "keras": keras, "mig": mig, "mps": mps, "sklearn": sklearn, "torch": torch,
}  # fmt: skip

__all__ = [
    "ALL", "accelerate", "cuml", "huggingface", "jax", "joblib", "keras", "mig", "mps", "sklearn", "torch",
]  # fmt: skip
