"""Training that cuts a model: pipelines, split tensors, spread experts, sharded state, and all of them at once."""
