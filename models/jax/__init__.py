"""Models in JAX: real training and inference steps for meshes of any size.

The idea: a model is a tree of described parameters (``parameters.py``), plain functions of arrays,
and a step that ``flint.capture`` decorates.  Dims have logical names; ``sharding.py`` says which
mesh axes split them, so that one step serves every mesh whose axes have the usual names.

    flint capture models/jax/llama3.py:train_8b --mesh 64,8 -o out/
"""
