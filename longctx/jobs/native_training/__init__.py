"""A small model of the `glm_moe_dsa` shape, trained on tasks whose answers are known.

`tasks` makes the sequences, `shape` names the sizes, `model` is the differentiable model, `train`
teaches it, `export` writes a model folder, `evaluate` measures what sharing indices costs.
"""
