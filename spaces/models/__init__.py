"""Models: layer groups that hold KV and parameters counted by tensor class, from `config.json` files."""

from kvwall.spaces.models.layers import LayerGroup, Model
from kvwall.spaces.models.load import load_model, loadable_model_names, model_names, read_model

__all__ = ["LayerGroup", "Model", "load_model", "loadable_model_names", "model_names", "read_model"]
